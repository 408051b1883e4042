package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/hooks"
	"github.com/livefleet/handover/helper/internal/network"
	"github.com/livefleet/handover/helper/internal/report"
	"github.com/livefleet/handover/helper/internal/session/engine"
	"github.com/livefleet/handover/helper/internal/session/record"
	"github.com/livefleet/handover/helper/internal/session/recovery"
)

// What a rig with a network tells those who play CRIU and podman.
const (
	rootFile  = "root"   // the ID of a process in the destination's namespace
	setUpFile = "set-up" // the namespace that podman is to set up, if it asks the helper
)

// networks gives the workload a network namespace on each side.
func (r *rig) networks() (here, there string) {
	r.t.Helper()
	paths := make([]string, 2)
	for i, side := range []string{"src", "dst"} {
		name := "handover-" + side + filepath.Base(r.top)
		if out, err := exec.Command("ip", "netns", "add", name).CombinedOutput(); err != nil {
			r.t.Fatalf("%v: %s", err, out)
		}
		r.t.Cleanup(func() { _ = exec.Command("ip", "netns", "delete", name).Run() })
		paths[i] = "/run/netns/" + name
	}
	here, there = paths[0], paths[1]
	p := exec.Command("ip", "netns", "exec", filepath.Base(there), "sleep", "600")
	if err := p.Start(); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = p.Process.Kill(); _ = p.Wait() })
	ours, _ := os.Readlink(engine.NamespaceOf("self"))
	for {
		if theirs, err := os.Readlink(engine.NamespaceOf(strconv.Itoa(p.Process.Pid))); err != nil {
			r.t.Fatal(err)
		} else if theirs != ours {
			break
		}
		time.Sleep(time.Millisecond)
	}
	r.spec.src.Network.Namespace = here
	r.spec.dst.Network.Silent = true
	r.note(rootFile, strconv.Itoa(p.Process.Pid))
	r.note(setUpFile, there)
	return here, there
}

func (r *rig) note(name, text string) {
	r.t.Helper()
	if err := os.WriteFile(filepath.Join(r.control, name), []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

// orphanGate leaves the destination's gate without a process behind it.
func (r *rig) orphanGate() { r.t.Helper(); r.orphanGateOf(r.dstRun, r.dstGate, r.dst) }

func (r *rig) orphanGateOf(run, gate, dir string) {
	r.t.Helper()
	g, err := hooks.OpenGate(run, gate, dir)
	if err != nil {
		r.t.Fatal(err)
	}
	files, _ := filepath.Glob(filepath.Join(hooks.Gates(run), "*.json"))
	registration, err := os.ReadFile(files[0])
	if err := errors.Join(err, g.Close(), os.WriteFile(files[0], registration, 0o600)); err != nil {
		r.t.Fatal(err)
	}
}

// silence demands that a namespace is silent, or that it is not.
func (r *rig) silence(path string, want bool) {
	r.t.Helper()
	if got, err := network.Silent(path); err != nil || got != want {
		r.t.Errorf("silence in %s: %v (%v), wanted: %v", path, got, err, want)
	}
}

func TestBothNetworksAreSilentDuringTheHandover(t *testing.T) {
	r := newRig(t)
	here, there := r.networks()
	r.note("restore-takes", "700ms")
	w := r.startWriter()
	r.start()
	r.wait(r.src, record.UntilConverged)
	r.silence(here, false)
	seen := make(chan struct{})
	go func() {
		defer close(seen)
		_ = await(filepath.Join(r.control, "restoring"))
		time.Sleep(200 * time.Millisecond)
		r.silence(here, true)
		r.silence(there, true)
	}()
	src, dst := r.cutover()
	<-seen
	if src.State != record.Done || dst.State != record.Done {
		t.Fatalf("source %s %q, destination %s %q", src.State, src.Error, dst.State, dst.Error)
	}
	r.runsOnce(w, record.Destination)
	r.silence(there, false)
}

func TestAThawedNetworkIsHeard(t *testing.T) {
	r := newRig(t)
	here, _ := r.networks()
	r.note("restore-fails", "CRIU says no")
	w := r.startWriter()
	r.start()
	r.wait(r.src, record.UntilConverged)
	src, _ := r.cutover()
	if src.State != record.Thawed {
		t.Fatalf("source %s %q", src.State, src.Error)
	}
	r.runsOnce(w, record.Source)
	r.silence(here, false)
}

// Nothing moved, and the client that was told to wait goes on at once: it has
// sent nothing into the silence that it would have to send again.
func TestThePeersOfAThawedWorkloadGoOn(t *testing.T) {
	r := newRig(t)
	here, there := r.networks()
	r.note("restore-takes", "700ms")
	r.note("restore-fails", "CRIU says no")
	client := r.connected(here, there)
	w := r.startWriter()
	r.start()
	r.wait(r.src, record.UntilConverged)
	answered := make(chan error, 1)
	go func() {
		for end := time.Now().Add(time.Minute); tcpInfo(client).Snd_wnd > 0; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				answered <- errors.New("nobody tells the client to wait")
				return
			}
		}
		_, err := client.Write([]byte("hello"))
		if err == nil {
			_, err = io.ReadFull(client, make([]byte, 5))
		}
		answered <- err
	}()
	src, _ := r.cutover()
	if src.State != record.Thawed {
		t.Fatalf("source %s %q", src.State, src.Error)
	}
	r.runsOnce(w, record.Source)
	if err := <-answered; err != nil {
		t.Fatal(err)
	}
	if n := tcpInfo(client).Total_retrans; n > 0 {
		t.Errorf("%d segments were sent again", n)
	}
}

