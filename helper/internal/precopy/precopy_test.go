package precopy

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// pagesOf makes so many pages that hold something different each.
func pagesOf(n int) []byte {
	b := make([]byte, n*PageSize)
	rand.New(rand.NewSource(int64(n))).Read(b)
	return b
}

// sides are a source's table and the stock that goes with it.
func sides(t *testing.T, ahead []byte) (*Known, *Stock) {
	t.Helper()
	k := NewKnown(7)
	s, err := NewStock()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	for i := 0; i < len(ahead); i += PageSize {
		page := ahead[i : i+PageSize]
		if pos, fresh := k.Add(page); fresh {
			if err := s.Put(page, pos, 1<<30); err != nil {
				t.Fatal(err)
			}
		}
	}
	return k, s
}

func TestWhatIsKnownDoesNotTravel(t *testing.T) {
	ahead := pagesOf(200)
	k, s := sides(t, ahead)
	// As in a dump: the same pages in another order, some changed, one twice, an odd end.
	dump := append(bytes.Clone(ahead[50*PageSize:]), ahead[:50*PageSize]...)
	copy(dump[10*PageSize:], "changed")
	dump = append(dump, ahead[:PageSize]...)
	dump = append(dump, "the end"...)
	piece, literals := k.Encode(nil, dump, 3*PieceSize)
	if want := PageSize + len("the end"); literals != want {
		t.Errorf("%d bytes travel, and %d are new", literals, want)
	}
	if len(piece) > literals+1000 {
		t.Errorf("a piece of %d bytes for %d that are new", len(piece), literals)
	}
	got, off, err := s.Decode(nil, piece)
	if err != nil || off != 3*PieceSize || !bytes.Equal(got, dump) {
		t.Errorf("%d bytes at %d (%v), and %d were sent", len(got), off, err, len(dump))
	}
}

// Wherever the neighbours of a page lie in the stock, and whether they do, it is found at
// its own place: where the table by content says.
func TestWhereAPageLies(t *testing.T) {
	ahead := pagesOf(30)
	k, s := sides(t, ahead)
	random := rand.New(rand.NewSource(1))
	for range 300 {
		var data []byte
		literals := 0
		for len(data) < 20*PageSize {
			first := random.Intn(30)
			run := ahead[first*PageSize : min(first+1+random.Intn(5), 30)*PageSize]
			if random.Intn(3) == 0 { // written since
				run = pagesOf(len(run) / PageSize)
				run[0] ^= byte(1 + random.Intn(255))
				run[len(run)-1] ^= byte(1 + random.Intn(255))
				for i := 0; i < len(run); i += PageSize {
					run[i+7] ^= 1
				}
				literals += len(run)
			}
			data = append(data, run...)
		}
		piece, sent := k.Encode(nil, data, 0)
		if got, _, err := s.Decode(nil, piece); err != nil || sent != literals || !bytes.Equal(got, data) {
			t.Fatalf("%d bytes travel of %d that are new: %v", sent, literals, err)
		}
	}
	for i := range 30 {
		for next := range int64(40) {
			if pos, ok := k.find(k.sums[i], next*PageSize); !ok || pos != int64(i*PageSize) {
				t.Errorf("page %d is at %d, when it is looked for at %d first", i, pos/PageSize, next)
			}
		}
	}
}

// Pages are mapped when they have come ahead, and not when they are looked at in a pause.
func TestWhatHasComeIsMapped(t *testing.T) {
	const pages = 64
	_, s := sides(t, pagesOf(pages))
	if err := unix.Madvise(s.view[:PageSize], unix.MADV_POPULATE_READ); err != nil {
		t.Skipf("this kernel maps when it is looked at: %v", err)
	}
	if entries := mappedPages(t, s.view[:(pages+8)*PageSize]); entries != pages {
		t.Errorf("%d pages of %d are mapped", entries, pages)
	}
	was := unsafe.SliceData(s.view)
	if err := s.Put(pagesOf(1), pages*PageSize, 1<<30); err != nil {
		t.Fatal(err)
	}
	if entries := mappedPages(t, s.view[:(pages+8)*PageSize]); entries != pages+1 || unsafe.SliceData(s.view) != was {
		t.Errorf("%d pages of %d are mapped, and all of them elsewhere: %t", entries, pages+1, unsafe.SliceData(s.view) != was)
	}
}

// mappedPages is how many pages of a range this process has in its tables.
func mappedPages(t *testing.T, b []byte) (n int) {
	t.Helper()
	f, err := os.Open("/proc/self/pagemap")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	entries := make([]byte, len(b)/PageSize*entry)
	if _, err := f.ReadAt(entries, int64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))/PageSize*entry)); err != nil {
		t.Fatal(err)
	}
	for ; len(entries) > 0; entries = entries[entry:] {
		if binary.LittleEndian.Uint64(entries)&present != 0 {
			n++
		}
	}
	return n
}

