package guardian

import "github.com/gokprobe/gokprobe/internal/robust"

// enlist puts the slot's word on the calling thread's robust list, as if it were a
// robust mutex that the thread has locked. The kernel marks it, and wakes us, when the thread dies. libc
// may write the word in front of the node: both words are the slot's.
//
// It reports whether it could be done. The thread must be locked to its goroutine.
func (s *threadSlot) enlist() bool {
	off, ok := robust.Offset()
	if !ok || !inSlot(off) {
		return false
	}
	s.off = int32(off)
	s.word().Store(robust.Thread() | waiters)
	return robust.Link(&s.node)
}

// delist is the opposite, on the same thread.
func (s *threadSlot) delist() {
	s.word().Store(0) // the list is not this thread's any more
	robust.Unlink(&s.node)
}
