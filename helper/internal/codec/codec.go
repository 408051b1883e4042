// Package codec decides how a run of clusters travels.
//
// A run is cut into pieces of one kind each: zeroes, which need no payload, and
// data, which is sent as it is. Neighbouring clusters of one kind are one piece.
// The kinds are what an encoder can say about a piece; a new way to encode adds
// a kind and its decoder here, and nothing above this package looks inside a
// payload.
package codec

import (
	"bytes"
	"iter"
)

// Kind is how a piece travels.
type Kind uint8

// The kinds of pieces.
const (
	Raw  Kind = iota // as it is
	Zero             // all zeroes: only its place and length
)

// Piece is a part of a run.
type Piece struct {
	Kind Kind
	Off  int // from the start of the run
	Len  int
}

// Encode cuts a run that begins on a cluster boundary into pieces, in order.
// Together they are the whole run.
func Encode(run []byte, cluster int) iter.Seq[Piece] {
	return func(yield func(Piece) bool) {
		var p Piece
		for off := 0; off < len(run); off += cluster {
			c := run[off:min(off+cluster, len(run))]
			kind := Raw
			if IsZero(c) {
				kind = Zero
			}
			if p.Len > 0 && p.Kind != kind {
				if !yield(p) {
					return
				}
				p = Piece{Off: off}
			}
			p.Kind = kind
			p.Len += len(c)
		}
		if p.Len > 0 {
			yield(p)
		}
	}
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
