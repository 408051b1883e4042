package tracker

import (
	"errors"
	"fmt"
	"math/bits"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/blockmap"
)

const (
	// biosAtOnce is how many writes can be under way on a device without a
	// request queue. An entry takes about 80 bytes.
	biosAtOnce = 1 << 16
	// settleWait is how long Open waits for writes that began before it, on a
	// device without a request queue; see settled.
	settleWait = time.Second
	// settleAge is the age at which no write from before Open can be left: twice
	// the time after which the kernel gives up on a request.
	settleAge = time.Minute
)

// load is one set of programs with its maps. It lives until the last of its
// trackers is closed.
type load struct {
	mu     sync.Mutex // guards what follows, against a Close during a Swap
	users  int
	memory []byte // the words, mapped
	words  []uint64
	maps   maps
	progs  []*ebpf.Program
	links  []link.Link

	// copies are the programs that can stand in for each other, by what they do.
	copies [][]*ebpf.Program
	// preemptible: tasks can be preempted inside a tracepoint, so copies may not
	// be enough.
	preemptible bool
}

// ebpfTracker is one device of a load.
type ebpfTracker struct {
	dev    *device
	load   *load
	status uint32         // index of its status word
	base   [levels]uint32 // and of its levels
	length [levels]uint32 // in words

	mu      sync.Mutex
	closed  bool
	lost    error      // why no map can be given any more
	skipped [][]uint64 // how often each copy was skipped, at the last Swap
	settled bool       // no write from before Open is left
	opened  time.Time
	unsure  []generation // what may have to be sent again; see again
}

func openEBPF(devs []Device) (trackers []Tracker, err error) {
	if len(devs) == 0 {
		return nil, nil
	}
	looked := make([]*device, len(devs))
	for i, d := range devs {
		if looked[i], err = lookDevice(d); err != nil {
			return nil, err
		}
	}
	k, err := lookKernel()
	if err != nil {
		return nil, fmt.Errorf("tracker: %s: %w, or pass --tracker=hash", paths(looked), err)
	}
	for _, d := range looked {
		if k.rwPage && d.takesPages() {
			return nil, fmt.Errorf("tracker: %s: on this kernel pages can be written to %s without a trace (kernels before 6.3): use a newer kernel, or pass --tracker=hash", d.path, d.name)
		}
	}

	made := make(map[*device]*ebpfTracker)
	defer func() {
		if err != nil {
			for _, t := range made {
				t.Close()
			}
		}
	}()
	for _, group := range groups(looked) {
		ts, err := newLoad(k, group)
		if err != nil {
			return nil, explain(group, err)
		}
		for i, t := range ts {
			made[group[i]] = t
		}
	}
	for _, d := range looked {
		made[d].settle()
		trackers = append(trackers, made[d])
	}
	return trackers, nil
}

// groups says which devices share a load: those with a request queue, one of a
// disk in each load, since the programs know a device by its disk. A device
// without a queue has a load of its own, with a hash for its own bios.
func groups(devs []*device) [][]*device {
	var queued []map[uint64]*device
	var order [][]*device
next:
	for _, d := range devs {
		if d.bio {
			queued = append(queued, nil)
			order = append(order, []*device{d})
			continue
		}
		for i, disks := range queued {
			if disks != nil && disks[d.key()] == nil {
				disks[d.key()] = d
				order[i] = append(order[i], d)
				continue next
			}
		}
		queued = append(queued, map[uint64]*device{d.key(): d})
		order = append(order, []*device{d})
	}
	return order
}

func paths(devs []*device) string {
	var names []string
	for _, d := range devs {
		names = append(names, d.path)
	}
	return strings.Join(names, ", ")
}

// explain makes the sentence that the operator reads.
func explain(devs []*device, err error) error {
	var errno unix.Errno
	switch {
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES) && !isVerifier(err):
		errors.As(err, &errno)
		return fmt.Errorf("tracker: %s: the kernel refused the block tracepoints (%s): run as root, or give CAP_BPF and CAP_PERFMON, or pass --tracker=hash",
			paths(devs), unix.ErrnoName(errno))
	case errors.Is(err, unix.ENOENT):
		return fmt.Errorf("tracker: %s: this kernel has no block tracepoints (%w): use a kernel with CONFIG_TRACEPOINTS and CONFIG_BLOCK, or pass --tracker=hash", paths(devs), err)
	}
	return fmt.Errorf("tracker: %s: the kernel did not take the programs: %w: pass --tracker=hash, and report this", paths(devs), err)
}

func isVerifier(err error) bool {
	var v *ebpf.VerifierError
	return errors.As(err, &v)
}

