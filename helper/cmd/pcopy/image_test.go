package main

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// delta is a ploop image of two clusters, the second of which holds x.
func delta() []byte {
	b := make([]byte, 2*4096)
	copy(b, "WithouFreSpacExt")
	for at, v := range map[int]uint32{16: 2, 28: 8, 32: 2, 36: 16, 48: 8, 68: 1} {
		binary.LittleEndian.PutUint32(b[at:], v)
	}
	for i := range 4096 {
		b[4096+i] = 'x'
	}
	return b
}

// What cannot be read whole is not written at all.
func TestImageCommandsRefuse(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	used, cut := delta(), delta()[:5000]
	binary.LittleEndian.PutUint32(used[44:], 0x746F6E59)
	for name, b := range map[string][]byte{"good": delta(), "used": used, "cut": cut, "other": []byte(strings.Repeat("?", 9000))} {
		if err := os.WriteFile(at(name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		words []string
		says  string
	}{
		{[]string{"convert", at("used"), at("out")}, "the image is in use, or was not closed: unmount it first, or pass --in-use"},
		{[]string{"convert", at("cut"), at("out")}, "ends behind the end of the file, which has 5000 bytes"},
		{[]string{"convert", at("other"), at("out")}, `this is no ploop image: it begins with "????????????????"`},
		{[]string{"convert", at("nothing"), at("out")}, "nothing: no such file or directory"},
		{[]string{"convert", "--format", "vmdk", at("good"), at("out")}, "--format vmdk: choose one of raw, qcow2"},
		{[]string{"convert", at("good")}, "1 words were given where 2 are needed"},
		{[]string{"merge", at("good"), at("cut"), at("out")}, "ends behind the end of the file"},
		{[]string{"merge", at("used"), at("good"), at("out")}, "the image is in use"},
		{[]string{"check", at("cut")}, "the image is damaged, see the findings"},
		{[]string{"fill", at("out"), dir, "--memory", at("m"), "--stop", "true"}, "leave --stop and --cgroup out"},
		{[]string{"fill", at("out"), dir, "--memory", at("nothing")}, "nothing: no such file"},
		{[]string{"info", at("cut")}, "ends behind the end of the file"},
	} {
		err := execute(context.Background(), io.Discard, append([]string{"image"}, c.words...))
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v: %v\n  should say %q", c.words, err, c.says)
		}
		if _, err := os.Lstat(at("out")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%v: something was written", c.words)
			os.Remove(at("out"))
		}
	}
	for _, words := range [][]string{{"convert", at("good"), at("a")}, {"convert", "--in-use", at("used"), at("b")}, {"merge", at("good"), at("good"), at("c")}} {
		if err := execute(context.Background(), io.Discard, append([]string{"image"}, words...)); err != nil {
			t.Errorf("%v: %v", words, err)
		}
		out := words[len(words)-1]
		if b, err := os.ReadFile(out); err != nil || string(b) != strings.Repeat("\x00", 4096)+strings.Repeat("x", 4096) {
			t.Errorf("%v: %.20q…, %v", words, b, err)
		}
	}
}
