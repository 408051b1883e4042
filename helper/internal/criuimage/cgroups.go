package criuimage

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// Of cgroup.proto.
const (
	cgroupSet        protowire.Number = 1 // of cgroup_entry
	cgroupController protowire.Number = 2
	setMember        protowire.Number = 2 // of cg_set_entry
	memberName       protowire.Number = 1 // of cg_member_entry; the second version has none
	memberPath       protowire.Number = 2
	memberPrefix     protowire.Number = 3 // how much of the path is above the cgroup namespace
	controllerName   protowire.Number = 1 // of cg_controller_entry; likewise
	controllerDir    protowire.Number = 2
	dirName          protowire.Number = 1 // of cgroup_dir_entry
	dirProperty      protowire.Number = 3
	dirPerms         protowire.Number = 4
	propertyName     protowire.Number = 1 // of cgroup_prop_entry
	propertyValue    protowire.Number = 2
	permsMode        protowire.Number = 1 // of cgroup_perms
	permsUser        protowire.Number = 2
	permsGroup       protowire.Number = 3
)

const (
	cgroupImage = "cgroup.img"
	cgroupMagic = 0x59383330
)

// Cgroup is a cgroup of the workload, by its path below the workload's own.
type Cgroup struct {
	Path        string // "." is the workload's own
	Mode        uint32
	User, Group uint32
	Values      []Value
}

// Value is the content of one of its files.
type Value struct{ Name, Text string }

// WriteCgroups has the dump in dir know all cgroups of the workload, and of the hierarchy of
// the second version alone. CRIU leaves out those that have no process in or below them, and
// of all the values that limit; and of a hierarchy of the first version it would keep that it
// was frozen.
//
// A dump without cgroups, or of tasks that have no cgroup namespace of their own, stays.
func WriteCgroups(dir string, all []Cgroup) error {
	return mendCgroups(dir, func(entry []byte, prefix string) ([]byte, error) {
		var out []byte
		err := eachBytes(entry, cgroupSet, func(set []byte) error {
			kept, err := without(set, setMember, func(member []byte) (bool, error) { return named(member, memberName) })
			out = protowire.AppendBytes(protowire.AppendTag(out, cgroupSet, protowire.BytesType), kept)
			return err
		})
		controller := protowire.AppendString(protowire.AppendTag(nil, controllerName, protowire.BytesType), "")
		for _, c := range all {
			controller = protowire.AppendBytes(protowire.AppendTag(controller, controllerDir, protowire.BytesType), c.entry(prefix))
		}
		return protowire.AppendBytes(protowire.AppendTag(out, cgroupController, protowire.BytesType), controller), err
	})
}

// entry is a cgroup_dir_entry.
func (c Cgroup) entry(prefix string) []byte {
	perms := number(number(number(nil, permsMode, uint64(c.Mode)), permsUser, uint64(c.User)), permsGroup, uint64(c.Group))
	b := protowire.AppendString(protowire.AppendTag(nil, dirName, protowire.BytesType), strings.TrimPrefix(filepath.Join(prefix, c.Path), "/"))
	for _, v := range c.Values {
		value := protowire.AppendString(protowire.AppendTag(nil, propertyName, protowire.BytesType), v.Name)
		value = protowire.AppendString(protowire.AppendTag(value, propertyValue, protowire.BytesType), v.Text)
		b = protowire.AppendBytes(protowire.AppendTag(b, dirProperty, protowire.BytesType), value)
	}
	return protowire.AppendBytes(protowire.AppendTag(b, dirPerms, protowire.BytesType), perms)
}

func number(b []byte, n protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, n, protowire.VarintType), v)
}

// ReadCgroups are the cgroups of the dump in dir that WriteCgroups has written; none: it has
// written none, or the tasks have no cgroup namespace of their own.
func ReadCgroups(dir string) (all []Cgroup, err error) {
	path := filepath.Join(dir, cgroupImage)
	return all, eachEntry(path, cgroupMagic, func(entry []byte) error {
		prefix, err := cgroupPrefix(entry)
		if err != nil || prefix == "" {
			return err
		}
		return eachBytes(entry, cgroupController, func(controller []byte) error {
			return eachBytes(controller, controllerDir, func(d []byte) error {
				c, err := readCgroup(d, prefix)
				if err == nil && c.Path != "" {
					all = append(all, c)
				}
				return err
			})
		})
	})
}

// OwnCgroups says whether the tasks of the dump in dir have a cgroup namespace of their own.
func OwnCgroups(dir string) (own bool, err error) {
	return own, eachEntry(filepath.Join(dir, cgroupImage), cgroupMagic, func(entry []byte) error {
		prefix, err := cgroupPrefix(entry)
		own = prefix != ""
		return err
	})
}

