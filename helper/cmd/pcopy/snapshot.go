package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/livefleet/handover/helper/internal/changes"
	"github.com/livefleet/handover/helper/internal/hooks"
	"github.com/livefleet/handover/helper/internal/image/convert"
	"github.com/livefleet/handover/helper/internal/session/record"
	"github.com/livefleet/handover/helper/internal/snapshot"
	"github.com/livefleet/handover/helper/internal/store"
	"github.com/livefleet/handover/helper/internal/store/elsewhere"
	"github.com/livefleet/handover/helper/internal/tracker"
	"github.com/livefleet/handover/helper/internal/treedisk"
)

type snapshotCommands struct{ *app }

func (a snapshotCommands) snapshot() *cobra.Command {
	g := group("snapshot", "Keep volumes in use as they were at certain points in time, and go back to one",
		a.snapshotTake(), a.snapshotWave(), a.snapshotPull(), a.snapshotPush(), a.there(a.snapshotList()), a.there(a.snapshotShow()), a.snapshotNote(), a.snapshotRestore(), a.snapshotExport(), a.snapshotCopy(), a.snapshotJoin(), a.there(a.snapshotDelete()),
		a.there(a.snapshotPrune()), a.there(a.snapshotVerify()), a.snapshotForget(), a.there(a.snapshotStores()))
	g.Long = g.Short + ".\n\nSTORE is a folder that the first snapshot makes, on this host or, as HOST:/FOLDER, on another one that root of this host reaches by ssh. SNAPSHOT is a name, an ID, or the beginning of one."
	g.Example = `  pcopy snapshot take /backup/shop --volume data=/var/lib/handover/volumes/shop.img --name before-upgrade
  pcopy snapshot list /backup/shop
  pcopy snapshot restore /backup/shop before-upgrade --volume data=/srv/restored.img`
	return g
}

// placesFlag is a flag of the form NAME=PATH that may be given several times.
func placesFlag(c *cobra.Command, places *[]snapshot.Place, name, usage string) {
	c.Flags().Var((*placesValue)(places), name, usage)
}

type placesValue []snapshot.Place

func (p *placesValue) Type() string   { return "NAME=PATH" }
func (p *placesValue) String() string { return "" }
func (p *placesValue) Set(word string) error {
	name, path, ok := strings.Cut(word, "=")
	if !ok || name == "" || path == "" {
		return errors.New("a name and a path are needed, as in data=/srv/data.img")
	}
	if slices.ContainsFunc(*p, func(q snapshot.Place) bool { return q.Name == name }) {
		return fmt.Errorf("the name %s is given twice", name)
	}
	*p = append(*p, snapshot.Place{Name: name, Path: path})
	return nil
}

var _ pflag.Value = (*placesValue)(nil)

func (a snapshotCommands) snapshotTake() *cobra.Command {
	var r snapshot.Request
	var m momentFlags
	c := &cobra.Command{Use: "take STORE --volume NAME=PATH…", Short: "Take a snapshot of all volumes at one moment, while they are written", RunE: func(c *cobra.Command, args []string) error {
		r.Store, r.Options = args[0], m.options()
		taken, err := snapshot.Take(c.Context(), r)
		if err != nil {
			return err
		}
		return a.print(taken)
	}}
	c.Args = func(c *cobra.Command, args []string) error {
		if len(r.Volumes)+len(r.Folders) == 0 {
			return usageError("snapshot take: --volume is missing: name each volume, as in --volume data=/srv/data.img, or --folder data=/srv/data")
		}
		return m.check(c, args)
	}
	f := c.Flags()
	placesFlag(c, &r.Volumes, "volume", "a volume: its image file or its block device")
	placesFlag(c, &r.Folders, "folder", "a volume that is a plain folder")
	f.StringVar(&r.Cgroup, "cgroup", "", "the workload's cgroup, which stands still for the last pass over its folders")
	placesFlag(c, &r.Files, "file", "a file that is taken along")
	f.StringVar(&r.Name, "name", "", "the snapshot's name; one with a name is never pruned")
	f.StringVar(&r.Description, "description", "", "a line for people")
	m.add(f)
	return c
}

