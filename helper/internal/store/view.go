package store

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/livefleet/handover/helper/internal/image"
	"github.com/livefleet/handover/helper/internal/image/qcow2"
)

// View is a volume at one point: its layers, with one table for all of them. So a read
// costs the same however many layers there are. The table takes 24 bytes for each
// cluster of the disk.
//
// Everything that is read is held against its sum.
type View struct {
	path   string // of the uppermost layer's file
	size   int64
	layers []*Layer // the uppermost first
	files  []*os.File
	places []place // by cluster of the disk
	sums   []sum
}

// place is where a cluster's data are: the number of the layer, one more, and the
// cluster in its file.
type place uint64

const (
	nothing place = 0              // no layer has anything: zeroes
	blank   place = 1 << 40        // a layer has zeroes
	dataAt        = 1<<40 - 1      // the cluster in the file
	mostFar       = 1<<(64-40) - 2 // layers
)

func (p place) isData() bool { return p&dataAt != 0 }

// clustersOf is how many clusters a disk has.
func clustersOf(size int64) int64 { return (size + cluster - 1) / cluster }

// openView opens layers, the uppermost first, and everything that they hold.
func openView(dir string, layers []*Layer) (_ *View, err error) {
	v := &View{size: layers[0].Size, layers: layers, path: filepath.Join(dir, layersDir, layers[0].File())}
	if len(layers) > mostFar {
		return nil, fmt.Errorf("store: %s: %d layers are too many", v.path, len(layers))
	}
	v.places, v.sums = make([]place, clustersOf(v.size)), make([]sum, clustersOf(v.size))
	defer func() {
		if err != nil {
			v.Close()
		}
	}()
	for n, l := range layers {
		if err := v.add(dir, n, l); err != nil {
			return nil, err
		}
	}
	return v, nil
}

// add puts a layer under those that are there.
func (v *View) add(dir string, n int, l *Layer) error {
	path := filepath.Join(dir, layersDir, l.File())
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	v.files = append(v.files, f)
	q, err := readTables(f, l)
	if err != nil {
		return fmt.Errorf("store: %s: %w", path, err)
	}
	entries, err := readSums(dir, l)
	if err != nil {
		return err
	}
	err = q.Each(func(c, at int64) error {
		if len(entries) == 0 || entries[0].cluster != c || entries[0].zero != (at == 0) {
			return fmt.Errorf("its tables and %s differ about the cluster at %d of the disk", l.Sums.Name, c*cluster)
		}
		e := entries[0]
		entries = entries[1:]
		if c >= int64(len(v.places)) || v.places[c] != nothing {
			return nil
		}
		v.places[c], v.sums[c] = blank*place(n+1)|place(at/cluster), e.sum
		return nil
	})
	if err == nil && len(entries) > 0 {
		err = fmt.Errorf("its tables and %s differ about the cluster at %d of the disk", l.Sums.Name, entries[0].cluster*cluster)
	}
	if err != nil {
		return fmt.Errorf("store: %s is damaged: %w", path, err)
	}
	return nil
}

func readTables(f *os.File, l *Layer) (*qcow2.Reader, error) {
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	q, err := qcow2.NewReader(f, st.Size())
	if err != nil {
		return nil, err
	}
	below := ""
	if l.Below != "" {
		below = (&Layer{ID: l.Below}).File()
	}
	if q.Size() != l.Size || q.Below() != below {
		return nil, fmt.Errorf("it is damaged: a disk of %d bytes on %q, and the index says %d on %q", q.Size(), q.Below(), l.Size, below)
	}
	return q, nil
}

// readSums reads the sums of a layer. They are held against their digest.
func readSums(dir string, l *Layer) ([]entry, error) {
	path := filepath.Join(dir, layersDir, l.Sums.Name)
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	if fileOf(l.Sums.Name, b) != l.Sums {
		return nil, fmt.Errorf("store: %s is damaged: it is not as it was written", path)
	}
	entries, err := parseSums(b)
	if err != nil {
		return nil, fmt.Errorf("store: %s: %w", path, err)
	}
	return entries, nil
}

// Path is the file of the uppermost layer, which qemu-img takes for the whole disk.
func (v *View) Path() string { return v.path }

// Size is the length of the disk in bytes.
func (v *View) Size() int64 { return v.size }

// Data is how many bytes of the disk are data, in whole clusters.
func (v *View) Data() (n int64) {
	for _, p := range v.places {
		if p.isData() {
			n += cluster
		}
	}
	return n
}

// Close closes the files.
func (v *View) Close() (err error) {
	for _, f := range v.files {
		err = errors.Join(err, f.Close())
	}
	return err
}

