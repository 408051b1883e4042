package precopy

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/livefleet/handover/helper/internal/tasks"
)

// Scan reads once the pages that a dump of tasks would carry: their anonymous pages,
// and shared ones without a file. The tasks run in that time, so a page may be of any
// moment, and torn; vanished ones are left out. It is only a guess at the content of a
// dump, and a wrong guess costs nothing but time.
type Scan struct {
	shared map[shared]bool // pages that another task has, too
	buf    []byte
	maps   []byte
}

type shared struct {
	inode string // device and number
	off   uint64
}

// NewScan begins.
func NewScan() *Scan {
	return &Scan{shared: map[shared]bool{}, buf: make([]byte, PieceSize), maps: make([]byte, 64<<10)}
}

// Of a page's entry in /proc/PID/pagemap.
const (
	present  = 1 << 63
	notAnon  = 1 << 61 // of a file, or shared
	entry    = 8
	pageMask = PageSize - 1
)

// Task reads the pages of one task, by its folder in /proc, and gives them on in runs
// of whole pages, with their addresses.
func (s *Scan) Task(proc string, give func(at uint64, pages []byte) error) error {
	mem, err := os.Open(filepath.Join(proc, "mem"))
	if tasks.Gone(err) {
		return nil
	} else if err != nil {
		return fmt.Errorf("precopy: the memory of a task: %w", err)
	}
	defer mem.Close()
	return s.task(proc, func(mapping) bool { return true }, func(at uint64, size int) error { return s.read(mem, at, size, give) })
}

// Own finds the pages that are a task's own and of no file, and gives on where they lie,
// in runs of at most PieceSize. Mappings that hold code are left out.
func (s *Scan) Own(proc string, give func(at uint64, size int) error) error {
	return s.task(proc, func(m mapping) bool { return m.own }, give)
}

func (s *Scan) task(proc string, want func(mapping) bool, give func(at uint64, size int) error) error {
	maps, err := os.Open(filepath.Join(proc, "maps"))
	if tasks.Gone(err) {
		return nil
	} else if err != nil {
		return fmt.Errorf("precopy: %w", err)
	}
	defer maps.Close()
	pagemap, err := os.Open(filepath.Join(proc, "pagemap"))
	if tasks.Gone(err) {
		return nil
	} else if err != nil {
		return fmt.Errorf("precopy: %w", err)
	}
	defer pagemap.Close()
	lines := bufio.NewScanner(maps)
	for lines.Scan() {
		m, ok, err := parseMapping(lines.Text())
		if err != nil {
			return fmt.Errorf("precopy: %s: %w", maps.Name(), err)
		}
		if !ok || !want(m) {
			continue
		}
		if err := s.mapping(m, pagemap, give); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil && !tasks.Gone(err) {
		return fmt.Errorf("precopy: %s: %w", maps.Name(), err)
	}
	return nil
}

// mapping is a line of /proc/PID/maps.
type mapping struct {
	start, end, off uint64
	shared          bool
	own             bool // private, of no file, and no code
	inode           string
}

// parseMapping reads one; ok says whether its pages may be in a dump.
func parseMapping(line string) (m mapping, ok bool, err error) {
	f := strings.Fields(line)
	from, to, dash := "", "", false
	if len(f) >= 5 {
		from, to, dash = strings.Cut(f[0], "-")
	}
	if !dash || len(f[1]) != 4 {
		return m, false, fmt.Errorf("%q is no mapping", line)
	}
	for text, into := range map[string]*uint64{from: &m.start, to: &m.end, f[2]: &m.off} {
		if *into, err = strconv.ParseUint(text, 16, 64); err != nil {
			return m, false, fmt.Errorf("%q is no mapping", line)
		}
	}
	m.shared, m.inode = f[1][3] == 's', f[3]+" "+f[4]
	m.own = !m.shared && f[4] == "0" && f[1][2] != 'x'
	name := strings.Join(f[5:], " ")
	switch {
	case f[1][0] != 'r': // a mere reservation would take long to look through
		return m, false, nil
	case name == "[vvar]" || name == "[vdso]" || name == "[vsyscall]" || name == "[vvar_vclock]":
		return m, false, nil
	case m.shared: // a file travels with its file system
		return m, name == "/dev/zero (deleted)" || strings.HasPrefix(name, "/memfd:") || strings.HasPrefix(name, "/SYSV"), nil
	}
	return m, true, nil
}

// mapping finds the present pages of one mapping.
func (s *Scan) mapping(m mapping, pagemap *os.File, give func(at uint64, size int) error) error {
	for at := m.start; at < m.end; {
		n := min(int((m.end-at)/PageSize), len(s.maps)/entry)
		got, _ := pagemap.ReadAt(s.maps[:n*entry], int64(at/PageSize*entry))
		entries := s.maps[:got/entry*entry]
		if len(entries) == 0 {
			return nil // the task has ended, or the kernel tells no more of it
		}
		for i := 0; i < len(entries)/entry; {
			run := 0
			for i+run < len(entries)/entry && run < PieceSize/PageSize && s.wanted(m, at+uint64(i+run)*PageSize, binary.LittleEndian.Uint64(entries[(i+run)*entry:])) {
				run++
			}
			if run == 0 {
				i++
				continue
			}
			if err := give(at+uint64(i)*PageSize, run*PageSize); err != nil {
				return err
			}
			i += run
		}
		at += uint64(len(entries)/entry) * PageSize
	}
	return nil
}

// wanted says whether a dump carries a page, and it was not read by way of another
// task.
func (s *Scan) wanted(m mapping, at, page uint64) bool {
	if page&present == 0 || (page&notAnon != 0) != m.shared {
		return false
	}
	if !m.shared {
		return true
	}
	key := shared{m.inode, m.off + at - m.start}
	if s.shared[key] {
		return false
	}
	s.shared[key] = true
	return true
}

// read passes on the readable part of a run of pages.
func (s *Scan) read(mem *os.File, at uint64, length int, give func(uint64, []byte) error) error {
	n, _ := mem.ReadAt(s.buf[:length], int64(at)) // an unreadable page is gone, or not for reading
	if n &^= pageMask; n == 0 {
		return nil
	}
	return give(at, s.buf[:n])
}
