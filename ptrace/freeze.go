package ptrace

import (
	"iter"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/internal/procfs"
)

// Freeze stops every thread of the address space, runs f, and gives them all back, also
// when f panics. While f runs no thread executes user code, and no thread has raised an
// exception that is not reported yet. So a thread's instruction pointer alone tells
// where the thread is. New threads and vfork children are included as they appear.
// Threads inside vfork(2) and exiting ones can't be stopped; they run no user code
// either and stop before they next would. Calls may nest.
//
// Stops other than the freeze's own are dispatched after it, in order. After Tracer.Cancel f is not run: the error is ErrGivenUp.
//
// f gets the proof of this, for functions that may work only then. It holds until f
// returns.
func (s *Space) Freeze(f func(*Frozen) error) error {
	if s.depth == 0 || s.waiting {
		if err := s.stopAll(func(*Thread) bool { return false }); err != nil {
			if s.depth == 0 {
				s.thaw()
			}
			return err
		}
		s.waiting = false
	}
	return s.whileFrozen(func() error {
		frozen := &Frozen{holds: true}
		defer func() { frozen.holds = false }()
		return f(frozen)
	})
}

// Frozen is a Freeze that is under way.
type Frozen struct{ holds bool }

// Holds is false when the Freeze is over.
func (f *Frozen) Holds() bool { return f != nil && f.holds }

func (s *Space) whileFrozen(f func() error) error {
	s.depth++
	defer func() {
		if s.depth--; s.depth == 0 {
			s.thaw()
		}
	}()
	return f()
}

// FreezeAwake is Freeze, but threads that wait in a system call may go on waiting. It
// stops threads whose call was made where keep says, or whose call makes, or becomes,
// another process. The waiting ones notice nothing: no call of theirs is interrupted.
// Any of them may come back, and run, while f does. So f must be right for a thread
// that comes from any place where keep reports false. It proves nothing, and f gets no
// Frozen. A Freeze within f, of either kind, stops these too.
func (s *Space) FreezeAwake(keep func(at arch.Addr) bool, f func() error) error {
	if s.depth > 0 {
		return s.Freeze(func(*Frozen) error { return f() })
	}
	waits := map[*Thread]bool{}
	err := s.stopAll(func(th *Thread) bool {
		if _, asked := waits[th]; !asked {
			waits[th] = th.waits(keep)
		}
		return waits[th]
	})
	if err != nil {
		s.thaw()
		return err
	}
	s.waiting = true
	defer func() { s.waiting = false }()
	return s.whileFrozen(f)
}

// waits tells of a running thread that it waits in a system call which FreezeAwake leaves it in. One that is in a stop which has not been reported
// yet looks the same, but has a status to tell.
func (th *Thread) waits(keep func(arch.Addr) bool) bool {
	if th.asked {
		return false
	}
	b, err := procfs.ReadBlocked(th.Proc.PID, th.TID)
	if err != nil || b.Number < 0 || host.BeginsProcess(b.Number) || keep(b.PC) || keep(b.PC-arch.Addr(len(host.Arch.SyscallInsn()))) {
		return false
	}
	tid, _, err := lookAt(th.TID, unix.WNOHANG|unix.WEXITED|unix.WNOWAIT)
	return err == nil && tid == 0
}

// stopAll asks all threads that leave does not want left first and then waits for each, so they stop in parallel.
// Those that were found waiting in a system call come first, and stand before the others are asked: of thousands that takes long, and few notice. Whoever
// was computing is away for as long as it takes to stop its like, and for what is done meanwhile; thaw lets these go on first.
// A round that asks nobody and finds nobody running is the last. The error is ErrGivenUp.
func (s *Space) stopAll(leave func(*Thread) bool) error {
	for {
		if s.tracer.GivenUp() {
			return ErrGivenUp
		}
		var idle, busy []*Thread
		for th := range s.all() {
			switch {
			case th.state != running && (th.frozen || th.handled || !th.unreported()): // report has nothing to do
			case th.idle:
				idle = append(idle, th)
			default:
				busy = append(busy, th)
			}
		}
		asked := s.stopThese(idle, leave, askedTogether)
		if asked = s.stopThese(busy, leave, len(busy)) || asked; !asked {
			return nil
		}
	}
}

// askedTogether is how many threads that wait in system calls are asked to stop before the first of them is waited for. Each is woken to stop, and until it has the
// processor that it is on is not for others: thousands at once would keep whoever runs there, and is not asked yet, waiting for all of them.
const askedTogether = 128

// stopThese is a part of a round of stopAll: so many at once as together says.
func (s *Space) stopThese(threads []*Thread, leave func(*Thread) bool, together int) (asked bool) {
	var before []*Thread // asked, and waited for when as many others are asked: by then most of them stand
	for some := range slices.Chunk(threads, max(together, 1)) {
		waiting := s.ask(some, leave)
		s.settleAll(before)
		before, asked = waiting, asked || len(waiting) > 0
	}
	s.settleAll(before)
	return asked
}

