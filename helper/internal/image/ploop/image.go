package ploop

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
)

// Image is a disk that is read: the layers of a chain, each above the one before.
type Image struct {
	path   string
	size   int64
	layers []layer // the lowest first
}

// Info describes an image.
type Info struct {
	Path    string      `json:"path"`
	Size    int64       `json:"size"`
	Cluster int64       `json:"cluster"`
	InUse   bool        `json:"in_use"`
	Layers  []LayerInfo `json:"layers"` // the lowest first
}

// LayerInfo describes one layer.
type LayerInfo struct {
	GUID      string `json:"guid,omitempty"`
	File      string `json:"file"`
	Format    string `json:"format"` // ploop1, ploop2 or plain
	Size      int64  `json:"size"`
	FileSize  int64  `json:"file_size"`
	Clusters  int64  `json:"clusters"`
	Allocated int64  `json:"allocated"`
	InUse     bool   `json:"in_use"`
}

// Open opens an image for reading: a DiskDescriptor.xml, or the folder that holds
// one, or a single delta. snapshot is the GUID of the layer that is the top one;
// where it is empty, the disk is as it is now.
func Open(path, snapshot string) (*Image, *Info, error) {
	img, info, found := look(path, snapshot)
	if err := found.err(); err != nil {
		img.Close()
		return nil, nil, err
	}
	return img, info, nil
}

// OpenChain opens deltas as one image, the lowest first; the lowest may be a plain
// file if plainBase says so.
func OpenChain(paths []string, plainBase bool) (*Image, *Info, error) {
	var found findings
	img := &Image{path: paths[len(paths)-1]}
	info := &Info{Path: img.path}
	for i, p := range paths {
		l := Link{File: p, Plain: plainBase && i == 0}
		img.add(l, p, byPath(p), info, &found)
	}
	img.finish(info, 0, 0, &found)
	if err := found.err(); err != nil {
		img.Close()
		return nil, nil, err
	}
	return img, info, nil
}

// Check says everything that is wrong with an image. The Info is as complete as
// it could be made.
func Check(path, snapshot string) (*Info, []Finding) {
	img, info, found := look(path, snapshot)
	img.Close()
	return info, found.all()
}

// look opens the layers and collects their faults.
func look(path, snapshot string) (*Image, *Info, *findings) {
	found := &findings{}
	img, info := &Image{path: path}, &Info{Path: path, Layers: []LayerInfo{}}
	if st, err := os.Stat(path); err == nil && st.IsDir() {
		path = filepath.Join(path, descriptorName)
	}
	head, err := firstBytes(path)
	switch {
	case err != nil:
		found.add(Error, "%s: %v", path, err)
	case looksLikeXML(head):
		img.openDescriptor(path, snapshot, info, found)
	case snapshot != "":
		found.add(Error, "%s: a single delta has no snapshots: name its %s", path, descriptorName)
	default:
		img.add(Link{File: path}, path, byPath(path), info, found)
		img.finish(info, 0, 0, found)
	}
	return img, info, found
}

func (i *Image) openDescriptor(path, snapshot string, info *Info, found *findings) {
	f, _, err := openFile(byPath(path))
	if err != nil {
		found.add(Error, "%s: %v", path, err)
		return
	}
	defer f.Close()
	d, err := parseDescriptor(f)
	var links []Link
	if err == nil {
		links, err = d.chain(snapshot)
	}
	if err != nil {
		found.add(Error, "%s: %v", path, err)
		return
	}
	folder, err := filepath.Abs(filepath.Dir(path))
	if err != nil {
		found.add(Error, "%s: %v", path, err)
		return
	}
	// Nothing that a name or a link says leads out of the folder.
	root, err := os.OpenRoot(folder)
	if err != nil {
		found.add(Error, "%s: %v", path, cause(err))
		return
	}
	defer root.Close()
	for _, l := range links {
		file, err := within(folder, l.File)
		if err != nil {
			found.add(Error, "%s: %v", path, err)
			continue
		}
		i.add(l, filepath.Join(folder, file), func(flags int) (*os.File, error) { return root.OpenFile(file, flags, 0) }, info, found)
	}
	least := d.size
	if g := guid(snapshot); g != "" && g != d.top {
		least = 0 // a snapshot that is older than a growth is smaller than the disk
	}
	i.finish(info, least, d.cluster, found)
}

// add opens one layer and puts it on top of the others.
func (i *Image) add(l Link, path string, open opener, info *Info, found *findings) {
	f, size, err := openFile(open)
	if err != nil {
		found.add(Error, "%s: %v", path, err)
		return
	}
	li := LayerInfo{GUID: l.GUID, File: path, FileSize: size}
	if l.Plain {
		if size == 0 || size%sector != 0 {
			found.add(Error, "%s: a plain layer of %d bytes, which is no whole number of sectors", path, size)
		}
		i.layers = append(i.layers, &plain{File: f, path: path, n: size})
		li.Format, li.Size = "plain", size
		info.Layers = append(info.Layers, li)
		return
	}
	d := inspect(f, size, path, found)
	i.layers = append(i.layers, d)
	if d.head.cluster != 0 {
		li.Format, li.Size, li.InUse = fmt.Sprintf("ploop%d", d.head.version), d.head.size, d.head.inUse
		li.Clusters, li.Allocated = d.head.clusters(), d.allocated()
	}
	info.Layers = append(info.Layers, li)
}

