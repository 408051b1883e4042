package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A folder without a mount that a container would see is refused without any session:
// enough to see both answers. What a session answers is tested in package recovery.
func TestTheGateBeforeRuncAnswersByTheBundle(t *testing.T) {
	root, bundle := t.TempDir(), t.TempDir()
	log := filepath.Join(t.TempDir(), "log.json")
	ask := func(words ...string) error { return mayCreate(context.Background(), words, root, t.TempDir()) }
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
