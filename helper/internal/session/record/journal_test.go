package record

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

func newJournal(t *testing.T, role Role) (*Journal, string) {
	t.Helper()
	dir := t.TempDir()
	j, err := OpenJournal(dir, role)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { j.Close() })
	return j, dir
}

// ofAnEarlierBoot has all that is recorded be of an earlier boot than this one.
func ofAnEarlierBoot(t *testing.T, dir string) {
	t.Helper()
	path := filepath.Join(dir, JournalFile)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var all []byte
	for line := range bytes.Lines(text) {
		_, body, _ := bytes.Cut(bytes.TrimSpace(line), []byte(" "))
		body = bytes.Replace(body, []byte(`"boot":"`+thisBoot()+`"`), []byte(`"boot":"an earlier one"`), 1)
		all = fmt.Appendf(all, "%08x %s\n", crc32.Checksum(body, table), body)
	}
	if bytes.Equal(all, text) {
		t.Fatal("nothing in the journal is of this boot")
	}
	if err := os.WriteFile(path, all, 0o600); err != nil {
		t.Fatal(err)
	}
}

func appendAll(t *testing.T, j *Journal, states ...State) {
	t.Helper()
	for _, s := range states {
		if err := j.Append(s, ""); err != nil {
			t.Fatal(err)
		}
	}
}

var (
	sourceWay      = []State{Presync, Barrier, Frozen, Flushed, Prepared, Released, Resumed, Settled, Done}
	destinationWay = sourceWay
)

func TestJournalSurvivesReopening(t *testing.T) {
	j, dir := newJournal(t, Source)
	appendAll(t, j, sourceWay...)
	again, err := OpenJournal(dir, Source)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if again.State() != Done || len(again.Records()) != len(sourceWay) {
		t.Errorf("%s after %d records", again.State(), len(again.Records()))
	}
	for i, r := range again.Records() {
		if r.State != sourceWay[i] {
			t.Errorf("record %d is %s", i, r.State)
		}
	}
	if err := again.Append(Done, "twice"); err != nil || len(again.Records()) != len(sourceWay) {
		t.Errorf("a repeated step is an error or a record: %v, %d", err, len(again.Records()))
	}
}

// Rule 3, as a table: after the release the source never thaws but over refused,
// and a destination that refused never resumes.
func TestJournalRefusesWhatWouldRunTwice(t *testing.T) {
	for _, c := range []struct {
		role Role
		way  []State
		no   []State
	}{
		{Source, sourceWay[:6], []State{Thawed, Failed, Prepared, Frozen, Done, Settled}},                        // released
		{Source, append(slices.Clone(sourceWay[:6]), InDoubt), []State{Thawed, Failed, Released, Done, Settled}}, // in doubt
		{Source, sourceWay[:7], []State{Thawed, Refused, Failed}},                                                // resumed
		{Source, sourceWay, []State{Thawed, Presync, Released}},                                                  // done
		{Source, sourceWay[:5], []State{Resumed, Settled, Done, Failed}},                                         // prepared
		{Destination, append(slices.Clone(destinationWay[:5]), Refused), []State{Released, Resumed, Done}},       // refused
		{Destination, destinationWay[:5], []State{Resumed, Settled, Done, Discarded}},                            // prepared: refuses first
		{Destination, destinationWay[:6], []State{Refused, Discarded}},                                           // released
		{Destination, append(slices.Clone(destinationWay[:5]), Refused, Discarded), []State{Released, Resumed}},
	} {
		j, _ := newJournal(t, c.role)
		appendAll(t, j, c.way...)
		for _, s := range c.no {
			if err := j.Append(s, ""); err == nil {
				t.Errorf("the %s went from %s to %s", c.role, c.way[len(c.way)-1], s)
			}
		}
		if j.State() != c.way[len(c.way)-1] {
			t.Errorf("a refused step changed the %s to %s", c.role, j.State())
		}
	}
}