func (s *Space) settleAll(threads []*Thread) {
	for _, th := range threads {
		s.tracer.settle(th)
	}
}

// ask asks threads to stop, and tells which are to be waited for.
func (s *Space) ask(threads []*Thread, leave func(*Thread) bool) (waiting []*Thread) {
	for _, th := range threads {
		switch {
		case s.tracer.threads[th.TID] != th || th.Proc.Space != s: // ended meanwhile, or executed another program
			continue
		case th.state == running:
			if leave(th) {
				continue
			}
			_ = th.interrupt() // a dying thread is waited for like the others
		case !th.report():
			continue
		}
		waiting = append(waiting, th)
	}
	return waiting
}

// report lets a thread that stopped on its own, and is not dispatched yet, run on to
// the report of an exception that it has already raised. settle does the same for
// threads that we stopped. It tells whether there is one to wait for.
func (th *Thread) report() bool {
	if th.frozen || th.handled || !th.unreported() {
		return false
	}
	th.cont(unix.PTRACE_CONT, 0)
	return true
}

// unreported tells of a stopped thread that it has raised an exception and has stopped
// for something else first. Its instruction pointer is then behind a breakpoint, and
// nobody knows of the hit.
func (th *Thread) unreported() bool {
	return th.state == stopped && (th.at.stop.Reason == Interrupt || th.at.stop.Reason == GroupStop) && th.pendingSynchronous()
}

// settle waits for a thread that was asked to stop and lets it report an exception
// that it has raised already.
func (t *Tracer) settle(th *Thread) {
	for t.await(th) == nil {
		th.frozen = true
		if !th.unreported() {
			break
		}
		th.cont(unix.PTRACE_CONT, 0) // also out of a group-stop: resume brings it back
	}
	if th.state != stopped {
		return
	}
	if th.at.stop.Reason == Interrupt && th.Proc.parent == nil {
		th.queued = false
	} else {
		t.enqueue(th)
	}
}

// thaw gives threads back, those that wait in a system call anyway behind the others. After StopIdle these are left to LetIdle, but once that has begun they are not: it would
// begin anew with each Freeze of somebody else.
func (s *Space) thaw() {
	left := s.held && !s.letting && !s.tracer.GivenUp()
	for _, th := range busyFirst(s.Threads()) {
		if !th.idle || !left {
			s.tracer.giveBack(th)
		}
	}
}

// heldTogether is how many threads StopIdle stops, and LetIdle gives back, in one call: some milliseconds.
const heldTogether = 2 * askedTogether

// StopIdle stops some of the threads that wait in system calls, where there are many, ahead of a Freeze, and tells whether there are more. A thread that comes to a breakpoint during a
// Freeze stands until that is over, and with thousands of threads that is long, for all but a little of which the others are stopped and let go one after the
// other. So who is about to freeze calls this until there are no more, each time in a call of its own (Do), and LetIdle in the same way afterwards, whatever
// happens: in between the tracer deals with those that have come to breakpoints.
//
// What others see: the threads that it has stopped are where a Freeze has them too, in front of a call that the kernel makes again, and execute nothing; the only
// difference is that others run meanwhile. They may wait for one that stands, which comes when that is let go. A signal for the process goes to one that
// runs, or waits for the first that does (wants_signal in kernel/signal.c). One that ends them all, or an exec, takes these out of their stops as well.
func (s *Space) StopIdle() (more bool) {
	if s.depth > 0 || s.tracer.GivenUp() || len(s.tracer.threads) <= manyThreads {
		return false
	}
	var idle []*Thread
	for th := range s.all() {
		if th.state != running || !th.idle {
			continue
		}
		if more = len(idle) == heldTogether; more {
			break
		}
		idle = append(idle, th)
	}
	if len(idle) > 0 {
		s.held, s.letting, s.tracer.holdsIdle = true, false, true
	}
	s.tracer.stopsIdle = true // nothing is given back from within
	defer func() { s.tracer.stopsIdle = false }()
	s.stopThese(idle, func(*Thread) bool { return false }, askedTogether)
	return more
}

// LetIdle gives some of the threads back that StopIdle has stopped, in any address space, and tells whether there are more. It must not be called from within a Freeze.
func (t *Tracer) LetIdle() (more bool) {
	if !t.holdsIdle {
		return false
	}
	held := false
	for _, p := range t.procs {
		more = p.Space.letIdle() || more
		held = held || p.Space.held
	}
	t.holdsIdle = held
	return more
}

