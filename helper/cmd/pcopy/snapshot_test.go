package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A disk that nothing uses goes through all commands, and QEMU reads what they leave.
func TestSnapshotCommands(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	disk := bytes.Repeat([]byte("0123456789abcdef"), 20000)
	write := func() {
		t.Helper()
		if err := os.WriteFile(at("disk"), disk, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pcopy := func(words ...string) string {
		t.Helper()
		var out bytes.Buffer
		if err := execute(context.Background(), &out, append([]string{"snapshot"}, words...)); err != nil {
			t.Fatalf("%v: %v", words, err)
		}
		return out.String()
	}
	fails := func(text string, status_ int, words ...string) {
		t.Helper()
		err := execute(context.Background(), &bytes.Buffer{}, append([]string{"snapshot"}, words...))
		if err == nil || !strings.Contains(err.Error(), text) || status(err) != status_ {
			t.Errorf("%v: %v\n  should say %q", words, err, text)
		}
	}
	disk = disk[:len(disk)/512*512]
	write()
	take := func(more ...string) string {
		return pcopy(append([]string{"take", at("store"), "--volume", "data=" + at("disk")}, more...)...)
	}
	take("--name", "first", "--file", "note="+at("disk"), "--description", "as it began")
	before := bytes.Clone(disk)
	disk[70000] ^= 1
	write()
	var taken struct {
		ID, Parent string
		Volumes    []struct {
			How    string
			Stored int64
		}
	}
	if err := json.Unmarshal([]byte(take()), &taken); err != nil || taken.Volumes[0].How != "digests" || taken.Volumes[0].Stored != 65536 {
		t.Errorf("%v %+v", err, taken)
	}
	if out := pcopy("list", at("store")); !strings.Contains(out, `"name":"first"`) || !strings.Contains(out, taken.ID) {
		t.Error(out)
	}
	var shown struct{ Images map[string]string }
	if err := json.Unmarshal([]byte(pcopy("show", at("store"), taken.ID[:6])), &shown); err != nil {
		t.Fatal(err)
	}
	if qemu, err := exec.LookPath("qemu-img"); err == nil {
		if out, err := exec.Command(qemu, "compare", "-f", "raw", "-F", "qcow2", at("disk"), shown.Images["data"]).CombinedOutput(); err != nil {
			t.Errorf("%v %s", err, out)
		}
	}
	is := func(name string, want []byte) {
		t.Helper()
		if got, err := os.ReadFile(at(name)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is another disk (%v)", name, err)
		}
	}
	pcopy("restore", at("store"), "first", "--volume", "data="+at("restored"))
	is("restored", before)
	pcopy("export", at("store"), taken.ID, at("exported"), "--volume", "data", "--format", "raw")
	is("exported", disk)
	pcopy("export", at("store"), "first", at("noted"), "--file", "note")
	is("noted", before)
	if out := pcopy("verify", at("store")); !strings.Contains(out, `"faults":[]`) {
		t.Error(out)
	}
	if out := pcopy("note", at("store"), "--volume", "data="+at("disk"), "--track-root", at("track")); !strings.Contains(out, `"why":"no tracker was left in the kernel by the current snapshot`) {
		t.Error(out)
	}
	if out := pcopy("restore", at("store"), "first", "--current", "--volume", "data="+at("disk"), "--track-root", at("track")); !strings.Contains(out, `"how":"digests","why":"no tracker was left`) {
		t.Error(out)
	}
	is("disk", before)
	// What a killed run has left goes with the next change, and a dry run is none.
	left := at("store/layers/0123456789abcdef.qcow2")
	if err := os.WriteFile(left, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if out := pcopy("prune", at("store"), "--keep-last", "1", "--dry-run"); strings.Count(out, `"keep":true`) != 2 {
		t.Error(out) // one is named and current, the other the last
	}
	if _, err := os.Stat(left); err != nil {
		t.Error(err)
	}
	pcopy("delete", at("store"), "first")
	fails("there is no snapshot \"first\"", 1, "show", at("store"), "first")
	pcopy("restore", at("store"), taken.ID, "--volume", "data="+at("again"))
	is("again", disk)
	pcopy("untrack", at("store"), "--track-root", at("track"))

	fails("--volume is missing", 2, "take", at("store"))
	fails("a name and a path are needed", 2, "take", at("store"), "--volume", "data")
	fails("the name a is given twice", 2, "take", at("store"), "--volume", "a=b", "--volume", "a=c")
	fails("--tracker ploop: choose one of", 2, "take", at("store"), "--volume", "a=b", "--tracker", "ploop")
	fails("--hook-limit 0", 2, "take", at("store"), "--volume", "a=b", "--hook-limit", "0")
	fails("--halt and --go-on: give both or none", 2, "take", at("store"), "--volume", "a=b", "--halt", "true")
	fails("--memory and --halt: give one of them", 2, "take", at("store"), "--volume", "a=b", "--halt", "true", "--go-on", "true", "--memory", "x")
	fails("dump.argv is missing", 2, "take", at("store"), "--volume", "a=b", "--memory", written(t, `{"dump": {"gate": "/g", "cgroup": "/c", "log": "/l"}, "into": "/i", "as": "d"}`))
	fails("unknown field", 2, "take", at("store"), "--volume", "a=b", "--memory", written(t, `{"dumps": {}}`))
	fails("--halt-limit 0", 2, "take", at("store"), "--volume", "a=b", "--halt-limit", "0")
	fails("--freeze-limit 0s", 2, "take", at("store"), "--volume", "a=b", "--freeze-limit", "0s")
	fails("--volume is missing", 2, "note", at("store"))
	fails("is on another host", 1, "note", "backup1:/srv/store", "--volume", "data="+at("disk"))
	fails("name a volume or a file", 2, "export", at("store"), taken.ID, at("x"))
	fails("the policy keeps nothing", 1, "prune", at("store"))
	fails("there is no store here", 1, "list", dir)

	files, err := filepath.Glob(at("store/layers/*.qcow2"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	b, err := os.ReadFile(files[0])
	if err == nil {
		b[70000] ^= 1
		err = os.WriteFile(files[0], b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	fails("1 files are damaged, see the faults", 1, "verify", at("store"))
}

// Two disks at rest, each with its store; a wave that is not one is refused in words.
func TestSnapshotWave(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	run := func(wave string, words ...string) (string, error) {
		t.Helper()
		if err := os.WriteFile(at("wave"), []byte(wave), 0o600); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		err := execute(context.Background(), &out, append([]string{"snapshot", "wave", at("wave")}, words...))
		return out.String(), err
	}
	part := func(name string) string {
		if err := os.WriteFile(at(name), bytes.Repeat([]byte(name), 4096), 0o600); err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf(`{"store": %q, "name": "before", "volumes": [{"name": "data", "path": %q}], "files": [{"name": "note", "path": %q}]}`, at("store-"+name), at(name), at(name))
	}
	out, err := run(`{"parts": [`+part("shop")+`, `+part("db")+`]}`, "--json")
	if err != nil {
		t.Fatal(err)
	}
	var answer struct {
		Snapshots []struct {
			Store, Taken string
			Volumes      []struct{ How string }
		}
	}
	if err := json.Unmarshal([]byte(out), &answer); err != nil || len(answer.Snapshots) != 2 || answer.Snapshots[0].Taken != answer.Snapshots[1].Taken {
		t.Fatalf("%v %s", err, out)
	}
	for n, name := range []string{"shop", "db"} {
		if s := answer.Snapshots[n]; s.Store != at("store-"+name) || s.Volumes[0].How != "full" {
			t.Errorf("%+v", s)
		}
	}
	for wave, says := range map[string]string{
		``:                                   "EOF",
		`{"parts": []}`:                      "has no parts",
		`{"parts": [{"volumes": []}]}`:       "part 1 has no store",
		`{"parts": [{"store": "/x"}]}`:       "there is no volume to take",
		`{"part": [{"store": "/x"}]}`:        `unknown field "part"`,
		`{"parts": [{"volume": ["a=/x"]}]}`:  `unknown field "volume"`,
		`{"parts": [` + part("shop") + `]} `: "the name before is taken",
	} {
		if _, err := run(wave); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v\n  should say %q", wave, err, says)
		}
	}
	if _, err := run(`{}`, "--freeze-limit", "0s"); err == nil || !strings.Contains(err.Error(), "snapshot wave: --freeze-limit 0s: a time above 0") {
		t.Error(err)
	}
}

// The disks themselves are tested where they are pulled; a request that is none is refused in words.
func TestSnapshotPullWantsARequest(t *testing.T) {
	file := filepath.Join(t.TempDir(), "request")
	for request, says := range map[string]string{
		``:                                     "EOF",
		`{"disks": []}`:                        "names no store",
		`{"store": "/x"}`:                      "there is no disk to pull",
		`{"store": "/x", "disks": [{}]}`:       "the moment is missing",
		`{"store": "/x", "volumes": []}`:       `unknown field "volumes"`,
		`{"store": "/x", "taken": "tomorrow"}`: "parsing time",
	} {
		if err := os.WriteFile(file, []byte(request), 0o600); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if err := execute(context.Background(), &out, []string{"snapshot", "pull", file}); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v\n  should say %q", request, err, says)
		}
	}
}

// written is a file with a text.
func written(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