func (a snapshotCommands) snapshotWave() *cobra.Command {
	var m momentFlags
	c := &cobra.Command{Use: "wave FILE", Short: "Take snapshots of several workloads at one moment, each into its store", RunE: func(c *cobra.Command, args []string) error {
		parts, err := readWave(c.InOrStdin(), args[0])
		if err != nil {
			return err
		}
		taken, err := snapshot.TakeTogether(c.Context(), parts, m.options())
		if err != nil {
			return err
		}
		return a.printRows(taken, "id", "name", "taken", "store", "frozen_ms")
	}}
	c.Args = m.check
	c.Long = c.Short + `.

FILE has the parts as JSON, "-" is standard input: {"parts": [{"store": "/backup/shop", "name": "before-upgrade", "volumes": [{"name": "data",
"path": "/srv/images/shop.img"}], "folders": [], "cgroup": "", "files": [], "description": ""}]}. Each store gets its own snapshot. A disk is in one part.`
	m.add(c.Flags())
	return c
}

// readWave reads the parts of a wave.
func readWave(stdin io.Reader, path string) (_ []snapshot.Part, err error) {
	from := stdin
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		from = f
	}
	var wave struct {
		Parts []snapshot.Part `json:"parts"`
	}
	d := json.NewDecoder(from)
	d.DisallowUnknownFields()
	if err := d.Decode(&wave); err != nil {
		return nil, usageError(fmt.Sprintf("snapshot wave: %s: %v: see pcopy snapshot wave --help for its form", path, err))
	}
	if len(wave.Parts) == 0 {
		return nil, usageError(fmt.Sprintf("snapshot wave: %s has no parts: name the store and the volumes of each workload", path))
	}
	for n, p := range wave.Parts {
		if p.Store == "" {
			return nil, usageError(fmt.Sprintf("snapshot wave: %s: part %d has no store", path, n+1))
		}
	}
	return wave.Parts, nil
}

// momentFlags are the flags of the moment at which snapshots are taken.
type momentFlags struct {
	o             snapshot.Options
	before, after string
	hookLimit     int
	halt, goOn    string
	haltLimit     int
	memory        string
}

func (m *momentFlags) add(f *pflag.FlagSet) {
	f.StringVar(&m.o.Tracker, "tracker", tracker.Auto, "how writes are tracked meanwhile: auto, ebpf or hash")
	f.BoolVar(&m.o.Full, "full", false, "store everything once more, as if there were no earlier snapshot")
	f.BoolVar(&m.o.Track, "track", true, "leave a tracker in the kernel, so that the next snapshot reads only what was written")
	f.StringVar(&m.o.TrackRoot, "track-root", changes.Root, "the folder that holds the trackers' records")
	f.StringVar(&m.o.FolderRoot, "folder-root", treedisk.Root, "the place of the disks of folders")
	f.StringVar(&m.before, "before", "", "a shell command to run before the freeze")
	f.StringVar(&m.after, "after", "", "a shell command to run after it, in any case")
	f.IntVar(&m.hookLimit, "hook-limit", 60, "seconds that each of the commands may take")
	f.StringVar(&m.halt, "halt", "", "a shell command that halts the workload for the freeze, such as by a dump of its memory")
	f.StringVar(&m.goOn, "go-on", "", "a shell command that lets it go on, in any case")
	f.IntVar(&m.haltLimit, "halt-limit", 600, "seconds that --halt and --go-on may take each")
	f.StringVar(&m.memory, "memory", "", "a file that says how the workload's memory is dumped, to be taken along: the workload runs on where it stood")
	f.DurationVar(&m.o.FreezeLimit, "freeze-limit", 10*time.Second, "how long the file systems may stand still")
}

// check looks at the flags, and demands the one word that the command takes.
func (m *momentFlags) check(c *cobra.Command, args []string) error {
	switch {
	case m.o.FreezeLimit <= 0:
		return usageError(fmt.Sprintf("%s: --freeze-limit %v: a time above 0", words(c), m.o.FreezeLimit))
	case (m.halt == "") != (m.goOn == ""):
		return usageError(fmt.Sprintf("%s: --halt and --go-on: give both or none: what was halted has to go on", words(c)))
	case m.memory != "" && m.halt != "":
		return usageError(fmt.Sprintf("%s: --memory and --halt: give one of them: with --memory nothing is halted", words(c)))
	case m.haltLimit <= 0:
		return usageError(fmt.Sprintf("%s: --halt-limit %d: a number of seconds above 0", words(c), m.haltLimit))
	case m.hookLimit <= 0:
		return usageError(fmt.Sprintf("%s: --hook-limit %d: a number of seconds above 0", words(c), m.hookLimit))
	case !slices.Contains([]string{tracker.Auto, tracker.EBPF, tracker.Hash}, m.o.Tracker):
		return usageError(fmt.Sprintf("%s: --tracker %s: choose one of %s, %s, %s", words(c), m.o.Tracker, tracker.Auto, tracker.EBPF, tracker.Hash))
	}
	if err := between(1, 1)(c, args); err != nil || m.memory == "" {
		return err
	}
	memory, err := readMemory(m.memory)
	m.o.Memory, m.o.RunDir = memory, record.RunDir
	return err
}

