package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/livefleet/handover/helper/internal/criuimage"
	"github.com/livefleet/handover/helper/internal/hooks"
	"github.com/livefleet/handover/helper/internal/loop"
	"github.com/livefleet/handover/helper/internal/network"
	"github.com/livefleet/handover/helper/internal/tree"
	"github.com/livefleet/handover/helper/internal/treedisk"
)

// A workload's memory is dumped as for a move, and then the workload runs on where it stood:
// nothing of it ends and nothing is restored. CRIU is started, and the layer is copied, while
// it runs. Then its cgroup is frozen, and CRIU dumps. The action script holds CRIU when the
// dump is complete, and the last pass over the disks follows. So memory, layer and disks are of
// one moment.
//
// Package hooks has the process that lets the tasks run on if this one is gone (Stays).

// Memory is a part of a snapshot beside the disks: the workload's memory, and all that has to fit it.
type Memory struct {
	Dump      hooks.Command `json:"dump"`      // makes CRIU dump the workload into its gate, and leave it running
	Namespace string        `json:"namespace"` // of its network; empty: it has none of its own
	Into      string        `json:"into"`      // the folder that has all of it afterwards, or is not there
	As        string        `json:"as"`        // the name of the dump in it
	Layers    []Place       `json:"layers"`    // folders, copied as they are
	Archives  []Place       `json:"archives"`  // folders whose content is in no dump, as archives
	Beside    []Place       `json:"beside"`    // files that the command lays down. An archive of the same name takes the place of one
	Databases []string      `json:"databases"` // folders, as the tasks name them, in which no database of SQLite's may be open: files get other inodes
	Ends      bool          `json:"ends"`      // the workload ends with its dump, which stays in its gate (Leave)
	Watcher   int           `json:"watcher"`   // with that, the process that acts when the workload ends; 0: there is none
	Watches   string        `json:"watches"`   // the workload's ID, which is among that process's words
}

// Check demands all without which the tasks could not be held and let go.
func (m *Memory) Check() error {
	for name, value := range map[string]string{
		"dump.argv": strings.Join(m.Dump.Argv, " "), "dump.gate": m.Dump.Gate, "dump.cgroup": string(m.Dump.Cgroup), "dump.log": m.Dump.Log, "into": m.Into, "as": m.As,
	} {
		if value == "" {
			return fmt.Errorf("%s is missing", name)
		}
	}
	return nil
}

// LetRun is for a workload that stands still because all processes of its dump were killed: it
// runs on, and the dump is of no use.
func (m *Memory) LetRun(runDir string) error {
	s := hooks.Stays{Cgroup: m.Dump.Cgroup, Froze: m.frozen()}
	if hooks.Served(runDir, m.Dump.Gate) {
		return fmt.Errorf("snapshot: the memory in %s is being taken still: wait until that has ended", m.Dump.Gate)
	}
	if hooks.InUse(m.Dump.Gate) {
		return fmt.Errorf("snapshot: CRIU is still at work in %s: wait until that has ended", m.Dump.Gate)
	}
	if s.Stand() {
		if err := s.LetRun(m.Dump.Gate); err != nil {
			return err // the images have what the tasks are still to get back
		}
	}
	return loop.Unmount(m.Dump.Gate)
}

// frozen is the file that says that the cgroup stands still for the dump.
func (m *Memory) frozen() string { return m.Into + ".frozen" }

// acceptLimit is how long a workload may take to accept those that wait for it.
const acceptLimit = time.Second

// endLimit is how long CRIU and its caller may take to end when they have their answer.
const endLimit = 60 * time.Second

// layer is a folder that is copied ahead, and in the end its changes.
type layer struct {
	Place
	mirror *tree.Mirror
	copy   string
}

// dump is one that is being made.
type dump struct {
	*Memory
	stays   hooks.Stays
	gate    *hooks.Gate
	own     *os.File // of the cgroup
	process *hooks.Process
	layers  []*layer
	folder  string // all of it, until it is whole
	covered bool   // the gate is in memory
	atWork  bool   // CRIU is, though its caller has ended
	froze   bool   // by this process, whatever becomes of the file that says so
	// Of a workload that ends with its dump: CRIU may have been told so; and it has ended, and
	// its dump is all that is left of it.
	answered, ended bool
	watcher         *os.File // the pidfd of the process beside it, which this one has stopped

	mu   sync.Mutex
	took map[string]float64 // parts of the pause, in milliseconds
}

