// Package snapshot takes points of volumes that are in use, into a store.
//
// A snapshot is a move that stays: the tracker, the passes, the freeze, the last pass
// and the proof that nothing was written after it are those of a move (package passes).
// The receiving end is a layer of the store, and then the workload goes on. So the file
// systems stand still for the last pass alone, on any file system.
//
// The clusters to look at are found in one of three ways, and the point says which:
//
//   - marks: a tracker that stays in the kernel (package changes) has marked all that
//     was written since the parent;
//   - digests: it did not, or its marks are lost: everything is read, and compared with
//     the parent's digests;
//   - full: there is no parent.
//
// A plain folder has a disk of its own, to which its files are brought (folder.go).
//
// # The freeze
//
// The file systems of disks stand still. A folder's file system is the host's, so there
// the workload itself does: its cgroup is frozen.
//
// A process of its own (guard.go) thaws both if this one dies, or if the limit has passed.
// So a hook that hangs, or a kill, cannot leave a workload frozen.
package snapshot

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/livefleet/handover/helper/internal/hooks"
	"github.com/livefleet/handover/helper/internal/passes"
	"github.com/livefleet/handover/helper/internal/pipeline"
	"github.com/livefleet/handover/helper/internal/store"
	"github.com/livefleet/handover/helper/internal/treedisk"
	"github.com/livefleet/handover/helper/internal/wire"
)

// Request is a snapshot to be taken.
type Request struct {
	Part
	Options
}

// Options are of the moment, be it of one workload or of several.
type Options struct {
	Tracker     string // the kind, as package tracker has it
	Full        bool   // nothing of the parents' is used
	Track       bool   // trackers stay in the kernel for the next ones
	TrackRoot   string // their records
	TrackPins   string
	FolderRoot  string         // the disks of folders
	Before      *hooks.Command // run before the freeze, while the workload runs
	After       *hooks.Command // run after it, in any case
	Halt        *hooks.Command // halts the workload for the freeze, such as by a dump of its memory
	GoOn        *hooks.Command // lets it go on, in any case; given with Halt
	Memory      *Memory        // its memory is taken, too, and it runs on where it stood; without Halt
	RunDir      string         // the gates of dumps
	FreezeLimit time.Duration  // how long the file systems may stand still
}

// whileFrozen is called in the freeze; a test looks at the disks there.
var whileFrozen = func() {}

// Taken is the answer. Its passes and bytes are those of all that were taken together.
type Taken struct {
	*store.Point
	Store  string        `json:"store"`
	Passes []passes.Pass `json:"passes"`
	Dirty  int64         `json:"frozen_bytes"` // that were read while the file systems stood still
	// Parts of the time for which the workload stood still for its memory, in milliseconds. Some overlap.
	Took map[string]float64 `json:"frozen_took,omitempty"`
}

// The passes before the freeze go on while each is much shorter than the one before.
const (
	mostPasses = 8
	smallPass  = 4 << 20
)

// job is snapshots that are being taken.
type job struct {
	Options
	parts   []*part
	volumes []*volume // of all parts; a frame's stream is the number of one
	folders []*folder // of all parts; their numbers come after those
	halted  []hooks.Cgroup
	owned   []*os.File // of the cgroups, for as long as they may stand still
	copy    *passes.Copy
	passes  []passes.Pass
	seal    *seal     // of a snapshot with memory
	taken   time.Time // the moment that the snapshot is of
	frozen  time.Duration
	took    map[string]float64
	dirty   int64
}

// Take takes a snapshot.
func Take(ctx context.Context, r Request) (*Taken, error) {
	all, err := TakeTogether(ctx, []Part{r.Part}, r.Options)
	if err != nil {
		return nil, err
	}
	return all[0], nil
}

// TakeTogether takes snapshots of several workloads of this host at one moment, each into
// a store of its own. After an error a part may have its snapshot; the error names those.
func TakeTogether(ctx context.Context, parts []Part, o Options) (_ []*Taken, err error) {
	if o.FolderRoot == "" {
		o.FolderRoot = treedisk.Root
	}
	j := &job{Options: o}
	defer func() { err = errors.Join(err, j.close()) }()
	for _, p := range parts {
		if err := j.find(ctx, p); err != nil {
			return nil, err
		}
	}
	if err := j.apart(); err != nil {
		return nil, err
	}
	for _, p := range j.parts {
		if err := p.open(); err != nil {
			return nil, err
		}
	}
	if err := j.begin(); err != nil {
		return nil, err
	}
	herr := j.run(ctx)
	if herr != nil && j.taken.IsZero() {
		return nil, herr
	}
	if err := j.storeFolders(ctx); err != nil {
		return nil, err
	}
	for _, p := range j.parts {
		if err := p.complete(); err != nil {
			return nil, err
		}
	}
	return j.finish(herr)
}

