package precopy

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// Pages are the page files in a folder that CRIU dumps to, and how far they were
// read. They can be read while they grow: CRIU writes them as streams, which is how it
// can send them to a page server instead, and never goes back.
type Pages struct {
	dir   string
	files map[string]*growing
	buf   []byte
}

type growing struct {
	*os.File
	read  int64
	given bool
}

// FollowPages begins with none.
func FollowPages(dir string) *Pages {
	return &Pages{dir: dir, files: map[string]*growing{}, buf: make([]byte, PieceSize)}
}

// IsPages reports whether a file of a dump is one of those.
func IsPages(name string) bool {
	number, ok := strings.CutPrefix(name, "pages-")
	if !ok {
		return false
	}
	number, ok = strings.CutSuffix(number, ".img")
	return ok && number != "" && strings.Trim(number, "0123456789") == ""
}

// More passes on the data since the last time, in pieces of whole pages; at the end
// also the last incomplete page.
func (p *Pages) More(end bool, give func(name string, data []byte, off int64) error) error {
	entries, err := os.ReadDir(p.dir)
	if err != nil {
		return fmt.Errorf("precopy: the dump: %w", err)
	}
	for _, e := range entries {
		if !IsPages(e.Name()) || !e.Type().IsRegular() {
			continue
		}
		f := p.files[e.Name()]
		if f == nil {
			file, err := os.Open(filepath.Join(p.dir, e.Name()))
			if err != nil {
				return fmt.Errorf("precopy: the dump: %w", err)
			}
			f = &growing{File: file}
			p.files[e.Name()] = f
		}
		if err := p.one(f, e.Name(), end, give); err != nil {
			return err
		}
		if end && !f.given { // it holds nothing, and has to be there
			if err := give(e.Name(), nil, 0); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *Pages) one(f *growing, name string, end bool, give func(string, []byte, int64) error) error {
	for {
		n, err := f.ReadAt(p.buf, f.read)
		if err != nil && err != io.EOF {
			return fmt.Errorf("precopy: the dump: %w", err)
		}
		last := n < len(p.buf)
		if last && !end {
			n &^= pageMask
		}
		if n == 0 {
			return nil
		}
		if err := give(name, p.buf[:n], f.read); err != nil {
			return err
		}
		f.read, f.given = f.read+int64(n), true
		if last {
			return nil
		}
	}
}

// Has reports whether a file of the dump was read to where it ended.
func (p *Pages) Has(name string) bool { return p.files[name] != nil }

// Close lets go of the files.
func (p *Pages) Close() (err error) {
	for _, f := range p.files {
		err = errors.Join(err, f.Close())
	}
	return err
}
