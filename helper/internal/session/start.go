package session

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/livefleet/handover/helper/internal/fsid"
)

// A container can be started by hand, by its restart policy, by a unit, by a
// reboot. Each of them goes through the OCI runtime, and that runs pcopy's hook
// first. While a session is under way for the container, its process says whether
// it may start; when there is none, the journal does:
//
//	source       before released, thawed, failed    it is at home here
//	             all others                         it may run on the destination
//	destination  done                               it is at home here
//	             resumed, settled                   the same, until the host was
//	                                                restarted: then the source is
//	                                                asked first, which an operator
//	                                                may have let thaw meanwhile;
//	                                                and resumed with a part of its
//	                                                memory on the source (lazy
//	                                                pages): somebody has to say
//	             all others                         it is the source's
//
// And nothing starts whose volumes are not in place, on either side: see inplace.go.
// That holds without a session, too: see onEmptyFolder.

// startPatience bounds what a process may take to say whether a container may
// start: one that is stopped, or stuck, must not hold up a boot.
const startPatience = 10 * time.Second

// OCIState is what an OCI runtime tells its hooks of a container.
type OCIState struct {
	Bundle string `json:"bundle"`
}

// ReadOCIState reads what the runtime writes to a hook.
func ReadOCIState(r io.Reader) (*OCIState, error) {
	var s OCIState
	if err := json.NewDecoder(r).Decode(&s); err != nil {
		return nil, fmt.Errorf("session: the OCI runtime told nothing of the container: %w", err)
	}
	return &s, nil
}

// MayStart is the OCI hook: an error keeps the container in that bundle from
// being started.
func MayStart(ctx context.Context, root, runDir string, c *OCIState) error {
	if err := onEmptyFolder(c.Bundle); err != nil {
		return err
	}
	entries, err := os.ReadDir(root)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	} else if err != nil {
		return fmt.Errorf("session: %w", err)
	}
	for _, e := range entries {
		dir := filepath.Join(root, e.Name())
		text, err := os.ReadFile(filepath.Join(dir, specFile))
		if err != nil || !bytes.Contains(text, []byte(c.Bundle)) {
			continue // not this container's, or no session yet
		}
		spec, err := LoadSpec(dir)
		if err == nil && spec.Bundle == c.Bundle {
			err = mayStart(ctx, dir, runDir, spec)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// onEmptyFolder is an error for a container that would see a folder on which a volume
// belongs, and not the volume: after a boot in which its mount failed, or came late.
func onEmptyFolder(bundle string) error {
	var config struct {
		Mounts []struct {
			Source      string `json:"source"`
			Destination string `json:"destination"`
		} `json:"mounts"`
	}
	b, err := os.ReadFile(filepath.Join(bundle, "config.json"))
	if errors.Is(err, os.ErrNotExist) { // no bundle of an OCI runtime
		return nil
	} else if err != nil {
		return fmt.Errorf("session: %w", err)
	}
	if err := json.Unmarshal(b, &config); err != nil {
		return fmt.Errorf("session: %s is damaged: %w", filepath.Join(bundle, "config.json"), err)
	}
	for _, m := range config.Mounts {
		if !filepath.IsAbs(m.Source) {
			continue // the kernel's own, as proc
		}
		empty, err := fsid.Unmounted(m.Source)
		if err != nil {
			return fmt.Errorf("session: %w", err)
		}
		if empty {
			return fmt.Errorf("session: the container does not start: the volume that it has on %s is not mounted, and %s is only the folder for it: "+
				"see `systemctl list-units --type=mount --failed`, mount the volume, and start the container again", m.Destination, m.Source)
		}
	}
	return nil
}

func mayStart(ctx context.Context, dir, runDir string, spec *Spec) error {
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	err := ask(ctx, dir, request{Do: askStart})
	if !errors.Is(err, errNobody) {
		return err
	}
	j, err := readJournal(dir, spec.Role)
	if err != nil {
		return err
	}
	if spec.Role == Source {
		return sourceMayStart(dir, spec, j)
	}
	return destinationMayStart(dir, spec, j)
}

func sourceMayStart(dir string, spec *Spec, j *Journal) error {
	switch st := j.State(); st {
	// Refused and fenced lead to thawed alone, and the way there is a start. Opening the
	// journal has put it on the disk: no power cut takes them back.
	case Prepare, Presync, Barrier, Frozen, Flushed, Prepared, Refused, Fenced, Thawed, Failed:
		return inPlace(dir, spec)
	case Settled, Done:
		return fmt.Errorf("session: %s has moved to the other host (session %s): start it there", spec.Workload, spec.ID)
	default:
		return fmt.Errorf("session: %s may run on the other host (session %s is %s here): bring that session to its end first: run the play that moved it again, or see `pcopy session resolve`",
			spec.Workload, spec.ID, st)
	}
}

func destinationMayStart(dir string, spec *Spec, j *Journal) error {
	switch st := j.State(); {
	case st == Resumed && lost(dir, spec):
		return errors.New("session: " + lostText(spec))
	case st == Done, (st == Resumed || st == Settled) && !j.Restarted(Released):
	case st == Resumed || st == Settled || st == Released || st == InDoubt:
		return fmt.Errorf("session: %s was handed over to this host, which was then restarted, and the other one may have gone on without it (session %s is %s): bring that session to its end first: run the play that moved it again, or see `pcopy session resolve`",
			spec.Workload, spec.ID, st)
	default:
		return fmt.Errorf("session: %s is the other host's, and this is only prepared for it (session %s is %s): start it there", spec.Workload, spec.ID, st)
	}
	return inPlace(dir, spec)
}

// mayStart is the answer of the process that serves a source: not from the moment
// in which it stops the workload, until it thaws it.
func (s *source) mayStart(dir string) error {
	if s.stopped.Load() {
		return errors.New("the workload is being handed over to the other host")
	}
	spec, err := LoadSpec(dir)
	if err != nil {
		return err
	}
	return inPlace(dir, spec)
}

// receiverMayStart is the answer of the process that serves a destination: the
// engine brings the container up for the restore, and later starts what it was
// told to.
func receiverMayStart(dir, runDir string) error {
	spec, err := LoadSpec(dir)
	if err != nil {
		return err
	}
	j, err := readJournal(dir, Destination)
	if err != nil {
		return err
	}
	switch st := j.State(); st {
	case Frozen, Flushed: // the engine begins to restore, and is held until the volumes have come
		return nil
	case Resumed, Settled, Done:
		return inPlace(dir, spec)
	case Released:
		if err := inPlace(dir, spec); err != nil {
			return err
		}
		return noteStart(runDir, spec)
	default:
		return fmt.Errorf("%s is the other host's, and only prepared here (session %s is %s): start it there", spec.Workload, spec.ID, st)
	}
}

// A workload that is stopped and started, not restored, has run when it was let
// through here. The note goes with a boot, as what it is about.
func startNote(runDir string, spec *Spec) string { return filepath.Join(runDir, "started", spec.ID) }

func noteStart(runDir string, spec *Spec) error {
	path := startNote(runDir, spec)
	err := os.MkdirAll(filepath.Dir(path), 0o700)
	if err == nil {
		err = os.WriteFile(path, nil, 0o600)
	}
	if err != nil {
		return fmt.Errorf("session: %w", err)
	}
	return nil
}

// startedHere reports whether the workload may have been started. Without a
// bundle no hook saw it.
func startedHere(runDir string, spec *Spec) bool {
	_, err := os.Lstat(startNote(runDir, spec))
	return spec.Bundle == "" || !errors.Is(err, os.ErrNotExist)
}
