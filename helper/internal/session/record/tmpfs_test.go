package record

import (
	"encoding/json"
	"testing"
)

// ofTmpfs gives a spec's workload, or a member of it, a tmpfs of its own.
func ofTmpfs(s map[string]any, member string) map[string]any {
	type m = map[string]any
	name := TmpfsName(member, "/scratch")
	d := m{"name": name, "path": "/proc/7/root/scratch", "tmpfs": "/scratch", "device": "0:" + map[string]string{"": "62", "db": "62", "web": "63"}[member]}
	if s["role"] == "destination" {
		d = m{"name": name, "path": "/s/tmpfs/" + member + "0", "tmpfs": "/scratch"}
	}
	if member != "" {
		d["member"] = member
	}
	before, _ := s["directories"].([]any)
	s["directories"] = append(before, d)
	return d
}

// tmpfsAlone is that of a workload that is one container, and tmpfsOfMembers that of both members.
func tmpfsAlone(s map[string]any) map[string]any {
	s["hooks"].(map[string]any)["freeze"].(map[string]any)["hold"] = "/carry"
	return ofTmpfs(s, "")
}

func tmpfsOfMembers(s map[string]any, members []any) (first map[string]any) {
	if s["role"] != "destination" {
		for _, each := range members {
			each.(map[string]any)["freeze"].(map[string]any)["hold"] = "/carry"
		}
	}
	first = ofTmpfs(s, "db")
	ofTmpfs(s, "web")
	return first
}

func brokenTmpfs() []struct {
	text   string
	change func(s map[string]any)
} {
	type m = map[string]any
	members := func(s m) m { return tmpfsOfMembers(s, ofMembers(s)) }
	return []struct {
		text   string
		change func(s map[string]any)
	}{
		{`volume tmpfs:/other: tmpfs "/scratch" is not the clean and absolute path that the name has`, func(s m) { tmpfsAlone(s)["name"] = "tmpfs:/other" }},
		{`volume tmpfs:/scratch: tmpfs "/scratch" is not the clean and absolute path that the name has`, func(s m) { members(s)["name"] = "tmpfs:/scratch" }},
		{"volume files: device and member are for a tmpfs, and file and ploop are not", func(s m) {
			s["directories"] = []any{m{"name": "files", "path": "/files", "member": "db"}}
		}},
		{`volume tmpfs:job:/scratch: member "job", whose tmpfs it is, is none of the workload's`, func(s m) {
			ofMembers(s)
			ofTmpfs(s, "job")
		}},
		{`volume tmpfs:/scratch: member "", whose tmpfs it is, is none of the workload's`, func(s m) { ofMembers(s); ofTmpfs(s, "") }},
		{`volume tmpfs:db:/scratch: member "db", whose tmpfs it is, is none of the workload's`, func(s m) { ofTmpfs(s, "db") }},
		{"volume tmpfs:/scratch: a tmpfs is carried beside a dump, and mode offline makes none that travels", func(s m) { tmpfsAlone(s); s["mode"] = "offline" }},
		{"volume tmpfs:/scratch: a tmpfs needs a command with a gate, and with what stands in for tar: hold is missing", func(s m) { ofTmpfs(s, "") }},
		{"volume tmpfs:db:/scratch: a tmpfs needs a command with a gate, and with what stands in for tar: hold is missing", func(s m) {
			ofMembers(s)
			ofTmpfs(s, "db")
		}},
		{"volume tmpfs:/scratch: device is missing, by which the tmpfs is known", func(s m) { delete(tmpfsAlone(s), "device") }},
		{"volume tmpfs:db:/scratch: device 0:63 is that of another tmpfs, too: CRIU packs it in one dump alone", func(s m) { members(s)["device"] = "0:63" }},
		{`volume tmpfs:db:/scratch: path "/s/scratch" is not right below the folder tmpfs of the session`, func(s m) {
			tmpfsOfMembers(s, onDestination(s))["path"] = "/s/scratch"
		}},
	}
}

// Members may each have a tmpfs in the same place.
func TestTheTmpfsOfMembersAreGood(t *testing.T) {
	for name, change := range map[string]func(map[string]any) []any{"source": ofMembers, "destination": onDestination} {
		s := goodSpec()
		tmpfsOfMembers(s, change(s))
		b, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		spec, err := ParseSpec(b)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, part := range spec.Parts() {
			if own := spec.TmpfsOf(part); len(own) != 1 || own[0].Name != "tmpfs:"+part.Name+":/scratch" {
				t.Errorf("%s: %s has %+v", name, part.Name, own)
			}
		}
	}
}
