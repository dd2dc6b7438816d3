package guardian

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/internal/robust"
)

// board is the memory that tracer and guardian share. Only the tracer writes it, with
// two exceptions: the kernel marks a word of a thread that dies, and the guardian rings
// the bell for itself.
type board struct {
	magic uint64
	owner process
	bell  atomic.Uint32 // changes when threads come and go; a futex
	_     [7]uint32

	threads [maxThreads]threadSlot
	held    [maxHeld]heldSlot
}

const (
	boardMagic = 0x6b7567_65626f7270 // no file begins so by accident
	boardSize  = int(unsafe.Sizeof(board{}))
	maxThreads = 64   // that trace, at once
	maxHeld    = 8192 // address spaces; further ones have no guardian
)

// process names one for good.
type process struct {
	pid   uint32
	_     uint32
	start uint64 // its start time, as procfs.Stat has it
}

// threadSlot is a thread that traces. The kernel finds word by node (get_robust_list(2)).
type threadSlot struct {
	tid  atomic.Uint32 // 0: free
	off  int32         // of word from node, in bytes
	turn uint32        // grows with each thread that has the slot
	_    uint32
	_    [5]uint64 // word may lie here; what libc keeps in front of node does
	node uintptr   // the tracer's: next of the robust list
	_    [8]uint64 // or here
}

const (
	nodeOffset = unsafe.Offsetof(threadSlot{}.node)
	slotSize   = unsafe.Sizeof(threadSlot{})
	slotHead   = 16 // bytes, up to turn
)

// word is the futex: the thread's ID and unix.FUTEX_WAITERS while it lives. off was
// checked when it was set.
func (s *threadSlot) word() *atomic.Uint32 {
	return (*atomic.Uint32)(unsafe.Add(unsafe.Pointer(s), int(nodeOffset)+int(s.off)))
}

// inSlot tells whether a word at off from the node lies in the slot, and on nothing else.
func inSlot(off int64) bool {
	at := int64(nodeOffset) + off
	free := at >= slotHead && at+4 <= int64(nodeOffset)-8 || at >= int64(nodeOffset)+8 && at+4 <= int64(slotSize)
	return free && at%4 == 0
}

const (
	waiters = 0x80000000 // FUTEX_WAITERS
	died    = robust.Died
)

// heldSlot is an address space that is held. pid is written last and cleared first.
type heldSlot struct {
	pid   atomic.Uint32 // a process that runs in it; 0: free
	tid   atomic.Uint32 // the thread that traces it
	start atomic.Uint64 // the process's start time
}

// newBoard makes an empty board.
func newBoard() (*board, int, error) {
	fd, err := unix.MemfdCreate("gokprobe-board", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, -1, fmt.Errorf("making shared memory: %w", err)
	}
	if err := unix.Ftruncate(fd, int64(boardSize)); err != nil {
		unix.Close(fd)
		return nil, -1, fmt.Errorf("making shared memory: %w", err)
	}
	_, _ = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL)
	b, err := mapBoard(fd)
	if err != nil {
		unix.Close(fd)
		return nil, -1, err
	}
	return b, fd, nil
}

// mapBoard maps the board that fd holds.
func mapBoard(fd int) (*board, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, err
	}
	if st.Size != int64(boardSize) {
		return nil, unix.EINVAL
	}
	m, err := unix.Mmap(fd, 0, boardSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("mapping shared memory: %w", err)
	}
	return (*board)(unsafe.Pointer(&m[0])), nil
}

// ring tells who waits at the board to look at it again.
func (b *board) ring() {
	b.bell.Add(1)
	const wake = 1 // FUTEX_WAKE
	_, _, _ = unix.RawSyscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(&b.bell)), wake, 1, 0, 0, 0)
}