// Every path through the tables: a source that was released is never thawed
// unless the destination refused on that path, whatever else happens.
func TestNoPathThawsAReleasedSource(t *testing.T) {
	var walk func(at State, path []State)
	walk = func(at State, path []State) {
		path = append(slices.Clone(path), at)
		fenced := slices.Contains(path, Fenced)
		if at == Thawed && slices.Contains(path, Released) && !slices.Contains(path, Refused) && !fenced {
			t.Errorf("%v", path)
		}
		if (at == Thawed || at == Failed) && slices.Contains(path, Resumed) && !fenced {
			t.Errorf("%v", path)
		}
		if fenced && slices.Contains(path, Settled) {
			t.Errorf("the destination had everything, and it is fenced: %v", path)
		}
		for _, s := range next[Source][at] {
			if !slices.Contains(path, s) {
				walk(s, path)
			}
		}
	}
	walk(Prepare, nil)
	walk = func(at State, path []State) {
		path = append(slices.Clone(path), at)
		if at == Resumed && !slices.Contains(path, Released) {
			t.Errorf("resumed without the run token: %v", path)
		}
		if slices.Contains(path, Refused) && slices.Contains(path[slices.Index(path, Refused):], Resumed) {
			t.Errorf("%v", path)
		}
		for _, s := range next[Destination][at] {
			if !slices.Contains(path, s) {
				walk(s, path)
			}
		}
	}
	walk(Prepare, nil)
}

// What was read has to be there after a loss of power, too: who reads a record
// that a process wrote and did not live to sync, syncs it.
func TestWhoReadsARecordSyncsIt(t *testing.T) {
	dir := t.TempDir()
	j, err := openJournal(dir, Destination, func(*os.File) error { return errors.New("killed before it") })
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	appendAll(t, j, destinationWay[:5]...)
	if err := j.Append(Released, ""); err == nil {
		t.Fatal("released was recorded without a sync")
	}
	synced := 0
	again, err := openJournal(dir, Destination, func(f *os.File) error { synced++; return syncFile(f) })
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if again.State() != Released || synced != 1 {
		t.Errorf("%s was read after %d syncs", again.State(), synced)
	}
	if err := again.Append(Released, "once more"); err != nil || synced != 2 {
		t.Errorf("recorded once more: %v, after %d syncs", err, synced)
	}
}

func TestJournalKnowsRestarts(t *testing.T) {
	j, dir := newJournal(t, Destination)
	appendAll(t, j, destinationWay[:7]...)
	if j.Restarted(Released) {
		t.Error("restarted before it was")
	}
	ofAnEarlierBoot(t, dir)
	again, err := OpenJournal(dir, Destination)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	appendAll(t, again, Settled)
	if !again.Restarted(Released) || again.Restarted(Settled) || again.Restarted(Refused) {
		t.Errorf("restarted since released %t, since settled %t, since refused %t", again.Restarted(Released), again.Restarted(Settled), again.Restarted(Refused))
	}
}

// The model that spin explores is one of this code only if both have one table.
func TestTheModelHasTheSameTable(t *testing.T) {
	text, err := os.ReadFile("../../../model/handover.pml")
	if err != nil {
		t.Fatal(err)
	}
	// What the model leaves out: copies, which hand nothing over.
	copies := map[Role]map[State]State{Source: {Flushed: Done}, Destination: {Flushed: Done}}
	for role, name := range map[Role]string{Source: "SOURCE_NEXT", Destination: "DESTINATION_NEXT"} {
		_, table, ok := strings.Cut(string(text), "#define "+name+"(a, b)")
		if !ok {
			t.Fatalf("no %s in the model", name)
		}
		table, _, _ = strings.Cut(table, "\n#define")
		var model, code []string
		for _, row := range regexp.MustCompile(`\(a == (\w+) && \(([^)]*)\)\)`).FindAllStringSubmatch(table, -1) {
			for _, to := range regexp.MustCompile(`b == (\w+)`).FindAllStringSubmatch(row[2], -1) {
				model = append(model, row[1]+" "+to[1])
			}
		}
		for from, tos := range next[role] {
			for _, to := range tos {
				if copies[role][from] != to && !(role == Destination && from == Flushed && to == Discarded) {
					code = append(code, string(from)+" "+string(to))
				}
			}
		}
		slices.Sort(model)
		slices.Sort(code)
		if !slices.Equal(model, code) {
			t.Errorf("the %s's table:\nmodel %v\ncode  %v", role, model, code)
		}
	}
	var marked []string
	_, list, _ := strings.Cut(string(text), "#define DURABLE(a) (")
	list, _, _ = strings.Cut(list, ")\n")
	for _, s := range regexp.MustCompile(`a == (\w+)`).FindAllStringSubmatch(list, -1) {
		marked = append(marked, s[1])
		if !durable[State(s[1])] {
			t.Errorf("%s is durable in the model and not in the code", s[1])
		}
	}
	if len(marked) != len(durable) {
		t.Errorf("durable in the model: %v; in the code: %v", marked, durable)
	}
}

