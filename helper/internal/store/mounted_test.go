package store

import (
	"os"
	"path/filepath"
	"testing"
)

func TestAMountPointWithoutItsFileSystemIsNamed(t *testing.T) {
	const fstab = `# <file system> <mount point> <type>
UUID=1 / ext4 defaults 0 1
UUID=2 none swap sw 0 0
UUID=3 /srv ext4 defaults 0 2
UUID=4 /srv/backups/ ext4 noauto 0 2
UUID=5 /srv/my\040disk ext4 defaults 0 2
#UUID=6 /old ext4 defaults 0 2
`
	const mounts = "/dev/a / ext4 rw 0 0\n/dev/b /srv ext4 rw 0 0\n/dev/c /srv/my\\040disk ext4 rw 0 0\n"
	for path, missing := range map[string]string{
		"/var/store": "", "/srv/store": "", "/srv/backups": "/srv/backups", "/srv/backups/shop": "/srv/backups", "/srv/backups2/shop": "", "/srv/my disk/shop": "",
		"/old/shop": "",
	} {
		if found := unmounted(path, fstab, mounts); found != missing {
			t.Errorf("%s: %q, and not %q", path, found, missing)
		}
	}
	if found := unmounted("/srv/backups/shop", fstab, mounts+"server:/ /srv/backups nfs4 rw 0 0\n"); found != "" {
		t.Errorf("a mounted one is named: %q", found)
	}
}

func TestLinksAreFollowedAsFarAsAPathIsThere(t *testing.T) {
	real, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(real, filepath.Join(real, "link")); err != nil {
		t.Fatal(err)
	}
	if found := withoutLinks(filepath.Join(real, "link", "gone", "shop")); found != filepath.Join(real, "gone", "shop") {
		t.Errorf("it leads to %s", found)
	}
}
