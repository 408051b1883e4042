package session

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/livefleet/handover/helper/internal/hooks"
	"github.com/livefleet/handover/helper/internal/lazy"
	"github.com/livefleet/handover/helper/internal/loop"
	"github.com/livefleet/handover/helper/internal/report"
	"github.com/livefleet/handover/helper/internal/session/engine"
	"github.com/livefleet/handover/helper/internal/session/protocol"
	"github.com/livefleet/handover/helper/internal/session/record"
	"github.com/livefleet/handover/helper/internal/session/recovery"
	"github.com/livefleet/handover/helper/internal/transport"
	"github.com/livefleet/handover/helper/internal/tree"
)

// destination is the receiving side of one session: the order of its steps. The parts below it know each only those that they embed.
type destination struct {
	*earlyRestore
	door    *door
	fetcher *lazy.Fetcher // nil: the memory does not follow
	tmpfs   []string
}

func newDestination(b *record.Session, o Options) *destination {
	in := &incoming{
		places:  &places{Session: b, options: o.filled(), binds: map[string][]loop.Bind{}, rooms: map[uint32]*room{}},
		hearing: hearing{of: b, by: record.Destination}, late: map[string][]string{}, unpacking: map[uint32]*unpacking{},
	}
	early := &earlyRestore{incoming: in}
	in.changed = early.changed
	return &destination{earlyRestore: early}
}

// Receive runs the destination's side of the session in dir to its end.
func Receive(ctx context.Context, dir, runDir string, o Options) error {
	b, err := record.Open(dir, runDir, record.Destination, func(restores bool) error { return recovery.ReceiverMayStart(dir, runDir, restores) })
	if err != nil {
		return err
	}
	defer b.Close()
	d := newDestination(b, o)
	err = d.run(ctx)
	if err != nil {
		err = d.undo(err)
	}
	d.release()
	return err
}

func (d *destination) run(ctx context.Context) error {
	if err := d.options.lower(d.Session); err != nil {
		return err
	}
	id, err := transport.Load(filepath.Join(d.Dir, record.IdentityDir))
	if err != nil {
		return err
	}
	if err := d.prepare(); err != nil {
		return err
	}
	l, err := transport.Listen(d.Spec.Listen, id, func() string { return d.Spec.Peer.Fingerprint })
	if err != nil {
		return err
	}
	defer l.Close()
	if err := d.confineDestination(); err != nil {
		return err
	}
	d.Update(true, func(s *record.Status) { s.Listen = l.Address() })

	// An abort has to get through also without a connection.
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go d.watchRequests(ctx, cancel)
	d.Heed = record.Heed{Context: ctx, HungUp: func() bool { return d.conn != nil && d.conn.HungUp() }}
	return d.receive(ctx, l)
}

func (d *destination) watchRequests(ctx context.Context, cancel context.CancelCauseFunc) {
	for {
		select {
		case <-ctx.Done():
			return
		case r := <-d.Control.Requests:
			switch {
			case r.Do == record.AskResolve && r.Outcome == record.Resumed && d.Journal.Reached(record.Settled):
				r.Answer(nil)
				cancel(errConfirmed)
			case r.Do != record.AskAbort:
				r.Answer(errors.New("this is the destination, and its session goes on: it follows the source, and can only be aborted"))
			case d.Journal.Reached(record.Released):
				r.Answer(errors.New("the workload was handed over: it runs here"))
			default:
				r.Answer(nil)
				cancel(errAborted)
			}
		}
	}
}

