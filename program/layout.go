package program

// The layout of maps in shared memory. All numbers are little-endian; offsets are in bytes.
//
// A state is Cells 64-bit cells, to which hits add atomically.
//
// A counter or histogram is shards, ShardStride apart, each of Cells 64-bit cells. A hit
// adds one to one cell atomically.
//
//	counter     cell 0
//	log2        cell n: values whose highest set bit is bit n-1; cell 0: the value 0
//	linear      cell 0: below Min; cell n+1: bucket n; the last cell: above
//
// A ring is a header of RingData bytes and Size bytes of data. Positions count bytes and
// only grow; the byte at position p lies at RingData + p mod Size.
//
//	RingHead    position up to which records are reserved; writers advance it
//	RingTail    position up to which records are read; the reader advances it
//	RingClock…  how to make a time of what the helper Time returns
//
// A record is a header of RecordHeader bytes and the payload; its length in bytes is rounded
// up to RecordAlign. It never wraps: where it would, a pad fills the rest of the ring.
//
//	+0  u32     length with header, and a state in its low bits
//	+4  u32     Program.ID
//	+8  payload
//
// A writer of a record of length n
//
//  1. reads head, then tail. If head+n, with the pad that may be needed, is more than
//     tail+Size (a signed comparison: head may be old, then 2 fails), the ring is full: it
//     counts the loss and is done.
//  2. replaces head by head+n (and pad) with a compare-and-swap, and begins again if
//     that fails.
//  3. writes the pad's header, PadState|length and 0, if there is one,
//  4. writes its own header, with StateBusy,
//  5. writes the payload,
//  6. replaces the state by StateDone. Stores are seen in the order of the program (x86's, or
//     release stores).
//
// The reader goes from tail on while it finds records that are done. It fills the
// records that it has read with zeros before it advances tail. So a header of 0 belongs
// to a reserved record whose writer is between 2 and 4.
const (
	LineSize = 64 // of the cache; what different writers use is that far apart

	Log2Cells = 65

	RingHead       = 0x000 // u64
	RingTail       = 0x040 // u64
	RingClockTSC   = 0x080 // u64: Time's result at some moment
	RingClockNanos = 0x088 // i64: that moment, in nanoseconds since 1970
	RingClockMult  = 0x090 // u64: nanoseconds per tick, times 1<<ClockShift
	RingData       = 0x100

	RecordHeader = 8 // bytes
	RecordAlign  = 8

	StateBusy = 1 // in the low bits of a record's length
	StateDone = 2
	StatePad  = 4 // with StateDone: not a record
	stateMask = RecordAlign - 1

	// ClockShift is the binary digits behind the point of RingClockMult.
	ClockShift = 32
)

// RecordLen is the bytes that a record with a payload of size bytes occupies in a ring.
func RecordLen(size int) int { return (RecordHeader + size + RecordAlign - 1) &^ (RecordAlign - 1) }
