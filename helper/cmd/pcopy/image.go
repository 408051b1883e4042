package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/livefleet/handover/helper/internal/hooks"
	"github.com/livefleet/handover/helper/internal/image"
	"github.com/livefleet/handover/helper/internal/image/convert"
	"github.com/livefleet/handover/helper/internal/image/ploop"
	"github.com/livefleet/handover/helper/internal/session/record"
	"github.com/livefleet/handover/helper/internal/treedisk"
)

type imageCommands struct{ *app }

func (a imageCommands) image() *cobra.Command {
	g := group("image", "Look into ploop images, convert them, compare images, and fill one with files",
		a.imageInfo(), a.imageCheck(), a.imageConvert(), a.imageMerge(), a.imageDigest(), a.imageSync(), a.imageFill())
	g.Example = `  pcopy image info /vz/private/101/root.hdd
  pcopy image convert --format qcow2 /vz/private/101/root.hdd /srv/images/web1.qcow2`
	return g
}

func snapshotFlag(c *cobra.Command, snapshot *string) {
	c.Flags().StringVar(snapshot, "snapshot", "", "GUID of a snapshot; the current state if empty")
}

func (a imageCommands) imageInfo() *cobra.Command {
	var snapshot string
	c := &cobra.Command{Use: "info IMAGE", Short: "Describe a ploop image: a delta, a DiskDescriptor.xml or its folder", Args: between(1, 1), RunE: func(_ *cobra.Command, args []string) error {
		img, info, err := ploop.Open(args[0], snapshot)
		if err != nil {
			return err
		}
		return errors.Join(a.print(info), img.Close())
	}}
	snapshotFlag(c, &snapshot)
	return c
}

func (a imageCommands) imageCheck() *cobra.Command {
	var snapshot string
	c := &cobra.Command{Use: "check IMAGE", Short: "List everything that is wrong with a ploop image", Args: between(1, 1), RunE: func(_ *cobra.Command, args []string) error {
		info, found := ploop.Check(args[0], snapshot)
		bad := slices.ContainsFunc(found, func(f ploop.Finding) bool { return f.Level == ploop.Error })
		err := a.print(struct {
			*ploop.Info
			OK       bool            `json:"ok"`
			Findings []ploop.Finding `json:"findings"`
		}{info, !bad, found})
		if err == nil && bad {
			err = fmt.Errorf("image check: %s: the image is damaged, see the findings", args[0])
		}
		return err
	}}
	snapshotFlag(c, &snapshot)
	return c
}

// writing are the flags of a command that writes a new image.
type writing struct {
	format string
	inUse  bool
}

func (w *writing) flags(c *cobra.Command) {
	c.Flags().StringVar(&w.format, "format", convert.Raw, "format of the new image: "+strings.Join(convert.Formats, " or "))
	c.Flags().BoolVar(&w.inUse, "in-use", false, "also read an image that is marked as in use, if it is written no more")
}

func (a imageCommands) imageConvert() *cobra.Command {
	var snapshot string
	var w writing
	c := &cobra.Command{Use: "convert IMAGE OUT", Short: "Write the disk of a ploop image, with all its layers, to a new file", Args: between(2, 2), RunE: func(c *cobra.Command, args []string) error {
		img, info, err := ploop.Open(args[0], snapshot)
		if err != nil {
			return err
		}
		return a.convert(c.Context(), img, info, w, args[1])
	}}
	snapshotFlag(c, &snapshot)
	w.flags(c)
	return c
}

func (a imageCommands) imageMerge() *cobra.Command {
	var plain bool
	var w writing
	c := &cobra.Command{Use: "merge BASE DELTA… OUT", Short: "Write the disk of layers that are named one by one, the lowest first, to a new file", Args: between(3, -1), RunE: func(c *cobra.Command, args []string) error {
		last := len(args) - 1
		img, info, err := ploop.OpenChain(args[:last], plain)
		if err != nil {
			return err
		}
		return a.convert(c.Context(), img, info, w, args[last])
	}}
	c.Flags().BoolVar(&plain, "plain-base", false, "the lowest layer is a raw image")
	w.flags(c)
	return c
}