// prepare makes the files to write, and nothing that the peer could choose.
func (d *destination) prepare() error {
	if err := engine.Expect(d.Dir, d.Spec); err != nil {
		return err
	}
	for _, v := range d.Spec.Volumes {
		if err := record.NoteMade(d.Dir, v.Image); err != nil {
			return err
		}
		t, err := d.openTarget(v)
		if err != nil {
			return err
		}
		d.images = append(d.images, v)
		d.targets = append(d.targets, t)
		if d.Spec.Policy.ReserveSpace {
			if err := t.Reserve(); err != nil {
				return err
			}
		}
		d.Update(false, func(s *record.Status) { s.TotalBytes += v.Size })
		if v.Mountpoint == "" {
			continue
		}
		if mounted, err := loop.Mounted(v.Mountpoint); err != nil {
			return err
		} else if mounted {
			return fmt.Errorf("session: volume %s: something is mounted on %s already: unmount it, or choose another mount point", v.Name, v.Mountpoint)
		}
	}
	if err := d.findDirectories(); err != nil {
		return err
	}
	mounted, err := d.makeTmpfs()
	d.tmpfs = append(d.tmpfs, mounted...)
	if err != nil {
		return err
	}
	if d.Spec.Policy.ReserveSpace {
		if err := d.holdRooms(); err != nil {
			return err
		}
	}
	for _, part := range d.Spec.Parts() {
		r := part.Restore
		if !r.Given() || r.Gate == "" {
			continue
		}
		if mounted, err := loop.Mounted(r.Gate); err != nil {
			return err
		} else if mounted {
			return fmt.Errorf("session: something is mounted on %s, left by an earlier session? Unmount it", r.Gate)
		}
		if err := loop.MountTmpfs(r.Gate); err != nil {
			return err
		}
		d.tmpfs = append(d.tmpfs, r.Gate)
		if err := hooks.WatchRun(r.Gate); err != nil {
			return err
		}
	}
	if err := errors.Join(d.listenLazy(), d.listenPlacer()); err != nil {
		return err
	}
	d.restorer, err = engine.NewRestorer(d.Session, &d.carried)
	return err
}

// hello is the first word of a source.
func (d *destination) hello(ctx context.Context, m *protocol.Hello) error {
	if err := d.agree(&m.Opening); err != nil {
		return err
	}
	if err := d.reach(record.Presync, ""); err != nil {
		return err
	}
	d.empty = true
	for _, t := range d.targets {
		d.empty = d.empty && t.Empty()
	}
	if slices.Contains(m.Can, canCompare) {
		d.openLedgers()
	}
	d.openVolumes()
	d.compares = d.kept && slices.Contains(m.Can, canStartFrom)
	if err := d.makeRoom(m.Memory); err != nil {
		return err
	}
	if err := d.welcome(0); err != nil || !d.compares {
		return err
	}
	return d.sendAllDigests(ctx, d.ledgers)
}

// errConfirmed: the caller knows from the source that it can never thaw again.
var errConfirmed = errors.New("session: the source has let go")

// barrier syncs the received data, and everything that was prepared for the workload.
func (d *destination) barrier(context.Context, *protocol.Barrier) error {
	if err := d.reach(record.Barrier, ""); err != nil {
		return err
	}
	if d.fetcher == nil {
		d.door.l.Close() // no further connection is expected
	}
	began := time.Now()
	if err := errors.Join(d.datasync(), syncTrees(d.Spec)); err != nil {
		return err
	}
	return protocol.Send(d.conn, &protocol.Synced{Answer: protocol.Answer{Echo: d.said, Heard: d.heard}, Took: map[string]float64{"datasync": report.MS(time.Since(began))}})
}

