package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/livefleet/handover/helper/internal/fsid"
	"github.com/livefleet/handover/helper/internal/hooks"
	"github.com/livefleet/handover/helper/internal/image"
	"github.com/livefleet/handover/helper/internal/lazy"
	"github.com/livefleet/handover/helper/internal/ledger"
	"github.com/livefleet/handover/helper/internal/loop"
	"github.com/livefleet/handover/helper/internal/passes"
	"github.com/livefleet/handover/helper/internal/pipeline"
	"github.com/livefleet/handover/helper/internal/transport"
	"github.com/livefleet/handover/helper/internal/tree"
	"github.com/livefleet/handover/helper/internal/wire"
)

// destination is the receiving side of one session.
type destination struct {
	*base
	conn      *wire.Conn
	receiver  *pipeline.Receiver
	door      *door
	arrivals  *passes.Arrivals
	ledgers   []*ledger.Ledger // of what was written, by volume; empty if the source keeps none
	lines     int              // how many connections the source wants
	resumable bool             // it knows how to go on over another connection
	empty     bool             // the images held nothing but zeroes at first
	compares  bool             // the first thing that the source hears of is what they hold

	targets   []*image.Target
	images    []Vol       // whose images we made, or took
	kept      bool        // one of them was there from an earlier time
	created   []string    // what else we made
	filled    []Directory // they were empty
	mounted   []string    // mount points that we mounted
	warming   *warming    // nil: nothing is to be brought into memory
	arming    *arming     // nil: the restore was not begun early
	binds     map[string][]loop.Bind
	bound     []string // where volumes are shown by us
	tmpfs     []string
	unpacking map[uint32]*unpacking
	late      map[string][]string // folder → what came into it after the barrier
	memory    arrivedMemory
	fetcher   *lazy.Fetcher // nil: the memory does not follow
	restorer  restorer
	tokenHash string
	verify    bool
	said      int64 // of the message that is being answered, and
	heard     int64 // when it came
}

// unpacking is one tree's stream on its way to the disk.
type unpacking struct {
	w       *io.PipeWriter
	done    chan error
	late    bool     // after the barrier, which has synced what had come until then
	laid    []string // by this stream, if it is late; to be read after done, as is changed
	changed string   // the first one that was laid down or removed
}

// Receive runs the destination's side of the session in dir to its end.
func Receive(ctx context.Context, dir, runDir string) error {
	b, err := open(dir, runDir, Destination, func() error { return receiverMayStart(dir, runDir) })
	if err != nil {
		return err
	}
	defer b.close()
	d := &destination{base: b, binds: map[string][]loop.Bind{}, late: map[string][]string{}, unpacking: map[uint32]*unpacking{}}
	err = d.run(ctx)
	if err != nil {
		err = d.undo(err)
	}
	d.release()
	return err
}

func (d *destination) run(ctx context.Context) error {
	if err := d.lower(); err != nil {
		return err
	}
	id, err := transport.Load(filepath.Join(d.dir, identityDir))
	if err != nil {
		return err
	}
	if err := d.prepare(); err != nil {
		return err
	}
	l, err := transport.Listen(d.spec.Listen, id, func() string { return d.spec.Peer.Fingerprint })
	if err != nil {
		return err
	}
	defer l.Close()
	if err := d.confineDestination(); err != nil {
		return err
	}
	d.update(true, func(s *Status) { s.Listen = l.Address() })

	// An abort has to get through also while nobody has connected.
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go d.watchRequests(ctx, cancel)
	return d.receive(ctx, l)
}

func (d *destination) watchRequests(ctx context.Context, cancel context.CancelCauseFunc) {
	for {
		select {
		case <-ctx.Done():
			return
		case r := <-d.control.requests:
			switch {
			case r.Do == askResolve && r.Outcome == Resumed && d.journal.Reached(Settled):
				r.answer(nil)
				cancel(errConfirmed)
			case r.Do != askAbort:
				r.answer(errors.New("this is the destination, and its session goes on: it follows the source, and can only be aborted"))
			case d.journal.Reached(Released):
				r.answer(errors.New("the workload was handed over: it runs here"))
			default:
				r.answer(nil)
				cancel(errAborted)
			}
		}
	}
}

