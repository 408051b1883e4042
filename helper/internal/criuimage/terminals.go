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

const (
	fdinfoMagic  = 0x56213732
	idsMagic     = 0x54432030
	ttyInfoMagic = 0x59453036
	ttyDataMagic = 0x59413026
)

// Of fdinfo.proto: file_entry and fdinfo_entry; of core.proto: task_kobj_ids_entry; of
// tty.proto: the rest.
const (
	fileID  protowire.Number = 2
	fileTTY protowire.Number = 19

	fdinfoID protowire.Number = 1
	fdinfoFD protowire.Number = 4

	idsFiles protowire.Number = 2

	ttyFileInfo  protowire.Number = 2
	ttyFileFlags protowire.Number = 3

	ttyInfoID     protowire.Number = 1
	ttyInfoPacket protowire.Number = 5

	ttyDataID    protowire.Number = 1
	ttyDataBytes protowire.Number = 2
)

// Terminal is one end of a pseudo-terminal, by CRIU's number of it.
type Terminal uint32

// Other is the other end.
func (t Terminal) Other() Terminal { return t ^ 1 }

// Master says which end it is: the one that a terminal's emulator has.
func (t Terminal) Master() bool { return t&1 == 1 }

// OpenTerminal is a terminal that a process of the workload has open.
type OpenTerminal struct {
	Terminal   Terminal
	Process    int // its number inside the workload
	Descriptor int
	Flags      int // as fcntl tells them
}

// Terminals are those of a dump.
type Terminals struct {
	Open    []OpenTerminal
	Queued  map[Terminal][]byte // what was to be read there, and CRIU has taken out
	Packets map[Terminal]bool   // the masters in packet mode
}

// ReadTerminals reads the terminals of the dump in dir. A dump that has not come so far
// has none.
func ReadTerminals(dir string) (t Terminals, err error) {
	t.Queued, t.Packets = map[Terminal][]byte{}, map[Terminal]bool{}
	files := map[uint64]OpenTerminal{}
	if err := eachEntry(filepath.Join(dir, "files.img"), filesMagic, func(entry []byte) error {
		numbers, err := varints(entry)
		if err != nil {
			return err
		}
		return eachBytes(entry, fileTTY, func(tty []byte) error {
			of, err := varints(tty)
			files[numbers[fileID]] = OpenTerminal{Terminal: Terminal(of[ttyFileInfo]), Flags: int(of[ttyFileFlags])}
			return err
		})
	}); err != nil || len(files) == 0 {
		return t, err
	}
	if t.Open, err = openTerminals(dir, files); err != nil {
		return t, err
	}
	err = eachEntry(filepath.Join(dir, "tty-info.img"), ttyInfoMagic, func(entry []byte) error {
		numbers, err := varints(entry)
		if numbers[ttyInfoPacket] != 0 {
			t.Packets[Terminal(numbers[ttyInfoID])] = true
		}
		return err
	})
	if err != nil {
		return t, err
	}
	return t, eachEntry(filepath.Join(dir, "tty-data.img"), ttyDataMagic, func(entry []byte) error {
		numbers, err := varints(entry)
		if err != nil {
			return err
		}
		return eachBytes(entry, ttyDataBytes, func(data []byte) error {
			t.Queued[Terminal(numbers[ttyDataID])] = data
			return nil
		})
	})
}

// openTerminals are the descriptors of these files.
func openTerminals(dir string, files map[uint64]OpenTerminal) (open []OpenTerminal, err error) {
	return open, eachOpen(dir, func(file uint64, process, descriptor int) {
		if f, ok := files[file]; ok {
			f.Process, f.Descriptor = process, descriptor
			open = append(open, f)
		}
	})
}

// eachOpen tells do of each open file: its number in the dump, the number of a process inside the
// workload, and the descriptor there.
func eachOpen(dir string, do func(file uint64, process, descriptor int)) error {
	paths, err := filepath.Glob(filepath.Join(dir, "ids-*.img"))
	if err != nil {
		return fmt.Errorf("criuimage: %w", err)
	}
	for _, path := range paths {
		process, err := strconv.Atoi(strings.TrimSuffix(strings.TrimPrefix(filepath.Base(path), "ids-"), ".img"))
		if err != nil {
			continue
		}
		table := uint64(0)
		if err := eachEntry(path, idsMagic, func(entry []byte) error {
			numbers, err := varints(entry)
			table = numbers[idsFiles]
			return err
		}); err != nil {
			return err
		}
		err = eachEntry(filepath.Join(dir, fmt.Sprintf("fdinfo-%d.img", table)), fdinfoMagic, func(entry []byte) error {
			numbers, err := varints(entry)
			do(numbers[fdinfoID], process, int(numbers[fdinfoFD]))
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// eachEntry gives the messages of an image to do; an image that is not there has none.
func eachEntry(path string, magic uint32, do func([]byte) error) error {
	b, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	} else if err != nil {
		return fmt.Errorf("criuimage: %w", err)
	}
	all, err := entries(b, magic)
	for _, entry := range all {
		err = errors.Join(err, do(entry))
	}
	if err != nil {
		return fmt.Errorf("criuimage: %s: %w", path, err)
	}
	return nil
}

// eachBytes gives the values of a field that is bytes, as messages are, to do.
func eachBytes(b []byte, wanted protowire.Number, do func([]byte) error) error {
	_, err := rewrite(b, func(n protowire.Number, value []byte) ([]byte, error) {
		if n != wanted {
			return value, nil
		}
		return value, do(value)
	})
	return err
}
