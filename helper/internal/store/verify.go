package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
)

// Report is the result of reading everything back.
type Report struct {
	Files  int      `json:"files"`
	Bytes  int64    `json:"bytes"`
	Faults []*Fault `json:"faults"`
}

// Fault is a file that is not as it was written.
type Fault struct {
	File   string   `json:"file"`
	Text   string   `json:"text"`
	Points []string `json:"points"` // that need it
}

// Verify reads every file of a store, and holds it against its digest. It holds up
// nobody: a layer that was merged meanwhile is read again.
func Verify(ctx context.Context, dir string) (*Report, error) {
	r := &Report{Faults: []*Fault{}}
	x, err := Peek(dir)
	if err != nil {
		return nil, err
	}
	for _, l := range x.Layers {
		if err := r.layer(ctx, dir, l); err != nil {
			return nil, err
		}
	}
	for _, p := range x.Points {
		for _, f := range p.Files {
			path := filepath.Join(filesDir, p.ID, f.Name)
			text, err := r.check(ctx, filepath.Join(dir, path), f)
			if err != nil {
				return nil, err
			}
			if text != "" && stillThere(dir, p.ID) {
				r.Faults = append(r.Faults, &Fault{path, text, []string{p.ID}})
			}
		}
	}
	if b, err := os.ReadFile(filepath.Join(dir, copyFile)); err != nil {
		r.Faults = append(r.Faults, &Fault{copyFile, err.Error(), nil})
	} else if _, err := parseIndex(b); err != nil {
		r.Faults = append(r.Faults, &Fault{copyFile, "it is damaged: the next snapshot writes it anew", nil})
	}
	return r, nil
}

func stillThere(dir, point string) bool {
	x, err := Peek(dir)
	return err != nil || x.point(point) != nil
}

// layer checks both files of a layer.
func (r *Report) layer(ctx context.Context, dir string, l *Layer) error {
	for {
		data := File{Name: l.File(), Bytes: l.Bytes, SHA256: l.SHA256}
		var faults []*Fault
		for _, f := range []File{l.Sums, data} {
			path := filepath.Join(layersDir, f.Name)
			text, err := r.check(ctx, filepath.Join(dir, path), f)
			if err != nil {
				return err
			}
			if text != "" {
				faults = append(faults, &Fault{File: path, Text: text})
			}
		}
		if len(faults) == 0 {
			return nil
		}
		x, err := Peek(dir)
		if err != nil {
			return err
		}
		now := x.layer(l.ID)
		if now == nil {
			return nil // deleted meanwhile
		}
		if *now != *l || slices.Contains(x.Pending, l.File()) {
			l = now
			if err := context.Cause(ctx); err != nil {
				return err
			}
			continue
		}
		for _, f := range faults {
			if f.File == filepath.Join(layersDir, l.File()) {
				f.Text += where(dir, l)
			}
			f.Points = x.needing(l.ID)
		}
		r.Faults = append(r.Faults, faults...)
		return nil
	}
}

// needing are the points that a layer is part of.
func (x *Index) needing(layer string) (ids []string) {
	for _, p := range x.Points {
		if slices.ContainsFunc(p.Volumes, func(v Volume) bool {
			return slices.ContainsFunc(x.chain(v.Layer), func(l *Layer) bool { return l.ID == layer })
		}) {
			ids = append(ids, p.ID)
		}
	}
	return ids
}

// check reads a file. The text says how it differs from its record; empty if it does not.
func (r *Report) check(ctx context.Context, path string, want File) (text string, err error) {
	f, err := os.Open(path)
	if err != nil {
		return err.Error(), nil
	}
	defer f.Close()
	h, buf := sha256.New(), make([]byte, 1<<20)
	var size int64
	for {
		n, err := f.Read(buf)
		h.Write(buf[:n])
		size += int64(n)
		if err == io.EOF {
			break
		}
		if err != nil {
			return fmt.Sprintf("reading it at %d: %v", size, err), nil
		}
		if err := context.Cause(ctx); err != nil {
			return "", err
		}
	}
	r.Files, r.Bytes = r.Files+1, r.Bytes+size
	switch {
	case size != want.Bytes:
		return fmt.Sprintf("it has %d bytes, and had %d", size, want.Bytes), nil
	case hex.EncodeToString(h.Sum(nil)) != want.SHA256:
		return "it is not as it was written", nil
	}
	return "", nil
}

// where finds the place of the damage in a layer's file.
func where(dir string, l *Layer) string {
	v, err := openView(dir, []*Layer{l})
	if err != nil {
		return ": " + err.Error()
	}
	defer v.Close()
	b := make([]byte, cluster)
	for c, p := range v.places {
		if !p.isData() {
			continue
		}
		if err := v.cluster(int64(c), b); err != nil {
			return fmt.Sprintf(": the cluster at %d of the volume %s, at %d of the file", int64(c)*cluster, l.Volume, int64(p&dataAt)*cluster)
		}
	}
	return ": its tables or the space between its clusters, and no data"
}
