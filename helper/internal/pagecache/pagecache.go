// Package pagecache brings pages of files and block devices into memory, keeps
// them there, and tells which are.
//
// The pages of a block device live as long as a process has the device open: its last
// close throws all of them away. An open File keeps them. It is opened for reading
// only and without O_EXCL, takes no lock, and so disturbs no other process: others
// may open the device exclusively and lock it beside us.
//
// Only missing pages are read, in the order of the disk and in large pieces, so that
// a disk that seeks is read at its full speed. A locked page (mlock) stays under
// memory pressure too, until the File is closed.
//
// Pages that another process writes past the page cache (O_DIRECT) are dropped by the
// kernel, locked or not: a cached page is a copy of the disk, never older than it.
package pagecache

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Range is a stretch of a file, in bytes.
type Range struct{ Offset, Length int64 }

const (
	// window is how much is mapped at a time to look at it: 1 byte is needed for each page.
	window = 1 << 30
	// piece is how much is read at a time; the kernel makes of it the largest requests that the disk takes.
	piece = 4 << 20
	// bridge is the longest resident stretch that is read again rather than skipped, since a request costs more than its bytes.
	bridge = 256 << 10
)

var page = int64(os.Getpagesize())

// File is a file or block device whose pages are looked after.
type File struct {
	path   string
	file   *os.File
	size   int64
	locked [][]byte
}

// Open opens a regular file or a block device.
func Open(path string) (*File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("pagecache: %w", err)
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() && (info.Mode()&os.ModeDevice == 0 || info.Mode()&os.ModeCharDevice != 0) {
		err = fmt.Errorf("%s is neither a file nor a block device", path)
	}
	var size int64
	if err == nil {
		size, err = f.Seek(0, io.SeekEnd)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("pagecache: %w", err)
	}
	return &File{path: path, file: f, size: size}, nil
}

// Path is the path that the file was opened by.
func (f *File) Path() string { return f.path }

// Size is the file's size when it was opened.
func (f *File) Size() int64 { return f.size }

// Close releases the pages: they stay only if another process has the device open.
func (f *File) Close() error {
	for _, m := range f.locked {
		unix.Munmap(m)
	}
	f.locked = nil
	return f.file.Close()
}

