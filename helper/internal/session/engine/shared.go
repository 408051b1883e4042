package engine

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/session/record"
	"github.com/livefleet/handover/helper/internal/tasks"
)

// The members of a workload have namespaces in common that something else holds. CRIU dumps
// each with such a namespace as if it were its own. On the destination each joins the one that
// is there, and nothing of the dumped one is restored.

const (
	ipcNamespace = "ipc"
	utsNamespace = "uts"
)

// nothingInCommon is an error where the members have objects in a common IPC namespace: those would
// be missing on the destination. What is in /dev/shm is not among them: it travels as a tree.
func nothingInCommon(spec *record.Spec) error {
	looked := ""
	for _, m := range spec.Members {
		path := m.Joins[ipcNamespace]
		if path == "" || path == looked {
			continue
		}
		found, err := objectsIn(path)
		if err == nil {
			var queues []string
			queues, err = queuesOf(m)
			found = append(found, queues...)
		}
		if err != nil {
			return fmt.Errorf("session: the IPC namespace of %s: %w", m.Name, err)
		}
		if len(found) > 0 {
			return fmt.Errorf("session: %s shares an IPC namespace with the other members, and CRIU does not restore what is in it (%s): "+
				"make the pod without a shared one (--share=net,uts), or move it offline", m.Name, strings.Join(found, ", "))
		}
		looked = path
	}
	return nil
}

// sysvipc are the kernel's lists of System V objects in the namespace of their reader.
var sysvipc = map[string]string{"shm": "shared memory", "sem": "semaphores", "msg": "message queues"}

// objectsIn are the kinds of System V objects in an IPC namespace.
func objectsIn(path string) (found []string, err error) {
	err = within(path, unix.CLONE_NEWIPC, func() (err error) {
		for name, words := range sysvipc {
			list, e := os.ReadFile(filepath.Join("/proc/sysvipc", name))
			if e != nil {
				err = errors.Join(err, e)
			} else if bytes.Count(list, []byte("\n")) > 1 { // behind the heading
				found = append(found, words+" of System V")
			}
		}
		return err
	})
	slices.Sort(found)
	return found, err
}

// within does something in a namespace of a kind.
func within(path string, kind int, do func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // for good: the thread is in another namespace, and ends
		ns, err := os.Open(path)
		if err == nil {
			defer ns.Close()
			if err = unix.Setns(int(ns.Fd()), kind); err != nil {
				err = &fs.PathError{Op: "setns", Path: path, Err: err}
			} else {
				err = do()
			}
		}
		done <- err
	}()
	return <-done
}

// namesFile is the place of the common host name in the folder of a member's dump.
const namesFile = "handover-names.json"

// names are those of a UTS namespace.
type names struct {
	Host   string `json:"host"`
	Domain string `json:"domain"`
}

func namesIn(path string) (n names, err error) {
	err = within(path, unix.CLONE_NEWUTS, func() error {
		var u unix.Utsname
		err := unix.Uname(&u)
		n = names{unix.ByteSliceToString(u.Nodename[:]), unix.ByteSliceToString(u.Domainname[:])}
		return err
	})
	return n, err
}

// WriteNames lays the name of a common host down beside a member's dump: one of them may have changed it since it was made.
func WriteNames(part record.Member, dir string) error {
	path := part.Joins[utsNamespace]
	if path == "" {
		return nil
	}
	n, err := namesIn(path)
	var b []byte
	if err == nil {
		b, err = json.Marshal(n)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, namesFile), b, 0o600)
	}
	if err != nil {
		return fmt.Errorf("session: the host name of %s: %w", part.Name, err)
	}
	return nil
}

// giveNames gives it to the namespace that the restored members have in common here.
func (r *criuRestore) giveNames() error {
	path := r.part.Joins[utsNamespace]
	if path == "" {
		return nil
	}
	var wanted names
	b, err := os.ReadFile(filepath.Join(r.h.Restore.Gate, namesFile))
	if err == nil {
		err = json.Unmarshal(b, &wanted)
	}
	var has names
	if err == nil {
		has, err = namesIn(path)
	}
	if err == nil && has != wanted {
		err = within(path, unix.CLONE_NEWUTS, func() error {
			return errors.Join(unix.Sethostname([]byte(wanted.Host)), unix.Setdomainname([]byte(wanted.Domain)))
		})
	}
	if err != nil {
		return fmt.Errorf("session: the host name of %s: %w", r.part.Name, err)
	}
	return nil
}

// queuesOf are the POSIX message queues that a member sees.
func queuesOf(m record.Member) (found []string, err error) {
	pid, err := anyProcess(string(m.Freeze.Cgroup))
	if err != nil || pid == "" {
		return nil, err
	}
	entries, err := os.ReadDir(filepath.Join("/proc", pid, "root/dev/mqueue"))
	if tasks.Gone(err) { // or it has no such place
		return nil, nil
	}
	for _, e := range entries {
		found = append(found, "the message queue /"+e.Name())
	}
	return found, err
}

// hasJoined is an error where a restored member is in another namespace than the other members.
func (r *criuRestore) hasJoined() error {
	if r.part.Name == "" {
		return nil
	}
	places := map[string]string{}
	for kind, path := range r.part.Joins {
		places[kind] = path
	}
	if path := r.Spec.Network.Namespace; path != "" {
		places["net"] = path
	}
	for kind, path := range places {
		common, err := os.Stat(path)
		if err != nil {
			return fmt.Errorf("session: the members' namespace: %w", err)
		}
		own, err := os.Stat(filepath.Join("/proc", r.gate.Root(), "ns", kind))
		if err != nil {
			return fmt.Errorf("session: the restored member's namespace: %w", err)
		}
		if !os.SameFile(common, own) {
			return fmt.Errorf("session: %s was restored into another namespace (%s) than the other members: CRIU has not joined theirs", r.part.Name, kind)
		}
	}
	return r.giveNames()
}
