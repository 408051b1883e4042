// Package confine drops the rights that this process no longer needs, once all its
// files are open. To is for processes that start nothing: a child inherits all of
// this, and a container that CRIU restores would, too. Lower is for processes that
// start others.
//
// The rights that To leaves, on all threads:
//
//   - files: everything may be read, and nothing written, made or removed but below the
//     folders that are named (Landlock). Open files stay as they are;
//   - programs: none may be started;
//   - network: no new connections, but to the one port that is named;
//   - privileges: root's way past the owners of files (CAP_DAC_OVERRIDE), and no other;
//     none can come back (no_new_privs, and an empty bounding set).
//
// Landlock is as strict as the kernel knows how to be (5.13 and later; connections from
// 6.7 on). A kernel without it confines by privileges alone, and To says so.
package confine

import (
	"errors"
	"fmt"

	"github.com/landlock-lsm/go-landlock/landlock"
	"github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"
	"kernel.org/pub/linux/libs/security/libcap/cap"
)

// Rules are the rights that a process still needs.
type Rules struct {
	Write   []string // folders in which it makes, writes and removes files
	Remove  []string // folders in which it only removes files
	Connect uint16   // the port that it connects to; 0 for none
}

// ErrNoLandlock says that the kernel cannot keep a process from files and connections.
// Its privileges are gone all the same.
var ErrNoLandlock = errors.New("this kernel has no Landlock (5.13 and later have it, if it is among the security modules in force), and only the privileges were given up")

// Least is the privilege left to a process that has all its files open: root's way
// past the owners of files.
const Least = cap.DAC_OVERRIDE

// To confines this process, for ever.
func To(r Rules) error {
	var rules []landlock.Rule
	rules = append(rules, landlock.PathAccess(syscall.AccessFSReadFile|syscall.AccessFSReadDir, "/"))
	if len(r.Write) > 0 {
		rules = append(rules, landlock.PathAccess(
			syscall.AccessFSReadFile|syscall.AccessFSReadDir|syscall.AccessFSWriteFile|syscall.AccessFSTruncate|syscall.AccessFSMakeReg|syscall.AccessFSMakeSock|syscall.AccessFSRemoveFile,
			r.Write...))
	}
	if len(r.Remove) > 0 {
		rules = append(rules, landlock.PathAccess(syscall.AccessFSReadDir|syscall.AccessFSRemoveFile, r.Remove...))
	}
	if r.Connect != 0 {
		rules = append(rules, landlock.ConnectTCP(r.Connect))
	}
	version, lerr := syscall.LandlockGetABIVersion()
	if lerr != nil || version == 0 {
		lerr = ErrNoLandlock
	} else if err := landlock.V6.BestEffort().Restrict(rules...); err != nil {
		return fmt.Errorf("confine: %w", err)
	}
	if _, err := cap.Prctlw(unix.PR_SET_NO_NEW_PRIVS, 1); err != nil {
		return fmt.Errorf("confine: %w", err)
	}
	keep := cap.NewSet()
	if err := keep.SetFlag(cap.Permitted, true, Least); err != nil {
		return fmt.Errorf("confine: %w", err)
	}
	if err := keep.SetFlag(cap.Effective, true, Least); err != nil {
		return fmt.Errorf("confine: %w", err)
	}
	if err := cap.ResetAmbient(); err != nil {
		return fmt.Errorf("confine: the ambient privileges: %w", err)
	}
	for c := cap.Value(0); c < cap.MaxBits(); c++ {
		if in, err := cap.GetBound(c); err != nil || !in {
			continue
		}
		if err := cap.DropBound(c); err != nil {
			return fmt.Errorf("confine: the bounding set: %w", err)
		}
	}
	if err := keep.SetProc(); err != nil {
		return fmt.Errorf("confine: the privileges: %w", err)
	}
	if lerr != nil {
		return lerr
	}
	return nil
}