func (m *momentFlags) options() snapshot.Options {
	o := m.o
	o.Before, o.After = hook(m.before, m.hookLimit), hook(m.after, m.hookLimit)
	o.Halt, o.GoOn = hook(m.halt, m.haltLimit), hook(m.goOn, m.haltLimit)
	return o
}

func hook(command string, limit int) *hooks.Command {
	if command == "" {
		return nil
	}
	return &hooks.Command{Argv: []string{"/bin/sh", "-c", command}, Timeout: limit}
}

// listed is a point as a line of a list.
type listed struct {
	ID          string    `json:"id"`
	Name        string    `json:"name"`
	Taken       time.Time `json:"taken"`
	Parent      string    `json:"parent"`
	Current     bool      `json:"current"`
	Restoring   bool      `json:"restoring,omitempty"` // a rollback to it has not ended
	Volumes     int       `json:"volumes"`
	Size        int64     `json:"size"`
	Stored      int64     `json:"stored"`
	FrozenMS    float64   `json:"frozen_ms"`
	Description string    `json:"description"`
	Files       []file    `json:"files"` // taken along
}

// file is one that was taken along.
type file struct {
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
}

// printRows answers with snapshots: for people as a table, else as one object, which can
// get more members.
func (a snapshotCommands) printRows(rows any, columns ...string) error {
	if a.people && !a.json {
		return a.printTable(rows, columns...)
	}
	return a.print(struct {
		Snapshots any `json:"snapshots"`
	}{rows})
}

func (a snapshotCommands) snapshotList() *cobra.Command {
	return &cobra.Command{Use: "list STORE", Short: "List the snapshots of a store", Args: between(1, 1), RunE: func(_ *cobra.Command, args []string) error {
		x, err := store.Peek(args[0])
		if err != nil {
			return err
		}
		all := []listed{}
		for _, p := range x.Points {
			l := listed{
				ID: p.ID, Name: p.Name, Taken: p.Taken, Parent: p.Parent, Current: p.ID == x.Current, Restoring: p.ID == x.Restoring,
				Volumes: len(p.Volumes), FrozenMS: p.FrozenMS, Description: p.Description, Files: []file{},
			}
			for _, f := range p.Files {
				l.Files = append(l.Files, file{f.Name, f.Bytes})
			}
			for _, v := range p.Volumes {
				l.Size, l.Stored = l.Size+v.Size, l.Stored+v.Stored
			}
			all = append(all, l)
		}
		return a.printRows(all, "id", "name", "taken", "parent", "current", "volumes", "size", "stored", "description")
	}}
}

func (a snapshotCommands) snapshotShow() *cobra.Command {
	return &cobra.Command{Use: "show STORE SNAPSHOT", Short: "Tell everything about a snapshot", Args: between(2, 2), RunE: func(_ *cobra.Command, args []string) error {
		x, err := store.Peek(args[0])
		if err != nil {
			return err
		}
		p, err := x.Find(args[1])
		if err != nil {
			return err
		}
		images, data := map[string]string{}, map[string]int64{}
		for _, v := range p.Volumes {
			images[v.Name] = x.Image(args[0], v)
			view, _, err := store.OpenVolume(args[0], p.ID, v.Name)
			if err != nil {
				return err
			}
			data[v.Name] = view.Data()
			if err := view.Close(); err != nil {
				return err
			}
		}
		return a.print(struct {
			*store.Point
			Current bool              `json:"current"`
			Images  map[string]string `json:"images"` // that qemu-img opens
			Data    map[string]int64  `json:"data"`   // bytes
		}{p, p.ID == x.Current, images, data})
	}}
}