// newLoad loads the programs for a group of devices and attaches them.
func newLoad(k *kernel, devs []*device) (_ []*ebpfTracker, err error) {
	l := &load{preemptible: preemptibleTracepoints()}
	defer func() {
		if err != nil {
			l.destroy()
		}
	}()

	trackers := make([]*ebpfTracker, len(devs))
	words := uint64(sharedWords)
	for i, d := range devs {
		t := &ebpfTracker{dev: d, load: l, status: uint32(words), opened: time.Now()}
		words++
		n := uint64(d.size()+int64(d.cluster)-1) / uint64(d.cluster)
		for level := range levels {
			n = (n + 63) / 64
			t.base[level], t.length[level] = uint32(words), uint32(n)
			words += n
		}
		if words > 1<<28 { // 2 GiB: the device is too large for such clusters
			return nil, fmt.Errorf("the map of %s would not fit into memory: choose larger clusters", d.path)
		}
		trackers[i] = t
	}

	l.maps.words, err = ebpf.NewMap(&ebpf.MapSpec{
		Name: "handover_words", Type: ebpf.Array, KeySize: 4, ValueSize: 8,
		MaxEntries: uint32(words), Flags: unix.BPF_F_MMAPABLE,
	})
	if err != nil {
		return nil, err
	}
	page := uint64(os.Getpagesize())
	l.memory, err = unix.Mmap(l.maps.words.FD(), 0, int((words*8+page-1)/page*page), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("mapping the marks: %w", err)
	}
	l.words = unsafe.Slice((*uint64)(unsafe.Pointer(&l.memory[0])), words)

	l.maps.devices, err = ebpf.NewMap(&ebpf.MapSpec{
		Name: "handover_devs", Type: ebpf.Hash, KeySize: 8, ValueSize: slotSize, MaxEntries: uint32(len(devs)),
	})
	if err != nil {
		return nil, err
	}
	for _, t := range trackers {
		s := slot{
			Start:  uint64(t.dev.start),
			End:    uint64(t.dev.start + t.dev.sectors),
			Shift:  uint32(bits.TrailingZeros(uint(t.dev.cluster)) - 9),
			Status: t.status,
			Base:   t.base,
		}
		if t.dev.partition {
			s.Part = 1
		}
		if err := l.maps.devices.Put(t.dev.key(), s); err != nil {
			return nil, err
		}
	}

	if devs[0].bio {
		err = l.attachBios(k, devs[0])
	} else {
		err = l.attachCopies("block_rq_complete", func(bool) (asm.Instructions, error) { return requestComplete(k, l.maps) })
		if err == nil {
			err = l.attachCopies("block_bio_queue", func(bool) (asm.Instructions, error) { return bioSubmitted(k, l.maps) })
		}
	}
	if err != nil {
		return nil, err
	}
	l.users = len(trackers)
	for _, t := range trackers {
		if _, err := t.allSkipped(); err != nil {
			return nil, err
		}
	}
	return trackers, nil
}

// attachBios attaches what a device without a request queue needs. Completion
// comes first: a bio that is queued before block_bio_queue is attached is then
// one that nobody knows, which marks all, and not one that nobody sees.
func (l *load) attachBios(k *kernel, d *device) (err error) {
	l.maps.bios, err = ebpf.NewMap(&ebpf.MapSpec{
		Name: "handover_bios", Type: ebpf.Hash, KeySize: 8, ValueSize: knownSize, MaxEntries: biosAtOnce,
	})
	if err != nil {
		return err
	}
	err = l.attachCopies("block_bio_complete", func(last bool) (asm.Instructions, error) { return bioComplete(k, l.maps, d.key(), last) })
	if err != nil {
		return err
	}
	if d.handsOn() {
		err = l.attachCopies("block_rq_complete", func(last bool) (asm.Instructions, error) { return requestRemapped(k, l.maps, d.key(), last) })
		if err != nil {
			return err
		}
		if err := l.attachOne("block_bio_remap", func() (asm.Instructions, error) { return bioRemapped(k, l.maps, d.key()) }); err != nil {
			return err
		}
	}
	return l.attachOne("block_bio_queue", func() (asm.Instructions, error) { return bioQueued(k, l.maps, d.key()) })
}

// attachOne attaches a program that marks nothing. Such a one needs no copies: a
// bio that it was skipped for is one that nobody knows, or is remembered by the
// other one.
func (l *load) attachOne(tracepoint string, build func() (asm.Instructions, error)) error {
	ins, err := build()
	if err == nil {
		_, err = l.attach(tracepoint, ins)
	}
	return err
}

