package snapshot

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/livefleet/handover/helper/internal/hooks"
	"github.com/livefleet/handover/helper/internal/hooks/cgrouptest"
)

// A stand-in for the engine and its CRIU dumps a real cgroup: it holds the tasks as CRIU does, and asks as
// CRIU's action script does. The task counts in a file of the layer.

func init() {
	if len(os.Args) < 3 {
		return
	}
	var err error
	switch strings.Join(os.Args[1:min(3, len(os.Args))], " ") {
	case "internal " + hooks.StayWord:
		var r *hooks.Registration
		if r, err = hooks.ReadStaying(os.Args[3]); err == nil {
			err = r.StayWhenGone()
		}
	case "act-dump " + os.Args[2]:
		if err = playCaller(os.Args[2], os.Args); err == nil {
			err = playDump(os.Args[2], os.Args[3], os.Args[4], os.Args[5])
		}
	case "act-criu " + os.Args[2]:
		err = playDump(os.Args[2], os.Args[3], os.Args[4], os.Args[5])
	case "act-memory " + os.Args[2]:
		err = playOwner(os.Args[2])
	default:
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// playCaller is podman alone, with a CRIU of its own, if it is to be killed. Otherwise it returns at once.
func playCaller(control string, words []string) error {
	if _, err := os.Stat(filepath.Join(control, "orphan")); err != nil {
		return nil
	}
	images, err := os.Open(words[4]) // CRIU has them open from its beginning to its end
	if err != nil {
		return err
	}
	criu := exec.Command(words[0], append([]string{"act-criu"}, words[2:]...)...)
	criu.ExtraFiles = []*os.File{images}
	if err := criu.Start(); err != nil {
		return err
	}
	if err := images.Close(); err != nil {
		return err
	}
	for {
		if _, err := os.Stat(filepath.Join(control, "kill")); err == nil {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
		time.Sleep(time.Millisecond)
	}
}

// playDump is podman and CRIU in one. A file in the folder control has it misbehave.
func playDump(control, runDir, gate, cgroup string) error {
	runtime.LockOSThread()
	asked := func(word string) bool { _, err := os.Stat(filepath.Join(control, word)); return err == nil }
	ask := func(action string) (bool, error) {
		r, err := hooks.Lookup(runDir, gate)
		if err != nil || r == nil {
			return false, errors.Join(err, errors.New("there is no gate"))
		}
		return r.Stay(action, "", os.Getpid())
	}
	if goOn, err := ask(hooks.PreDump); err != nil || !goOn {
		return errors.Join(err, errors.New("refused before it began"))
	}
	letGo, err := cgrouptest.Hold(cgroup)
	if err != nil {
		return err
	}
	if asked("orphan") { // its caller is killed now, or in the hold
		if asked("early") {
			err = os.WriteFile(filepath.Join(control, "kill"), nil, 0o600)
		}
		time.Sleep(300 * time.Millisecond)
	}
	if err != nil {
		return err
	}
	// It leaves the cgroup as it found it.
	leave := func(err error) error {
		return errors.Join(err, os.WriteFile(filepath.Join(cgroup, "cgroup.freeze"), []byte("1"), 0), letGo())
	}
	if place, e := os.ReadFile(filepath.Join(control, "names")); e == nil {
		if e := writeBlocked(string(place)); e != nil {
			return leave(e)
		}
	}
	if asked("fails") {
		return leave(errors.New("it fails as the test wants it"))
	}
	if asked("dies") {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	b, err := os.ReadFile(filepath.Join(control, "counts"))
	if err != nil {
		return leave(err)
	}
	count, err := os.Stat(string(b))
	if err == nil {
		err = os.WriteFile(filepath.Join(gate, inventoryImage), []byte(strconv.FormatInt(count.Size(), 10)), 0o600)
	}
	if err != nil {
		return leave(err)
	}
	goOn, err := ask(hooks.PostDump)
	if err == nil && goOn && asked("lives") {
		return leave(errors.New("it fails when it was to end the tasks"))
	}
	if err == nil && goOn && asked("ends") {
		if pid, err := os.ReadFile(filepath.Join(control, "watcher")); err == nil { // does it see the end?
			stat, err := os.ReadFile("/proc/" + string(pid) + "/stat")
			for range 100 { // it runs for as long as it takes to act on a signal
				if err != nil || !strings.Contains(string(stat), ") R ") {
					break
				}
				time.Sleep(10 * time.Millisecond)
				stat, err = os.ReadFile("/proc/" + string(pid) + "/stat")
			}
			if err := errors.Join(err, os.WriteFile(filepath.Join(control, "watched"), stat, 0o600)); err != nil {
				return err
			}
		}
		if err := os.WriteFile(filepath.Join(cgroup, "cgroup.kill"), []byte("1"), 0); err != nil {
			return err
		}
		if asked("late") {
			return errors.New("the engine fails behind CRIU")
		}
		return nil
	}
	if asked("kill") { // it has much to do before it lets go
		time.Sleep(300 * time.Millisecond)
	}
	if err := leave(err); err != nil {
		return err
	}
	if !goOn {
		return errors.New("refused")
	}
	if asked("late") {
		return errors.New("the engine fails behind CRIU")
	}
	return errors.Join(
		os.WriteFile(filepath.Join(control, "network.status"), []byte("status"), 0o600),
		os.WriteFile(filepath.Join(control, "shm.tar"), []byte("of a later moment"), 0o600),
	)
}

// writeBlocked writes to a file system until that is frozen and lets it go.
func writeBlocked(folder string) error {
	for n := range 100 {
		wrote := make(chan error, 1)
		go func() { wrote <- os.WriteFile(filepath.Join(folder, fmt.Sprint("named", n)), nil, 0o600) }()
		select {
		case err := <-wrote:
			if err != nil {
				return err
			}
			time.Sleep(50 * time.Millisecond)
		case <-time.After(500 * time.Millisecond):
			return <-wrote
		}
	}
	return errors.New("the file system was not frozen")
}

// playOwner takes the memory, and tells where it is.
func playOwner(words string) error {
	var r struct {
		Memory Memory
		RunDir string
		Limit  time.Duration
	}
	if err := json.Unmarshal([]byte(words), &r); err != nil {
		return err
	}
	say := func(word string) func(context.Context) error {
		return func(context.Context) error {
			fmt.Println(word)
			_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
			return nil
		}
	}
	if r.Memory.Ends {
		_, err := r.Memory.Leave(context.Background(), r.RunDir, r.Limit, say("armed"), say("last"))
		return err
	}
	passes := 0
	_, err := r.Memory.take(context.Background(), r.RunDir, r.Limit, around(func(ctx context.Context) error {
		passes++
		return say([]string{"", "armed", "beside"}[passes])(ctx)
	}, say("last")))
	return err
}
