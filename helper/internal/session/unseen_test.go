package session

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/livefleet/handover/helper/internal/loop"
	"github.com/livefleet/handover/helper/internal/session/record"
)

const ploopDescriptor = `<?xml version="1.0"?>
<Parallels_disk_image Version="1.0"><Disk_Parameters><Disk_size>16384</Disk_size><Padding>0</Padding></Disk_Parameters>
<StorageData><Storage><Start>0</Start><End>16384</End><Blocksize>2048</Blocksize>
<Image><GUID>{5fbaabe3-6958-40ff-92a7-860e329aab41}</GUID><Type>Compressed</Type><File>root.hds</File></Image>
</Storage></StorageData>
<Snapshots><Shot><GUID>{5fbaabe3-6958-40ff-92a7-860e329aab41}</GUID><ParentGUID>{00000000-0000-0000-0000-000000000000}</ParentGUID></Shot></Snapshots>
</Parallels_disk_image>
`

// onPloop gives the workload a ploop disk that is in use: a loop device writes to the layer as the kernel does, and its
// last write is under the freeze. It returns both sides' layers.
func (r *rig) onPloop() (src, dst, dev string) {
	r.t.Helper()
	folder := filepath.Join(r.files, "root.hdd")
	src, dst = filepath.Join(folder, "root.hds"), filepath.Join(r.dstFiles, "root.hdd", "root.hds")
	layer := make([]byte, 4<<20)
	copy(layer, "WithouFreSpacExt")
	for at, v := range map[int]uint32{16: 2, 28: 2048, 32: 8, 36: 16384, 44: 0x746F6E59, 48: 2048} {
		binary.LittleEndian.PutUint32(layer[at:], v)
	}
	for _, err := range []error{
		os.MkdirAll(folder, 0o755), os.WriteFile(filepath.Join(folder, "DiskDescriptor.xml"), []byte(ploopDescriptor), 0o600), os.WriteFile(src, layer, 0o600),
	} {
		if err != nil {
			r.t.Fatal(err)
		}
	}
	dev, err := loop.Attach(src)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = loop.Detach(dev) })
	r.spec.src.Directories[0].Ploop = "root.hdd"
	freeze := r.spec.src.Hooks.Freeze
	last := fmt.Sprintf(`printf 'the last write' | dd of=%s bs=4096 seek=512 conv=sync,notrunc oflag=direct status=none; touch frozen`, dev)
	freeze.Argv[2] = strings.Replace(freeze.Argv[2], "touch frozen", last, 1)
	return src, dst, dev
}

func TestAPloopDiskHasTheWritesThatNobodyTellsOf(t *testing.T) {
	for _, verify := range []bool{false, true} {
		r := newRig(t)
		r.heldByItsEngine()
		src, dst, _ := r.onPloop()
		r.spec.src.Policy.Verify, r.spec.dst.Policy.Verify = verify, verify
		r.startWriter()
		r.start()
		r.wait(r.src, record.UntilConverged)
		if s, d := r.cutover(); s.State != record.Done || d.State != record.Done {
			t.Fatalf("source %s (%s), destination %s (%s)", s.State, s.Error, d.State, d.Error)
		}
		mine, err := os.ReadFile(src)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.HasPrefix(mine[2<<20:], []byte("the last write")) {
			t.Fatal("the last write is not on the source")
		}
		clear(mine[44:48]) // the copy of an image that is in use is a closed one
		if theirs, err := os.ReadFile(dst); err != nil || !bytes.Equal(mine, theirs) {
			t.Errorf("the layer on the destination is another (%d bytes): %v", len(theirs), err)
		}
	}
}

// A session that is undone leaves the disk alone, and says how much it would have read.
func TestAPloopDiskIsRefused(t *testing.T) {
	for says, change := range map[string]func(*rig){
		"bytes are read for each pass, also in the pause, and hash_limit allows 4096: allow more, or move it offline": func(r *rig) { r.spec.src.Policy.HashLimit = 4096 },
		"it cannot be read as a disk descriptor": func(r *rig) {
			if err := os.WriteFile(filepath.Join(r.files, "root.hdd", "DiskDescriptor.xml"), []byte("<"), 0o600); err != nil {
				r.t.Fatal(err)
			}
		},
	} {
		r := newRig(t)
		r.heldByItsEngine()
		r.onPloop()
		change(r)
		r.start()
		var err error
		select {
		case err = <-r.send:
			<-r.receive
		case <-time.After(20 * time.Second):
			t.Fatalf("it goes on, without %q", says)
		}
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, without %q", err, says)
		}
		if s, err := record.Show(r.src); err != nil || s.State != record.Failed {
			t.Errorf("%+v, %v", s, err)
		}
	}
}
