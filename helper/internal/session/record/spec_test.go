package record

import (
	"encoding/json"
	"strings"
	"testing"
)

const goodPrint = "sha256:0000000000000000000000000000000000000000000000000000000000000000"

func goodSpec() map[string]any {
	return map[string]any{
		"version": 1, "id": "shop-1", "role": "source", "mode": "live", "workload": "shop", "driver": "podman",
		"peer":    map[string]any{"address": "192.0.2.1:7000", "fingerprint": goodPrint},
		"volumes": []any{map[string]any{"name": "data", "device": "/dev/loop0", "mountpoint": "/mnt", "size": 1 << 20}},
		"trees":   []any{map[string]any{"name": "dump", "path": "/gate", "stage": "dump"}},
		"hooks":   map[string]any{"freeze": map[string]any{"argv": []string{"podman"}, "gate": "/gate"}},
	}
}

func TestSpec(t *testing.T) {
	vol := func(s map[string]any) map[string]any { return s["volumes"].([]any)[0].(map[string]any) }
	for _, c := range []struct {
		name   string
		change func(s map[string]any)
		text   string // empty: good
	}{
		{"good", func(map[string]any) {}, ""},
		{"misspelt", func(s map[string]any) { s["volume"] = 1 }, `unknown field "volume"`},
		{"newer", func(s map[string]any) { s["version"] = 2 }, "version is 2, and this pcopy understands 1"},
		{"id leads elsewhere", func(s map[string]any) { s["id"] = "../x" }, "small letters, digits and dashes"},
		{"id as long as it may be", func(s map[string]any) { s["id"] = strings.Repeat("a", 64) }, ""},
		{"id too long", func(s map[string]any) { s["id"] = strings.Repeat("a", 65) }, "at most 64"},
		{"role", func(s map[string]any) { s["role"] = "both" }, "source or destination"},
		{"mode", func(s map[string]any) { s["mode"] = "lively" }, "live, offline, copy or trial"},
		{"workload", func(s map[string]any) { s["workload"] = "a/b" }, "is no name"},
		{"workload as long as a file name", func(s map[string]any) { s["workload"] = strings.Repeat("a", 255) }, ""},
		{"workload too long", func(s map[string]any) { s["workload"] = strings.Repeat("a", 256) }, "is no name"},
		{"workload of several", func(s map[string]any) { s["workload"] = "db+web" }, ""},
		{"no workload", func(s map[string]any) { delete(s, "workload") }, "mode live needs a workload"},
		{"print", func(s map[string]any) { s["peer"].(map[string]any)["fingerprint"] = "md5:0" }, "peer: "},
		{"address", func(s map[string]any) { s["peer"].(map[string]any)["address"] = "node7" }, "IP:PORT is needed"},
		{"address of a socket", func(s map[string]any) { s["peer"].(map[string]any)["address"] = "unix:/run/s.sock" }, ""},
		{"address of a socket that is long", func(s map[string]any) {
			s["peer"].(map[string]any)["address"] = "unix:/" + strings.Repeat("x", 107)
		}, "the path has 108 bytes, and that of a unix socket at most 107: choose a shorter one"},
		{"address of a socket somewhere", func(s map[string]any) { s["peer"].(map[string]any)["address"] = "unix:s.sock" }, "an absolute path without detours is needed"},
		{"command", func(s map[string]any) {
			s["peer"] = map[string]any{"command": []string{"ssh", "node7"}, "fingerprint": goodPrint}
		}, ""},
		{"command and address", func(s map[string]any) { s["peer"].(map[string]any)["command"] = []string{"ssh"} }, "there is an address and a command, and one of them is needed"},
		{"command of nothing", func(s map[string]any) {
			s["peer"] = map[string]any{"command": []string{""}, "fingerprint": goodPrint}
		}, "is no command"},
		{"command that a shell would read", func(s map[string]any) {
			s["peer"] = map[string]any{"command": "ssh node7", "fingerprint": goodPrint}
		}, "cannot unmarshal string"},
		{"command of a destination", func(s map[string]any) {
			s["role"], s["listen"] = "destination", "192.0.2.1:0"
			s["peer"] = map[string]any{"command": []string{"ssh"}, "fingerprint": goodPrint}
		}, "the command is for the source"},
		{"size", func(s map[string]any) { vol(s)["size"] = -1 }, "volume data: size -1 bytes"},
		{"size type", func(s map[string]any) { vol(s)["size"] = "1G" }, "cannot unmarshal string"},
		{"cluster", func(s map[string]any) { vol(s)["cluster"] = 3000 }, "volume data: "},
		{"device", func(s map[string]any) { vol(s)["device"] = "loop0" }, "is not an absolute path"},
		{"folders of a source's volume", func(s map[string]any) { vol(s)["folders"] = []any{"tmp"} }, `"tmp" is no folder in it`},
		{"folders elsewhere", func(s map[string]any) {
			s["role"], s["listen"] = "destination", "192.0.2.1:0"
			vol(s)["image"], vol(s)["fstype"], vol(s)["folders"] = "/v.img", "ext4", []any{"tmp", "a/../../x"}
		}, `"a/../../x" is no folder in it`},
		{"twice", func(s map[string]any) { s["volumes"] = append(s["volumes"].([]any), vol(s)) }, "there twice"},
		{"tree stage", func(s map[string]any) { s["trees"].([]any)[0].(map[string]any)["stage"] = "late" }, "presync, freeze or dump"},
		{"tree path", func(s map[string]any) { s["trees"].([]any)[0].(map[string]any)["path"] = "gate" }, "is not absolute"},
		{"no freeze", func(s map[string]any) { s["hooks"] = map[string]any{} }, "freeze is missing"},
		{"no gate", func(s map[string]any) { s["hooks"].(map[string]any)["freeze"].(map[string]any)["gate"] = "" }, "needs a gate"},
		{"no gate, and an engine that holds", func(s map[string]any) {
			h := s["hooks"].(map[string]any)
			h["freeze"].(map[string]any)["gate"], h["thaw"], h["reclaim"] = "", map[string]any{"argv": []any{"x"}}, map[string]any{"argv": []any{"x"}}
		}, ""},
		{"no gate, and no end", func(s map[string]any) {
			h := s["hooks"].(map[string]any)
			h["freeze"].(map[string]any)["gate"], h["thaw"] = "", map[string]any{"argv": []any{"x"}}
		}, "needs a gate"},
		{"offline without thaw", func(s map[string]any) { s["mode"] = "offline" }, "thaw is missing"},
		{"destination without restore", func(s map[string]any) {
			s["role"], s["listen"] = "destination", "192.0.2.1:0"
			vol(s)["image"], vol(s)["fstype"] = "/v.img", "ext4"
		}, "a live restore needs a command and a gate"},
		{"container", func(s map[string]any) {
			s["hooks"].(map[string]any)["restore"] = map[string]any{"argv": []any{"x"}, "container": "ab"}
		}, `the container "ab" is no ID`},
		{"policy", func(s map[string]any) { s["policy"] = map[string]any{"limit": -5} }, "out of range"},
		{"throttle without a limit", func(s map[string]any) { s["policy"] = map[string]any{"throttle": "/c"} }, "slows the workload down until the pause is within max_frozen_ms, which is not set"},
		{"throttle", func(s map[string]any) { s["policy"] = map[string]any{"max_frozen_ms": 300, "throttle": "c"} }, `policy: throttle: the cgroup "c" is not an absolute path`},
		{"free", func(s map[string]any) { s["policy"] = map[string]any{"free": "maybe"} }, `policy: free "maybe": skip or send`},
		{"connections", func(s map[string]any) { s["policy"] = map[string]any{"connections": 17} }, "policy: 17 connections: 1 to 16"},
		{"delta", func(s map[string]any) { s["policy"] = map[string]any{"delta": "no"} }, "cannot unmarshal string"},
		{"compression", func(s map[string]any) { s["policy"] = map[string]any{"compression": "zip"} }, `policy: compression: codec: there is no compression "zip": choose one of auto, none, lz4, zstd`},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := goodSpec()
			c.change(s)
			b, err := json.Marshal(s)
			if err != nil {
				t.Fatal(err)
			}
			spec, err := ParseSpec(b)
			switch {
			case c.text == "" && err != nil:
				t.Fatal(err)
			case c.text == "" && (spec.Policy.MaxPasses != defaultMaxPasses || spec.Volumes[0].Cluster != DefaultCluster || spec.Volumes[0].Tracker != "auto" ||
				spec.Policy.Compression != "auto" || !*spec.Policy.Delta || spec.Policy.Connections != 1):
				t.Errorf("defaults: %+v", spec)
			case c.text != "" && (err == nil || !strings.Contains(err.Error(), c.text)):
				t.Errorf("%v, without %q", err, c.text)
			}
		})
	}
	if _, err := ParseSpec([]byte(`{"version":1} {}`)); err == nil {
		t.Error("two specs in one file passed")
	}
}

func FuzzSpec(f *testing.F) {
	b, _ := json.Marshal(goodSpec())
	f.Add(b)
	f.Add([]byte(`{"version":1,"role":"destination","hooks":{"restore":{"argv":null}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := ParseSpec(data)
		if err != nil {
			return
		}
		if !isID(s.ID) || s.Workload != "" && strings.ContainsAny(s.Workload, "/\x00") {
			t.Errorf("passed: %+v", s)
		}
	})
}
