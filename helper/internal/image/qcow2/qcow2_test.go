package qcow2

import (
	"bytes"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func qemu(t *testing.T, args ...string) string {
	t.Helper()
	if _, err := exec.LookPath(args[0]); err != nil {
		t.Skipf("needs %s, from qemu-utils", args[0])
	}
	out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

func create(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// What is written is what QEMU reads, and QEMU finds nothing to complain about.
func TestAgainstQEMU(t *testing.T) {
	for seed := range 8 {
		rnd := rand.New(rand.NewPCG(uint64(seed), 1))
		// Some of them need more than one table: one speaks of 512 MiB.
		size := (1 + rnd.Int64N(3<<30/512)) * 512
		dir := t.TempDir()
		raw, qcow := create(t, filepath.Join(dir, "raw")), create(t, filepath.Join(dir, "qcow2"))
		if err := raw.Truncate(size); err != nil {
			t.Fatal(err)
		}
		q, err := NewWriter(qcow, size)
		if err != nil {
			t.Fatal(err)
		}
		for off := rnd.Int64N(3) * Cluster; off < size; off += (1 + rnd.Int64N(2000)) * Cluster {
			b := make([]byte, min((1+rnd.Int64N(40))*Cluster, size-off))
			for i := range b {
				b[i] = byte(rnd.Uint32())
			}
			if _, err := q.WriteAt(b, off); err != nil {
				t.Fatal(err)
			}
			if _, err := raw.WriteAt(b, off); err != nil {
				t.Fatal(err)
			}
			off += int64(len(b)) / Cluster * Cluster
		}
		if err := q.Close(); err != nil {
			t.Fatal(err)
		}
		qemu(t, "qemu-img", "check", "-q", "-f", "qcow2", qcow.Name())
		qemu(t, "qemu-img", "compare", "-q", "-f", "raw", "-F", "qcow2", raw.Name(), qcow.Name())
	}
}

// counting stands for a file in which only the tables matter.
type counting struct{ *os.File }

func (c counting) WriteAt(p []byte, off int64) (int, error) {
	if len(p) == 64*Cluster {
		return len(p), nil
	}
	return c.File.WriteAt(p, off)
}

// An image so large that its counts take several clusters.
func TestManyCounts(t *testing.T) {
	const size = 9<<30 + 512
	f := create(t, filepath.Join(t.TempDir(), "qcow2"))
	q, err := NewWriter(counting{f}, size)
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 64*Cluster)
	for off := int64(0); off < 9<<30; off += int64(len(b)) {
		if _, err := q.WriteAt(b, off); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := q.WriteAt(bytes.Repeat([]byte("x"), 512), 9<<30); err != nil {
		t.Fatal(err)
	}
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	qemu(t, "qemu-img", "check", "-q", "-f", "qcow2", f.Name())
	if out := qemu(t, "qemu-img", "check", "-f", "qcow2", f.Name()); !strings.Contains(out, "147457/147457 = 100.00% allocated") {
		t.Error(out)
	}
}

func TestRefuses(t *testing.T) {
	f := create(t, filepath.Join(t.TempDir(), "qcow2"))
	for _, size := range []int64{-1, 0, 511, maxSize + 512} {
		if _, err := NewWriter(f, size); err == nil {
			t.Errorf("a disk of %d bytes was begun", size)
		}
	}
	q, err := NewWriter(f, 10*Cluster+512)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := q.WriteAt(make([]byte, Cluster), 2*Cluster); err != nil {
		t.Fatal(err)
	}
	for _, w := range []struct{ off, n int64 }{{-Cluster, Cluster}, {3*Cluster + 1, Cluster}, {3 * Cluster, 100}, {10 * Cluster, Cluster}, {11 * Cluster, 1}} {
		if _, err := q.WriteAt(make([]byte, w.n), w.off); err == nil {
			t.Errorf("%d bytes at %d were written", w.n, w.off)
		}
		if q.Zero(w.off, w.n) == nil || q.Forget(w.off, w.n) == nil {
			t.Errorf("%d bytes at %d were given up", w.n, w.off)
		}
	}
	if _, err := q.WriteAt(make([]byte, 512), 10*Cluster); err != nil {
		t.Errorf("the short end was refused: %v", err)
	}
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	if q.Close() == nil {
		t.Error("closed twice")
	}
	if _, err := NewLayer(f, Cluster, strings.Repeat("x", maxBacking+1)); err == nil {
		t.Error("a name that does not fit was taken")
	}
}
