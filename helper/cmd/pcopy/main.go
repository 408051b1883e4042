// Command pcopy copies running disks and hands running workloads over. It is the
// helper of the Ansible collection livefleet.handover, and root's tool on both
// hosts: no daemon, no configuration of its own.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/livefleet/handover/helper/internal/hooks"
	"github.com/livefleet/handover/helper/internal/throttle"
	"github.com/livefleet/handover/helper/internal/transport"
	"github.com/livefleet/handover/helper/internal/wire/dialect"
)

// version is set when the binary is built.
var version = "0.1.0"

// command is one word of the command line, or two.
type command struct {
	name  string
	usage string // what follows the name
	help  string
	run   func(ctx context.Context, args []string) error
}

var commands = []command{
	{"send", "--session DIR", "run the source's side of a session to its end", runSend},
	{"receive", "--session DIR", "run the destination's side of a session to its end", runReceive},
	{"send", "--dialect NAME --device DEV [-F COMMAND] [-o FD] [-f FD] [--socket PATH] [--to FILE -- COMMAND…]", "send a disk that is in use to an old ploop copy", runSend},
	{"receive", "--dialect NAME -d FILE [-i FD] [-f FD] [--socket PATH] [--max-size BYTES]", "receive a disk from an old ploop copy", runReceive},
	{"copy", "-s DEV … | -d FILE …", "the same with the arguments of ploop copy 1.12", copyLikePloop},
	{"session show", "DIR", "where a session stands", sessionShow},
	{"session list", "[--root DIR]", "all sessions of this host", sessionList},
	{"session wait", "DIR --until WORD[,WORD…] [--timeout SECONDS]", "wait for a state, or for listening, converged, ended", sessionWait},
	{"session cutover", "DIR [--wave DIR[,DIR…]] [--timeout SECONDS]", "source: freeze, hand over, and wait for the outcome; with --wave together with other sessions, all or none", sessionCutover},
	{"session abort", "DIR [--timeout SECONDS]", "end a session that is not released; nothing moves", sessionAbort},
	{"session continue", "DIR", "a session that stopped at policy.pause_at goes on", sessionContinue},
	{"session resolve", "DIR --outcome resumed|refused|fenced [--journal-lost] [--timeout SECONDS]", "a side in doubt: what the other side's session says, or that it was fenced; with --journal-lost also where the journal cannot be read", sessionResolve},
	{"session recover", "DIR | --all [--root DIR] [--timeout SECONDS]", "bring a side whose process is gone as far as it may go by itself", sessionRecover},
	{"stream", "IP:PORT | unix:/PATH", "at the far end of ssh: carry a session's connections between the standard streams and what it listens on here", stream},
	{"identity", "DIR", "the fingerprint of a session's key, made if need be", identity},
	{"watch start", "DIR", "follow a folder in the background: what is touched from now on is in the list", watchStart},
	{"watch run", "DIR", "the same in the foreground", watchRun},
	{"watch list", "[--null] DIR", "names of what was touched since the list before, for rsync --files-from", watchList},
	{"watch stop", "DIR", "follow it no more", watchStop},
	{"track start", "DEVICE [--name NAME] [--cluster BYTES]", "mark from now on what is written to a block device", trackStart},
	{"track list", "", "what is tracked, and how much was written", trackList},
	{"track swap", "NAME --bitmap FILE [--again]", "take what was written since the last time; --again: and what that time gave", trackSwap},
	{"track export", "NAME --bitmap FILE", "copy the marks and leave them", trackExport},
	{"track stop", "NAME", "forget a device", trackStop},
	{"bitmap", "FILE [--extents]", "what a bitmap says of itself, or offset and length of what is marked", showBitmap},
	{"probe", "[--recall]", "what this host can do; --recall: the answer of the last hour will do, if everything worked", probe},
	{"digest", "PATH…", "a digest of images or block devices", digest},
	{"image info", "[--snapshot GUID] IMAGE", "what a ploop image is: a delta, a DiskDescriptor.xml or its folder", imageInfo},
	{"image check", "[--snapshot GUID] IMAGE", "everything that is wrong with a ploop image", imageCheck},
	{"image convert", "[--format raw|qcow2] [--snapshot GUID] [--in-use] IMAGE OUT", "write the disk of a ploop image, with all its layers, to a new file", imageConvert},
	{"image merge", "[--format raw|qcow2] [--plain-base] [--in-use] BASE DELTA… OUT", "the same, of layers that are named one by one, the lowest first", imageMerge},
	{"fdatasync", "[--dontneed] PATH…", "write the data of files to the disk", fdatasync},
	{"pages", "[--read [--seconds N]] [--ranges FILE] PATH…", "how much of files or block devices is in memory; or bring it there", pages},
	{"hold", "--seconds N [--read [--ready-within N]] [--lock] ([--ranges FILE] PATH… | --osd DIR [TOOL WORD…])", "keep files open, and so the pages of block devices in memory", hold},
	{"bluefs", "--home DIR [--work DIR [--inside DIR]] [TOOL WORD…]", "where on its devices an OSD keeps its database", bluefsLayout},
	{"criu-hook", "", "CRIU's action script", criuHook},
	{"oci-hook", "[--root DIR]", "the OCI runtime's hook before a container starts", ociHook},
	{"criu-hold", "PROGRAM ARGUMENT…", "stand in for CRIU, and become it when there is something to restore", criuHold},
	{hooks.ThawBehindWord, "CGROUP", "thaw a cgroup when CRIU, which is file 3, has ended; started by criu-hook", thawBehind},
	{transport.RunnerWord, "COMMAND…", "run the command of a session's way for a process that may start nothing, which is file 3; started by pcopy itself", runWay},
	{throttle.LiftBehindWord, "RECORD PID", "give a workload its processor time back when the session's process PID, whose pipe is the standard input, has ended; started by it", liftBehind},
	{"netavark", "ARGUMENT…", "podman's netavark, with a network that is silent at first", netavark},
	{"version", "[--json]", "what this is", showVersion},
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	err := dispatch(ctx, os.Args[1:])
	stop()
	var usage usageError
	var no refusal
	var old *dialect.Failure
	switch {
	case err == nil:
		return
	case errors.As(err, &old):
		fmt.Fprintln(os.Stderr, "pcopy:", strings.ReplaceAll(err.Error(), "\n", "; "))
		os.Exit(old.ExitCode())
	case errors.As(err, &usage):
		fmt.Fprintln(os.Stderr, "pcopy:", usage)
		os.Exit(2)
	case errors.As(err, &no):
		fmt.Fprintln(os.Stderr, "pcopy:", no)
		os.Exit(refused)
	default:
		fmt.Fprintln(os.Stderr, "pcopy:", strings.ReplaceAll(err.Error(), "\n", "; "))
		os.Exit(1)
	}
}

