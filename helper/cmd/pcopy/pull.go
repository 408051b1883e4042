package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/livefleet/handover/helper/internal/snapshot"
)

func (a snapshotCommands) snapshotPull() *cobra.Command {
	c := &cobra.Command{Use: "pull FILE", Short: "Take a snapshot of disks that QEMU serves as they were at one moment", Args: between(1, 1), RunE: func(c *cobra.Command, args []string) error {
		r, err := readRequest[snapshot.Pull](c.InOrStdin(), "pull", args[0])
		if err != nil {
			return err
		}
		taken, err := snapshot.PullInto(c.Context(), r)
		if err != nil {
			return err
		}
		return a.print(taken)
	}}
	c.Long = c.Short + `, such as those of a backup that libvirt has begun.

FILE has the request as JSON, "-" is standard input: {"store": "/backup/web", "name": "", "taken": "2026-11-26T02:30:00Z", "frozen_ms": 12.1,
"disks": [{"name": "vda", "socket": "/run/web.nbd", "export": "vda", "bitmap": "backup-vda", "since": "one", "checkpoint": "two", "why": ""}],
"files": [{"name": "domain.xml", "path": "/run/web.xml"}]}. The bitmap has all that was written since the checkpoint "since". It is used if the snapshot
before has that checkpoint, and else everything is read and compared with digests.`
	return c
}

// readRequest reads the request of a pull or a push.
func readRequest[T snapshot.Pull | snapshot.Push](stdin io.Reader, verb, path string) (r T, _ error) {
	from := stdin
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return r, err
		}
		defer f.Close()
		from = f
	}
	d := json.NewDecoder(from)
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		return r, usageError(fmt.Sprintf("snapshot %s: %s: %v: see pcopy snapshot %s --help for its form", verb, path, err, verb))
	}
	if storeOf(r) == "" {
		return r, usageError(fmt.Sprintf("snapshot %s: %s names no store", verb, path))
	}
	return r, nil
}

func storeOf(request any) string {
	switch r := request.(type) {
	case snapshot.Pull:
		return r.Store
	case snapshot.Push:
		return r.Store
	}
	return ""
}
