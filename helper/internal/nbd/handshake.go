package nbd

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"
)

const (
	initMagic   = 0x4e42444d41474943 // NBDMAGIC
	optionMagic = 0x49484156454f5054 // IHAVEOPT
	answerMagic = 0x3e889045565a9

	fixedNewstyle = 1 << 0
	noZeroes      = 1 << 1

	optGo         = 7
	optStructured = 8
	optSetContext = 10

	ansAck     = 1
	ansInfo    = 3
	ansContext = 4
	ansError   = 1 << 31

	infoExport = 0
)

// greet agrees on the handshake.
func (c *Client) greet() error {
	b := make([]byte, 18)
	if err := c.read(b); err != nil {
		return err
	}
	if binary.BigEndian.Uint64(b) != initMagic || binary.BigEndian.Uint64(b[8:]) != optionMagic {
		return errors.New("no NBD server with the newstyle handshake is there")
	}
	if flags := binary.BigEndian.Uint16(b[16:]); flags&fixedNewstyle == 0 {
		return errors.New("the server has no fixed newstyle handshake")
	}
	return c.write(binary.BigEndian.AppendUint32(nil, fixedNewstyle|noZeroes))
}

// negotiate chooses the export and its contexts.
func (c *Client) negotiate(export string, contexts []string) error {
	if err := c.option(optStructured, nil, nil); err != nil {
		return fmt.Errorf("structured replies: %w", err)
	}
	if err := c.choose(export, contexts); err != nil {
		return err
	}
	words := appendText(nil, export)
	words = binary.BigEndian.AppendUint16(words, 0)
	known := false
	err := c.option(optGo, words, func(kind uint32, b []byte) error {
		if kind == ansInfo && len(b) == 12 && binary.BigEndian.Uint16(b) == infoExport {
			c.size, known = int64(binary.BigEndian.Uint64(b[2:])), true
			c.flags = binary.BigEndian.Uint16(b[10:])
		}
		return nil
	})
	if err == nil && (!known || c.size < 1) {
		err = errors.New("the server does not tell the size of the disk")
	}
	return err
}

// choose asks for the contexts. None are needed to write.
func (c *Client) choose(export string, contexts []string) error {
	if len(contexts) == 0 {
		return nil
	}
	words := appendText(nil, export)
	words = binary.BigEndian.AppendUint32(words, uint32(len(contexts)))
	for _, name := range contexts {
		words = appendText(words, name)
	}
	err := c.option(optSetContext, words, func(kind uint32, b []byte) error {
		if kind != ansContext || len(b) < 4 || !slices.Contains(contexts, string(b[4:])) {
			return errors.New("the server answers with a context that was not asked for")
		}
		c.contexts[binary.BigEndian.Uint32(b)] = string(b[4:])
		return nil
	})
	if err != nil {
		return err
	}
	for _, name := range contexts {
		found := false
		for _, known := range c.contexts {
			found = found || known == name
		}
		if !found {
			return fmt.Errorf("it has no %s", name)
		}
	}
	return nil
}

func appendText(b []byte, text string) []byte {
	return append(binary.BigEndian.AppendUint32(b, uint32(len(text))), text...)
}

// option asks for one, and takes the answers up to the acknowledgement.
func (c *Client) option(number uint32, words []byte, take func(kind uint32, b []byte) error) error {
	b := binary.BigEndian.AppendUint64(nil, optionMagic)
	b = binary.BigEndian.AppendUint32(b, number)
	b = binary.BigEndian.AppendUint32(b, uint32(len(words)))
	if err := c.write(append(b, words...)); err != nil {
		return err
	}
	for {
		head := make([]byte, 20)
		if err := c.read(head); err != nil {
			return err
		}
		kind, length := binary.BigEndian.Uint32(head[12:]), binary.BigEndian.Uint32(head[16:])
		if binary.BigEndian.Uint64(head) != answerMagic || binary.BigEndian.Uint32(head[8:]) != number || length > 64<<10 {
			return errors.New("the answer to an option is none of NBD")
		}
		b := make([]byte, length)
		if err := c.read(b); err != nil {
			return err
		}
		switch {
		case kind&ansError != 0:
			return fmt.Errorf("the server refused the option %d: %s", number, b)
		case kind == ansAck:
			return nil
		case take == nil:
			return fmt.Errorf("the server answers the option %d with %d", number, kind)
		}
		if err := take(kind, b); err != nil {
			return err
		}
	}
}

// patient gives the next step its time. An interrupt stands.
func (c *Client) patient() error {
	if c.interrupted.Load() {
		return errInterrupted
	}
	return c.conn.SetDeadline(time.Now().Add(max(Patience, c.limit)))
}
