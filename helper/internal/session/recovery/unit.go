package recovery

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/livefleet/handover/helper/internal/session/record"
)

// A unit of systemd makes its container anew at each start, so the OCI hook does not
// know that one by its bundle. While a session moves its container, the unit asks here
// before it starts:
//
//	source       as for the container itself; with no session there, nothing has
//	             been handed over, or the unit's files would be gone
//	destination  as for the container itself; with no session there, it was undone

// UnitMayStart is the condition of a unit whose container the session in dir moves: an
// error keeps the unit from starting it.
func UnitMayStart(ctx context.Context, dir, runDir string, role record.Role) error {
	_, err := os.Stat(filepath.Join(dir, record.SpecFile))
	if errors.Is(err, os.ErrNotExist) {
		if role == record.Source {
			return nil
		}
		return fmt.Errorf("session: the container of this unit is the other host's, and no session in %s brings it here: start it there", dir)
	}
	if err != nil {
		return fmt.Errorf("session: %w", err)
	}
	spec, err := record.LoadSpec(dir)
	if err != nil {
		return err
	}
	if spec.Role != role {
		return fmt.Errorf("session: %s is the %s's folder, and this unit asks as that of the %s", dir, spec.Role, role)
	}
	return mayStart(ctx, dir, runDir, spec, false)
}
