package main

import (
	"fmt"
	"os"
	"syscall"
	"time"
	"unsafe"
)

// queued and shown are what waits to be read at a terminal's two ends.
const (
	queued = "one line\nanother\n"
	shown  = "shown"
)

// watchTerminals has two terminals: one in which somebody reads and nothing comes, and
// one in which something waits to be read at both ends and nobody reads. It writes to
// path how they are: unchanged is "waits 17 blocks 5 blocks".
func watchTerminals(path string) error {
	idle, err := openTerminal()
	if err != nil {
		return err
	}
	reader := make(chan error, 1)
	go func() {
		n, err := syscall.Read(idle.slave, make([]byte, 64))
		if err == nil {
			err = fmt.Errorf("%d bytes came", n)
		}
		reader <- err
	}()
	full, err := openTerminal()
	if err != nil {
		return err
	}
	if err := full.fill(); err != nil {
		return err
	}
	state := "waits"
	for {
		text := state
		for _, fd := range []int{full.slave, full.master} {
			word, err := describe(fd)
			if err != nil {
				return err
			}
			text += " " + word
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return err
		}
		select {
		case err := <-reader:
			state = "reader ended: " + err.Error()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// terminal is a pseudo-terminal, by its two ends.
type terminal struct{ master, slave int }

func openTerminal() (t terminal, err error) {
	if t.master, err = syscall.Open("/dev/ptmx", syscall.O_RDWR|syscall.O_NOCTTY, 0); err != nil {
		return t, fmt.Errorf("/dev/ptmx: %w", err)
	}
	var lock, number int32
	if err := control(t.master, syscall.TIOCSPTLCK, unsafe.Pointer(&lock)); err != nil {
		return t, err
	}
	if err := control(t.master, syscall.TIOCGPTN, unsafe.Pointer(&number)); err != nil {
		return t, err
	}
	path := fmt.Sprintf("/dev/pts/%d", number)
	if t.slave, err = syscall.Open(path, syscall.O_RDWR|syscall.O_NOCTTY, 0); err != nil {
		return t, fmt.Errorf("%s: %w", path, err)
	}
	return t, nil
}

// fill queues something at both ends, without an echo of it.
func (t terminal) fill() error {
	var settings syscall.Termios
	if err := control(t.slave, syscall.TCGETS, unsafe.Pointer(&settings)); err != nil {
		return err
	}
	settings.Lflag &^= syscall.ECHO
	if err := control(t.slave, syscall.TCSETS, unsafe.Pointer(&settings)); err != nil {
		return err
	}
	for fd, text := range map[int]string{t.master: queued, t.slave: shown} {
		if _, err := syscall.Write(fd, []byte(text)); err != nil {
			return fmt.Errorf("writing to a terminal: %w", err)
		}
	}
	return nil
}

// describe tells how much waits at an end of a terminal, and whether a read blocks.
func describe(fd int) (string, error) {
	var waiting int32
	if err := control(fd, syscall.TIOCINQ, unsafe.Pointer(&waiting)); err != nil {
		return "", err
	}
	flags, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), syscall.F_GETFL, 0)
	if errno != 0 {
		return "", fmt.Errorf("the flags of a terminal: %w", errno)
	}
	if flags&syscall.O_NONBLOCK != 0 {
		return fmt.Sprintf("%d does not block", waiting), nil
	}
	return fmt.Sprintf("%d blocks", waiting), nil
}

func control(fd int, request uintptr, to unsafe.Pointer) error {
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, uintptr(fd), request, uintptr(to)); errno != 0 {
		return fmt.Errorf("a terminal: %w", errno)
	}
	return nil
}
