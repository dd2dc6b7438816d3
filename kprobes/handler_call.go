package kprobes

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/ptrace"
)

// CallTimeout is how long a function that a handler calls may take, unless told otherwise.
const CallTimeout = time.Second

// callGrace is how long Close waits for such functions.
const callGrace = CallTimeout / 2

// FuncCall describes a call of a function of the target.
type FuncCall struct {
	Fn      arch.Addr
	Args    []uint64      // integers and pointers
	Timeout time.Duration // 0: CallTimeout
}

// FuncResult is what a function has returned: by its type one of the registers that the C
// calling convention has for results.
type FuncResult struct {
	Int    uint64    // rax
	Vector [2]uint64 // xmm0, the low half first
}

// Float64 is the result of a function that returns a double.
func (r FuncResult) Float64() float64 { return math.Float64frombits(r.Vector[0]) }

// Float32 is the result of a function that returns a float.
func (r FuncResult) Float32() float32 { return math.Float32frombits(uint32(r.Vector[0])) }

// Call makes the thread call the function at fn and returns its integer or pointer
// result.
//
// It can be used in every handler, while that runs. The thread calls the function from
// where it is, by the C calling convention; when the function has returned, the
// thread's registers have their old values again, vector and x87 state and the stack's
// red zone included. What the function does otherwise is done, in the thread's name. It
// must be one that may be called there: should the thread hold a lock that the function
// wants, it waits for itself.
//
// Meanwhile the other threads run, and are handled when they hit; the session can be
// used from other goroutines. Hits of the thread itself run no handler and are counted
// as missed by every probe they would have met (B26). If handlers for several threads
// make calls at once, they return in the reverse order of their beginning. A thread
// whose function is done stands still until all later calls are done, so these must not
// wait for it.
//
// Signals are delivered as ever; their handlers run in the function. Should the function take
// too long, wait too long in a system call, or raise an exception, the thread is taken back:
// its registers and signal mask are put back, and a system call or a signal's handler that it
// was in is given up. What the function has locked stays locked. The exception is not told to
// the program, even if that has a handler for it. The error then is a *CallError. Close lets
// functions go on for half a second, and then does the same.
//
// If the thread has left the function by another way than its return (longjmp out of a
// signal's handler), it goes on from there; the hit is over, as it is if the thread or the
// process ends, and regs is a copy then. A C++ exception that the function does not catch has
// nobody to catch it: it ends the program, as in a thread's first function.
//
// A child that the function forks must not return from the function; it may exit or exec.
// The program's seccomp filters hold for the function's system calls too. It can't be called
// in Go functions, whose stacks are small (ErrGoStack), nor in a process that uses a shadow
// stack (ErrShadowStack).
func (r *Regs) Call(fn arch.Addr, args ...uint64) (uint64, error) {
	res, err := r.CallFunc(FuncCall{Fn: fn, Args: args})
	return res.Int, err
}

// CallFunc is Call with all its options and results.
func (r *Regs) CallFunc(c FuncCall) (FuncResult, error) {
	var res FuncResult
	err := r.call(c, &res)
	if err != nil {
		return FuncResult{}, callError(c.Fn, err)
	}
	return res, nil
}

func (r *Regs) call(c FuncCall, res *FuncResult) error {
	ts, d := r.inHandler(), r.domain
	switch {
	case ts == nil || ts.site == nil:
		return ErrNotInHandler
	case d.released || d.session.closed || d.session.closing:
		return ErrClosed
	}
	if d.linker.symbols().GoFunction(ts.site.addr) {
		return ErrGoStack
	}
	if err := r.stopped(); err != nil {
		return err
	}
	landing, err := d.detours.callLanding(ts.site)
	if err != nil {
		return err
	}
	if c.Timeout <= 0 {
		c.Timeout = CallTimeout
	}
	if err := d.detours.calledOut(1); err != nil {
		return errors.Join(err, d.detours.calledOut(-1))
	}
	th, home := r.thread, r.Regs.Clone()
	inner, states := ts.within(), &d.session.hits.states
	states.Keep(th, inner)
	entry := host.Arch.NewRegs()
	err = th.Call(ptrace.Call{
		Enter: func(regs arch.Regs) error {
			err := host.Arch.SetCall(regs, stack{d, regs.SP()}, c.Fn, landing, c.Args)
			entry.CopyFrom(regs)
			return err
		},
		Left:    func() bool { return d.hasLeft(th, entry) },
		Landing: landing,
		Timeout: c.Timeout,
		Landed: func(regs arch.Regs) {
			res.Int = regs.ReturnValue()
			res.Vector[0], res.Vector[1], _ = th.XMM(0)
		},
	})
	d.session.tracer.LetAllIdle() // the handler goes on, and may wait for another thread
	if states.Of(th) == inner {   // else the thread is another program's by now
		states.Keep(th, ts)
	}
	ts.called = true
	if back := d.detours.calledOut(-1); back != nil {
		d.session.warn("after a call of %s: %v", c.Fn, d.unlessEnding(back))
	}
	if !th.Stopped() || errors.Is(err, ptrace.ErrCallLeft) || errors.Is(err, ptrace.ErrExited) {
		ts.over, ts.regs.Regs, ts.regs.undo = true, home, nil
		if states.Of(th) == ts {
			states.Keep(th, nil)
		}
	}
	return err
}

// within is the state of ts's thread while it is in a function that a handler calls: no handler runs in its hits.
func (ts *threadState) within() *threadState {
	inner := &threadState{outer: ts}
	inner.regs = Regs{Regs: ts.regs.Regs, thread: ts.regs.thread, domain: ts.regs.domain, hit: inner}
	return inner
}

