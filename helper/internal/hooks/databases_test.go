package hooks

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// A task of a frozen cgroup has one file open, and it is told whether that is a database.
func TestFindDatabase(t *testing.T) {
	c, _ := busy(t)
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	const begins = `printf 'SQLite format 3\0%1024s' > "$0" && `
	for _, each := range []struct {
		name, line string
		finds      string // empty: none
	}{
		{"a.db", begins + `exec 9<>"$0"`, "a.db"},
		{"read.db", begins + `exec 9<"$0"`, "read.db"},
		{"gone.db", begins + `exec 9<>"$0" && rm "$0"`, "gone.db"},
		{"empty.db-wal", `exec 9>"$0"`, "empty.db"},
		{"b.db-shm", `exec 9>"$0"`, "b.db"},
		{"c.db-journal", `exec 9>"$0"`, "c.db"},
		{"closed.db", begins + `true`, ""},
		{"empty.db", `exec 9>"$0"`, ""},
		{"text", `printf 'SQLite 3\0%1024s' > "$0" && exec 9<>"$0"`, ""},
		{"short", `printf 'SQLite format 3\0' > "$0" && exec 9<>"$0"`, ""},
		{"folder-wal", `mkdir "$0" && exec 9<"$0"`, ""},
		{"pipe-wal", `mkfifo "$0" && exec 9<>"$0"`, ""},
	} {
		task := exec.Command("sh", "-c", each.line+` && touch "$1" && exec sleep 600`, at(each.name), at("ready"))
		if err := task.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = task.Process.Kill(); _ = task.Wait() })
		for range 1000 {
			if _, err := os.Stat(at("ready")); err == nil {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		if err := os.Remove(at("ready")); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(string(c), "cgroup.procs"), []byte(strconv.Itoa(task.Process.Pid)), 0); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Freeze(context.Background()); err != nil {
			t.Fatal(err)
		}
		st, err := stat(dir, 0)
		if err != nil {
			t.Fatal(err)
		}
		found, err := c.FindDatabase(func(*Database) bool { return true })
		want := Database{at(each.finds), strconv.Itoa(task.Process.Pid), st.device}
		if err != nil || (found != nil) != (each.finds != "") || found != nil && *found != want {
			t.Errorf("%s: %v, %v", each.name, found, err)
		}
		if found, err := c.FindDatabase(func(*Database) bool { return false }); err != nil || found != nil {
			t.Errorf("%s: %v was found, which does not matter (%v)", each.name, found, err)
		}
		if err := c.Thaw(); err != nil {
			t.Fatal(err)
		}
		_ = task.Process.Kill()
		_ = task.Wait()
	}
}
