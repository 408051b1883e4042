package snapshot

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/livefleet/handover/helper/internal/hooks"
	"github.com/livefleet/handover/helper/internal/store"
)

// The volume is read to its end between the halt and the way on, and the time counts from
// one to the other.
func TestTheDisksAreOfTheHalt(t *testing.T) {
	b := newBench(t, "ext4")
	said := filepath.Join(b.dir, "said")
	say := func(words string) *hooks.Command {
		return &hooks.Command{Argv: []string{"/bin/sh", "-c", words}, Timeout: 20}
	}
	note := func(word string) { b.must(os.WriteFile(said, []byte(read(t, said)+word+"\n"), 0o600)) }
	whileFrozen = func() { note("frozen") }
	defer func() { whileFrozen = func() {} }()
	r := b.request()
	r.Before, r.After = say("echo before >>"+said), say("echo after >>"+said)
	r.Halt, r.GoOn = say("echo halt >>"+said+"; sleep 0.3; echo memory >"+b.dir+"/memory"), say("echo go-on >>"+said)
	r.Files = []Place{{"memory", filepath.Join(b.dir, "memory")}} // the halt makes it
	taken, err := Take(context.Background(), r)
	b.must(err)
	if got := strings.Join(strings.Fields(read(t, said)), " "); got != "before halt frozen go-on after" {
		t.Errorf("%s", got)
	}
	if taken.FrozenMS < 300 {
		t.Errorf("it stood still for %v ms, and the halt alone took 300", taken.FrozenMS)
	}

	t.Run("a halt that fails", func(t *testing.T) {
		b.must(os.Remove(said))
		r := b.request()
		r.Halt, r.GoOn = say("echo halt >>"+said+"; exit 3"), say("echo go-on >>"+said)
		if _, err := Take(context.Background(), r); err == nil || !strings.Contains(err.Error(), "the command that halts the workload") {
			t.Errorf("%v", err)
		}
		if got := strings.Join(strings.Fields(read(t, said)), " "); got != "halt go-on" {
			t.Errorf("%s", got)
		}
	})
	t.Run("an end in the middle of the halt", func(t *testing.T) {
		b.must(os.Remove(said))
		ctx, end := context.WithCancel(context.Background())
		defer end()
		go func() {
			for ctx.Err() == nil {
				if b, err := os.ReadFile(said); err == nil && len(b) > 0 {
					end()
				}
				time.Sleep(time.Millisecond)
			}
		}()
		r := b.request()
		r.Halt, r.GoOn = say("echo halting >>"+said+"; sleep 0.5; echo halted >>"+said), say("sleep 0.3; echo go-on >>"+said)
		if _, err := Take(ctx, r); err == nil {
			t.Error("it was taken")
		}
		if got := strings.Join(strings.Fields(read(t, said)), " "); got != "halting halted go-on" {
			t.Errorf("%s", got)
		}
	})
	t.Run("a way on that fails", func(t *testing.T) {
		r := b.request()
		r.Halt, r.GoOn = say("true"), say("exit 4")
		if _, err := Take(context.Background(), r); err == nil || !strings.Contains(err.Error(), "but afterwards: the command that lets the workload go on") {
			t.Errorf("%v", err)
		}
		if x, err := store.Peek(b.store()); err != nil || len(x.Points) != 2 {
			t.Errorf("%v", err)
		}
	})
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return string(b)
}
