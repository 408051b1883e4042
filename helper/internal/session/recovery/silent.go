package recovery

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/livefleet/handover/helper/internal/hooks"
	"github.com/livefleet/handover/helper/internal/network"
	"github.com/livefleet/handover/helper/internal/session/engine"
)

// SilentMark is among the images of a container that comes back where it was, with its connections
// and without a session. Its network comes up silent: a packet that finds an address and no
// socket yet would be answered, and end the connection.
const SilentMark = "handover-silent"

// speak is for the time when the sockets are there. CRIU has a lock of its own until it lets the tasks run.
// A session says by itself when its workload may speak, whatever is among the images.
func speak(c Call) error {
	if c.Action != hooks.PostRestore {
		return nil
	}
	if _, err := os.Lstat(filepath.Join(c.ImageDir, SilentMark)); errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return fmt.Errorf("recovery: %w", err)
	}
	namespace := engine.NamespaceOf(c.Root)
	if err := network.Open(namespace); err != nil {
		return err
	}
	_ = network.Announce(namespace) // who is not told asks for the address
	return nil
}
