package elsewhere

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/livefleet/handover/helper/internal/store"
	"github.com/livefleet/handover/helper/internal/wire"
)

const (
	// silence is how long a side may say nothing. beat is when this side says that it is
	// there, while it reads a disk of which nothing has to travel.
	silence = 2 * time.Minute
	beat    = 20 * time.Second
	piece   = 1 << 20
	mostOf  = 1 << 30 // bytes in one answer: an index, or the sums of a disk of 4 TiB
)

// order is a wish of this side. Only the members of its kind are set.
type order struct {
	Do          string    `json:"do"`
	Dir         string    `json:"dir,omitempty"`
	Create      bool      `json:"create,omitempty"`
	Name        string    `json:"name,omitempty"`
	Description string    `json:"description,omitempty"`
	Point       string    `json:"point,omitempty"`
	Points      []string  `json:"points,omitempty"`
	Known       []string  `json:"known,omitempty"`
	Size        int64     `json:"size,omitempty"`
	Full        bool      `json:"full,omitempty"`
	Stream      int       `json:"stream,omitempty"`
	Taken       time.Time `json:"taken,omitzero"`
	FrozenMS    float64   `json:"frozen_ms,omitempty"`
	Volumes     []found   `json:"volumes,omitempty"`
}

// found is how the clusters of a volume were found, and how much of it was read.
type found struct {
	How  string      `json:"how"`
	Why  string      `json:"why,omitempty"`
	Mark *store.Mark `json:"mark,omitempty"`
	Read int64       `json:"read"`
}

// answer is the other side's. Bytes follow it in pieces.
type answer struct {
	Error string `json:"error,omitempty"`
	Full  bool   `json:"full,omitempty"`
	Bytes int64  `json:"bytes,omitempty"`
}

// say sends an order or an answer.
func say(c *wire.Conn, what any) error {
	b, err := json.Marshal(what)
	if err != nil {
		return err
	}
	return c.Write(&wire.Frame{Type: wire.Control, Payload: b})
}

// send sends n bytes in pieces.
func send(c *wire.Conn, n int64, r io.Reader) error {
	buf := make([]byte, min(n, piece))
	for n > 0 {
		part := buf[:min(n, int64(len(buf)))]
		if _, err := io.ReadFull(r, part); err != nil {
			return err
		}
		if err := c.Write(&wire.Frame{Type: wire.Chunk, Payload: part}); err != nil {
			return err
		}
		n -= int64(len(part))
	}
	return c.Flush()
}

// stream reads pieces as they come, up to their end.
type stream struct {
	conn  *wire.Conn
	left  int64
	frame wire.Frame
	part  []byte
}

func (s *stream) Read(p []byte) (int, error) {
	for len(s.part) == 0 {
		if s.left == 0 {
			return 0, io.EOF
		}
		if err := s.conn.Read(&s.frame); err != nil {
			return 0, err
		}
		if s.frame.Type != wire.Chunk || s.frame.Length > s.left {
			return 0, fmt.Errorf("a frame of type %v came where a piece was due", s.frame.Type)
		}
		s.part, s.left = s.frame.Payload, s.left-s.frame.Length
	}
	n := copy(p, s.part)
	s.part = s.part[n:]
	return n, nil
}

// whole reads all n bytes.
func whole(c *wire.Conn, n int64) ([]byte, error) {
	if n < 0 || n > mostOf {
		return nil, fmt.Errorf("%d bytes are said to follow, and at most %d can", n, int64(mostOf))
	}
	var b bytes.Buffer
	_, err := b.ReadFrom(&stream{conn: c, left: n})
	return b.Bytes(), err
}

var errUnknown = errors.New("the other pcopy asks for something that this one does not know: apply the role livefleet.handover.pcopy to both hosts")
