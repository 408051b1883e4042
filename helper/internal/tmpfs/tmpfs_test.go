package tmpfs

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/hooks"
	"github.com/livefleet/handover/helper/internal/loop"
	"github.com/livefleet/handover/helper/internal/tree"
)

// place is a session with a gate before a folder of images.
type place struct {
	t                       *testing.T
	runDir, session, images string
}

func newPlace(t *testing.T) *place {
	t.Helper()
	// The path of a unix socket has at most 107 bytes, and t.TempDir puts the test's name into it.
	top, err := os.MkdirTemp("", "place")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(top) })
	p := &place{t, filepath.Join(top, "run"), filepath.Join(top, "session"), filepath.Join(top, "images")}
	for _, dir := range []string{p.runDir, p.session, p.images} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// gate registers the session.
func (p *place) gate() {
	p.t.Helper()
	g, err := hooks.OpenGate(p.runDir, p.images, p.session)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { g.Close() })
}

func (p *place) archive(name, text string) *os.File {
	p.t.Helper()
	f, err := os.OpenFile(filepath.Join(p.images, name), os.O_CREATE|os.O_RDWR, 0o600)
	if err == nil {
		_, err = f.WriteString(text)
	}
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { f.Close() })
	return f
}

// own has all of a list be of the folder of images, where it names no other.
func (p *place) own(l *List) *List {
	for i := range l.Followed {
		l.Followed[i].Images = cmp.Or(l.Followed[i].Images, p.images)
	}
	for i := range l.Laid {
		l.Laid[i].Images = cmp.Or(l.Laid[i].Images, p.images)
	}
	return l
}

func (p *place) write(l *List) {
	p.t.Helper()
	if err := l.Write(p.session); err != nil {
		p.t.Fatal(err)
	}
}

func followed(t *testing.T, dir string) Followed {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		t.Fatal(err)
	}
	return Followed{Name: "tmpfs:/scratch", Device: st.Dev, Inode: st.Ino}
}

func create(p *place, dir string) (done bool, text string, err error) {
	p.t.Helper()
	in, err := os.Open(dir)
	if err != nil {
		p.t.Fatal(err)
	}
	defer in.Close()
	out := p.archive("tmpfs-dev-7.tar.gz.img", "")
	c := Call{Args: strings.Fields("--create --gzip --directory /proc/self/fd/0 ."), In: in, Out: out, RunDir: p.runDir}
	done, err = c.carry(context.Background())
	b, e := os.ReadFile(out.Name())
	if e != nil {
		p.t.Fatal(e)
	}
	return done, string(b), err
}

func TestAMarkIsForTheFollowedFolderAlone(t *testing.T) {
	dir := t.TempDir()
	other := followed(t, dir)
	other.Device++
	inner := followed(t, dir)
	inner.Inode++
	ofAnother := followed(t, dir)
	ofAnother.Images = "/of/another"
	for name, c := range map[string]struct {
		gated bool
		list  *List
		done  bool
		text  string
		fails string
	}{
		"followed":                    {true, &List{Session: "s", Followed: []Followed{followed(t, dir)}}, true, "handover-tmpfs s tmpfs:/scratch\n", ""},
		"followed for another dump":   {true, &List{Session: "s", Followed: []Followed{ofAnother}}, false, "", "follows it for the dump in /of/another"},
		"another device":              {true, &List{Session: "s", Followed: []Followed{other}}, false, "", ""},
		"another folder of the tmpfs": {true, &List{Session: "s", Followed: []Followed{inner}}, false, "", "another folder"},
		"no list":                     {true, nil, false, "", ""},
		"no session":                  {false, &List{Session: "s", Followed: []Followed{followed(t, dir)}}, false, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			if c.gated {
				p.gate()
			}
			if c.list != nil {
				p.write(p.own(c.list))
			}
			done, text, err := create(p, dir)
			if done != c.done || text != c.text || (err == nil) != (c.fails == "") || err != nil && !strings.Contains(err.Error(), c.fails) {
				t.Errorf("done %v, %q, %v", done, text, err)
			}
		})
	}
}

