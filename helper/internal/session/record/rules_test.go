package record

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/livefleet/handover/helper/internal/hooks"
)

// broken are specs that each break one rule, with the sentence that says so.
func broken() []struct {
	text   string
	change func(s map[string]any)
} {
	type m = map[string]any
	hooksOf := func(s m) m { return s["hooks"].(m) }
	freeze := func(s m) m { return hooksOf(s)["freeze"].(m) }
	vol := func(s m) m { return s["volumes"].([]any)[0].(m) }
	policy := func(p m) func(m) { return func(s m) { s["policy"] = p } }
	destination := func(s m) {
		s["role"], s["listen"] = "destination", "192.0.2.1:0"
		vol(s)["image"], vol(s)["fstype"] = "/v.img", "ext4"
		s["hooks"] = m{"restore": m{"argv": []any{"x"}, "gate": "/gate"}}
	}
	floats := func(address, bundle string) func(m) {
		return func(s m) {
			s["network"], s["bundle"] = m{"floating": []any{m{"address": address, "interface": "eth0"}}}, bundle
		}
	}
	return append(append(brokenMembers(), brokenTmpfs()...), []struct {
		text   string
		change func(s m)
	}{
		{"version is 3, and this pcopy understands 1", func(s m) { s["version"] = 3 }},
		{`id "A": small letters, digits and dashes, at most 64`, func(s m) { s["id"] = "A" }},
		{`role "both": source or destination`, func(s m) { s["role"] = "both" }},
		{`mode "lively": live, offline, copy or trial`, func(s m) { s["mode"] = "lively" }},
		{"mode trial is for the source alone", func(s m) { s["mode"], s["role"] = "trial", "destination" }},
		{`workload "a/b" is no name`, func(s m) { s["workload"] = "a/b" }},
		{"mode live needs a workload", func(s m) { s["workload"] = "" }},
		{`policy: free "maybe": skip or send`, policy(m{"free": "maybe"})},
		{"policy: a number is out of range", policy(m{"max_passes": -1})},
		{"policy: a number is out of range", policy(m{"target_dirty": -1})},
		{"policy: a number is out of range", policy(m{"limit": -1})},
		{"policy: a number is out of range", policy(m{"shared": -1})},
		{"policy: a number is out of range", policy(m{"at_once": -1})},
		{"policy: a number is out of range", policy(m{"peer_timeout": -1})},
		{"policy: a number is out of range", policy(m{"reconnect_timeout": -1})},
		{"policy: a number is out of range", policy(m{"hash_limit": -1})},
		{"policy: a number is out of range", policy(m{"wait_timeout": -1})},
		{"policy: a number is out of range", policy(m{"max_frozen_ms": -1})},
		{"policy: a number is out of range", policy(m{"frozen_patience_seconds": -1})},
		{"policy: a number is out of range", policy(m{"pause_base_ms": -1})},
		{"policy: a number is out of range", policy(m{"memory": -1})},
		{"policy: max_frozen_ms is for the mode live: what a stop and a start take (mode offline), nobody can foresee", func(s m) {
			s["mode"], s["policy"] = "offline", m{"max_frozen_ms": 1}
		}},
		{"policy: throttle slows the workload down until the pause is within max_frozen_ms, which is not set: set it, or leave throttle out", policy(m{"throttle": "/c"})},
		{`policy: throttle: the cgroup "c" is not an absolute path`, policy(m{"max_frozen_ms": 1, "throttle": "c"})},
		{`policy: pause_at "done" is no state in which this side could go on`, policy(m{"pause_at": "done"})},
		{"policy: -1 connections: 1 to 16", policy(m{"connections": -1})},
		{"policy: 17 connections: 1 to 16", policy(m{"connections": 17})},
		{`policy: compression: codec: there is no compression "zip": choose one of auto, none, lz4, zstd`, policy(m{"compression": "zip"})},
		{"peer: the command is for the source: it is the source that comes to the destination", func(s m) {
			destination(s)
			s["peer"].(m)["command"] = []any{"ssh"}
		}},
		{`volume "": the name is missing, there twice, or not a name`, func(s m) { vol(s)["name"] = "" }},
		{"volume data: size -1 bytes", func(s m) { vol(s)["size"] = -1 }},
		{`volume "/a": it is there twice`, func(s m) {
			s["directories"] = []any{m{"name": "/a", "path": "/a"}, m{"name": "/a", "path": "/a"}}
		}},
		{`volume "data": the name is missing, there twice, or not a name`, func(s m) { s["directories"] = []any{m{"name": "data", "path": "/a"}} }},
		{`volume files: ploop "../b" is no folder in it`, func(s m) { s["directories"] = []any{m{"name": "files", "path": "/a", "ploop": "../b"}} }},
		{`volume files: ploop is for the source of a live workload, and this is the source in mode offline`, func(s m) {
			s["mode"], s["directories"] = "offline", []any{m{"name": "files", "path": "/a", "ploop": "root.hdd"}}
		}},
		{`volume files: path "a" is not absolute`, func(s m) { s["directories"] = []any{m{"name": "files", "path": "a"}} }},
		{`tree "": the name is missing, there twice, or not a name`, func(s m) { s["trees"].([]any)[0].(m)["name"] = "" }},
		{`tree dump: path "gate" is not absolute`, func(s m) { s["trees"].([]any)[0].(m)["path"] = "gate" }},
		{`tree dump: stage "late": presync, freeze or dump`, func(s m) { s["trees"].([]any)[0].(m)["stage"] = "late" }},
		{`network: the namespace "n" is not an absolute path`, func(s m) { s["network"] = m{"namespace": "n"} }},
		{"network: mode offline moves no connections, and nothing has to be silent", func(s m) { s["mode"], s["network"] = "offline", m{"namespace": "/n"} }},
		{"network: floating: the bundle is missing, by which the start of the workload is known that brings them back after a boot", floats("192.0.2.50/24", "")},
		{"network: floating: 127.0.0.2 cannot float", floats("127.0.0.2/8", "/b")},
		{`network: floating: the interface ""`, func(s m) {
			floats("192.0.2.50/24", "/b")(s)
			delete(s["network"].(m)["floating"].([]any)[0].(m), "interface")
		}},
		{"network: floating: 192.0.2.50 is there twice", func(s m) {
			floats("192.0.2.50/24", "/b")(s)
			all := s["network"].(m)["floating"].([]any)
			s["network"] = m{"floating": append(all, all[0])}
		}},
		{"network: floating: mode trial moves no workload, and no address", func(s m) { floats("192.0.2.50/24", "/b")(s); s["mode"] = "trial" }},
		{`bundle "b" is not an absolute path`, func(s m) { s["bundle"] = "b" }},
		{`bundles ["/a" "b"]: not each of them is an absolute path`, func(s m) { s["bundles"] = []any{"/a", "b"} }},
		{"bundles: in mode live several containers are one workload only as members, each with its own commands", func(s m) { s["bundles"] = []any{"/a"} }},
		{"hooks: freeze is missing", func(s m) { s["hooks"] = m{} }},
		{"hooks: thaw is missing: what is stopped must be startable again", func(s m) { s["mode"] = "offline" }},
		{"hooks: a live freeze needs a gate, the directory that CRIU writes to, or the commands thaw and reclaim of an engine that holds what it has frozen", func(s m) { freeze(s)["gate"] = "" }},
		{"hooks: a live freeze needs a gate, the directory that CRIU writes to, or the commands thaw and reclaim of an engine that holds what it has frozen", func(s m) { freeze(s)["gate"], s["mode"] = "", "trial" }},
		{`hooks: the container "ab" is no ID: at least 12 digits, 0 to 9 and a to f`, func(s m) { hooksOf(s)["restore"] = m{"argv": []any{"x"}, "container": "ab"} }},
		{`hooks: the cgroup "c" is not an absolute path`, func(s m) { freeze(s)["cgroup"] = "c" }},
		{"hooks: a live restore needs a command and a gate, the directory that CRIU reads from, or the commands resume and discard of an engine that holds what it has restored", func(s m) { destination(s); s["hooks"] = m{} }},
		{"hooks: a live restore needs a command and a gate, the directory that CRIU reads from, or the commands resume and discard of an engine that holds what it has restored", func(s m) {
			destination(s)
			hooksOf(s)["restore"].(m)["gate"] = ""
		}},
		{"hooks: resume is missing", func(s m) { destination(s); s["mode"] = "offline" }},
		{"policy: lazy_pages has the memory follow, and place_memory has all of it there before: choose one of them", policy(m{"lazy_pages": true, "place_memory": true})},
		{"policy: lazy_pages is for the mode live: mode offline moves no memory", func(s m) {
			s["mode"], s["policy"] = "offline", m{"lazy_pages": true}
			hooksOf(s)["thaw"] = m{"argv": []any{"x"}}
		}},
		{"policy: lazy_pages needs the workload's cgroup, of the second version, and what stands in for CRIU: hooks.freeze has cgroup or hold missing", policy(m{"lazy_pages": true})},
		{"policy: lazy_pages needs to know what stands in for CRIU, where CRIU works, and whose tasks it restores: hooks.restore has hold, log or container missing", func(s m) {
			destination(s)
			s["policy"] = m{"lazy_pages": true}
		}},
	}...)
}

