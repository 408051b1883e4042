package session

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/loop"
	"github.com/livefleet/handover/helper/internal/session/protocol"
	"github.com/livefleet/handover/helper/internal/session/record"
	"github.com/livefleet/handover/helper/internal/session/recovery"
	"github.com/livefleet/handover/helper/internal/transport"
	"github.com/livefleet/handover/helper/internal/wire"
)

// playStream is `pcopy stream`, as ssh would start it, and leaves its process ID, so
// that a test can end it.
func playStream(address, pidFile string) error {
	to, err := transport.ParseAddress(address)
	if err == nil {
		err = os.WriteFile(pidFile+".new", []byte(strconv.Itoa(os.Getpid())), 0o600)
	}
	if err == nil {
		err = os.Rename(pidFile+".new", pidFile)
	}
	if err == nil {
		err = transport.Carry(context.Background(), to)
	}
	return err
}

// wayTo is the way to an address.
func wayTo(t *testing.T, address string) transport.Way {
	t.Helper()
	at, err := transport.ParseAddress(address)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// streaming is a command that leads to an address.
func streaming(t *testing.T, address, pidFile string) []string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return []string{self, actStream, address, pidFile}
}

func (r *rig) pidFile() string { return filepath.Join(r.top, "stream.pid") }
func (r *rig) socket() string  { return filepath.Join(r.dst, "s.sock") }

// overStreams has both sides talk over the streams of a command, to a unix socket.
func (r *rig) overStreams() {
	r.t.Helper()
	r.spec.dst.Listen = "unix:" + r.socket()
	r.spec.src.Peer.Address, r.spec.src.Peer.Command = "", streaming(r.t, r.spec.dst.Listen, r.pidFile())
	r.t.Cleanup(func() { r.noStream() })
}

// slowlyOverStreams has the first pass last for a second and more, and a connection made
// again for so many seconds.
func (r *rig) slowlyOverStreams(seconds int) {
	r.t.Helper()
	r.overStreams()
	r.filled(24)
	r.spec.src.Policy.Limit = 16 << 20
	r.spec.src.Policy.ReconnectTimeout, r.spec.dst.Policy.ReconnectTimeout = seconds, seconds
}

// noStream demands that nothing of the streams is left.
func (r *rig) noStream() {
	r.t.Helper()
	if exists(r.socket()) {
		r.t.Error("the socket is still there")
	}
	if pid, err := streamPid(r.pidFile()); err == nil && unix.Kill(pid, 0) == nil {
		r.t.Error("the command is still there")
	}
}

func streamPid(file string) (int, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(string(text))
}

// breakStream kills the command.
func (r *rig) breakStream() {
	r.t.Helper()
	pid, err := streamPid(r.pidFile())
	if err == nil {
		err = errors.Join(os.Remove(r.pidFile()), unix.Kill(pid, unix.SIGKILL))
	}
	if err != nil {
		r.t.Error(err)
	}
}