func TestWhichMarksADumpHas(t *testing.T) {
	for name, c := range map[string]struct {
		archives map[string]string
		says     string
	}{
		"as agreed":          {map[string]string{"tmpfs-dev-1.tar.gz.img": markOf("s", "tmpfs:/a"), "tmpfs-dev-2.tar.gz.img": "\x1f\x8b"}, ""},
		"none":               {map[string]string{"tmpfs-dev-2.tar.gz.img": "\x1f\x8b"}, "0 marks"},
		"twice":              {map[string]string{"tmpfs-dev-1.tar.gz.img": markOf("s", "tmpfs:/a"), "tmpfs-3.tar.gz.img": markOf("s", "tmpfs:/a")}, "2 marks"},
		"of another session": {map[string]string{"tmpfs-dev-1.tar.gz.img": markOf("old", "tmpfs:/a")}, "the mark of session old"},
		"of another tmpfs":   {map[string]string{"tmpfs-dev-1.tar.gz.img": markOf("s", "tmpfs:/a"), "tmpfs-dev-3.tar.gz.img": markOf("s", "tmpfs:/b")}, "not carried"},
		"of another's":       {map[string]string{"tmpfs-dev-1.tar.gz.img": markOf("s", "tmpfs:/a"), "tmpfs-dev-3.tar.gz.img": markOf("s", "tmpfs:/other")}, "not carried"},
		"cut off":            {map[string]string{"tmpfs-dev-1.tar.gz.img": "handover-tmpfs s tmp"}, "broken"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			for name, text := range c.archives {
				p.archive(name, text)
			}
			l := &List{Session: "s", Followed: []Followed{{Name: "tmpfs:/a", Images: p.images}, {Name: "tmpfs:/other", Images: "/of/another"}}}
			err := l.Marked(p.images)
			if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v", err)
			}
		})
	}
}

// laid is a session's folder with a file in it.
func (p *place) laid() Laid {
	p.t.Helper()
	folder := p.t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "file"), []byte("text"), 0o640); err != nil {
		p.t.Fatal(err)
	}
	digest, err := tree.QuickDigest(context.Background(), folder)
	if err != nil {
		p.t.Fatal(err)
	}
	return Laid{Name: "tmpfs:/scratch", Images: p.images, Folder: folder, Digest: digest}
}

func (p *place) extract(text, target string) (bool, error) {
	in := p.archive("tmpfs-dev-7.tar.gz.img", text)
	c := Call{Args: []string{"--extract", "--gzip", "--directory", target}, In: in, Out: os.Stdout, RunDir: p.runDir}
	return c.carry(context.Background())
}

func TestOnlyAMarkOfACompleteSessionIsFilled(t *testing.T) {
	for name, c := range map[string]struct {
		text  string
		spoil func(p *place, l *List, target string)
		done  bool
		says  string
	}{
		"complete":     {text: markOf("s", "tmpfs:/scratch"), done: true},
		"a real one":   {text: "\x1f\x8b\x08"},
		"not complete": {text: markOf("s", "tmpfs:/scratch"), spoil: func(_ *place, l *List, _ string) { l.Laid = nil }, says: "not all of it"},
		"of another session": {
			text: markOf("s", "tmpfs:/scratch"), spoil: func(_ *place, l *List, _ string) { l.Session = "t" }, says: "not all of it",
		},
		"of another dump": {
			text: markOf("s", "tmpfs:/scratch"), spoil: func(_ *place, l *List, _ string) { l.Laid[0].Images = "/of/another" }, says: "nothing of tmpfs:/scratch was laid down",
		},
		"with other content": {
			text: markOf("s", "tmpfs:/scratch"), done: true, says: "not what the frozen source has",
			spoil: func(p *place, l *List, _ string) {
				if err := os.WriteFile(filepath.Join(l.Laid[0].Folder, "file"), []byte("tex!"), 0o640); err != nil {
					p.t.Fatal(err)
				}
			},
		},
		"into a folder with files": {
			text: markOf("s", "tmpfs:/scratch"), done: true, says: "is not empty",
			spoil: func(p *place, _ *List, target string) {
				if err := os.WriteFile(filepath.Join(target, "there"), nil, 0o600); err != nil {
					p.t.Fatal(err)
				}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p, target := newPlace(t), t.TempDir()
			p.gate()
			l := &List{Session: "s", Laid: []Laid{p.laid()}}
			if c.spoil != nil {
				c.spoil(p, l, target)
			}
			p.write(l)
			done, err := p.extract(c.text, target)
			if done != c.done || (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("done %v, %v", done, err)
			}
			if filled := AllFilled(p.session, "", map[string]string{"tmpfs:/scratch": target}); (filled == nil) != (done && err == nil) && len(l.Laid) > 0 {
				t.Errorf("all is filled: %v", filled)
			}
		})
	}
}

