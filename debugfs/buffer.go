package debugfs

import (
	"fmt"
	"runtime"
	"sync"
)

// buffer is the trace: the latest entries, as many as there is room for. It is safe for
// concurrent use; who adds never waits for who reads longer than a copy takes.
type buffer struct {
	mu      sync.Mutex
	more    sync.Cond // there is an entry, or the end
	limit   int       // bytes
	used    int
	entries []*entry // the oldest first, from head on
	head    int
	written uint64 // ever, since it was cleared
	lost    uint64 // overwritten, or never written, since the last was told to a reader that consumes
	dropped uint64 // lost, since it was cleared
	ended   bool
}

func newBuffer(limit int) *buffer {
	b := &buffer{limit: limit}
	b.more.L = &b.mu
	return b
}

// add puts e in, and the oldest out.
func (b *buffer) add(e *entry) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.entries = append(b.entries, e)
	b.used += e.size()
	b.written++
	b.shrink()
	b.more.Broadcast()
}

// shrink forgets the oldest entries that there is no room for; the latest stays.
func (b *buffer) shrink() {
	for b.used > b.limit && len(b.entries)-b.head > 1 {
		b.pop()
		b.lost++
		b.dropped++
	}
}

func (b *buffer) pop() *entry {
	e := b.entries[b.head]
	b.entries[b.head] = nil
	b.head++
	b.used -= e.size()
	if b.head >= 1024 && b.head >= len(b.entries)/2 {
		b.entries = append([]*entry(nil), b.entries[b.head:]...)
		b.head = 0
	}
	return e
}

// lose notes n entries that were never written.
func (b *buffer) lose(n uint64) {
	if n == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lost += n
	b.dropped += n
	b.written += n
	b.more.Broadcast()
}

func (b *buffer) clear() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.entries, b.head, b.used = nil, 0, 0
	b.written, b.lost, b.dropped = 0, 0, 0
}

// end lets readers that wait go, now and ever after.
func (b *buffer) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = true
	b.more.Broadcast()
}

// resize changes the bytes that there is room for.
func (b *buffer) resize(limit int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.limit = limit
	b.shrink()
}

func (b *buffer) size() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.limit
}

func (b *buffer) isEmpty() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.empty()
}

// take moves everything from b into another buffer.
func (b *buffer) take() *buffer {
	b.mu.Lock()
	defer b.mu.Unlock()
	o := newBuffer(b.limit)
	o.entries, o.head, o.used, o.written, o.lost, o.dropped = b.entries, b.head, b.used, b.written, b.lost, b.dropped
	b.entries, b.head, b.used, b.written, b.lost, b.dropped = nil, 0, 0, 0, 0, 0
	return o
}

// text is the trace file: everything that is there.
func (b *buffer) text() []byte {
	b.mu.Lock()
	all := append([]*entry(nil), b.entries[b.head:]...)
	written, dropped := b.written, b.dropped
	b.mu.Unlock()
	out := []byte(header(uint64(len(all)), written, runtime.NumCPU()))
	out = appendLost(out, dropped)
	for _, e := range all {
		out = e.appendTo(out)
	}
	return out
}

func appendLost(b []byte, n uint64) []byte {
	if n == 0 {
		return b
	}
	return fmt.Appendf(b, "CPU:0 [LOST %d EVENTS]\n", n)
}
