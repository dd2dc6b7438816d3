package guardian

import (
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/internal/procfs"
)

// Target is a process that a tracer held when it died.
type Target struct {
	PID   int
	Start uint64 // its start time, as procfs.Stat has it: another process may have the PID now
	Death *Death // of the thread that traced it

	of *guard
}

// Tended tells whether the process is one that this guardian was told of, so that some call of act is for it.
// All that the same thread traced were noted before the first of these calls.
func (t Target) Tended(pid int, start uint64) bool {
	_, is := t.of.tended.Load(process{pid: uint32(pid), start: start})
	return is
}

// Is tells whether this process was started as a guardian.
func Is() bool {
	if len(os.Args) != 1 || os.Args[0] != Name {
		return false
	}
	var st unix.Stat_t
	if unix.Fstat(pipeFD, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFIFO {
		return false
	}
	b, err := mapBoard(boardFD)
	if err != nil || b.magic != boardMagic {
		return false
	}
	mine = b
	return true
}

// init comes before that of most other packages, which takes its time. Go unblocks what the process was started with as blocked, so until here these
// signals end it.
func init() {
	if Is() {
		signal.Ignore(immune...)
	}
}

// Run is what a guardian does. It waits for the tracer's death, and then calls act for
// all held processes at the same time. Each call has a locked thread of its own, which
// ends with it. It returns when the tracer is dead and all that is done. Call it if Is
// says so.
func Run(act func(Target)) {
	unix.CloseOnExec(boardFD)
	unix.CloseOnExec(pipeFD)
	go func() { // nobody is to wait for what that may wait for
		CloseInherited()
		_ = os.WriteFile("/proc/self/comm", []byte(comm), 0)
	}()
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("-999"), 0) // a right of root's; else as the tracer
	debug.SetGCPercent(-1)                                          // GOMEMLIMIT is there
	debug.FreeOSMemory()
	g := &guard{board: mine, act: act, deaths: map[uint32]*Death{}}
	g.pidfd = -1
	if fd, err := unix.PidfdOpen(int(g.board.owner.pid), 0); err == nil && alive(g.board.owner) {
		g.pidfd = fd
	}
	go g.listen()
	g.work.Add(1)
	go g.watch()
	g.work.Wait()
}

// comm is a guardian's name, once it has nothing open any more that is not its own. There is room for 15 bytes.
const comm = "gokprobe-guard"

// guard is a guardian at work.
type guard struct {
	board  *board
	pidfd  int // the tracer's, -1 if it is dead already or the kernel has none
	act    func(Target)
	work   sync.WaitGroup
	gone   atomic.Bool       // the tracer's process is dead, or another program
	tended sync.Map          // process: the targets so far
	deaths map[uint32]*Death // of the threads that trace, by TID
}

func alive(p process) bool {
	st, err := procfs.ReadStat(int(p.pid), 0)
	return err == nil && st.StartTime == p.start && st.State != 'Z' && st.State != 'X'
}

// listen waits for the end of the pipe, or of the tracer.
func (g *guard) listen() {
	fds := []unix.PollFd{{Fd: pipeFD, Events: unix.POLLIN}}
	if g.pidfd >= 0 {
		fds = append(fds, unix.PollFd{Fd: int32(g.pidfd), Events: unix.POLLIN})
	}
	for {
		if n, err := unix.Poll(fds, -1); n > 0 || err != nil && err != unix.EINTR {
			break
		}
	}
	g.gone.Store(true)
	g.board.ring()
}

