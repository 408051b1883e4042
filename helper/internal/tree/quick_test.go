package tree

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

func TestAQuickDigestSeesEachChange(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	content := bytes.Repeat([]byte("some content"), 100_000)
	big := func() []byte { return bytes.Clone(content) }
	sum := func(b []byte, hole int64) string {
		t.Helper()
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		if hole > 0 {
			if err := os.Truncate(path, hole); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Chtimes(path, never, never); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(dir, never, never); err != nil {
			t.Fatal(err)
		}
		got, err := QuickDigest(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	first := sum(big(), 0)
	if sum(big(), 0) != first {
		t.Error("the same content has another digest")
	}
	for _, at := range []int{0, int(part) - 1, int(part), len(content) - 1} {
		b := big()
		b[at] ^= 1
		if sum(b, 0) == first {
			t.Errorf("byte %d is not in it", at)
		}
	}
	if sum(big()[:len(content)-1], 0) == first {
		t.Error("the length is not in it")
	}
	// Two parts that have changed places.
	b := big()
	copy(b, content[part:2*part])
	copy(b[part:], content[:part])
	if sum(b, 0) == first {
		t.Error("the order is not in it")
	}
	// Zeroes are as good as a hole.
	if sum(append(big(), make([]byte, 3*part)...), 0) != sum(big(), int64(len(content))+3*part) {
		t.Error("zeroes and a hole differ")
	}
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	if got, err := QuickDigest(t.Context(), dir); err != nil || got == sum(big(), 0) {
		t.Errorf("the mode is not in it (%v)", err)
	}
}