// tcpInfo is what the kernel knows of a connection.
func tcpInfo(c *net.TCPConn) (info unix.TCPInfo) {
	if raw, err := c.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) {
			if found, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
				info = *found
			}
		})
	}
	return info
}

// connected is a client's connection from one namespace to a server in the other
// that sends everything back.
func (r *rig) connected(server, client string) *net.TCPConn {
	r.t.Helper()
	server, client = filepath.Base(server), filepath.Base(client)
	for _, words := range []string{
		"link add up0 netns " + server + " type veth peer name up0 netns " + client,
		"-n " + server + " address add 192.0.2.10/24 dev up0",
		"-n " + client + " address add 192.0.2.1/24 dev up0",
		"-n " + server + " link set up0 up",
		"-n " + client + " link set up0 up",
	} {
		if out, err := exec.Command("ip", strings.Fields(words)...).CombinedOutput(); err != nil {
			r.t.Fatalf("ip %s: %v: %s", words, err, out)
		}
	}
	var listener net.Listener
	r.in(server, func() (err error) {
		listener, err = net.Listen("tcp", "192.0.2.10:0")
		return err
	})
	r.t.Cleanup(func() { listener.Close() })
	go func() {
		if c, err := listener.Accept(); err == nil {
			_, _ = io.Copy(c, c)
			c.Close()
		}
	}()
	var c net.Conn
	r.in(client, func() (err error) {
		c, err = net.DialTimeout("tcp", listener.Addr().String(), 10*time.Second)
		return err
	})
	r.t.Cleanup(func() { c.Close() })
	return c.(*net.TCPConn)
}

// in runs f in the namespace of a name.
func (r *rig) in(name string, f func() error) {
	r.t.Helper()
	failed := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		ns, err := os.Open("/run/netns/" + name)
		if err == nil {
			defer ns.Close()
			err = unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET)
		}
		if err == nil {
			err = f()
		}
		failed <- err
	}()
	if err := <-failed; err != nil {
		r.t.Fatal(err)
	}
}

func TestANetworkThatWouldBeHeardIsRefused(t *testing.T) {
	r := newRig(t)
	here, _ := r.networks()
	if err := os.Remove(filepath.Join(r.control, setUpFile)); err != nil { // podman does not ask
		t.Fatal(err)
	}
	w := r.startWriter()
	r.start()
	r.wait(r.src, record.UntilConverged)
	src, dst := r.cutover()
	if src.State != record.Thawed || dst.State != record.Discarded || !strings.Contains(src.Error, "came up without being silent") {
		t.Fatalf("source %s %q, destination %s %q", src.State, src.Error, dst.State, dst.Error)
	}
	r.runsOnce(w, record.Source)
	r.silence(here, false)
}

// Killed before the release: the kernel lifts the silence with the process, and
// the workload that CRIU lets go is heard.
func TestAKilledSendersNetworkIsHeard(t *testing.T) {
	r := newRig(t)
	here, _ := r.networks()
	r.note("restore-takes", "1s")
	w := r.startWriter()
	kill := r.startApart(record.Source)
	r.wait(r.src, record.UntilConverged)
	go func() { _, _ = recovery.Cutover(context.Background(), r.src) }()
	if err := await(filepath.Join(r.control, "restoring")); err != nil {
		t.Fatal(err)
	}
	r.silence(here, true)
	kill()
	<-r.receive
	r.runsOnce(w, record.Source)
	r.silence(here, false)
}

// Killed after the release: CRIU's hook keeps the silence until the outcome is
// known.
func TestAKilledSenderInDoubtStaysSilent(t *testing.T) {
	r := newRig(t)
	here, there := r.networks()
	r.note("resume-takes", "1s")
	w := r.startWriter()
	kill := r.startApart(record.Source)
	r.wait(r.src, record.UntilConverged)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	go func() { _, _ = recovery.Cutover(ctx, r.src) }()
	r.wait(r.dst, string(record.Released))
	kill()
	<-r.receive
	for { // the hook looks every 100 ms
		silent, err := network.Silent(here)
		if err != nil {
			t.Fatal(err)
		}
		if silent {
			break
		}
		if ctx.Err() != nil {
			t.Fatal("nobody keeps the source silent")
		}
		time.Sleep(10 * time.Millisecond)
	}
	r.runsOnce(w, record.Destination)
	r.silence(there, false)
	if s, err := recovery.Resolve(ctx, r.src, r.srcRun, record.Resumed); err != nil || s.State != record.Done {
		t.Fatalf("%+v, %v", s, err)
	}
	r.runsOnce(w, record.Destination)
}