// watch waits at the board for a death, and looks after one target itself: it is on a
// thread that the scheduler prefers, and awake. Another goroutine watches on. The
// thread ends with the goroutine, and the kernel then lets go all that it still traces.
// So it must not be this process's first thread, which Go keeps for ever.
func (g *guard) watch() {
	if !ownThread(g.watch) {
		return
	}
	defer g.work.Done()
	prefer()
	for {
		bell := g.board.bell.Load()
		gone := g.gone.Load()
		words, dead := g.look()
		targets := g.targets(func(tid uint32) bool { return gone || dead[tid] })
		for i, t := range targets {
			g.work.Add(1)
			if i == 0 {
				continue
			}
			go g.tend(t)
		}
		if len(targets) > 0 {
			time.AfterFunc(patience, func() { said.Do(mute) })
		}
		if len(targets) > 0 && !gone {
			g.work.Add(1)
			go g.watch()
		}
		if len(targets) > 0 {
			defer g.work.Done()
			g.act(targets[0])
			return
		}
		if gone {
			return
		}
		waitAny(&g.board.bell, bell, words)
	}
}

// tend looks after one target, as watch does.
func (g *guard) tend(t Target) {
	if !ownThread(func() { g.tend(t) }) {
		return
	}
	defer g.work.Done()
	prefer()
	g.act(t)
}

// ownThread locks the calling goroutine to its thread, which ends with it then. If that
// is this process's first thread, it makes another goroutine call again instead, and
// returns false.
func ownThread(again func()) bool {
	runtime.LockOSThread()
	if unix.Gettid() != os.Getpid() {
		return true
	}
	began := make(chan struct{})
	go func() {
		close(began)
		again()
	}()
	<-began // on another thread: this one is locked
	runtime.UnlockOSThread()
	return false
}

// look goes through the threads that trace: words to wait for, and who has died since. A thread that was told of, and has died, is not
// looked for again: its slot stays taken.
func (g *guard) look() (words []*atomic.Uint32, dead map[uint32]bool) {
	for i := range g.board.threads {
		s := &g.board.threads[i]
		tid := s.tid.Load()
		if tid == 0 || !inSlot(int64(s.off)) {
			continue
		}
		d := g.deaths[tid]
		if d == nil || d.turn != s.turn {
			d = g.newDeath(tid)
			d.turn = s.turn
			g.deaths[tid] = d
		}
		switch v := s.word().Load(); {
		case v == tid|waiters:
			words = append(words, s.word())
		case v&died != 0 && !d.seen:
			d.seen = true
			if dead == nil {
				dead = map[uint32]bool{}
			}
			dead[tid] = true
		}
	}
	return words, dead
}

// targets takes those off the board whose tracer's thread is one of these. Nobody else writes there any more: the thread is dead.
func (g *guard) targets(of func(tid uint32) bool) (list []Target) {
	for i := range g.board.held {
		s := &g.board.held[i]
		pid, tid := s.pid.Load(), s.tid.Load()
		if pid == 0 || !of(tid) {
			continue
		}
		d := g.deaths[tid]
		if d == nil {
			d = g.newDeath(tid)
			g.deaths[tid] = d
		}
		t := Target{PID: int(pid), Start: s.start.Load(), Death: d, of: g}
		if s.pid.CompareAndSwap(pid, 0) {
			g.tended.Store(process{pid: pid, start: t.Start}, nil)
			list = append(list, t)
		}
	}
	return list
}

// prefer raises the calling thread's priority, as far as that is permitted.
func prefer() {
	const rr, resetOnFork = 2, 0x40000000
	if setScheduler(rr|resetOnFork, 1) != nil {
		_ = unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), -10)
	}
}

// Calm ends what the calling thread has had of that.
func Calm() {
	_ = setScheduler(0, 0)
	_ = unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), 0)
}

func setScheduler(policy int, priority int32) error {
	_, _, errno := unix.RawSyscall(unix.SYS_SCHED_SETSCHEDULER, 0, uintptr(policy), uintptr(unsafe.Pointer(&priority)))
	if errno != 0 {
		return errno
	}
	return nil
}

// waiter is struct futex_waitv (include/uapi/linux/futex.h).
type waiter struct {
	value    uint64
	address  uint64
	flags, _ uint32
}