// Drop has the kernel throw the pages of the file away that are clean and that no process
// has mapped. Those that stay are still resident afterwards.
func (f *File) Drop() error {
	if err := unix.Fadvise(int(f.file.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
		return fmt.Errorf("pagecache: dropping the pages of %s: %w", f.path, err)
	}
	return nil
}

// Whole is the range that is all of the file.
func (f *File) Whole() []Range { return []Range{{0, f.size}} }

// Clip makes ranges of a file's pages of any ranges: whole pages, in ascending
// order, none twice, nothing behind the end.
func (f *File) Clip(ranges []Range) []Range {
	var whole []Range
	for _, r := range ranges {
		begin := max(r.Offset, 0) / page * page
		end := min(r.Offset+r.Length, f.size)
		if end = (end + page - 1) / page * page; end > begin {
			whole = append(whole, Range{begin, end - begin})
		}
	}
	slices.SortFunc(whole, func(a, b Range) int { return int(min(max(a.Offset-b.Offset, -1), 1)) })
	return join(whole, 0)
}

// join merges ascending ranges that are at most gap apart.
func join(ranges []Range, gap int64) []Range {
	var joined []Range
	for _, r := range ranges {
		if n := len(joined); n > 0 && r.Offset <= joined[n-1].Offset+joined[n-1].Length+gap {
			joined[n-1].Length = max(joined[n-1].Length, r.Offset+r.Length-joined[n-1].Offset)
			continue
		}
		joined = append(joined, r)
	}
	return joined
}

// Total is the number of bytes in ranges.
func Total(ranges []Range) int64 {
	var n int64
	for _, r := range ranges {
		n += r.Length
	}
	return n
}

// Resident counts the bytes of clipped ranges that are in memory, and returns
// the ranges that are not.
func (f *File) Resident(ranges []Range) (int64, []Range, error) {
	var resident int64
	var missing []Range
	for _, r := range ranges {
		for at := r.Offset; at < r.Offset+r.Length; at += window {
			length := min(window, r.Offset+r.Length-at)
			vec, err := f.mincore(at, length)
			if err != nil {
				return 0, nil, err
			}
			for i, v := range vec {
				if v&1 != 0 {
					resident += page
				} else {
					missing = append(missing, Range{at + int64(i)*page, page})
				}
			}
			missing = join(missing, 0)
		}
	}
	return resident, missing, nil
}

// Touched returns the stretches of the given length, whole or at the end of the
// file, of which any page is in memory. Other than Resident it counts the pages
// of a mounted file system's own blocks: the kernel reads these buffer by buffer,
// and mincore(2) does not take such a page for a resident one. It asks
// cachestat(2), which kernels before 6.5 do not have: errors.ErrUnsupported then.
func (f *File) Touched(length int64) (touched []Range, err error) {
	var look func(first, end int64) error
	look = func(first, end int64) error {
		r := Range{first * length, min(end*length, f.size) - first*length}
		at, found := unix.CachestatRange{Off: uint64(r.Offset), Len: uint64(r.Length)}, unix.Cachestat_t{}
		if r.Length <= 0 {
			return nil
		}
		if err := unix.Cachestat(uint(f.file.Fd()), &at, &found, 0); err != nil {
			return fmt.Errorf("pagecache: %s: how many pages are in memory: %w", f.path, err)
		}
		switch {
		case found.Cache == 0:
			return nil
		case end-first == 1 || int64(found.Cache)*page >= r.Length:
			touched = append(touched, r)
			return nil
		}
		middle := (first + end) / 2
		if err := look(first, middle); err != nil {
			return err
		}
		return look(middle, end)
	}
	err = look(0, (f.size+length-1)/length)
	return join(touched, 0), err
}

// Present returns the parts of clipped ranges that are in memory.
func (f *File) Present(ranges []Range) ([]Range, error) {
	_, missing, err := f.Resident(ranges)
	if err != nil {
		return nil, err
	}
	var present []Range
	for _, r := range ranges {
		at, end := r.Offset, r.Offset+r.Length
		for ; len(missing) > 0 && missing[0].Offset < end; missing = missing[1:] {
			m := missing[0]
			if m.Offset > at {
				present = append(present, Range{at, m.Offset - at})
			}
			at = m.Offset + m.Length
		}
		if at < end {
			present = append(present, Range{at, end - at})
		}
	}
	return present, nil
}

func (f *File) mincore(offset, length int64) ([]byte, error) {
	m, err := f.mmap(offset, length)
	if err != nil {
		return nil, err
	}
	defer unix.Munmap(m)
	vec := make([]byte, (length+page-1)/page)
	_, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&m[0])), uintptr(length), uintptr(unsafe.Pointer(&vec[0])))
	if errno != 0 {
		return nil, fmt.Errorf("pagecache: %s: which pages are in memory: %w", f.path, errno)
	}
	return vec, nil
}

func (f *File) mmap(offset, length int64) ([]byte, error) {
	m, err := unix.Mmap(int(f.file.Fd()), offset, int(length), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("pagecache: mapping %d bytes of %s at %d: %w", length, f.path, offset, err)
	}
	return m, nil
}

// Read brings clipped ranges into memory and returns how many bytes it had to
// read for that.
func (f *File) Read(ctx context.Context, ranges []Range) (int64, error) {
	_, missing, err := f.Resident(ranges)
	if err != nil {
		return 0, err
	}
	var read int64
	buffer := make([]byte, piece)
	for _, r := range join(missing, bridge) {
		for at := r.Offset; at < r.Offset+r.Length; {
			if err := ctx.Err(); err != nil {
				return read, err
			}
			n, err := f.file.ReadAt(buffer[:min(piece, r.Offset+r.Length-at)], at)
			read, at = read+int64(n), at+int64(n)
			if err == io.EOF {
				break // the last page of a file is not whole
			}
			if err != nil {
				return read, fmt.Errorf("pagecache: reading %s: %w", f.path, err)
			}
		}
	}
	return read, nil
}

// Lock keeps clipped ranges in memory until the File is closed, and reads the missing
// pages.
func (f *File) Lock(ctx context.Context, ranges []Range) error {
	for _, r := range ranges {
		for at := r.Offset; at < r.Offset+r.Length; at += window {
			if err := ctx.Err(); err != nil {
				return err
			}
			m, err := f.mmap(at, min(window, r.Offset+r.Length-at))
			if err != nil {
				return err
			}
			f.locked = append(f.locked, m)
			if err := unix.Mlock(m); err != nil {
				return fmt.Errorf("pagecache: locking %d bytes of %s in memory: %w: is there room for them, and CAP_IPC_LOCK?", len(m), f.path, err)
			}
		}
	}
	return nil
}
