package recovery

import (
	"fmt"

	"github.com/livefleet/handover/helper/internal/floating"
	"github.com/livefleet/handover/helper/internal/session/engine"
)

// BringAddresses is for a container that was let through to its start (MayStart): the
// addresses of its published ports that came here with it are on this host again after a
// boot. One that a session restores gets them when it is told to run, and not before.
func BringAddresses(root, runDir string, c *OCIState) error {
	all, err := engine.BookBeside(root).Of(c.Bundle)
	if err != nil || len(all) == 0 {
		return err
	}
	if spec, err := Restoring(root, runDir, c.Bundle); err != nil || spec != nil {
		return err
	}
	if err := floating.Bring(all); err != nil {
		return fmt.Errorf("session: the container does not start: the addresses of its published ports: %w", err)
	}
	engine.Announce(all)
	return nil
}
