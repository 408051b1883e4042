package store

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Version is the version of the format that this program reads and writes.
const Version = 1

const (
	format   = "handover-store"
	idBytes  = 8
	maxIndex = 256 << 20
	leastID  = 4 // letters of an ID that are enough to name one
)

var (
	idPattern   = regexp.MustCompile(`^[0-9a-f]{16}$`)
	sumsPattern = regexp.MustCompile(`^[0-9a-f]{16}-[0-9]{1,10}\.sums$`)
	namePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$`)
	hexPattern  = regexp.MustCompile(`^[0-9a-f]{64}$`)
	ours        = regexp.MustCompile(`^[0-9a-f]{16}(|\.qcow2|-[0-9]{1,10}\.sums)(|\.new)$`)
)

// Index is all that a store knows about its files.
type Index struct {
	ID         string    `json:"id"`
	Generation uint64    `json:"generation"` // one more with each change
	Written    time.Time `json:"written"`
	Current    string    `json:"current,omitempty"` // the point that the workload's disks descend from
	Points     []*Point  `json:"points"`            // in the order in which they were taken
	Layers     []*Layer  `json:"layers"`
	Pending    []string  `json:"pending,omitempty"`   // layers' files whose new content has yet to take their name
	Restoring  string    `json:"restoring,omitempty"` // the point that a rollback has begun to write to the workload's disks
	Restored   bool      `json:"restored,omitempty"`  // of that, all is written but the pages that gates stand in
}

// Point is the disks at one point in time.
type Point struct {
	ID          string    `json:"id"`
	Name        string    `json:"name,omitempty"`
	Description string    `json:"description,omitempty"`
	Taken       time.Time `json:"taken"`
	Parent      string    `json:"parent,omitempty"`
	FrozenMS    float64   `json:"frozen_ms"` // how long the file systems were frozen
	Volumes     []Volume  `json:"volumes"`
	Files       []File    `json:"files,omitempty"`
}

// Volume is one disk of a point.
type Volume struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"`
	Layer  string `json:"layer"`          // the uppermost
	How    string `json:"how"`            // how the difference to the parent was found: Full, Marks or Digests
	Why    string `json:"why,omitempty"`  // the reason why it was not found by marks
	Read   int64  `json:"read"`           // bytes of the disk that were read
	Stored int64  `json:"stored"`         // of them, bytes that were stored
	Mark   *Mark  `json:"mark,omitempty"` // where the tracker stood
}

// The ways to find what a point has to store.
const (
	Full    = "full"    // everything is read and stored
	Marks   = "marks"   // what the tracker has marked since the parent
	Digests = "digests" // everything is read, and compared with the parent's digests
)

// Mark is a generation of a tracker of package changes: all later writes to the volume
// are in its later generations.
type Mark struct {
	Tracker    string `json:"tracker"`
	Generation uint64 `json:"generation"`
}

// Layer is one file of clusters.
type Layer struct {
	ID       string `json:"id"`
	Volume   string `json:"volume"`
	Size     int64  `json:"size"` // of the disk
	Below    string `json:"below,omitempty"`
	Clusters int64  `json:"clusters"` // of data
	Bytes    int64  `json:"bytes"`    // of the file
	SHA256   string `json:"sha256"`   // of the file
	Sums     File   `json:"sums"`
}

// File is the name of the layer's file.
func (l *Layer) File() string { return l.ID + ".qcow2" }

