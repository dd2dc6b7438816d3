// Package robust has the kernel mark words of memory when a thread dies, whatever it dies of: robust futexes (get_robust_list(2);
// Documentation/locking/robust-futexes.rst; kernel/futex/core.c, exit_robust_list).
//
// A thread has one list of nodes. Each is a pointer to the next, and has its word at the same distance. A thread of libc's has its list from there; one that Go has made
// itself has none, and gets one. All functions are for a goroutine that is locked to its thread, whose list they change.
//
// Words may lie in memory that others share, who need nobody to learn of the death then. If they write over pointers there the kernel comes no further: so nodes that were
// linked first are looked at first, and no pointer in a node of ours is ever read here.
package robust

import (
	"slices"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// head is struct robust_list_head (include/uapi/linux/futex.h).
type head struct {
	next    uintptr // the first node, or this
	offset  int64   // of a word from its node
	pending uintptr
}

const (
	// Usual is the Offset of lists that are made here, and of the GNU C library's.
	Usual = -32
	// Died is FUTEX_OWNER_DIED, which the kernel sets in a word; before, that holds the thread's number, and may hold FUTEX_WAITERS, which has waiters woken.
	Died = 0x40000000

	most = 2048 // ROBUST_LIST_LIMIT: the kernel looks at no more nodes
)

// list is the nodes that were linked here, one behind the other.
type list struct {
	own   bool // made here
	nodes []*uintptr
	rest  uintptr // what the last one leads to
}

// lists keeps those that were made here from the garbage collector, too: the kernel has their addresses.
var (
	mu    sync.Mutex
	lists = map[*head]*list{}
)

// Offset is how many bytes behind its node a word lies. It sees to it that the thread has a list; ok is false if it can't have one.
func Offset() (bytes int64, ok bool) {
	mu.Lock()
	defer mu.Unlock()
	h := current()
	if h == nil {
		h = &head{offset: Usual}
		h.next = addr(&h.next)
		lists[h] = &list{own: true, rest: h.next}
		if _, _, errno := unix.RawSyscall(unix.SYS_SET_ROBUST_LIST, addr(&h.next), unsafe.Sizeof(*h), 0); errno != 0 {
			delete(lists, h)
			return 0, false
		}
	}
	return h.offset, true
}

// Thread is the number of the calling thread.
func Thread() uint32 { return uint32(unix.Gettid()) }

// Link makes the kernel mark a node's word, which holds the thread's number by then. It writes *node. The answer is false if there is no list or no room.
//
// libc also writes the word in front of a node when it locks a robust mutex later.
func Link(node *uintptr) bool {
	mu.Lock()
	defer mu.Unlock()
	h := current()
	if h == nil {
		return false
	}
	l := lists[h]
	if l == nil {
		l = &list{rest: h.next}
		lists[h] = l
	}
	if len(l.nodes) == most {
		return false
	}
	at := h.before(l)
	l.nodes = append(l.nodes, node)
	l.chain(at)
	return true
}

// Unlink is the opposite. It comes before the memory goes. A thread whose list was made here has none without nodes.
func Unlink(node *uintptr) {
	mu.Lock()
	defer mu.Unlock()
	h := current()
	l := lists[h]
	if l == nil || !slices.Contains(l.nodes, node) {
		return
	}
	at := h.before(l)
	l.nodes = slices.DeleteFunc(l.nodes, func(n *uintptr) bool { return n == node })
	l.chain(at)
	if len(l.nodes) > 0 {
		return
	}
	if delete(lists, h); l.own {
		_, _, _ = unix.RawSyscall(unix.SYS_SET_ROBUST_LIST, 0, unsafe.Sizeof(*h), 0)
	}
}

// chain writes the pointers, the one at at last. Whenever the thread dies meanwhile, nodes that were there before and stay are reached: each leads to the next one that stays.
func (l *list) chain(at *uintptr) {
	next := l.rest
	for _, n := range slices.Backward(l.nodes) {
		*n = next
		next = addr(n)
	}
	*at = next
}

// before is the pointer to the first node of l's. What libc has put in front of that since is libc's.
func (h *head) before(l *list) *uintptr {
	first := l.rest
	if len(l.nodes) > 0 {
		first = addr(l.nodes[0])
	}
	at := &h.next
	for range most {
		if *at == first || *at == addr(&h.next) {
			break
		}
		at = (*uintptr)(pointer(*at &^ 1)) // the lowest bit marks mutexes that inherit priority
	}
	return at
}

// current is the calling thread's, nil if it has none.
func current() *head {
	var h, size uintptr
	_, _, errno := unix.RawSyscall(unix.SYS_GET_ROBUST_LIST, 0, uintptr(unsafe.Pointer(&h)), uintptr(unsafe.Pointer(&size)))
	if errno != 0 || h == 0 || size != unsafe.Sizeof(head{}) {
		return nil
	}
	return (*head)(pointer(h))
}

func addr(p *uintptr) uintptr { return uintptr(unsafe.Pointer(p)) }

// pointer is an address that the kernel or libc has given us: no memory of Go's heap, or memory that lists keeps.
func pointer(a uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&a)) }