// Stood is the time for which a workload stood still, and its parts, which overlap, in milliseconds.
type Stood struct {
	For  time.Duration
	Took map[string]float64
}

// beside are the steps of a snapshot's disks around the dump.
type beside struct {
	pass  func(context.Context) error                           // the workload runs
	still func(_ context.Context, dumped <-chan struct{}) error // it stands still, and CRIU dumps until dumped is closed
	last  func(context.Context) error                           // the dump is complete
	undo  func() error                                          // nothing comes of it
}

// noDisks has nothing to do.
func noDisks() beside {
	nothing := func(context.Context) error { return nil }
	return beside{nothing, func(context.Context, <-chan struct{}) error { return nil }, nothing, func() error { return nil }}
}

// TakeMemory takes the memory of a workload without disks, and returns for how long it stood still.
func TakeMemory(ctx context.Context, m *Memory, runDir string, limit time.Duration) (Stood, error) {
	return m.take(ctx, runDir, limit, noDisks())
}

// withMemory is the moment of a snapshot with the memory.
func withMemory(ctx context.Context, j *job) error {
	g, err := ready(ctx, j)
	if err != nil {
		return err
	}
	j.seal = &seal{job: j, guard: g}
	stood, err := j.Memory.take(ctx, j.RunDir, j.FreezeLimit, beside{
		pass:  j.pass,
		still: j.seal.pass,
		last:  func(ctx context.Context) error { return j.frozenPass(ctx, g) },
		undo:  j.copy.Thaw,
	})
	if err = errors.Join(err, g.dismiss()); err != nil {
		j.taken = time.Time{} // the disks alone are no such snapshot
		return err
	}
	j.frozen, j.took = stood.For, stood.Took
	return nil
}

// take dumps the workload, with the steps of its disks. It returns when the workload runs and all
// is in its place.
func (m *Memory) take(ctx context.Context, runDir string, limit time.Duration, disks beside) (stood Stood, err error) {
	d, err := m.begin(runDir, limit)
	if d == nil {
		return stood, err
	}
	stood.Took = d.took
	if err == nil {
		err = d.arm(ctx)
	}
	if err == nil {
		err = errors.Join(d.copyLayers(), disks.pass(ctx))
	}
	if err == nil {
		err = d.behindDoor(ctx, func() (err error) {
			stood.For, err = d.moment(ctx, disks)
			return err
		})
	}
	if err = errors.Join(err, d.end(err == nil)); err == nil {
		err = d.finish()
	}
	return stood, errors.Join(err, d.clear())
}

// begin makes the folders. An earlier dump in the place of this one goes: it is of another moment.
func (m *Memory) begin(runDir string, limit time.Duration) (d *dump, err error) {
	d = &dump{Memory: m, took: map[string]float64{}, folder: m.Into + ".new", stays: hooks.Stays{Cgroup: m.Dump.Cgroup, Froze: m.frozen(), Limit: limit}}
	if err := os.MkdirAll(m.Dump.Gate, 0o700); err != nil {
		return nil, fmt.Errorf("snapshot: the dump: %w", err)
	}
	if d.gate, err = hooks.OpenStaying(runDir, m.Dump.Gate, d.stays); err != nil {
		return nil, err
	}
	err = loop.Unmount(m.Dump.Gate) // a killed one has left it
	for _, path := range []string{m.Into, d.folder} {
		err = errors.Join(err, os.RemoveAll(path))
	}
	for _, each := range m.Beside {
		err = errors.Join(err, os.RemoveAll(each.Path))
	}
	err = errors.Join(err, empty(m.Dump.Gate), os.Mkdir(d.folder, 0o700), d.cover())
	for _, place := range m.Layers {
		l := &layer{Place: place, copy: filepath.Join(d.folder, place.Name)}
		var e error
		if l.mirror, e = tree.Open(place.Path); e == nil {
			d.layers = append(d.layers, l)
			e = os.Mkdir(l.copy, 0o700)
		}
		err = errors.Join(err, e)
	}
	if err != nil {
		err = fmt.Errorf("snapshot: the memory: %w", err)
	}
	return d, err
}

// empty removes the content of a folder.
func empty(folder string) error {
	entries, err := os.ReadDir(folder)
	for _, each := range entries {
		err = errors.Join(err, os.RemoveAll(filepath.Join(folder, each.Name())))
	}
	return err
}

