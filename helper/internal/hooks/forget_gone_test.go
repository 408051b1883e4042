package hooks

import (
	"path/filepath"
	"testing"
)

// The mark went with the folder: without it nobody knows that nothing has run.
func TestWhatWasRestoredFromAFolderThatIsGoneMayHaveRun(t *testing.T) {
	gone := filepath.Join(t.TempDir(), "gone")
	if ran, err := Ran(t.Context(), gone); err != nil || !ran || !MayHaveRun(gone) {
		t.Errorf("it may have run: %v (%v), %v", ran, err, MayHaveRun(gone))
	}
}
