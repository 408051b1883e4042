package envelope

import (
	"bytes"
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var secret = []byte("a\x00b\nhunter2\n")

func offered(t *testing.T) (path, public string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "keys", "move.key")
	public, err := Offer(path)
	if err != nil {
		t.Fatal(err)
	}
	return path, public
}

func sealed(t *testing.T, public string) string {
	t.Helper()
	s, err := Seal(public, "move-1", secret)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestWhatWasClosedIsOpenedOnce(t *testing.T) {
	path, public := offered(t)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key is %v, %v", info.Mode(), err)
	}
	s := sealed(t, public)
	if raw, _ := base64.StdEncoding.DecodeString(s); bytes.Contains(raw, []byte("hunter2")) {
		t.Error("it can be read without a key")
	}
	if sealed(t, public) == s {
		t.Error("two envelopes of one content are the same")
	}
	plain, err := Open(path, "move-1", s)
	if err != nil || !bytes.Equal(plain, secret) {
		t.Fatalf("%q, %v", plain, err)
	}
	if _, err := Open(path, "move-1", s); err == nil || !strings.Contains(err.Error(), "no key for it") {
		t.Errorf("a second time: %v", err)
	}
}

func TestWhatWasClosedForOthersIsNotOpened(t *testing.T) {
	_, strange := offered(t)
	for name, c := range map[string]func(public string) (label, envelope, want string){
		"another host's": func(string) (string, string, string) {
			return "move-1", sealed(t, strange), "another host or another purpose"
		},
		"another purpose's": func(p string) (string, string, string) {
			return "move-2", sealed(t, p), "another host or another purpose"
		},
		"changed": func(p string) (string, string, string) {
			raw, _ := base64.StdEncoding.DecodeString(sealed(t, p))
			raw[len(raw)-1] ^= 1
			return "move-1", base64.StdEncoding.EncodeToString(raw), "changed on the way"
		},
		"cut off":   func(p string) (string, string, string) { return "move-1", sealed(t, p)[:20], "damaged" },
		"no base64": func(string) (string, string, string) { return "move-1", "!", "damaged" },
	} {
		t.Run(name, func(t *testing.T) {
			path, public := offered(t)
			label, envelope, want := c(public)
			if plain, err := Open(path, label, envelope); err == nil || !strings.Contains(err.Error(), want) || plain != nil {
				t.Errorf("%q, %v", plain, err)
			}
			if _, err := os.Stat(path); !os.IsNotExist(err) {
				t.Errorf("the key is still there: %v", err)
			}
		})
	}
}

func TestAKeyThatIsNone(t *testing.T) {
	for _, public := range []string{"", "zz", strings.Repeat("ab", 31)} {
		if _, err := Seal(public, "move-1", secret); err == nil || !strings.Contains(err.Error(), "is no public key") {
			t.Errorf("%q: %v", public, err)
		}
	}
	path, _ := offered(t)
	if err := os.WriteFile(path, []byte("short"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path, "move-1", "x"); err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Error(err)
	}
}

func TestAnOfferEndsTheOneBefore(t *testing.T) {
	path, first := offered(t)
	if second, err := Offer(path); err != nil || second == first {
		t.Fatalf("%q, %v", second, err)
	}
	if _, err := Open(path, "move-1", sealed(t, first)); err == nil {
		t.Error("the first key opens still")
	}
	if err := Forget(path); err != nil {
		t.Error(err)
	}
}
