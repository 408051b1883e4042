package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/livefleet/handover/helper/internal/confine"
	"github.com/livefleet/handover/helper/internal/hooks"
	"github.com/livefleet/handover/helper/internal/session"
	"github.com/livefleet/handover/helper/internal/throttle"
)

// collectAt is by how many percent memory may grow before garbage is collected:
// nearly all of it are buffers without pointers, which live as long as the
// session, so collecting early costs next to nothing.
const collectAt = 25

// sessionsDir is where the roles keep their sessions.
const sessionsDir = "/var/lib/handover/sessions"

func runSend(ctx context.Context, args []string) error {
	if speaksDialect(args) {
		return sendDialect(ctx, args)
	}
	return runSide(ctx, "send", args, session.Send)
}

func runReceive(ctx context.Context, args []string) error {
	if speaksDialect(args) {
		return receiveDialect(ctx, args)
	}
	return runSide(ctx, "receive", args, session.Receive)
}

func runSide(ctx context.Context, name string, args []string, run func(context.Context, string, string) error) error {
	f := flag.NewFlagSet(name, flag.ContinueOnError)
	dir := f.String("session", "", "")
	if _, err := parse(f, args, 0, 0); err != nil {
		return err
	}
	if *dir == "" {
		return usageError("usage: pcopy " + name + " --session DIR")
	}
	abs, err := filepath.Abs(*dir)
	if err != nil {
		return err
	}
	debug.SetGCPercent(collectAt)
	session.Confine, session.Lower = confine.To, confine.Lower
	return run(ctx, abs, session.RunDir)
}

func sessionShow(_ context.Context, args []string) error {
	words, err := parse(flag.NewFlagSet("session show", flag.ContinueOnError), args, 1, 1)
	if err != nil {
		return err
	}
	s, err := session.Show(words[0])
	if err != nil {
		return err
	}
	return print(s)
}

func sessionList(_ context.Context, args []string) error {
	f := flag.NewFlagSet("session list", flag.ContinueOnError)
	root := f.String("root", sessionsDir, "")
	if _, err := parse(f, args, 0, 0); err != nil {
		return err
	}
	all, err := session.List(*root)
	if err != nil {
		return err
	}
	return print(all)
}

// timed reads the folder and the time limit that most session commands have, and
// whatever more the command adds.
func timed(ctx context.Context, name string, args []string, seconds int, more func(*flag.FlagSet)) (context.Context, context.CancelFunc, string, error) {
	f := flag.NewFlagSet(name, flag.ContinueOnError)
	timeout := f.Int("timeout", seconds, "")
	if more != nil {
		more(f)
	}
	words, err := parse(f, args, 1, 1)
	if err != nil {
		return nil, nil, "", err
	}
	if *timeout <= 0 {
		return nil, nil, "", usageError(fmt.Sprintf("%s: --timeout %d: a number of seconds above 0", name, *timeout))
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(*timeout)*time.Second)
	return ctx, cancel, words[0], nil
}

func sessionWait(ctx context.Context, args []string) error {
	var until *string
	ctx, cancel, dir, err := timed(ctx, "session wait", args, 3600, func(f *flag.FlagSet) { until = f.String("until", "", "") })
	if err != nil {
		return err
	}
	defer cancel()
	if *until == "" {
		return usageError("session wait: --until is missing")
	}
	s, err := session.Wait(ctx, dir, strings.Split(*until, ","))
	if err != nil {
		return err
	}
	return print(s)
}

func sessionCutover(ctx context.Context, args []string) error {
	var wave *string
	ctx, cancel, dir, err := timed(ctx, "session cutover", args, 600, func(f *flag.FlagSet) { wave = f.String("wave", "", "") })
	if err != nil {
		return err
	}
	defer cancel()
	var s *session.Status
	if *wave == "" {
		s, err = session.Cutover(ctx, dir)
	} else {
		s, err = session.CutoverWave(ctx, dir, session.RunDir, strings.Split(*wave, ","))
	}
	if err != nil {
		return err
	}
	return print(s)
}

func sessionAbort(ctx context.Context, args []string) error {
	ctx, cancel, dir, err := timed(ctx, "session abort", args, 120, nil)
	if err != nil {
		return err
	}
	defer cancel()
	s, err := session.Abort(ctx, dir, session.RunDir)
	if err != nil {
		return err
	}
	return print(s)
}

