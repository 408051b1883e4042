package precopy

import (
	"bytes"
	"math/rand"
	"strings"
	"testing"
)

// versioned are a source's table that knows of versions, and the stock, after one look at a task.
func versioned(t *testing.T, memory []byte) (*Known, *Stock) {
	t.Helper()
	k := NewKnown(7).WithVersions()
	s, err := NewStock()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	for i := 0; i < len(memory); i += PageSize {
		pos := k.Size()
		if k.AddAt("/proc/1", uint64(i), memory[i:i+PageSize]) {
			if err := s.Put(memory[i:i+PageSize], pos, 1<<30); err != nil {
				t.Fatal(err)
			}
		}
	}
	return k, s
}

// Of a page that was written to, only the blocks that differ travel, however many do, wherever
// its neighbours are, and whether it has moved.
func TestOfAChangedPageItsBlocksTravel(t *testing.T) {
	memory := pagesOf(64)
	k, s := versioned(t, memory)
	random := rand.New(rand.NewSource(1))
	for range 200 {
		now := bytes.Clone(memory)
		want := 0
		for page := range 64 {
			written := random.Intn(blocks+1) * random.Intn(2)
			for _, block := range random.Perm(blocks)[:written] {
				now[page*PageSize+block*blockSize+random.Intn(blockSize)] ^= 1
			}
			switch {
			case written > mostBlocks:
				want += PageSize
			case written > 0:
				want += maskSize + written*blockSize
			}
		}
		piece, sent := k.EncodeAt("/proc/1", nil, now, 0)
		if got, off, err := s.Decode(nil, piece); err != nil || off != 0 || !bytes.Equal(got, now) || sent != want {
			t.Fatalf("%d bytes travel, and %d have changed: %v", sent, want, err)
		}
		// In its place is another page, which is in the stock, too, and a task that nobody has looked at.
		copy(now[5*PageSize:], memory[9*PageSize:10*PageSize])
		for _, task := range []string{"/proc/1", "/proc/2"} {
			piece, _ := k.EncodeAt(task, nil, now, 0)
			if got, _, err := s.Decode(nil, piece); err != nil || !bytes.Equal(got, now) {
				t.Fatal(task, err)
			}
		}
	}
}

// The version that counts is the last one.
func TestALaterVersionIsPatched(t *testing.T) {
	memory := pagesOf(2)
	k, s := versioned(t, memory)
	later := bytes.Clone(memory)
	for i := range blocks {
		later[i*blockSize]++
	}
	pos := k.Size()
	if !k.AddAt("/proc/1", 0, later[:PageSize]) {
		t.Fatal("it is not new")
	} else if err := s.Put(later[:PageSize], pos, 1<<30); err != nil {
		t.Fatal(err)
	}
	later[1]++
	piece, sent := k.EncodeAt("/proc/1", nil, later[:PageSize], 0)
	if got, _, err := s.Decode(nil, piece); err != nil || sent != maskSize+blockSize || !bytes.Equal(got, later[:PageSize]) {
		t.Errorf("%d bytes travel: %v", sent, err)
	}
}

// A version that is another one than the source believes is seen, and a piece that is damaged.
func TestAWrongVersionIsSeen(t *testing.T) {
	memory := pagesOf(4)
	k, s := versioned(t, memory)
	now := bytes.Clone(memory)
	now[PageSize]++
	good, _ := k.EncodeAt("/proc/1", nil, now, 0)
	for i := range good {
		bad := bytes.Clone(good)
		bad[i] ^= 0x80
		if got, off, err := s.Decode(nil, bad); err == nil && (off != 0 || !bytes.Equal(got, now)) {
			t.Errorf("byte %d is flipped, and %d bytes come of it", i, len(got))
		}
	}
	for n := range good {
		if _, _, err := s.Decode(nil, good[:n]); err == nil {
			t.Errorf("a piece that was cut after %d bytes is taken", n)
		}
	}
	other := bytes.Clone(memory[PageSize : 2*PageSize])
	other[PageSize-1] ^= 1
	if err := s.Put(other, PageSize, 1<<30); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Decode(nil, good); err == nil || !strings.Contains(err.Error(), "taken for another") {
		t.Errorf("a version that differs: %v", err)
	}
}
