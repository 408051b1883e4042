package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/livefleet/handover/helper/internal/confine"
	"github.com/livefleet/handover/helper/internal/session"
	"github.com/livefleet/handover/helper/internal/session/metrics"
	"github.com/livefleet/handover/helper/internal/session/record"
	"github.com/livefleet/handover/helper/internal/session/recovery"
	"github.com/livefleet/handover/helper/internal/session/wave"
	"github.com/livefleet/handover/helper/internal/transport"
)

// collectAt is by how many percent memory may grow before garbage is collected:
// nearly all of it are buffers without pointers, which live as long as the
// session, so collecting early costs next to nothing.
const collectAt = 25

// sessionsDir is where the roles keep their sessions.
const sessionsDir = "/var/lib/handover/sessions"

type sessionCommands struct{ *app }

func (a sessionCommands) session() *cobra.Command {
	g := group("session", "Move a workload: run a side, look at it, bring it to its end",
		a.sessionShow(), a.sessionList(), a.sessionWait(), a.sessionCutover(), a.sessionAbort(), a.sessionContinue(), a.sessionResolve(), a.sessionRecover(),
		a.sessionSend(), a.sessionReceive(), a.sessionStream(), a.sessionIdentity())
	g.Example = `  pcopy session list
  pcopy session show /var/lib/handover/sessions/shop-20261121t041500z
  pcopy session resolve /var/lib/handover/sessions/shop-20261121t041500z --outcome resumed`
	return g
}

func (a sessionCommands) sessionSend() *cobra.Command {
	return side("send", "Run the source's side of a session to its end", session.Send)
}

func (a sessionCommands) sessionReceive() *cobra.Command {
	return side("receive", "Run the destination's side of a session to its end", session.Receive)
}

// side is a command for one side of a session. The folder is a word, or follows --session as in version 0.1.
func side(word, short string, run func(context.Context, string, string, session.Options) error) *cobra.Command {
	var dir string
	c := &cobra.Command{Use: word + " DIR", Short: short, Args: between(0, 1), RunE: func(c *cobra.Command, args []string) error {
		if (dir == "") == (len(args) == 0) {
			return usageError(fmt.Sprintf("%s: name the session's folder once: usage: pcopy session %s DIR", words(c), word))
		}
		if len(args) == 1 {
			dir = args[0]
		}
		abs, err := filepath.Abs(dir)
		if err != nil {
			return err
		}
		debug.SetGCPercent(collectAt)
		return run(c.Context(), abs, record.RunDir, session.Options{Confine: confine.To, Lower: confine.Lower})
	}}
	c.Flags().StringVar(&dir, "session", "", "the session's folder, in place of DIR")
	return c
}

// sideBefore is `send` or `receive` as in version 0.1: of a session, or with an old peer where a dialect is named.
func sideBefore(word string, ofSession, ofDialect func() *cobra.Command) *cobra.Command {
	return &cobra.Command{Use: word, Hidden: true, DisableFlagParsing: true, RunE: func(c *cobra.Command, args []string) error {
		chosen := ofSession()
		if slices.ContainsFunc(args, func(a string) bool { return strings.HasPrefix(a, "--dialect") }) {
			chosen = ofDialect()
		}
		return asked(c, chosen, args)
	}}
}

// asked runs a command in another one's place.
func asked(from, chosen *cobra.Command, args []string) error {
	chosen.SilenceErrors, chosen.SilenceUsage = true, true
	if chosen.Flags().Lookup("json") == nil {
		chosen.Flags().AddFlag(from.Root().PersistentFlags().Lookup("json"))
	}
	chosen.SetArgs(args)
	chosen.SetOut(from.OutOrStdout())
	return chosen.ExecuteContext(from.Context())
}

func (a sessionCommands) sessionShow() *cobra.Command {
	return &cobra.Command{Use: "show DIR", Short: "Tell where a session stands", Args: between(1, 1), RunE: func(_ *cobra.Command, args []string) error {
		s, err := record.Show(args[0])
		if err != nil {
			return err
		}
		return a.print(s)
	}}
}

func (a sessionCommands) sessionList() *cobra.Command {
	var root string
	c := &cobra.Command{Use: "list", Short: "List the sessions of this host", Args: between(0, 0), RunE: func(*cobra.Command, []string) error {
		all, err := record.List(root)
		if err != nil {
			return err
		}
		return a.printTable(all, "id", "role", "workload", "state", "running", "error")
	}}
	rootFlag(c, &root)
	return c
}

func rootFlag(c *cobra.Command, root *string) {
	c.Flags().StringVar(root, "root", sessionsDir, "the folder that holds the sessions")
}

// timed is a command about one session with a limit of its time.
func timed(use, short string, seconds int, run func(ctx context.Context, dir string) error) *cobra.Command {
	var timeout int
	c := &cobra.Command{Use: use, Short: short, Args: between(1, 1), RunE: func(c *cobra.Command, args []string) error {
		ctx, cancel, err := limited(c, timeout)
		if err != nil {
			return err
		}
		defer cancel()
		return run(ctx, args[0])
	}}
	timeoutFlag(c.Flags(), &timeout, seconds)
	return c
}

func timeoutFlag(f *pflag.FlagSet, timeout *int, seconds int) {
	f.IntVar(timeout, "timeout", seconds, "seconds after which the command gives up")
}

