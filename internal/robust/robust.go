// Package robust marks memory at a thread's death: the kernel does, whatever the thread dies of, by robust futexes (get_robust_list(2);
// Documentation/locking/robust-futexes.rst; kernel/futex/core.c, exit_robust_list).
//
// The memory may be shared with others, who need nobody to learn of the death then. What they write there harms only that: the kernel follows pointers in our memory, and
// changes a word only if it holds the dead thread's number.
package robust

import (
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// MarkSize is how many bytes a mark takes; they are aligned to 8.
	MarkSize = 16
	// DeadByte is the offset of the byte of a mark in which DeadBit (FUTEX_OWNER_DIED) is set when the thread has died.
	DeadByte = wordOffset + 3
	DeadBit  = 0x40

	wordOffset = 8
	most       = 2048 // ROBUST_LIST_LIMIT: the kernel looks at no more
)

// head is struct robust_list_head (include/uapi/linux/futex.h).
type head struct {
	next    uintptr
	offset  int
	pending uintptr
}

// List is the marks of one thread. It is used by that thread alone, which has no other one. The zero value has none.
type List struct {
	head   *head
	before uintptr // what the thread had, and how many bytes
	size   uintptr
	tid    int
	marks  [][]byte
}

// ErrFull: the kernel would not see further marks.
var ErrFull = errors.New("too many robust futexes")

// Add has the kernel mark m, of MarkSize bytes, when the calling thread dies.
func (l *List) Add(m []byte) error {
	switch {
	case len(l.marks) == most:
		return ErrFull
	case l.head != nil && l.tid != unix.Gettid():
		return errors.New("another thread's list of robust futexes")
	}
	if l.head == nil {
		h := &head{offset: wordOffset}
		h.next = h.addr()
		if _, _, errno := unix.RawSyscall(unix.SYS_GET_ROBUST_LIST, 0, uintptr(unsafe.Pointer(&l.before)), uintptr(unsafe.Pointer(&l.size))); errno != 0 {
			return fmt.Errorf("get_robust_list: %w", errno)
		}
		if _, _, errno := unix.RawSyscall(unix.SYS_SET_ROBUST_LIST, h.addr(), unsafe.Sizeof(*h), 0); errno != 0 {
			return fmt.Errorf("set_robust_list: %w", errno)
		}
		l.head, l.tid = h, unix.Gettid()
	}
	*word(m) = uint32(l.tid)
	l.marks = append(l.marks, m)
	l.link()
	return nil
}

// Remove ends that m is marked. It must come before the memory goes: the kernel would look no further. Without marks the thread has the list that it had before.
func (l *List) Remove(m []byte) {
	l.marks = slices.DeleteFunc(l.marks, func(o []byte) bool { return &o[0] == &m[0] })
	l.link()
	if len(l.marks) > 0 || l.head == nil {
		return
	}
	size := l.size
	if l.before == 0 {
		size = unsafe.Sizeof(*l.head)
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SET_ROBUST_LIST, l.before, size, 0); errno == 0 {
		l.head = nil
	}
}

// link writes the pointers: whenever the thread dies meanwhile, each mark is reached that was before and is afterwards, since it leads to the next of the new list.
func (l *List) link() {
	if l.head == nil {
		return
	}
	next := l.head.addr()
	for _, m := range slices.Backward(l.marks) {
		*(*uintptr)(unsafe.Pointer(&m[0])) = next
		next = addr(m)
	}
	l.head.next = next
}

func (h *head) addr() uintptr { return uintptr(unsafe.Pointer(h)) }

func addr(m []byte) uintptr { return uintptr(unsafe.Pointer(&m[0])) }

func word(m []byte) *uint32 { return (*uint32)(unsafe.Pointer(&m[wordOffset])) }