// Killed between the release and the resume: CRIU's hook lets the workload run,
// and it is heard.
func TestAKilledReceiverWithTheTokenIsHeard(t *testing.T) {
	r := newRig(t)
	_, there := r.networks()
	if err := network.Silence(there); err != nil {
		t.Fatal(err)
	}
	r.write(r.dst, r.spec.dst)
	j, err := record.OpenJournal(r.dst, record.Destination)
	if err != nil {
		t.Fatal(err)
	}
	for _, st := range []record.State{record.Presync, record.Barrier, record.Frozen, record.Flushed, record.Prepared, record.Released} {
		if err := j.Append(st, ""); err != nil {
			t.Fatal(err)
		}
	}
	j.Close()
	root, err := os.ReadFile(filepath.Join(r.control, rootFile))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(r.dstGate, 0o700); err != nil {
		t.Fatal(err)
	}
	r.orphanGate()
	goOn, err := recovery.Hook(r.dstRun, recovery.Call{Action: hooks.PostRestore, ImageDir: r.dstGate, CRIU: os.Getpid(), Root: string(root)})
	if !goOn || err != nil {
		t.Fatalf("%v, %v", goOn, err)
	}
	r.silence(there, false)
}

// Somebody who waits at the door of a workload that does not open is found
// before anything is frozen.
func TestAConnectionThatNobodyAccepts(t *testing.T) {
	r := newRig(t)
	here, _ := r.networks()
	w := r.startWriter()
	done := make(chan error)
	var l net.Listener
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends in the namespace
		done <- func() error {
			ns, err := os.Open(here)
			if err != nil {
				return err
			}
			defer ns.Close()
			if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
				return err
			}
			if out, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
			if l, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
				return err
			}
			_, err = net.DialTimeout("tcp", l.Addr().String(), 5*time.Second)
			return err
		}()
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	r.start()
	r.wait(r.src, record.UntilConverged)
	src, dst := r.cutover()
	if src.State != record.Thawed && src.State != record.Failed || dst.State != record.Discarded || !strings.Contains(src.Error, " has 1 connection waiting to be accepted by the workload") {
		t.Fatalf("source %s %q, destination %s %q", src.State, src.Error, dst.State, dst.Error)
	}
	if exists(filepath.Join(r.control, "stopped")) {
		t.Error("it was frozen")
	}
	r.runsOnce(w, record.Source)
	r.silence(here, false)
}

func TestNobodyAskedForSilence(t *testing.T) {
	r := newRig(t)
	_, there := r.networks()
	if err := os.Mkdir(r.dstGate, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{r.dstGate, filepath.Join(r.top, "gone")} {
		if err := engine.SetUpNetwork(r.dstRun, dir, there); err != nil {
			t.Error(err)
		}
	}
	r.silence(there, false)
	detects := func(want string) {
		r.t.Helper()
		err := network.Inside(there, func() error {
			if how, err := os.ReadFile("/proc/sys/net/ipv6/conf/default/accept_dad"); err != nil || string(how) != want {
				t.Errorf("%q, %v", how, err)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
	detects("1\n")
	// A memory snapshot's sockets need its addresses at once.
	images := filepath.Join(r.dstGate, "inventory.img")
	if err := errors.Join(os.WriteFile(images, nil, 0o600), engine.SetUpNetwork(r.dstRun, r.dstGate, there), os.Remove(images)); err != nil {
		t.Error(err)
	}
	detects("0\n")
	r.silence(there, false)
	// A session that does not answer is another matter.
	r.write(r.dst, r.spec.dst)
	r.orphanGate()
	if err := engine.SetUpNetwork(r.dstRun, r.dstGate, there); !errors.Is(err, hooks.ErrNobody) {
		t.Errorf("%v", err)
	}
}

// What a client says into the silence it says again after 0.2 s, however short the
// pause: it hears that there is no room before. Here the silence never comes.
func TestThePeersAreToldBeforeTheSilence(t *testing.T) {
	r := newRig(t)
	here, there := r.networks()
	client := r.connected(here, there)
	guard, err := network.NewGuard(here)
	if err != nil {
		t.Fatal(err)
	}
	q := &engine.Quiet{Namespace: here, Guard: guard, Log: report.NewWriter(io.Discard)}
	q.Learn()
	q.Guard.Close()
	if err := q.Silence(t.Context()); err == nil {
		t.Fatal("it is silent, and its guard is gone")
	}
	for end := time.Now().Add(time.Minute); tcpInfo(client).Snd_wnd > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("nobody tells the client to wait")
		}
	}
	if err := q.Lift(); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); tcpInfo(client).Snd_wnd == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("nobody tells the client that there is room")
		}
	}
}