// prepare makes what will be written to, and nothing that the peer could choose.
func (d *destination) prepare() error {
	for _, v := range d.spec.Volumes {
		if err := willMake(d.dir, v.Image); err != nil {
			return err
		}
		t, err := d.openTarget(v)
		if err != nil {
			return err
		}
		d.images = append(d.images, v)
		d.targets = append(d.targets, t)
		d.update(false, func(s *Status) { s.TotalBytes += v.Size })
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
	if r := d.spec.Hooks.Restore; r.Given() && r.Gate != "" {
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
	if err := d.listenLazy(); err != nil {
		return err
	}
	var err error
	d.restorer, err = newRestorer(d.base)
	return err
}

// message handles one message of the source. Every frame before it has been
// written by now.
func (d *destination) message(ctx context.Context, f *wire.Frame) error {
	m, err := parseMessage(f)
	if err != nil {
		return err
	}
	d.said, d.heard = m.Said, time.Now().UnixNano()
	handle, ok := map[kind]struct {
		in []State // the states in which the message may come
		do func(context.Context, *message) error
	}{
		msgHello:    {[]State{Prepare}, d.hello},
		msgAgain:    {[]State{Presync}, d.again},
		msgAfresh:   {[]State{Presync}, d.afresh},
		msgRound:    {[]State{Presync}, d.round},
		msgBarrier:  {[]State{Presync, Barrier}, d.barrier},
		msgFrozen:   {[]State{Barrier}, func(context.Context, *message) error { return d.reach(Frozen, "") }},
		msgArm:      {[]State{Barrier, Frozen}, d.arm},
		msgDumped:   {[]State{Frozen}, d.dumped},
		msgFlushed:  {[]State{Frozen}, d.flushed},
		msgSum:      {[]State{Frozen}, d.sum},
		msgDigests:  {[]State{Flushed}, d.digests},
		msgVerified: {[]State{Flushed}, d.prepareWorkload},
		msgRun:      {[]State{Prepared}, d.resume},
		msgEnd:      {[]State{Settled, Done}, func(context.Context, *message) error { return errors.Join(d.finish(), pipeline.ErrStop) }},
		msgFail: {[]State{Prepare, Presync, Barrier, Frozen, Flushed, Prepared}, func(_ context.Context, m *message) error {
			return fmt.Errorf("session: on the source: %s", m.Why)
		}},
	}[m.Kind]
	if !ok {
		return fmt.Errorf("session: the source sent the unknown message %q: install the same pcopy on both hosts", m.Kind)
	}
	at := d.journal.State()
	for _, s := range handle.in {
		if s == at {
			return handle.do(ctx, m)
		}
	}
	return fmt.Errorf("session: the source sent %q while this side is %s: that is no order in which a session goes", m.Kind, at)
}

// hello is the first word of a source.
func (d *destination) hello(ctx context.Context, m *message) error {
	if err := d.agree(m); err != nil {
		return err
	}
	if err := d.reach(Presync, ""); err != nil {
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

// welcome says that this side is ready, and which round is under way.
func (d *destination) welcome(round int) error {
	return send(d.conn, message{
		Kind: msgWelcome, Echo: d.said, Heard: d.heard, Round: round, Empty: d.empty && round == 0, Compare: d.compares, Can: understood(), Stock: d.memory.room, Lines: min(max(d.lines, 1), maxConnections),
	})
}

// agree compares what the source is about to send with what we were told.
func (d *destination) agree(m *message) error {
	if m.ID != d.spec.ID || m.Workload != d.spec.Workload || m.Mode != d.spec.Mode {
		return fmt.Errorf("session: the source is about to send %s (session %s, %s), and this side waits for %s (session %s, %s)",
			m.Workload, m.ID, m.Mode, d.spec.Workload, d.spec.ID, d.spec.Mode)
	}
	if len(m.Volumes) != len(d.spec.Volumes) || len(m.Directories) != len(d.spec.Directories) || len(m.Trees) != len(d.spec.Trees) {
		return fmt.Errorf("session: the source has %d volumes, %d directories and %d trees, this side expects %d, %d and %d",
			len(m.Volumes), len(m.Directories), len(m.Trees), len(d.spec.Volumes), len(d.spec.Directories), len(d.spec.Trees))
	}
	if m.Lazy != d.spec.Policy.LazyPages {
		return fmt.Errorf("session: whether the memory follows when the workload runs (lazy_pages) is %t on the source and %t here", m.Lazy, d.spec.Policy.LazyPages)
	}
	for i, v := range d.spec.Volumes {
		if h := m.Volumes[i]; h.Name != v.Name || h.Size != v.Size || h.Cluster != v.Cluster {
			return fmt.Errorf("session: volume %d is %s (%d bytes, clusters of %d) on the source and %s (%d, %d) here", i, h.Name, h.Size, h.Cluster, v.Name, v.Size, v.Cluster)
		}
	}
	for i, v := range d.spec.Directories {
		if m.Directories[i] != v.Name {
			return fmt.Errorf("session: directory %d is %s on the source and %s here", i, m.Directories[i], v.Name)
		}
	}
	for i, t := range d.spec.Trees {
		if m.Trees[i] != t.Name {
			return fmt.Errorf("session: tree %d is %s on the source and %s here", i, m.Trees[i], t.Name)
		}
	}
	d.tokenHash, d.verify, d.lines, d.resumable = m.TokenHash, m.Verify, m.Lines, slices.Contains(m.Can, canResume)
	return nil
}

// errConfirmed: who asks has it from the source that it can never thaw again.
var errConfirmed = errors.New("session: the source has let go")

// barrier puts on the disk what has come, and what was prepared for the workload.
func (d *destination) barrier(context.Context, *message) error {
	if err := d.reach(Barrier, ""); err != nil {
		return err
	}
	if d.fetcher == nil {
		d.door.l.Close() // nobody is waited for any more
	}
	began := time.Now()
	if err := errors.Join(d.datasync(), syncTrees(d.spec)); err != nil {
		return err
	}
	return send(d.conn, message{Kind: msgSynced, Echo: d.said, Heard: d.heard, Took: map[string]float64{"datasync": ms(time.Since(began))}})
}

// syncVolumes is a variable so that a test can have the disk fail.
var syncVolumes = (*destination).datasync

func (d *destination) datasync() error {
	var g errgroup.Group
	for _, t := range d.targets {
		g.Go(t.Datasync)
	}
	g.Go(d.syncDirectories)
	return g.Wait()
}

// syncTrees puts the file systems on the disk that the trees are on: the engine's
// own records of the workload, and its image, are there too. It is not for the
// pause: others write there as well.
func syncTrees(spec *Spec) (err error) {
	for _, t := range spec.Trees {
		_, e := tree.WriteBack(t.Path)
		err = errors.Join(err, e)
	}
	return err
}

func (d *destination) tree(stream uint32) (*Tree, error) {
	trees, n := d.spec.Trees, int64(stream)
	if n < int64(len(trees)) {
		return &trees[n], nil
	}
	if n -= int64(len(trees)); n < int64(len(d.spec.Directories)) {
		v := d.spec.Directories[n]
		return v.tree(), nil
	}
	return nil, fmt.Errorf("session: the source sent a piece of tree %d, and there are %d trees and %d directories", stream, len(trees), len(d.spec.Directories))
}

// chunk handles one piece of a tree.
func (d *destination) chunk(ctx context.Context, f *wire.Frame) error {
	if f.Flags&flagStock != 0 { // of no tree
		return d.stock(f)
	}
	t, err := d.tree(f.Stream)
	if err != nil {
		return err
	}
	if f.Flags&flagPages != 0 {
		return d.pages(t, f)
	}
	if st := d.journal.State(); st != Presync && st != Barrier && st != Frozen {
		return fmt.Errorf("session: the source sent a piece of tree %s while this side is %s", t.Name, st)
	}
	u := d.unpacking[f.Stream]
	if u == nil {
		r, w := io.Pipe()
		u = &unpacking{w: w, done: make(chan error, 1), late: d.journal.State() != Presync}
		d.unpacking[f.Stream] = u
		go func() {
			err := tree.UnpackOnly(t.Path, t.only, r, func(name string, seen bool) {
				if seen && u.changed == "" {
					u.changed = name
				}
				if u.late {
					u.laid = append(u.laid, name)
				}
			})
			r.CloseWithError(err) // a writer that waits gets the reason
			u.done <- err
		}()
	}
	if len(f.Payload) > 0 {
		if _, err := u.w.Write(f.Payload); err != nil {
			return err
		}
	}
	if f.Flags&flagLast == 0 {
		return nil
	}
	u.w.Close()
	delete(d.unpacking, f.Stream)
	if err := <-u.done; err != nil {
		return err
	}
	d.late[t.Path] = append(d.late[t.Path], u.laid...)
	if u.changed != "" {
		d.changed(ctx, t, u.changed)
	}
	return nil
}

// syncLate puts on the disk what has come of the trees since the freeze.
func (d *destination) syncLate() (err error) {
	for path, names := range d.late {
		err = errors.Join(err, tree.Sync(path, names))
	}
	return err
}

// flushed: everything has come.
func (d *destination) flushed(ctx context.Context, m *message) error {
	d.waiting = m.Told
	d.threads = m.Bound
	if d.settings != nil {
		d.settings.reset = m.Reset
		if m.Own != nil {
			d.settings.own = m.Own
		}
	}
	if len(d.unpacking) > 0 {
		return errors.New("session: the source says that everything was sent, and a tree has no end")
	}
	if differs, err := d.compare(m); differs || err != nil {
		return err
	}
	if err := d.reach(Flushed, ""); err != nil {
		return err
	}
	if !d.verify {
		return d.prepareWorkload(ctx, m)
	}
	roots, err := d.reread(ctx)
	if err != nil {
		return err
	}
	return send(d.conn, message{Kind: msgVerified, Roots: roots})
}

// prepareWorkload restores, up to the point before the first instruction.
func (d *destination) prepareWorkload(ctx context.Context, _ *message) error {
	if d.spec.Mode == Copy {
		if err := d.datasync(); err != nil {
			return err
		}
		if err := d.reach(Done, ""); err != nil {
			return err
		}
		return send(d.conn, message{Kind: msgSettled})
	}
	took := map[string]float64{}
	began := time.Now()
	// All that was frozen on the source is on the disk here before anything runs
	// on it: whatever the workload acknowledges then rests on it, and the
	// source, which does not have that, is no way back any more. It costs no pause
	// as long as it takes no longer than the restore.
	var sync errgroup.Group
	sync.Go(func() error { return syncVolumes(d) })
	sync.Go(d.syncLate)
	defer sync.Wait() //nolint:errcheck // looked at below; this is for the ways out before
	if err := d.armed(ctx); err != nil {
		return err
	}
	took["armed"] = ms(time.Since(began))
	began = time.Now()
	for _, v := range d.spec.Volumes {
		if err := d.attach(v); err != nil {
			return err
		}
	}
	took["attach"] = ms(time.Since(began))
	began = time.Now()
	if err := d.restorer.restore(ctx); err != nil {
		return fmt.Errorf("session: restoring: %w", err)
	}
	took["criu_restore"] = ms(time.Since(began))
	began = time.Now()
	if err := sync.Wait(); err != nil {
		return err
	}
	took["datasync"] = ms(time.Since(began))
	d.log.Emit("prepared", map[string]any{"took": took})
	if err := d.reach(Prepared, ""); err != nil {
		return err
	}
	return send(d.conn, message{Kind: msgPrepared, Took: took})
}

// attach makes a received image a mounted file system.
func (d *destination) attach(v Vol) error {
	if v.Mountpoint == "" {
		return nil
	}
	if err := d.makeMountpoint(v); err != nil {
		return err
	}
	mount := loop.MountImage
	if d.warming.has(v.Image) {
		mount = loop.MountCached
	}
	if err := mount(v.Image, v.Mountpoint, v.Fstype, v.Options); err != nil {
		return err
	}
	d.mounted = append(d.mounted, v.Mountpoint)
	return d.show(v)
}

// resume is the moment: the source is released.
func (d *destination) resume(ctx context.Context, m *message) error {
	if tokenHash(m.Token) != d.tokenHash {
		return errors.New("session: the run token is not the one that was announced")
	}
	if err := d.reach(Released, ""); err != nil {
		// Nothing was told to run yet, and nothing will be.
		return err
	}
	began := time.Now()
	// Not the connection's context: from here on its loss changes nothing.
	runs, err := d.restorer.resume(context.WithoutCancel(ctx))
	if err != nil {
		err = fmt.Errorf("session: it was told to resume, and then: %w", err)
		return errors.Join(err, d.reach(InDoubt, err.Error()))
	}
	took := map[string]float64{"resume": ms(time.Since(began)), "running": ms(runs.Sub(began))}
	// The word first: the source's clock of the pause is running. If it does
	// not get through, the journal will tell those who ask.
	sent := send(d.conn, message{Kind: msgResumed, Took: took})
	if err := d.reach(Resumed, ""); err != nil {
		return err
	}
	took, err = d.fetch(ctx)
	if err != nil {
		return err
	}
	if err := d.settle(); err != nil {
		return err
	}
	if sent != nil {
		return sent
	}
	return send(d.conn, message{Kind: msgSettled, Took: took})
}

// settle: all that was received is on the disk, after it runs.
func (d *destination) settle() error {
	d.coolDown()
	if err := errors.Join(d.datasync(), syncTrees(d.spec)); err != nil {
		return err
	}
	return d.reach(Settled, "")
}

func (d *destination) finish() error {
	if d.journal.State() == Done {
		return nil
	}
	return d.reach(Done, "")
}

// undo: whatever happened, if the run token had not come, nothing runs here and
// nothing stays.
func (d *destination) undo(why error) error {
	switch st := d.journal.State(); st {
	case Settled:
		if errors.Is(why, errConfirmed) {
			return d.finish()
		}
		// It runs here, and everything is on the disk. The source's goodbye is
		// missing: as long as nobody has asked it, it may be one that did not hear
		// of the outcome, and that an operator lets thaw when this host is fenced.
		d.log.Emit("warning", map[string]any{"text": why.Error()})
		return nil
	case Done:
		return why
	case InDoubt:
		if d.restorer.mayHaveRun() {
			break
		}
		return d.discard(why)
	case Released, Resumed:
	default:
		return d.discard(why)
	}
	why = fmt.Errorf("%w: look whether it runs here before anything is done on the source", why)
	if d.conn != nil {
		_ = send(d.conn, message{Kind: msgDoubt, Why: why.Error()})
	}
	d.log.Emit("error", map[string]any{"text": why.Error()})
	d.update(true, func(s *Status) { s.Error = why.Error() })
	return why
}

// discard refuses, tells the source, and removes what came.
func (d *destination) discard(why error) error {
	ctx := context.Background()
	for _, u := range d.unpacking {
		u.w.CloseWithError(why)
		<-u.done
	}
	var err error
	if d.restorer != nil {
		d.restorer.deny()
		if d.arming != nil {
			<-d.arming.ready
		}
		d.warming.end()
		if err = d.restorer.refuse(ctx); err == nil {
			err = d.closeLazy()
		}
		if d.arming != nil {
			err = errors.Join(err, d.uncover(d.arming))
		}
	}
	word := msgFail
	st := d.journal.State()
	if err == nil && (st == Flushed && d.spec.Mode != Copy || st == Prepared || st == InDoubt) {
		word = msgRefused
		err = d.reach(Refused, why.Error())
	}
	if d.conn != nil && err == nil {
		d.lastWord(d.conn, message{Kind: word, Why: why.Error()})
	}
	err = errors.Join(err, discardWorkload(ctx, d.spec))
	err = errors.Join(err, d.removeReceived())
	if err != nil {
		why = fmt.Errorf("%w; and cleaning up behind it failed: %w", why, err)
		d.log.Emit("error", map[string]any{"text": why.Error()})
		d.update(true, func(s *Status) { s.Error = why.Error() })
		return why
	}
	if err := d.reach(Discarded, why.Error()); err != nil {
		return errors.Join(why, err)
	}
	return why
}

func (d *destination) removeReceived() (err error) {
	for _, m := range slices.Concat(d.bound, d.mounted) {
		err = errors.Join(err, loop.Unmount(m), fsid.Unguard(m))
	}
	d.bound, d.mounted = nil, nil
	for _, t := range d.targets {
		err = errors.Join(err, t.Close())
	}
	d.targets = nil
	for _, v := range d.filled {
		err = errors.Join(err, v.clear())
	}
	d.filled = nil
	for _, v := range d.images {
		err = errors.Join(err, discardImage(v))
	}
	d.images = nil
	for _, path := range d.created {
		if e := os.Remove(path); e != nil && !errors.Is(e, os.ErrNotExist) {
			err = errors.Join(err, fmt.Errorf("session: %w", e))
		}
	}
	d.created = nil
	return err
}

// release gives back what the session held, and what is not needed any more
// whether it runs here or not.
func (d *destination) release() {
	d.warming.end()
	err := errors.Join(d.memory.close(), d.closeLazy())
	for _, t := range d.targets {
		err = errors.Join(err, t.Close())
	}
	if st := d.journal.State(); st != InDoubt && st != Released {
		for _, dir := range d.tmpfs {
			err = errors.Join(err, loop.Unmount(dir))
		}
	}
	for _, l := range d.ledgers {
		err = errors.Join(err, l.Close())
	}
	if d.conn != nil {
		d.conn.Close()
	}
	if err != nil {
		d.log.Emit("warning", map[string]any{"text": err.Error()})
	}
}
