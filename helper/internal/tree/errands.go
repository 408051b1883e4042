package tree

import (
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/watch"
)

// errands are the work of a pass over some entries.
type errands struct {
	send map[string]*unix.Stat_t
	gone map[string][]string // folder → names that are to be removed from it
	only map[string][]string // folder → names that are not
}

// plan finds the entries to send.
func (p *pass) plan() (*errands, error) {
	e := &errands{send: map[string]*unix.Stat_t{}, gone: map[string][]string{}, only: map[string][]string{}}
	for _, t := range p.Touched {
		if err := p.consider(e, t.Path, t.How); err != nil {
			return nil, err
		}
	}
	others := p.Inodes
	for _, u := range p.InUse {
		if u.Path == "" {
			others = append(others, u.Inode)
		} else if err := p.consider(e, u.Path, watch.Closed); err != nil {
			return nil, err
		}
	}
	for _, ino := range others {
		// Its names in the folder are known: each came with a pass, or is to come
		// with this one, since it is touched. One that has none has left.
		for _, name := range p.names(ino) {
			if st, err := p.stat(name); err == nil && st.Ino == ino {
				if err := p.consider(e, name, watch.Written); err != nil {
					return nil, err
				}
			}
		}
	}
	return e, p.complete(e)
}

// consider looks at one entry that was touched.
func (p *pass) consider(e *errands, rel string, how watch.How) error {
	st, err := p.stat(rel)
	if absent(err) {
		if rel != "." {
			dir, base := split(rel)
			if !slices.Contains(e.gone[dir], base) {
				e.gone[dir] = append(e.gone[dir], base)
			}
		}
		return nil
	}
	if err != nil {
		return p.error(rel, err)
	}
	if how == watch.Closed && !p.changed(rel, st, markTrusted) {
		return nil
	}
	if e.send[rel] == nil {
		e.send[rel] = st
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR && how&watch.Named != 0 && rel != "." {
		// It may be another one than before, and have come with all that is in it.
		return p.whole(e, rel)
	}
	return nil
}

// whole has everything below a folder sent.
func (p *pass) whole(e *errands, rel string) error {
	fd, err := openFolder(p.root, rel, unix.O_RDONLY|unix.O_NOATIME)
	if absent(err) {
		return nil
	} else if err != nil {
		return p.error(rel, err)
	}
	defer unix.Close(fd)
	names, err := entries(fd)
	if absent(err) {
		return nil
	} else if err != nil {
		return p.error(rel, err)
	}
	e.only[rel] = names
	for _, name := range names {
		if err := p.consider(e, join(rel, name), watch.Named); err != nil {
			return err
		}
	}
	return nil
}

// complete adds the entries that follow from the rest: the other names of a file, and
// the folders whose times change because something in them does.
func (p *pass) complete(e *errands) error {
	for _, st := range e.send {
		if !severalNames(st) {
			continue
		}
		for _, name := range p.names(st.Ino) {
			if e.send[name] != nil {
				continue
			}
			if other, err := p.stat(name); err == nil && other.Ino == st.Ino {
				e.send[name] = other
			} else if err != nil && !absent(err) {
				return p.error(name, err)
			}
		}
	}
	above := map[string]bool{}
	for rel := range e.send {
		if rel != "." {
			dir, _ := split(rel)
			above[dir] = true
		}
	}
	for dir := range e.gone {
		above[dir] = true
	}
	for dir := range above {
		if e.send[dir] != nil {
			continue
		}
		st, err := p.stat(dir)
		if absent(err) || err == nil && st.Mode&unix.S_IFMT != unix.S_IFDIR {
			continue
		}
		if err != nil {
			return p.error(dir, err)
		}
		e.send[dir] = st
	}
	return nil
}

func split(rel string) (dir, base string) {
	if i := strings.LastIndexByte(rel, '/'); i >= 0 {
		return rel[:i], rel[i+1:]
	}
	return ".", rel
}

// carryOut writes the plan: first the removals, then the entries, those above before
// those below.
func (p *pass) carryOut(e *errands) error {
	for _, dir := range sorted(e.gone) {
		slices.Sort(e.gone[dir])
		if err := p.list(typeGone, dir, e.gone[dir]); err != nil {
			return err
		}
		p.stats.Removed += len(e.gone[dir])
	}
	var vanished []string // folders, with a slash
	for _, rel := range sorted(e.send) {
		if slices.ContainsFunc(vanished, func(folder string) bool { return strings.HasPrefix(rel, folder) }) {
			continue
		}
		there := false
		err := at(p.root, rel, func(parent int, base string) (err error) {
			there, err = p.try(parent, base, rel, e.send[rel])
			return err
		})
		if err != nil && !absent(err) {
			return err
		}
		if !there && e.send[rel].Mode&unix.S_IFMT == unix.S_IFDIR {
			vanished = append(vanished, rel+"/")
			continue
		}
		if names, ok := e.only[rel]; ok {
			if err := p.list(typeOnly, rel, names); err != nil {
				return err
			}
		}
	}
	return nil
}
