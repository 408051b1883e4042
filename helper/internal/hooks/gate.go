package hooks

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// The points that report to a gate, in the order in which they come: CRIU's action
// script; on the destination podman before it, when it makes the network, and the
// stand-in for CRIU.
const (
	PreDump     = "pre-dump"
	NetworkLock = "network-lock"
	PostDump    = "post-dump"

	NetworkSetup = "network-setup"
	StartUp      = "start-up"
	PreRestore   = "pre-restore"
	PostRestore  = "post-restore"
)

// holds reports whether the script waits there for a decision; at other points the
// call is only noted.
func holds(action string) bool { return action != NetworkSetup }

// Registration names the owner of the gate before a directory of CRIU images. It
// outlives the process that serves the gate, so that a script which finds no process
// behind the socket can still read the session's journal and decide.
type Registration struct {
	ImageDir string `json:"image_dir"`
	Session  string `json:"session"` // the session's folder
	Socket   string `json:"socket"`
	Stays    *Stays `json:"stays,omitempty"` // the workload runs on where it is, see Stays
}

// Gates is the folder that holds the registrations and their sockets.
func Gates(runDir string) string { return filepath.Join(runDir, "gates") }

func key(imageDir string) string {
	sum := sha256.Sum256([]byte(imageDir))
	return hex.EncodeToString(sum[:12])
}

// Lookup finds the registration for a directory of CRIU images, or nil.
func Lookup(runDir, imageDir string) (*Registration, error) {
	b, err := os.ReadFile(filepath.Join(Gates(runDir), key(imageDir)+".json"))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("hooks: %w", err)
	}
	var r Registration
	if err := json.Unmarshal(b, &r); err != nil {
		return nil, fmt.Errorf("hooks: the gate of %s: %w", imageDir, err)
	}
	return &r, nil
}

// Gate is this process's side of the meeting point.
type Gate struct {
	reg      string // path of the registration
	dir      string // of the images
	listener net.Listener

	mu       sync.Mutex
	changed  chan struct{} // closed and replaced at each change
	arrived  map[string]time.Time
	root     string // process ID of the workload's first task, once CRIU has told it
	network  string // path of the network namespace that the engine made last
	answers  map[string]bool
	fallback *bool // the answer for every point that was not decided one by one
}

// OpenGate registers a gate for imageDir on behalf of the session in folder
// session, and begins to listen. A gate that another session left is an error.
func OpenGate(runDir, imageDir, session string) (*Gate, error) {
	return openGate(runDir, Registration{ImageDir: imageDir, Session: session})
}

func openGate(runDir string, r Registration) (*Gate, error) {
	session := r.Session
	dir, err := filepath.EvalSymlinks(r.ImageDir) // CRIU tells the real path
	if err != nil {
		return nil, fmt.Errorf("hooks: the directory of CRIU's images: %w", err)
	}
	if err := os.MkdirAll(Gates(runDir), 0o700); err != nil {
		return nil, fmt.Errorf("hooks: %w", err)
	}
	free, err := alone(runDir)
	if err != nil {
		return nil, err
	}
	defer free()
	old, err := Lookup(runDir, dir)
	if err != nil {
		return nil, err
	}
	switch {
	case old == nil || old.Session == session && old.Stays == nil:
	case old.Stays != nil && !old.served() && !InUse(dir):
	case old.Stays != nil && !old.served():
		return nil, fmt.Errorf("hooks: CRIU is still at work in %s for a snapshot or a backup that was killed: wait until that has ended", dir)
	case old.Stays != nil:
		return nil, fmt.Errorf("hooks: the memory in %s is being taken for a snapshot or a backup: wait until that has ended", dir)
	default:
		return nil, fmt.Errorf("hooks: session %s still has a gate for %s: end that session first (`pcopy session show %s`)", filepath.Base(old.Session), dir, old.Session)
	}
	base := filepath.Join(Gates(runDir), key(dir))
	_ = os.Remove(base + ".sock")
	g := &Gate{reg: base + ".json", dir: dir, changed: make(chan struct{}), arrived: map[string]time.Time{}, answers: map[string]bool{}}
	if g.listener, err = net.Listen("unix", base+".sock"); err != nil {
		return nil, fmt.Errorf("hooks: %w", err)
	}
	r.ImageDir, r.Socket = dir, base+".sock"
	b, _ := json.Marshal(r)
	if err := os.WriteFile(g.reg, b, 0o600); err != nil {
		g.listener.Close()
		return nil, fmt.Errorf("hooks: %w", err)
	}
	go g.serve()
	return g, nil
}

// aloneLimit is how long one process may take to open a gate.
var aloneLimit = 5 * time.Second

