package record

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

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
