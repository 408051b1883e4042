package recovery

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/livefleet/handover/helper/internal/session/record"
)

// planned is a host with a plan, and a container of podman's and one of Docker's of that name.
type planned struct {
	*testing.T
	root, podman, docker string
}

func newPlanned(t *testing.T, plan string) planned {
	dir := t.TempDir()
	p := planned{t, filepath.Join(dir, "sessions"), filepath.Join(dir, "storage", "0123", "userdata"), filepath.Join(dir, "moby", "4567")}
	p.write(filepath.Join(p.root, "move-1", PlanFile), plan)
	p.write(filepath.Join(p.podman, "config.json"), `{"mounts": [{"source": "proc"}]}`)
	p.write(filepath.Join(dir, "storage", "containers.json"), `[{"id": "89ab", "names": ["other"]}, {"id": "0123", "names": ["shop"]}]`)
	record := filepath.Join(dir, "docker", "containers", "4567")
	p.write(filepath.Join(p.docker, "config.json"), `{"mounts": [{"source": "proc"}, {"source": "`+record+`/hosts"}]}`)
	p.write(filepath.Join(record, "hosts"), "")
	p.write(filepath.Join(record, "config.v2.json"), `{"Name": "/shop"}`)
	return p
}

func (p planned) write(path, content string) {
	p.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		p.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		p.Fatal(err)
	}
}

func (p planned) start(bundle string) error {
	return MayStart(p.Context(), p.root, p.TempDir(), &OCIState{Bundle: bundle})
}

const aPlan = `{"plan": {"role": "destination", "workload": "shop", "source": "node1", "twin": {"made": true}, "members": []}}`

func TestATwinDoesNotStartBeforeItsSession(t *testing.T) {
	p := newPlanned(t, aPlan)
	for _, bundle := range []string{p.podman, p.docker} {
		if err := p.start(bundle); err == nil || !strings.Contains(err.Error(), "shop is the container of node1, and this one is only prepared for a move (session move-1)") {
			t.Errorf("%s: %v", bundle, err)
		}
	}
	// podman's own way of writing its configuration, for the module that makes it.
	t.Setenv(preparesKey, "shop")
	if err := p.start(p.podman); err != nil {
		t.Error(err)
	}
	t.Setenv(preparesKey, "other")
	if err := p.start(p.podman); err == nil {
		t.Error("another one is prepared, and it starts")
	}
}

func TestWhatIsNoTwinStartsBesideAPlan(t *testing.T) {
	for name, plan := range map[string]string{
		"of the source":       strings.Replace(aPlan, "destination", "source", 1),
		"of another workload": strings.Replace(aPlan, "shop", "bakery", 1),
		"that makes nothing":  strings.Replace(aPlan, "true", "false", 1),
	} {
		p := newPlanned(t, plan)
		for _, bundle := range []string{p.podman, p.docker} {
			if err := p.start(bundle); err != nil {
				t.Errorf("a plan %s: %v", name, err)
			}
		}
	}
}

func TestMembersOfAPlanAreTwins(t *testing.T) {
	p := newPlanned(t, `{"plan": {"role": "destination", "workload": "front", "twin": {"made": true}, "members": ["db", "shop"]}}`)
	if err := p.start(p.podman); err == nil || !strings.Contains(err.Error(), "is only prepared for a move") {
		t.Errorf("a member starts, or for another reason does not: %v", err)
	}
}

func TestASessionThatHasBegunDecidesInsteadOfItsPlan(t *testing.T) {
	p := newPlanned(t, aPlan)
	p.write(filepath.Join(p.root, "move-1", record.SpecFile), "{}")
	if err := p.start(p.podman); err != nil {
		t.Error(err)
	}
}

func TestAPlanThatCannotBeReadStartsNothing(t *testing.T) {
	p := newPlanned(t, "{")
	if err := p.start(p.podman); err == nil || !strings.Contains(err.Error(), "remove the folder "+filepath.Join(p.root, "move-1")) {
		t.Error(err)
	}
}

func TestASpecificationThatCannotBeReadStartsNothing(t *testing.T) {
	p := newPlanned(t, aPlan)
	p.write(filepath.Join(p.root, "a file beside the sessions"), "")
	if err := os.MkdirAll(filepath.Join(p.root, "move-1", record.SpecFile), 0o700); err != nil {
		t.Fatal(err)
	}
	if p.start(p.podman) == nil {
		t.Error("it starts")
	}
}
