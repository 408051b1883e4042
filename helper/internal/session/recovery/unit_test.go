package recovery

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/livefleet/handover/helper/internal/session/record"
)

const unitSpec = `{"version": 1, "id": "shop-1", "role": "ROLE", "mode": "offline", "workload": "shop", "driver": "podman", LINK,
	"hooks": {"freeze": {"argv": ["x"]}, "thaw": {"argv": ["x"]}, "resume": {"argv": ["x"]}, "discard": {"argv": ["x"]}}}`

// link is a side's way to the other.
var link = map[record.Role]string{
	record.Source:      `"peer": {"address": "192.0.2.1:9", "fingerprint": "sha256:` + strings.Repeat("0", 64) + `"}`,
	record.Destination: `"listen": "192.0.2.1:9", "peer": {"fingerprint": "sha256:` + strings.Repeat("0", 64) + `"}`,
}

// The unit on the source starts nothing after the release, and that on the destination
// nothing before: also after a boot, when no process serves the session.
func TestWhichUnitMayStartItsContainer(t *testing.T) {
	source := []record.State{record.Presync, record.Barrier, record.Frozen, record.Flushed, record.Prepared, record.Released, record.InDoubt, record.Resumed, record.Settled, record.Done}
	destination := []record.State{record.Presync, record.Barrier, record.Frozen, record.Flushed, record.Prepared, record.Released, record.Resumed, record.Settled, record.Done}
	for _, c := range []struct {
		role  record.Role
		steps []record.State
		yes   map[record.State]bool
	}{
		{record.Source, source, map[record.State]bool{record.Prepare: true, record.Presync: true, record.Barrier: true, record.Frozen: true, record.Flushed: true, record.Prepared: true}},
		{record.Destination, destination, map[record.State]bool{record.Resumed: true, record.Settled: true, record.Done: true}},
	} {
		dir := unitDir(t, c.role)
		j, err := record.OpenJournal(dir, c.role)
		if err != nil {
			t.Fatal(err)
		}
		for _, st := range append([]record.State{record.Prepare}, c.steps...) {
			if st != record.Prepare {
				if err := j.Append(st, ""); err != nil {
					t.Fatal(err)
				}
			}
			if err := UnitMayStart(t.Context(), dir, t.TempDir(), c.role); (err == nil) != c.yes[st] {
				t.Errorf("the %s is %s, and its unit is told: %v", c.role, st, err)
			}
		}
		j.Close()
	}
}

// Records are removed when a move has ended. Then the source's unit is there only if it
// was undone, and the destination's only if it was undone, too.
func TestAUnitWithoutASession(t *testing.T) {
	gone := filepath.Join(t.TempDir(), "shop-1")
	if err := UnitMayStart(t.Context(), gone, t.TempDir(), record.Source); err != nil {
		t.Errorf("the source's unit is kept from starting: %v", err)
	}
	if err := UnitMayStart(t.Context(), gone, t.TempDir(), record.Destination); err == nil {
		t.Error("the destination's unit may start what is the source's")
	}
}

func TestAUnitThatAsksWhatCannotBeReadStartsNothing(t *testing.T) {
	dir := unitDir(t, record.Source)
	if err := UnitMayStart(t.Context(), dir, t.TempDir(), record.Destination); err == nil {
		t.Error("the source's session was taken for the destination's")
	}
	if err := os.WriteFile(filepath.Join(dir, record.SpecFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := UnitMayStart(t.Context(), dir, t.TempDir(), record.Source); err == nil {
		t.Error("a specification that cannot be read lets the unit start")
	}
}

func unitDir(t *testing.T, role record.Role) string {
	t.Helper()
	dir := t.TempDir()
	spec := strings.NewReplacer("ROLE", string(role), "LINK", link[role]).Replace(unitSpec)
	if err := os.WriteFile(filepath.Join(dir, record.SpecFile), []byte(spec), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}