// arm brings CRIU to the point before it stops anything. Much of a layer is copied before.
func (d *dump) arm(ctx context.Context) (err error) {
	if err := d.copyLayers(); err != nil {
		return err
	}
	within, cancel := context.WithTimeout(ctx, d.stays.Limit)
	defer cancel()
	if d.own, err = d.stays.Cgroup.Own(within); err != nil {
		return fmt.Errorf("snapshot: %w", err)
	}
	stopped, err := d.stays.Cgroup.Stopped()
	if err != nil {
		return fmt.Errorf("snapshot: %w", err)
	}
	if stopped {
		return fmt.Errorf("snapshot: the workload stands still (%s is frozen), for a move or by somebody's hand: take the snapshot when it runs", d.stays.Cgroup)
	}
	if d.process, err = d.Dump.Start(); err != nil {
		return fmt.Errorf("snapshot: dumping the memory: %w", err)
	}
	if err := d.await(ctx, hooks.PreDump); err != nil {
		return err
	}
	d.stays.Cgroup.BringUp()
	watched, err := d.stays.Cgroup.FindWatched()
	if err == nil && len(watched) > 0 {
		err = criuimage.WriteWatched(filepath.Dir(d.Dump.Log), watched)
	}
	return errors.Join(err, hooks.NoteFrozen(d.Dump.Gate))
}

func (d *dump) await(ctx context.Context, action string) error {
	limit := d.Dump.Limit()
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("it has not come there within %s", limit))
	defer cancel()
	if _, err := d.gate.Await(ctx, action, d.process); err != nil {
		return fmt.Errorf("snapshot: dumping the memory: %w", err)
	}
	return nil
}

// behindDoor keeps new connections away: CRIU refuses a listener at whose door somebody waits.
func (d *dump) behindDoor(ctx context.Context, f func() error) error {
	if d.Namespace == "" {
		return f()
	}
	return network.BehindShutDoor(ctx, d.Namespace, acceptLimit, f)
}

// moment is the time for which the workload stands still. It ends when the tasks run.
func (d *dump) moment(ctx context.Context, disks beside) (time.Duration, error) {
	began, dumps, err := d.freeze(ctx)
	if err != nil {
		return 0, err
	}
	renewed := d.stays.Renew(d.Dump.Limit()) // the script's limit is for the last pass
	g, gctx := errgroup.WithContext(ctx)
	dumped := make(chan struct{})
	g.Go(func() error {
		err := d.timed("dump", dumps, d.dumped(gctx))
		if err == nil {
			close(dumped)
		}
		return err
	})
	g.Go(func() error { return d.timed("pass", dumps, disks.still(gctx, dumped)) })
	g.Go(func() error { return d.timed("copies", dumps, d.copyBeside(gctx)) })
	if err := errors.Join(g.Wait(), renewed()); err != nil {
		return 0, errors.Join(err, disks.undo())
	}
	lasts := time.Now()
	// Once more: CRIU gives a deleted file that is open a name in the layer.
	if err := errors.Join(d.copyLayers(), disks.last(ctx), d.stays.Cgroup.Held()); err != nil {
		return 0, d.late(lasts, err)
	}
	runs := d.stage("last_pass", lasts)
	d.gate.Answer(hooks.PostDump, true)
	stood, err := d.untilTheyRun(ctx, began)
	return stood, d.timed("run_on", runs, err)
}

// freeze has the workload stand still, and lets CRIU begin. It returns when each of them was.
func (d *dump) freeze(ctx context.Context) (began, dumps time.Time, err error) {
	if err := os.WriteFile(d.stays.Froze, nil, 0o600); err != nil {
		return began, dumps, fmt.Errorf("snapshot: %w", err)
	}
	began = time.Now()
	d.froze = true
	within, cancel := context.WithTimeout(ctx, d.stays.Limit)
	defer cancel()
	if _, err := d.stays.Cgroup.Freeze(within); err != nil {
		return began, dumps, fmt.Errorf("snapshot: %w", err)
	}
	dumps = d.stage("freeze", began)
	d.gate.Answer(hooks.PreDump, true)
	return began, dumps, nil
}

// stage notes how long a part of the pause took, and returns the beginning of the next.
func (d *dump) stage(name string, began time.Time) time.Time {
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.took[name] = float64(now.Sub(began).Microseconds()) / 1000
	return now
}

func (d *dump) timed(name string, began time.Time, err error) error {
	d.stage(name, began)
	return err
}

