// Package codec decides how a run of clusters travels.
//
// A run is cut into pieces of one kind each: zeroes, which need no payload; data,
// which is packed or sent as it is; and clusters that were sent before, of which only
// the changed sectors go (Delta). Neighbouring clusters of one kind are one piece. A
// piece that packing does not make a good deal smaller is sent unpacked: packing
// never loses.
//
// How a piece was packed is its Packing, which travels in its frame's flags. Nothing
// above this package looks inside a payload, and nothing in it trusts one. The output
// of Unpack has exactly the requested length, or it is an error, and takes no more
// memory than that.
package codec

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Piece is a part of a run.
type Piece struct {
	Off     int // from the start of the run
	Len     int
	Zero    bool    // all zeroes: no payload
	Packing Packing // how Payload was made
	Payload []byte
	Before  int // how long Payload was before it was packed
}

// Encoder cuts runs into pieces; the zero value packs nothing. Any number of
// goroutines may use it at once.
type Encoder struct {
	packing Packing
	auto    *chooser // chooses instead
}

// NewEncoder makes an encoder that packs in the way that has this name, or, by
// Auto, in the one that is best at the time.
func NewEncoder(compression string) (*Encoder, error) {
	if err := CheckCompression(compression); err != nil {
		return nil, err
	}
	if compression == Auto {
		return &Encoder{auto: newChooser(idleTime)}, nil
	}
	return &Encoder{packing: Packing(slices.Index(packingNames[:], compression))}, nil
}

// CheckCompression says why a compression cannot be chosen, or nil if it can.
func CheckCompression(name string) error {
	if name != Auto && !slices.Contains(packingNames[:], name) {
		return fmt.Errorf("codec: there is no compression %q: choose one of %s, %s", name, Auto, strings.Join(packingNames[:], ", "))
	}
	return nil
}

// Packing is the way that is in use now.
func (e *Encoder) Packing() Packing {
	if e.auto != nil {
		return Packing(e.auto.now.Load())
	}
	return e.packing
}

// Packs reports whether Encode may have use for room.
func (e *Encoder) Packs() bool { return e.auto != nil || e.packing != Plain }

// Chooses reports whether it uses the figures of Wrote.
func (e *Encoder) Chooses() bool { return e.auto != nil }

// Sent is the input of Auto: a payload that is on the link.
type Sent struct {
	Before, After int           // its bytes before and after it was packed
	Took          time.Duration // that sending it took
	Held          time.Duration // of that, the other side's window was in the way
	Waited        time.Duration // the time that the sender had waited for it
	Behind        bool          // earlier data had not been sent yet
	Lines         int           // how many connections send side by side
}

// Wrote tells of a payload that has been sent.
func (e *Encoder) Wrote(s Sent) {
	if e.auto != nil {
		e.auto.wrote(s)
	}
}

// kind is the form in which a cluster is sent.
type kind uint8

const (
	zero kind = iota
	data
	delta
)

// Encode cuts a run that begins on a cluster boundary into pieces, in order. Together
// they are the whole run, which stands at off in its volume. Payloads are parts of
// the run or lie in room, which is used if it has at least Room(len(run)) bytes.
// Where h is not nil, clusters that were sent before are sent as their changed
// sectors.
func (e *Encoder) Encode(run []byte, off int64, cluster int, room []byte, h *History) []Piece {
	if h != nil && len(room) < Room(len(run)) || e.auto != nil && !e.auto.worthDelta() {
		h.skip(off, len(run))
		h = nil
	}
	var bitmap []byte
	if h != nil {
		bitmap = make([]byte, bitmapLen(len(run)))
	}
	var pieces []Piece
	var last kind
	for at := 0; at < len(run); at += cluster {
		c := run[at:min(at+cluster, len(run))]
		k := data
		switch {
		case IsZero(c):
			k = zero
			if h != nil {
				h.forget(off + int64(at))
			}
		case h != nil:
			changed, known := h.changes(off+int64(at), c, bitmap[at/sector/8:])
			if known && float64(changed) <= worthDelta*float64(len(c)) {
				k = delta
			}
		}
		if n := len(pieces); n > 0 && last == k {
			pieces[n-1].Len += len(c)
		} else {
			pieces = append(pieces, Piece{Off: at, Len: len(c), Zero: k == zero})
			if k == delta {
				pieces[n].Packing = Delta
			}
		}
		last = k
	}
	e.sample(run, pieces, room)
	for i := range pieces {
		p := &pieces[i]
		if p.Zero {
			continue
		}
		src := run[p.Off : p.Off+p.Len]
		if p.Packing == Delta {
			from := p.Off / sector / 8
			src = appendDelta(room[:0], src, bitmap[from:from+bitmapLen(p.Len)])
			p.Before = len(src)
			p.Payload, p.Packing = e.pack(room[len(src):], src, packDelta)
			if p.Packing != Plain|Delta { // it lies behind its input
				p.Payload = room[:copy(room, p.Payload)]
			}
			room = room[len(p.Payload):]
			continue
		}
		p.Before = len(src)
		p.Payload, p.Packing = e.pack(room, src, Pack)
		if p.Packing != Plain {
			room = room[len(p.Payload):]
		}
	}
	return pieces
}

// pack packs by the method in use, and tells the chooser the result.
func (e *Encoder) pack(room, src []byte, how func(room, src []byte, p Packing) ([]byte, Packing)) ([]byte, Packing) {
	p := e.Packing()
	if e.auto == nil || p == Plain {
		return how(room, src, p)
	}
	began := time.Now()
	out, got := how(room, src, p)
	e.auto.packed(p, len(src), len(out), time.Since(began))
	return out, got
}

// sample packs a part of the first piece of data by all methods that are not in use,
// if it is time to, so that the chooser knows their ratio and speed.
func (e *Encoder) sample(run []byte, pieces []Piece, room []byte) {
	if e.auto == nil || !e.auto.wantsSample() {
		return
	}
	for _, piece := range pieces {
		if piece.Zero || piece.Packing != Plain {
			continue
		}
		src := run[piece.Off : piece.Off+min(piece.Len, sampleLen)]
		for p := range packingNames {
			if p := Packing(p); p != Plain && p != e.Packing() {
				began := time.Now()
				out, _ := Pack(room, src, p)
				e.auto.packed(p, len(src), len(out), time.Since(began))
			}
		}
		return
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
