package session

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/livefleet/handover/helper/internal/loop"
	"github.com/livefleet/handover/helper/internal/session/record"
	"github.com/livefleet/handover/helper/internal/session/recovery"
)

// Two processes of mode copy give up what they do not need, and do their work all the
// same: to the end, and in giving up.
func TestACopyIsConfined(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: gives up its privileges")
	}
	for _, test := range []struct{ ending, way string }{{"done", "address"}, {"aborted", "address"}, {"done", "command"}, {"aborted", "command"}} {
		ending := test.ending
		t.Run(test.way+" "+ending, func(t *testing.T) {
			content := compressible(4 << 20)
			c := newCopied(t, content, record.Policy{})
			ours, theirs := identityIn(t, c.src), identityIn(t, c.dst)
			write := func(dir string, s record.Spec) {
				b, err := json.Marshal(s)
				if err == nil {
					err = os.WriteFile(filepath.Join(dir, record.SpecFile), b, 0o600)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			size, listen := int64(len(content)), "127.0.0.1:0"
			if test.way == "command" {
				listen = "unix:" + filepath.Join(c.dst, "socket")
			}
			write(c.dst, record.Spec{
				Version: 1, ID: "copied", Role: record.Destination, Mode: record.Copy, Listen: listen, Peer: record.Peer{Fingerprint: ours.Fingerprint()},
				Volumes: []record.Vol{{Name: "data", Size: size, Image: c.arrived}},
			})
			self, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			start := func(word, dir string) *exec.Cmd {
				p := exec.Command(self, word, dir, dir)
				p.Stderr = os.Stderr
				if err := p.Start(); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = p.Process.Kill() })
				return p
			}
			receive := start(actReceive, c.dst)
			way := &rig{t: t, top: c.src, src: c.src}
			peer := record.Peer{Address: c.wait(c.dst, record.UntilListening).Listen, Fingerprint: theirs.Fingerprint()}
			if test.way == "command" {
				peer.Command, peer.Address = streaming(t, peer.Address, way.pidFile()), ""
			}
			write(c.src, record.Spec{
				Version: 1, ID: "copied", Role: record.Source, Mode: record.Copy, Peer: peer,
				Volumes: []record.Vol{{Name: "data", Size: size, Device: c.image, Tracker: "none"}}, Policy: record.Policy{Shared: 1 << 30, AtOnce: 1},
			})
			send := start(actSend, c.src)
			c.wait(c.src, record.UntilConverged)
			for _, pid := range []int{receive.Process.Pid, send.Process.Pid} {
				status, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
				for _, line := range []string{"CapPrm:\t0000000000000002", "CapEff:\t0000000000000002", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1"} {
					if err != nil || !strings.Contains(string(status), line) {
						t.Errorf("it does not say %q (%v):\n%s", line, err, status)
					}
				}
			}
			if test.way == "command" { // whose end is no end: another is started
				way.breakStream()
				way.reconnected(1)
			}
			if ending == "aborted" {
				if _, err := recovery.Abort(t.Context(), c.src, c.src); err != nil {
					t.Error(err)
				}
			} else if _, err := recovery.Cutover(t.Context(), c.src); err != nil {
				t.Error(err)
			}
			_, _ = send.Process.Wait()
			_, _ = receive.Process.Wait()
			src, err := record.Show(c.src)
			if err != nil {
				t.Fatal(err)
			}
			dst, err := record.Show(c.dst)
			if err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile(c.arrived)
			if ending == "aborted" {
				if src.State != record.Failed || dst.State != record.Discarded || !os.IsNotExist(err) {
					t.Errorf("source %s (%s), destination %s (%s), %v", src.State, src.Error, dst.State, dst.Error, err)
				}
				return
			}
			if src.State != record.Done || dst.State != record.Done || err != nil || !bytes.Equal(got, content) {
				t.Errorf("source %s (%s), destination %s (%s), %v", src.State, src.Error, dst.State, dst.Error, err)
			}
		})
	}
}

// ours is what this process may do.
func ours(t *testing.T) (bits uint64) {
	t.Helper()
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if digits, ok := strings.CutPrefix(line, "CapPrm:\t"); ok {
			if bits, err = strconv.ParseUint(strings.TrimSpace(digits), 16, 64); err != nil {
				t.Fatal(err)
			}
		}
	}
	return bits
}

// Each side of a handover has only what it does by itself, from before it has heard the
// other, and comes to its end with that.
func TestAHandoverIsLowered(t *testing.T) {
	for side, keeps := range map[record.Role]uint64{record.Source: 0x128302e, record.Destination: 0x89a8363b} {
		t.Run(string(side), func(t *testing.T) {
			want := fmt.Sprintf("%016x", keeps&ours(t)) // a container's root may have less to begin with
			r := newRig(t)
			w := r.startWriter()
			kill := r.startApart(side)
			defer kill()
			r.wait(r.src, record.UntilConverged)
			status, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(r.apartPid), "status"))
			if err != nil {
				t.Fatal(err)
			}
			for _, line := range []string{"CapPrm:\t" + want, "CapEff:\t" + want, "CapAmb:\t0000000000000000", "NoNewPrivs:\t0"} {
				if !strings.Contains(string(status), line) {
					t.Errorf("it does not say %q:\n%s", line, status)
				}
			}
			if _, err := recovery.Cutover(brief(t), r.src); err != nil {
				t.Fatal(err)
			}
			r.moved(w)
			for ctx := brief(t); ; time.Sleep(5 * time.Millisecond) { // the last that it does
				here, err := loop.Mounted(r.gate)
				there, terr := loop.Mounted(r.dstGate)
				if err != nil || terr != nil || ctx.Err() != nil {
					t.Fatalf("the dump is still mounted: here %v, there %v (%v, %v)", here, there, err, terr)
				}
				if !here && !there {
					break
				}
			}
		})
	}
}
