package qcow2

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// read is a chain of images as the Reader shows it, the uppermost first.
func read(t *testing.T, size int64, chain ...string) []byte {
	t.Helper()
	disk := make([]byte, size)
	known := map[int64]bool{}
	for _, path := range chain {
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		st, err := f.Stat()
		if err != nil {
			t.Fatal(err)
		}
		q, err := NewReader(f, st.Size())
		if err != nil {
			t.Fatal(err)
		}
		err = q.Each(func(cluster, place int64) error {
			off := cluster * Cluster
			if known[cluster] || off >= size {
				return nil
			}
			known[cluster] = true
			if place == 0 {
				return nil
			}
			b := make([]byte, Cluster)
			if _, err := f.ReadAt(b, place); err != nil && err != io.EOF {
				return err
			}
			copy(disk[off:], b)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
	return disk
}

// Layers over layers, written in any order, written again, zeroed and forgotten: QEMU
// and the Reader see the same disk.
func TestLayersAgainstQEMU(t *testing.T) {
	for seed := range uint64(6) {
		rnd, noise := rand.New(rand.NewPCG(seed, 2)), rand.NewChaCha8([32]byte{byte(seed)})
		size := (40*Cluster + rnd.Int64N(20)*512)
		dir := t.TempDir()
		now, below := make([]byte, size), make([]byte, size)
		var chain []string
		for level := range 4 {
			name, under := fmt.Sprintf("%d.qcow2", level), ""
			if level > 0 {
				under = filepath.Base(chain[0])
			}
			f := create(t, filepath.Join(dir, name))
			q, err := NewLayer(f, size, under)
			if err != nil {
				t.Fatal(err)
			}
			copy(below, now)
			for range 60 {
				off := rnd.Int64N(size/Cluster+1) * Cluster
				n := min((1+rnd.Int64N(4))*Cluster, size-off)
				part := now[off : off+n]
				switch rnd.IntN(4) {
				case 0:
					clear(part)
					err = q.Zero(off, n)
				case 1:
					copy(part, below[off:])
					err = q.Forget(off, n)
				default:
					noise.Read(part)
					_, err = q.WriteAt(part, off)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			if err := q.Close(); err != nil {
				t.Fatal(err)
			}
			chain = append([]string{f.Name()}, chain...)
			raw := filepath.Join(dir, "raw")
			if err := os.WriteFile(raw, now, 0o600); err != nil {
				t.Fatal(err)
			}
			qemu(t, "qemu-img", "check", "-q", "-f", "qcow2", f.Name())
			qemu(t, "qemu-img", "compare", "-q", "-f", "raw", "-F", "qcow2", raw, f.Name())
			if !bytes.Equal(read(t, size, chain...), now) {
				t.Fatalf("seed %d, level %d: the Reader sees another disk", seed, level)
			}
		}
	}
}

// What QEMU can write and a Writer does not is refused, with a reason.
func TestReaderRefuses(t *testing.T) {
	dir := t.TempDir()
	for options, text := range map[string]string{
		"cluster_size=4096": "cluster_bits is 12",
		"compat=0.10":       "version is 2",
		"refcount_bits=1":   "refcount_order is 0",
		"extended_l2=on":    "incompatible_features is 16",
		"lazy_refcounts=on": "", // says nothing about the data
		"preallocation=off": "",
		"data_file=" + filepath.Join(dir, "other.raw"): "incompatible_features is 4",
	} {
		path := filepath.Join(dir, "image.qcow2")
		qemu(t, "qemu-img", "create", "-q", "-f", "qcow2", "-o", options, path, "1M")
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		st, err := f.Stat()
		if err != nil {
			t.Fatal(err)
		}
		_, err = NewReader(f, st.Size())
		f.Close()
		if (err == nil) != (text == "") || err != nil && !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", options, err)
		}
	}
	if _, err := NewReader(strings.NewReader("short"), 5); err == nil {
		t.Error("five bytes are an image")
	}
}

// Whatever the bytes are, the Reader ends, stays within the file and the disk, and
// names no cluster of the file twice.
func FuzzReader(f *testing.F) {
	small := func(below string) []byte {
		var b memory
		q, err := NewLayer(&b, 3*Cluster+512, below)
		if err != nil {
			f.Fatal(err)
		}
		if _, err := q.WriteAt(bytes.Repeat([]byte("x"), Cluster), Cluster); err != nil {
			f.Fatal(err)
		}
		if err := q.Zero(0, Cluster); err != nil {
			f.Fatal(err)
		}
		if err := q.Close(); err != nil {
			f.Fatal(err)
		}
		return b
	}
	// Only the tables matter. An input is the header, L1 and one L2.
	cut := func(image []byte) []byte {
		head := append(bytes.Clone(image[:headerSize+64]), image[3*Cluster:][:64]...)
		return append(head, image[2*Cluster:][:64]...)
	}
	f.Add(cut(small("")))
	f.Add(cut(small("below.qcow2")))
	f.Fuzz(func(t *testing.T, in []byte) {
		image := make([]byte, 6*Cluster)
		n := copy(image, in[:min(len(in), headerSize+64)])
		in = in[n:]
		n = copy(image[3*Cluster:], in[:min(len(in), 64)])
		copy(image[2*Cluster:], in[n:])
		q, err := NewReader(bytes.NewReader(image), int64(len(image)))
		if err != nil {
			return
		}
		places, last := map[int64]bool{}, int64(-1)
		_ = q.Each(func(cluster, place int64) error {
			if cluster <= last || cluster >= divUp(q.Size(), Cluster) {
				t.Fatalf("cluster %d comes after %d of a disk of %d bytes", cluster, last, q.Size())
			}
			last = cluster
			if place != 0 && (place < Cluster || place+Cluster > int64(len(image)) || places[place]) {
				t.Fatalf("cluster %d is at %d", cluster, place)
			}
			places[place] = place != 0
			return nil
		})
	})
}

// memory is a file in memory.
type memory []byte

func (m *memory) WriteAt(p []byte, off int64) (int, error) {
	if over := off + int64(len(p)) - int64(len(*m)); over > 0 {
		*m = append(*m, make([]byte, over)...)
	}
	return copy((*m)[off:], p), nil
}
