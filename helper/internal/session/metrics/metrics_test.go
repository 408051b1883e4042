package metrics

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/session/record"
)

// TestPage's text is a file: tests/unit/monitoring has Prometheus read it, and asks it each question of the rules and the dashboard.
func TestPage(t *testing.T) {
	at := time.Date(2026, 11, 21, 4, 15, 0, 0, time.UTC)
	here := func(id string, role record.Role, mode string, state record.State, more record.Status) session {
		more.ID, more.Role, more.Mode, more.State, more.Workload = id, role, mode, state, strings.Split(id, "-")[0]
		more.Ended = state.Ended()
		return session{&more, id, at}
	}
	all := []session{
		here("shop-1", record.Source, record.Live, record.Released, record.Status{Held: true, Running: true, SentBytes: 1000}),
		here("wiki-1", record.Source, record.Live, record.Presync, record.Status{Running: true, SentBytes: 200}),
		here("mail-1", record.Destination, record.Live, record.InDoubt, record.Status{Running: true, SentBytes: 7}),
		here("cron-1", record.Source, record.Offline, record.Barrier, record.Status{}),
		here("new-1", record.Source, record.Live, record.Prepare, record.Status{}),
		here("blog-1", record.Source, record.Live, record.Done, record.Status{FrozenMS: 180, SentBytes: 5000}),
		here("blog-2", record.Source, record.Live, record.Thawed, record.Status{FrozenMS: 3200, SentBytes: 30}),
		here("blog-3", record.Destination, record.Live, record.Discarded, record.Status{}),
		here("news-1", record.Source, record.Trial, record.Thawed, record.Status{FrozenMS: 90}),
		here(`odd"\`+"\n-1", record.Source, record.Offline, record.Failed, record.Status{}),
	}
	tally, err := load(filepath.Join(t.TempDir(), "none"))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time changes nothing
		for _, s := range all {
			if s.Ended {
				tally.add(s)
			}
		}
	}
	backups := []backup{
		{Workload: "shop", Taken: 1795234500, PauseMS: 12.5, Stored: 2 << 20},
		{Workload: "wiki", Taken: 1795148100, PauseMS: 9, Stored: 1 << 20, Failed: 1795234500},
		{Workload: "mail", Failed: 1795234500},
	}
	got := string(render("1.2.3", all, []string{"torn-1"}, tally, backups))
	file := filepath.Join("testdata", "handover.prom")
	if os.Getenv("HANDOVER_WRITE_GOLDEN") != "" {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil || got != string(want) {
		t.Errorf("%v: not as in %s (HANDOVER_WRITE_GOLDEN=1 writes it):\n%s", err, file, got)
	}
}

// rig is a folder of sessions as a host has it.
type rig struct {
	t    *testing.T
	root string
}

func newRig(t *testing.T) rig { return rig{t, filepath.Join(t.TempDir(), "sessions")} }

func (r rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// session writes one that has come through these states.
func (r rig) session(id string, status map[string]any, states ...record.State) string {
	r.t.Helper()
	dir := filepath.Join(r.root, id)
	r.must(os.MkdirAll(dir, 0o700))
	spec, err := json.Marshal(map[string]any{
		"version": 1, "id": id, "role": "source", "mode": "live", "workload": "shop",
		"peer":  map[string]any{"address": "192.0.2.1:7000", "fingerprint": "sha256:" + strings.Repeat("0", 64)},
		"hooks": map[string]any{"freeze": map[string]any{"argv": []string{"podman"}, "gate": "/gate"}},
	})
	r.must(err)
	r.must(os.WriteFile(filepath.Join(dir, record.SpecFile), spec, 0o600))
	figures, err := json.Marshal(status)
	r.must(err)
	r.must(os.WriteFile(filepath.Join(dir, record.StatusFile), figures, 0o600))
	j, err := record.OpenJournal(dir, record.Source)
	r.must(err)
	for _, s := range states {
		r.must(j.Append(s, ""))
	}
	r.must(j.Close())
	return dir
}

func (r rig) page() string {
	r.t.Helper()
	page, err := Page(r.root, "1")
	r.must(err)
	return string(page)
}

func (r rig) says(page string, lines ...string) {
	r.t.Helper()
	for _, line := range lines {
		if !strings.Contains(page, "\n"+line+"\n") {
			r.t.Errorf("no %s in\n%s", line, page)
		}
	}
}

var toRelease = []record.State{record.Presync, record.Barrier, record.Frozen, record.Flushed, record.Prepared, record.Released}

// A source whose process was killed while it held its workload is told as held, by nothing but its files.
func TestAHeldSessionIsToldWithoutItsProcess(t *testing.T) {
	r := newRig(t)
	r.session("shop-1", map[string]any{"held": true, "state": "released"}, toRelease...)
	labels := `{session="shop-1",workload="shop",role="source",state="released"}`
	r.says(r.page(), "handover_session_held"+labels+" 1", "handover_session_served"+labels+" 0")
	r.session("shop-1", map[string]any{"state": "in_doubt"}, record.InDoubt)
	labels = `{session="shop-1",workload="shop",role="source",state="in_doubt"}`
	r.says(r.page(), "handover_session_held"+labels+" 1")
}

// The figures of a session outlive its folder, and count once, however often they are looked at.
func TestAnEndedSessionCountsOnce(t *testing.T) {
	r := newRig(t)
	dir := r.session("shop-1", map[string]any{"sent_bytes": 4096, "frozen_ms": 300}, toRelease...)
	r.must(Count(dir)) // it has not ended
	r.says(r.page(), "handover_sent_bytes_total 4096")
	r.session("shop-1", map[string]any{"sent_bytes": 5000, "frozen_ms": 300}, record.Resumed, record.Settled, record.Done)
	for range 3 {
		r.must(Count(dir + "/"))
		r.must(CountAll(r.root))
		r.page()
	}
	r.must(os.RemoveAll(dir))
	want := []string{
		`handover_sessions_ended_total{role="source",mode="live",state="done"} 1`, "handover_sent_bytes_total 5000",
		`handover_pause_seconds_bucket{mode="live",le="0.25"} 0`, `handover_pause_seconds_bucket{mode="live",le="0.5"} 1`,
		`handover_last_pause_seconds{workload="shop",mode="live"} 0.3`,
	}
	r.says(r.page(), want...)
	// Another session changes the tally; it forgets the folder that is gone, and nothing else.
	r.session("wiki-1", map[string]any{}, record.Failed)
	r.says(r.page(), want...)
	text, err := os.ReadFile(tallyFile(r.root))
	if err != nil || strings.Contains(string(text), "shop-1") || !strings.Contains(string(text), "wiki-1") {
		t.Errorf("%v: the tally names folders that are gone, or not those that are there: %s", err, text)
	}
}

// The pause of a workload that ran on where it was is that between its records.
func TestThePauseOfAWorkloadThatRanOn(t *testing.T) {
	at := time.Date(2026, 11, 21, 4, 15, 0, 0, time.UTC)
	records := func(boot string) []record.Record {
		return []record.Record{
			{Time: at, State: record.Presync, Boot: boot}, {Time: at.Add(time.Second), State: record.Frozen, Boot: boot},
			{Time: at.Add(1250 * time.Millisecond), State: record.Thawed, Boot: "b"},
		}
	}
	if got := thawedAfter(records("b")); got != 250 {
		t.Errorf("%v ms", got)
	}
	if got := thawedAfter(records("a")); got != 0 {
		t.Errorf("%v ms, over a boot", got)
	}
	r := newRig(t)
	r.session("shop-1", map[string]any{}, record.Presync, record.Barrier, record.Frozen, record.Thawed)
	r.says(r.page(), `handover_pause_seconds_count{mode="live"} 1`)
}

// One damaged session hides no other.
func TestADamagedSessionIsCounted(t *testing.T) {
	r := newRig(t)
	dir := r.session("aaa-1", map[string]any{}, record.Presync)
	r.must(os.WriteFile(filepath.Join(dir, record.StatusFile), []byte("{"), 0o600))
	r.session("shop-1", map[string]any{"held": true}, toRelease...)
	page := r.page()
	r.says(page, "handover_sessions_unreadable 1", `handover_session_held{session="shop-1",workload="shop",role="source",state="released"} 1`)
	if strings.Contains(page, "aaa-1") {
		t.Error("a session that cannot be read is told of")
	}
}

// The last backup of each container is told, also where the one of another cannot be read.
func TestTheLastBackups(t *testing.T) {
	r := newRig(t)
	dir := backupsDir(r.root)
	r.must(os.MkdirAll(dir, 0o700))
	r.must(os.WriteFile(filepath.Join(dir, "shop.json"), []byte(`{"workload": "shop", "taken": 1795234500.25, "pause_ms": 12, "stored": 7, "failed": null, "why": ""}`), 0o600))
	r.says(r.page(), `handover_backup_failed{workload="shop"} 0`, `handover_backup_timestamp_seconds{workload="shop"} 1.79523450025e+09`, `handover_backup_stored_bytes{workload="shop"} 7`)
	r.must(os.WriteFile(filepath.Join(dir, "mail.json"), []byte(`{"workload": "mail", "failed": 1795234500, "why": "there is no room"}`), 0o600))
	r.must(os.WriteFile(filepath.Join(dir, "torn.json"), []byte(`{`), 0o600))
	page, err := Page(r.root, "1")
	if err == nil || !strings.Contains(err.Error(), "torn.json") {
		t.Errorf("%v", err)
	}
	r.says(string(page), `handover_backup_failed{workload="shop"} 0`, `handover_backup_failed{workload="mail"} 1`)
	if strings.Contains(string(page), `handover_backup_timestamp_seconds{workload="mail"}`) {
		t.Error("a backup that was never taken has a time")
	}
}

// A damaged tally is told once. The page is there all the same.
func TestADamagedTally(t *testing.T) {
	for name, text := range map[string]string{"torn": "{", "other bounds": `{"pauses": {"live": {"within": [1]}}}`, "nothing": `{"workloads": {"shop": null}}`, "no ending": `{"ended": {"source": 1}}`} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.session("shop-1", map[string]any{}, record.Failed)
			r.must(os.WriteFile(tallyFile(r.root), []byte(text), 0o600))
			page, err := Page(r.root, "1")
			if err == nil || !strings.Contains(err.Error(), "the counters begin at 0") {
				t.Errorf("%v", err)
			}
			r.says(string(page), `handover_sessions_ended_total{role="source",mode="live",state="failed"} 1`)
			r.page()
		})
	}
}

// Those that moved longest ago leave a tally that is full.
func TestTheTallyIsBounded(t *testing.T) {
	root := t.TempDir()
	tally, err := load(root)
	if err != nil {
		t.Fatal(err)
	}
	for i := range mostWorkloads + 3 {
		name := fmt.Sprintf("w%03d", i)
		tally.add(session{&record.Status{Role: record.Source, Mode: record.Live, State: record.Failed, Ended: true, Workload: name}, name, time.Unix(int64(i), 0)})
	}
	tally.forget(root)
	if len(tally.Workloads) != mostWorkloads || tally.Workloads["w002"] != nil || tally.Workloads["w003"] == nil || len(tally.Counted) != 0 {
		t.Errorf("%d workloads, %d folders", len(tally.Workloads), len(tally.Counted))
	}
}

// One that counts has the tally for itself.
func TestTheTallyIsLocked(t *testing.T) {
	r := newRig(t)
	dir := r.session("shop-1", map[string]any{}, record.Failed)
	lock, err := os.Open(r.root)
	r.must(err)
	defer lock.Close()
	r.must(unix.Flock(int(lock.Fd()), unix.LOCK_SH))
	done := make(chan error)
	go func() { done <- Count(dir) }()
	select {
	case err := <-done:
		t.Fatalf("counted under another one's lock: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	r.must(unix.Flock(int(lock.Fd()), unix.LOCK_UN))
	r.must(<-done)
}

func TestWrite(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "handover.prom")
	for _, text := range []string{"a 1\n", "a 2\n"} {
		if err := Write(file, []byte(text)); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(file)
		i, _ := os.Stat(file)
		if err != nil || string(got) != text || i.Mode().Perm() != 0o644 {
			t.Errorf("%v: %s, %v", err, got, i.Mode())
		}
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("%v lie there", left)
	}
	if err := Write(filepath.Join(dir, "missing", "handover.prom"), nil); err == nil || !strings.Contains(err.Error(), "--collector.textfile.directory") {
		t.Error(err)
	}
}
