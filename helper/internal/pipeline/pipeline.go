// Package pipeline moves clusters: read ∥ encode ∥ send on one side, and
// receive ∥ decode ∥ write on the other. The slowest stage sets the time, not
// the sum of all.
//
// # Sending
//
// A Sender walks one map at a time, in ascending order. Several runs are read at
// once, the goroutine that has read one encodes it, and they are sent in the order of
// the walk. Memory is bounded: a run is read only when one of a fixed number of slots
// is free. Every cluster of the map is sent, as data or as zeroes; only with
// SkipZero, which is right for the first pass onto an empty destination and for
// nothing else, are zero clusters left out.
//
// # Receiving
//
// A Receiver takes frames in the order in which they come and has several of them
// unpacked and written at a time. One that touches the range of another that is not
// yet done waits for it, so of two frames for the same byte the later one stays. The
// memory of payloads comes out of one budget. Before a Control frame is handed over,
// every frame that came before it has been written: given to the kernel, not yet
// synced.
package pipeline

// The defaults of a Sender and a Receiver.
const (
	DefaultReaders  = 4
	DefaultSlots    = 8
	DefaultRunBytes = 1 << 20
	DefaultWriters  = 4
	DefaultMemory   = 16 << 20
)