// syncTrees puts the file systems on the disk that the trees are on: the engine's
// own records of the workload, and its image, are there too. It is not for the
// pause: others write there as well.
func syncTrees(spec *record.Spec) (err error) {
	for _, t := range spec.Trees {
		// The engine may have removed the files that it needed for the restore alone.
		if _, e := tree.WriteBack(t.Path); e != nil && !errors.Is(e, os.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}
	return err
}

// flushed: everything has come.
func (d *destination) flushed(ctx context.Context, m *protocol.Flushed) error {
	d.carried.Last(m.Told, m.Bound, m.Reset, m.Own)
	d.carried.Joined(m.Groups)
	d.carried.Lead(m.Flows)
	if len(d.unpacking) > 0 {
		return errors.New("session: the source says that everything was sent, and a tree has no end")
	}
	if differs, err := d.compare(m); differs || err != nil {
		return err
	}
	if err := d.offerTmpfs(m.Tmpfs); err != nil {
		return err
	}
	if err := d.reach(record.Flushed, ""); err != nil {
		return err
	}
	if !d.verifies {
		return d.prepareWorkload(ctx)
	}
	roots, err := d.reread(ctx)
	if err != nil {
		return err
	}
	return protocol.Send(d.conn, &protocol.Verified{Roots: roots})
}

// prepareWorkload restores, up to the point before the first instruction.
func (d *destination) prepareWorkload(ctx context.Context) error {
	if d.Spec.Mode == record.Copy {
		if err := d.datasync(); err != nil {
			return err
		}
		if err := d.reach(record.Done, ""); err != nil {
			return err
		}
		return protocol.Send(d.conn, &protocol.Settled{})
	}
	took := map[string]float64{}
	began := time.Now()
	// All data frozen on the source are on the disk here before anything runs on
	// them: the workload's later acknowledgements rest on them, and the source, which
	// does not have those, is no way back any more. It costs no pause as long as it
	// takes no longer than the restore.
	var sync errgroup.Group
	sync.Go(func() error { return d.options.syncVolumes(d.places) })
	sync.Go(d.syncLate)
	defer sync.Wait() //nolint:errcheck // looked at below; this is for the ways out before
	if err := d.armed(ctx); err != nil {
		return err
	}
	took["armed"] = report.MS(time.Since(began))
	began = time.Now()
	for n, v := range d.Spec.Volumes {
		if err := d.attach(v); err != nil {
			return errors.Join(err, d.coverAgain(d.Spec.Volumes[n:]))
		}
	}
	took["attach"] = report.MS(time.Since(began))
	began = time.Now()
	if err := d.restorer.Restore(ctx); err != nil {
		return fmt.Errorf("session: restoring: %w", err)
	}
	took["criu_restore"] = report.MS(time.Since(began))
	if err := d.placeAll(ctx, took); err != nil {
		return err
	}
	began = time.Now()
	if err := sync.Wait(); err != nil {
		return err
	}
	took["datasync"] = report.MS(time.Since(began))
	d.Log.Emit("prepared", map[string]any{"took": took})
	if err := d.reach(record.Prepared, ""); err != nil {
		return err
	}
	return protocol.Send(d.conn, &protocol.Prepared{Took: took})
}

// resume is the moment: the source is released.
func (d *destination) resume(ctx context.Context, m *protocol.Run) error {
	if tokenHash(m.Token) != d.tokenHash {
		return errors.New("session: the run token is not the one that was announced")
	}
	if err := d.reach(record.Released, ""); err != nil {
		// Nothing was told to run yet, and nothing will be.
		return err
	}
	began := time.Now()
	// Not the connection's context: from here on its loss changes nothing.
	runs, err := d.restorer.Resume(context.WithoutCancel(ctx))
	if err != nil {
		err = fmt.Errorf("session: it was told to resume, and then: %w", err)
		return errors.Join(err, d.reach(record.InDoubt, err.Error()))
	}
	took := map[string]float64{"resume": report.MS(time.Since(began)), "running": report.MS(runs.Sub(began))}
	// The word first: the source's clock of the pause is running. If it does not get
	// through, the journal will tell.
	sent := protocol.Send(d.conn, &protocol.Resumed{Took: took})
	if err := d.reach(record.Resumed, ""); err != nil {
		return err
	}
	took, err = d.fetch(ctx, runs)
	if err != nil {
		return err
	}
	if err := d.settle(); err != nil {
		return err
	}
	if sent != nil {
		return sent
	}
	return protocol.Send(d.conn, &protocol.Settled{Took: took})
}

// settle: all that was received is on the disk, after it runs.
func (d *destination) settle() error {
	d.coolDown()
	if err := errors.Join(d.datasync(), syncTrees(d.Spec)); err != nil {
		return err
	}
	return d.reach(record.Settled, "")
}

func (d *destination) finish() error {
	if d.Journal.State() == record.Done {
		return nil
	}
	return d.Reach(record.Done, "")
}

// undo: on any error, if the run token had not come, nothing runs here and nothing
// stays.
func (d *destination) undo(why error) error {
	switch st := d.Journal.State(); st {
	case record.Settled:
		if errors.Is(why, errConfirmed) {
			return d.finish()
		}
		// It runs here, and everything is on the disk. The source's goodbye is
		// missing: as long as it has not been asked, it may not have heard of the
		// outcome, and an operator may let it thaw when this host is fenced.
		d.Log.Emit("warning", map[string]any{"text": why.Error()})
		return nil
	case record.Done:
		return why
	case record.InDoubt:
		if d.restorer.MayHaveRun() {
			break
		}
		return d.discard(why)
	case record.Released, record.Resumed:
	default:
		return d.discard(why)
	}
	why = fmt.Errorf("%w: look whether it runs here before anything is done on the source", why)
	if d.conn != nil {
		_ = protocol.Send(d.conn, &protocol.Doubt{Reason: protocol.Reason{Why: why.Error()}})
	}
	d.Log.Emit("error", map[string]any{"text": why.Error()})
	d.Update(true, func(s *record.Status) { s.Error = why.Error() })
	return why
}

// discard refuses, tells the source, and removes the received data.
func (d *destination) discard(why error) error {
	ctx := context.Background()
	for _, u := range d.unpacking {
		u.w.CloseWithError(why)
		<-u.done
	}
	var err error
	if d.restorer != nil {
		d.restorer.Deny()
		err = d.memory.abandon() // or CRIU might wait for a page, and not come to where it is refused
		if d.arming != nil {
			<-d.arming.ready
		}
		d.warming.end()
		if refused := d.restorer.Refuse(ctx); refused != nil {
			err = errors.Join(err, refused)
		} else {
			err = errors.Join(err, d.closeLazy())
		}
		if d.arming != nil {
			err = errors.Join(err, d.uncover(d.arming))
		}
	}
	err = errors.Join(err, engine.Withdraw(d.Dir, d.Spec, d.Journal))
	reason := protocol.Reason{Why: why.Error()}
	var word protocol.Message = &protocol.Fail{Reason: reason}
	st := d.Journal.State()
	if err == nil && (st == record.Flushed && d.Spec.Mode != record.Copy || st == record.Prepared || st == record.InDoubt) {
		word = &protocol.Refused{Reason: reason}
		err = d.Reach(record.Refused, why.Error())
	}
	if d.conn != nil && err == nil {
		lastWord(d.Log, d.conn, word)
	}
	err = errors.Join(err, engine.DiscardWorkload(ctx, d.Spec))
	err = errors.Join(err, d.removeReceived())
	if err != nil {
		why = fmt.Errorf("%w; and cleaning up behind it failed: %w", why, err)
		d.Log.Emit("error", map[string]any{"text": why.Error()})
		d.Update(true, func(s *record.Status) { s.Error = why.Error() })
		return why
	}
	if err := d.Reach(record.Discarded, why.Error()); err != nil {
		return errors.Join(why, err)
	}
	return why
}

// release frees the session's resources, and everything that is no longer needed
// whether it runs here or not.
func (d *destination) release() {
	d.warming.end()
	d.leaveRooms()
	// The fetcher first: it reads the memory that went ahead.
	err := errors.Join(d.memory.placement.close(), d.closeLazy())
	if err == nil {
		err = d.memory.close()
	}
	for _, t := range d.targets {
		err = errors.Join(err, t.Close())
	}
	if st := d.Journal.State(); st != record.InDoubt && st != record.Released {
		for _, dir := range d.tmpfs {
			err = errors.Join(err, loop.RemoveTmpfs(dir))
		}
	}
	for _, l := range d.ledgers {
		err = errors.Join(err, l.Close())
	}
	if d.conn != nil {
		d.conn.Close()
	}
	if err != nil {
		d.Log.Emit("warning", map[string]any{"text": err.Error()})
	}
}
