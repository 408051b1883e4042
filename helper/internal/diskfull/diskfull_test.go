package diskfull

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestThePlaceAndTheWayOutComeFirst(t *testing.T) {
	path := filepath.Join(t.TempDir(), "not", "yet")
	cause := &fs.PathError{Op: "write", Path: path, Err: unix.ENOSPC}
	err := Explain(path, fmt.Errorf("tree: x: %w", cause))
	if !errors.Is(err, unix.ENOSPC) {
		t.Errorf("%v is no ENOSPC any more", err)
	}
	text := err.Error()
	if !strings.HasPrefix(text, "the file system that holds "+path+" is full (") || !strings.Contains(text, " MiB are free there): free space there: tree: x: ") {
		t.Error(text)
	}
	if got := Explain(path, unix.EDQUOT).Error(); !strings.HasPrefix(got, "the quota of the file system that holds "+path+" is used up: free space there: ") {
		t.Error(got)
	}
}

func TestOtherErrorsStayAsTheyAre(t *testing.T) {
	for _, err := range []error{nil, unix.EIO, errors.New("no space left on device")} {
		if got := Explain("/", err); got != err { //nolint:errorlint // the very same
			t.Errorf("%v became %v", err, got)
		}
	}
}