// late says of a last pass that failed whether it was too slow.
func (d *dump) late(began time.Time, err error) error {
	if time.Since(began) < d.stays.Limit {
		return err
	}
	return fmt.Errorf("snapshot: the last pass did not come to its end within %s (--freeze-limit), and the workload runs on without: %w", d.stays.Limit, err)
}

// dumped returns when the dump is complete. Should CRIU be killed from then on, its tasks stay
// where they are until they have back all that it took.
func (d *dump) dumped(ctx context.Context) error {
	looked := make(chan error, 1)
	go func() { looked <- d.noDatabase() }()
	if err := d.await(ctx, hooks.PostDump); err != nil {
		return err
	}
	within, cancel := context.WithTimeout(ctx, d.stays.Limit)
	defer cancel()
	_, err := d.stays.Cgroup.Freeze(within)
	return errors.Join(err, <-looked, d.stays.Cgroup.Held())
}

// copyBeside copies all that stands still with the tasks.
func (d *dump) copyBeside(ctx context.Context) error {
	for _, a := range d.Archives {
		path := filepath.Join(d.folder, a.Name)
		out, err := exec.CommandContext(ctx, "tar", "--create", "--file="+path, "--directory="+a.Path, "--numeric-owner", "--sparse", ".").CombinedOutput()
		if err != nil {
			return fmt.Errorf("snapshot: an archive of %s: %w: %s", a.Path, err, out)
		}
	}
	return d.copyLayers()
}

// copyLayers brings the copies of the layers up to date. A layer in use is first written back.
func (d *dump) copyLayers() error {
	for _, l := range d.layers {
		since, err := time.Now(), error(nil)
		if !d.froze {
			since, err = tree.WriteBack(l.Path)
		}
		if err == nil {
			err = treedisk.Pour(l.copy, func(w io.Writer) error {
				_, err := l.mirror.Everything(w, tree.Changes{Since: since})
				return err
			})
		}
		if err != nil {
			return fmt.Errorf("snapshot: the layer %s: %w", l.Path, err)
		}
	}
	return nil
}

// untilTheyRun lets the tasks run as soon as CRIU has let go of them. It has all of them until then.
func (d *dump) untilTheyRun(ctx context.Context, began time.Time) (time.Duration, error) {
	limit := d.Dump.Limit()
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("CRIU has not let go of the tasks within %s", limit))
	defer cancel()
	for {
		free, err := d.stays.Cgroup.LetGo()
		if err == nil && free {
			err = d.stays.RunOn(d.Dump.Gate)
			return time.Since(began), err
		}
		if err != nil {
			return 0, err
		}
		select {
		case <-d.process.Done():
			if err := d.process.Err(); err != nil { // it may have been killed, and its CRIU hold the tasks still
				return 0, err
			}
			return time.Since(began), d.runOn()
		case <-ctx.Done():
			return 0, fmt.Errorf("snapshot: %w", context.Cause(ctx))
		case <-time.After(time.Millisecond):
		}
	}
}

// end lets the tasks run on, and waits for the end of CRIU and its caller. Their answer is no
// if there is none yet. The dump is complete when they say so.
func (d *dump) end(whole bool) (err error) {
	d.gate.Refuse()
	if d.process != nil {
		select {
		case <-d.process.Done():
		case <-time.After(endLimit):
			return fmt.Errorf("snapshot: CRIU has its answer and `%s` has not ended within %s: tasks may still be frozen: look at CRIU's log", d.Dump.Argv[0], endLimit)
		}
		if err = d.criuEnds(); d.atWork {
			return err
		}
		if !whole { // a refused one has failed, as it has to
			err = nil
		}
	}
	return errors.Join(err, d.runOn())
}

// criuEnds returns how CRIU's caller has ended. A caller that was killed leaves its CRIU at work:
// that freezes the cgroup again before it lets go, so nothing is thawed or removed before its end.
func (d *dump) criuEnds() error {
	err := d.process.Err()
	if err == nil {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), endLimit, fmt.Errorf("CRIU has not ended within %s", endLimit))
	defer cancel()
	busy := d.gate.Idle(ctx)
	d.atWork = busy != nil
	return errors.Join(err, busy)
}

// runOn is for when the process that CRIU's script has left behind was killed: CRIU has ended.
func (d *dump) runOn() error {
	if !d.froze {
		return nil
	}
	err := d.stays.LetRun(d.Dump.Gate)
	d.froze = err != nil
	return err
}
