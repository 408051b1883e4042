package session

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/livefleet/handover/helper/internal/image"
	"github.com/livefleet/handover/helper/internal/ledger"
	"github.com/livefleet/handover/helper/internal/loop"
	"github.com/livefleet/handover/helper/internal/session/protocol"
	"github.com/livefleet/handover/helper/internal/session/record"
)

// A destination may hold a copy of a volume from an earlier time: the volume came
// from there and was kept, or a move was broken off (Vol.Kept names it). Its content
// is not trusted: it becomes the image, both sides compare digests as after a restart
// of the sender, and the differences are sent. An unfinished session puts it back
// under its name, with all that has arrived, and the next one need not send that
// again. An image that had no copy to begin with becomes one in the same way.

// canStartFrom is the word of a source that compares with such a copy.
const canStartFrom = "kept"

// openTarget makes the image of a volume, or takes the kept copy for it.
func (d *places) openTarget(v record.Vol) (*image.Target, error) {
	if v.Kept == "" {
		return image.CreateTarget(v.Image, v.Size)
	}
	st, err := os.Lstat(v.Kept)
	if errors.Is(err, os.ErrNotExist) {
		return image.CreateTarget(v.Image, v.Size)
	} else if err != nil {
		return nil, fmt.Errorf("session: volume %s: %w", v.Name, err)
	}
	if !st.Mode().IsRegular() {
		return nil, fmt.Errorf("session: volume %s: the kept copy %s is no file: move it away", v.Name, v.Kept)
	}
	if dev, err := loop.DeviceOf(v.Kept); err != nil {
		return nil, err
	} else if dev != "" {
		return nil, fmt.Errorf("session: volume %s: the kept copy %s is in use by %s: unmount and detach it, or move without a kept copy", v.Name, v.Kept, dev)
	}
	if err := record.Rename(v.Kept, v.Image); err != nil {
		return nil, err
	}
	d.kept = true
	// It may have been grown since. The range beyond its end is zeroes, as a hole is.
	if err := os.Truncate(v.Image, v.Size); err != nil {
		return nil, errors.Join(fmt.Errorf("session: volume %s: %w", v.Name, err), record.DiscardImage(v))
	}
	t, err := image.OpenTarget(v.Image, v.Size)
	if err != nil {
		return nil, errors.Join(err, record.DiscardImage(v))
	}
	return t, nil
}

// sendAllDigests tells the source the content here. Data that no frame has brought
// are noted in the ledgers, if there are any for them.
func (d *incoming) sendAllDigests(ctx context.Context, ledgers []*ledger.Ledger) error {
	for i, v := range d.Spec.Volumes {
		var l *ledger.Ledger
		if ledgers != nil {
			l = ledgers[i]
		}
		if err := d.sendDigests(ctx, i, v, l); err != nil {
			return err
		}
	}
	return protocol.Send(d.conn, &protocol.Digests{})
}