func (a imageCommands) convert(ctx context.Context, img *ploop.Image, info *ploop.Info, w writing, path string) error {
	defer img.Close()
	if !slices.Contains(convert.Formats, w.format) {
		return usageError(fmt.Sprintf("--format %s: choose one of %s", w.format, strings.Join(convert.Formats, ", ")))
	}
	if info.InUse && !w.inUse {
		return fmt.Errorf("image: %s: the image is in use, or was not closed: unmount it first, or pass --in-use for an image that nobody writes", info.Path)
	}
	s, err := convert.Convert(ctx, img, w.format, path)
	if err != nil {
		return err
	}
	return a.print(s)
}

func (a imageCommands) imageDigest() *cobra.Command {
	return &cobra.Command{Use: "digest PATH…", Short: "Compute a digest of images or block devices", Args: between(1, -1), RunE: func(c *cobra.Command, args []string) error {
		for _, p := range args {
			src, err := image.OpenSource(p)
			if err != nil {
				return err
			}
			d, err := image.Digest(c.Context(), src, src.Size(), record.DefaultCluster)
			src.Close()
			if err != nil {
				return err
			}
			if err := a.print(struct {
				Path string `json:"path"`
				image.Root
			}{p, d.Root()}); err != nil {
				return err
			}
		}
		return nil
	}}
}

func (a imageCommands) imageSync() *cobra.Command {
	var dontneed bool
	c := &cobra.Command{Use: "sync PATH…", Short: "Write the data of files to the disk (fdatasync)", Args: between(1, -1), RunE: func(_ *cobra.Command, args []string) error {
		for _, p := range args {
			if err := image.Datasync(p, dontneed); err != nil {
				return err
			}
		}
		return nil
	}}
	c.Flags().BoolVar(&dontneed, "dontneed", false, "then drop their pages from the page cache")
	return c
}

func (a imageCommands) imageFill() *cobra.Command {
	var f treedisk.Filling
	var cgroup, stop, memory string
	var limit int
	var freeze time.Duration
	c := &cobra.Command{Use: "fill IMAGE FOLDER", Short: "Copy the files of a folder in use to a new file system, and stop its workload for the last of them", RunE: func(c *cobra.Command, args []string) error {
		f.Image, f.Folder, f.Cgroup, f.Stop = args[0], args[1], hooks.Cgroup(cgroup), hook(stop, limit)
		if memory != "" {
			m, err := readMemory(memory)
			if err != nil {
				return err
			}
			f.Leave = func(ctx context.Context, pass, last func(context.Context) error) (time.Time, error) {
				return m.Leave(ctx, record.RunDir, freeze, pass, last)
			}
		}
		done, err := treedisk.Fill(c.Context(), f)
		if err != nil {
			return err
		}
		return a.print(done)
	}}
	c.Args = func(c *cobra.Command, args []string) error {
		if limit <= 0 {
			return usageError(fmt.Sprintf("%s: --stop-limit %d: a number of seconds above 0", words(c), limit))
		}
		if memory != "" && (stop != "" || cgroup != "") {
			return usageError(fmt.Sprintf("%s: --memory has a cgroup, and ends the workload: leave --stop and --cgroup out", words(c)))
		}
		return between(2, 2)(c, args)
	}
	c.Long = c.Short + `.

IMAGE is a raw image with an empty file system that is mounted nowhere. The folder is copied while it is written, until little is left. Then --stop is run, the rest
is copied, the folder gets its other name, and it is proven that nothing was touched since. After an error the folder has its name.

With --memory the workload is dumped instead of stopped, as FILE says (see pcopy snapshot take; "ends" is true): the rest is copied while it stands still, and after any error it
runs on. Else it has ended, and is restored from that dump.`
	c.Flags().StringVar(&f.Type, "type", "ext4", "the file system in the image")
	c.Flags().BoolVar(&f.Again, "again", false, "the image has files already: copy those that differ, and remove those that the folder does not have")
	c.Flags().StringVar(&cgroup, "cgroup", "", "the workload's cgroup, in which nothing may run after the stop")
	c.Flags().StringVar(&stop, "stop", "", "a shell command that stops the workload; none: nothing runs")
	c.Flags().IntVar(&limit, "stop-limit", 60, "seconds that it may take")
	c.Flags().StringVar(&memory, "memory", "", "dump the workload as this FILE says, instead of --stop")
	c.Flags().DurationVar(&freeze, "freeze-limit", 10*time.Second, "with --memory: how long it may stand still before its dump and for the last of its files")
	c.Flags().StringVar(&f.Away, "away", "", "the folder's name afterwards, on the same file system")
	return c
}
