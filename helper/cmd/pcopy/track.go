package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/livefleet/handover/helper/internal/blockmap"
	"github.com/livefleet/handover/helper/internal/changes"
)

type trackCommands struct{ *app }

func (a trackCommands) track() *cobra.Command {
	g := group("track", "Mark the clusters of a block device that are written between two backups",
		a.trackStart(), a.trackList(), a.trackSwap(), a.trackExport(), a.trackStop(), a.trackBitmap())
	g.Example = `  pcopy track start /dev/vg0/web1 --name web1
  pcopy track swap web1 --bitmap /backup/web1.bitmap
  pcopy track bitmap /backup/web1.bitmap --extents`
	return g
}

// tracked is a command on the trackers of this host. Its answer is printed, unless it is nil.
func tracked(c *cobra.Command, show func(any) error, run func(s *changes.Store, args []string) (any, error)) *cobra.Command {
	var root string
	c.Flags().StringVar(&root, "root", changes.Root, "the folder that holds the trackers' records")
	c.RunE = func(_ *cobra.Command, args []string) error {
		s, err := changes.Open(root, "")
		if err != nil {
			return err
		}
		answer, err := run(s, args)
		if err = errors.Join(err, s.Close()); err != nil || answer == nil {
			return err
		}
		return show(answer)
	}
	return c
}

func (a trackCommands) trackStart() *cobra.Command {
	var name string
	var cluster int
	c := &cobra.Command{Use: "start DEVICE", Short: "Mark from now on every cluster of a device that is written", Args: func(c *cobra.Command, args []string) error {
		if err := blockmap.CheckCluster(cluster); err != nil {
			return usageError(fmt.Sprintf("track start: --cluster: %v", err))
		}
		return between(1, 1)(c, args)
	}}
	c.Flags().StringVar(&name, "name", "", "the tracker's name; the device's own if empty")
	c.Flags().IntVar(&cluster, "cluster", changes.DefaultCluster, "bytes of a cluster, a power of two")
	return tracked(c, a.print, func(s *changes.Store, args []string) (any, error) { return s.Start(args[0], name, cluster) })
}

func (a trackCommands) trackList() *cobra.Command {
	c := &cobra.Command{Use: "list", Short: "List the tracked devices, and how much was written", Args: between(0, 0)}
	return tracked(c, a.print, func(s *changes.Store, _ []string) (any, error) { return s.List() })
}

// bitmapFlag is the file that a command writes, which has to be named.
func bitmapFlag(c *cobra.Command, file *string) {
	c.Flags().StringVar(file, "bitmap", "", "the file that the marks are written to")
	c.Args = func(c *cobra.Command, args []string) error {
		if *file == "" {
			return usageError(words(c) + ": --bitmap is missing: the marks have to be kept somewhere")
		}
		return between(1, 1)(c, args)
	}
}

func (a trackCommands) trackSwap() *cobra.Command {
	var file string
	var again bool
	c := &cobra.Command{Use: "swap NAME --bitmap FILE", Short: "Take the marks since the last swap, and begin with none"}
	bitmapFlag(c, &file)
	c.Flags().BoolVar(&again, "again", false, "with the marks of the last swap, whose backup failed")
	return tracked(c, a.print, func(s *changes.Store, args []string) (any, error) { return s.Swap(args[0], file, again) })
}

func (a trackCommands) trackExport() *cobra.Command {
	var file string
	c := &cobra.Command{Use: "export NAME --bitmap FILE", Short: "Copy the marks, and leave them"}
	bitmapFlag(c, &file)
	return tracked(c, a.print, func(s *changes.Store, args []string) (any, error) { return s.Export(args[0], file) })
}

func (a trackCommands) trackStop() *cobra.Command {
	c := &cobra.Command{Use: "stop NAME", Short: "Forget a device and its marks", Args: between(1, 1)}
	return tracked(c, a.print, func(s *changes.Store, args []string) (any, error) { return nil, s.Stop(args[0]) })
}

func (a trackCommands) trackBitmap() *cobra.Command {
	var extents bool
	c := &cobra.Command{Use: "bitmap FILE", Short: "Tell the header of a bitmap, or the marked extents", Args: between(1, 1), RunE: func(_ *cobra.Command, args []string) error {
		b, err := changes.ReadBitmap(args[0])
		if err != nil {
			return err
		}
		if !extents {
			return a.print(b.Header)
		}
		for off, n := range b.Extents() {
			if _, err := fmt.Fprintln(a.out, off, n); err != nil {
				return err
			}
		}
		return nil
	}}
	c.Flags().BoolVar(&extents, "extents", false, "print offset and length of each marked extent, in bytes, one a line")
	return c
}
