// Package pressure sets triggers again on the kernel's files about waiting for memory,
// processors and disks.
//
// A process that is to be woken opens such a file, writes a trigger to it and polls it. The
// trigger belongs to the open file, and nothing tells it: CRIU restores the file without
// one, and a poll of that is over at once, for ever. So the trigger is written again before
// the first instruction of the workload. Systemd tells its services by two variables of the
// environment which file they watch and which words they write; it and its own daemons write a
// default where they have been told nothing.
package pressure

import (
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/tasks"
)

// The variables, and the words where they are not set: with the byte at its end.
const (
	watchVariable = "MEMORY_PRESSURE_WATCH"
	writeVariable = "MEMORY_PRESSURE_WRITE"
	byDefault     = "some 200000 2000000\x00"
)

var pressureFile = regexp.MustCompile(`^(/proc/pressure/\w+|/sys/fs/cgroup/(.*/)?\w+\.pressure)$`)

// Arm writes the triggers of root, a process ID on this host, and of the processes that
// descend from it, which stand still; it returns how many there are.
func Arm(root string) (armed int, err error) {
	err = tasks.Descending(root, func(proc string) error {
		n, err := armProcess(proc)
		armed += n
		return err
	})
	if err != nil {
		return armed, fmt.Errorf("pressure: %w", err)
	}
	return armed, nil
}

func armProcess(proc string) (armed int, err error) {
	pid := filepath.Base(proc)
	files, err := os.ReadDir(filepath.Join(proc, "fd"))
	if err != nil {
		return 0, err
	}
	for _, f := range files {
		path, err := os.Readlink(filepath.Join(proc, "fd", f.Name()))
		if err != nil || !pressureFile.MatchString(path) {
			continue
		}
		info, err := f.Info()
		if err != nil || info.Mode()&0o200 == 0 { // the link has the file's own rights
			continue
		}
		text, err := trigger(proc, path)
		if err == nil {
			err = write(pid, f.Name(), text)
		}
		if err != nil {
			return armed, fmt.Errorf("the trigger of process %s on %s: %w", pid, path, err)
		}
		armed++
	}
	return armed, nil
}

// trigger is the text that a process has written to a file.
func trigger(proc, path string) (string, error) {
	b, err := os.ReadFile(filepath.Join(proc, "environ"))
	if err != nil {
		return "", err
	}
	told := map[string]string{}
	for _, word := range strings.Split(string(b), "\x00") {
		if name, value, ok := strings.Cut(word, "="); ok {
			told[name] = value
		}
	}
	if told[watchVariable] == path && told[writeVariable] != "" {
		text, err := base64.StdEncoding.DecodeString(told[writeVariable])
		return string(text), err
	}
	program, err := os.Readlink(filepath.Join(proc, "exe"))
	if err != nil {
		return "", err
	}
	if name := filepath.Base(program); name == "systemd" || strings.HasPrefix(name, "systemd-") {
		return byDefault, nil
	}
	return "", fmt.Errorf("nothing tells what %s has written there", program)
}

// write writes to an open file of another process.
func write(pid, descriptor, text string) error {
	p, err1 := strconv.Atoi(pid)
	d, err2 := strconv.Atoi(descriptor)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	process, err := unix.PidfdOpen(p, 0)
	if err != nil {
		return err
	}
	defer unix.Close(process)
	fd, err := unix.PidfdGetfd(process, d, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	_, err = unix.Write(fd, []byte(text))
	return err
}
