package hooks

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/encoding/protowire"
)

// Words with which the tests start this binary again.
const (
	actHeld = "act-held" // stand in for CRIU: act-held RUNDIR ARGS…
	actCRIU = "swrk"     // be CRIU: the name is criu, the first argument this
)

// standIn does what pcopy does under the name criu.
func standIn(args []string) error {
	return Held(context.Background(), args[1], args[2:], holder(args[0]))
}

// holder decides by the gates of a folder, and by a mark in there.
type holder string

func (h holder) MayStart(dir string) (bool, error) {
	reg, err := Lookup(string(h), dir)
	if err != nil || reg == nil {
		return err == nil, err
	}
	return reg.Ask(StartUp, "")
}

func (h holder) Options(_ string, restores bool) (*Options, error) {
	if _, err := os.Stat(filepath.Join(string(h), "lazy")); err != nil {
		return nil, nil
	}
	return &Options{Config: filepath.Join(string(h), "criu.conf"), Lazy: true, Cgroups: true, Unlocked: restores}, nil
}

// beCRIU takes the request and says that it came up.
func beCRIU() error {
	b := make([]byte, 4096)
	n, err := unix.Read(3, b)
	if err != nil {
		return err
	}
	_, err = unix.Write(3, append([]byte("criu has "), b[:n]...))
	return err
}

func field(n protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(nil, n, protowire.VarintType), v)
}

func request(kind uint64, imagesDir int) []byte {
	options := append(field(fieldImagesDir, uint64(imagesDir)), protowire.AppendString(protowire.AppendTag(nil, 10, protowire.BytesType), "restore.log")...)
	return append(field(fieldType, kind), protowire.AppendBytes(protowire.AppendTag(nil, fieldOptions, protowire.BytesType), options)...)
}

// runtime plays runc: it starts `criu swrk 3` from a PATH with the stand-in in
// front, writes the request and hands back its end of the socket.
func runtime(t *testing.T, run string, req []byte) (net.Conn, *exec.Cmd) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_LOCAL, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	mine, theirs := os.NewFile(uintptr(fds[0]), "mine"), os.NewFile(uintptr(fds[1]), "theirs")
	conn, err := net.FileConn(mine)
	if err != nil {
		t.Fatal(err)
	}
	mine.Close()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	hold, bin := t.TempDir(), t.TempDir()
	stand := filepath.Join(hold, criuProgram)
	if err := os.WriteFile(stand, fmt.Appendf(nil, "#!/bin/sh\nexec %s %s %s \"$0\" \"$@\"\n", self, actHeld, run), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(self, filepath.Join(bin, criuProgram)); err != nil {
		t.Fatal(err)
	}
	c := exec.Command(stand, "swrk", "3")
	c.Env = append(os.Environ(), "PATH="+strings.Join([]string{hold, bin, os.Getenv("PATH")}, ":"))
	c.ExtraFiles = []*os.File{theirs}
	c.Stderr = os.Stderr
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	t.Cleanup(func() { conn.Close(); _ = c.Process.Kill(); _ = c.Wait() })
	if _, err := conn.Write(req); err != nil {
		t.Fatal(err)
	}
	return conn, c
}

// answer is what the real CRIU wrote, or nothing if it never came up.
func answer(t *testing.T, c net.Conn, limit time.Duration) string {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(limit))
	b := make([]byte, 4096)
	n, err := c.Read(b)
	if err != nil {
		return ""
	}
	return string(b[:n])
}

