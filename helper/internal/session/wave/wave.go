// Package wave cuts several sessions over as one.
//
// A wave is several sessions whose sources are on one host and that are cut over
// as one. The command that asks for the cutover lets them meet, twice:
//
//	armed     before the freeze: all of them are frozen at the same moment
//	prepared  before the release: all of them stand restored and held
//
// A member that does not come to a meeting ends it for all. Until the second one
// nothing is released, so all of them thaw: none has moved. After it each continues
// alone, by the rule of safety: a destination may still refuse, and then its workload
// runs on here while the others have moved. The connection of a source to the meeting
// is its lease: when the command that holds the meeting is killed before the last
// word, those that wait thaw. Only its death between two of the last words parts a
// wave.
package wave

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/livefleet/handover/helper/internal/session/record"
	"github.com/livefleet/handover/helper/internal/transport"
)

// Where a wave meets.
const (
	Armed    = "armed"
	Prepared = "prepared"
)

// wavesDir holds the sockets of meetings.
const wavesDir = "waves"

// word is one line from a member to the meeting, or back.
type word struct {
	Member string `json:"member,omitempty"`
	At     string `json:"at,omitempty"`
	Why    string `json:"why,omitempty"` // back: why the wave is off
}

// Companion is a source's seat at the meeting; a nil one is alone and does not wait.
type Companion struct {
	conn net.Conn
	in   *bufio.Reader
	id   string
}

// Join takes a seat at the meeting that is held at a socket; without one it takes none.
func Join(ctx context.Context, socket, id string) (*Companion, error) {
	if socket == "" {
		return nil, nil
	}
	conn, err := transport.DialUnix(ctx, socket)
	if err != nil {
		return nil, fmt.Errorf("session: the wave: no command holds its meeting any more: %w", err)
	}
	c := &Companion{conn: conn, in: bufio.NewReader(conn), id: id}
	return c, c.Say("")
}

// Say tells the meeting the member's name, and its place.
func (c *Companion) Say(at string) error {
	if err := json.NewEncoder(c.conn).Encode(word{Member: c.id, At: at}); err != nil {
		return fmt.Errorf("session: the wave: its meeting is over: %w", err)
	}
	return nil
}

// Leave gives the seat up. While others wait, that ends the wave.
func (c *Companion) Leave() {
	if c != nil {
		c.conn.Close()
	}
}

// Hear waits for the word that all are there, or why the wave is off.
func (c *Companion) Hear() error {
	line, err := c.in.ReadBytes('\n')
	var w word
	if err == nil {
		err = json.Unmarshal(line, &w)
	}
	if err != nil {
		return fmt.Errorf("session: the wave: the command that held its meeting is gone: %w", err)
	}
	if w.Why != "" {
		return fmt.Errorf("session: the wave: %s", w.Why)
	}
	return nil
}

// Cutover cuts the session in dir over together with the others: the folders of all
// of the wave, dir among them. It may be asked for each of them: the first caller
// does it for all, and the others are told how theirs ended.
func Cutover(ctx context.Context, dir, runDir string, dirs []string) (*record.Status, error) {
	dirs = slices.Sorted(slices.Values(dirs))
	if !slices.Contains(dirs, dir) {
		return nil, fmt.Errorf("session: %s is not among the sessions of its wave", dir)
	}
	if len(slices.Compact(slices.Clone(dirs))) != len(dirs) {
		return nil, errors.New("session: a session is named twice in a wave")
	}
	if _, err := record.LoadSpec(dirs[0]); err != nil {
		return nil, fmt.Errorf("%w: nothing of the wave is frozen", err)
	}
	turn, err := waitForLock(ctx, filepath.Join(dirs[0], "wave.lock"))
	if err != nil {
		return nil, err
	}
	defer turn.Close()
	mine, err := record.Show(dir)
	if err != nil || mine.Ended || mine.Held {
		return mine, err
	}
	var members []string
	for _, d := range dirs {
		s, err := record.Show(d)
		if err != nil {
			return nil, fmt.Errorf("%w: nothing of the wave is frozen", err)
		}
		if s.State != record.Presync || !s.Running {
			return nil, fmt.Errorf("session: %s of the wave is %s and not in presync (%s): nothing of the wave is frozen", s.ID, s.State, s.Error)
		}
		members = append(members, s.ID)
	}
	if err := os.MkdirAll(filepath.Join(runDir, wavesDir), 0o700); err != nil {
		return nil, fmt.Errorf("session: %w", err)
	}
	socket := filepath.Join(runDir, wavesDir, members[0]+".sock")
	l, err := transport.ListenUnix(socket)
	if err != nil {
		return nil, fmt.Errorf("session: %w", err)
	}
	m := &meeting{listener: l, members: members, here: map[string]map[string]net.Conn{}}
	// To its end, or until no caller waits for it any more.
	ended := make(chan struct{})
	go func() { defer close(ended); m.hold() }()
	defer func() { m.end(); <-ended }()
	for i, d := range dirs {
		if err := record.Ask(ctx, d, record.Request{Do: record.AskCutover, Wave: socket}); err != nil {
			m.off(fmt.Sprintf("%s could not be asked: %v", members[i], err))
			break
		}
	}
	var own *record.Status
	var failed error
	var all sync.WaitGroup
	for _, d := range dirs {
		all.Go(func() {
			s, err := record.Wait(ctx, d, []string{record.UntilEnded, record.UntilHeld})
			if err == nil {
				m.off(fmt.Sprintf("%s is %s: %s", s.ID, s.State, s.Error))
			}
			if d == dir {
				own, failed = s, err
			}
		})
	}
	all.Wait()
	return own, failed
}