// usageError is a call that cannot be understood.
type usageError string

func (u usageError) Error() string { return string(u) }

func dispatch(ctx context.Context, args []string) error {
	if len(args) == 0 || slices.Contains([]string{"help", "-h", "--help"}, args[0]) {
		help(os.Stdout)
		return nil
	}
	for _, c := range commands {
		words := strings.Fields(c.name)
		if len(args) >= len(words) && slices.Equal(args[:len(words)], words) {
			return c.run(ctx, args[len(words):])
		}
	}
	return usageError(fmt.Sprintf("there is no command %q: `pcopy help` lists them", strings.Join(args[:min(2, len(args))], " ")))
}

func help(w io.Writer) {
	fmt.Fprintf(w, "pcopy %s: copies running disks and hands running workloads over\n\n", version)
	for _, c := range commands {
		fmt.Fprintf(w, "  pcopy %s\n        %s\n", strings.TrimSpace(c.name+" "+c.usage), c.help)
	}
}

// parse reads flags that may stand before or behind the words, and demands
// between least and most words.
func parse(f *flag.FlagSet, args []string, least, most int) ([]string, error) {
	f.SetOutput(io.Discard)
	var words []string
	for {
		if err := f.Parse(args); err != nil {
			return nil, usageError(fmt.Sprintf("%s: %v", f.Name(), err))
		}
		if f.NArg() == 0 {
			break
		}
		words = append(words, f.Arg(0))
		args = f.Args()[1:]
	}
	if len(words) < least || len(words) > most {
		return nil, usageError(fmt.Sprintf("%s: %d words were given where %d are needed: `pcopy help` shows how it is called", f.Name(), len(words), least))
	}
	return words, nil
}

// print answers in JSON.
func print(v any) error { return printTo(os.Stdout, v) }

func printTo(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}