// File is a file that is as it was written.
type File struct {
	Name   string `json:"name"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

// envelope is the index as it stands in its file.
type envelope struct {
	Format  string          `json:"format"`
	Version int             `json:"version"`
	SHA256  string          `json:"sha256"` // of the index, to the byte
	Index   json.RawMessage `json:"index"`
}

func (x *Index) encode() ([]byte, error) {
	if err := x.check(); err != nil {
		return nil, fmt.Errorf("store: the new index is wrong, and was not written: %w", err)
	}
	b, err := json.Marshal(x)
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	sum := sha256.Sum256(b)
	out, err := json.Marshal(envelope{format, Version, hex.EncodeToString(sum[:]), b})
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	return append(out, '\n'), nil
}

// readIndex reads the index of the store in a folder.
func readIndex(dir string) (*Index, error) {
	path := filepath.Join(dir, indexFile)
	st, err := os.Stat(path)
	if err != nil {
		if err := lost(dir); err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("store: %w", err)
	}
	if st.Size() > maxIndex {
		return nil, fmt.Errorf("store: %s has %d bytes, which no index has", path, st.Size())
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	x, err := parseIndex(b)
	if err != nil {
		return nil, fmt.Errorf("store: %s: %w", path, err)
	}
	return x, nil
}

// lost is the error of a folder whose index is missing, and was there: a new one would
// know none of the files, and have them removed.
func lost(dir string) error {
	found, _ := filepath.Glob(filepath.Join(dir, layersDir, "*"))
	if _, err := os.Lstat(filepath.Join(dir, copyFile)); err != nil && len(found) == 0 {
		return nil
	}
	return fmt.Errorf("store: %s is missing, and files of a store are there: copy %s to it, or bring it back from a copy of the store", filepath.Join(dir, indexFile), copyFile)
}

var errDamaged = errors.New("the index is damaged: copy " + copyFile + " over it, and run `pcopy snapshot verify`")

func parseIndex(b []byte) (*Index, error) {
	var e envelope
	if err := json.Unmarshal(b, &e); err != nil || e.Format != format {
		return nil, errDamaged
	}
	if e.Version != Version {
		return nil, fmt.Errorf("a store of version %d, and this pcopy understands %d: use the newer pcopy that wrote it", e.Version, Version)
	}
	if sum := sha256.Sum256(e.Index); hex.EncodeToString(sum[:]) != e.SHA256 {
		return nil, errDamaged
	}
	x := &Index{}
	d := json.NewDecoder(bytes.NewReader(e.Index))
	d.DisallowUnknownFields() // what is not known is not thrown away with the next change
	if err := d.Decode(x); err != nil {
		return nil, fmt.Errorf("the index has something that this version does not know: %w", err)
	}
	return x, x.check()
}

// check demands that everything in the index fits together.
func (x *Index) check() error {
	if !idPattern.MatchString(x.ID) {
		return fmt.Errorf("the store's ID %q is none", x.ID)
	}
	layers, err := x.checkLayers()
	if err != nil {
		return err
	}
	points, names := map[string]bool{}, map[string]bool{}
	for _, p := range x.Points {
		switch {
		case !idPattern.MatchString(p.ID) || points[p.ID]:
			return fmt.Errorf("the point %q has no ID of its own", p.ID)
		case p.Parent != "" && !points[p.Parent]:
			return fmt.Errorf("the point %s comes before its parent %s", p.ID, p.Parent)
		case p.Name != "" && (!namePattern.MatchString(p.Name) || names[p.Name]):
			return fmt.Errorf("the point %s has the name %q, which is none or taken", p.ID, p.Name)
		}
		points[p.ID], names[p.Name] = true, true
		if err := p.check(layers); err != nil {
			return fmt.Errorf("the point %s: %w", p.ID, err)
		}
	}
	for _, id := range []string{x.Current, x.Restoring} {
		if id != "" && !points[id] {
			return fmt.Errorf("there is no point %q", id)
		}
	}
	for _, name := range x.Pending {
		if layers[strings.TrimSuffix(name, ".qcow2")] == nil || !strings.HasSuffix(name, ".qcow2") {
			return fmt.Errorf("%q is no layer's file", name)
		}
	}
	return nil
}

func (x *Index) checkLayers() (map[string]*Layer, error) {
	layers := map[string]*Layer{}
	for _, l := range x.Layers {
		switch {
		case !idPattern.MatchString(l.ID) || layers[l.ID] != nil:
			return nil, fmt.Errorf("the layer %q has no ID of its own", l.ID)
		case l.Below != "" && (layers[l.Below] == nil || layers[l.Below].Volume != l.Volume || layers[l.Below].Size != l.Size):
			return nil, fmt.Errorf("the layer %s does not fit on the layer %q below it", l.ID, l.Below)
		case l.Size <= 0 || l.Bytes <= 0 || l.Clusters < 0 || l.Clusters > l.Bytes/cluster:
			return nil, fmt.Errorf("the layer %s: %d clusters in %d bytes for a disk of %d cannot be", l.ID, l.Clusters, l.Bytes, l.Size)
		case !hexPattern.MatchString(l.SHA256) || !hexPattern.MatchString(l.Sums.SHA256) || !sumsPattern.MatchString(l.Sums.Name) || !strings.HasPrefix(l.Sums.Name, l.ID+"-"):
			return nil, fmt.Errorf("the layer %s: a digest or a name is none", l.ID)
		}
		layers[l.ID] = l
	}
	return layers, nil
}

func (p *Point) check(layers map[string]*Layer) error {
	seen := map[string]bool{}
	for _, v := range p.Volumes {
		l := layers[v.Layer]
		if !namePattern.MatchString(v.Name) || seen[v.Name] || l == nil || l.Volume != v.Name || l.Size != v.Size {
			return fmt.Errorf("the volume %q and its layer %q do not fit together", v.Name, v.Layer)
		}
		seen[v.Name] = true
	}
	seen = map[string]bool{}
	for _, f := range p.Files {
		if !namePattern.MatchString(f.Name) || seen[f.Name] || f.Bytes < 0 || !hexPattern.MatchString(f.SHA256) {
			return fmt.Errorf("the file %q is none", f.Name)
		}
		seen[f.Name] = true
	}
	return nil
}

// clone is an index of its own, for a change that may come to nothing.
func (x *Index) clone() *Index {
	y := *x
	y.Points, y.Layers, y.Pending = nil, nil, slices.Clone(x.Pending)
	for _, p := range x.Points {
		q := *p
		q.Volumes, q.Files = slices.Clone(p.Volumes), slices.Clone(p.Files)
		y.Points = append(y.Points, &q)
	}
	for _, l := range x.Layers {
		m := *l
		y.Layers = append(y.Layers, &m)
	}
	return &y
}

// Find finds a point by its name, its ID, or the beginning of it.
func (x *Index) Find(word string) (*Point, error) {
	var found []*Point
	for _, p := range x.Points {
		if p.Name == word || p.ID == word {
			return p, nil
		}
		if len(word) >= leastID && strings.HasPrefix(p.ID, word) {
			found = append(found, p)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return nil, fmt.Errorf("store: there is no snapshot %q: `pcopy snapshot list` shows which there are", word)
	}
	return nil, fmt.Errorf("store: %d snapshots begin with %q: name more of it", len(found), word)
}

// point finds a point by its ID.
func (x *Index) point(id string) *Point {
	i := slices.IndexFunc(x.Points, func(p *Point) bool { return p.ID == id })
	if i < 0 {
		return nil
	}
	return x.Points[i]
}

// Volume finds a volume of a point.
func (p *Point) Volume(name string) (*Volume, error) {
	var names []string
	for i := range p.Volumes {
		if p.Volumes[i].Name == name {
			return &p.Volumes[i], nil
		}
		names = append(names, p.Volumes[i].Name)
	}
	return nil, fmt.Errorf("store: the snapshot %s has no volume %q: it has %s", p.ID, name, strings.Join(names, ", "))
}

// Image is the file of a volume of a point, which qemu-img takes for the whole disk.
func (x *Index) Image(dir string, v Volume) string {
	return filepath.Join(dir, layersDir, x.layer(v.Layer).File())
}

func (x *Index) layer(id string) *Layer {
	i := slices.IndexFunc(x.Layers, func(l *Layer) bool { return l.ID == id })
	if i < 0 {
		return nil
	}
	return x.Layers[i]
}

// chain is a layer and all below it, the uppermost first.
func (x *Index) chain(id string) (chain []*Layer) {
	for l := x.layer(id); l != nil; l = x.layer(l.Below) {
		chain = append(chain, l)
	}
	return chain
}

// Now is the point of the workload's disks, or nil.
func (x *Index) Now() *Point { return x.point(x.Current) }
