package recovery

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

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/fsid"
	"github.com/livefleet/handover/helper/internal/session/engine"
	"github.com/livefleet/handover/helper/internal/session/record"
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
//	                                                pages): an operator has to say
//	             all others                         it is the source's
//
// And nothing starts whose volumes are not in place, on either side: see inplace.go.
// That holds without a session, too: see onEmptyFolder. Nor does a twin start whose session
// has not begun: see onlyPlanned.

// startPatience bounds the time that a process may take to say whether a container
// may start: one that is stopped, or stuck, must not hold up a boot.
const startPatience = 10 * time.Second

// OCIState is an OCI runtime's message to its hooks about a container.
type OCIState struct {
	Bundle string `json:"bundle"`
	Pid    int    `json:"pid"` // the container's first process; 0 where there is none yet

	// Restores is said by the caller: the runtime restores the container, and does not make it anew.
	Restores bool `json:"-"`
}

// ReadOCIState reads the runtime's message to a hook.
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
	if err := onlyPlanned(root, c.Bundle); err != nil {
		return err
	}
	return eachOf(root, c.Bundle, func(dir string, spec *record.Spec) error { return mayStart(ctx, dir, runDir, spec, c.Restores) })
}

// eachOf calls do for each session below root that knows the container in a bundle, up to
// the first error.
func eachOf(root, bundle string, do func(dir string, spec *record.Spec) error) error {
	entries, err := os.ReadDir(root)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	} else if err != nil {
		return fmt.Errorf("session: %w", err)
	}
	for _, e := range entries {
		dir := filepath.Join(root, e.Name())
		text, err := os.ReadFile(filepath.Join(dir, record.SpecFile))
		switch {
		case errors.Is(err, os.ErrNotExist), errors.Is(err, unix.ENOTDIR):
			continue // no session yet, or none at all
		case err != nil:
			return fmt.Errorf("session: %w", err)
		case !bytes.Contains(text, []byte(bundle)):
			continue // not this container's
		}
		spec, err := record.LoadSpec(dir)
		if err == nil && spec.Has(bundle) {
			err = do(dir, spec)
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
	type mount struct {
		Source      string `json:"source"`
		Destination string `json:"destination"`
	}
	var config struct {
		Root struct {
			Path string `json:"path"`
		} `json:"root"`
		Mounts []mount `json:"mounts"`
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
	// A volume as a whole may be its root.
	for _, m := range append([]mount{{config.Root.Path, "/"}}, config.Mounts...) {
		if !filepath.IsAbs(m.Source) {
			continue // the kernel's own, as proc
		}
		empty, err := fsid.Unmounted(m.Source)
		if err != nil {
			return fmt.Errorf("session: %w", err)
		}
		if !empty {
			continue
		}
		err = fmt.Errorf("session: the container does not start: the volume that it has on %s is not mounted, and %s is only the folder for it: "+
			"see `systemctl list-units --type=mount --failed`, mount the volume, and start the container again", m.Destination, m.Source)
		if m.Destination == "/" {
			err = errors.Join(err, fsid.Tidy(m.Source))
		}
		return err
	}
	return nil
}

func mayStart(ctx context.Context, dir, runDir string, spec *record.Spec, restores bool) error {
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	err := record.Ask(ctx, dir, record.Request{Do: record.AskStart, Restores: restores})
	if !errors.Is(err, record.ErrNobody) {
		return err
	}
	j, err := record.ReadJournal(dir, spec.Role)
	if err != nil {
		return err
	}
	if spec.Role == record.Source {
		return sourceMayStart(dir, spec, j)
	}
	return destinationMayStart(dir, spec, j)
}

func sourceMayStart(dir string, spec *record.Spec, j *record.Journal) error {
	switch st := j.State(); st {
	// Refused and fenced lead to thawed alone, and the way there is a start. Opening the
	// journal has put it on the disk: no power cut takes them back.
	case record.Prepare, record.Presync, record.Barrier, record.Frozen, record.Flushed, record.Prepared, record.Refused, record.Fenced, record.Thawed, record.Failed:
		return record.InPlace(dir, spec)
	case record.Settled, record.Done:
		return fmt.Errorf("session: %s has moved to the other host (session %s): start it there", spec.Workload, spec.ID)
	default:
		return fmt.Errorf("session: %s may run on the other host (session %s is %s here): bring that session to its end first: run the play that moved it again, or see `pcopy session resolve`",
			spec.Workload, spec.ID, st)
	}
}

func destinationMayStart(dir string, spec *record.Spec, j *record.Journal) error {
	switch st := j.State(); {
	case st == record.Resumed && record.Lost(dir, spec):
		return errors.New("session: " + record.LostText(spec))
	case st == record.Done, (st == record.Resumed || st == record.Settled) && !j.Restarted(record.Released):
	case st == record.Resumed || st == record.Settled || st == record.Released || st == record.InDoubt:
		return fmt.Errorf("session: %s was handed over to this host, which was then restarted, and the other one may have gone on without it (session %s is %s): bring that session to its end first: run the play that moved it again, or see `pcopy session resolve`",
			spec.Workload, spec.ID, st)
	default:
		return fmt.Errorf("session: %s is the other host's, and this is only prepared for it (session %s is %s): start it there", spec.Workload, spec.ID, st)
	}
	return record.InPlace(dir, spec)
}

// ReceiverMayStart is the answer of the process that serves a destination: the engine
// restores the container, held, or starts it on its order after the release.
// A start before that, whoever asks for it, would be a second copy.
func ReceiverMayStart(dir, runDir string, restores bool) error {
	spec, err := record.LoadSpec(dir)
	if err != nil {
		return err
	}
	j, err := record.ReadJournal(dir, record.Destination)
	if err != nil {
		return err
	}
	// By CRIU's hooks, or by the engine itself.
	held := restores && spec.Restores()
	switch st := j.State(); {
	case held && (st == record.Frozen || st == record.Flushed): // the engine begins to restore, and waits for the volumes
		return nil
	case st == record.Resumed || st == record.Settled || st == record.Done:
		return record.InPlace(dir, spec)
	case st == record.Released:
		if err := record.InPlace(dir, spec); err != nil {
			return err
		}
		return engine.NoteStart(runDir, spec)
	default:
		return fmt.Errorf("%s is the other host's, and only prepared here (session %s is %s): start it there", spec.Workload, spec.ID, st)
	}
}
