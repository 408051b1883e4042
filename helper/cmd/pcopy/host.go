package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/livefleet/handover/helper/internal/floating"
	"github.com/livefleet/handover/helper/internal/fsid"
	"github.com/livefleet/handover/helper/internal/loop"
	"github.com/livefleet/handover/helper/internal/network"
	"github.com/livefleet/handover/helper/internal/session"
	"github.com/livefleet/handover/helper/internal/session/record"
	"github.com/livefleet/handover/helper/internal/tracker/blockprobe"
	"github.com/livefleet/handover/helper/internal/wire"
)

// A probe's result is good for so long. The kernel stays the same until the next
// boot, which empties the folder; but a module or a setting may go.
const recallFor = time.Hour

var probeFile = filepath.Join(record.RunDir, "probe.json")

// A probed is the answer of a probe.
type probed struct {
	Findings []blockprobe.Finding `json:"findings"`
	Silence  blockprobe.Finding   `json:"silence"`
	Flows    blockprobe.Finding   `json:"flows"`
}

// A remembered is an answer, and the program that found it.
type remembered struct {
	Program string `json:"program"`
	probed
}

type hostCommands struct{ *app }

func (a hostCommands) host() *cobra.Command {
	return group("host", "Look at this host", a.hostProbe(), a.hostGuard(), a.hostMetrics())
}

func (a hostCommands) hostProbe() *cobra.Command {
	var recall bool
	c := &cobra.Command{Use: "probe", Short: "Try which kinds of tracking and silence this kernel offers", Args: between(0, 0), RunE: func(*cobra.Command, []string) error {
		// To load programs into the kernel takes half a second of a processor, and a host that is emptied is asked once for each of its workloads.
		program := thisProgram()
		if p, ok := recalled(probeFile, program, time.Now()); ok && recall {
			return a.print(p)
		}
		p := probed{Findings: blockprobe.Probe(), Silence: blockprobe.Finding{Name: "silence", OK: true, Text: "a network can be kept silent"}}
		if err := network.Probe(); err != nil {
			p.Silence.OK, p.Silence.Text = false, err.Error()
		}
		p.Flows = blockprobe.Finding{Name: "flows", OK: true, Text: "connections through a published port can be carried"}
		if err := floating.Probe(); err != nil {
			p.Flows.OK, p.Flows.Text = false, err.Error()
		}
		// Without the right to write there, the next call probes again.
		_ = remember(probeFile, remembered{program, p})
		return a.print(p)
	}}
	c.Flags().BoolVar(&recall, "recall", false, "accept an answer of the last hour, if everything worked")
	return c
}

// hostGuard marks the folders under mount points.
func (a hostCommands) hostGuard() *cobra.Command {
	var all bool
	c := &cobra.Command{Use: "guard (MOUNTPOINT… | --all)", Short: "Keep containers from starting on the folder under a volume that is not mounted", RunE: func(_ *cobra.Command, args []string) error {
		if all == (len(args) > 0) {
			return usageError("host guard: name the mount points, or --all")
		}
		if all {
			var err error
			if args, err = loop.ImageVolumes(); err != nil {
				return err
			}
		}
		guarded := []string{}
		for _, mountpoint := range args {
			changed, err := fsid.Guard(mountpoint)
			if err != nil {
				return err
			}
			if changed {
				guarded = append(guarded, mountpoint)
			}
		}
		return a.print(map[string]any{"changed": len(guarded) > 0, "guarded": guarded})
	}}
	c.Flags().BoolVar(&all, "all", false, "the image volumes that have a mount unit")
	return c
}

func (a hostCommands) version() *cobra.Command {
	return &cobra.Command{Use: "version", Short: "Tell the version, the protocol and the architecture", Args: between(0, 0), RunE: func(*cobra.Command, []string) error {
		if a.json {
			return a.print(map[string]any{"version": version, "protocol": wire.MaxVersion, "interface": record.Interface, "arch": runtime.GOARCH, "go": runtime.Version(), "can": session.Understood(), "needs": session.Needs()})
		}
		_, err := fmt.Fprintf(a.out, "pcopy %s (protocol %d, %s, %s)\n", version, wire.MaxVersion, runtime.GOARCH, runtime.Version())
		return err
	}}
}

// recalled is the same program's earlier result. Only a success is remembered: a
// failure is examined again each time, since it may have been mended.
func recalled(path, program string, now time.Time) (probed, bool) {
	i, err := os.Stat(path)
	if err != nil || now.Sub(i.ModTime()) > recallFor || i.ModTime().After(now) {
		return probed{}, false
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return probed{}, false
	}
	var r remembered
	if json.Unmarshal(b, &r) != nil || r.Program != program || !r.works() {
		return probed{}, false
	}
	return r.probed, true
}

func (p probed) works() bool {
	return len(p.Findings) > 0 && p.Silence.OK && p.Flows.OK && !slices.ContainsFunc(p.Findings, func(f blockprobe.Finding) bool { return !f.OK })
}

// remember writes the file whole or not at all, for two may probe at once.
func remember(path string, r remembered) error {
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".probe-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // once it is renamed, there is nothing of that name
	if _, err = f.Write(b); err != nil {
		f.Close()
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// thisProgram tells this build of pcopy from any other that was here before.
func thisProgram() string {
	path, err := os.Executable()
	if err != nil {
		return ""
	}
	i, err := os.Stat(path)
	if err != nil {
		return ""
	}
	return fmt.Sprintf("%s %d %d", version, i.Size(), i.ModTime().UnixNano())
}
