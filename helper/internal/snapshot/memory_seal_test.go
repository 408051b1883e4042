package snapshot

import (
	"os"
	"path/filepath"
	"testing"
)

// The file systems are frozen beside the dump. A CRIU that writes there all the same is let go.
func TestADumpThatWritesToAFrozenDisk(t *testing.T) {
	b, m := newBench(t, "ext4"), newMemoryBench(t)
	r := b.request()
	r.Memory, r.RunDir = m.Memory, filepath.Join(m.dir, "run")
	m.must(os.WriteFile(filepath.Join(m.control, "names"), []byte(b.mnt), 0o600))
	taken, err := Take(t.Context(), r)
	m.must(err)
	if !m.there("memory/checkpoint", inventoryImage) || !m.runs() {
		t.Error("the memory is missing, or the workload stands still")
	}
	m.must(os.WriteFile(filepath.Join(b.mnt, "after"), nil, 0o600))
	path := filepath.Join(t.TempDir(), "restored")
	_, err = Restore(t.Context(), Return{Store: b.store(), Point: taken.ID, Volumes: []Place{{"data", path}}})
	m.must(err)
	// All that the dump wrote is in it, and nothing later.
	was := b.files(path)
	is, err := filepath.Glob(filepath.Join(b.mnt, "*"))
	m.must(err)
	for _, file := range is {
		if _, there := was["/"+filepath.Base(file)]; there == (filepath.Base(file) == "after") && filepath.Base(file) != "lost+found" {
			t.Errorf("%s: %v", file, there)
		}
	}
}

// A dump that fails leaves nothing frozen beside it.
func TestADumpThatFailsBesideAFrozenDisk(t *testing.T) {
	b, m := newBench(t, "ext4"), newMemoryBench(t)
	r := b.request()
	r.Memory, r.RunDir = m.Memory, filepath.Join(m.dir, "run")
	m.must(os.WriteFile(filepath.Join(m.control, "names"), []byte(b.mnt), 0o600))
	m.ask("fails")
	if _, err := Take(t.Context(), r); err == nil {
		t.Error("it was taken")
	}
	m.must(os.WriteFile(filepath.Join(b.mnt, "after"), nil, 0o600))
	m.isAsBefore()
}
