package wire

import (
	"io"
	"time"
)

// LastWord sends one frame on a connection that is about to be given up, also after
// Interrupt, and sees to it that it arrives: a connection that is closed while bytes
// of the other side are still unread is reset, and a reset discards the bytes that
// the other side has not read yet. So it says that nothing more will come. Then it
// reads and drops incoming bytes until the other side closes or the patience ends.
// The connection is still to be closed.
func (c *Conn) LastWord(f *Frame, patience time.Duration) error {
	if d, ok := c.rw.(interface{ SetDeadline(time.Time) error }); ok {
		if err := d.SetDeadline(time.Now().Add(patience)); err != nil {
			return err
		}
	}
	if err := c.Write(f); err != nil {
		return err
	}
	if err := c.Flush(); err != nil {
		return err
	}
	half, ok := c.rw.(interface{ CloseWrite() error })
	if !ok {
		return nil
	}
	if err := half.CloseWrite(); err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, c.rw) // how it ends says nothing: the word is out
	return nil
}