// alone returns when no other process opens a gate, or clears one away: each looks for those that are there before it
// makes its own.
func alone(runDir string) (free func(), err error) {
	dir, err := os.Open(Gates(runDir))
	if err != nil {
		return nil, fmt.Errorf("hooks: %w", err)
	}
	for end := time.Now().Add(aloneLimit); ; time.Sleep(stayPause) {
		if err = unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB); err == nil {
			return func() { dir.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) || time.Now().After(end) {
			return nil, errors.Join(fmt.Errorf("hooks: another process opens a gate in %s, and has not ended within %s: %w", dir.Name(), aloneLimit, err), dir.Close())
		}
	}
}

// Close removes the gate. It is for the time when the command that drove CRIU
// has ended: a script that comes later finds no gate and lets CRIU go on.
func (g *Gate) Close() error {
	err := os.Remove(g.reg)
	return errors.Join(err, g.listener.Close()) // closing removes the socket
}

// Idle returns when no CRIU works behind the gate any more: one goes on when its caller is killed.
func (g *Gate) Idle(ctx context.Context) error { return done(ctx, g.dir) }

func (g *Gate) serve() {
	for {
		c, err := g.listener.Accept()
		if err != nil {
			return
		}
		go g.talk(c)
	}
}

// talk is one call of the script: one line with the point and the ID of the
// workload's first process, if there is one (of the engine: the path of the network's
// namespace), and one line back.
func (g *Gate) talk(c net.Conn) {
	defer c.Close()
	line, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		return
	}
	action, root, _ := strings.Cut(strings.TrimSpace(line), " ")
	g.mu.Lock()
	if action == NetworkSetup {
		root, g.network = "", root
	}
	if _, again := g.arrived[action]; !again {
		g.arrived[action] = time.Now()
		g.root = root
		g.announce()
	}
	answer := !holds(action)
	for holds(action) {
		if a, ok := g.answers[action]; ok {
			answer = a
			break
		}
		if g.fallback != nil {
			answer = *g.fallback
			break
		}
		changed := g.changed
		g.mu.Unlock()
		<-changed
		g.mu.Lock()
	}
	g.mu.Unlock()
	word := replyDeny
	if answer {
		word = replyGo
	}
	_, _ = fmt.Fprintln(c, word)
}

// announce wakes all waiters; the caller holds mu.
func (g *Gate) announce() {
	close(g.changed)
	g.changed = make(chan struct{})
}

// Await blocks until CRIU has come to a point, and tells when it did. It ends
// early with the process's error if the command that drives CRIU ends first.
func (g *Gate) Await(ctx context.Context, action string, p *Process) (time.Time, error) {
	for {
		g.mu.Lock()
		at, ok := g.arrived[action]
		changed := g.changed
		g.mu.Unlock()
		if ok {
			return at, nil
		}
		select {
		case <-changed:
		case <-p.Done():
			if err := p.Err(); err != nil {
				return time.Time{}, err
			}
			return time.Time{}, fmt.Errorf("hooks: `%s` ended without CRIU's %s hook: is the action script configured in /etc/criu/runc.conf? The role pcopy does that", p.name, action)
		case <-ctx.Done():
			return time.Time{}, fmt.Errorf("hooks: waiting for CRIU's %s: %w", action, context.Cause(ctx))
		}
	}
}

// Root is the process ID of the workload's first task, as CRIU told it at the
// last point that it came to; empty if it did not.
func (g *Gate) Root() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.root
}

// Network is the path of the network namespace that the engine made last for the
// restore; empty if it has not reported one.
func (g *Gate) Network() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.network
}

// Answer decides one point: go on, or refuse.
func (g *Gate) Answer(action string, goOn bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, ok := g.answers[action]; !ok {
		g.answers[action] = goOn
		g.announce()
	}
}

// Again forgets that CRIU has come to a point, and the decision there, for the next
// CRIU.
func (g *Gate) Again(action string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.arrived, action)
	delete(g.answers, action)
}

// Refuse decides every point that is not decided yet, also those that CRIU has
// not come to: the answer is no.
func (g *Gate) Refuse() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.fallback == nil {
		no := false
		g.fallback = &no
		g.announce()
	}
}

const (
	replyGo   = "go"
	replyDeny = "deny"
)

// ErrNobody says that there is a gate but no process behind it.
var ErrNobody = errors.New("nobody serves this gate")

// Ask is the script's side: it reports a point, and the ID of the workload's first
// process if it knows one (at NetworkSetup the namespace's path), and waits, as long as it takes, for the answer.
func (r *Registration) Ask(action, root string) (goOn bool, err error) {
	c, err := net.Dial("unix", r.Socket)
	if err != nil {
		return false, fmt.Errorf("%w: %w", ErrNobody, err)
	}
	defer c.Close()
	if _, err := fmt.Fprintln(c, strings.TrimSpace(action+" "+root)); err != nil {
		return false, fmt.Errorf("%w: %w", ErrNobody, err)
	}
	line, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		return false, fmt.Errorf("%w: %w", ErrNobody, err)
	}
	switch strings.TrimSpace(line) {
	case replyGo:
		return true, nil
	case replyDeny:
		return false, nil
	}
	return false, fmt.Errorf("hooks: an answer that nobody gives: %q", line)
}
