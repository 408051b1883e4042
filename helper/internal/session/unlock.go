package session

import (
	"context"
	"errors"
	"os"

	"github.com/livefleet/handover/helper/internal/tree"
)

// discardWorkload has the engine remove what it prepared for the workload. It fails at
// a file that is immutable or append only, and such files may have come in the trees.
func discardWorkload(ctx context.Context, spec *Spec) error {
	if !spec.Hooks.Discard.Given() {
		return nil
	}
	for _, t := range spec.Trees {
		if err := tree.Unlock(t.Path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return spec.Hooks.Discard.Run(ctx)
}
