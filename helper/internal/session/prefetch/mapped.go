// Package prefetch finds the parts of files that a restore will read, and reads them before.
//
// The programs and libraries that a workload runs are in its image. A restore maps
// them again, and reads the missing pages. The source knows which pages of which
// files that will be, and the destination reads them when the engine has mounted the
// workload's root there (session/warm.go).
package prefetch

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/hooks"
	"github.com/livefleet/handover/helper/internal/pagecache"
)

// MostRanges bounds the ranges of all volumes, and of all files: a message that is
// too long for a frame would end the move. None of them takes 100 bytes.
const MostRanges = 16 << 10

// File is a file that the workload has mapped.
type File struct {
	Path   string     `json:"path"`   // in its root
	Ranges [][2]int64 `json:"ranges"` // that the restore may read: offset and length
}

// Mapped looks through the mappings of a workload's tasks: the parts of a file that are in memory, and
// those that are not because the workload has a page of its own instead, as of all data
// that its loader has relocated. The restore makes such a page of the file's.
func Mapped(cgroup hooks.Cgroup) ([]File, error) {
	var all mappings
	err := cgroup.EachTask(func(proc string) error { all.add(proc); return nil })
	return all.files(), err
}

// mappings are the files that tasks have mapped.
type mappings struct {
	paths []string // in the order in which they were found
	links map[string]string
	own   map[string][]pagecache.Range // of which a task has pages of its own
}

// add looks through one task. A task that has ended is left out.
func (m *mappings) add(proc string) {
	list, err := os.ReadFile(filepath.Join(proc, "maps"))
	if err != nil {
		return
	}
	pages, err := os.Open(filepath.Join(proc, "pagemap"))
	if err != nil {
		return
	}
	defer pages.Close()
	if m.links == nil {
		m.links, m.own = map[string]string{}, map[string][]pagecache.Range{}
	}
	for line := range strings.Lines(string(list)) {
		one, ok := parseMapping(line)
		if !ok {
			continue
		}
		if _, seen := m.links[one.path]; !seen {
			m.paths = append(m.paths, one.path)
			m.links[one.path] = filepath.Join(proc, "map_files", fmt.Sprintf("%x-%x", one.begin, one.end)) // there without the zeroes before it
		}
		if one.private {
			m.own[one.path] = append(m.own[one.path], one.ownPages(pages)...)
		}
	}
}

// files returns their parts to read, within the bounds of a message.
func (m *mappings) files() (files []File) {
	room := MostRanges
	for _, path := range m.paths {
		f, err := pagecache.Open(m.links[path])
		if err != nil {
			continue
		}
		present, err := f.Present(f.Whole())
		ranges := f.Clip(slices.Concat(present, m.own[path]))
		f.Close()
		if room -= len(ranges) + 1 + len(path)/16; room < 0 {
			break
		}
		if err != nil || len(ranges) == 0 {
			continue
		}
		one := File{Path: path}
		for _, r := range ranges {
			one.Ranges = append(one.Ranges, [2]int64{r.Offset, r.Length})
		}
		files = append(files, one)
	}
	return files
}

// mapping is one of a task's mappings.
type mapping struct {
	begin, end uint64
	private    bool
	offset     int64
	path       string
}

// parseMapping reads a line of /proc/PID/maps about a file that has a name. A file
// below /dev is a device, or memory that travels.
func parseMapping(line string) (m mapping, ok bool) {
	i := strings.IndexByte(line, '/')
	if i < 0 {
		return m, false
	}
	m.path = strings.TrimSuffix(line[i:], "\n")
	if strings.HasSuffix(m.path, " (deleted)") || strings.HasPrefix(m.path, "/dev/") || strings.Contains(m.path, `\`) {
		return m, false
	}
	f := strings.Fields(line[:i])
	if len(f) != 5 || len(f[1]) != 4 {
		return m, false
	}
	from, to, _ := strings.Cut(f[0], "-")
	var errs [3]error
	m.begin, errs[0] = strconv.ParseUint(from, 16, 64)
	m.end, errs[1] = strconv.ParseUint(to, 16, 64)
	m.offset, errs[2] = strconv.ParseInt(f[2], 16, 64)
	m.private = f[1][3] == 'p'
	return m, errors.Join(errs[:]...) == nil && m.begin < m.end
}

// The bits of an entry of /proc/PID/pagemap, from the kernel's
// Documentation/admin-guide/mm/pagemap.rst.
const (
	pageOfFile  = 1 << 61 // or shared
	pageSwapped = 1 << 62
	pagePresent = 1 << 63
)

// mostPages is of how many pages of a mapping it is asked whose they are.
const mostPages = 1 << 20

// ownPages are the stretches of the file of which the task has pages of its own.
func (m mapping) ownPages(pagemap *os.File) (own []pagecache.Range) {
	page := uint64(os.Getpagesize())
	entries := make([]byte, 8*min((m.end-m.begin)/page, mostPages))
	n, _ := pagemap.ReadAt(entries, int64(8*(m.begin/page)))
	for i := range n / 8 {
		e := binary.NativeEndian.Uint64(entries[8*i:])
		if e&pageSwapped != 0 || e&pagePresent != 0 && e&pageOfFile == 0 {
			own = append(own, pagecache.Range{Offset: m.offset + int64(i)*int64(page), Length: int64(page)})
		}
	}
	return own
}

// Read reads files from the root of the container in an OCI bundle, and returns the number of
// bytes. A path that is missing, or is no file, is left out.
func Read(ctx context.Context, bundle string, files []File) (read int64, err error) {
	if len(files) == 0 || bundle == "" {
		return 0, nil
	}
	root, err := openRoot(bundle)
	if err != nil {
		return 0, err
	}
	defer root.Close()
	for _, f := range files {
		read += readFrom(ctx, root, f)
	}
	return read, nil
}

// openRoot opens the root of the container in an OCI bundle. Nothing that is opened
// in it is outside of it, for any links of the workload's.
func openRoot(bundle string) (*os.Root, error) {
	text, err := os.ReadFile(filepath.Join(bundle, "config.json"))
	if err != nil {
		return nil, err
	}
	var config struct {
		Root struct {
			Path string `json:"path"`
		} `json:"root"`
	}
	if err := json.Unmarshal(text, &config); err != nil {
		return nil, fmt.Errorf("%s/config.json: %w", bundle, err)
	}
	path := config.Root.Path
	if !filepath.IsAbs(path) {
		path = filepath.Join(bundle, path)
	}
	return os.OpenRoot(path)
}

func readFrom(ctx context.Context, root *os.Root, m File) (read int64) {
	f, err := root.OpenFile(strings.TrimPrefix(m.Path, "/"), os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return 0
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return 0
	}
	buffer := make([]byte, 256<<10)
	for _, r := range m.Ranges {
		for at := r[0]; at < r[0]+r[1] && ctx.Err() == nil; {
			n, err := f.ReadAt(buffer[:min(int64(len(buffer)), r[0]+r[1]-at)], at)
			read, at = read+int64(n), at+int64(n)
			if err != nil { // it is shorter here, or cannot be read
				break
			}
		}
	}
	return read
}
