package ploop

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// made is a delta as the tests make it: written from the description of the
// format, by nothing that the package uses.
type made struct {
	version int
	sectors int64 // of a cluster
	size    int64 // of the disk, in bytes
	data    map[int64][]byte
	gap     int64 // sectors between the table and the clusters; version 1 only
	use     uint32
	shuffle bool // clusters lie in the file in another order than on the disk
}

func (m *made) cluster() int64 { return m.sectors * 512 }

func (m *made) bytes() []byte {
	n := (m.size + m.cluster() - 1) / m.cluster()
	head := 64 + 4*n
	start := (head+511)/512*512 + m.gap*512
	if m.version == 2 {
		start = (head + m.cluster() - 1) / m.cluster() * m.cluster()
	}
	b := make([]byte, start)
	copy(b, "WithoutFreeSpace")
	unit := int64(512)
	if m.version == 2 {
		copy(b, "WithouFreSpacExt")
		unit = m.cluster()
	}
	le := binary.LittleEndian
	le.PutUint32(b[16:], 2)
	le.PutUint32(b[20:], 16)
	le.PutUint32(b[24:], 1000)
	le.PutUint32(b[28:], uint32(m.sectors))
	le.PutUint32(b[32:], uint32(n))
	le.PutUint64(b[36:], uint64(m.size/512))
	le.PutUint32(b[44:], m.use)
	if m.version == 2 || m.gap > 0 {
		le.PutUint32(b[48:], uint32(start/512))
	}
	var order []int64
	for c := range n {
		if m.data[c] != nil {
			order = append(order, c)
		}
	}
	if m.shuffle {
		rand.New(rand.NewPCG(1, 2)).Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	}
	for _, c := range order {
		// Version 2 counts in clusters from the start of the file, so start is a
		// whole number of them.
		le.PutUint32(b[64+4*c:], uint32(int64(len(b))/unit))
		b = append(b, m.data[c]...)
	}
	return b
}

func (m *made) write(t *testing.T, path string) {
	t.Helper()
	if err := os.WriteFile(path, m.bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
}

// fill gives a delta clusters with a content of its own, and puts the same into
// the model of the disk.
func (m *made) fill(rnd *rand.Rand, part float64, disk []byte) {
	m.data = map[int64][]byte{}
	for c := int64(0); c*m.cluster() < m.size; c++ {
		if rnd.Float64() >= part {
			continue
		}
		b := make([]byte, m.cluster())
		switch rnd.IntN(4) {
		case 0: // zeroes that are there all the same, and hide what is below
		default:
			for i := 0; i < len(b); i += 8 {
				binary.LittleEndian.PutUint64(b[i:], rnd.Uint64())
			}
		}
		m.data[c] = b
		copy(disk[c*m.cluster():m.size], b)
	}
}

// layered is a chain with its model.
type layered struct {
	dir   string
	disk  []byte // what the top shows
	files []string
	under [][]byte // what each layer, as the top, would show
}

var guids = []string{firstGUID, "aaaaaaaa-0000-4000-8000-000000000001", "aaaaaaaa-0000-4000-8000-000000000002", "aaaaaaaa-0000-4000-8000-000000000003"}

// chain makes n layers in a folder, with their descriptor.
func chain(t *testing.T, rnd *rand.Rand, n int, plainBase bool, version int, sectors, size int64) *layered {
	t.Helper()
	l := &layered{dir: t.TempDir(), disk: make([]byte, size)}
	for i := range n {
		name := fmt.Sprintf("root.hds.%d", i)
		mine := size
		if i < n-1 && rnd.IntN(2) == 0 { // the disk was grown since
			mine = max(512, rnd.Int64N(size/512)*512)
		}
		if i == n-1 {
			mine = size
		}
		path := filepath.Join(l.dir, name)
		if i == 0 && plainBase {
			b := make([]byte, mine)
			for k := range b[:mine/2] {
				b[k] = byte(rnd.Uint32())
			}
			copy(l.disk, b)
			if err := os.WriteFile(path, b, 0o600); err != nil {
				t.Fatal(err)
			}
		} else {
			m := &made{version: version, sectors: sectors, size: mine, shuffle: rnd.IntN(2) == 0}
			if version == 1 {
				m.gap = rnd.Int64N(3)
			}
			m.fill(rnd, 0.4, l.disk[:mine])
			m.write(t, path)
		}
		l.files = append(l.files, path)
		l.under = append(l.under, append([]byte{}, l.disk[:mine]...))
	}
	l.describe(t, size, sectors, plainBase)
	return l
}

func (l *layered) describe(t *testing.T, size, sectors int64, plainBase bool) {
	t.Helper()
	var images, shots strings.Builder
	parent := nobody
	for i, f := range l.files {
		kind := typeDelta
		if i == 0 && plainBase {
			kind = typePlain
		}
		fmt.Fprintf(&images, "<Image><GUID>{%s}</GUID><Type>%s</Type><File>%s</File></Image>\n", guids[i], kind, filepath.Base(f))
		fmt.Fprintf(&shots, "<Shot><GUID>{%s}</GUID><ParentGUID>{%s}</ParentGUID></Shot>\n", guids[i], parent)
		parent = guids[i]
	}
	write(t, filepath.Join(l.dir, descriptorName), descriptorText(size/512, sectors, guids[len(l.files)-1], images.String(), shots.String()))
}

func descriptorText(size, sectors int64, top, images, shots string) string {
	return fmt.Sprintf(`<?xml version="1.0" encoding="UTF-8"?>
<Parallels_disk_image Version="1.0">
  <Disk_Parameters>
    <Disk_size>%d</Disk_size><Cylinders>0</Cylinders><Heads>16</Heads><Sectors>63</Sectors><Padding>0</Padding>
    <Encryption><Engine>{00000000-0000-0000-0000-000000000000}</Engine><Data></Data></Encryption>
  </Disk_Parameters>
  <StorageData><Storage>
    <Start>0</Start><End>%d</End><Blocksize>%d</Blocksize><Preallocated>0</Preallocated>
    %s
  </Storage></StorageData>
  <Snapshots><TopGUID>{%s}</TopGUID>%s</Snapshots>
</Parallels_disk_image>
`, size, size, sectors, images, top, shots)
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func qemu(t *testing.T, args ...string) string {
	t.Helper()
	out, err := tryQEMU(t, args)
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// reads reports whether QEMU makes something of an image.
func reads(t *testing.T, args ...string) bool {
	t.Helper()
	_, err := tryQEMU(t, args)
	return err == nil
}

func tryQEMU(t *testing.T, args []string) ([]byte, error) {
	t.Helper()
	if _, err := exec.LookPath(args[0]); err != nil {
		t.Skipf("needs %s, from qemu-utils", args[0])
	}
	return exec.Command(args[0], args[1:]...).CombinedOutput()
}