func TestJournalTornAndDamaged(t *testing.T) {
	j, dir := newJournal(t, Source)
	appendAll(t, j, sourceWay[:6]...)
	path := filepath.Join(dir, JournalFile)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.SplitAfter(whole, []byte("\n"))
	last := lines[len(lines)-2]

	// A crash in the middle of the last append leaves any prefix of its record.
	for cut := 1; cut < len(last); cut++ {
		if err := os.WriteFile(path, whole[:len(whole)-cut], 0o600); err != nil {
			t.Fatal(err)
		}
		again, err := OpenJournal(dir, Source)
		if err != nil {
			t.Fatalf("%d bytes cut off: %v", cut, err)
		}
		if again.State() != Prepared {
			t.Fatalf("%d bytes cut off: %s", cut, again.State())
		}
		if err := again.Append(Released, ""); err != nil {
			t.Fatal(err)
		}
		again.Close()
		healed, err := OpenJournal(dir, Source)
		if err != nil || healed.State() != Released {
			t.Fatalf("%d bytes cut off, appended again: %v", cut, err)
		}
		healed.Close()
	}

	// Damage before the end is no crash: nothing is guessed.
	for _, at := range []int{0, 12, len(lines[0]) + 20} {
		bad := slices.Clone(whole)
		bad[at] ^= 1
		if err := os.WriteFile(path, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenJournal(dir, Source); err == nil || !strings.Contains(err.Error(), "damaged") {
			t.Errorf("a flipped bit at %d: %v", at, err)
		}
	}
}

// Two processes append: each sees what the other did, and only one of two steps
// that exclude each other is taken.
func TestJournalTwoWriters(t *testing.T) {
	for range 50 {
		j, dir := newJournal(t, Destination)
		appendAll(t, j, destinationWay[:5]...)
		other, err := OpenJournal(dir, Destination)
		if err != nil {
			t.Fatal(err)
		}
		var errs [2]error
		var wg sync.WaitGroup
		wg.Add(2)
		go func() { defer wg.Done(); errs[0] = j.Append(Released, "the token came") }()
		go func() { defer wg.Done(); errs[1] = other.Append(Refused, "nobody was there") }()
		wg.Wait()
		other.Close()
		if (errs[0] == nil) == (errs[1] == nil) {
			t.Fatalf("released: %v, refused: %v", errs[0], errs[1])
		}
	}
}

func FuzzJournal(f *testing.F) {
	f.Add([]byte(""))
	f.Add([]byte("00000000 {}\n"))
	f.Add([]byte("3585c2cf {\"time\":\"2026-11-21T04:37:16.649749772Z\",\"state\":\"presync\"}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, JournalFile), data, 0o600); err != nil {
			t.Fatal(err)
		}
		j, err := OpenJournal(dir, Source)
		if err != nil {
			return
		}
		defer j.Close()
		_ = j.State()
	})
}

// A request to abort is answered by what the journal says, while the session writes to it.
func TestAJournalIsReadWhileItGrows(t *testing.T) {
	j, err := OpenJournal(t.TempDir(), Source)
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	if err := j.Append(Presync, ""); err != nil {
		t.Fatal(err)
	}
	ended, forgot := make(chan struct{}), make(chan bool, 1)
	go func() {
		for {
			select {
			case <-ended:
				forgot <- false
				return
			default:
				if !j.Reached(Presync) {
					forgot <- true
					return
				}
			}
		}
	}()
	for range 50 {
		for _, s := range []State{Barrier, Frozen, Flushed, Prepared, Released} {
			if err := j.Append(s, ""); err != nil {
				break // it has been there
			}
		}
	}
	close(ended)
	if <-forgot {
		t.Error("a state that was reached was forgotten for a moment")
	}
}
