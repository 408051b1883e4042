package session

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/livefleet/handover/helper/internal/affinity"
	"github.com/livefleet/handover/helper/internal/image"
	"github.com/livefleet/handover/helper/internal/network"
	"github.com/livefleet/handover/helper/internal/ownnet"
	"github.com/livefleet/handover/helper/internal/report"
	"github.com/livefleet/handover/helper/internal/session/prefetch"
	"github.com/livefleet/handover/helper/internal/settings"
	"github.com/livefleet/handover/helper/internal/wire"
)

// kind names a message. Messages travel as Control frames; a Control frame is a
// fence: the receiver handles it after every earlier frame.
type kind string

const (
	msgHello    kind = "hello"    // → the volumes and trees to come; the run token's digest
	msgWelcome  kind = "welcome"  // ← ready to receive
	msgJoin     kind = "join"     // ↔ on a further connection: it belongs to this session
	msgFetch    kind = "fetch"    // ↔ on a further connection: over it the destination asks for memory that follows
	msgRound    kind = "round"    // → a round begins; ← everything before it was written
	msgAgain    kind = "again"    // → the same process, over another connection
	msgCame     kind = "came"     // ← a piece of the round's arrivals; then a welcome
	msgAfresh   kind = "afresh"   // → a hello of another process: the first one died
	msgDigests  kind = "digests"  // → how does a volume lie there? ← digests of a stretch of clusters, also behind a welcome; none, at the end
	msgBarrier  kind = "barrier"  // → put all you have on the disk
	msgSynced   kind = "synced"   // ← done
	msgFrozen   kind = "frozen"   // → later data are the last
	msgArm      kind = "arm"      // → begin to restore, and have these clusters and files in memory
	msgArmed    kind = "armed"    // ← begun as far as it goes
	msgDumped   kind = "dumped"   // → the state has been sent
	msgFlushed  kind = "flushed"  // → that was everything
	msgDiffers  kind = "differs"  // ← and the content here differs
	msgSum      kind = "sum"      // → how do these clusters lie there? ← so
	msgVerified kind = "verified" // ← digests of the content here; → they match
	msgPrepared kind = "prepared" // ← restored, held
	msgRun      kind = "run"      // → the run token: the source is released
	msgResumed  kind = "resumed"  // ← it runs
	msgRefused  kind = "refused"  // ← it does not and never will
	msgDoubt    kind = "doubt"    // ← it was told to resume and the outcome is not clear
	msgSettled  kind = "settled"  // ← and is on the disk
	msgEnd      kind = "end"      // → goodbye
	msgFail     kind = "fail"     // ↔ this side gives up: why
)

// message is the payload of a Control frame. Which fields count depends on the
// kind.
type message struct {
	Kind        kind               `json:"kind"`
	ID          string             `json:"id,omitempty"`
	Workload    string             `json:"workload,omitempty"`
	Mode        string             `json:"mode,omitempty"`
	Volumes     []volumeHello      `json:"volumes,omitempty"`
	Directories []string           `json:"directories,omitempty"`
	Trees       []string           `json:"trees,omitempty"`
	TokenHash   string             `json:"token_hash,omitempty"`
	Token       string             `json:"token,omitempty"`
	Verify      bool               `json:"verify,omitempty"`
	Lazy        bool               `json:"lazy,omitempty"` // the memory follows when it runs
	Empty       bool               `json:"empty,omitempty"`
	Compare     bool               `json:"compare,omitempty"` // digests of the present content follow
	Can         []string           `json:"can,omitempty"`     // this side's features beyond those of every version
	Lines       int                `json:"connections,omitempty"`
	Totals      []string           `json:"totals,omitempty"` // the ledgers' sums, by volume
	Range       *clusters          `json:"range,omitempty"`
	Warm        []clusters         `json:"warm,omitempty"`   // that the restore will want to read
	Mapped      []prefetch.File    `json:"mapped,omitempty"` // as well
	Sum         string             `json:"sum,omitempty"`
	Roots       []image.Root       `json:"roots,omitempty"`
	Round       int                `json:"round,omitempty"`
	Volume      int                `json:"volume,omitempty"`
	Word        int64              `json:"word,omitempty"`    // the first of
	Words       []byte             `json:"words,omitempty"`   // a piece of a map, little endian
	Cluster     int64              `json:"cluster,omitempty"` // the first of
	Sums        []byte             `json:"sums,omitempty"`    // these digests
	Why         string             `json:"why,omitempty"`
	Took        map[string]float64 `json:"took,omitempty"`   // milliseconds by stage
	Said        int64              `json:"said,omitempty"`   // when it was sent, in nanoseconds of the wall clock
	Memory      int64              `json:"memory,omitempty"` // that the workload has, and of which a part may come ahead
	Stock       int64              `json:"stock,omitempty"`  // so much of it may
	Echo        int64              `json:"echo,omitempty"`   // of the message it answers, and
	Heard       int64              `json:"heard,omitempty"`  // when that was heard

	Settings *settings.Net     `json:"settings,omitempty"` // of the workload's network namespace
	Reset    map[string]string `json:"reset,omitempty"`    // those of them that have changed since

	Own *ownnet.State `json:"own_network,omitempty"` // that namespace's other objects; when it is flushed, as they are then

	Bound affinity.Threads `json:"bound,omitempty"` // threads that are bound to processors

	Told []network.Connection `json:"told,omitempty"` // connections whose peers wait until they are told that there is room
}

// clusters is a range of clusters of a volume.
type clusters struct {
	Volume int   `json:"volume"`
	First  int64 `json:"first"`
	End    int64 `json:"end"`
}

type volumeHello struct {
	Name    string `json:"name"`
	Size    int64  `json:"size"`
	Cluster int    `json:"cluster"`
}

func (m *message) frame() (*wire.Frame, error) {
	b, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("session: %w", err)
	}
	return &wire.Frame{Type: wire.Control, Payload: b}, nil
}

func parseMessage(f *wire.Frame) (*message, error) {
	var m message
	if err := json.Unmarshal(f.Payload, &m); err != nil {
		return nil, fmt.Errorf("session: the peer sent a message that is none: %w", err)
	}
	return &m, nil
}

func send(c *wire.Conn, m message) error {
	m.Said = time.Now().UnixNano()
	f, err := m.frame()
	if err != nil {
		return err
	}
	return c.Write(f)
}

// lastWordPatience is how long a side that gives up waits for the other to have
// heard why.
const lastWordPatience = 3 * time.Second

// lastWord tells the other side why this one gives up. It may be gone already; then
// it has noticed.
func lastWord(log *report.Log, c *wire.Conn, m message) {
	f, err := m.frame()
	if err == nil {
		err = c.LastWord(f, lastWordPatience)
	}
	if err != nil {
		log.Emit("warning", map[string]any{"text": "the other side may not have heard why: " + err.Error()})
	}
}
