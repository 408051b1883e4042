package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/livefleet/handover/helper/internal/bluefs"
	"github.com/livefleet/handover/helper/internal/confine"
	"github.com/livefleet/handover/helper/internal/hooks"
	"github.com/livefleet/handover/helper/internal/session/engine"
	"github.com/livefleet/handover/helper/internal/session/record"
	"github.com/livefleet/handover/helper/internal/session/recovery"
	"github.com/livefleet/handover/helper/internal/throttle"
	"github.com/livefleet/handover/helper/internal/tmpfs"
	"github.com/livefleet/handover/helper/internal/transport"
)

type internalCommands struct{ *app }

// internal are the words that only programs say: CRIU, runtimes, podman, units, and pcopy itself.
func (a internalCommands) internal() *cobra.Command {
	g := group("internal", "Words that only programs say",
		a.criuHook(), a.ociHook(), a.criuHold(), a.tarHold(), a.netavark(), a.runOnAfter(), a.unthrottleAfter(), a.runTransport(), a.internalBluefs(), a.envelope(), a.shutDoor(),
		a.flagsIn(), a.flagsMissing(), a.runcHook(), a.runcRestore(), a.runcEntered(), a.ownTables(), a.thawAfter(), a.unitMayStart(), a.within(), a.inTurn(), a.serveStore())
	g.AddCommand(memoryCommands(a).commands()...)
	g.AddCommand(building()...)
	g.Hidden = true
	return g
}

func (a internalCommands) ociHook() *cobra.Command {
	var root string
	var restores bool
	c := &cobra.Command{Use: "oci-hook", Short: "The OCI runtime's hook before a container starts", Args: between(0, 0), RunE: func(c *cobra.Command, _ []string) error {
		state, err := recovery.ReadOCIState(os.Stdin)
		if err != nil {
			return err
		}
		state.Restores = restores || restoresHere()
		if err := recovery.MayStart(c.Context(), root, record.RunDir, state); err != nil {
			return err
		}
		return recovery.BringAddresses(root, record.RunDir, state)
	}}
	rootFlag(c, &root)
	c.Flags().BoolVar(&restores, "restores", false, "the engine restores the container, and holds it until it is told to let it run")
	return c
}

// restoresHere says whether the runtime that runs this hook restores the container. The hook
// is told the same in both cases, so the runtime's own words tell.
func restoresHere() bool {
	words, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(os.Getppid()), "cmdline"))
	return err == nil && slices.Contains(strings.Split(string(words), "\x00"), "restore")
}

func (a internalCommands) criuHook() *cobra.Command {
	return &cobra.Command{Use: "criu-hook", Short: "CRIU's action script", DisableFlagParsing: true, RunE: func(_ *cobra.Command, args []string) error {
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
		goOn, err := recovery.Hook(record.RunDir, recovery.Call{Action: action, ImageDir: real, CRIU: criu, Root: os.Getenv("CRTOOLS_INIT_PID")})
		if err != nil {
			return err
		}
		if !goOn {
			return refusal("criu-hook: the session refuses to go on at " + action)
		}
		return nil
	}}
}

// refusal is a clear no to CRIU. CRIU's action script takes nothing else for one at
// post-dump: a pcopy that is missing, killed or at a loss has decided nothing.
type refusal string

func (r refusal) Error() string { return string(r) }

// refused is the exit status of a refusal.
const refused = 3

// criuHold is called by the program that has CRIU's name, with the path that it was
// called by and its arguments.
func (a internalCommands) criuHold() *cobra.Command {
	return &cobra.Command{Use: "criu-hold PROGRAM ARGUMENT…", Short: "Stand in for CRIU, and become it when there is something to restore", DisableFlagParsing: true, RunE: func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			return usageError("criu-hold is called by the program that stands in for CRIU")
		}
		return hooks.Held(c.Context(), args[0], args[1:], recovery.Holder{RunDir: record.RunDir, PID: os.Getpid()})
	}}
}

// tarHold is called by the program that has tar's name, with the path that it was called by
// and its arguments.
func (a internalCommands) tarHold() *cobra.Command {
	return &cobra.Command{Use: "tar-hold PROGRAM ARGUMENT…", Short: "Stand in for the tar that CRIU calls, and become it where a session carries no such tmpfs", DisableFlagParsing: true, RunE: func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			return usageError("tar-hold is called by the program that stands in for tar")
		}
		return tmpfs.Held(c.Context(), args[0], tmpfs.Call{Args: args[1:], In: os.Stdin, Out: os.Stdout, RunDir: record.RunDir})
	}}
}

