package ploop

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"
)

const (
	headerSize = 64
	entrySize  = 4

	magic1 = "WithoutFreeSpace"
	magic2 = "WithouFreSpacExt"

	inUse     = 0x746F6E59
	closedNew = 0x312e3276
	closedOld = 0

	inUseOffset = 44
)

// header is the first 64 bytes of a delta, in bytes where the file has sectors.
type header struct {
	version int   // of the format: 1 or 2
	cluster int64 // bytes
	entries int64
	size    int64 // of the disk, in bytes
	inUse   bool
	data    int64 // where the clusters begin
	ext     int64 // where the format extension is, 0 for nowhere
}

// parseHeader reads the header of a file of fileSize bytes. b holds at least 64.
func parseHeader(b []byte, fileSize int64) (header, error) {
	u32 := func(at int) int64 { return int64(binary.LittleEndian.Uint32(b[at:])) }
	var h header
	switch magic := string(b[:16]); magic {
	case magic1:
		h.version = 1
	case magic2:
		h.version = 2
	default:
		return h, fmt.Errorf("this is no ploop image: it begins with %q", magic)
	}
	if v := u32(16); v != 2 {
		return h, fmt.Errorf("the header says version %d, and ploop images say 2", v)
	}
	h.cluster = u32(28) * sector
	if h.cluster == 0 || h.cluster > maxCluster {
		return h, fmt.Errorf("clusters of %d bytes: they have at least one sector and at most %d bytes", h.cluster, maxCluster)
	}
	h.entries = u32(32)
	sectors := binary.LittleEndian.Uint64(b[36:])
	if h.version == 1 {
		sectors &= math.MaxUint32 // the upper half is not used, and may hold anything
	}
	// The bound of the entries, and so of the memory, is also the one that keeps
	// every sum below from going over.
	if sectors > uint64(maxEntries)*uint64(h.cluster)/sector || h.entries > maxEntries {
		return h, fmt.Errorf("the header says %d sectors in %d clusters of %d bytes, more than the %d clusters that are read here", sectors, h.entries, h.cluster, maxEntries)
	}
	h.size = int64(sectors) * sector
	if h.size == 0 {
		return h, fmt.Errorf("the header says that the disk has no bytes")
	}
	if need := h.clusters(); h.entries < need {
		return h, fmt.Errorf("the table has %d entries, and a disk of %d bytes has %d clusters", h.entries, h.size, need)
	}
	switch use := u32(inUseOffset); use {
	case inUse:
		h.inUse = true
	case closedNew, closedOld:
	default:
		return h, fmt.Errorf("the mark of use is %#08x, which means nothing", use)
	}
	table := int64(headerSize) + h.entries*entrySize
	if table > fileSize {
		return h, fmt.Errorf("the file is cut off: its table ends at %d, and the file at %d", table, fileSize)
	}
	h.data = u32(48) * sector
	switch {
	case h.data == 0 && h.version == 1:
		h.data = (table + sector - 1) / sector * sector
	case h.data < table:
		return h, fmt.Errorf("the clusters begin at %d, in the table, which ends at %d", h.data, table)
	case h.data%h.cluster != 0 && h.version == 2:
		return h, fmt.Errorf("the clusters begin at %d, which is not a multiple of a cluster (%d)", h.data, h.cluster)
	}
	// A program that does not know the extension leaves it behind, and writes its own mark.
	if u32(inUseOffset) != closedNew {
		return h, nil
	}
	ext := binary.LittleEndian.Uint64(b[56:])
	if ext > uint64(fileSize)/sector {
		return h, fmt.Errorf("the format extension is at sector %d, behind the end of the file", ext)
	}
	h.ext = int64(ext) * sector
	return h, nil
}

// clusters is how many clusters the disk has; the last may be short.
func (h header) clusters() int64 { return (h.size + h.cluster - 1) / h.cluster }

// MostBytes is how long the file of a delta that is in use can become: as if each
// cluster of its disk were in it.
func MostBytes(path string) (int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, fmt.Errorf("ploop: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return 0, fmt.Errorf("ploop: %w", err)
	}
	b := make([]byte, headerSize)
	if _, err := f.ReadAt(b, 0); err != nil {
		return 0, fmt.Errorf("ploop: %s: this is no ploop image: %w", path, err)
	}
	h, err := parseHeader(b, info.Size())
	if err != nil {
		return 0, fmt.Errorf("ploop: %s: %w", path, err)
	}
	return max(h.data+h.clusters()*h.cluster, info.Size()), nil
}

// ClearInUse takes the mark of use out of the first sector of an image, and
// reports whether there was one: a copy that was made of a running image is a
// closed one. Anything that is not the beginning of a ploop image is left alone.
func ClearInUse(first []byte) bool {
	if len(first) < headerSize || string(first[:16]) != magic1 && string(first[:16]) != magic2 {
		return false
	}
	mark := first[inUseOffset:][:4]
	if binary.LittleEndian.Uint32(mark) == closedOld {
		return false
	}
	clear(mark)
	return true
}
