package main

import (
	"github.com/spf13/cobra"

	"github.com/livefleet/handover/helper/internal/changes"
	"github.com/livefleet/handover/helper/internal/snapshot"
)

func (a snapshotCommands) snapshotNote() *cobra.Command {
	var n snapshot.Noting
	c := &cobra.Command{Use: "note STORE --volume NAME=PATH…", Short: "Note what was written since the current snapshot, when image files are unmounted and still attached", RunE: func(_ *cobra.Command, args []string) error {
		if err := here(args[0]); err != nil {
			return err
		}
		n.Store = args[0]
		noted, err := snapshot.Note(n)
		if err != nil {
			return err
		}
		return a.print(map[string]any{"volumes": noted})
	}}
	c.Args = func(c *cobra.Command, args []string) error {
		if len(n.Volumes) == 0 {
			return usageError("snapshot note: --volume is missing: name each volume, as in --volume data=/srv/data.img")
		}
		return between(1, 1)(c, args)
	}
	c.Long = c.Short + `.

The tracker's marks go with the loop device. With the note "restore --current" compares the clusters that can differ, and not the whole disk. The note counts
until the file is written again, or the host restarted. Without one, and where "why" says that nothing could be noted, the restore compares digests.`
	placesFlag(c, &n.Volumes, "volume", "a volume: its image file")
	c.Flags().StringVar(&n.TrackRoot, "track-root", changes.Root, "the folder that holds the trackers' records")
	return c
}
