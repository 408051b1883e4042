// Package protocol has the messages of a session, and the table of who may hear which
// of them in which state.
//
// A message travels as JSON in a Control frame. A Control frame is a fence: the receiver
// handles it after every earlier frame. Two versions of pcopy talk to each other, so the
// bytes of a message stay as they are, the order of its fields among them; a reader
// ignores fields that it does not know.
package protocol

import (
	"github.com/livefleet/handover/helper/internal/affinity"
	"github.com/livefleet/handover/helper/internal/floating"
	"github.com/livefleet/handover/helper/internal/image"
	"github.com/livefleet/handover/helper/internal/network"
	"github.com/livefleet/handover/helper/internal/ownnet"
	"github.com/livefleet/handover/helper/internal/session/prefetch"
	"github.com/livefleet/handover/helper/internal/settings"
)

// Kind names a message.
type Kind string

// Message is one of the structs of this file.
type Message interface {
	Kind() Kind
	SentAt() int64
	stamp(now int64)
}

// Sent is when a message was sent, in nanoseconds of its sender's wall clock.
type Sent struct {
	Said int64 `json:"said,omitempty"`
}

func (s *Sent) stamp(now int64) { s.Said = now }

// SentAt is the time of the stamp.
func (s *Sent) SentAt() int64 { return s.Said }

// Answer is of a message that answers another: when that was sent, and when it was heard.
type Answer struct {
	Echo  int64 `json:"echo,omitempty"`
	Heard int64 `json:"heard,omitempty"`
}

// Times are both.
func (a *Answer) Times() (echo, heard int64) { return a.Echo, a.Heard }

// Reason is of a message that ends something.
type Reason struct {
	Why string `json:"why,omitempty"`
	Sent
}

// Text is the reason.
func (r *Reason) Text() string { return r.Why }

// Clusters is a range of clusters of a volume.
type Clusters struct {
	Volume int   `json:"volume"`
	First  int64 `json:"first"`
	End    int64 `json:"end"`
}

// Volume describes a volume to the destination.
type Volume struct {
	Name    string `json:"name"`
	Size    int64  `json:"size"`
	Cluster int    `json:"cluster"`
}

// Opening is the first message of a process of the source: the volumes and trees to
// come, and the digest of the run token.
type Opening struct {
	ID          string   `json:"id,omitempty"`
	Workload    string   `json:"workload,omitempty"`
	Mode        string   `json:"mode,omitempty"`
	Volumes     []Volume `json:"volumes,omitempty"`
	Directories []string `json:"directories,omitempty"`
	Trees       []string `json:"trees,omitempty"`
	TokenHash   string   `json:"token_hash,omitempty"`
	Verify      bool     `json:"verify,omitempty"`
	Lazy        bool     `json:"lazy,omitempty"`        // the memory follows when it runs
	Can         []string `json:"can,omitempty"`         // this side's features beyond those of every version
	Lines       int      `json:"connections,omitempty"` // that the source wants
	Sent
	Memory int64 `json:"memory,omitempty"` // that the workload has, and of which a part may come ahead
}

// Further is of a message that begins a further connection of a session.
type Further struct {
	ID string `json:"id,omitempty"`
	Sent
}

// Session is the session that the connection is for.
func (f *Further) Session() string { return f.ID }

// Messages of the source.
type (
	// Hello opens a session.
	Hello struct{ Opening }

	// Afresh is the hello of another process: the first one died.
	Afresh struct{ Opening }

	// Again is the same process, over another connection.
	Again struct {
		ID        string `json:"id,omitempty"`
		TokenHash string `json:"token_hash,omitempty"`
		Lines     int    `json:"connections,omitempty"`
		Sent
	}

	// Barrier has the destination put all it has on the disk.
	Barrier struct{ Sent }

	// Frozen: later data are the last.
	Frozen struct{ Sent }

	// Arm has the destination begin to restore, with these clusters and files in memory.
	Arm struct {
		Warm   []Clusters      `json:"warm,omitempty"` // that the restore will want to read
		Mapped []prefetch.File `json:"mapped,omitempty"`
		Sent
		Settings *settings.Net `json:"settings,omitempty"`    // of the workload's network namespace
		Own      *ownnet.State `json:"own_network,omitempty"` // that namespace's other objects
		Place    bool          `json:"place,omitempty"`       // CRIU dumps without the memory's content, which is to be placed
	}

	// Dumped: the state has been sent.
	Dumped struct{ Sent }

	// Flushed: everything has been sent.
	Flushed struct {
		Totals []string `json:"totals,omitempty"` // the ledgers' sums, by volume
		Sent
		Reset  map[string]string    `json:"reset,omitempty"`       // settings that have changed since Arm
		Own    *ownnet.State        `json:"own_network,omitempty"` // the namespace's other objects, as they are now
		Groups ownnet.Groups        `json:"groups,omitempty"`      // memberships in multicast groups
		Bound  affinity.Threads     `json:"bound,omitempty"`       // threads that are bound to processors
		Told   []network.Connection `json:"told,omitempty"`        // connections whose peers wait until they are told that there is room
		Flows  []floating.Flow      `json:"flows,omitempty"`       // connections through floating addresses
		Tmpfs  map[string]string    `json:"tmpfs,omitempty"`       // quick digests of the workload's own tmpfs that the session carries, by name
	}

	// Run is the run token: the source is released.
	Run struct {
		Token string `json:"token,omitempty"`
		Sent
	}

	// End is the goodbye.
	End struct{ Sent }
)

