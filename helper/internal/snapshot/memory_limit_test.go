package snapshot

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Archives and passes beside the dump take their time. The limit of the script is for the last pass.
func TestTheFreezeLimitIsOfTheLastPass(t *testing.T) {
	const limit = time.Second
	slow := func(context.Context) error { time.Sleep(5 * limit / 2); return nil }
	calls := 0
	beside := func(ctx context.Context) error {
		if calls++; calls == 2 {
			return slow(ctx)
		}
		return nil
	}
	m := newMemoryBench(t)
	if _, err := m.take(t.Context(), filepath.Join(m.dir, "run"), limit, around(beside, nothing)); err != nil {
		t.Errorf("%v", err)
	}
	m.must(os.RemoveAll(m.Into))
	_, err := m.take(t.Context(), filepath.Join(m.dir, "run"), limit, around(nothing, slow))
	if err == nil || !strings.Contains(err.Error(), "did not come to its end within 1s (--freeze-limit)") {
		t.Errorf("%v", err)
	}
	m.isAsBefore()
}

// A run that is started again removes all that it finds of this one.
func TestAnOwnerWhoseNoteIsRemovedLetsThemRun(t *testing.T) {
	m := newMemoryBench(t)
	calls := 0
	err := m.takeIt(func(context.Context) error {
		if calls++; calls == 1 {
			return nil
		}
		time.Sleep(300 * time.Millisecond)
		return errors.Join(os.Remove(m.frozen()), errors.New("no pass"))
	}, nothing)
	if err == nil || !strings.Contains(err.Error(), "no pass") {
		t.Errorf("%v", err)
	}
	m.isAsBefore()
}