func (a snapshotCommands) snapshotRestore() *cobra.Command {
	var r snapshot.Return
	c := &cobra.Command{Use: "restore STORE SNAPSHOT --volume NAME=PATH…", Short: "Write volumes of a snapshot to files, devices or folders, and only what differs", RunE: func(c *cobra.Command, args []string) error {
		if err := here(args[0]); err != nil {
			return err
		}
		r.Store, r.Point = args[0], args[1]
		done, err := snapshot.Restore(c.Context(), r)
		if err != nil {
			return err
		}
		return a.print(done)
	}}
	c.Args = func(c *cobra.Command, args []string) error {
		if len(r.Volumes)+len(r.Folders) == 0 {
			return usageError("snapshot restore: --volume is missing: name each volume, as in --volume data=/srv/data.img, or --folder data=/srv/data")
		}
		return between(2, 2)(c, args)
	}
	placesFlag(c, &r.Volumes, "volume", "a volume, and the file or device to write, or a disk that QEMU serves (nbd+unix:///EXPORT?socket=PATH); a file that does not exist is made")
	placesFlag(c, &r.Folders, "folder", "a volume that is a plain folder, and the folder to write; all else in it is removed")
	c.Flags().StringVar(&r.FolderRoot, "folder-root", treedisk.Root, "the place of the disks of folders")
	c.Flags().StringVar(&r.TrackRoot, "track-root", changes.Root, "the folder that holds the trackers' records")
	c.Flags().BoolVar(&r.Current, "current", false, "these are the workload's own disks and folders, which go on from this snapshot")
	return c
}

func (a snapshotCommands) snapshotExport() *cobra.Command {
	var format, volume, file string
	c := &cobra.Command{Use: "export STORE SNAPSHOT OUT {--volume NAME | --file NAME}", Short: "Write one volume, or a file that was taken along, to a new file", RunE: func(c *cobra.Command, args []string) error {
		if file != "" {
			return a.exportFile(args[0], args[1], file, args[2])
		}
		return a.exportVolume(c.Context(), args[0], args[1], volume, format, args[2])
	}}
	c.Args = func(c *cobra.Command, args []string) error {
		if (volume == "") == (file == "") {
			return usageError("snapshot export: name a volume or a file, and not both: --volume NAME or --file NAME")
		}
		if !slices.Contains(convert.Formats, format) {
			return usageError(fmt.Sprintf("--format %s: choose one of %s", format, strings.Join(convert.Formats, ", ")))
		}
		return between(3, 3)(c, args)
	}
	c.Flags().StringVar(&volume, "volume", "", "the volume")
	c.Flags().StringVar(&file, "file", "", "the file")
	c.Flags().StringVar(&format, "format", convert.QCOW2, "format of a volume's new file: "+strings.Join(convert.Formats, " or "))
	return c
}

func (a snapshotCommands) exportVolume(ctx context.Context, dir, point, volume, format, out string) error {
	if err := here(dir); err != nil {
		return err
	}
	v, _, err := store.OpenVolume(dir, point, volume)
	if err != nil {
		return err
	}
	s, err := convert.Convert(ctx, v, format, out)
	if err = errors.Join(err, v.Close()); err != nil {
		return err
	}
	return a.print(s)
}

