package snapshot

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/livefleet/handover/helper/internal/nbd"
	"github.com/livefleet/handover/helper/internal/store"
)

// writable has QEMU serve the image to be written, until the one connection ends.
func (s *served) writable(bitmap ...string) (address string, ended func()) {
	s.t.Helper()
	socket := filepath.Join(s.t.TempDir(), "nbd")
	argv := []string{"--discard=unmap", "--format=qcow2", "--export-name=vda", "--socket=" + socket}
	address = nbd.Scheme + "/vda?socket=" + socket
	for _, name := range bitmap {
		argv = append(argv, "--bitmap="+name)
		address += "&bitmap=" + name
	}
	c := exec.Command("qemu-nbd", append(argv, s.image)...)
	if err := c.Start(); err != nil {
		s.t.Fatal(err)
	}
	listens(s.t, socket)
	return address, func() { _ = c.Wait() }
}

func (s *served) returnTo(point, address string) Return {
	return Return{Store: s.store, Point: point, Volumes: []Place{{"vda", address}}, Current: true}
}

// is reports whether the image is the disk of a point, by QEMU's own word.
func (s *served) is(point string) bool {
	s.t.Helper()
	x, err := store.Peek(s.store)
	if err != nil {
		s.t.Fatal(err)
	}
	p, err := x.Find(point)
	if err != nil {
		s.t.Fatal(err)
	}
	v, err := p.Volume("vda")
	if err != nil {
		s.t.Fatal(err)
	}
	return exec.Command("qemu-img", "compare", "-q", x.Image(s.store, *v), s.image).Run() == nil
}

func (s *served) point() string {
	s.t.Helper()
	x, err := store.Peek(s.store)
	if err != nil {
		s.t.Fatal(err)
	}
	return x.Now().ID
}

// A disk that QEMU serves is written in place, and only where it differs. The bitmaps of other
// stores in the image have it, too, and can be used on.
func TestAServedDiskGoesBackAndForwards(t *testing.T) {
	s := newServed(t, "64M")
	s.write("write -P 1 0 8M", "write -P 2 50M 1M")
	s.must(Served{})
	first := s.point()
	backups := &served{t, s.image, filepath.Join(t.TempDir(), "backups")}
	backups.must(Served{Checkpoint: "one"})
	s.bitmap("others")
	s.write("write -P 3 4M 64k", "write -z 6M 128k", "write -P 4 60M 64k")
	s.must(Served{})
	second := s.point()
	for _, to := range []string{first, second} {
		address, ended := s.writable()
		done, err := Restore(context.Background(), s.returnTo(to, address))
		if err != nil {
			t.Fatal(err)
		}
		ended()
		if !s.is(to) {
			t.Fatalf("the image is not the disk of %s", to)
		}
		if v := done.Volumes[0]; v.Written+v.Zeroed > 6*64*kib || v.Read < 64<<20-2*64*kib {
			t.Errorf("%+v", v)
		}
		if got := s.point(); got != to {
			t.Errorf("the current one is %s, not %s", got, to)
		}
	}
	if v := backups.must(Served{Bitmap: "others", Since: "one"}); v.How != store.Marks {
		t.Errorf("%+v", v)
	}
	backups.same()
	if v := s.must(Served{Bitmap: "others", Since: "x"}); v.How != store.Digests || v.Stored != 0 {
		t.Errorf("after a rollback nothing has marked the difference: %+v", v)
	}
}

// A process that is killed at any moment leaves the served disk old, new or shut by a gate.
// QEMU's server ends with the connection, and the image is sound.
func TestAKilledRollbackOfAServedDiskIsShutOrWhole(t *testing.T) {
	s := newServed(t, "64M")
	s.write("write -P 1 0 48M")
	s.must(Served{})
	points := []string{s.point()}
	s.write("write -P 2 0 32M")
	s.must(Served{})
	points = append(points, s.point())
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	rnd, shut, most, rounds := rand.New(rand.NewPCG(1, 9)), 0, 300*time.Millisecond, 30
	if testing.Short() {
		rounds = 4
	}
	for round := range rounds {
		to := points[round%2]
		address, ended := s.writable()
		request, err := json.Marshal(s.returnTo(to, address))
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(self, "act-rollback", string(request))
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		gone := make(chan struct{})
		go func() { _ = cmd.Wait(); close(gone) }()
		select {
		case <-gone:
			most = time.Since(began)
		case <-time.After(time.Duration(rnd.Int64N(int64(most)))):
			_ = cmd.Process.Kill()
			<-gone
		}
		if _, err := os.Stat(strings.TrimPrefix(address, nbd.Scheme+"/vda?socket=")); err == nil {
			// One that was killed before it connected has left the server waiting.
			if c, err := nbd.Dial(strings.TrimPrefix(address, nbd.Scheme+"/vda?socket="), "vda"); err == nil {
				_ = c.Close()
			}
		}
		ended()
		if s.is(points[0]) || s.is(points[1]) {
			continue
		}
		shut++
		if _, err := s.pull(Served{}); err == nil || !strings.Contains(err.Error(), "was begun, and has not ended: run it again") {
			t.Fatalf("round %d: a snapshot of a disk that is neither old nor new: %v", round, err)
		}
		if address, ended = s.writable(); round%4 > 1 {
			to = points[1-round%2]
		}
		if _, err := Restore(context.Background(), s.returnTo(to, address)); err != nil {
			t.Fatal(err)
		}
		if ended(); !s.is(to) {
			t.Fatalf("round %d: the second rollback did not make the disk whole", round)
		}
	}
	s.run("qemu-img", "check", "-q", s.image)
	t.Logf("%d times shut in %d", shut, rounds)
	if shut < rounds/10 && !testing.Short() {
		t.Errorf("a gate was seen %d times in %d", shut, rounds)
	}
}