// What is copied arrives by whatever way it goes, and nothing of the way is left.
func TestCopyOverOtherWays(t *testing.T) {
	content := compressible(8<<20 + 4096 + 17)
	for name, c := range map[string]struct {
		connections int
		command     bool
	}{"a unix socket": {1, false}, "a unix socket, 4 times": {4, false}, "streams": {1, true}, "streams, shared by 4": {4, true}} {
		t.Run(name, func(t *testing.T) {
			d := newCopied(t, content, record.Policy{Connections: c.connections})
			socket, pidFile := filepath.Join(d.dst, "s.sock"), filepath.Join(d.src, "pid")
			d.listen = "unix:" + socket
			if c.command {
				d.peer = func(at string) record.Peer { return record.Peer{Command: streaming(t, at, pidFile)} }
			}
			d.start()
			if info, err := os.Lstat(socket); err != nil || info.Mode() != os.ModeSocket|0o600 {
				t.Errorf("%v, %v", info, err)
			}
			s, serr, rerr := d.finish()
			if serr != nil || rerr != nil {
				t.Fatal(serr, rerr)
			}
			got, err := os.ReadFile(d.arrived)
			if err != nil || !bytes.Equal(got, content) {
				t.Fatalf("what arrived is not what was sent (%v)", err)
			}
			there, err := record.Show(d.dst)
			if err != nil || len(s.Totals) != 1 || len(there.Totals) != 1 || s.Totals[0] != there.Totals[0] {
				t.Errorf("ledgers: %v here, %v there, %v", s.Totals, there.Totals, err)
			}
			if exists(socket) {
				t.Error("the socket is still there")
			}
			pid, err := streamPid(pidFile)
			if c.command && (err != nil || unix.Kill(pid, 0) == nil) {
				t.Errorf("the command is still there (%v)", err)
			}
			events, err := os.ReadFile(filepath.Join(d.src, record.EventsFile))
			if err != nil || bytes.Contains(events, []byte(`"warning"`)) {
				t.Errorf("%s, %v", events, err)
			}
		})
	}
}

func TestAHandoverOverStreams(t *testing.T) {
	r := newRig(t)
	r.overStreams()
	w := r.startWriter()
	r.start()
	r.wait(r.src, record.UntilConverged)
	r.cutover()
	r.moved(w)
	r.sameFiles()
	r.noStream()
}

// Streams that break in the middle of a pass, again and again, are made again, by
// another run of the command. What arrived is not sent once more.
func TestBrokenStreamsInPresyncAreMadeAgain(t *testing.T) {
	r := newRig(t)
	r.slowlyOverStreams(60)
	w := r.startWriter()
	r.start()
	r.passed(6 << 20)
	r.breakStream()
	r.reconnected(1)
	time.Sleep(200 * time.Millisecond)
	r.breakStream()
	r.reconnected(2)
	r.wait(r.src, record.UntilConverged)
	r.movedWith(w, 2)
	events, err := os.ReadFile(filepath.Join(r.src, record.EventsFile))
	if err != nil || !strings.Contains(string(events), "ended with signal: killed") {
		t.Errorf("the events do not say how the command ended: %v", err)
	}
}

