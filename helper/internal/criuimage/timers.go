package criuimage

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// Of fdinfo.proto: file_entry has the timerfd in field 12. Of timerfd.proto: its fields.
const (
	fileTimer    protowire.Number = 12
	timerTicks   protowire.Number = 5
	timerSeconds protowire.Number = 7 // until it fires next
	timerNanos   protowire.Number = 8
	everySeconds protowire.Number = 9 // its interval
	everyNanos   protowire.Number = 10
)

// MendTimers arms periodic timerfds that fired while their tasks were frozen, in the
// dump in dir, and returns how many there were.
//
// The kernel arms such a timer again when the task reads it, and until then tells an
// interval and no time that is left; CRIU restores that as a timer that is disarmed, and
// it never fires again. It gets its interval as the time that is left, as CRIU itself
// does for setitimer.
//
// A timer that has not fired and has no time left is disarmed by its task, and stays so; or it
// was due when CRIU asked for it, and had not fired yet. So since, which may be nil, tells how
// often such a one has fired since: the tasks are frozen still.
func MendTimers(dir string, since func(Timer) (ticks uint64, err error)) (int, error) {
	path := filepath.Join(dir, "files.img")
	b, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	} else if err != nil {
		return 0, fmt.Errorf("criuimage: %w", err)
	}
	due := map[uint64]uint64{}
	if since != nil {
		if due, err = askedTooEarly(dir, since); err != nil {
			return 0, err
		}
	}
	changed, n, err := mendTimers(b, due)
	if err == nil && n > 0 {
		err = replaceFile(path, changed)
	}
	if err != nil {
		return 0, fmt.Errorf("criuimage: %s: %w", path, err)
	}
	return n, nil
}

// askedTooEarly are the ticks of those that were due when CRIU asked, by the number of the file.
func askedTooEarly(dir string, since func(Timer) (uint64, error)) (map[uint64]uint64, error) {
	all, err := ReadTimers(dir)
	due := map[uint64]uint64{}
	for _, t := range all.Files {
		if t.Armed || t.Ticks > 0 {
			continue
		}
		ticks, e := since(t)
		if ticks > 0 {
			due[t.file] = ticks
		}
		err = errors.Join(err, e)
	}
	return due, err
}

func mendTimers(b []byte, due map[uint64]uint64) (changed []byte, mended int, err error) {
	files, err := entries(b, filesMagic)
	if err != nil {
		return nil, 0, err
	}
	for i, file := range files {
		of, err := varints(file)
		if err != nil {
			return nil, 0, fmt.Errorf("entry %d: %w", i, err)
		}
		ticks := due[of[fileID]]
		files[i], err = rewrite(file, func(n protowire.Number, timer []byte) ([]byte, error) {
			if n != fileTimer {
				return timer, nil
			}
			numbers, err := varints(timer)
			periodic := numbers[everySeconds] != 0 || numbers[everyNanos] != 0
			if err != nil || numbers[timerSeconds] != 0 || numbers[timerNanos] != 0 || ticks == 0 && (numbers[timerTicks] == 0 || !periodic) {
				return timer, err
			}
			mended++
			mend := map[protowire.Number]uint64{timerSeconds: numbers[everySeconds], timerNanos: numbers[everyNanos]}
			if ticks > 0 {
				mend[timerTicks] = ticks
			}
			return setVarints(timer, mend)
		})
		if err != nil {
			return nil, 0, fmt.Errorf("entry %d: %w", i, err)
		}
	}
	return image(files, filesMagic), mended, nil
}

// Of core.proto: core_entry has a task in field 3, and that its timers in field 7. Of timer.proto:
// these have those of POSIX in field 4.
const (
	coreTask    protowire.Number = 3
	taskTimers  protowire.Number = 7
	timersPOSIX protowire.Number = 4
	posixID     protowire.Number = 1
)

// Timer is a timerfd of the workload's, by one of the processes that have it open.
type Timer struct {
	Process    int // its number inside the workload
	Descriptor int
	Armed      bool
	Periodic   bool
	Ticks      uint64 // it has fired so often, and was not read

	file uint64 // its number in the dump
}

// Timers are those of a dump.
type Timers struct {
	Files []Timer       // each once
	POSIX map[int][]int // the numbers of the timers of POSIX, by the number of the process inside the workload
}

// ReadTimers reads the timers of the dump in dir.
func ReadTimers(dir string) (t Timers, err error) {
	files := map[uint64]Timer{}
	err = eachEntry(filepath.Join(dir, "files.img"), filesMagic, func(entry []byte) error {
		file, err := varints(entry)
		if err != nil {
			return err
		}
		return eachBytes(entry, fileTimer, func(timer []byte) error {
			n, err := varints(timer)
			f := Timer{Periodic: n[everySeconds] != 0 || n[everyNanos] != 0, Ticks: n[timerTicks]}
			// A periodic one that has fired goes on when it is read: see MendTimers.
			f.Armed = n[timerSeconds] != 0 || n[timerNanos] != 0 || f.Periodic && f.Ticks > 0
			files[file[fileID]] = f
			return err
		})
	})
	if err == nil && len(files) > 0 {
		err = eachOpen(dir, func(file uint64, process, descriptor int) {
			if f, ok := files[file]; ok {
				f.Process, f.Descriptor, f.file = process, descriptor, file
				t.Files = append(t.Files, f)
				delete(files, file)
			}
		})
	}
	if err == nil {
		t.POSIX, err = readPOSIX(dir)
	}
	return t, err
}

func readPOSIX(dir string) (map[int][]int, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "core-*.img"))
	if err != nil {
		return nil, fmt.Errorf("criuimage: %w", err)
	}
	found := map[int][]int{}
	for _, path := range paths {
		process, err := strconv.Atoi(strings.TrimSuffix(strings.TrimPrefix(filepath.Base(path), "core-"), ".img"))
		if err != nil {
			continue
		}
		err = eachEntry(path, coreMagic, func(core []byte) error {
			return eachBytes(core, coreTask, func(task []byte) error {
				return eachBytes(task, taskTimers, func(timers []byte) error {
					return eachBytes(timers, timersPOSIX, func(timer []byte) error {
						numbers, err := varints(timer)
						found[process] = append(found[process], int(numbers[posixID]))
						return err
					})
				})
			})
		})
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}
