package guardian

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// robustHead is struct robust_list_head (include/uapi/linux/futex.h).
type robustHead struct {
	next    uintptr // of the list's first node, or of this
	offset  int64   // of a futex from its node
	pending uintptr
}

// ownOffset is of the lists that we make: as the GNU C library's.
const ownOffset = -32

// enlist puts the slot's word on the calling thread's robust list, as if it were a
// robust mutex that the thread has locked. The kernel marks it when the thread dies. A
// thread of libc's has such a list. Its nodes are chained through one word each. libc
// also writes the word in front of a node when it later locks a mutex: both words are
// the slot's.
//
// A thread that Go has made itself has none, and gets one. It reports whether it could be done.
// The thread must be locked to its goroutine.
func (s *threadSlot) enlist() bool {
	head := robustList()
	if head == nil {
		head = &robustHead{offset: ownOffset}
		head.next = uintptr(unsafe.Pointer(head))
		lists[head] = true
		if _, _, errno := unix.RawSyscall(unix.SYS_SET_ROBUST_LIST, uintptr(unsafe.Pointer(head)), unsafe.Sizeof(*head), 0); errno != 0 {
			return false
		}
	}
	if !inSlot(head.offset) {
		return false
	}
	s.off = int32(head.offset)
	s.word().Store(uint32(unix.Gettid()) | waiters)
	s.node = head.next
	head.next = uintptr(unsafe.Pointer(&s.node))
	return true
}

// delist is the opposite, on the same thread.
func (s *threadSlot) delist() {
	s.word().Store(0) // the list is not this thread's any more
	head := robustList()
	if head == nil {
		return
	}
	if lists[head] {
		_, _, _ = unix.RawSyscall(unix.SYS_SET_ROBUST_LIST, 0, unsafe.Sizeof(*head), 0)
		delete(lists, head)
		return
	}
	own := uintptr(unsafe.Pointer(&s.node))
	for at := &head.next; *at != uintptr(unsafe.Pointer(head)); {
		if *at == own {
			*at = s.node
			return
		}
		at = (*uintptr)(pointer(*at &^ 1)) // the lowest bit marks mutexes that inherit priority
	}
}

// lists keeps the heads that we have made from the garbage collector; the kernel has their addresses. Guarded by mu.
var lists = map[*robustHead]bool{}

// robustList is the calling thread's, nil if it has none.
func robustList() *robustHead {
	var head, size uintptr
	_, _, errno := unix.RawSyscall(unix.SYS_GET_ROBUST_LIST, 0, uintptr(unsafe.Pointer(&head)), uintptr(unsafe.Pointer(&size)))
	if errno != 0 || head == 0 || size != unsafe.Sizeof(robustHead{}) {
		return nil
	}
	return (*robustHead)(pointer(head))
}

// pointer is an address that the kernel or libc has given us: no memory of Go's heap, or memory that lists keeps.
func pointer(a uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&a)) }
