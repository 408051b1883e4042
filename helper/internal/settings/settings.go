// Package settings carries the settings of a workload's network namespace: all that
// lies below /proc/sys/net.
//
// CRIU dumps no namespace that the container engine has made, and a runtime applies `--sysctl` when it starts
// a container, not when it restores one. So the source reads all settings while the workload runs (Read). The
// destination tries them in a namespace of their own (Rehearse) and learns which of them it has to look at;
// those that the engine has set otherwise come to them (Meet). It gives these to the workload's namespace
// before CRIU makes sockets in it, for some settings count when a socket is made, and once more before the
// first instruction of the workload (Apply). Settings that cannot be read or cannot be written are left out:
// they are the host's, or figures.
package settings

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/network"
)

const root = "/proc/sys/net"

// Net holds the settings of a network namespace.
type Net struct {
	Values map[string]string `json:"values"` // by the path below /proc/sys/net
	Own    []string          `json:"own"`    // those that an untouched namespace of that host has otherwise
}

// Read reads the namespace at path.
func Read(path string) (n Net, err error) {
	err = network.Inside(path, func() error {
		n.Values, err = values()
		return err
	})
	if err != nil {
		return n, fmt.Errorf("settings: %w", err)
	}
	untouched, err := inUntouched(values)
	if err != nil {
		return n, err
	}
	n.Own = own(n.Values, untouched)
	return n, nil
}

// Keep leaves out the settings of all interfaces but these and the loopback; none of
// them named: all are kept.
func (n *Net) Keep(links []string) {
	if len(links) == 0 {
		return
	}
	other := func(name string) bool {
		link := of(name)
		return link != "" && link != "lo" && !slices.Contains(links, link)
	}
	maps.DeleteFunc(n.Values, func(name, _ string) bool { return other(name) })
	n.Own = slices.DeleteFunc(n.Own, other)
}

// own are the settings that differ from an untouched namespace's. An interface that
// such a namespace lacks begins as its `default` says.
func own(values, untouched map[string]string) (found []string) {
	for name, value := range values {
		was, ok := untouched[name]
		if !ok {
			was, ok = untouched[general(name)]
		}
		if !ok || was != value {
			found = append(found, name)
		}
	}
	slices.Sort(found)
	return found
}