// attachCopies attaches a marking program as often as it has to be there.
func (l *load) attachCopies(tracepoint string, build func(last bool) (asm.Instructions, error)) error {
	var group []*ebpf.Program
	for i := range copies {
		ins, err := build(i == copies-1)
		if err != nil {
			return err
		}
		p, err := l.attach(tracepoint, ins)
		if err != nil {
			return err
		}
		group = append(group, p)
	}
	l.copies = append(l.copies, group)
	return nil
}

func (l *load) attach(tracepoint string, ins asm.Instructions) (*ebpf.Program, error) {
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name:         strings.TrimPrefix(tracepoint, "block_"),
		Type:         ebpf.RawTracepoint,
		Instructions: ins,
		License:      "Dual MIT/GPL", // the kernel lends some of its helpers to such programs only
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", tracepoint, err)
	}
	l.progs = append(l.progs, p)
	at, err := link.AttachRawTracepoint(link.RawTracepointOptions{Name: tracepoint, Program: p})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", tracepoint, err)
	}
	l.links = append(l.links, at)
	return p, nil
}

// destroy takes everything out of the kernel again.
func (l *load) destroy() error {
	var errs []error
	for _, at := range l.links {
		errs = append(errs, at.Close())
	}
	for _, p := range l.progs {
		errs = append(errs, p.Close())
	}
	for _, m := range []*ebpf.Map{l.maps.devices, l.maps.words, l.maps.bios} {
		if m != nil {
			errs = append(errs, m.Close())
		}
	}
	if l.memory != nil {
		errs = append(errs, unix.Munmap(l.memory))
		l.memory, l.words = nil, nil
	}
	return errors.Join(errs...)
}

// preemptibleTracepoints says whether this kernel may let tasks be preempted in
// a program on a tracepoint; kernels up to 6.18 do not.
func preemptibleTracepoints() bool {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return true
	}
	var major, minor int
	if _, err := fmt.Sscanf(unix.ByteSliceToString(u.Release[:]), "%d.%d", &major, &minor); err != nil {
		return true
	}
	return major > 6 || major == 6 && minor > 18
}

func (t *ebpfTracker) Kind() string { return "ebpf" }

// settle waits a little until no write from before Open is left, where such a
// write could go unseen. A request tells its range itself when it completes, and
// a bio that nobody knows marks all when it completes on the device. Only where
// the driver hands bios on as they are, one from before Open may complete below
// without a trace. As long as there may be such a one, Swap marks the whole device.
func (t *ebpfTracker) settle() {
	t.settled = !t.dev.handsOn() || t.idle()
	for end := time.Now().Add(settleWait); !t.settled && time.Now().Before(end); t.settled = t.idle() {
		time.Sleep(time.Millisecond)
	}
}

// idle reports whether the kernel is sure that no write is under way.
func (t *ebpfTracker) idle() bool {
	accounted, err := t.dev.accounted()
	if err != nil || !accounted {
		return false
	}
	n, err := t.dev.inFlight()
	return err == nil && n == 0
}

func (t *ebpfTracker) Swap() (*blockmap.Map, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, fmt.Errorf("tracker: %s: the tracker is closed", t.dev.path)
	}
	if t.lost != nil {
		return nil, t.lost
	}
	if t.lost = t.dev.unchanged(); t.lost != nil {
		return nil, t.lost
	}
	m := blockmap.New(t.dev.size(), t.dev.cluster)
	// First the words, then what says whether they are complete: what was lost
	// while the words were taken is then known at once.
	w := t.load.words
	t.take(0, func(word int64, set uint64) { m.OrWord(word, set) })
	for level := 1; level < levels; level++ {
		span := int64(1) << (6 * (level - 1)) // words of level 0 that a bit stands for
		t.take(level, func(word int64, set uint64) {
			for ; set != 0; set &= set - 1 {
				first := (word*64 + int64(bits.TrailingZeros64(set))) * span
				for i := range span {
					m.OrWord(first+i, ^uint64(0))
				}
			}
		})
	}
	status := atomic.LoadUint64(&w[t.status])
	if status&statusAll != 0 {
		// A bit that is set between the load and the And was set by a write that
		// this map, marked whole, stands for too.
		atomic.AndUint64(&w[t.status], ^uint64(statusAll))
		m.MarkAll()
	}
	if t.lost = t.reason(status | atomic.LoadUint64(&w[wordLost])); t.lost != nil {
		return nil, t.lost
	}
	skipped, err := t.allSkipped()
	if err != nil {
		t.lost = err
		return nil, t.lost
	}
	if skipped || !t.settled {
		m.MarkAll()
	}
	if !t.settled { // this map stands for what came before; the next need not
		t.settled = time.Since(t.opened) > settleAge || t.idle()
	}
	if t.dev.bio {
		return m, nil
	}
	return m, t.again(m)
}

// landed is how long a write may take: what was submitted longer ago is on the
// device. The kernel's own limit for a request is 30 s.
const landed = time.Minute

