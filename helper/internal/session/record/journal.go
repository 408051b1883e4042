package record

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/diskfull"
)

// State is how far a side has got; see the package comment.
type State string

// The states. Everything that speaks of them uses these words.
const (
	Prepare   State = "prepare"
	Presync   State = "presync"
	Barrier   State = "barrier"
	Frozen    State = "frozen"
	Flushed   State = "flushed"
	Prepared  State = "prepared"
	Released  State = "released"
	Resumed   State = "resumed"
	Refused   State = "refused"
	Settled   State = "settled"
	Done      State = "done"
	Thawed    State = "thawed"
	Discarded State = "discarded"
	Failed    State = "failed"
	InDoubt   State = "in_doubt"
	Fenced    State = "fenced"
)

// next holds the transitions of each side. Append refuses all others: above all
// nothing leads from the source's released to thawed but over refused or fenced, and
// nothing from the destination's refused to resumed. The model
// (helper/model/handover.pml) has the same table.
var next = map[Role]map[State][]State{
	Source: {
		Prepare:  {Presync, Failed},
		Presync:  {Barrier, Failed},
		Barrier:  {Frozen, Thawed, Failed},
		Frozen:   {Flushed, Thawed},
		Flushed:  {Prepared, Thawed, Done}, // done: mode copy hands nothing over
		Prepared: {Released, Thawed},
		Released: {Resumed, Refused, InDoubt},
		InDoubt:  {Resumed, Refused, Fenced},
		Resumed:  {Settled, Fenced}, // never in_doubt again: from there a refusal could thaw
		Refused:  {Thawed},
		Fenced:   {Thawed},
		Settled:  {Done},
	},
	Destination: {
		Prepare:  {Presync, Discarded},
		Presync:  {Barrier, Discarded},
		Barrier:  {Frozen, Discarded},
		Frozen:   {Flushed, Discarded},
		Flushed:  {Prepared, Refused, Discarded, Done}, // discarded, done: mode copy has nothing to refuse
		Prepared: {Released, Refused},
		Released: {Resumed, InDoubt},
		InDoubt:  {Resumed, Refused, Fenced},
		Resumed:  {Settled, Fenced},
		Refused:  {Discarded},
		Fenced:   {Discarded},
		Settled:  {Done, Fenced},
	},
}

// Next are the states that may follow one.
func Next(role Role, at State) []State { return slices.Clone(next[role][at]) }

// durable are the states on which the other side, or a later start, relies: the
// record is on the disk before Append returns. The states before them all mean
// "undo", lost or not, and in the freeze a sync costs.
var durable = map[State]bool{
	Released: true, Resumed: true, Refused: true, Settled: true, Done: true,
	Thawed: true, Discarded: true, Failed: true, InDoubt: true, Fenced: true,
}

// Ended reports whether nothing more will come.
func (s State) Ended() bool {
	return s == Done || s == Thawed || s == Discarded || s == Failed
}

// Record is one line of a journal: a checksum, a space, and this as JSON. Boot is the
// kernel's id of the boot in which it was made: tasks of that boot are gone if this
// is another one.
type Record struct {
	Time  time.Time `json:"time"`
	State State     `json:"state"`
	Boot  string    `json:"boot,omitempty"`
	Why   string    `json:"why,omitempty"`
}

// Journal is the file that survives everything. Several processes may append to it,
// one after the other: the session's own, a CRIU hook that outlived it, an operator's
// abort. Each first reads the records of the others.
//
// A record counts only when it is on the disk: one that was read, and acted upon,
// must not be gone after a loss of power. So if a process was killed between writing
// and syncing, the next reader syncs.
type Journal struct {
	role    Role
	f       *os.File
	fsync   func(*os.File) error
	notices notices

	mu      sync.Mutex
	records []Record
}

// OpenJournal opens, or begins, the journal of the session in dir.
func OpenJournal(dir string, role Role) (*Journal, error) { return openJournal(dir, role, syncFile) }