func (a snapshotCommands) exportFile(dir, point, name, out string) (err error) {
	if p, ok := elsewhere.Parse(dir); ok {
		return exportThere(p, point, name, out)
	}
	from, err := store.OpenFile(dir, point, name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	to, err := os.OpenFile(out, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	return errors.Join(err, to.Sync(), to.Close())
}

// changing is a command that changes a store.
func changing(c *cobra.Command, run func(ctx context.Context, s *store.Store, args []string) error) *cobra.Command {
	c.RunE = func(c *cobra.Command, args []string) error {
		s, err := store.Open(args[0], false)
		if err != nil {
			return err
		}
		return errors.Join(run(c.Context(), s, args[1:]), s.Close())
	}
	return c
}

func (a snapshotCommands) snapshotDelete() *cobra.Command {
	c := &cobra.Command{Use: "delete STORE SNAPSHOT…", Short: "Delete snapshots; what others need of them stays", Args: between(2, -1)}
	return changing(c, func(ctx context.Context, s *store.Store, args []string) error { return s.Delete(ctx, args...) })
}

func (a snapshotCommands) snapshotPrune() *cobra.Command {
	var policy store.Policy
	var dry bool
	c := &cobra.Command{Use: "prune STORE", Short: "Delete the snapshots that a policy does not keep", Args: between(1, 1)}
	c.Long = c.Short + ".\n\nOne with a name and the current one are always kept. Periods are those of the host's time zone."
	f := c.Flags()
	f.IntVar(&policy.Last, "keep-last", 0, "keep the last so many")
	f.IntVar(&policy.Hourly, "keep-hourly", 0, "keep the last of each of so many hours")
	f.IntVar(&policy.Daily, "keep-daily", 0, "keep the last of each of so many days")
	f.IntVar(&policy.Weekly, "keep-weekly", 0, "keep the last of each of so many weeks")
	f.IntVar(&policy.Monthly, "keep-monthly", 0, "keep the last of each of so many months")
	f.IntVar(&policy.Yearly, "keep-yearly", 0, "keep the last of each of so many years")
	f.BoolVar(&dry, "dry-run", false, "only tell what would be deleted")
	changing(c, func(ctx context.Context, s *store.Store, _ []string) error {
		rows, gone, err := judged(s.Index(), policy)
		if err == nil && len(gone) > 0 {
			err = s.Delete(ctx, gone...)
		}
		if err != nil {
			return err
		}
		return a.printRows(rows, verdictColumns...)
	})
	prune := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		if !dry {
			return prune(c, args)
		}
		x, err := store.Peek(args[0]) // it holds up nobody, and changes nothing
		if err != nil {
			return err
		}
		rows, _, err := judged(x, policy)
		if err != nil {
			return err
		}
		return a.printRows(rows, verdictColumns...)
	}
	return c
}

// verdict is a snapshot with its fate.
type verdict struct {
	ID    string    `json:"id"`
	Name  string    `json:"name"`
	Taken time.Time `json:"taken"`
	Keep  bool      `json:"keep"`
	Why   []string  `json:"why"`
}

var verdictColumns = []string{"id", "name", "taken", "keep", "why"}

// judged are the snapshots of a store with their fate, and the IDs of those that go.
func judged(x *store.Index, policy store.Policy) (rows []verdict, gone []string, err error) {
	verdicts, err := store.Prune(x.Points, x.Current, policy, time.Local)
	if err != nil {
		return nil, nil, err
	}
	rows = []verdict{}
	for _, v := range verdicts {
		rows = append(rows, verdict{v.Point.ID, v.Point.Name, v.Point.Taken, v.Keep, v.Why})
		if !v.Keep {
			gone = append(gone, v.Point.ID)
		}
	}
	return rows, gone, nil
}

func (a snapshotCommands) snapshotVerify() *cobra.Command {
	return &cobra.Command{Use: "verify STORE", Short: "Read all files of a store back, and name each that is not as it was written", Args: between(1, 1), RunE: func(c *cobra.Command, args []string) error {
		r, err := store.Verify(c.Context(), args[0])
		if err != nil {
			return err
		}
		err = a.print(r)
		if err == nil && len(r.Faults) > 0 {
			err = fmt.Errorf("snapshot verify: %s: %d files are damaged, see the faults: restore them from a copy of the store", args[0], len(r.Faults))
		}
		return err
	}}
}

func (a snapshotCommands) snapshotForget() *cobra.Command {
	var root string
	c := &cobra.Command{Use: "untrack STORE", Short: "End the trackers that a store's snapshots have left in the kernel", Args: between(1, 1), RunE: func(_ *cobra.Command, args []string) error {
		x, err := index(args[0])
		if err != nil {
			return err
		}
		return snapshot.Forget(x, root, "")
	}}
	c.Flags().StringVar(&root, "track-root", changes.Root, "the folder that holds the trackers' records")
	return c
}

// thawAfter is the process that thaws if the one that takes a snapshot dies.
func (a internalCommands) thawAfter() *cobra.Command {
	return &cobra.Command{Use: snapshot.ThawWord + " LIMIT {MOUNTPOINT|cgroup=DIR}…", Short: "Thaw file systems and workloads when the process that froze them has ended, or the limit has passed", Args: between(2, -1), RunE: func(_ *cobra.Command, args []string) error {
		limit, err := time.ParseDuration(args[0])
		if err != nil {
			return usageError(fmt.Sprintf("%s: %v", snapshot.ThawWord, err))
		}
		return snapshot.ThawWhenGone(limit, args[1:])
	}}
}
