// Package bluefs finds out where on its devices an OSD keeps its database.
//
// BlueStore has RocksDB in BlueFS, a small file system on the OSD's devices.
// ceph-bluestore-tool can dump BlueFS's log, which says where each file lies, but it
// wants the devices for itself. So it gets read-only loop devices over them, in a
// folder that looks like the OSD's, and the OSD runs on meanwhile. Its view is at
// most as old as the last sync of the log.
//
// Of a file only the used part counts, not the allocated one: RocksDB allocates its
// write-ahead log in advance, hundreds of megabytes. As the log goes on growing, the
// next runway bytes behind its end count too.
//
// The log of BlueFS itself is left out: an OSD reads it past the page cache.
package bluefs

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// runway is how much a write-ahead log may grow between the dump and the stop.
const runway = 32 << 20

// Extent is a stretch of one device: [offset, length] in bytes.
type Extent [2]int64

// Layout is where a database lies.
type Layout struct {
	// Devices has the extents by the path of the device, ascending.
	Devices map[string][]Extent `json:"devices"`
	// Tables and WAL are sizes in bytes: of all files but the write-ahead logs, and of those.
	Tables int64 `json:"tables"`
	WAL    int64 `json:"wal"`
	// Log is the size of BlueFS's own log, which is read past the page cache.
	Log   int64 `json:"log"`
	Files int   `json:"files"`
}

// logIno is the number of BlueFS's own log.
const logIno = 1

type extent struct {
	device         int
	offset, length int64
}

type file struct {
	size    int64
	extents []extent
}

// dump is the content of the log, read to its end.
type dump struct {
	slots map[int]string // device by number
	files map[int64]*file
	names map[string]int64
}

var (
	slotLine   = regexp.MustCompile(`^ ?slot (\d) \S+ -> (\S+)`)
	fileLine   = regexp.MustCompile(`(log_fnode|op_file_update|op_file_update_inc)\s+(?:file|delta)\(ino (\d+) size 0x([0-9a-f]+) .*extents \[(.*?)\]`)
	extentText = regexp.MustCompile(`(\d):0x([0-9a-f]+)~([0-9a-f]+)`)
	linkLine   = regexp.MustCompile(`op_dir_link\s+(\S+) to (\d+)`)
	unlinkLine = regexp.MustCompile(`op_dir_unlink\s+(\S+)`)
	removeLine = regexp.MustCompile(`op_file_remove\s+(\d+)`)
)

// parse reads the output of `ceph-bluestore-tool bluefs-log-dump`.
func parse(text string) (*dump, error) {
	d := &dump{slots: map[int]string{}, files: map[int64]*file{}, names: map[string]int64{}}
	for line := range strings.Lines(text) {
		if m := fileLine.FindStringSubmatch(line); m != nil {
			d.update(m[1], number(m[2], 10), number(m[3], 16), m[4])
		} else if m := linkLine.FindStringSubmatch(line); m != nil {
			d.names[m[1]] = number(m[2], 10)
		} else if m := unlinkLine.FindStringSubmatch(line); m != nil {
			delete(d.names, m[1])
		} else if m := removeLine.FindStringSubmatch(line); m != nil {
			delete(d.files, number(m[1], 10))
		} else if m := slotLine.FindStringSubmatch(line); m != nil {
			d.slots[int(number(m[1], 10))] = m[2]
		}
	}
	if len(d.slots) == 0 || d.files[logIno] == nil {
		return nil, fmt.Errorf("bluefs: ceph-bluestore-tool did not print a log of BlueFS: %s", last(text))
	}
	return d, nil
}

// number reads a number that a regular expression has found; one that is too large
// for any disk is the largest.
func number(text string, base int) int64 {
	n, _ := strconv.ParseInt(text, base, 64)
	return n
}

func last(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.TrimSpace(lines[len(lines)-1])
}

// update is one record about a file: all of it, or the part since the last.
func (d *dump) update(op string, ino, size int64, extents string) {
	f := d.files[ino]
	if f == nil || op != "op_file_update_inc" {
		f = &file{}
		d.files[ino] = f
	}
	f.size = size
	for _, m := range extentText.FindAllStringSubmatch(extents, -1) {
		f.extents = append(f.extents, extent{int(number(m[1], 10)), number(m[2], 16), number(m[3], 16)})
	}
}

// layout sums a dump up. devices names the OSD's device behind each one that
// the tool was given.
func (d *dump) layout(devices map[string]string) (*Layout, error) {
	l := &Layout{Devices: map[string][]Extent{}, Files: len(d.names)}
	wal := map[int64]bool{}
	for name, ino := range d.names {
		wal[ino] = wal[ino] || strings.HasSuffix(name, ".log")
	}
	for ino, f := range d.files {
		if ino == logIno {
			for _, e := range f.extents {
				l.Log += e.length
			}
			continue
		}
		wanted := f.size
		if wal[ino] {
			l.WAL += f.size
			wanted += runway
		} else {
			l.Tables += f.size
		}
		for _, e := range f.extents {
			if wanted <= 0 {
				break
			}
			device, ok := devices[d.slots[e.device]]
			if !ok {
				return nil, fmt.Errorf("bluefs: the log speaks of device %d, which ceph-bluestore-tool did not name", e.device)
			}
			l.Devices[device] = append(l.Devices[device], Extent{e.offset, min(e.length, wanted)})
			wanted -= e.length
		}
	}
	for _, extents := range l.Devices {
		slices.SortFunc(extents, func(a, b Extent) int { return int(min(max(a[0]-b[0], -1), 1)) })
	}
	return l, nil
}