// holds reports whether a cluster has this content. Zeroes have the sum of nothing.
func (v *View) holds(c int64, s sum) bool {
	return c < int64(len(v.places)) && v.sums[c] == s || c >= int64(len(v.places)) && s == sum{}
}

// cluster reads a whole cluster into b, and holds it against its sum.
func (v *View) cluster(c int64, b []byte) error {
	p := v.places[c]
	if !p.isData() {
		clear(b)
		return nil
	}
	f := v.files[p/blank-1]
	at := int64(p&dataAt) * cluster
	if n, err := f.ReadAt(b, at); n < len(b) {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return fmt.Errorf("store: %s: reading at %d: %w", f.Name(), at, err)
	}
	if sumOf(b) != v.sums[c] {
		return fmt.Errorf("store: %s is damaged at %d: the cluster at %d of the disk is not as it was written", f.Name(), at, c*cluster)
	}
	return nil
}

// ReadAt reads the disk.
func (v *View) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 || off >= v.size {
		return 0, io.EOF
	}
	want := min(int64(len(p)), v.size-off)
	var whole []byte
	for done := int64(0); done < want; {
		c, skip := (off+done)/cluster, (off+done)%cluster
		if skip == 0 && want-done >= cluster {
			if err := v.cluster(c, p[done:done+cluster]); err != nil {
				return int(done), err
			}
			done += cluster
			continue
		}
		if whole == nil {
			whole = image.Buffer(cluster)
		}
		if err := v.cluster(c, whole); err != nil {
			return int(done), err
		}
		done += int64(copy(p[done:want], whole[skip:]))
	}
	if want < int64(len(p)) {
		return int(want), io.EOF
	}
	return int(want), nil
}

// NextData finds the next stretch of data, as image.Source does.
func (v *View) NextData(off int64) (start, end int64, err error) {
	if off < 0 || off >= v.size {
		return v.size, v.size, io.EOF
	}
	first := slices.IndexFunc(v.places[off/cluster:], place.isData)
	if first < 0 {
		return v.size, v.size, io.EOF
	}
	c := off/cluster + int64(first)
	n := slices.IndexFunc(v.places[c:], func(p place) bool { return !p.isData() })
	if n < 0 {
		return max(off, c*cluster), v.size, nil
	}
	return max(off, c*cluster), min((c+int64(n))*cluster, v.size), nil
}

// consistently gives visit an index, until it had one that was the store's all the
// time: files that were changed meanwhile may not have been those that it speaks of.
func consistently(dir string, visit func(x *Index) error) error {
	for tries := 0; ; tries++ {
		x, err := Peek(dir)
		if err != nil {
			return err
		}
		err = visit(x)
		again, perr := Peek(dir)
		if perr != nil {
			return errors.Join(err, perr)
		}
		if again.Generation == x.Generation && (err == nil || len(x.Pending) == 0) || tries >= 100 {
			return err
		}
		if len(again.Pending) > 0 {
			time.Sleep(50 * time.Millisecond) // another process is about to finish, or died
		}
		if err == nil {
			continue
		}
		// A killed process may have left renames to be done.
		if s, oerr := Open(dir, false); oerr == nil {
			if cerr := s.Close(); cerr != nil {
				return errors.Join(err, cerr)
			}
		}
	}
}

// OpenVolume opens a volume at a point, for reading. It holds up nobody.
func OpenVolume(dir, point, volume string) (view *View, p *Point, err error) {
	err = consistently(dir, func(x *Index) error {
		if view != nil {
			view.Close()
			view = nil
		}
		if p, err = x.Find(point); err != nil {
			return err
		}
		v, err := p.Volume(volume)
		if err != nil {
			return err
		}
		view, err = openView(dir, x.chain(v.Layer))
		return err
	})
	if err != nil && view != nil {
		view.Close()
		view = nil
	}
	return view, p, err
}

// OpenFile opens a file that was taken along with a point. It is held against its digest.
func OpenFile(dir, point, name string) (*os.File, error) {
	x, err := Peek(dir)
	if err != nil {
		return nil, err
	}
	p, err := x.Find(point)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(p.Files, func(f File) bool { return f.Name == name })
	if i < 0 {
		return nil, fmt.Errorf("store: the snapshot %s has no file %q: %w", p.ID, name, fs.ErrNotExist)
	}
	path := filepath.Join(dir, filesDir, p.ID, name)
	found, err := digest(path)
	if err != nil {
		return nil, err
	}
	if found.Name = name; found != p.Files[i] {
		return nil, fmt.Errorf("store: %s is damaged: it is not as it was written", path)
	}
	return os.Open(path)
}