// Again reads all settings once more, also those that nobody had touched, and tells which
// have changed since.
func (n Net) Again(path string) (changed map[string]string, err error) {
	err = network.Inside(path, func() error {
		now, err := some(slices.Collect(maps.Keys(n.Values)))
		changed = map[string]string{}
		for name, value := range now {
			if value != n.Values[name] {
				changed[name] = value
			}
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("settings: %w", err)
	}
	return changed, nil
}

// Rehearse tries the source's own settings in an untouched namespace of this host: a
// setting that fails here would fail when the workload stands still. It returns the
// settings that Apply has to look at.
func (n Net) Rehearse() (wanted map[string]string, err error) {
	_, err = inUntouched(func() (map[string]string, error) {
		here, err := values()
		if err != nil {
			return nil, err
		}
		wanted = n.wanted(here)
		try := map[string]string{}
		for name, value := range wanted {
			if _, known := here[name]; !known && of(name) != "" {
				continue // its interface comes with the network
			}
			try[name] = value
		}
		_, err = set(try)
		return nil, err
	})
	return wanted, err
}

// wanted are the settings that a namespace of this host may have otherwise than the
// source's: the workload's own, those that other defaults hold for here, and those that
// change with another.
func (n Net) wanted(untouched map[string]string) map[string]string {
	moved := map[string]bool{} // by a setting of all interfaces
	for _, name := range n.Own {
		if name == "ipv4/ip_forward" {
			name = "ipv4/conf/all/forwarding"
		}
		moved[strings.Replace(name, "/conf/all/", "/conf/default/", 1)] = true
	}
	wanted := map[string]string{}
	for name, value := range n.Values {
		here, known := untouched[name]
		if !known {
			here, known = untouched[general(name)]
		}
		if known && (here != value || moved[general(name)]) || slices.Contains(n.Own, name) {
			wanted[name] = value
		}
	}
	return wanted
}

// Meet adds to the settings that are wanted those that the namespace at path has
// otherwise: the engine, which made it, may have set them.
func (n Net) Meet(path string, wanted map[string]string) error {
	err := network.Inside(path, func() error {
		here, err := values()
		for name, is := range here {
			if value, known := n.Values[name]; known && value != is {
				wanted[name] = value
			}
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("settings: %w", err)
	}
	return nil
}

// Apply gives the namespace at path those of the settings that differ, looks that they
// have been taken, and tells which these were. A setting that this kernel does not have
// is an error.
func Apply(path string, wanted map[string]string) (changed []string, err error) {
	if len(wanted) == 0 {
		return nil, nil
	}
	err = network.Inside(path, func() error {
		changed, err = set(wanted)
		return err
	})
	if err != nil {
		return changed, fmt.Errorf("settings: %w", err)
	}
	return changed, nil
}

// setAtMost is how often all that differs is set: a setting may change others with it,
// and a range may have to wait until another has moved.
const setAtMost = 4

func set(wanted map[string]string) (changed []string, err error) {
	names := slices.SortedFunc(maps.Keys(wanted), inOrder)
	here, failed := some(names)
	for range setAtMost {
		if failed != nil {
			return changed, failed
		}
		differs := slices.DeleteFunc(slices.Clone(names), func(name string) bool { value, known := here[name]; return known && value == wanted[name] })
		if len(differs) == 0 {
			return changed, nil
		}
		if changed == nil {
			changed = differs
		}
		err = nil
		for _, name := range differs {
			err = errors.Join(err, write(name, wanted[name]))
		}
		here, failed = some(names)
	}
	for _, name := range names {
		if is, known := here[name]; known && is != wanted[name] {
			err = errors.Join(err, fmt.Errorf("%s is %q on the source and stays %q here: set it to a value that both hosts take, or move the workload offline",
				sysctl(name), wanted[name], is))
		}
	}
	return changed, errors.Join(failed, err)
}

func write(name, value string) error {
	// Without O_CREATE: there are no files to make.
	f, err := os.OpenFile(filepath.Join(root, name), os.O_WRONLY|unix.O_CLOEXEC, 0)
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("this host has no setting %s, which the workload's network has: load the kernel module or make the interface that brings it, or move the workload offline", sysctl(name))
	}
	if err == nil {
		_, err = f.WriteString(value + "\n")
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return fmt.Errorf("setting %s to %q: %w", sysctl(name), value, err)
	}
	return nil
}

// some reads the settings of these names that the thread's namespace has.
func some(names []string) (map[string]string, error) {
	found := map[string]string{}
	for _, name := range names {
		value, err := os.ReadFile(filepath.Join(root, name))
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.EIO) { // a secret that was not set
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("settings: %w", err)
		}
		found[name] = strings.TrimRight(string(value), "\n")
	}
	return found, nil
}

// values reads the settings of the namespace that the thread is in.
func values() (map[string]string, error) {
	var names []string
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, os.ErrNotExist) { // an interface that has gone
			return nil
		}
		if err != nil || entry.IsDir() {
			return err
		}
		name := strings.TrimPrefix(path, root+"/")
		if twice(name) {
			return nil
		}
		info, err := entry.Info()
		if errors.Is(err, os.ErrNotExist) || err == nil && info.Mode().Perm()&0o600 != 0o600 {
			return nil
		}
		names = append(names, name)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("settings: %w", err)
	}
	return some(names)
}

// inUntouched runs f in a network namespace that is made for it.
func inUntouched(f func() (map[string]string, error)) (values map[string]string, err error) {
	err = network.InUntouched(func() (err error) {
		values, err = f()
		return err
	})
	if err != nil {
		return values, fmt.Errorf("settings: %w", err)
	}
	return values, nil
}

// twice says whether a setting is another one in another unit: the kernel's older names.
func twice(name string) bool {
	switch filepath.Base(name) {
	case "retrans_time", "base_reachable_time":
		return true
	}
	return false
}

// of is the interface that a setting belongs to: ipv4/conf/eth0/forwarding.
func of(name string) string {
	part := strings.Split(name, "/")
	if len(part) != 4 || part[1] != "conf" && part[1] != "neigh" || part[2] == "all" || part[2] == "default" {
		return ""
	}
	return part[2]
}

// general is the setting that interfaces made from now on begin with.
func general(name string) string {
	part := strings.Split(name, "/")
	if of(name) == "" {
		return name
	}
	part[2] = "default"
	return strings.Join(part, "/")
}

// sysctl is the name by which `sysctl` and `--sysctl` know it.
func sysctl(name string) string {
	if !strings.Contains(name, ".") {
		return "net." + strings.ReplaceAll(name, "/", ".")
	}
	return "net/" + name
}

// inOrder puts first the settings that change others with them: ip_forward, then those
// of all interfaces, and of interfaces to come.
func inOrder(a, b string) int {
	rank := func(name string) int {
		switch {
		case name == "ipv4/ip_forward":
			return 0
		case strings.Contains(name, "/conf/all/"):
			return 1
		case strings.Contains(name, "/default/"):
			return 2
		}
		return 3
	}
	if r := rank(a) - rank(b); r != 0 {
		return r
	}
	return strings.Compare(a, b)
}
