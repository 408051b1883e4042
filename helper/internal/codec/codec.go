// Package codec decides how a run of clusters travels.
//
// A run is cut into pieces of one kind each: zeroes, which need no payload, and
// data, which is packed or sent as it is. Neighbouring clusters of one kind are
// one piece. What packing does not make a good deal smaller goes as it is:
// packing never loses.
//
// How a piece was packed is its Packing, which travels in its frame's flags.
// Nothing above this package looks inside a payload, and nothing in it believes
// one: what comes out of Unpack has exactly the length that was asked for, or it
// is an error, and no more memory is taken than that.
package codec

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// Piece is a part of a run.
type Piece struct {
	Off     int // from the start of the run
	Len     int
	Zero    bool    // all zeroes: no payload
	Packing Packing // how Payload was made
	Payload []byte
}

// Encoder cuts runs into pieces; the zero value packs nothing. Any number of goroutines may use it at once.
type Encoder struct {
	packing Packing
}

// NewEncoder makes an encoder that packs in the way that has this name.
func NewEncoder(compression string) (*Encoder, error) {
	if err := CheckCompression(compression); err != nil {
		return nil, err
	}
	return &Encoder{packing: Packing(slices.Index(packings, compression))}, nil
}

// CheckCompression says why a compression cannot be chosen, or nil if it can.
func CheckCompression(name string) error {
	if !slices.Contains(packings, name) {
		return fmt.Errorf("codec: there is no compression %q: choose one of %s", name, strings.Join(packings, ", "))
	}
	return nil
}

// Packs reports whether Encode has use for room.
func (e *Encoder) Packs() bool { return e.packing != Plain }

// Encode cuts a run that begins on a cluster boundary into pieces, in order.
// Together they are the whole run. Payloads are parts of the run or lie in room,
// which is used if it has at least Room(len(run)) bytes.
func (e *Encoder) Encode(run []byte, cluster int, room []byte) []Piece {
	var pieces []Piece
	for off := 0; off < len(run); off += cluster {
		c := run[off:min(off+cluster, len(run))]
		zero := IsZero(c)
		if n := len(pieces); n > 0 && pieces[n-1].Zero == zero {
			pieces[n-1].Len += len(c)
		} else {
			pieces = append(pieces, Piece{Off: off, Len: len(c), Zero: zero})
		}
	}
	for i := range pieces {
		p := &pieces[i]
		if p.Zero {
			continue
		}
		p.Payload, p.Packing = Pack(room, run[p.Off:p.Off+p.Len], e.packing)
		if p.Packing != Plain {
			room = room[len(p.Payload):]
		}
	}
	return pieces
}

// IsZero reports whether b holds nothing but zeroes.
//
// If the first word is zero and every byte equals the one a word before it, all
// are zero. bytes.Equal makes that comparison with the widest registers the
// processor has, and stops at the first block that differs, so data that is not
// zero costs next to nothing.
func IsZero(b []byte) bool {
	const word = 8
	n := min(len(b), word)
	for _, v := range b[:n] {
		if v != 0 {
			return false
		}
	}
	return bytes.Equal(b[n:], b[:len(b)-n])
}