func TestAMountThatWasReplacedOrFilledTwiceIsNoRestore(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: mounts")
	}
	p, target := newPlace(t), t.TempDir()
	p.gate()
	l := &List{Session: "s", Laid: []Laid{p.laid()}}
	p.write(l)
	if err := loop.MountTmpfs(target); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := loop.Unmount(target); err != nil {
			t.Error(err)
		}
	}()
	if _, err := p.extract(markOf("s", "tmpfs:/scratch"), target); err != nil {
		t.Fatal(err)
	}
	places := map[string]string{"tmpfs:/scratch": target}
	if err := AllFilled(p.session, "", places); err != nil {
		t.Fatal(err)
	}
	if err := loop.Unmount(target); err != nil {
		t.Fatal(err)
	}
	if err := loop.MountTmpfs(target); err != nil { // it gets the same number
		t.Fatal(err)
	}
	if err := AllFilled(p.session, "", places); err == nil || !strings.Contains(err.Error(), "another file system") {
		t.Errorf("%v", err)
	}
	if _, err := p.extract(markOf("s", "tmpfs:/scratch"), target); err != nil {
		t.Fatal(err)
	}
	if err := AllFilled(p.session, "", places); err == nil || !strings.Contains(err.Error(), "filled 2 times") {
		t.Errorf("%v", err)
	}
	p.write(l) // begun again: earlier notes count no more
	if err := AllFilled(p.session, "", places); err == nil || !strings.Contains(err.Error(), "filled 0 times") {
		t.Errorf("%v", err)
	}
}

// The digest is of a file system that has no room for a byte more, and may not be written to.
func TestAFullMountIsFilledAsItWas(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: mounts")
	}
	from, to := t.TempDir(), t.TempDir()
	for _, dir := range []string{from, to} {
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = loop.Unmount(dir) }()
	}
	for n := 0; ; n++ {
		if err := os.WriteFile(filepath.Join(from, fmt.Sprint(n)), make([]byte, 4096), 0o600); err != nil {
			break
		}
	}
	if err := unix.Mount("", from, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	p := newPlace(t)
	p.gate()
	digest, err := tree.QuickDigest(context.Background(), from)
	if err != nil {
		t.Fatal(err)
	}
	p.write(p.own(&List{Session: "s", Laid: []Laid{{Name: "tmpfs:/scratch", Folder: from, Digest: digest}}}))
	if done, err := p.extract(markOf("s", "tmpfs:/scratch"), to); err != nil || !done {
		t.Errorf("%v, %v", done, err)
	}
}

// Held becomes the real tar, with the same words, for all that is none of a session's.
func TestWordsOfAnotherTarAreNotTouched(t *testing.T) {
	if os.Getenv(heldWords) != "" {
		t.Fatal(Held(context.Background(), os.Args[0], Call{Args: strings.Fields(os.Getenv(heldWords)), In: os.Stdin, Out: os.Stdout, RunDir: os.Getenv(heldRunDir)}))
	}
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "tar"), []byte("#!/bin/sh\necho \"$0 $*\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	own := exec.Command(os.Args[0], "-test.run=^TestWordsOfAnotherTarAreNotTouched$")
	own.Env = []string{"PATH=" + bin + ":" + os.Getenv("PATH"), heldWords + "=--extract --gzip --directory /somewhere", heldRunDir + "=" + t.TempDir()}
	archive := newPlace(t).archive("tmpfs-dev-7.tar.gz.img", "\x1f\x8b\x08")
	if _, err := archive.Seek(0, 0); err != nil {
		t.Fatal(err)
	}
	own.Stdin = archive
	out, err := own.CombinedOutput()
	if want := filepath.Join(bin, "tar") + " --extract --gzip --directory /somewhere\n"; err != nil || string(out) != want {
		t.Errorf("%q, %v", out, err)
	}
}

// The program becomes another one, and removes nothing of its own before.
const heldWords, heldRunDir = "TMPFS_TEST_HELD", "TMPFS_TEST_RUN"
