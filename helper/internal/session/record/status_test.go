package record

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/report"
)

// An ended session's last figures are in its status before the journal tells the end,
// also where the status was written a moment ago.
func TestTheFiguresAreThereBeforeTheEnd(t *testing.T) {
	dir := t.TempDir()
	j, err := OpenJournal(dir, Source)
	if err == nil {
		err = j.Close() // so that it takes no record
	}
	if err != nil {
		t.Fatal(err)
	}
	b := &Session{Dir: dir, Spec: &Spec{ID: "shop-1", Role: Source}, Journal: j, Log: &report.Log{}, written: time.Now()}
	b.Update(false, func(s *Status) { s.StateBytes = 4096 })
	if err := b.Reach(Thawed, ""); err == nil {
		t.Fatal("a journal that is closed took a record")
	}
	data, err := os.ReadFile(filepath.Join(dir, StatusFile))
	var s Status
	if err == nil {
		err = json.Unmarshal(data, &s)
	}
	if err != nil || s.StateBytes != 4096 {
		t.Errorf("the status has %d bytes (%v)", s.StateBytes, err)
	}
}

// A state is not told older than the figures: the process may write both between the two looks.
func TestAStateIsNotOlderThanItsFigures(t *testing.T) {
	looks := 0
	journal := func() (*Journal, error) {
		if looks++; looks == 1 {
			return &Journal{records: []Record{{State: Released}}}, nil
		}
		return &Journal{records: []Record{{State: Released}, {State: InDoubt}}}, nil
	}
	j, s, err := told(journal, func() (*Status, error) { return &Status{State: InDoubt, Held: true}, nil })
	if err != nil || looks != 2 || j.State() != InDoubt || !s.Held {
		t.Errorf("after %d looks %s, %+v, %v", looks, j.State(), s, err)
	}
	// Figures that are older than the journal are as good, and lost records come no more.
	for at, want := range map[State]int{Presync: 1, Prepare: 1, Done: 3} {
		looks = 0
		_, _, err := told(func() (*Journal, error) {
			looks++
			return &Journal{records: []Record{{State: Presync}, {State: Barrier}}}, nil
		}, func() (*Status, error) { return &Status{State: at}, nil })
		if err != nil || looks != want {
			t.Errorf("figures of %s: %d looks, %v", at, looks, err)
		}
	}
}

// A session that is looked at while its process takes it is served all the same; one that is served is not taken.
func TestALookIsNoProcessThatServes(t *testing.T) {
	path := filepath.Join(t.TempDir(), LockFile)
	looks, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err == nil {
		err = unix.Flock(int(looks.Fd()), unix.LOCK_SH)
	}
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		time.Sleep(3 * lockPause)
		looks.Close()
	}()
	own, err := lockToServe(path)
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	if other, err := lockToServe(path); !errors.Is(err, ErrLocked) {
		t.Errorf("%v, %v", other, err)
	}
}