// generation is what one Swap took out while writes were under way.
type generation struct {
	taken time.Time
	marks *blockmap.Map
}

// again adds to the map what earlier ones had, as long as a write that was marked
// when it was submitted may have landed after its cluster was read, in case that
// its completion is one that no program sees.
func (t *ebpfTracker) again(m *blockmap.Map) error {
	t.unsure = slices.DeleteFunc(t.unsure, func(g generation) bool { return time.Since(g.taken) > landed })
	now := generation{time.Now(), blockmap.New(m.Size(), m.Cluster())}
	if err := now.marks.Merge(m); err != nil {
		return err
	}
	for _, g := range t.unsure {
		if err := m.Merge(g.marks); err != nil {
			return err
		}
	}
	if t.quiet() {
		t.unsure = nil // all of it has landed, and is read after this
	} else if !now.marks.Empty() {
		t.unsure = append(t.unsure, now)
	}
	return nil
}

// quiet reports whether no write is under way. It looks twice: a bio that was
// just submitted becomes a request, and is counted, a moment later. A busy device
// gets some moments in which to be quiet.
func (t *ebpfTracker) quiet() bool {
	for row, tries := 0, 0; tries < 8; tries++ {
		if !t.idle() {
			row = 0
		} else if row++; row == 2 {
			return true
		}
		time.Sleep(500 * time.Microsecond)
	}
	return false
}

// take takes the marks of one level out of the kernel's hands.
func (t *ebpfTracker) take(level int, each func(word int64, set uint64)) {
	words := t.load.words[t.base[level]:][:t.length[level]]
	for i := range words {
		if atomic.LoadUint64(&words[i]) != 0 {
			each(int64(i), atomic.SwapUint64(&words[i], 0))
		}
	}
}

// reason says what a status means.
func (t *ebpfTracker) reason(status uint64) error {
	switch {
	case status&statusOutside != 0:
		return fmt.Errorf("tracker: %s: a write was completed outside the %d bytes that the device had when tracking began: it was resized, start the session again", t.dev.path, t.dev.size())
	case status&statusFull != 0:
		return fmt.Errorf("tracker: %s: a write could not be tracked: more than %d were under way at once: start the session again under less load, or pass --tracker=hash", t.dev.path, biosAtOnce)
	case status&statusUnreadable != 0:
		return fmt.Errorf("tracker: %s: a write could not be tracked: the kernel did not let its own structures be read: pass --tracker=hash, and report this", t.dev.path)
	case status&statusInternal != 0:
		return fmt.Errorf("tracker: %s: a write could not be tracked: it fell outside the tracker's map: pass --tracker=hash, and report this", t.dev.path)
	}
	return nil
}

// allSkipped reports whether an event may have found none of the copies free
// since it was last asked.
func (t *ebpfTracker) allSkipped() (bool, error) {
	if !t.load.preemptible {
		return false, nil
	}
	now := make([][]uint64, len(t.load.copies))
	for i, group := range t.load.copies {
		for _, p := range group {
			s, err := p.Stats()
			if err != nil {
				return false, fmt.Errorf("tracker: %s: asking the kernel how often it skipped a program: %w", t.dev.path, err)
			}
			now[i] = append(now[i], s.RecursionMisses)
		}
	}
	before := t.skipped
	t.skipped = now
	return before == nil || skippedByAll(before, now), nil
}

// skippedByAll reports whether there is a group of which every copy was skipped
// more often than before.
func skippedByAll(before, now [][]uint64) bool {
	for i := range now {
		every := true
		for k := range now[i] {
			every = every && now[i][k] > before[i][k]
		}
		if every {
			return true
		}
	}
	return false
}

func (t *ebpfTracker) InFlight() (int64, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return 0, fmt.Errorf("tracker: %s: the tracker is closed", t.dev.path)
	}
	accounted, err := t.dev.accounted()
	if err != nil {
		return 0, err
	}
	switch {
	case accounted:
		return t.dev.inFlight()
	case t.dev.bio: // our own count is as good
		return max(0, int64(atomic.LoadUint64(&t.load.words[wordInFlight]))), nil
	}
	return 0, fmt.Errorf("tracker: %s: writes under way cannot be counted, since the kernel's accounting is off: echo 1 > %s/queue/iostats", t.dev.path, t.dev.disk)
}

func (t *ebpfTracker) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil
	}
	t.closed = true
	t.load.mu.Lock()
	defer t.load.mu.Unlock()
	if t.load.users--; t.load.users > 0 {
		return nil
	}
	if err := t.load.destroy(); err != nil {
		return fmt.Errorf("tracker: %s: %w", t.dev.path, err)
	}
	return nil
}
