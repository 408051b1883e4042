package main

import (
	"github.com/spf13/cobra"

	"github.com/livefleet/handover/helper/internal/snapshot"
)

func (a snapshotCommands) snapshotPush() *cobra.Command {
	var targets bool
	c := &cobra.Command{Use: "push FILE", Short: "Take a snapshot of disks that QEMU itself has written as they were at one moment", Args: between(1, 1), RunE: func(c *cobra.Command, args []string) error {
		r, err := readRequest[snapshot.Push](c.InOrStdin(), "push", args[0])
		if err != nil {
			return err
		}
		if targets {
			found, err := snapshot.PushTargets(r)
			if err != nil {
				return err
			}
			return a.print(struct {
				Targets []snapshot.Target `json:"targets"`
			}{found})
		}
		taken, err := snapshot.PushInto(c.Context(), r)
		if err != nil {
			return err
		}
		return a.print(taken)
	}}
	c.Long = c.Short + `, such as by a backup of libvirt's with mode='push'.

It is called twice with the same request. With --targets it makes an empty qcow2 image for each disk in the store's folder, and tells where they are. Then QEMU
writes them (virsh backup-begin --reuse-external). Without it the images become the snapshot.

FILE has the request as JSON, "-" is standard input: {"store": "/backup/web", "name": "", "taken": "2026-11-26T02:30:00Z", "frozen_ms": 12.1,
"disks": [{"name": "vda", "size": 34359738368, "since": "one", "checkpoint": "two", "why": ""}],
"files": [{"name": "domain.xml", "path": "/run/web.xml"}]}. An image has all that was written since the checkpoint "since", which is that of the snapshot
before, or without "since" everything. A target with a "why" needs everything.`
	c.Flags().BoolVar(&targets, "targets", false, "make the images that QEMU is to write, and say where they are")
	return c
}
