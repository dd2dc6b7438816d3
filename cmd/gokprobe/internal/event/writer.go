package event

import (
	"fmt"
	"io"
	"sync"
)

// lineWriter builds each record in one reused buffer and writes it at once.
type lineWriter struct {
	mu     sync.Mutex
	w      io.Writer
	buf    []byte
	lost   uint64
	isTorn bool // the last write ended inside a record
}

// keepBuf is the capacity in bytes above which a buffer is not kept for the next
// record: one hit with a huge string must not hold memory for good.
const keepBuf = 64 << 10

// put writes the record that build appends. If that fails and hit is set, it counts a lost hit.
func (l *lineWriter) put(hit bool, build func([]byte) []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.buf[:0]
	if l.isTorn {
		b = append(b, '\n')
	}
	b = build(b)
	if cap(b) <= keepBuf {
		l.buf = b
	}
	n, err := l.w.Write(b)
	if err == nil && n < len(b) {
		err = io.ErrShortWrite
	}
	if n > 0 {
		l.isTorn = n < len(b) && b[n-1] != '\n'
	}
	if err == nil {
		return nil
	}
	if hit {
		l.lost++
	}
	return fmt.Errorf("record not written: %w", err)
}

func (l *lineWriter) Lost() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lost
}