// finish makes each part's snapshot one of its store; herr is an error after the moment.
func (j *job) finish(herr error) (all []*Taken, _ error) {
	whole := ""
	for _, p := range j.parts {
		j.keepUnread(p)
		point, err := p.take.Finish(j.taken, float64(j.frozen.Microseconds())/1000)
		if err != nil {
			if whole != "" {
				err = fmt.Errorf("%w; these are taken and whole: %s", err, whole)
			}
			return nil, err
		}
		if whole != "" {
			whole += ", "
		}
		whole += fmt.Sprintf("%s in %s", point.ID, p.store.Dir())
		all = append(all, &Taken{Point: point, Store: p.store.Dir(), Passes: j.passes, Dirty: j.dirty, Took: j.took})
	}
	if herr != nil {
		return nil, fmt.Errorf("the snapshot is taken and whole (%s), but afterwards: %w", whole, herr)
	}
	return all, nil
}

// begin starts the trackers, and finds what has to be read.
func (j *job) begin() error {
	sender, err := pipeline.NewSender([]pipeline.FrameWriter{j}, pipeline.SendOptions{})
	if err != nil {
		return err
	}
	var vs []*passes.Volume
	for n, v := range j.volumes {
		if v.writing, err = v.part.take.Volume(v.Name, v.source.Size(), j.Full); err != nil {
			return err
		}
		v.pass = &passes.Volume{
			Name: v.Path, Device: v.device, Mountpoint: v.mountpoint, Tracker: j.Tracker, Cluster: cluster, Stream: uint32(n),
			Source: v.source, Empty: v.writing.Full(), SkipFree: true,
		}
		if v.device == "" {
			v.pass.Tracker = passes.Untracked
		}
		vs = append(vs, v.pass)
	}
	j.copy = passes.New(sender, vs, passes.Options{})
	kinds, err := j.copy.Track()
	if err != nil {
		return err
	}
	for _, v := range j.volumes {
		if err := j.since(v, kinds[v.Path]); err != nil {
			return err
		}
	}
	return nil
}

// run copies, freezes, copies the rest, and thaws. If the hook afterwards fails, the
// moment of the snapshot is set nevertheless.
func (j *job) run(ctx context.Context) (err error) {
	if err := j.warm(ctx); err != nil {
		return err
	}
	if j.Before.Given() {
		if err := j.Before.Run(ctx); err != nil {
			return errors.Join(fmt.Errorf("the command before the freeze: %w", err), j.after(ctx))
		}
		if err := j.pass(ctx); err != nil { // it may have had much written
			return errors.Join(err, j.after(ctx))
		}
	}
	err = j.moment(ctx)
	return errors.Join(err, j.after(ctx))
}

// after runs the command after the freeze, also when the context has ended: what the
// command before has begun has to end.
func (j *job) after(ctx context.Context) error {
	if !j.After.Given() {
		return nil
	}
	if err := j.After.Run(context.WithoutCancel(ctx)); err != nil {
		return fmt.Errorf("the command after the freeze: %w", err)
	}
	return nil
}

// warm makes passes while the workload runs.
func (j *job) warm(ctx context.Context) error {
	last := int64(-1)
	for range mostPasses {
		if err := j.copy.Sync(); err != nil {
			return err
		}
		dirty, err := j.collect()
		if err != nil {
			return err
		}
		if last >= 0 && (dirty <= smallPass || dirty > last/2) {
			return nil
		}
		last = dirty
		if err := j.send(ctx); err != nil {
			return err
		}
	}
	return nil
}

// collect is about how many bytes the next pass has.
func (j *job) collect() (int64, error) {
	if err := j.copy.Collect(); err != nil {
		return 0, err
	}
	dirty := j.copy.Dirty()
	for _, f := range j.folders {
		n, err := f.collect()
		if err != nil {
			return 0, err
		}
		dirty += n
	}
	return dirty, nil
}

func (j *job) pass(ctx context.Context) error {
	if err := j.copy.Sync(); err != nil {
		return err
	}
	return j.send(ctx)
}