func (a internalCommands) runOnAfter() *cobra.Command {
	return &cobra.Command{Use: hooks.RunOnWord + " CGROUP IMAGES SESSION", Short: "Let tasks run on when CRIU, which is file 3, has ended", Args: between(3, 3), RunE: func(_ *cobra.Command, args []string) error {
		return recovery.RunOnWhenGone(hooks.Behind{Cgroup: hooks.Cgroup(args[0]), Images: args[1], Session: args[2]})
	}}
}

func (a internalCommands) unthrottleAfter() *cobra.Command {
	return &cobra.Command{Use: throttle.LiftBehindWord + " RECORD PID", Short: "Give a workload its processor time back when the session's process has ended", Args: between(2, 2), RunE: func(_ *cobra.Command, args []string) error {
		return throttle.LiftWhenGone(args[0], args[1])
	}}
}

// runTransport starts a source's peer.command for it. Its child has all of root's powers;
// it needs none of them itself.
func (a internalCommands) runTransport() *cobra.Command {
	return &cobra.Command{Use: transport.RunnerWord + " COMMAND…", Short: "Run the command of a session's transport for a process that may start none", DisableFlagParsing: true, RunE: func(_ *cobra.Command, args []string) error {
		if err := confine.Lower(); err != nil {
			return err
		}
		return transport.Run(args)
	}}
}

// internalBluefs tells where on its devices an OSD keeps its database.
func (a internalCommands) internalBluefs() *cobra.Command {
	var home, work, inside string
	c := &cobra.Command{Use: "bluefs --home DIR [TOOL WORD…]", Short: "Tell where on its devices an OSD keeps its database", RunE: func(c *cobra.Command, tool []string) error {
		if home == "" {
			return usageError("bluefs: --home is missing: name the OSD's folder")
		}
		if inside == "" {
			inside = work
		}
		layout, err := bluefs.Read(c.Context(), home, work, inside, tool)
		if err != nil {
			return err
		}
		return a.print(layout)
	}}
	c.Flags().StringVar(&home, "home", "", "the OSD's folder")
	c.Flags().StringVar(&work, "work", "/run", "a folder for the copy of the database's log")
	c.Flags().StringVar(&inside, "inside", "", "the same folder as the tool sees it; --work if empty")
	c.Flags().SetInterspersed(false) // the tool's own flags follow it
	return c
}

// The environment of the restore command of the driver's table.
const (
	netavarkEnv = "HANDOVER_NETAVARK" // podman's own netavark
	gateEnv     = "HANDOVER_GATE"     // the directory of CRIU's images
	silentEnv   = "HANDOVER_SILENT"   // a file: as long as it is there, a network comes up silent, whether something is restored or not
)

// netavark stands in for podman's program of that name while a workload is restored:
// before the first interface is made, the namespace is made silent. In everything
// else it is that program. It reports its own failures in netavark's format, since
// podman shows these to the user.
//
// The environment stays with podman's children, for as long as the workload runs:
// without a session that waits, this does nothing.
func (a internalCommands) netavark() *cobra.Command {
	return &cobra.Command{Use: "netavark ARGUMENT…", Short: "Podman's netavark, with a network that is silent at first", DisableFlagParsing: true, RunE: func(_ *cobra.Command, args []string) error {
		real := os.Getenv(netavarkEnv)
		if real == "" {
			return usageError("netavark is called by podman, when pcopy has it restore a workload")
		}
		if err := silenceFirst(args); err != nil {
			_ = json.NewEncoder(os.Stdout).Encode(map[string]string{"error": err.Error()})
			os.Exit(1)
		}
		if err := syscall.Exec(real, append([]string{real}, args...), os.Environ()); err != nil {
			return fmt.Errorf("netavark: %s: %w", real, err)
		}
		return nil
	}}
}

func silenceFirst(args []string) error {
	verb := slices.Index(args, "setup")
	if verb < 0 || verb+1 >= len(args) {
		return nil
	}
	if _, err := os.Stat(os.Getenv(silentEnv)); os.Getenv(silentEnv) != "" && err == nil {
		return engine.ComeUpSilent(args[verb+1])
	}
	if os.Getenv(gateEnv) == "" {
		return nil
	}
	return engine.SetUpNetwork(record.RunDir, os.Getenv(gateEnv), args[verb+1])
}