// LetAllIdle gives all of them back at once. It is for who is about to run code of the user's, which may wait for
// something that one of these threads is to do. In a Freeze it does nothing.
func (t *Tracer) LetAllIdle() {
	if t.holdsIdle && !t.stopsIdle {
		t.givenBack++
		for t.LetIdle() {
		}
	}
}

// GivenBack is how often LetAllIdle has given threads back.
func (t *Tracer) GivenBack() uint { return t.givenBack }

func (s *Space) letIdle() (more bool) {
	if !s.held || s.depth > 0 {
		return false
	}
	s.letting = true
	n := 0
	for _, th := range s.Threads() {
		if !th.frozen {
			continue
		}
		if n == heldTogether {
			return true
		}
		n++
		s.tracer.giveBack(th)
	}
	s.held, s.letting = false, false
	return false
}

// busyFirst puts threads that do not wait in a system call anyway in front.
func busyFirst(threads []*Thread) []*Thread {
	list, idle := make([]*Thread, 0, len(threads)), []*Thread(nil)
	for _, th := range threads {
		if th.idle {
			idle = append(idle, th)
		} else {
			list = append(list, th)
		}
	}
	return append(list, idle...)
}

// giveBack resumes a thread that was stopped for us, or leaves its own stop to be
// dispatched.
func (t *Tracer) giveBack(th *Thread) {
	if !th.frozen {
		return
	}
	th.frozen = false
	switch {
	case th.queued || t.threads[th.TID] != th || th.state != stopped:
	case th.at.returned:
		t.enqueue(th)
	default:
		t.dispatchAgain(th)
	}
}

// acquire returns a stopped thread that can be made to run system calls, and a
// function to give it back. It prefers one that is stopped already.
func (s *Space) acquire() (*Thread, func(), error) { return s.acquireOf(nil) }

// acquireOf is acquire for a thread of one process, or of any if that is nil.
func (s *Space) acquireOf(of *Process) (*Thread, func(), error) {
	t := s.tracer
	for th := range s.all() {
		signal := th.at.stop.Reason == Signal // sent again, it comes behind others
		if (of == nil || th.Proc == of) && th.usable() && !signal && (th.frozen || th.handled || !th.unreported()) {
			return th, func() {}, nil
		}
	}
	for th := range s.byPreference() {
		if t.GivenUp() {
			return nil, nil, ErrGivenUp
		}
		if of != nil && th.Proc != of {
			continue
		}
		if th.Proc.Space != s {
			continue // it called exec meanwhile
		}
		if th.state == running && th.interrupt() != nil {
			continue
		}
		if th.state == running || th.report() {
			t.settle(th)
		}
		s.deliverFirst(th)
		if th.state != stopped || th.Proc.Space != s {
			continue
		}
		if t.toUserMode(th) == nil && th.usable() {
			return th, func() { s.returnThread(th) }, nil
		}
		s.returnThread(th)
	}
	return nil, nil, ErrNoThread
}

// deliverFirst lets a thread that was to stop for us, and has for a signal, have that, and stops it
// again: sent once more, the signal would come behind others of its kind.
func (s *Space) deliverFirst(th *Thread) {
	const patience = 64
	for range patience {
		if s.depth > 0 || th.state != stopped || th.at.stop.Reason != Signal || th.handled {
			return
		}
		th.frozen, th.queued = false, false
		s.tracer.dispatch(th)
		if th.state != running || th.interrupt() != nil {
			return
		}
		s.tracer.settle(th)
	}
}

// returnThread gives an acquired thread back, unless a Freeze around it still holds it. One
// that is queued for an event of its own is resumed when that is dispatched.
func (s *Space) returnThread(th *Thread) {
	if s.depth == 0 {
		s.tracer.giveBack(th)
	}
}

// byPreference is all threads, leaders first: they live longest.
func (s *Space) byPreference() iter.Seq[*Thread] {
	return func(yield func(*Thread) bool) {
		for _, p := range slices.Backward(s.Processes()) {
			if l := p.Leader(); l != nil && !yield(l) {
				return
			}
		}
		for _, th := range s.Threads() {
			if th != th.Proc.Leader() && !yield(th) {
				return
			}
		}
	}
}

// usable tells whether the thread stands on its way to user mode.
func (th *Thread) usable() bool {
	if th.state != stopped || th.Proc.leaving {
		return false
	}
	switch th.at.stop.Reason {
	case Interrupt, GroupStop, Breakpoint, SingleStep, Signal:
		return true
	}
	return false
}

// withStopped runs f with any stopped thread of the space, stopping one if needed.
func (s *Space) withStopped(f func(*Thread) error) error {
	for th := range s.all() {
		if th.state == stopped {
			return f(th)
		}
	}
	th, release, err := s.acquire()
	if err != nil {
		return err
	}
	defer release()
	return f(th)
}
