package criuimage

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
)

func text(b []byte, n protowire.Number, s string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, n, protowire.BytesType), s)
}

func within(b []byte, n protowire.Number, m []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, n, protowire.BytesType), m)
}

// member is a cg_member_entry; a prefix of 0 is left out, as CRIU does.
func member(name, path string, prefix int) []byte {
	b := text(text(nil, memberName, name), memberPath, path)
	if prefix > 0 {
		b = number(b, memberPrefix, uint64(prefix))
	}
	return b
}

// dumped is an image of two tasks on a host with a hierarchy of the first version, too.
func dumped(t *testing.T, root string, prefix int) string {
	t.Helper()
	first := within(within(number(nil, 1, 2), setMember, member("", root+"/init.scope", prefix)), setMember, member("freezer", "/", 0))
	second := within(number(nil, 1, 3), setMember, member("", root+"/system.slice/ssh.service", prefix))
	entry := within(within(nil, cgroupSet, first), cgroupSet, second)
	entry = within(entry, cgroupController, within(text(nil, controllerName, ""), controllerDir, text(nil, dirName, root[1:]+"/init.scope")))
	entry = within(entry, cgroupController, within(text(nil, controllerName, "freezer"), controllerDir, text(nil, dirName, "")))
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, cgroupImage), image([][]byte{entry}, cgroupMagic), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// members are the paths, prefixes and names of all members of an image's sets.
func members(t *testing.T, dir string) (found []any) {
	t.Helper()
	if err := eachEntry(filepath.Join(dir, cgroupImage), cgroupMagic, func(entry []byte) error {
		return eachBytes(entry, cgroupSet, func(set []byte) error {
			return eachBytes(set, setMember, func(m []byte) error {
				numbers, err := varints(m)
				_ = eachBytes(m, memberName, func(b []byte) error { found = append(found, string(b)); return nil })
				_ = eachBytes(m, memberPath, func(b []byte) error { found = append(found, string(b)); return nil })
				found = append(found, numbers[memberPrefix])
				return err
			})
		})
	}); err != nil {
		t.Fatal(err)
	}
	return found
}

func TestEmptyCgroupsTravelAndTheTasksEndBelowTheOwnOne(t *testing.T) {
	all := []Cgroup{
		{Path: ".", Mode: 0o40755, Values: []Value{{"cgroup.subtree_control", "memory pids"}}},
		{Path: "system.slice/ssh.service", Mode: 0o40755, User: 7, Group: 8, Values: []Value{{"pids.max", "100"}, {"cgroup.max.depth", "max"}}},
		{Path: "user.slice", Mode: 0o40700},
	}
	dir := dumped(t, "/libpod-old", len("/libpod-old"))
	if err := WriteCgroups(dir, all); err != nil {
		t.Fatal(err)
	}
	if got, err := ReadCgroups(dir); err != nil || !reflect.DeepEqual(got, all) {
		t.Errorf("%+v, %v", got, err)
	}
	was := []any{"", "/libpod-old/init.scope", uint64(11), "", "/libpod-old/system.slice/ssh.service", uint64(11)}
	if got := members(t, dir); !reflect.DeepEqual(got, was) {
		t.Errorf("the hierarchy of the first version is kept, or a path is another: %v", got)
	}
	if err := MoveCgroups(dir, "/a/libpod-new"); err != nil {
		t.Fatal(err)
	}
	if own, err := OwnCgroups(dir); err != nil || !own {
		t.Errorf("its namespace is not seen: %t, %v", own, err)
	}
	is := []any{"", "/a/libpod-new/init.scope", uint64(13), "", "/a/libpod-new/system.slice/ssh.service", uint64(13)}
	if got := members(t, dir); !reflect.DeepEqual(got, is) {
		t.Errorf("%v", got)
	}
	if got, err := ReadCgroups(dir); err != nil || len(got) != 0 {
		t.Errorf("CRIU would make %v, %v", got, err)
	}
}

// Without a cgroup namespace nothing tells which part of a path is the container's.
func TestADumpWithoutACgroupNamespaceStays(t *testing.T) {
	dir := dumped(t, "/libpod-old", 0)
	before, _ := os.ReadFile(filepath.Join(dir, cgroupImage))
	if err := WriteCgroups(dir, []Cgroup{{Path: "."}}); err != nil {
		t.Fatal(err)
	}
	if err := MoveCgroups(dir, "/libpod-new"); err != nil {
		t.Fatal(err)
	}
	if after, _ := os.ReadFile(filepath.Join(dir, cgroupImage)); string(before) != string(after) {
		t.Error("it is another")
	}
	if own, err := OwnCgroups(dir); err != nil || own {
		t.Errorf("it has a namespace: %t, %v", own, err)
	}
	if err := WriteCgroups(t.TempDir(), nil); err != nil {
		t.Errorf("a dump without cgroups: %v", err)
	}
}

// A path of the dump that leads elsewhere is none of the container's.
func TestACgroupOutsideIsNotRead(t *testing.T) {
	dir := dumped(t, "/libpod-old", len("/libpod-old"))
	if err := WriteCgroups(dir, []Cgroup{{Path: "../other"}, {Path: "a"}}); err != nil {
		t.Fatal(err)
	}
	if got, err := ReadCgroups(dir); err != nil || len(got) != 1 || got[0].Path != "a" {
		t.Errorf("%v, %v", got, err)
	}
}

func TestTheWaysToWatchedFiles(t *testing.T) {
	dir := t.TempDir()
	if err := WriteWatched(dir, []Watched{{Device: 147, Inode: 5, Path: "/etc/ssh"}}); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(dir, "irmap-cache"))
	want := "\x40\x59\x10\x55\x59\x40\x00\x57" + "\x0f\x00\x00\x00" + "\x08\x93\x01\x10\x05\x1a\x08/etc/ssh"
	if err != nil || string(b) != want {
		t.Errorf("%q, %v", b, err)
	}
}
