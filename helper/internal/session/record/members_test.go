package record

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// ofMembers makes the good spec that of a workload of two members.
func ofMembers(s map[string]any) []any {
	type m = map[string]any
	member := func(name string) m {
		return m{"name": name, "freeze": m{"argv": []any{"x"}, "gate": "/gate-" + name, "cgroup": "/cgroup-" + name}, "joins": m{"ipc": "/proc/7/ns/ipc"}}
	}
	members := []any{member("db"), member("web")}
	s["members"], s["bundles"], s["hooks"] = members, []any{"/db", "/web"}, m{"reclaim": m{"argv": []any{"x"}}}
	s["network"] = m{"namespace": "/n"}
	return members
}

// onDestination makes it that of the other side.
func onDestination(s map[string]any) []any {
	type m = map[string]any
	members := ofMembers(s)
	s["role"], s["listen"], s["volumes"], s["network"], s["hooks"] = "destination", "192.0.2.1:0", []any{}, m{"namespace": "/n", "silent": true}, m{}
	for _, each := range members {
		of := each.(m)
		of["restore"] = m{"argv": []any{"x"}, "gate": of["freeze"].(m)["gate"], "container": "0123456789ab", "hold": "/hold"}
		delete(of, "freeze")
	}
	return members
}

func brokenMembers() []struct {
	text   string
	change func(s map[string]any)
} {
	type m = map[string]any
	first := func(s m) m { return ofMembers(s)[0].(m) }
	return []struct {
		text   string
		change func(s map[string]any)
	}{
		{"members: they are for a workload that is dumped, and mode offline dumps none: name their bundles alone", func(s m) { ofMembers(s); s["mode"] = "offline" }},
		{"members: each has a command of its own to freeze and to restore it, and hooks has one for all of them: leave that out", func(s m) {
			hooks := s["hooks"]
			ofMembers(s)
			s["hooks"] = hooks
		}},
		{"members: bundles has not all of theirs, by which the hook before every start knows them", func(s m) { ofMembers(s); s["bundles"] = []any{"/db"} }},
		{"policy: lazy_pages is for a workload that is one container", func(s m) { ofMembers(s); s["policy"] = m{"lazy_pages": true} }},
		{"members: web: its memory is placed, and another member has its log in /static, too", func(s m) {
			for _, each := range onDestination(s) {
				each.(m)["restore"].(m)["log"] = "/static/restore.log"
			}
			s["policy"] = m{"place_memory": true}
		}},
		{"policy: place_memory needs the workload's cgroup, of the second version, and what stands in for CRIU: hooks.freeze has cgroup or hold missing", func(s m) {
			first(s)["freeze"].(m)["hold"] = "/hold" // and not the other
			s["policy"] = m{"place_memory": true}
		}},
		{"policy: place_memory needs to know what stands in for CRIU, where CRIU works, and whose tasks it restores: hooks.restore has hold, log or container missing", func(s m) {
			onDestination(s)[0].(m)["restore"].(m)["log"] = "/static/restore.log" // and not the other
			s["policy"] = m{"place_memory": true}
		}},
		{"policy: throttle is for a workload that is one container", func(s m) { ofMembers(s); s["policy"] = m{"max_frozen_ms": 1, "throttle": "/c"} }},
		{"network: the namespace that the members share is missing, which is silent already", func(s m) { onDestination(s); s["network"] = m{"silent": true} }},
		{"hooks: reclaim is missing: what holds the network namespace of the members outlives them", func(s m) { ofMembers(s); s["hooks"] = m{} }},
		{`members: "": the name is missing, there twice, or not a name`, func(s m) { first(s)["name"] = "" }},
		{`members: "db": the name is missing, there twice, or not a name`, func(s m) { ofMembers(s)[1].(m)["name"] = "db" }},
		{"members: db: its freeze needs a command and a gate, an absolute path", func(s m) { delete(first(s), "freeze") }},
		{"members: db: its restore needs a command and a gate, an absolute path", func(s m) { delete(onDestination(s)[0].(m)["restore"].(m), "gate") }},
		{"members: web: another member has the gate /gate-db", func(s m) { ofMembers(s)[1].(m)["freeze"].(m)["gate"] = "/gate-db" }},
		{"members: db: its cgroup, of the second version, is missing: all are stopped before the first is dumped", func(s m) { delete(first(s)["freeze"].(m), "cgroup") }},
		{"members: db: its restore needs what stands in for CRIU, and the ID of the container: hold or container is missing or wrong", func(s m) {
			delete(onDestination(s)[0].(m)["restore"].(m), "hold")
		}},
		{"members: web: its restore needs what stands in for CRIU, and the ID of the container: hold or container is missing or wrong", func(s m) {
			onDestination(s)[1].(m)["restore"].(m)["container"] = "web"
		}},
		{`members: db: joins "pid" at "/proc/7/ns/pid": the kind is one of ["ipc" "uts"], and the path is absolute`, func(s m) { first(s)["joins"] = m{"pid": "/proc/7/ns/pid"} }},
	}
}

func TestAWorkloadOfMembersIsGood(t *testing.T) {
	for name, change := range map[string]func(map[string]any) []any{"source": ofMembers, "destination": onDestination} {
		s := goodSpec()
		change(s)
		b, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		spec, err := ParseSpec(b)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if spec.ByCommands() || len(spec.Parts()) != 2 || spec.Restores() != (name == "destination") {
			t.Errorf("%s: %+v", name, spec)
		}
		if part := spec.PartAt("/gate-web"); part.Name != "web" || part.File("/s", RunsFile) != "/s/runs-web" {
			t.Errorf("%s: %+v", name, part)
		}
		if part := spec.PartAt("/gate-other"); part.Name != "" || part.Freeze != nil {
			t.Errorf("%s: another's images are those of %+v", name, part)
		}
	}
}

// CRIU tells the real path of its images.
func TestAMemberIsKnownByTheRealPathOfItsImages(t *testing.T) {
	top := t.TempDir()
	real, link := filepath.Join(top, "real"), filepath.Join(top, "link")
	for _, err := range []error{os.Mkdir(real, 0o700), os.Symlink(real, link)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	s := goodSpec()
	ofMembers(s)[0].(map[string]any)["freeze"].(map[string]any)["gate"] = link
	b, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	spec, err := ParseSpec(b)
	if err != nil {
		t.Fatal(err)
	}
	if part := spec.PartAt(real); part.Name != "db" {
		t.Errorf("%+v", part)
	}
}