func limited(c *cobra.Command, seconds int) (context.Context, context.CancelFunc, error) {
	if seconds <= 0 {
		return nil, nil, usageError(fmt.Sprintf("%s: --timeout %d: a number of seconds above 0", words(c), seconds))
	}
	ctx, cancel := context.WithTimeout(c.Context(), time.Duration(seconds)*time.Second)
	return ctx, cancel, nil
}

// answer prints a status, unless there is an error instead.
func (a sessionCommands) answer(s *record.Status, err error) error {
	if err != nil {
		return err
	}
	return a.print(s)
}

func (a sessionCommands) sessionWait() *cobra.Command {
	var until string
	c := timed("wait DIR --until WORD[,WORD…]", "Wait until a session is listening, converged, ended, or in a state", 3600, func(ctx context.Context, dir string) error {
		if until == "" {
			return usageError("session wait: --until is missing: name a state, or listening, converged, ended")
		}
		return a.answer(record.Wait(ctx, dir, strings.Split(until, ",")))
	})
	c.Flags().StringVar(&until, "until", "", "states, or listening, converged, ended; with commas, any of them")
	return c
}

func (a sessionCommands) sessionCutover() *cobra.Command {
	var others string
	c := timed("cutover DIR", "On the source: freeze, hand over, and wait for the outcome", 600, func(ctx context.Context, dir string) error {
		if others == "" {
			return a.answer(recovery.Cutover(ctx, dir))
		}
		return a.answer(wave.Cutover(ctx, dir, record.RunDir, strings.Split(others, ",")))
	})
	c.Flags().StringVar(&others, "wave", "", "folders of other sessions, with commas between them: all hand over, or none")
	return c
}

func (a sessionCommands) sessionAbort() *cobra.Command {
	return timed("abort DIR", "End a session that is not released; the workload stays where it is", 120, func(ctx context.Context, dir string) error {
		s, err := recovery.Abort(ctx, dir, record.RunDir)
		return a.outcome(dir, s, err)
	})
}

func (a sessionCommands) sessionContinue() *cobra.Command {
	return &cobra.Command{Use: "continue DIR", Short: "Continue a session that stopped at policy.pause_at", Args: between(1, 1), RunE: func(_ *cobra.Command, args []string) error {
		return record.Continue(args[0])
	}}
}

func (a sessionCommands) sessionResolve() *cobra.Command {
	var outcome string
	var lost bool
	c := timed("resolve DIR --outcome resumed|refused|fenced", "Tell a side in doubt the outcome that the other side has on record", 120, func(ctx context.Context, dir string) error {
		if err := recovery.CheckOutcome(record.State(outcome)); err != nil {
			return err // before anything is touched
		}
		if lost {
			if err := record.SetJournalAside(dir); err != nil {
				return err
			}
		}
		s, err := recovery.Resolve(ctx, dir, record.RunDir, record.State(outcome))
		return a.outcome(dir, s, err)
	})
	c.Flags().StringVar(&outcome, "outcome", "", "resumed or refused, as the other side's session says; fenced if that host was switched off")
	c.Flags().BoolVar(&lost, "journal-lost", false, "also where the journal cannot be read: it is put aside, and the order counts")
	return c
}

func (a sessionCommands) sessionRecover() *cobra.Command {
	var every, restarts bool
	var root string
	var timeout int
	c := &cobra.Command{Use: "recover (DIR | --all)", Short: "Bring a side whose process is gone as far as it may go alone", Args: between(0, 1), RunE: func(c *cobra.Command, args []string) error {
		if (len(args) == 1) == every {
			return usageError("session recover: name a session's folder, or --all")
		}
		if restarts && every {
			return usageError("session recover: --restarts is about one session, and --all about every one")
		}
		ctx, cancel, err := limited(c, timeout)
		if err != nil {
			return err
		}
		defer cancel()
		if every {
			all, err := recovery.RecoverAll(ctx, root, record.RunDir)
			told(metrics.CountAll(root))
			return errors.Join(err, a.print(all))
		}
		s, err := recovery.Recover(ctx, args[0], record.RunDir, restarts)
		return a.outcome(args[0], s, err)
	}}
	c.Flags().BoolVar(&every, "all", false, "every session of this host")
	c.Flags().BoolVar(&restarts, "restarts", false, "leave a session alone that its unit starts again")
	rootFlag(c, &root)
	timeoutFlag(c.Flags(), &timeout, 300)
	return c
}

// sessionStream is the far end of a source's peer.command.
func (a sessionCommands) sessionStream() *cobra.Command {
	return &cobra.Command{
		Use:   "stream (IP:PORT | unix:/PATH)",
		Short: "At the far end of ssh: carry a session's connections over the standard streams",
		Args:  between(1, 1),
		RunE: func(c *cobra.Command, args []string) error {
			to, err := transport.ParseAddress(args[0])
			if err != nil {
				return usageError("stream: " + err.Error())
			}
			if os.Geteuid() == 0 { // it opens nothing but the way to the session
				if err := confine.To(confine.Rules{Connect: to.Port()}); err != nil && !errors.Is(err, confine.ErrNoLandlock) {
					return err
				}
			}
			return transport.Carry(c.Context(), to)
		},
	}
}

func (a sessionCommands) sessionIdentity() *cobra.Command {
	return &cobra.Command{Use: "identity DIR", Short: "Tell the fingerprint of a session's key, made if need be", Args: between(1, 1), RunE: func(_ *cobra.Command, args []string) error {
		id, err := record.Identity(args[0])
		if err != nil {
			return err
		}
		return a.print(map[string]string{"fingerprint": id.Fingerprint()})
	}}
}