// readCgroup reads a cgroup_dir_entry; its path is empty if it is not below the prefix.
func readCgroup(d []byte, prefix string) (c Cgroup, err error) {
	err = errors.Join(
		eachBytes(d, dirName, func(name []byte) error {
			if rel, err := filepath.Rel(prefix, "/"+string(name)); err == nil && filepath.IsLocal(rel) {
				c.Path = rel
			}
			return nil
		}),
		eachBytes(d, dirPerms, func(perms []byte) error {
			numbers, err := varints(perms)
			c.Mode, c.User, c.Group = uint32(numbers[permsMode]), uint32(numbers[permsUser]), uint32(numbers[permsGroup])
			return err
		}),
		eachBytes(d, dirProperty, func(property []byte) error {
			var v Value
			err := errors.Join(
				eachBytes(property, propertyName, func(b []byte) error { v.Name = string(b); return nil }),
				eachBytes(property, propertyValue, func(b []byte) error { v.Text = string(b); return nil }),
			)
			c.Values = append(c.Values, v)
			return err
		}))
	return c, err
}

// MoveCgroups has CRIU restore the tasks in and below the cgroup root, in which all that the
// dump in dir knows of the second version are there already.
func MoveCgroups(dir, root string) error {
	return mendCgroups(dir, func(entry []byte, prefix string) ([]byte, error) {
		return rewrite(entry, func(n protowire.Number, value []byte) ([]byte, error) {
			switch n {
			case cgroupSet:
				return rewrite(value, func(n protowire.Number, member []byte) ([]byte, error) {
					if second, err := named(member, memberName); n != setMember || err != nil || !second {
						return member, err
					}
					member, err := rewrite(member, func(n protowire.Number, path []byte) ([]byte, error) {
						if below, ok := strings.CutPrefix(string(path), prefix); ok && n == memberPath {
							path = []byte(root + below)
						}
						return path, nil
					})
					if err != nil {
						return nil, err
					}
					return setVarints(member, map[protowire.Number]uint64{memberPrefix: uint64(len(root))})
				})
			case cgroupController:
				if second, err := named(value, controllerName); err != nil || !second {
					return value, err
				}
				return without(value, controllerDir, func([]byte) (bool, error) { return false, nil })
			}
			return value, nil
		})
	})
}

// mendCgroups changes the one entry of the image, if its tasks have a cgroup namespace.
func mendCgroups(dir string, change func(entry []byte, prefix string) ([]byte, error)) error {
	path := filepath.Join(dir, cgroupImage)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return fmt.Errorf("criuimage: %w", err)
	}
	found, err := entries(b, cgroupMagic)
	if err == nil && len(found) == 1 {
		var prefix string
		if prefix, err = cgroupPrefix(found[0]); err == nil && prefix != "" {
			if found[0], err = change(found[0], prefix); err == nil {
				err = replaceFile(path, image(found, cgroupMagic))
			}
		}
	}
	if err != nil {
		return fmt.Errorf("criuimage: %s: %w", path, err)
	}
	return nil
}

// cgroupPrefix is the path of the cgroup that the tasks see as their root.
func cgroupPrefix(entry []byte) (prefix string, err error) {
	return prefix, eachBytes(entry, cgroupSet, func(set []byte) error {
		return eachBytes(set, setMember, func(member []byte) error {
			second, err := named(member, memberName)
			if err != nil || !second {
				return err
			}
			numbers, err := varints(member)
			if err != nil {
				return err
			}
			return eachBytes(member, memberPath, func(path []byte) error {
				n := numbers[memberPrefix]
				if n > uint64(len(path)) {
					return fmt.Errorf("a prefix of %d bytes of %q", n, path)
				}
				if n > 0 {
					prefix = string(path[:n])
				}
				return nil
			})
		})
	})
}

// named says whether a member or a controller is that of the second version.
func named(b []byte, field protowire.Number) (second bool, err error) {
	return second, eachBytes(b, field, func(name []byte) error {
		second = len(name) == 0
		return nil
	})
}

// without leaves out those messages of a field that are not to be kept.
func without(b []byte, field protowire.Number, keep func([]byte) (bool, error)) (out []byte, err error) {
	for len(b) > 0 {
		n, t, tag := protowire.ConsumeTag(b)
		if tag < 0 {
			return nil, protowire.ParseError(tag)
		}
		length := protowire.ConsumeFieldValue(n, t, b[tag:])
		if length < 0 {
			return nil, protowire.ParseError(length)
		}
		kept := true
		if n == field && t == protowire.BytesType {
			value, _ := protowire.ConsumeBytes(b[tag:])
			if kept, err = keep(value); err != nil {
				return nil, err
			}
		}
		if kept {
			out = append(out, b[:tag+length]...)
		}
		b = b[tag+length:]
	}
	return out, nil
}