func openJournal(dir string, role Role, fsync func(*os.File) error) (*Journal, error) {
	path := filepath.Join(dir, JournalFile)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("session: %w", err)
	}
	j := &Journal{role: role, f: f, fsync: fsync, notices: notices{dir: dir}}
	if err := j.load(); err != nil {
		f.Close()
		return nil, err
	}
	err = j.sync()
	if len(j.known()) == 0 {
		// The names, before the first record: of the journal in its folder, and of
		// the folder.
		err = errors.Join(syncDir(dir), syncDir(filepath.Dir(dir)))
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return j, nil
}

// OpenBegunJournal opens the journal of a session that has come further than its
// first record. One that is missing or empty is damaged, not new: read as a
// beginning, it would undo a session that may be past the release.
func OpenBegunJournal(dir string, role Role) (*Journal, error) {
	path := filepath.Join(dir, JournalFile)
	if _, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("session: %w", err)
	}
	j, err := OpenJournal(dir, role)
	if err == nil && len(j.known()) == 0 {
		j.Close()
		return nil, fmt.Errorf("session: the journal %s is empty, and the session had begun", path)
	}
	return j, err
}

// SetJournalAside puts a journal that cannot be read aside, and begins one that
// knows only that the outcome is not known: it can be resolved then. It is an
// operator's order, for a session that no process serves.
func SetJournalAside(dir string) error {
	spec, err := LoadSpec(dir)
	if err != nil {
		return err
	}
	own, err := Lock(filepath.Join(dir, LockFile))
	if err != nil {
		return fmt.Errorf("session: %s: its process lives: end it first (`systemctl kill --signal=KILL 'handover-%s-*'`): %w", spec.ID, spec.ID, err)
	}
	defer own.Close()
	if j, err := OpenBegunJournal(dir, spec.Role); err == nil {
		j.Close()
		return fmt.Errorf("session: the journal of %s can be read: it is not lost, and it decides", spec.ID)
	}
	path := filepath.Join(dir, JournalFile)
	if err := os.Rename(path, path+".damaged"); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("session: %w", err)
	}
	// A reader in between finds none, and waits.
	line, err := encodeRecord(Record{Time: time.Now().UTC(), State: InDoubt, Boot: thisBoot(), Why: "an operator ordered to go on without the journal, which could not be read"})
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path+".new", os.O_CREATE|os.O_TRUNC|os.O_WRONLY|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return fmt.Errorf("session: %w", err)
	}
	_, err = f.Write(line)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		return fmt.Errorf("session: %w", err)
	}
	return syncDir(dir)
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err == nil {
		err = errors.Join(d.Sync(), d.Close())
	}
	if err != nil {
		return fmt.Errorf("session: %w", err)
	}
	return nil
}

func syncFile(f *os.File) error { return unix.Fdatasync(int(f.Fd())) }

// sync puts the last record on the disk if anything may rest on it.
func (j *Journal) sync() error {
	if !durable[j.State()] {
		return nil
	}
	if err := j.fsync(j.f); err != nil {
		return fmt.Errorf("session: syncing %s: %w", j.f.Name(), err)
	}
	return nil
}

// Close closes the file.
func (j *Journal) Close() error {
	j.notices.tell()
	return j.f.Close()
}

// State is the last one recorded, prepare if there is none.
func (j *Journal) State() State {
	records := j.known()
	if len(records) == 0 {
		return Prepare
	}
	return records[len(records)-1].State
}

// Records are all of them.
func (j *Journal) Records() []Record { return slices.Clone(j.known()) }

// known are the records, which nobody may write to: an operator's request asks for them
// while the session appends.
func (j *Journal) known() []Record {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.records
}

func (j *Journal) knows(records []Record) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.records = records
}

// Reached reports whether the state was ever recorded.
func (j *Journal) Reached(s State) bool {
	return slices.ContainsFunc(j.known(), func(r Record) bool { return r.State == s })
}

var table = crc32.MakeTable(crc32.Castagnoli)