// A command that fails for good costs the session, with its own last words, and
// nothing else.
func TestStreamsThatCannotBeMadeAgain(t *testing.T) {
	r := newRig(t)
	r.slowlyOverStreams(1)
	argv := r.spec.src.Peer.Command
	r.spec.src.Peer.Command = append([]string{"sh", "-c", `test -e "$0" && { echo "ssh: connect to host node7: No route to host" >&2; exit 3; }; exec "$@"`, filepath.Join(r.top, "down")}, argv...)
	w := r.startWriter()
	r.start()
	r.passed(6 << 20)
	if err := os.WriteFile(filepath.Join(r.top, "down"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r.breakStream()
	<-r.send
	<-r.receive
	src, dst := r.show()
	for _, text := range []string{`the command "sh" ended with signal: killed`, "and no other could be made within 1s", `the command "sh" ended with exit status 3: ssh: connect to host node7: No route to host`} {
		if src.State != record.Failed || !strings.Contains(src.Error, text) {
			t.Errorf("source %s: %s; should say %q", src.State, src.Error, text)
		}
	}
	if dst.State != record.Discarded || !strings.Contains(dst.Error, "the source has not come back within 1s") {
		t.Errorf("destination %s: %s", dst.State, dst.Error)
	}
	r.runsOnce(w, record.Source)
	r.cleanDestination()
	r.noStream()
}

// What the destination says last comes to the source, also when several connections
// share the streams and the source is still sending on all of them.
func TestTheDestinationsReasonComesOverStreams(t *testing.T) {
	r := newRig(t)
	r.overStreams()
	r.spec.src.Policy.Connections = 4
	r.filled(24)
	dir := filepath.Dir(r.dstImage)
	if err := unix.Mount("full", dir, "tmpfs", 0, "size=4m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = loop.Unmount(dir) })
	w := r.startWriter()
	r.start()
	if err := <-r.send; err == nil || !strings.Contains(err.Error(), "no space left") {
		t.Errorf("%v", err)
	}
	<-r.receive
	r.runsOnce(w, record.Source)
	r.cleanDestination()
	r.noStream()
}

// A command that fails at once: the session has not begun, and says why.
func TestACommandThatFails(t *testing.T) {
	r := newRig(t)
	r.overStreams()
	r.spec.src.Peer.Command = []string{"sh", "-c", `echo banner >&2; echo "no way to node7" >&2; exit 3`}
	w := r.startWriter()
	r.start()
	if err := <-r.send; err == nil || !strings.Contains(err.Error(), `the command "sh" ended with exit status 3: no way to node7`) {
		t.Errorf("%v", err)
	}
	if s, err := record.Show(r.src); err != nil || s.State != record.Failed {
		t.Errorf("%+v, %v", s, err)
	}
	if _, err := recovery.Abort(brief(t), r.dst, r.dstRun); err != nil {
		t.Error(err)
	}
	<-r.receive
	r.runsOnce(w, record.Source)
	r.cleanSource()
	r.cleanDestination()
	r.noStream()
}

// In the cutover, streams that break are a connection that is lost: before the release
// the source thaws, after it the source stays frozen until somebody knows.
func TestStreamsThatBreakInTheCutover(t *testing.T) {
	for _, c := range []struct {
		name     string
		at       record.State // of the destination
		slow     string
		src, dst record.State
		runs     record.Role
	}{
		{"before the release", record.Flushed, "restore-takes", record.Thawed, record.Discarded, record.Source},
		{"after the release", record.Released, "resume-takes", record.InDoubt, record.Settled, record.Destination},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			r.overStreams()
			_ = os.WriteFile(filepath.Join(r.control, c.slow), []byte("1s"), 0o600)
			w := r.startWriter()
			r.start()
			r.wait(r.src, record.UntilConverged)
			go func() {
				ctx, cancel := context.WithTimeout(context.Background(), 120*time.Second)
				defer cancel()
				_, _ = record.Wait(ctx, r.dst, []string{string(c.at)})
				if c.at == record.Flushed {
					_ = await(filepath.Join(r.control, "restoring"))
				}
				r.breakStream()
			}()
			src, dst := r.cutover()
			if src.State != c.src || dst.State != c.dst {
				t.Fatalf("source %s (%s), destination %s (%s)", src.State, src.Error, dst.State, dst.Error)
			}
			if !strings.Contains(src.Error, "ended with signal: killed") {
				t.Errorf("the source does not say how: %s", src.Error)
			}
			r.runsOnce(w, c.runs)
			if src.Held {
				if _, err := recovery.Resolve(brief(t), r.src, r.srcRun, record.Resumed); err != nil {
					t.Fatal(err)
				}
				<-r.send
			}
			r.noStream()
		})
	}
}

// Whatever comes over the streams that is not the session's: no other connection
// notices, and the session goes on.
func TestRubbishOverStreams(t *testing.T) {
	d, received, h := receivingOn(t, "s.sock")
	if err := protocol.Send(h.Conn, copiedHello()); err != nil {
		t.Fatal(err)
	}
	var f wire.Frame
	if err := h.Read(&f); err != nil {
		t.Fatal(err)
	}
	at := d.wait(d.dst, record.UntilListening).Listen
	way := transport.Over(streaming(t, at, filepath.Join(d.src, "pid")))
	for _, rubbish := range [][]byte{[]byte("GET / HTTP/1.1\r\n\r\n"), bytes.Repeat([]byte{0x16, 3, 1, 255, 255}, 5000)} {
		c, err := way.Dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = c.Write(rubbish)
		_, _ = io.Copy(io.Discard, c) // it is shown the door
		c.Close()
	}
	if err := way.Close(); err != nil {
		t.Error(err)
	}
	for i := range 20 {
		if err := h.data(int64(i)*record.DefaultCluster, bytes.Repeat([]byte{byte(i)}, record.DefaultCluster)); err != nil {
			t.Fatal(err)
		}
	}
	if err := protocol.Send(h.Conn, &protocol.Fail{Reason: protocol.Reason{Why: "that is all"}}); err != nil {
		t.Fatal(err)
	}
	if err := <-received; err == nil || !strings.Contains(err.Error(), "that is all") {
		t.Error(err)
	}
	if exists(filepath.Join(d.dst, "s.sock")) {
		t.Error("the socket is still there")
	}
}

// A destination that was killed leaves its socket, which goes with what it had made.
func TestAKilledDestinationsSocket(t *testing.T) {
	r := newRig(t)
	r.slowlyOverStreams(1)
	w := r.startWriter()
	kill := r.startApart(record.Destination)
	r.passed(6 << 20)
	kill()
	if !exists(r.socket()) {
		t.Error("there is no socket, and this test shows nothing")
	}
	if err := <-r.send; err == nil || !strings.Contains(err.Error(), "and no other could be made within 1s") {
		t.Errorf("%v", err)
	}
	r.recovered(r.dst, r.dstRun, record.Discarded)
	r.runsOnce(w, record.Source)
	r.noStream()
}

// A source that is killed has said nothing to its command, which ends all the same, and
// the next one has a command of its own.
func TestAKilledSourcesCommand(t *testing.T) {
	r := newRig(t)
	r.slowlyOverStreams(60)
	w := r.startWriter()
	kill := r.startApart(record.Source)
	r.passed(6 << 20)
	pid, err := streamPid(r.pidFile())
	if err != nil {
		t.Fatal(err)
	}
	kill()
	for ctx := brief(t); unix.Kill(pid, 0) == nil; time.Sleep(5 * time.Millisecond) {
		if ctx.Err() != nil {
			t.Fatal("the command is still there")
		}
	}
	if _, err := recovery.Recover(brief(t), r.src, r.srcRun, true); err != nil {
		t.Fatal(err)
	}
	go func() { r.send <- Send(context.Background(), r.src, r.srcRun, planted) }()
	for {
		if s, err := record.Show(r.src); err == nil && s.Running {
			break
		}
		time.Sleep(time.Millisecond)
	}
	r.wait(r.src, record.UntilConverged)
	r.cutover()
	r.moved(w)
	r.noStream()
}

// A copy over a unix socket is confined, and can remove its socket all the same.
func TestAConfinedDestinationRemovesItsSocket(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: gives up its privileges")
	}
	d := newCopied(t, nil, record.Policy{})
	ours := identityIn(t, d.src)
	identityIn(t, d.dst)
	dir := filepath.Join(filepath.Dir(d.dst), "sockets")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t}
	r.write(d.dst, record.Spec{
		Version: 1, ID: "copied", Role: record.Destination, Mode: record.Copy, Listen: "unix:" + filepath.Join(dir, "s"), Peer: record.Peer{Fingerprint: ours.Fingerprint()},
		Volumes: []record.Vol{{Name: "data", Size: differSize, Image: d.arrived}},
	})
	kill := r.apart(actReceive, d.dst, d.dst)
	defer kill()
	d.wait(d.dst, record.UntilListening)
	if !exists(filepath.Join(dir, "s")) {
		t.Error("there is no socket")
	}
	if _, err := recovery.Abort(brief(t), d.dst, d.dst); err != nil {
		t.Fatal(err)
	}
	if exists(filepath.Join(dir, "s")) {
		t.Error("the socket is still there")
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", r.apartPid))
	if err == nil && !strings.Contains(string(status), "NoNewPrivs:\t1") {
		t.Error("it was not confined, and this test shows nothing")
	}
}