func TestARestoreIsHeldBeforeCRIUComesUp(t *testing.T) {
	for _, yes := range []bool{true, false} {
		g, run, images := gate(t)
		dir, err := os.Open(images)
		if err != nil {
			t.Fatal(err)
		}
		defer dir.Close()
		req := request(typeRestore, int(dir.Fd()))
		c, p := runtime(t, run, req)
		end := make(chan error, 1)
		waiting := &Process{name: "runc", done: make(chan struct{})}
		if _, err := g.Await(t.Context(), StartUp, waiting); err != nil {
			t.Fatal(err)
		}
		if got := answer(t, c, 100*time.Millisecond); got != "" {
			t.Fatalf("CRIU came up without an answer: %q", got)
		}
		g.Answer(StartUp, yes)
		want := ""
		if yes {
			want = "criu has " + string(req) // nothing was taken from the socket
		}
		if got := answer(t, c, 30*time.Second); got != want {
			t.Errorf("answered %v: the runtime heard %q", yes, got)
		}
		go func() { end <- p.Wait() }()
		if err := <-end; (err == nil) != yes {
			t.Errorf("answered %v: it ended with %v", yes, err)
		}
		if err := g.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestWhatRestoresNothingIsNotHeld(t *testing.T) {
	_, run, images := gate(t)
	other := t.TempDir()
	for name, c := range map[string]struct {
		kind uint64
		dir  string
	}{
		"a version":                    {10, images},
		"a dump":                       {1, images},
		"a restore of somebody else's": {typeRestore, other},
	} {
		dir, err := os.Open(c.dir)
		if err != nil {
			t.Fatal(err)
		}
		defer dir.Close()
		conn, _ := runtime(t, run, request(c.kind, int(dir.Fd())))
		if got := answer(t, conn, 30*time.Second); !strings.HasPrefix(got, "criu has ") {
			t.Errorf("%s: the runtime heard %q", name, got)
		}
	}
}

// What cannot be read is CRIU's to complain about.
func TestABrokenRequestRestoresNothing(t *testing.T) {
	whole := request(typeRestore, 7)
	if r := parseRequest(whole); r.images != 7 || r.kind != typeRestore {
		t.Fatalf("%+v", r)
	}
	for n := range whole {
		if r := parseRequest(whole[:n]); r.kind == typeRestore && r.images >= 0 && n < len(whole)-len("restore.log")-2 {
			t.Errorf("the first %d bytes are taken for a restore", n)
		}
	}
}

// A session that has options of its own has its own file named in the request, as if the runtime
// had named it, and what was in the file that it had named is in there, too.
func TestARequestIsMadeOneWithOptions(t *testing.T) {
	for _, kind := range []uint64{typeDump, typeRestore} {
		for _, host := range []string{"action-script /x", "action-script /x\nverbosity 4"} {
			t.Run(fmt.Sprintf("%d %q", kind, host), func(t *testing.T) { withOptions(t, kind, host) })
		}
	}
}

// withOptions is for one kind of request, and one text of the host's own file. CRIU logs warnings alone, unless that
// says otherwise.
func withOptions(t *testing.T, kind uint64, host string) {
	g, run, images := gate(t)
	g.Answer(StartUp, true)
	given := filepath.Join(run, "runc.conf")
	for path, text := range map[string]string{filepath.Join(run, "lazy"): "", given: host} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	dir, err := os.Open(images)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	req := parseRequest(request(kind, int(dir.Fd())))
	if req.whole, err = req.withConfig(given); err != nil {
		t.Fatal(err)
	}
	req = parseRequest(req.whole)
	want, err := req.withConfig(filepath.Join(run, "criu.conf"))
	if err != nil || req.config != given || parseRequest(want).images != int(dir.Fd()) {
		t.Fatal(req, err)
	}
	if !strings.Contains(host, "verbosity") {
		if want, err = withLogLevel(want, 2); err != nil {
			t.Fatal(err)
		}
	}
	c, p := runtime(t, run, req.whole)
	if got := answer(t, c, 30*time.Second); got != "criu has "+string(want) {
		t.Errorf("the runtime heard %q and not %q", got, want)
	}
	if err := p.Wait(); err != nil {
		t.Error(err)
	}
	text, err := os.ReadFile(filepath.Join(run, "criu.conf"))
	if err != nil || !strings.HasPrefix(string(text), host+"\nmanage-cgroups=soft\nlazy-pages\n") || strings.Contains(string(text), "ps-socket ") != (kind == typeDump) ||
		strings.HasSuffix(string(text), "\nnetwork-lock skip\n") != (kind == typeRestore) {
		t.Errorf("CRIU is told %q, %v", text, err)
	}
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
}

// A runtime's level of the log is replaced, and nothing else.
func TestALevelOfTheLogIsReplaced(t *testing.T) {
	options := append(field(fieldLogLevel, 4), field(5, 1)...)
	request := protowire.AppendBytes(protowire.AppendTag(field(1, typeDump), fieldOptions, protowire.BytesType), options)
	got, err := withLogLevel(request, 2)
	want := protowire.AppendBytes(protowire.AppendTag(field(1, typeDump), fieldOptions, protowire.BytesType), append(field(5, 1), field(fieldLogLevel, 2)...))
	if err != nil || string(got) != string(want) {
		t.Errorf("%q and not %q, %v", got, want, err)
	}
}
