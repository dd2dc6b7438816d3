package guardian

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/internal/procfs"
)

// Name is argv[0] of a guardian.
const Name = "gokprobe-guardian"

// Descriptors of a guardian, beside the standard ones.
const (
	boardFD = 3
	pipeFD  = 4
)

// mu guards this process's variables of its guardian, and writing the board.
var (
	mu     sync.Mutex
	opted  atomic.Bool
	mine   *board // nil: there is none yet
	failed error  // why there can be none
	files  struct {
		board       int
		read, write int // of the pipe; write stays with this process
	}
	current  *os.Process // nil: none is started
	starting bool
	launched chan struct{} // closed when the one that was started last runs, or none can
	restarts int
	started  time.Time
)

// OptIn says that this program calls Is first in its main function. Without it nothing here has any effect.
func OptIn() { opted.Store(true) }

// Opted tells whether OptIn was called.
func Opted() bool { return opted.Load() }

// open makes the board. mu is held.
func open() bool {
	if !opted.Load() || failed != nil {
		return false
	}
	if mine != nil {
		return true
	}
	var p [2]int
	b, fd, err := newBoard()
	if err == nil {
		err = unix.Pipe2(p[:], unix.O_CLOEXEC)
	}
	st, serr := procfs.ReadStat(os.Getpid(), 0)
	if err == nil {
		err = serr
	}
	if err != nil {
		failed = err
		return false
	}
	b.owner = process{pid: uint32(os.Getpid()), start: st.StartTime}
	b.magic = boardMagic
	mine, files.board, files.read, files.write = b, fd, p[0], p[1]
	return true
}

// Thread is a thread that traces, while it does.
type Thread struct{ slot *threadSlot }

// NewThread tells of the calling thread that it traces. The thread must be locked to its goroutine. nil if there is
// no guardian to tell.
func NewThread() *Thread {
	mu.Lock()
	defer mu.Unlock()
	if !open() {
		return nil
	}
	for i := range mine.threads {
		s := &mine.threads[i]
		if s.tid.Load() == 0 || s.word().Load()&died != 0 { // its thread ended without a word
			if !s.enlist() {
				return nil // the pipe tells, later
			}
			s.turn++
			s.tid.Store(uint32(unix.Gettid()))
			mine.ring()
			return &Thread{s}
		}
	}
	return nil
}

// End says that the thread lives on, or ends, without letting go anything by that. It must be called by the thread itself.
func (t *Thread) End() {
	if t == nil || t.slot == nil {
		return
	}
	mu.Lock()
	defer mu.Unlock()
	t.slot.delist()
	t.slot.tid.Store(0)
	t.slot = nil
	mine.ring()
}

// Hold is an address space that this process holds.
type Hold struct{ slot *heldSlot }

// NewHold tells that this process holds the address space that process pid runs in, which began at start. It must be called on the
// thread that traces, before anything is done to the process. When it returns, it is told for good. nil if there is no guardian.
func NewHold(pid int, start uint64) *Hold {
	mu.Lock()
	defer mu.Unlock()
	if !open() {
		return nil
	}
	for i := range mine.held {
		if s := &mine.held[i]; s.pid.Load() == 0 {
			h := &Hold{s}
			h.put(pid, start)
			return h
		}
	}
	return nil
}

// Move says that another process is the one to look for in the address space.
func (h *Hold) Move(pid int, start uint64) {
	if h != nil && h.slot != nil {
		h.put(pid, start)
	}
}

func (h *Hold) put(pid int, start uint64) {
	h.slot.pid.Store(0)
	h.slot.tid.Store(uint32(unix.Gettid()))
	h.slot.start.Store(start)
	h.slot.pid.Store(uint32(pid))
}

// PID is the process that the guardian would look for; 0 if none.
func (h *Hold) PID() int {
	if h == nil || h.slot == nil {
		return 0
	}
	return int(h.slot.pid.Load())
}

// Release says that nothing is left there. Nobody else has the slot meanwhile: only a pid of 0 is free.
func (h *Hold) Release() {
	if h != nil && h.slot != nil {
		h.slot.pid.Store(0)
		h.slot = nil
	}
}

// maxRestarts is how often in a row a guardian is started again that has ended; one that has lived as long as calm starts
// a new row.
const (
	maxRestarts = 8
	calm        = time.Minute
)

// Start sees to it that there is a guardian, soon. It does not wait; warn is called, on a goroutine of its own, if there
// can be none. The channel is closed when there is one that outlives us, whatever kills us and our process group, or there can be
// none: what is done to a target before that is left there if we are killed.
func Start(warn func(error)) (ready <-chan struct{}) {
	mu.Lock()
	defer mu.Unlock()
	switch {
	case starting || current != nil:
		return launched
	case !opted.Load():
	default:
		if open(); failed == nil {
			starting, launched = true, make(chan struct{})
			go keep(warn)
			return launched
		}
		err := failed
		go warn(err)
	}
	none := make(chan struct{})
	close(none)
	return none
}

// keep starts a guardian, waits for its end, and starts another one.
func keep(warn func(error)) {
	for {
		p, err := launch()
		mu.Lock()
		current, starting = p, false
		close(launched)
		if err != nil {
			current, failed = nil, err
			mu.Unlock()
			warn(err)
			return
		}
		started = time.Now()
		mu.Unlock()
		_, _ = p.Wait() // ECHILD, if somebody else has waited: it has ended, too
		mu.Lock()
		current = nil
		if time.Since(started) > calm {
			restarts = 0
		}
		restarts++
		if again := restarts <= maxRestarts; !again {
			failed = fmt.Errorf("the guardian has been ended %d times", restarts)
			mu.Unlock()
			warn(failed)
			return
		}
		starting, launched = true, make(chan struct{})
		mu.Unlock()
	}
}

// launch starts a guardian. Its environment is our choice alone. It is in a session of
// its own: signals to the terminal's processes, or to our process group, do not reach
// it.
func launch() (*os.Process, error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("starting the guardian process: %w", err)
	}
	defer null.Close()
	board, err := duplicate(files.board)
	if err != nil {
		return nil, err
	}
	defer board.Close()
	pipe, err := duplicate(files.read)
	if err != nil {
		return nil, err
	}
	defer pipe.Close()
	stderr, err := duplicate(int(os.Stderr.Fd()))
	if err != nil {
		stderr = null
	}
	defer stderr.Close()
	p, err := os.StartProcess("/proc/self/exe", []string{Name}, &os.ProcAttr{
		Dir: "/", Env: []string{"GOMEMLIMIT=64MiB", "GOMAXPROCS=4", "GOTRACEBACK=single"},
		Files: []*os.File{null, null, stderr, board, pipe},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return nil, fmt.Errorf("starting the guardian process: %w", err)
	}
	return p, nil
}

// immune are the signals that are sent to whole groups and services. A guardian ignores them.
var immune = []os.Signal{unix.SIGINT, unix.SIGHUP, unix.SIGTERM, unix.SIGQUIT, unix.SIGPIPE, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU}

// duplicate makes an *os.File of its own, which nobody's Close or finalizer takes from us.
func duplicate(fd int) (*os.File, error) {
	n, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("starting the guardian process: %w", err)
	}
	return os.NewFile(uintptr(n), Name), nil
}

// Current is the guardian's PID, 0 if there is none now. It exists for tests.
func Current() int {
	mu.Lock()
	defer mu.Unlock()
	if current == nil {
		return 0
	}
	return current.Pid
}