// finish holds the layers against each other and, where there is one, against the
// descriptor: the disk's size, which a plain layer may not fall short of, and its
// cluster. 0 means unknown.
func (i *Image) finish(info *Info, size, cluster int64, found *findings) {
	if found.err() != nil {
		return // a broken layer need not fit
	}
	// The top layer's own size counts: growing a disk leaves the descriptor as it was.
	// Only of a plain file nothing else says that it is whole.
	top := i.layers[len(i.layers)-1]
	if _, knows := top.(*delta); !knows && top.size() < size {
		found.add(Error, "%s: its descriptor says that the disk has %d bytes, and the plain layer has %d: it is cut off", i.path, size, top.size())
	}
	size = top.size()
	for n, l := range i.layers {
		d, ok := l.(*delta)
		if !ok {
			if n > 0 {
				found.add(Error, "%s: a plain layer is above others, which it would hide whole", info.Layers[n].File)
			}
			continue
		}
		if cluster == 0 {
			cluster = d.head.cluster
		}
		if d.head.cluster != cluster {
			found.add(Error, "%s: clusters of %d bytes, where the rest of the image has %d", d.path, d.head.cluster, cluster)
		}
		info.InUse = info.InUse || d.head.inUse
	}
	for n, l := range i.layers {
		if l.size() > size {
			found.add(Warning, "%s: the layer has %d bytes and the disk %d: what is behind its end is out of sight", info.Layers[n].File, l.size(), size)
		}
	}
	i.size = size
	info.Size, info.Cluster = size, cluster
}

// Path is the name that the image was opened by.
func (i *Image) Path() string { return i.path }

// Size is the length of the disk in bytes.
func (i *Image) Size() int64 { return i.size }

// locate finds the layer that has the bytes from off on, and how far that goes. A
// nil layer means that they are zeroes.
func (i *Image) locate(off, n int64) (l layer, at, length int64) {
	length = n
	for _, l := range slices.Backward(i.layers) {
		// A range that a higher layer lacks, a lower one may have in part.
		at, m, here := l.find(off, length)
		length = m
		if here {
			return l, at, length
		}
	}
	return nil, 0, length
}

// ReadAt reads len(p) bytes at off, as io.ReaderAt asks.
func (i *Image) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, fmt.Errorf("ploop: %s: reading at the negative offset %d", i.path, off)
	}
	if off >= i.size {
		return 0, io.EOF
	}
	want := p[:min(int64(len(p)), i.size-off)]
	done := 0
	for done < len(want) {
		l, at, n := i.locate(off+int64(done), int64(len(want)-done))
		part := want[done:][:n]
		if l == nil {
			clear(part)
		} else if _, err := l.ReadAt(part, at); err != nil {
			if err == io.EOF {
				err = errors.New("the file became shorter while it was read")
			}
			return done, fmt.Errorf("ploop: %s: reading at offset %d: %w", l.name(), at, cause(err))
		}
		done += len(part)
	}
	if len(want) < len(p) {
		return done, io.EOF
	}
	return done, nil
}

// NextData finds the next stretch that some layer has: it begins at off or after
// it. Where there is none it returns io.EOF.
func (i *Image) NextData(off int64) (start, end int64, err error) {
	if off < 0 {
		return 0, 0, fmt.Errorf("ploop: %s: looking for data from the negative offset %d on", i.path, off)
	}
	start = -1
	for off < i.size {
		l, _, n := i.locate(off, i.size-off)
		if l == nil && start >= 0 {
			return start, off, nil
		}
		if l != nil && start < 0 {
			start = off
		}
		off += n
	}
	if start < 0 {
		return i.size, i.size, io.EOF
	}
	return start, i.size, nil
}

// Close closes all layers.
func (i *Image) Close() (err error) {
	for _, l := range i.layers {
		err = errors.Join(err, l.Close())
	}
	i.layers = nil
	return err
}

// firstBytes reads enough of a file to tell its kind.
func firstBytes(path string) ([]byte, error) {
	f, _, err := openFile(byPath(path))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b := make([]byte, 256)
	n, err := f.ReadAt(b, 0)
	if err != nil && err != io.EOF {
		return nil, cause(err)
	}
	return b[:n], nil
}

// looksLikeXML reports whether a file is rather a descriptor than an image.
func looksLikeXML(head []byte) bool {
	for _, c := range head {
		switch c {
		case ' ', '\t', '\r', '\n', 0xEF, 0xBB, 0xBF: // white space, or the mark of UTF-8
		default:
			return c == '<'
		}
	}
	return false
}
