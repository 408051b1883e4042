package elsewhere

import (
	"github.com/livefleet/handover/helper/internal/store"
	"github.com/livefleet/handover/helper/internal/wire"
)

// volume is one that is written on the other host.
type volume struct {
	link   *Link
	stream int
	size   int64
	full   bool
	found  found
	sums   []byte         // of the parent's clusters, if all are compared
	sent   map[int64]bool // clusters that differed once: their later content has to be told
	err    error
}

// Full reports whether nothing of the parent's is used.
func (v *volume) Full() bool { return v.full }

// Found says how the difference to the parent is found.
func (v *volume) Found(how, why string, mark *store.Mark) {
	v.found.How, v.found.Why, v.found.Mark = how, why, mark
}

// Write takes the content of whole clusters. The last of the disk may be short.
func (v *volume) Write(p []byte, off int64) error {
	v.found.Read += int64(len(p))
	return v.keep(v.each(off, int64(len(p)), func(at, n int64) bool { return v.has(at, store.SumOf(p[at-off:at-off+n])) }, func(at, n int64) error {
		return v.link.write(&wire.Frame{Type: wire.Data, Stream: uint32(v.stream), Pos: at, Payload: p[at-off : at-off+n]})
	}))
}

// Zero takes zeroes for whole clusters.
func (v *volume) Zero(off, n int64) error {
	return v.keep(v.each(off, n, func(at, _ int64) bool { return v.has(at, [store.SumSize]byte{}) }, func(at, n int64) error {
		return v.link.write(&wire.Frame{Type: wire.Zero, Stream: uint32(v.stream), Pos: at, Length: n})
	}))
}

// each sends the stretches between clusters that are there.
func (v *volume) each(off, n int64, there func(at, n int64) bool, tell func(at, n int64) error) error {
	if v.found.How != store.Digests {
		return tell(off, n)
	}
	if err := v.fetchSums(); err != nil {
		return err
	}
	from, end := off, off+n
	for at := off; at < end; at += store.Cluster {
		if !there(at, min(store.Cluster, end-at)) {
			v.sent[at/store.Cluster] = true
			continue
		}
		if at > from {
			if err := tell(from, at-from); err != nil {
				return err
			}
		}
		from = min(at+store.Cluster, end)
	}
	if from == end {
		return nil
	}
	return tell(from, end-from)
}

// has reports whether the other side has a cluster as it is: the parent has it, and
// nothing else was sent for it.
func (v *volume) has(at int64, sum [store.SumSize]byte) bool {
	c := at / store.Cluster
	i := c * int64(store.SumSize)
	if v.sent[c] || i+int64(store.SumSize) > int64(len(v.sums)) {
		return false
	}
	return [store.SumSize]byte(v.sums[i:i+int64(store.SumSize)]) == sum
}

func (v *volume) fetchSums() (err error) {
	if v.sums == nil {
		v.sums, _, err = v.link.ask(order{Do: "sums", Stream: v.stream})
	}
	return err
}

// keep keeps the first error: a volume that missed a write is not finished.
func (v *volume) keep(err error) error {
	if v.err == nil {
		v.err = err
	}
	return err
}

var _ store.VolumeWriter = (*volume)(nil)
