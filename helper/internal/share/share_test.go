package share

import (
	"bufio"
	"os"
	"os/exec"
	"testing"
	"time"
)

func member(t *testing.T, dir, name string) *Member {
	t.Helper()
	m, err := New(dir, name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Leave)
	return m
}

func join(t *testing.T, m *Member) {
	t.Helper()
	if err := m.Join(); err != nil {
		t.Fatal(err)
	}
}

// recount forgets what was counted, as time does.
func recount(m *Member) { m.counted = time.Time{} }

func part(t *testing.T, m *Member, limit, want int64) {
	t.Helper()
	recount(m)
	if got := m.Part(limit); got != want {
		t.Errorf("%s: a part of %d, should be %d", m.name, got, want)
	}
}

func TestEachHasItsPart(t *testing.T) {
	dir := t.TempDir()
	a, b, c := member(t, dir, "a"), member(t, dir, "b"), member(t, dir, "c")
	join(t, a)
	part(t, a, 900, 900)
	join(t, b)
	join(t, b) // is counted once
	part(t, a, 900, 450)
	join(t, c)
	part(t, a, 900, 300)
	part(t, b, 90, 30) // of the limit that it was given itself
	b.Leave()
	b.Leave()
	part(t, a, 900, 450)
	join(t, b)
	part(t, c, 900, 300)
}

func TestWithoutALimitThereIsNone(t *testing.T) {
	part(t, member(t, t.TempDir(), "a"), 0, 0)
	var none *Member
	if none.Join() != nil || none.Part(7) != 7 {
		t.Error("a copy that shares nothing has the whole limit")
	}
	none.Leave()
}

func TestAPartIsNeverNothing(t *testing.T) {
	dir := t.TempDir()
	a, b := member(t, dir, "a"), member(t, dir, "b")
	join(t, a)
	join(t, b)
	part(t, a, 1, 1)
}

func TestACountLastsAWhile(t *testing.T) {
	dir := t.TempDir()
	a, b := member(t, dir, "a"), member(t, dir, "b")
	join(t, a)
	part(t, a, 100, 100)
	join(t, b)
	if a.counted = time.Now(); a.Part(100) != 100 {
		t.Error("the files were looked at again at once")
	}
}

// One that was killed leaves its file and loses its lock.
func TestAProcessThatDiedIsNotCounted(t *testing.T) {
	dir := t.TempDir()
	a := member(t, dir, "a")
	join(t, a)
	cmd := exec.Command(os.Args[0], "-test.run=^TestChild$")
	cmd.Env = append(os.Environ(), "SHARE_DIR="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	part(t, a, 100, 50)
	cmd.Process.Kill()
	cmd.Wait()
	part(t, a, 100, 100)
	if _, err := os.Stat(dir + "/child"); err != nil {
		t.Error("the file of the killed one is gone, and nothing was tried")
	}
}

// TestChild is the process of the test above.
func TestChild(t *testing.T) {
	dir := os.Getenv("SHARE_DIR")
	if dir == "" {
		t.Skip("no test of its own")
	}
	m, err := New(dir, "child")
	if err == nil {
		err = m.Join()
	}
	if err != nil {
		t.Fatal(err)
	}
	os.Stdout.WriteString("joined\n")
	time.Sleep(time.Minute)
}

func TestWhoComesFirstIsToldByTheName(t *testing.T) {
	dir := t.TempDir()
	a, b, c := member(t, dir, "1-z"), member(t, dir, "2-a"), member(t, dir, "3-b")
	for _, m := range []*Member{c, a, b} {
		join(t, m)
	}
	for i, m := range []*Member{a, b, c} {
		if n := m.Ahead(); n != int64(i) {
			t.Errorf("%s: %d come before it, should be %d", m.name, n, i)
		}
	}
	a.Leave()
	if n := c.Ahead(); n != 1 {
		t.Errorf("one has left, and %d come before the last", n)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if n := c.Ahead(); n != 0 {
		t.Errorf("nobody has a place any more, and %d come before the last", n)
	}
	var none *Member
	if none.Ahead() != 0 {
		t.Error("nobody comes before who does not stand in line")
	}
}
