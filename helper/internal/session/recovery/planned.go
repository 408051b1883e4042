package recovery

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/livefleet/handover/helper/internal/session/record"
)

// A twin is made before its session begins, and until then no specification knows its
// bundle. The plan is on the disk before the twin is, and names it: so no container of that
// name starts here, whoever asks, also after a restart of the host in between.

// PlanFile is the controller's record of a move (plugins/module_utils/_podman/sessions.py).
const PlanFile = "plan.json"

// preparesKey is the environment variable with which the controller's module has podman write the
// configuration of a twin, which passes the hook as a start does. podman hands variables of the
// locale down to the runtime, and so to its hooks.
const preparesKey = "LC_HANDOVER_PREPARES"

// plan is the part of that file which names the twins.
type plan struct {
	Plan struct {
		Role     string `json:"role"`
		Workload string `json:"workload"`
		Source   string `json:"source"`
		Twin     struct {
			Made bool `json:"made"`
		} `json:"twin"`
		Members []string `json:"members"` // their names
	} `json:"plan"`
}

// has says whether a container of that name is made by the plan.
func (p *plan) has(name string) bool {
	if p.Plan.Role != string(record.Destination) || !p.Plan.Twin.Made {
		return false
	}
	return name == p.Plan.Workload || slices.Contains(p.Plan.Members, name)
}

// onlyPlanned is an error for a twin whose session has not begun.
func onlyPlanned(root, bundle string) error {
	plans, err := filepath.Glob(filepath.Join(root, "*", PlanFile))
	if err != nil {
		return fmt.Errorf("session: %w", err)
	}
	for _, path := range plans {
		dir := filepath.Dir(path)
		if _, err := os.Lstat(filepath.Join(dir, record.SpecFile)); err == nil {
			continue // the session has begun, and its journal decides
		} else if !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("session: %w", err)
		}
		var p plan
		if err := readJSON(path, &p); errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			return fmt.Errorf("%w: if no move to this host is under way, remove the folder %s", err, dir)
		}
		name, err := nameOf(bundle)
		if err != nil {
			return err
		}
		if p.has(name) && os.Getenv(preparesKey) != name {
			return fmt.Errorf("session: %s is the container of %s, and this one is only prepared for a move (session %s): start it there, or run the play that moves it again",
				name, p.Plan.Source, filepath.Base(dir))
		}
	}
	return nil
}

// nameOf is a container's name by the records of the engine that has the bundle; empty for one
// of another engine, which makes no twins.
func nameOf(bundle string) (string, error) {
	// podman: …/overlay-containers/ID/userdata, with a list beside the IDs.
	id := filepath.Base(filepath.Dir(bundle))
	for _, list := range []string{"containers.json", "volatile-containers.json"} {
		var all []struct {
			ID    string   `json:"id"`
			Names []string `json:"names"`
		}
		if err := readJSON(filepath.Join(bundle, "..", "..", list), &all); errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			return "", err
		}
		for _, c := range all {
			if c.ID == id && len(c.Names) > 0 {
				return c.Names[0], nil
			}
		}
	}
	return nameInDocker(bundle)
}

// nameInDocker finds the container's record by Docker's own mounts in it: the files of the network
// lie beside that record.
func nameInDocker(bundle string) (string, error) {
	var config struct {
		Mounts []struct {
			Source string `json:"source"`
		} `json:"mounts"`
	}
	if err := readJSON(filepath.Join(bundle, "config.json"), &config); errors.Is(err, fs.ErrNotExist) {
		return "", nil
	} else if err != nil {
		return "", err
	}
	for _, m := range config.Mounts {
		dir := filepath.Dir(m.Source)
		if filepath.Base(dir) != filepath.Base(bundle) {
			continue
		}
		var c struct{ Name string }
		if err := readJSON(filepath.Join(dir, "config.v2.json"), &c); errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			return "", err
		}
		return strings.TrimPrefix(c.Name, "/"), nil
	}
	return "", nil
}

func readJSON(path string, into any) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("session: %w", err)
	}
	if err := json.Unmarshal(b, into); err != nil {
		return fmt.Errorf("session: %s is damaged: %w", path, err)
	}
	return nil
}