func (j *job) send(ctx context.Context) error { return j.sendWith(ctx, (*folder).sendWarm) }

// sendWith makes a pass over the disks, and one over each folder beside it.
func (j *job) sendWith(ctx context.Context, each func(*folder, context.Context) error) error {
	g, gctx := errgroup.WithContext(ctx)
	for _, f := range j.folders {
		g.Go(func() error { return each(f, gctx) })
	}
	p, err := j.copy.Send(gctx, nil)
	if err == nil && p.Pass > 0 {
		j.passes = append(j.passes, p)
	}
	return errors.Join(err, g.Wait())
}

// freeze is the moment of the snapshot. Inside it nothing is done but the last pass.
func (j *job) freeze(ctx context.Context) (err error) {
	g, err := ready(ctx, j)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.dismiss()) }()
	if err := j.pass(ctx); err != nil {
		return err
	}
	return j.frozenPass(ctx, g)
}

// ready has the cgroups that will stand still, and starts the guard.
func ready(ctx context.Context, j *job) (*guard, error) {
	var places []string
	for _, v := range j.volumes {
		if v.mountpoint != "" {
			places = append(places, v.mountpoint)
		}
	}
	for _, c := range j.cgroups() {
		places = append(places, cgroupWord+string(c))
	}
	patient, done := context.WithTimeout(ctx, j.FreezeLimit)
	defer done()
	if err := j.have(patient); err != nil {
		return nil, err
	}
	return watch(places, j.FreezeLimit, j.owned)
}

// frozenPass is the last pass, with everything standing still.
func (j *job) frozenPass(ctx context.Context, g *guard) (err error) {
	defer func() { err = errors.Join(err, j.copy.Thaw(), j.goOn()) }()
	if err := g.begin(); err != nil {
		return err
	}
	within, cancel := context.WithTimeoutCause(ctx, j.FreezeLimit, j.tooLong())
	defer cancel()
	began := time.Now()
	if err := errors.Join(j.halt(within), j.seal.expire()); err != nil {
		return err
	}
	if err := j.copy.Freeze(); err != nil {
		return err
	}
	before := len(j.passes)
	if err := j.sendWith(within, (*folder).rest); err != nil {
		return err
	}
	whileFrozen()
	if err := j.silent(); err != nil {
		return err
	}
	at := time.Now()
	if err := errors.Join(j.copy.Thaw(), j.goOn()); err != nil {
		return err
	}
	if j.frozen = time.Since(began); j.frozen > j.FreezeLimit {
		// The guard may have thawed them before the last look.
		return j.tooLong()
	}
	for _, p := range j.passes[before:] {
		j.dirty += p.Bytes
	}
	j.taken = at
	return nil
}

// silent demands that nothing was written since the last pass.
func (j *job) silent() error {
	err := j.copy.Silent()
	for _, f := range j.folders {
		err = errors.Join(err, f.quiet())
	}
	return err
}

func (j *job) tooLong() error {
	return fmt.Errorf("snapshot: the file systems stood still for %v and were let go: allow more (--freeze-limit), or take it when less is written", j.FreezeLimit)
}

func (j *job) close() (err error) {
	err = j.goOn()
	for _, own := range j.owned {
		err = errors.Join(err, own.Close())
	}
	if j.copy != nil {
		err = errors.Join(err, j.copy.Thaw(), j.copy.Close())
	}
	for _, f := range j.folders {
		err = errors.Join(err, f.close())
	}
	for _, p := range j.parts {
		err = errors.Join(err, p.close())
	}
	for _, v := range j.volumes {
		err = errors.Join(err, v.source.Close())
	}
	return err
}

// Write is the receiving end of the passes.
func (j *job) Write(f *wire.Frame) error {
	var w store.VolumeWriter
	if n := int(f.Stream) - len(j.volumes); n >= 0 {
		w = j.folders[n].writing
	} else {
		w = j.volumes[f.Stream].writing
		j.volumes[f.Stream].saw(f)
	}
	switch f.Type {
	case wire.Data:
		return w.Write(f.Payload, f.Pos)
	case wire.Zero:
		return w.Zero(f.Pos, f.Length)
	}
	return fmt.Errorf("snapshot: a frame of type %v in a copy to a store", f.Type)
}

// Flush and Interrupt are a connection's; nothing waits here.
func (j *job) Flush() error    { return nil }
func (j *job) Interrupt(error) {}

var _ pipeline.FrameWriter = (*job)(nil)