func sessionRecover(ctx context.Context, args []string) error {
	f := flag.NewFlagSet("session recover", flag.ContinueOnError)
	every := f.Bool("all", false, "")
	restarts := f.Bool("restarts", false, "")
	root := f.String("root", sessionsDir, "")
	timeout := f.Int("timeout", 300, "")
	words, err := parse(f, args, 0, 1)
	if err != nil {
		return err
	}
	if (len(words) == 1) == *every {
		return usageError("session recover: name a session's folder, or --all")
	}
	if *restarts && *every {
		return usageError("session recover: --restarts is about one session, and --all about every one")
	}
	if *timeout <= 0 {
		return usageError(fmt.Sprintf("session recover: --timeout %d: a number of seconds above 0", *timeout))
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(*timeout)*time.Second)
	defer cancel()
	if *every {
		all, err := session.RecoverAll(ctx, *root, session.RunDir)
		return errors.Join(err, print(all))
	}
	s, err := session.Recover(ctx, words[0], session.RunDir, *restarts)
	if err != nil {
		return err
	}
	return print(s)
}

func sessionContinue(_ context.Context, args []string) error {
	words, err := parse(flag.NewFlagSet("session continue", flag.ContinueOnError), args, 1, 1)
	if err != nil {
		return err
	}
	return session.Continue(words[0])
}

func sessionResolve(ctx context.Context, args []string) error {
	var outcome *string
	var lost *bool
	ctx, cancel, dir, err := timed(ctx, "session resolve", args, 120, func(f *flag.FlagSet) {
		outcome, lost = f.String("outcome", "", ""), f.Bool("journal-lost", false, "")
	})
	if err != nil {
		return err
	}
	defer cancel()
	if err := session.CheckOutcome(session.State(*outcome)); err != nil {
		return err // before anything is touched
	}
	if *lost {
		if err := session.SetJournalAside(dir); err != nil {
			return err
		}
	}
	s, err := session.Resolve(ctx, dir, session.RunDir, session.State(*outcome))
	if err != nil {
		return err
	}
	return print(s)
}

func identity(_ context.Context, args []string) error {
	words, err := parse(flag.NewFlagSet("identity", flag.ContinueOnError), args, 1, 1)
	if err != nil {
		return err
	}
	id, err := session.Identity(words[0])
	if err != nil {
		return err
	}
	return print(map[string]string{"fingerprint": id.Fingerprint()})
}

func ociHook(ctx context.Context, args []string) error {
	f := flag.NewFlagSet("oci-hook", flag.ContinueOnError)
	root := f.String("root", sessionsDir, "")
	if _, err := parse(f, args, 0, 0); err != nil {
		return err
	}
	state, err := session.ReadOCIState(os.Stdin)
	if err != nil {
		return err
	}
	return session.MayStart(ctx, *root, session.RunDir, state)
}

func criuHook(_ context.Context, args []string) error {
	if len(args) != 0 {
		return usageError("criu-hook takes no arguments: CRIU tells it what it needs in its environment")
	}
	action, dir := os.Getenv("CRTOOLS_SCRIPT_ACTION"), os.Getenv("CRTOOLS_IMAGE_DIR")
	if action == "" || dir == "" {
		return usageError("criu-hook is called by CRIU, as its action script")
	}
	real, err := filepath.EvalSymlinks(dir) // CRIU names it by a file descriptor of its own
	if err != nil {
		return err
	}
	criu := os.Getppid()
	if told := os.Getenv("HANDOVER_CRIU"); told != "" { // the script stands in between
		if criu, err = strconv.Atoi(told); err != nil {
			return usageError(fmt.Sprintf("criu-hook: HANDOVER_CRIU is %q, and not a process ID", told))
		}
	}
	goOn, err := session.Hook(session.RunDir, session.Call{Action: action, ImageDir: real, CRIU: criu, Root: os.Getenv("CRTOOLS_INIT_PID")})
	if err != nil {
		return err
	}
	if !goOn {
		return refusal("criu-hook: the session refuses to go on at " + action)
	}
	return nil
}

// refusal is a clear no to CRIU. CRIU's action script takes nothing else for one at
// post-dump: a pcopy that is missing, killed or at a loss has decided nothing.
type refusal string

func (r refusal) Error() string { return string(r) }

// refused is the exit status of a refusal.
const refused = 3

// criuHold is called by the program that has CRIU's name, with the path that it
// was called by and what it was given.
func criuHold(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return usageError("criu-hold is called by what stands in for CRIU")
	}
	return hooks.Held(ctx, args[0], args[1:], session.Holder{RunDir: session.RunDir, PID: os.Getpid()})
}

func thawBehind(_ context.Context, args []string) error {
	if len(args) != 1 {
		return usageError("usage: pcopy " + hooks.ThawBehindWord + " CGROUP")
	}
	return hooks.ThawWhenGone(hooks.Cgroup(args[0]))
}

func liftBehind(_ context.Context, args []string) error {
	if len(args) != 2 {
		return usageError("usage: pcopy " + throttle.LiftBehindWord + " RECORD PID")
	}
	return throttle.LiftWhenGone(args[0], args[1])
}
