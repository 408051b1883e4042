package blockprobe

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf/btf"
)

// The numbers that the programs were built with are ours.
func TestTheProgramsHaveTheSameLayout(t *testing.T) {
	spec, err := loadBlock()
	if err != nil {
		t.Fatal(err)
	}
	var layout *btf.Enum
	if err := spec.Types.TypeByName("layout", &layout); err != nil {
		t.Fatal(err)
	}
	want := map[string]uint64{
		"LEVELS": levels, "BIO_WALK": bioWalk, "SLOTS_OF_DISK": slotsOfDisk, "TURNS": turns, "OWNERS_OF_BIO": ownersOfBio, "PARENT_DEPTH": parentDepth,
		"SLOTS_AT_ONCE": slotsAtOnce, "BIOS_AT_ONCE": biosAtOnce,
		"ENTRY_WORDS": entryWords, "ENTRY_SHIFT": entryShift, "SEEN_PARTS": seenParts, "LINE_WORDS": lineWords,
		"SLOT_STATUS": slotStatus, "SLOT_START": slotStart, "SLOT_END": slotEnd, "SLOT_SHAPE": slotShape, "SLOT_BASES": slotBases, "SLOT_SEEN": slotSeen,
		"FRONT_DISK": frontDisk, "FRONT_START": frontStart, "FRONT_END": frontEnd, "FRONT_SHIFT": frontShift, "FRONT_SEEN": frontSeen,
		"FRONT_MARKS": frontMarks, "FRONT_WORDS": frontWords, "FRONTS": fronts, "FRONT_FACTOR": frontFactor,
		"LOST_STATUS": lostStatus, "LOST_BIOS": lostBios, "FLAG_PART": flagPart, "FLAG_BIO": flagBio, "FLAG_MORE": flagMore,
		"STATUS_ALL": statusAll, "STATUS_OUTSIDE": statusOutside, "STATUS_FULL": statusFull, "STATUS_DEEP": statusDeep, "STATUS_INTERNAL": statusInternal,
	}
	for _, v := range layout.Values {
		if ours, ok := want[v.Name]; !ok || ours != v.Value {
			t.Errorf("%s is %d in bpf/layout.h, and here %d (known: %v)", v.Name, v.Value, ours, ok)
		}
		delete(want, v.Name)
	}
	for name := range want {
		t.Errorf("%s is not in bpf/layout.h", name)
	}
	for name, inner := range map[string]uint32{"table": slotSpec(1).ValueSize, "front": frontSpec().ValueSize} {
		if got := spec.Maps[name].InnerMap.ValueSize; got != inner {
			t.Errorf("the arrays in %s have entries of %d bytes, and here of %d", name, got, inner)
		}
	}
}

// Somebody who changes a source has to run bpf/generate.
func TestTheObjectIsOfItsSources(t *testing.T) {
	sums, err := os.ReadFile("bpf/SHA256SUMS")
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]bool{}
	for line := range strings.Lines(string(sums)) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		data, err := os.ReadFile(name)
		if err != nil {
			t.Error(err)
		} else if got := fmt.Sprintf("%x", sha256.Sum256(data)); got != sum {
			t.Errorf("%s is not what block_bpfel.o was made of, or with: run go generate ./internal/tracker/blockprobe in helper/", name)
		}
		listed[name] = true
	}
	sources, _ := filepath.Glob("bpf/*.[ch]")
	for _, name := range append(sources, "block_bpfel.o") {
		if !listed[name] {
			t.Errorf("%s is not in bpf/SHA256SUMS: run go generate ./internal/tracker/blockprobe in helper/", name)
		}
	}
}

// The compiler that the object was made with makes the same one of the sources.
func TestTheObjectIsReproducible(t *testing.T) {
	version, _ := exec.Command("clang", "--version").Output()
	if !bytes.Contains(version, []byte("clang version 14.")) {
		t.Skip("needs clang 14")
	}
	if _, err := os.Stat("/usr/include/bpf/bpf_helpers.h"); err != nil {
		t.Skip("needs libbpf-dev")
	}
	dir := t.TempDir()
	if out, err := exec.Command("bpf/generate", dir).CombinedOutput(); err != nil {
		t.Fatalf("bpf/generate: %v\n%s", err, out)
	}
	for _, name := range []string{"block_bpfel.o", "block_bpfel.go"} {
		ours, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if made, err := os.ReadFile(filepath.Join(dir, name)); err != nil || !bytes.Equal(made, ours) {
			t.Errorf("%s is not what the sources give (%v): run go generate ./internal/tracker/blockprobe in helper/", name, err)
		}
	}
}