// load reads all records. A torn last line never counted and is cut off: one
// without an end, from a process that was killed in the middle of an append, or
// one with a wrong checksum, from a loss of power. Damage anywhere else is an
// error, and so is a whole line with a wrong checksum in a boot in which no power
// was lost: it may have been the release.
func (j *Journal) load() error {
	data, err := os.ReadFile(j.f.Name())
	if err != nil {
		return fmt.Errorf("session: %w", err)
	}
	var records []Record
	good := 0
	for len(data) > good {
		line, _, whole := bytes.Cut(data[good:], []byte("\n"))
		r, err := parseRecord(line)
		last := good+len(line)+1 >= len(data)
		if err != nil || !whole {
			if last && (!whole || len(records) == 0 || records[len(records)-1].Boot != thisBoot()) {
				break
			}
			return fmt.Errorf("session: the journal %s is damaged at byte %d: %v: do not guess: ask both hosts which of them runs the workload", j.f.Name(), good, err)
		}
		records = append(records, r)
		good += len(line) + 1
	}
	if good < len(data) {
		if err := j.f.Truncate(int64(good)); err != nil {
			return fmt.Errorf("session: %w", err)
		}
	}
	if _, err := j.f.Seek(int64(good), 0); err != nil {
		return fmt.Errorf("session: %w", err)
	}
	j.knows(records)
	return nil
}

func encodeRecord(r Record) ([]byte, error) {
	body, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("session: %w", err)
	}
	return fmt.Appendf(nil, "%08x %s\n", crc32.Checksum(body, table), body), nil
}

func parseRecord(line []byte) (Record, error) {
	var r Record
	sum, body, ok := bytes.Cut(line, []byte(" "))
	if !ok || string(sum) != fmt.Sprintf("%08x", crc32.Checksum(body, table)) {
		return r, errors.New("a record's checksum is wrong")
	}
	return r, json.Unmarshal(body, &r)
}

// Append records that this side has reached a state. It holds the file's lock and
// first reads the records that others appended since. If the state is already there
// nothing is written: repeating a step is no error. A step that the table does not
// allow is one.
func (j *Journal) Append(s State, why string) error {
	if err := unix.Flock(int(j.f.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("session: locking %s: %w", j.f.Name(), err)
	}
	defer unix.Flock(int(j.f.Fd()), unix.LOCK_UN) //nolint:errcheck // unlocking a lock that we hold
	if err := j.load(); err != nil {
		return err
	}
	at := j.State()
	if at == s {
		return j.sync()
	}
	if !slices.Contains(next[j.role][at], s) {
		return fmt.Errorf("session: the %s is %q and cannot become %q", j.role, at, s)
	}
	r := Record{Time: time.Now().UTC(), State: s, Boot: thisBoot(), Why: why}
	line, err := encodeRecord(r)
	if err != nil {
		return err
	}
	if _, err := j.f.Write(line); err != nil {
		return fmt.Errorf("session: writing %s: %w", j.f.Name(), diskfull.Explain(j.f.Name(), err))
	}
	j.knows(append(slices.Clip(j.known()), r))
	if err := j.sync(); err != nil {
		return err
	}
	j.notices.add(r)
	return nil
}

// Restarted reports whether the host was restarted since this state was reached.
func (j *Journal) Restarted(since State) bool {
	for _, r := range j.known() {
		if r.State == since {
			return r.Boot != thisBoot()
		}
	}
	return false
}

// OfAnEarlierBoot reports whether the host was restarted since the session began.
func (j *Journal) OfAnEarlierBoot() bool {
	records := j.known()
	return len(records) > 0 && records[0].Boot != thisBoot()
}

// bootID reads the kernel's id of this boot once.
var bootID = sync.OnceValue(func() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "" // no procfs: boots cannot be told apart
	}
	return string(bytes.TrimSpace(id))
})

// thisBoot is the kernel's id of this boot.
func thisBoot() string { return bootID() }