// waitAny returns when one of the words is not as expected any more: the bell, or that of a thread that dies. It may return at any time.
// A kernel before 5.16 waits for the bell alone.
func waitAny(bell *atomic.Uint32, rung uint32, words []*atomic.Uint32) {
	const size32 = 2 // FUTEX2_SIZE_U32, shared
	list := []waiter{{uint64(rung), uint64(uintptr(unsafe.Pointer(bell))), size32, 0}}
	for _, w := range words {
		v := w.Load()
		if v&waiters == 0 || v&died != 0 {
			return
		}
		list = append(list, waiter{uint64(v), uint64(uintptr(unsafe.Pointer(w))), size32, 0})
	}
	_, _, errno := unix.Syscall6(unix.SYS_FUTEX_WAITV, uintptr(unsafe.Pointer(&list[0])), uintptr(len(list)), 0, 0, 0, 0)
	if errno == unix.ENOSYS || errno == unix.EPERM {
		const wait = 0 // FUTEX_WAIT
		_, _, _ = unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(bell)), wait, uintptr(rung), 0, 0, 0)
	}
}

// Death is the end of a thread that traces, which takes a while: only at its very end the kernel lets its tracees go.
type Death struct {
	owner process
	tid   uint32
	turn  uint32
	pidfd int  // of the thread, before Linux 6.9 of its process; -1: it is over
	seen  bool // that it began
}

func (g *guard) newDeath(tid uint32) *Death {
	d := &Death{owner: g.board.owner, tid: tid, pidfd: g.pidfd}
	const pidfdThread = unix.O_EXCL // PIDFD_THREAD
	if fd, err := unix.PidfdOpen(int(tid), pidfdThread); err == nil {
		d.pidfd = fd
	}
	return d
}

// Over waits until the thread has let its tracees go, or for the given time, and reports whether it has.
func (d *Death) Over(wait time.Duration) bool {
	if _, err := os.Lstat("/proc/" + strconv.Itoa(int(d.owner.pid)) + "/task/" + strconv.Itoa(int(d.tid))); err != nil {
		return true
	}
	if d.pidfd < 0 {
		return !alive(d.owner)
	}
	ts := unix.NsecToTimespec(int64(wait))
	n, _ := unix.Ppoll([]unix.PollFd{{Fd: int32(d.pidfd), Events: unix.POLLIN}}, &ts, nil)
	return n > 0
}

// Later has f called on another goroutine, also when this one ends with its thread. Run waits for it.
func (t Target) Later(f func()) {
	t.of.work.Add(1)
	go func() {
		defer t.of.work.Done()
		f()
	}()
}

// said is set when nothing is written to the standard error any more: it was the
// tracer's, and its readers wait for its end.
var said sync.Once

// Mute closes the standard error.
func (Target) Mute() { said.Do(mute) }

func mute() {
	if null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0); err == nil {
		_ = unix.Dup3(null, 2, 0)
		_ = unix.Close(null)
	}
}

// patience is how long the tracer's standard error is kept.
const patience = 2 * time.Second

// Say writes a line to the standard error that was the tracer's, unless its readers
// have waited long enough already. It does not wait for them.
func (Target) Say(line string) {
	written := make(chan struct{})
	go func() {
		defer close(written)
		_, _ = unix.Write(2, []byte(line))
	}()
	select {
	case <-written:
	case <-time.After(patience):
	}
}

// Life is a process's.
type Life struct{ fd int }

// Watch begins to watch a process.
func Watch(pid int) Life {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		fd = -1
	}
	return Life{fd}
}

// Close ends it.
func (l Life) Close() {
	if l.fd >= 0 {
		_ = unix.Close(l.fd)
	}
}

// Ended waits until the process has ended, or for the given time, and reports whether it has. A process that can't be watched has.
func (l Life) Ended(wait time.Duration) bool {
	if l.fd < 0 {
		return true
	}
	ts := unix.NsecToTimespec(int64(wait))
	n, _ := unix.Ppoll([]unix.PollFd{{Fd: int32(l.fd), Events: unix.POLLIN}}, &ts, nil)
	return n > 0
}