// callLanding is where functions return to that handlers call: a slot that holds breakpoints.
func (ds *detours) callLanding(near *site) (arch.Addr, error) {
	if ds.landing != 0 {
		return ds.landing, nil
	}
	defer ds.d.look.anew()()
	if err := ds.d.look.refuseShadowStack(); err != nil {
		return 0, err
	}
	at, err := ds.d.slots.allocSlot(arch.Range{Start: near.addr, End: near.addr + 1})
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrNoSlot, err)
	}
	ds.landing = at
	return at, nil
}

// hasLeft tells whether a thread is not in a function any more that it had entered with
// the given registers: whether its stack, unwound, does not lead to where the function
// returns. A stack that can't be unwound so far is taken for one that does, unless the
// return address or the stack pointer shows that it does not.
func (d *domain) hasLeft(th *ptrace.Thread, entry arch.Regs) bool {
	const frames = 10_000
	_, cfa, err := host.Arch.Caller(entry, d.space)
	regs, rerr := th.Regs()
	if err != nil || rerr != nil {
		return false // killed
	}
	at := regs.Clone()
	if st := d.slots.slotSite(at.IP()); st != nil {
		if orig, _, ok := st.slot.Origin(at.IP()); ok {
			at.SetIP(orig)
		}
	}
	base := d.look.stackOf(cfa)
	beyond := func(a arch.Addr) bool { return a > cfa && base.Contains(a) }
	left := beyond(at.SP())
	for _, f := range d.linker.symbols().Backtrace(at, rawMemory{&Regs{domain: d}}, frames) {
		if f.Addr == d.detours.landing {
			return false
		}
		left = left || beyond(f.CFA)
	}
	ret, _, err := host.Arch.Caller(entry, d.space)
	return left || err == nil && ret != d.detours.landing
}

// stack is memory for the frame of a call below sp.
type stack struct {
	*domain
	sp arch.Addr
}

func (m stack) ReadMemory(at arch.Addr, p []byte) error { return m.space.ReadMemory(at, p) }

// WriteMemory grows the main thread's stack where a push would: process_vm_writev(2) does not
// (since Linux 6.5), /proc/PID/mem does (__access_remote_vm in mm/memory.c).
func (m stack) WriteMemory(at arch.Addr, p []byte) error {
	err := m.space.WriteMemory(at, p)
	if err == nil {
		return nil
	}
	maps, merr := m.space.Maps()
	if merr != nil {
		return err
	}
	grows := slices.ContainsFunc(maps, func(v procfs.Mapping) bool { return v.Path == "[stack]" && v.Range.Contains(m.sp) })
	taken := slices.ContainsFunc(maps, func(v procfs.Mapping) bool { return v.Path != "[stack]" && v.Range.Contains(at) })
	if !grows || taken {
		return err
	}
	return m.space.Text().WriteMemory(at, p)
}

// CallError tells why a function that a handler has called did not return. Err matches
// ErrCallFault, ErrCallTimeout, ErrCallLeft, ErrExited, ErrClosed, or is why the
// call was not made.
type CallError struct {
	Fn  arch.Addr
	Err error

	// Of an exception: the signal that the program would have got, its address (si_addr), and
	// that of the instruction.
	Signal unix.Signal
	Addr   arch.Addr
	IP     arch.Addr
}

func (e *CallError) Error() string { return fmt.Sprintf("calling %s: %v", e.Fn, e.Err) }

func (e *CallError) Unwrap() error { return e.Err }

func callError(fn arch.Addr, err error) error {
	e := &CallError{Fn: fn, Err: err}
	var fault *ptrace.CallFault
	switch {
	case errors.As(err, &fault):
		e.Signal, e.Addr, e.IP = fault.Signo(), fault.Addr(), fault.IP
		if e.Err = fmt.Errorf("%w: %w", ErrCallFault, fault); e.IP == fn && notExecutable(fn, fault) {
			e.Err = fmt.Errorf("%w: %w", ErrNotExecutable, fault)
		}
	case errors.Is(err, ptrace.ErrExited):
		e.Err = ErrExited
	case errors.Is(err, ptrace.ErrLetGo), errors.Is(err, ptrace.ErrClosed):
		e.Err = ErrClosed
	case errors.Is(err, ptrace.ErrNotHandled):
		e.Err = ErrNotInHandler
	}
	return e
}

// notExecutable tells of a fault of the instruction at fn that it can't even be fetched.
func notExecutable(fn arch.Addr, fault *ptrace.CallFault) bool {
	return fault.Signo() == unix.SIGSEGV && (fault.Addr() == fn || fn >= addressLimits().End)
}

// runningHandler is a handler that runs, or waits for a function that it calls.
type runningHandler struct {
	kp   *Kprobe
	over chan struct{} // closed at its end; nil if nobody waits
}

// handlers is those of a session that run.
type handlers struct {
	s       *Session
	running []runningHandler // the last one runs, the others wait for functions that they call
}

func (hd *handlers) handlerEnds() {
	last := len(hd.running) - 1
	if over := hd.running[last].over; over != nil {
		close(over)
	}
	hd.running = hd.running[:last]
}

// busyWith is closed at the end of a handler of kps that calls a function, or it is nil: no
// other handler runs while closures do.
func (hd *handlers) busyWith(kps []*Kprobe) chan struct{} {
	i := slices.IndexFunc(hd.running, func(h runningHandler) bool { return slices.Contains(kps, h.kp) })
	if i < 0 {
		return nil
	}
	if hd.running[i].over == nil {
		hd.running[i].over = make(chan struct{})
	}
	return hd.running[i].over
}