func TestEachRuleHasItsSentence(t *testing.T) {
	for i, c := range broken() {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			s := goodSpec()
			c.change(s)
			b, err := json.Marshal(s)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := ParseSpec(b); err == nil || err.Error() != c.text {
				t.Errorf("%v\nand not\n%s", err, c.text)
			}
		})
	}
}

// A rule that no case breaks has a sentence that nobody has seen.
func TestEachRuleIsBrokenOnce(t *testing.T) {
	for _, rules := range [][]rule{generalRules, memberRules, workloadRules} {
		for i, r := range rules {
			seen := false
			for _, c := range broken() {
				s := goodSpec()
				c.change(s)
				b, err := json.Marshal(s)
				if err != nil {
					t.Fatal(err)
				}
				var spec Spec
				if err := json.Unmarshal(b, &spec); err != nil {
					t.Fatal(err)
				}
				spec.fillIn()
				if spec.keeps(rules[:i]) == nil && spec.keeps(rules[:i+1]) != nil && r.says(&spec) == c.text {
					seen = true
				}
			}
			if !seen {
				t.Errorf("no case breaks rule %d: %s", i, r.says(&Spec{Hooks: Hooks{Freeze: &hooks.Command{}, Restore: &hooks.Command{}}}))
			}
		}
	}
}
