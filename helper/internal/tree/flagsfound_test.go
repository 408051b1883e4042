package tree

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

func TestFlagsAreFoundBeforeTheyAreCopied(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: flags")
	}
	root := freed(t)
	must(t, os.MkdirAll(filepath.Join(root, "deep/er"), 0o700), os.WriteFile(filepath.Join(root, "plain"), nil, 0o600), os.WriteFile(filepath.Join(root, "deep/er/log"), nil, 0o600), unix.Mkfifo(filepath.Join(root, "pipe"), 0o600), os.Symlink("plain", filepath.Join(root, "link")))
	found, err := FlagsIn(root)
	if err != nil || len(found) > 0 {
		t.Fatalf("%v, %v", found, err)
	}
	locked(t, filepath.Join(root, "plain"), immutable|0x40)
	locked(t, filepath.Join(root, "deep/er/log"), appendOnly)
	locked(t, filepath.Join(root, "deep"), immutable)
	found, err = FlagsIn(root)
	if want := []FoundFlag{{"immutable", root + "/deep", true}, {"append only", root + "/deep/er/log", true}}; err != nil || !slices.Equal(found, want) {
		t.Errorf("%v, %v", found, err)
	}
	found, err = FlagsIn(filepath.Join(root, "plain"))
	if want := []FoundFlag{{"immutable", root + "/plain", true}}; err != nil || !slices.Equal(found, want) {
		t.Errorf("of a file: %v, %v", found, err)
	}
}

func TestTheFlagsThatAFileSystemCannotHaveAreTried(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: flags, mounts")
	}
	cases := map[string][]string{
		"ext4":  {},
		"tmpfs": {"synchronous", "synchronous folder"},
		"xfs":   {"synchronous folder"},
	}
	for kind, want := range cases {
		t.Run(kind, func(t *testing.T) {
			folder := mounted(t, kind)
			missing, err := FlagsMissing(folder)
			if err != nil || !slices.Equal(missing, want) {
				t.Errorf("%v, %v", missing, err)
			}
			if left, err := os.ReadDir(folder); err != nil || slices.ContainsFunc(left, func(e os.DirEntry) bool { return e.Name() != "lost+found" }) {
				t.Errorf("left behind: %v, %v", left, err)
			}
		})
	}
}

// mounted is a folder with a file system of this kind on it.
func mounted(t *testing.T, kind string) string {
	t.Helper()
	folder, device := t.TempDir(), "tmpfs"
	words := []string{"mount", "-t", kind}
	if kind != "tmpfs" {
		device = filepath.Join(t.TempDir(), "image")
		must(t, os.WriteFile(device, nil, 0o600), os.Truncate(device, 320<<20))
		if out, err := exec.Command("mkfs."+kind, device).CombinedOutput(); err != nil {
			t.Skipf("mkfs.%s: %v: %s", kind, err, out)
		}
		words = append(words, "-o", "loop")
	}
	if out, err := exec.Command(words[0], append(words[1:], device, folder)...).CombinedOutput(); err != nil {
		t.Skipf("%s: %v: %s", kind, err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", folder).CombinedOutput(); err != nil {
			t.Errorf("umount: %v: %s", err, out)
		}
	})
	return folder
}
