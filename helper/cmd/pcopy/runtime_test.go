package main

import (
	"context"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/floating"
	"github.com/livefleet/handover/helper/internal/hooks"
	"github.com/livefleet/handover/helper/internal/session/engine"
)

// A folder without a mount that a container would see is refused without any session:
// enough to see both answers. What a session answers is tested in package recovery.
func TestTheGateBeforeRuncAnswersByTheBundle(t *testing.T) {
	root, bundle := t.TempDir(), t.TempDir()
	log := filepath.Join(t.TempDir(), "log.json")
	ask := func(words ...string) error {
		return saidInLog(words, mayCreate(context.Background(), words, root, t.TempDir()))
	}
	words := []string{"--root", "/run/runc", "--log", log, "--log-format", "json", "create", "--bundle", bundle, "--pid-file", "/x", "0123456789ab"}

	if err := ask(words...); err != nil {
		t.Fatalf("no session knows the container, and it does not start: %v", err)
	}
	if _, err := os.Stat(log); err == nil {
		t.Error("runc's log is the hook's own when nothing is refused")
	}
	if err := os.WriteFile(filepath.Join(bundle, "config.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, form := range [][]string{words, {"--log", log, "create", "--bundle=" + bundle, "x"}, {"--log=" + log, "create", "-b", bundle, "x"}} {
		if err := ask(form...); err == nil || !strings.Contains(err.Error(), "is damaged") {
			t.Errorf("%q: %v", form, err)
		}
	}
	said, err := os.ReadFile(log)
	if err != nil || strings.Count(string(said), `"level":"error","msg":"session: `) != 3 {
		t.Errorf("runc's log has %q (%v)", said, err)
	}
	if err := ask("create", "x"); err == nil || !strings.Contains(err.Error(), "was not told the bundle") {
		t.Errorf("a container without a bundle: %v", err)
	}
}

// runc is told the session's images in the place of the engine's copy, and all else as it was.
func TestTheWordsOfARestore(t *testing.T) {
	said := []string{"--root", "/r", "--log", "/l", "restore", "--image-path", "/tmp/copy", "--work-path", "/w", "--bundle", "/b", "--detach", "0123"}
	want := "--root /r --log /l restore --image-path /images --work-path /own --tcp-established --file-locks --bundle /b --detach 0123"
	if got := strings.Join(restoreWords(said, "/images", "/own"), " "); got != want {
		t.Errorf("%s", got)
	}
}

// The helper's hook comes before the engine's own, which gives the container its network; and
// no number of the configuration becomes another.
func TestTheHelperEntersFirst(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.json")
	if err := os.WriteFile(path, []byte(`{"hooks":{"prestart":[{"path":"/engine"}]},"linux":{"limit":9223372036854771712}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := enterFirst(path); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	text := string(b)
	ours, theirs := strings.Index(text, `"runc-entered"`), strings.Index(text, `{"path":"/engine"}`)
	if err != nil || ours < 0 || theirs < ours || !strings.Contains(text, "9223372036854771712") {
		t.Errorf("%s, %v", text, err)
	}
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := enterFirst(path); err == nil || !strings.Contains(err.Error(), "is damaged") {
		t.Errorf("a damaged configuration: %v", err)
	}
}

// An operator's own restore is asked for as a start is.
func TestARestoreThatIsNoSessionsIsAStart(t *testing.T) {
	bundle := t.TempDir()
	words := []string{"restore", "--image-path", "/own", "--bundle", bundle, "0123"}
	got, hold, err := restoring(context.Background(), words, t.TempDir(), t.TempDir())
	if err != nil || hold != "" || strings.Join(got, " ") != strings.Join(words, " ") {
		t.Errorf("%q, %q, %v", got, hold, err)
	}
	if err := os.WriteFile(filepath.Join(bundle, "config.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := restoring(context.Background(), words, t.TempDir(), t.TempDir()); err == nil {
		t.Error("it was not asked whether it may start")
	}
}

// What is let through brings the addresses of its published ports, or does not start: here
// there is no such interface.
func TestTheGateBeforeRuncBringsTheAddresses(t *testing.T) {
	root, bundle := filepath.Join(t.TempDir(), "sessions"), t.TempDir()
	address := floating.Address{Prefix: netip.MustParsePrefix("192.0.2.50/24"), Interface: "nowhere"}
	if err := engine.BookBeside(root).Note(bundle, nil, []floating.Address{address}); err != nil {
		t.Fatal(err)
	}
	for _, verb := range []string{"create", "restore"} {
		words := []string{verb, "--bundle", bundle, "0123"}
		err := mayCreate(context.Background(), words, root, t.TempDir())
		if verb == "restore" {
			_, _, err = restoring(context.Background(), words, root, t.TempDir())
		}
		if err == nil || !strings.Contains(err.Error(), "the addresses of its published ports") {
			t.Errorf("%s: %v", verb, err)
		}
	}
}

// A session's restore is held from its first step to its last: its images alone, what stands
// in for CRIU before the real one, and the helper's hook.
func TestARestoreOfASessionIsHeld(t *testing.T) {
	root, run, bundle, images := t.TempDir(), t.TempDir(), t.TempDir(), t.TempDir()
	dir := filepath.Join(root, "shop-1")
	spec := `{"version": 1, "id": "shop-1", "role": "destination", "mode": "live", "workload": "shop", "driver": "docker", "bundle": "` + bundle + `",
		"listen": "192.0.2.1:9", "peer": {"fingerprint": "sha256:` + strings.Repeat("0", 64) + `"},
		"hooks": {"restore": {"argv": ["x"], "gate": "` + images + `", "hold": "/hold", "log": "/own/restore.log"}, "discard": {"argv": ["x"]}}}`
	for path, text := range map[string]string{filepath.Join(dir, "spec.json"): spec, filepath.Join(bundle, "config.json"): "{}"} {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	gate, err := hooks.OpenGate(run, images, dir)
	if err != nil {
		t.Fatal(err)
	}
	defer gate.Close()
	words, hold, err := restoring(context.Background(), []string{"restore", "--image-path", "/copy", "--bundle", bundle, "0123"}, root, run)
	if err != nil || hold != "/hold" || !strings.HasPrefix(strings.Join(words, " "), "restore --image-path "+images+" --work-path /own ") {
		t.Errorf("%q, %q, %v", words, hold, err)
	}
	if b, err := os.ReadFile(filepath.Join(bundle, "config.json")); err != nil || !strings.Contains(string(b), "runc-entered") {
		t.Errorf("the helper's hook is missing: %s, %v", b, err)
	}
}

// A container goes back to the memory of a snapshot for as long as the program that takes it
// back holds its note: by the images that this names, and it is not started beside that.
func TestARestoreToTheMemoryOfASnapshot(t *testing.T) {
	run, bundle := t.TempDir(), filepath.Join(t.TempDir(), "0123")
	note := filepath.Join(run, "memory", "0123.json")
	if err := os.MkdirAll(filepath.Dir(note), 0o700); err != nil {
		t.Fatal(err)
	}
	words := []string{"restore", "--image-path", "/copy", "--bundle", bundle, "0123"}
	ask := func() (string, error, error) {
		got, hold, err := restoring(context.Background(), words, t.TempDir(), run)
		if hold != "" {
			t.Errorf("%s stands in for CRIU", hold)
		}
		return strings.Join(got, " "), err, mayCreate(context.Background(), []string{"create", "--bundle", bundle, "0123"}, t.TempDir(), run)
	}
	if err := os.WriteFile(note, []byte(`{"images": "/images", "work": "/own"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err, create := ask(); err != nil || got != strings.Join(words, " ") || create != nil {
		t.Errorf("by a note that a killed program has left: %s, %v, %v", got, err, create)
	}
	holder, err := os.Open(note)
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Close()
	if err := unix.Flock(int(holder.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	want := "restore --image-path /images --work-path /own --tcp-established --file-locks --bundle " + bundle + " 0123"
	if got, err, create := ask(); err != nil || got != want || create == nil || !strings.Contains(create.Error(), "goes back to the memory of a snapshot") {
		t.Errorf("%s, %v, %v", got, err, create)
	}
	for _, text := range []string{"", `{"images": "/images"}`} {
		if err := os.WriteFile(note, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err, create := ask(); err == nil || create == nil || !strings.Contains(err.Error(), "does not say where the memory is") {
			t.Errorf("by %q: %v, %v", text, err, create)
		}
	}
}