// waitForLock takes a lock that another process may hold for as long as a cutover
// takes.
func waitForLock(ctx context.Context, path string) (*os.File, error) {
	for {
		f, err := record.Lock(path)
		if err == nil {
			return f, nil
		}
		if !errors.Is(err, record.ErrLocked) {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("session: another command is cutting the wave over, and the time is up: %w", context.Cause(ctx))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// meeting is where the sources of a wave wait for each other.
type meeting struct {
	listener net.Listener
	members  []string

	mu    sync.Mutex
	conns []net.Conn
	here  map[string]map[string]net.Conn // place → member → the connection that waits for the word
	why   string                         // the wave is off
	over  bool                           // the last word is said
	talks sync.WaitGroup
}

// hold takes in members until the listener is closed.
func (m *meeting) hold() {
	for {
		conn, err := m.listener.Accept()
		if err != nil {
			break
		}
		m.mu.Lock()
		m.conns = append(m.conns, conn)
		m.mu.Unlock()
		m.talks.Add(1)
		go func() {
			defer m.talks.Done()
			m.talk(conn)
		}()
	}
	m.talks.Wait()
}

func (m *meeting) talk(conn net.Conn) {
	defer conn.Close()
	in := bufio.NewReader(conn)
	name := ""
	for {
		line, err := in.ReadBytes('\n')
		var w word
		if err == nil {
			err = json.Unmarshal(line, &w)
		}
		if err != nil {
			m.left(name)
			return
		}
		if name = w.Member; w.At != "" {
			m.came(w, conn)
		}
	}
}

// came notes a member, and lets all continue when none is missing.
func (m *meeting) came(w word, conn net.Conn) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.why != "" {
		_ = json.NewEncoder(conn).Encode(word{Why: m.why})
		return
	}
	if m.here[w.At] == nil {
		m.here[w.At] = map[string]net.Conn{}
	}
	m.here[w.At][w.Member] = conn
	for _, member := range m.members {
		if m.here[w.At][member] == nil {
			return
		}
	}
	m.over = w.At == Prepared
	for _, c := range m.here[w.At] {
		_ = json.NewEncoder(c).Encode(word{})
	}
}

// left is called when a member's connection ends. After the last word no member is
// needed any more.
func (m *meeting) left(name string) {
	m.mu.Lock()
	over := m.over
	m.mu.Unlock()
	if !over {
		m.off(fmt.Sprintf("%s was not moved, and so none of %s is", name, strings.Join(m.members, ", ")))
	}
}

// end closes the meeting.
func (m *meeting) end() {
	m.off("the command that asked for the cutover has ended")
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, conn := range m.conns {
		conn.Close()
	}
}

// off ends the wave for all that wait, and for those that come.
func (m *meeting) off(why string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.listener.Close()
	if m.over || m.why != "" {
		return
	}
	m.why = why
	for _, at := range m.here {
		for _, c := range at {
			_ = json.NewEncoder(c).Encode(word{Why: why})
		}
	}
}
