package confine

import (
	"fmt"

	"kernel.org/pub/linux/libs/security/libcap/cap"
)

// Lower gives up, on all threads, every privilege but those that are named. It is for
// processes that start others which need all of root's powers: the bounding set stays,
// and there is no no_new_privs, so that a child has the rights that root's children
// always have. It bounds this process itself, and not its children.
func Lower(keep ...cap.Value) error {
	have := cap.GetProc()
	left := cap.NewSet()
	for _, v := range keep {
		// A container's root may not have all of them, and none can be added.
		if in, err := have.GetFlag(cap.Permitted, v); err != nil || !in {
			continue
		}
		for _, flag := range []cap.Flag{cap.Permitted, cap.Effective} {
			if err := left.SetFlag(flag, true, v); err != nil {
				return fmt.Errorf("confine: %w", err)
			}
		}
	}
	if err := cap.ResetAmbient(); err != nil {
		return fmt.Errorf("confine: the ambient privileges: %w", err)
	}
	if err := left.SetProc(); err != nil {
		return fmt.Errorf("confine: the privileges: %w", err)
	}
	return nil
}
