package hooks

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestMembersComeInTurn(t *testing.T) {
	dir := t.TempDir()
	log := filepath.Join(dir, "log")
	script := []string{"/bin/sh", "-c", `echo "$0" >>` + log + `; if [ "$0" = bad ]; then echo it is broken >&2; exit 3; fi`}
	if err := InTurn(t.Context(), dir, "shop", []Turn{{script, []string{"db"}}, {script, []string{"web"}}}); err != nil {
		t.Fatal(err)
	}
	err := InTurn(t.Context(), dir, "shop", []Turn{{script, []string{"cache", "bad", "web"}}, {script, []string{"other"}}})
	if err == nil || !strings.Contains(err.Error(), "bad of shop") || !strings.Contains(err.Error(), "it is broken") {
		t.Errorf("a member that fails: %v", err)
	}
	if b, err := os.ReadFile(log); err != nil || string(b) != "db\nweb\ncache\nbad\n" {
		t.Errorf("%q, %v", b, err)
	}
}

// One that was left behind still stops members: those that start them again wait.
func TestACommandForAllOfAWorkloadIsNotOvertaken(t *testing.T) {
	dir := t.TempDir()
	held, err := takeTurn(filepath.Join(dir, turnsDir), "shop")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- InTurn(t.Context(), dir, "shop", []Turn{{[]string{"/bin/true"}, []string{"db"}}}) }()
	if err := InTurn(t.Context(), dir, "web", []Turn{{[]string{"/bin/true"}, []string{"web"}}}); err != nil {
		t.Errorf("another workload waits: %v", err)
	}
	select {
	case err := <-ended:
		t.Fatalf("it was overtaken: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	held.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
