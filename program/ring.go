package program

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
)

// reserved is the place of a record in a ring.
type reserved struct {
	words  []uint64 // from the header on
	header uint64   // without a state
}

// reserve is a writer's steps 1 to 4, for a record of n bytes.
func reserve(mem []uint64, size, n int, id uint32) (reserved, bool) {
	for {
		head := atomic.LoadUint64(&mem[RingHead/8])
		tail := atomic.LoadUint64(&mem[RingTail/8])
		off := int(head & uint64(size-1))
		pad := 0
		if off+n > size {
			pad = size - off
		}
		next := head + uint64(pad+n)
		if int64(next-tail) > int64(size) {
			return reserved{}, false
		}
		if !atomic.CompareAndSwapUint64(&mem[RingHead/8], head, next) {
			continue
		}
		if pad > 0 {
			atomic.StoreUint64(&mem[(RingData+off)/8], uint64(pad)|StatePad|StateDone)
			off = 0
		}
		r := reserved{mem[(RingData+off)/8:][:n/8], uint64(id)<<32 | uint64(n)}
		atomic.StoreUint64(&r.words[0], r.header|StateBusy)
		return r, true
	}
}

// commit is steps 5 and 6.
func (r reserved) commit(payload []byte) {
	for i := 0; 8*i < len(payload); i++ {
		r.words[1+i] = uintOf(payload[8*i : min(8*i+8, len(payload))])
	}
	atomic.StoreUint64(&r.words[0], r.header|StateDone)
}

// Record is a hit's record.
type Record struct {
	Program uint32 // Program.ID
	// Payload is what the program has written, rounded up to a multiple of RecordAlign with
	// zeros. It is valid until the function that it was given to returns.
	Payload []byte
}

// ErrRing is matched by the error of a reader: the target has written into the ring what no program
// writes.
var ErrRing = errors.New("the ring of records is damaged")

// RingReader reads a ring, while programs in other processes write. There is one for
// a ring, and it is used by one goroutine at a time.
type RingReader struct {
	short   bool // the last read did not come to the end
	mem     []uint64
	size    uint64
	tail    uint64
	payload []byte
}

// NewRingReader returns a reader of the ring m in mem.
func NewRingReader(m Map, mem []uint64) (*RingReader, error) {
	if err := m.Check(); err != nil {
		return nil, err
	}
	if m.Kind != Ring || len(mem) < m.Len()/8 {
		return nil, fmt.Errorf("%s in %d bytes: want a ring in %d", m.Kind, 8*len(mem), m.Len())
	}
	r := &RingReader{mem: mem, size: uint64(m.Size)}
	r.tail = atomic.LoadUint64(&mem[RingTail/8])
	return r, nil
}

// Read calls f for the records that are there and complete, in their order, and returns how
// many they were. It stops in front of a record that its writer has not finished, however many complete
// ones are behind it: its thread may be descheduled or stopped. Meanwhile the ring fills
// up, and the losses are counted as always. The error matches ErrRing.
func (r *RingReader) Read(f func(Record)) (n int, err error) { return r.ReadSome(math.MaxInt, f) }

// ReadSome is Read of at most so many records.
func (r *RingReader) ReadSome(most int, f func(Record)) (n int, err error) {
	head := atomic.LoadUint64(&r.mem[RingHead/8]) // later records are for the next time
	defer func() { r.short = err == nil && head != r.tail }()
	for head != r.tail && n < most {
		h, err := r.header(head)
		if err != nil {
			return n, err
		}
		if h&StateDone == 0 {
			return n, nil
		}
		n += r.take(h, f)
	}
	return n, nil
}

// Whole tells whether the last Read or ReadSome came to the end of all that was reserved when it began.
func (r *RingReader) Whole() bool { return !r.short }

// Unread is the bytes that are reserved and not read: after Read, those from the first
// record that is not complete on.
func (r *RingReader) Unread() int {
	return int(atomic.LoadUint64(&r.mem[RingHead/8]) - r.tail)
}

// Abandon reads like Read, but passes over the records that are not complete: nobody is going to
// finish them. The caller knows that no thread is between reserving and committing. lost
// is called with the program of each of them; if that is not known, it is called with
// ok false, once, for it and all the records behind it.
func (r *RingReader) Abandon(f func(Record), lost func(program uint32, ok bool)) (n int, err error) {
	for head := atomic.LoadUint64(&r.mem[RingHead/8]); head != r.tail; {
		h, err := r.header(head)
		switch {
		case err != nil:
			return n, err
		case h == 0:
			lost(0, false)
			r.Reset()
		case h&StateDone == 0:
			lost(uint32(h>>32), true)
			r.free(lengthOf(h))
		default:
			n += r.take(h, f)
		}
	}
	return n, nil
}

// Reset empties the ring, even of damaged content. No writer may be active.
func (r *RingReader) Reset() {
	clear(r.mem[RingData/8:][:r.size/8])
	r.tail = atomic.LoadUint64(&r.mem[RingHead/8]) &^ (RecordAlign - 1)
	atomic.StoreUint64(&r.mem[RingHead/8], r.tail)
	atomic.StoreUint64(&r.mem[RingTail/8], r.tail)
}

func lengthOf(h uint64) uint64 { return uint64(uint32(h)) &^ stateMask }

func (r *RingReader) at() []uint64 { return r.mem[(RingData+r.tail&(r.size-1))/8:] }

// header is that of the record at the tail, 0 if it is not written yet.
func (r *RingReader) header(head uint64) (uint64, error) {
	unread := head - r.tail
	if unread > r.size || head%RecordAlign != 0 {
		return 0, fmt.Errorf("%w: positions %d and %d", ErrRing, r.tail, head)
	}
	h := atomic.LoadUint64(&r.at()[0])
	if h == 0 {
		return 0, nil
	}
	n, left := lengthOf(h), r.size-r.tail&(r.size-1)
	state := h & stateMask
	ok := state == StateBusy || state == StateDone || state == StateDone|StatePad && n == left
	if !ok || n < RecordHeader || n > unread || n > left {
		return 0, fmt.Errorf("%w: header %#x at position %d", ErrRing, h, r.tail)
	}
	return h, nil
}

// take hands on the record at the tail, and frees it.
func (r *RingReader) take(h uint64, f func(Record)) (n int) {
	if h&StatePad == 0 {
		r.payload = r.payload[:0]
		for _, w := range r.at()[1 : lengthOf(h)/8] {
			r.payload = binary.LittleEndian.AppendUint64(r.payload, w)
		}
		f(Record{uint32(h >> 32), r.payload})
		n = 1
	}
	r.free(lengthOf(h))
	return n
}

// free gives n bytes at the tail back to the writers.
func (r *RingReader) free(n uint64) {
	clear(r.at()[:n/8])
	r.tail += n
	atomic.StoreUint64(&r.mem[RingTail/8], r.tail)
}
