// Command pcopy copies running disks and hands running workloads over. It is the
// helper of the Ansible collection livefleet.handover, and root's tool on both
// hosts: no daemon, no configuration of its own.
//
// Its words are groups (session, track, snapshot, watch, image, cache, ploop, host), one file
// a group. Words that only programs say are under `internal`.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/livefleet/handover/helper/internal/wire/dialect"
)

// version is set when the binary is built.
var version = "0.1.0"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	err := execute(ctx, os.Stdout, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "pcopy:", strings.ReplaceAll(err.Error(), "\n", "; "))
		os.Exit(status(err))
	}
}

// execute runs one command line. Answers go to out: for people if out is a terminal, else in JSON.
func execute(ctx context.Context, out io.Writer, args []string) error {
	f, isFile := out.(*os.File)
	a := &app{out: out, people: isFile && term.IsTerminal(int(f.Fd()))}
	root := a.root()
	root.SetArgs(withoutVerbosity(args))
	root.SetOut(out)
	return root.ExecuteContext(ctx)
}

// status is the exit status for an error.
//
//	1  the command failed
//	2  the command line cannot be understood
//	3  a hook's clear no (refusal)
//
// Copies with old peers end with the old programs' own (package dialect).
func status(err error) int {
	var usage usageError
	var no refusal
	var old *dialect.Failure
	switch {
	case errors.As(err, &old):
		return old.ExitCode()
	case errors.As(err, &usage):
		return 2
	case errors.As(err, &no):
		return refused
	}
	return 1
}

// usageError is a call that cannot be understood.
type usageError string

func (u usageError) Error() string { return string(u) }

// app is one run of the program.
type app struct {
	out    io.Writer
	people bool // out is a terminal
	json   bool // asked for
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "pcopy",
		Short: "Copy running disks and hand running workloads over",
		Long: "pcopy copies disks that are in use and hands running workloads over to another host.\n" +
			"It is the helper of the Ansible collection livefleet.handover.\n\n" +
			"On a terminal answers are readable; with --json, or where the output is no terminal, each is one line of JSON.",
		Version:       version,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          unknownWord,
		RunE:          showHelp,
	}
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return usageError(fmt.Sprintf("%s: %v: `%s --help` shows its flags", words(c), err, c.CommandPath()))
	})
	root.PersistentFlags().BoolVar(&a.json, "json", false, "answer in JSON, one object a line")
	root.AddCommand(sessionCommands{a}.session(), trackCommands{a}.track(), snapshotCommands{a}.snapshot(), watchCommands{a}.watch(), imageCommands{a}.image(), cacheCommands{a}.cache(), ploopCommands{a}.ploop(), hostCommands{a}.host(), internalCommands{a}.internal(), hostCommands{a}.version())
	root.AddCommand(a.formerWords()...)
	root.SetGlobalNormalizationFunc(presentFlag)
	addExamples(root)
	return root
}

// formerFlags are the names of flags that were renamed, each with the present one.
var formerFlags = map[string]string{"ready-within": "ready-within-seconds"}

func presentFlag(_ *pflag.FlagSet, name string) pflag.NormalizedName {
	if now, ok := formerFlags[name]; ok {
		name = now
	}
	return pflag.NormalizedName(name)
}

// group is a word that other words follow.
func group(use, short string, commands ...*cobra.Command) *cobra.Command {
	g := &cobra.Command{Use: use, Short: short, Args: unknownWord, RunE: showHelp}
	g.AddCommand(commands...)
	return g
}

// hidden is a command under a word that it had before, or that only programs say.
func hidden(use string, c *cobra.Command) *cobra.Command {
	_, arguments, _ := strings.Cut(c.Use, " ")
	c.Use, c.Hidden = strings.TrimSpace(use+" "+arguments), true
	return c
}

// formerWords are the words of version 0.1 before there were groups. Hosts of a fleet
// are not upgraded at the same moment: units, CRIU's configuration and hooks written
// by an older role still say them.
func (a *app) formerWords() []*cobra.Command {
	return []*cobra.Command{
		sideBefore("send", sessionCommands{a}.sessionSend, ploopCommands{a}.ploopSend), sideBefore("receive", sessionCommands{a}.sessionReceive, ploopCommands{a}.ploopReceive),
		hidden("stream", sessionCommands{a}.sessionStream()), hidden("identity", sessionCommands{a}.sessionIdentity()),
		hidden("copy", ploopCommands{a}.ploopCopy()), hidden("bitmap", trackCommands{a}.trackBitmap()),
		hidden("probe", hostCommands{a}.hostProbe()), hidden("digest", imageCommands{a}.imageDigest()), hidden("fdatasync", imageCommands{a}.imageSync()),
		hidden("pages", cacheCommands{a}.cacheShow()), hidden("hold", cacheCommands{a}.cachePin()), hidden("bluefs", internalCommands{a}.internalBluefs()),
		hidden("criu-hook", internalCommands{a}.criuHook()), hidden("oci-hook", internalCommands{a}.ociHook()), hidden("criu-hold", internalCommands{a}.criuHold()),
		hidden("netavark", internalCommands{a}.netavark()), hidden("run-on-behind", internalCommands{a}.runOnAfter()), hidden("lift-behind", internalCommands{a}.unthrottleAfter()),
		hidden("run-way", internalCommands{a}.runTransport()),
	}
}

// words are the words of a command without the program's own.
func words(c *cobra.Command) string {
	return strings.TrimPrefix(c.CommandPath(), c.Root().Name()+" ")
}

func showHelp(c *cobra.Command, _ []string) error { return c.Help() }

// unknownWord refuses a word that a group does not have, and names one that looks like it.
func unknownWord(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	text := fmt.Sprintf("there is no command %q", strings.TrimSpace(strings.TrimPrefix(c.CommandPath(), c.Root().Name())+" "+args[0]))
	c.SuggestionsMinimumDistance = 2
	if near := c.SuggestionsFor(args[0]); len(near) > 0 {
		return usageError(text + fmt.Sprintf(": did you mean `%s %s`?", c.CommandPath(), near[0]))
	}
	return usageError(text + fmt.Sprintf(": `%s --help` lists them", c.CommandPath()))
}

// between demands from least to most words behind a command; no limit if most is below 0.
func between(least, most int) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) >= least && (most < 0 || len(args) <= most) {
			return nil
		}
		return usageError(fmt.Sprintf("%s: %d words were given where %d are needed: usage: %s", words(c), len(args), least, c.UseLine()))
	}
}
