package snapshot

import (
	"bytes"
	"context"
	"encoding/json"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/livefleet/handover/helper/internal/loop"
	"github.com/livefleet/handover/helper/internal/store"
)

// A process that is killed at a random moment of a rollback leaves both disks old, both
// new, or one of them such that the kernel does not mount it: the workload cannot start
// on halves. Nothing takes a snapshot of them, and the rollback once more makes them whole.
func TestAKilledRollbackIsShutOrWhole(t *testing.T) {
	b := newBench(t, "ext4")
	b.detach()
	t.Cleanup(b.attach) // the bench's own end detaches it
	const size = 24 << 20
	names := []string{"one", "two"}
	r := b.request()
	r.Volumes = nil
	noise := rand.NewChaCha8([32]byte{9})
	var moments [2][2][]byte
	var ids [2]string
	for _, name := range names {
		path := filepath.Join(b.dir, name)
		r.Volumes = append(r.Volumes, Place{name, path})
		b.must(os.WriteFile(path, nil, 0o600))
		b.must(os.Truncate(path, size))
		b.run("mkfs.ext4", "-q", path)
	}
	for n := range moments {
		for i, v := range r.Volumes {
			disk, err := os.ReadFile(v.Path)
			b.must(err)
			noise.Read(disk[size/2 : size-1<<20]) // in files' space, for all that the file system knows
			b.must(os.WriteFile(v.Path, disk, 0o600))
			moments[n][i] = disk
		}
		p, err := Take(context.Background(), r)
		b.must(err)
		ids[n] = p.ID
	}
	self, err := os.Executable()
	b.must(err)
	rnd := rand.New(rand.NewPCG(1, 9))
	whole, shut, most := 0, 0, 200*time.Millisecond
	rounds := 50
	if testing.Short() {
		rounds = 5
	}
	for round := range rounds {
		to := round % 2
		request, err := json.Marshal(Return{Store: r.Store, Point: ids[to], Volumes: r.Volumes, Current: true})
		b.must(err)
		cmd := exec.Command(self, "act-rollback", string(request))
		b.must(cmd.Start())
		ended := make(chan struct{})
		began := time.Now()
		go func() { _ = cmd.Wait(); close(ended) }()
		select {
		case <-ended:
			most = time.Since(began) // on this host it takes no longer
		case <-time.After(time.Duration(rnd.Int64N(int64(most)))):
			b.must(cmd.Process.Kill())
			<-ended
		}
		is, closed := [2]int{}, false
		for i, v := range r.Volumes {
			got, err := os.ReadFile(v.Path)
			b.must(err)
			switch {
			case bytes.Equal(got, moments[0][i]):
			case bytes.Equal(got, moments[1][i]):
				is[i] = 1
			default:
				closed = true
				at := filepath.Join(b.dir, "at")
				if err := loop.MountImage(v.Path, at, "ext4", "ro"); err == nil {
					b.must(loop.Unmount(at))
					t.Fatalf("round %d: %s is neither old nor new, and can be mounted", round, v.Name)
				}
			}
		}
		if !closed {
			if whole++; is[0] != is[1] {
				t.Fatalf("round %d: one disk is old and the other is new", round)
			}
			continue
		}
		shut++
		if _, err := Take(context.Background(), r); err == nil || !strings.Contains(err.Error(), "was begun, and has not ended: run it again") {
			t.Fatalf("round %d: a snapshot of disks that are not whole: %v", round, err)
		}
		if round%4 > 1 { // once more, or to the other one
			to = 1 - to
		}
		_, err = Restore(context.Background(), Return{Store: r.Store, Point: ids[to], Volumes: r.Volumes, Current: true})
		b.must(err)
		for i, v := range r.Volumes {
			if got, err := os.ReadFile(v.Path); err != nil || !bytes.Equal(got, moments[to][i]) {
				t.Fatalf("round %d: the second rollback did not make %s whole (%v)", round, v.Name, err)
			}
		}
	}
	t.Logf("%d times whole, %d times shut", whole, shut)
	if shut < rounds/10 && !testing.Short() {
		t.Errorf("a gate was seen %d times in %d", shut, rounds)
	}
	x, err := store.Peek(r.Store)
	b.must(err)
	last, err := Take(context.Background(), r)
	b.must(err)
	if v := last.Volumes[0]; v.How != store.Digests || v.Stored > size || len(x.Points) != 2 {
		t.Errorf("%+v", v)
	}
}
