package tree

import (
	"archive/tar"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// A file with holes travels in pieces: its header has the record sizeRecord with the
// size of the whole file, and its data begins with the number of pieces and then, for
// each, where it lies and how long it is, eight bytes each, little endian. A range
// that no piece covers is a hole.
const sizeRecord = "HANDOVER.size"

// maxPieces bounds the table; further ones are joined over the holes between
// them.
var maxPieces = 1 << 16

type piece struct{ off, length int64 }

// extents are the parts of a file that hold data, as its file system knows.
func extents(fd int, size int64) ([]piece, error) {
	var found []piece
	for off := int64(0); off < size; {
		start, err := unix.Seek(fd, off, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("looking for its holes: %w", err)
		}
		end, err := unix.Seek(fd, start, unix.SEEK_HOLE)
		if errors.Is(err, unix.ENXIO) {
			break // it was truncated in the meantime
		} else if err != nil {
			return nil, fmt.Errorf("looking for its holes: %w", err)
		}
		if start >= size {
			break
		}
		end = min(end, size)
		if n := len(found); n == maxPieces {
			found[n-1].length = end - found[n-1].off
		} else {
			found = append(found, piece{start, end - start})
		}
		off = end
	}
	return found, nil
}

// layOut sets a header's size, and makes the table that precedes the data of a
// file in pieces; a file in one piece has none.
func layOut(h *tar.Header, size int64, pieces []piece) []byte {
	h.Size = 0
	for _, c := range pieces {
		h.Size += c.length
	}
	if h.Size == size {
		return nil
	}
	return layTable(h, size, pieces)
}

// layTable is layOut with a table in any case.
func layTable(h *tar.Header, size int64, pieces []piece) []byte {
	h.Size = 0
	for _, c := range pieces {
		h.Size += c.length
	}
	table := binary.LittleEndian.AppendUint64(nil, uint64(len(pieces)))
	for _, c := range pieces {
		table = binary.LittleEndian.AppendUint64(table, uint64(c.off))
		table = binary.LittleEndian.AppendUint64(table, uint64(c.length))
	}
	h.Size += int64(len(table))
	if h.PAXRecords == nil {
		h.PAXRecords = map[string]string{}
	}
	h.PAXRecords[sizeRecord] = strconv.FormatInt(size, 10)
	return table
}

var errPieces = errors.New("the table of its pieces is damaged")

// putTogether writes the pieces that file sent.
func putTogether(f *os.File, r io.Reader, h *tar.Header) error {
	record, ok := h.PAXRecords[sizeRecord]
	if !ok {
		_, err := io.Copy(f, r)
		return err
	}
	size, err := strconv.ParseInt(record, 10, 64)
	if err != nil || size < 0 {
		return errPieces
	}
	var word [16]byte
	if _, err := io.ReadFull(r, word[:8]); err != nil {
		return errPieces
	}
	n := binary.LittleEndian.Uint64(word[:])
	if n > uint64(maxPieces) {
		return errPieces
	}
	pieces := make([]piece, n)
	var end int64
	for i := range pieces {
		if _, err := io.ReadFull(r, word[:]); err != nil {
			return errPieces
		}
		c := piece{int64(binary.LittleEndian.Uint64(word[:])), int64(binary.LittleEndian.Uint64(word[8:]))}
		if c.off < end || c.length < 0 || c.off > size || c.length > size-c.off {
			return errPieces
		}
		end = c.off + c.length
		pieces[i] = c
	}
	for _, c := range pieces {
		if _, err := f.Seek(c.off, io.SeekStart); err != nil {
			return err
		}
		if _, err := io.CopyN(f, r, c.length); err != nil {
			return err
		}
	}
	return f.Truncate(size)
}