// A page that changes after it went ahead leaves the older one where it is.
func TestAnOldPageStaysTrue(t *testing.T) {
	old := pagesOf(1)
	k, s := sides(t, old)
	changed := bytes.Clone(old)
	changed[5]++
	if pos, fresh := k.Add(changed); !fresh || pos != PageSize {
		t.Fatalf("the changed page: place %d, fresh %t", pos, fresh)
	} else if err := s.Put(changed, pos, 1<<30); err != nil {
		t.Fatal(err)
	}
	for _, page := range [][]byte{old, changed} {
		piece, literals := k.Encode(nil, page, 0)
		if got, _, err := s.Decode(nil, piece); err != nil || literals != 0 || !bytes.Equal(got, page) {
			t.Errorf("%v, %d literals, equal: %t", err, literals, bytes.Equal(got, page))
		}
	}
}

// Whatever makes the two sides disagree about a page is seen before it counts.
func TestAPageThatIsTakenForAnotherIsSeen(t *testing.T) {
	ahead := pagesOf(8)
	k, s := sides(t, ahead)
	other := bytes.Clone(ahead[3*PageSize : 4*PageSize])
	other[0] ^= 1
	if err := s.Put(other, 3*PageSize, 1<<30); err != nil {
		t.Fatal(err)
	}
	piece, _ := k.Encode(nil, ahead, 0)
	if _, _, err := s.Decode(nil, piece); err == nil || !strings.Contains(err.Error(), "taken for another") {
		t.Errorf("a page that differs: %v", err)
	}
}

func TestPiecesThatAreNone(t *testing.T) {
	ahead := pagesOf(4)
	k, s := sides(t, ahead)
	good, _ := k.Encode(nil, append(bytes.Clone(ahead), "tail"...), 0)
	for i := range good {
		bad := bytes.Clone(good)
		bad[i] ^= 0x80
		if got, _, err := s.Decode(nil, bad); err == nil {
			t.Errorf("byte %d is flipped, and %d bytes come of it", i, len(got))
		}
	}
	for n := range good {
		if _, _, err := s.Decode(nil, good[:n]); err == nil {
			t.Errorf("a piece that was cut after %d bytes is taken", n)
		}
	}
	if _, _, err := s.Decode(nil, append(good, 0)); err == nil {
		t.Error("a piece with something behind it is taken")
	}
}

func FuzzDecode(f *testing.F) {
	k := NewKnown(1)
	s, err := NewStock()
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { s.Close() })
	ahead := pagesOf(3)
	for i := 0; i < len(ahead); i += PageSize {
		pos, _ := k.Add(ahead[i : i+PageSize])
		if err := s.Put(ahead[i:i+PageSize], pos, 1<<20); err != nil {
			f.Fatal(err)
		}
	}
	piece, _ := k.Encode(nil, append(ahead[PageSize:], "x"...), 9)
	f.Add(piece)
	f.Fuzz(func(t *testing.T, b []byte) {
		if data, off, err := s.Decode(nil, b); err == nil && (len(data) > PieceSize || off < 0) {
			t.Errorf("%d bytes at %d", len(data), off)
		}
	})
}

func TestTheStockHoldsNoMoreThanPromised(t *testing.T) {
	_, s := sides(t, pagesOf(2))
	if err := s.Put(pagesOf(1), 2*PageSize, 2*PageSize); err == nil || !strings.Contains(err.Error(), "promised") {
		t.Errorf("more than was promised: %v", err)
	}
	if err := s.Put(pagesOf(1), 5*PageSize, 1<<20); err == nil {
		t.Error("there may be a hole in it")
	}
	if err := s.Put(pagesOf(1), 0, 1<<20); err != nil || s.Size() != 2*PageSize {
		t.Errorf("a source that begins again: %v, %d bytes", err, s.Size())
	}
}

