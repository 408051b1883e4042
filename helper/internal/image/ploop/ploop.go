// Package ploop reads ploop images: one delta, or a chain of them as a
// DiskDescriptor.xml describes it.
//
// A delta is a header, a table and clusters. All numbers are little endian.
//
//	offset  size  field
//	     0    16  magic: "WithoutFreeSpace" (version 1), "WithouFreSpacExt" (2)
//	    16     4  2
//	    20     4  heads       unused geometry
//	    24     4  cylinders
//	    28     4  cluster, in sectors of 512 bytes
//	    32     4  how many entries the table has
//	    36     8  size of the disk in sectors; version 1: the lower half alone counts
//	    44     4  in use: 0x746F6E59; closed: 0x312e3276, or 0 from old programs
//	    48     4  where the clusters begin, in sectors; version 1: 0 for behind the table
//	    52     4  flags; bit 0 is called empty, and is set beside full tables, too
//	    56     8  where the format extension is, in sectors, 0 for nowhere; it counts
//	           …  if the mark of use is 0x312e3276
//	    64     4  the table: for each cluster of the disk its place in the file, in
//	           …  sectors (version 1) or in clusters (2); 0: it is not here
//
// The places begin where the clusters begin, lie whole clusters apart, and no two
// clusters share one.
//
// In a chain each delta holds the writes since the one below it was the top one. A
// cluster is read from the highest delta that has it; where none has it, it is
// zeroes. The lowest may be a plain file instead, which has everything. A lower layer
// may be shorter than the disk, which then was grown: the missing part is zeroes. The
// length of the disk is that of its top delta, even if the descriptor differs.
//
// A file's statements about itself are checked against the rest before they are
// believed. Open refuses an image in which Check finds a fault, so that a read
// returns either the written data or an error.
package ploop

import (
	"fmt"
)

const sector = 512

// The bounds of a read.
const (
	maxCluster = 16 << 20 // bytes; ploop's own limit
	maxEntries = 32 << 20 // of a table: 128 MiB, for a disk of 32 TiB in clusters of 1 MiB
	maxLayers  = 1024
	maxXML     = 1 << 20 // bytes of a descriptor
)

// Level is how bad a finding is.
type Level string

// The levels: an image with an error cannot be read; a leak is space that is lost
// in the file; the rest is worth knowing.
const (
	Error   Level = "error"
	Leak    Level = "leak"
	Warning Level = "warning"
)

// Finding is one thing that is wrong with an image, in one sentence.
type Finding struct {
	Level Level  `json:"level"`
	Text  string `json:"text"`
}

// findings collects faults. It keeps the first few of a kind: a table of rubbish has
// millions.
type findings struct {
	list []Finding
	more map[Level]int
}

const findingsKept = 20

func (f *findings) add(level Level, format string, args ...any) {
	n := 0
	for _, g := range f.list {
		if g.Level == level {
			n++
		}
	}
	if n < findingsKept {
		f.list = append(f.list, Finding{level, fmt.Sprintf(format, args...)})
		return
	}
	if f.more == nil {
		f.more = map[Level]int{}
	}
	f.more[level]++
}

// all is the list, with a last word about those that did not fit into it.
func (f *findings) all() []Finding {
	list := append([]Finding{}, f.list...)
	for _, level := range []Level{Error, Leak, Warning} {
		if n := f.more[level]; n > 0 {
			list = append(list, Finding{level, fmt.Sprintf("and %d more of this kind", n)})
		}
	}
	return list
}

// err is the first error, if there is one.
func (f *findings) err() error {
	for _, g := range f.list {
		if g.Level == Error {
			return fmt.Errorf("ploop: %s", g.Text)
		}
	}
	return nil
}