// Messages of the destination.
type (
	// Welcome: ready to receive.
	Welcome struct {
		Empty   bool     `json:"empty,omitempty"`   // the images hold nothing but zeroes
		Compare bool     `json:"compare,omitempty"` // digests of the present content follow
		Can     []string `json:"can,omitempty"`
		Lines   int      `json:"connections,omitempty"`
		Round   int      `json:"round,omitempty"`
		Sent
		Stock int64 `json:"stock,omitempty"` // so much memory may come ahead
		Answer
	}

	// Came is a piece of the map of the round's arrivals; a welcome follows the last.
	Came struct {
		Volume int    `json:"volume,omitempty"`
		Word   int64  `json:"word,omitempty"`  // the first of
		Words  []byte `json:"words,omitempty"` // these, little endian
		Sent
	}

	// Synced answers Barrier.
	Synced struct {
		Took map[string]float64 `json:"took,omitempty"` // milliseconds by stage
		Sent
		Answer
	}

	// Armed answers Arm: begun as far as it goes.
	Armed struct{ Sent }

	// Differs answers Flushed: the content here differs.
	Differs struct {
		Range *Clusters `json:"range,omitempty"`
		Sent
	}

	// Prepared: restored, and held.
	Prepared struct {
		Took map[string]float64 `json:"took,omitempty"`
		Sent
	}

	// Resumed: the workload runs here.
	Resumed struct {
		Took map[string]float64 `json:"took,omitempty"`
		Sent
	}

	// Refused: it does not run here and never will.
	Refused struct{ Reason }

	// Doubt: it was told to resume, and the outcome is not clear.
	Doubt struct{ Reason }

	// Settled: it runs, and everything is on the disk.
	Settled struct {
		Took map[string]float64 `json:"took,omitempty"`
		Sent
	}
)

// Messages of both sides.
type (
	// Join begins a further connection for volumes; the destination answers with the same.
	Join struct{ Further }

	// Fetch begins a further connection for memory that follows; the destination answers with the same.
	Fetch struct{ Further }

	// Round begins a round; the destination answers that everything before it was written.
	Round struct {
		Round int `json:"round,omitempty"`
		Sent
	}

	// Digests asks how a volume lies there; the destination answers with digests of a
	// stretch of clusters, also behind a welcome. One without digests is the end.
	Digests struct {
		Volume  int    `json:"volume,omitempty"`
		Cluster int64  `json:"cluster,omitempty"` // the first of
		Sums    []byte `json:"sums,omitempty"`    // these digests
		Sent
	}

	// Sum asks for the sum of a range of clusters; the destination answers with it.
	Sum struct {
		Range *Clusters `json:"range,omitempty"`
		Sum   string    `json:"sum,omitempty"`
		Sent
	}

	// Verified has the digests of the destination's content; the source answers that they match.
	Verified struct {
		Roots []image.Root `json:"roots,omitempty"`
		Sent
	}

	// Fail: this side gives up.
	Fail struct{ Reason }
)

// Kind is the message's name on the wire.
func (*Hello) Kind() Kind    { return "hello" }
func (*Afresh) Kind() Kind   { return "afresh" }
func (*Again) Kind() Kind    { return "again" }
func (*Barrier) Kind() Kind  { return "barrier" }
func (*Frozen) Kind() Kind   { return "frozen" }
func (*Arm) Kind() Kind      { return "arm" }
func (*Dumped) Kind() Kind   { return "dumped" }
func (*Flushed) Kind() Kind  { return "flushed" }
func (*Run) Kind() Kind      { return "run" }
func (*End) Kind() Kind      { return "end" }
func (*Welcome) Kind() Kind  { return "welcome" }
func (*Came) Kind() Kind     { return "came" }
func (*Synced) Kind() Kind   { return "synced" }
func (*Armed) Kind() Kind    { return "armed" }
func (*Differs) Kind() Kind  { return "differs" }
func (*Prepared) Kind() Kind { return "prepared" }
func (*Resumed) Kind() Kind  { return "resumed" }
func (*Refused) Kind() Kind  { return "refused" }
func (*Doubt) Kind() Kind    { return "doubt" }
func (*Settled) Kind() Kind  { return "settled" }
func (*Join) Kind() Kind     { return "join" }
func (*Fetch) Kind() Kind    { return "fetch" }
func (*Round) Kind() Kind    { return "round" }
func (*Digests) Kind() Kind  { return "digests" }
func (*Sum) Kind() Kind      { return "sum" }
func (*Verified) Kind() Kind { return "verified" }
func (*Fail) Kind() Kind     { return "fail" }