// What of this process a dump would carry is found, whatever it is mapped as.
func TestScanFindsTheMemory(t *testing.T) {
	own := pagesOf(60)
	private, err := unix.Mmap(-1, 0, 64*PageSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(private)
	both, err := unix.Mmap(-1, 0, 64*PageSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(both)
	path := filepath.Join(t.TempDir(), "file")
	of := pagesOf(16)
	if err := os.WriteFile(path, of, 0o600); err != nil {
		t.Fatal(err)
	}
	clear(of) // it is to be nowhere else in this process
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	mapped, err := unix.Mmap(int(file.Fd()), 0, 16*PageSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(mapped)
	copy(private, own[:20*PageSize])
	copy(private[30*PageSize:], own[20*PageSize:40*PageSize]) // with a hole before it
	copy(both, own[40*PageSize:])
	clear(own)
	mapped[3*PageSize] ^= 1 // one page of the file is the process's own now
	_ = mapped[8*PageSize]

	k, scan := NewKnown(3), NewScan()
	if err := scan.Task("/proc/self", func(_ uint64, pages []byte) error {
		for i := 0; i < len(pages); i += PageSize {
			k.Add(pages[i : i+PageSize])
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"private": private[:20*PageSize], "private, behind a hole": private[30*PageSize : 50*PageSize], "shared": both[:20*PageSize], "its own page of a file": mapped[3*PageSize : 4*PageSize]} {
		if _, literals := k.Encode(nil, data, 0); literals != 0 {
			t.Errorf("%s: %d bytes were not found", name, literals)
		}
	}
	if _, literals := k.Encode(nil, mapped[8*PageSize:9*PageSize], 0); literals == 0 {
		t.Error("a page that is only the file's was read")
	}
	// What two tasks share is read once.
	m := mapping{start: 1 << 20, end: 2 << 20, shared: true, inode: "00:01 4711"}
	other := m
	other.start, other.end = 5<<20, 6<<20
	if !scan.wanted(m, m.start, present|notAnon) || scan.wanted(other, other.start, present|notAnon) || !scan.wanted(other, other.start+PageSize, present|notAnon) {
		t.Error("a page that two tasks share")
	}
}

func TestScanOfATaskThatIsGone(t *testing.T) {
	if err := NewScan().Task(filepath.Join(t.TempDir(), "4711"), func(uint64, []byte) error { return nil }); err != nil {
		t.Error(err)
	}
}

func TestMappings(t *testing.T) {
	for line, want := range map[string]bool{
		"7f00-8000 rw-p 00000000 00:00 0":                                true,
		"7f00-8000 rw-p 00001000 08:01 99   /usr/lib/a file":             true,
		"7f00-8000 ---p 00000000 00:00 0":                                false,
		"7f00-8000 rw-s 00000000 08:01 99   /data/file":                  false,
		"7f00-8000 rw-s 00000000 00:01 99   /dev/zero (deleted)":         true,
		"7f00-8000 rw-s 00000000 00:01 99   /memfd:x (deleted)":          true,
		"7f00-8000 r-xp 00000000 00:00 0                         [vdso]": false,
	} {
		if _, ok, err := parseMapping(line); err != nil || ok != want {
			t.Errorf("%q: %t, %v", line, ok, err)
		}
	}
	for _, line := range []string{"", "x", "7f00 rw-p 0 00:00 0", "zz-8000 rw-p 0 00:00 0", "7f00-8000 rw 0 00:00 0"} {
		if _, _, err := parseMapping(line); err == nil {
			t.Errorf("%q is taken for a mapping", line)
		}
	}
}

// What grows is given on piece by piece, each byte once, and nothing that is not there yet.
func TestPagesAreFollowed(t *testing.T) {
	dir := t.TempDir()
	whole := map[string][]byte{"pages-1.img": pagesOf(700), "pages-12.img": append(pagesOf(3), "tail"...), "pages-3.img": nil}
	got := map[string][]byte{}
	p := FollowPages(dir)
	defer p.Close()
	give := func(name string, data []byte, off int64) error {
		if off != int64(len(got[name])) {
			return fmt.Errorf("%s: a piece at %d after %d bytes", name, off, len(got[name]))
		}
		if len(data) > PieceSize {
			return fmt.Errorf("%s: a piece of %d", name, len(data))
		}
		got[name] = append(got[name], data...)
		if got[name] == nil {
			got[name] = []byte{}
		}
		return nil
	}
	for part := 1; part <= 4; part++ {
		for name, data := range whole {
			if err := os.WriteFile(filepath.Join(dir, name), data[:len(data)*part/4], 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(dir, "core-1.img"), []byte("not for it"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := p.More(false, give); err != nil {
			t.Fatal(err)
		}
	}
	if len(got["pages-12.img"])%PageSize != 0 {
		t.Error("what is no whole page was given before the end")
	}
	if err := p.More(true, give); err != nil {
		t.Fatal(err)
	}
	for name, data := range whole {
		if got[name] == nil || !bytes.Equal(got[name], data) || !p.Has(name) {
			t.Errorf("%s: %d bytes of %d, known: %t", name, len(got[name]), len(data), p.Has(name))
		}
	}
	if len(got) != len(whole) || p.Has("core-1.img") {
		t.Errorf("%d files were followed", len(got))
	}
}

func TestIsPages(t *testing.T) {
	for name, want := range map[string]bool{"pages-1.img": true, "pages-20.img": true, "pages-.img": false, "pagemap-1.img": false, "pages-1x.img": false, "../pages-1.img": false, "pages-1.img/": false} {
		if IsPages(name) != want {
			t.Errorf("%q: %t", name, !want)
		}
	}
}
