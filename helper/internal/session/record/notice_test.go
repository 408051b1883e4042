package record

import (
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// log stands for journald.
func log(t *testing.T) *net.UnixConn {
	t.Helper()
	before := journald
	journald = filepath.Join(t.TempDir(), "socket")
	t.Cleanup(func() { journald = before })
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: journald, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// said are the states that have been told so far.
func said(t *testing.T, c *net.UnixConn) string {
	t.Helper()
	var states []string
	for b := make([]byte, 4096); ; {
		if err := c.SetReadDeadline(time.Now().Add(10 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		n, err := c.Read(b)
		if err != nil {
			return strings.Join(states, " ")
		}
		_, after, _ := strings.Cut(string(b[:n]), "\nHANDOVER_STATE=")
		state, _, _ := strings.Cut(after, "\n")
		states = append(states, state)
	}
}

func sessionFolder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	b, err := json.Marshal(goodSpec())
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, SpecFile), b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// Nothing is said while the workload stands still. Behind it all is, each with its own time.
func TestNothingIsSaidInThePause(t *testing.T) {
	c, dir := log(t), sessionFolder(t)
	j, err := OpenJournal(dir, Source)
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		to   State
		told string
	}{
		{Presync, "presync"}, {Barrier, "barrier"}, {Frozen, ""}, {Flushed, ""}, {Prepared, ""}, {Released, ""},
		{InDoubt, "frozen flushed prepared released in_doubt"},
		{Refused, ""}, {Thawed, "refused thawed"},
		{Thawed, ""}, // it is there already
	} {
		if err := j.Append(step.to, ""); err != nil {
			t.Fatal(err)
		}
		if got := said(t, c); got != step.told {
			t.Errorf("at %s: %q, and not %q", step.to, got, step.told)
		}
	}
	if err := j.Close(); err != nil || said(t, c) != "" {
		t.Errorf("%v: said twice", err)
	}
}

// A process that ends in the pause has said how far it came.
func TestTheRestIsSaidAtTheEnd(t *testing.T) {
	c, dir := log(t), sessionFolder(t)
	j, err := OpenJournal(dir, Source)
	for _, s := range []State{Presync, Barrier, Frozen} {
		if err == nil {
			err = j.Append(s, "")
		}
	}
	if err == nil {
		err = j.Close()
	}
	if got := said(t, c); err != nil || got != "presync barrier frozen" {
		t.Errorf("%v: %q", err, got)
	}
}

// A log that is full, or not there, holds nothing up and fails nothing.
func TestALogThatTakesNothing(t *testing.T) {
	c, dir := log(t), sessionFolder(t)
	if err := c.SetReadBuffer(1); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		n := notices{dir: dir}
		began := time.Now()
		for range 5000 { // more than the kernel queues
			n.add(Record{State: Presync})
		}
		if took := time.Since(began); took > 30*time.Second || len(n.late) > 0 {
			t.Errorf("%v, %d left", took, len(n.late))
		}
		c.Close() // the second time nobody listens
	}
}

func TestANotice(t *testing.T) {
	at := time.Date(2026, 11, 21, 4, 15, 0, 5, time.UTC)
	spec := &Spec{ID: "shop-1", Role: Source, Workload: "shop"}
	want := "MESSAGE=session shop-1 (source of shop): in_doubt: lost\nPRIORITY=2\nSYSLOG_IDENTIFIER=pcopy\nHANDOVER_SESSION=shop-1\nHANDOVER_ROLE=source\n" +
		"HANDOVER_WORKLOAD=shop\nHANDOVER_STATE=in_doubt\nHANDOVER_TIME=2026-11-21T04:15:00.000000005Z\n"
	if got := string(notice(spec, Record{Time: at, State: InDoubt, Why: "lost"})); got != want {
		t.Errorf("%q", got)
	}
	// A line of a field's own would be another field.
	got := string(notice(&Spec{ID: "disk-1", Role: Source}, Record{Time: at, State: Failed, Why: "a\nHANDOVER_STATE=done"}))
	if !strings.HasPrefix(got, "MESSAGE\n\x36\x00\x00\x00\x00\x00\x00\x00session disk-1 (source): failed: a\nHANDOVER_STATE=done\nPRIORITY=4\n") {
		t.Errorf("%q", got)
	}
}
