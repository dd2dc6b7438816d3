// Package recovery puts processes right whose tracer was killed: their original code,
// their signals' actions and their memory are as if they had never been probed. Its
// only source is the journal in the target's memory, which the target may have forged.
// So all work for it is counted and limited.
package recovery

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/escape"
	"github.com/gokprobe/gokprobe/internal/guardian"
	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/patch"
	"github.com/gokprobe/gokprobe/ptrace"
	"github.com/gokprobe/gokprobe/trampoline"
)

// ErrOwnerAlive is why a process is not recovered: the one that probes it lives.
var ErrOwnerAlive = errors.New("the process that probes it is alive")

// Result is what Recover did, in the words of kprobes.Recovered.
type Result struct {
	Regions int // that killed tracers had left; 0: there was nothing to do
	Patches int // whose original code is back
	Moved   int // threads that were on their way through a copy
	Kept    int // regions that stay mapped
}

// Options say what else there is to a recovery. The zero value is the usual choice.
type Options struct {
	Meant *ptrace.Identity // the process that is meant; nil: the process that has the number now
	Purse *Purse           // the budget of work that it is paid from; nil: one of its own
	// Tracer makes the tracer; nil: ptrace.New.
	Tracer func() (*ptrace.Tracer, error)
}

// Recover puts a process right whose tracer was killed. It is given up if ctx is done
// before all threads have stopped: the error matches ptrace.ErrGivenUp then, and
// nothing has changed. Otherwise the error is an *ptrace.AttachError, matches
// ErrOwnerAlive, or tells what could not be undone; all the rest is undone.
func Recover(ctx context.Context, pid int, opts Options) (*Result, error) {
	if opts.Tracer == nil {
		opts.Tracer = ptrace.New
	}
	r, err := recoverOnce(ctx, pid, opts)
	for range 2 { // a killed gokprobe's guardian may trace it, to do the same: then it is waited for
		var refused *ptrace.AttachError
		if !errors.As(err, &refused) || refused.Cause != ptrace.CauseTraced {
			break
		}
		if passed, ok := unless(ctx, func() bool { return guardian.Await(pid) }); !ok || !passed {
			break
		}
		r, err = recoverOnce(ctx, pid, opts)
	}
	return r, err
}

func recoverOnce(ctx context.Context, pid int, opts Options) (*Result, error) {
	type regions struct {
		bases []arch.Addr
		added []arch.Range
		err   error
	}
	found, ok := unless(ctx, func() (f regions) { // in the kernel, a reader of the mappings waits for a writer
		f.bases, f.added, f.err = regionsOf(pid)
		return f
	})
	if !ok {
		return nil, givenUp(ctx)
	}
	if found.err == nil && len(found.bases) == 0 && len(found.added) == 0 {
		return &Result{}, nil
	}
	t, err := opts.Tracer()
	if err != nil {
		return nil, err
	}
	defer t.Close()
	r := &recovery{tracer: t, meant: opts.Meant, purse: opts.Purse, begin: t.CancelOn(ctx)}
	t.SetHandler(r)
	derr := t.Do(func() {
		if err = r.run(pid, found.bases, found.err); errors.Is(err, ptrace.ErrGivenUp) {
			t.LetGo()
			err = givenUp(ctx)
		}
	})
	return &r.Result, errors.Join(derr, err)
}

func givenUp(ctx context.Context) error {
	return fmt.Errorf("%w: %w", ptrace.ErrGivenUp, context.Cause(ctx))
}

// unless is what f tells. If ctx is done first, ok is false, and f goes on alone.
func unless[T any](ctx context.Context, f func() T) (v T, ok bool) {
	result := make(chan T, 1)
	go func() { result <- f() }()
	select {
	case v = <-result:
		return v, true
	case <-ctx.Done():
		return v, false
	}
}

// recovery is a Recover in progress, and the Handler meanwhile.
type recovery struct {
	ptrace.Nop
	Result
	tracer *ptrace.Tracer
	space  *ptrace.Space
	found  []*leftover
	work   *effort
	purse  *Purse // of all recoveries of a guardian; else nil
	steps  *ptrace.Steps
	meant  *ptrace.Identity // nil: the process that has the number now
	onStop func()           // called when all threads are stopped; may be nil
	begin  func() bool      // called then: false if the recovery was given up, else that comes too late from then on; may be nil
}

// frozen is called when all threads are stopped, before anything is undone.
func (r *recovery) frozen() error {
	if r.onStop != nil {
		r.onStop()
	}
	if r.begin != nil && !r.begin() {
		return ptrace.ErrGivenUp
	}
	return nil
}

// leftover is a region that a killed tracer has left.
type leftover struct {
	*trampoline.Header
	mem   arch.Memory
	guard trampoline.GuardState
	code  []arch.Range // in order of address

	detours  *trampoline.DetourIndex
	original patchedMemory
	frames   bool // contexts on stacks refer to it
	part     bool // it has more records than are read
}

// run undoes the regions at bases. If the process's mappings could not be read, unread
// is why; most likely the process can't be attached to either, and the error of that
// says what to do.
func (r *recovery) run(pid int, bases []arch.Addr, unread error) error {
	for _, base := range bases {
		if o, err := ownerOf(pid, base); err == nil && ownerAlive(pid, o) {
			return fmt.Errorf("%w: process %d; end it first", ErrOwnerAlive, o.PID)
		}
	}
	p, err := r.tracer.Attach(pid)
	if err != nil {
		return err
	}
	if r.meant != nil && unread == nil {
		unread = r.meant.Still()
	}
	if unread != nil {
		return errors.Join(unread, r.tracer.Detach(p))
	}
	tid, err := p.Space.TID()
	if err == nil {
		bases, _, err = regionsOf(tid) // a guardian may have been there before us
	}
	if err != nil {
		return errors.Join(err, r.tracer.Detach(p))
	}
	return r.putBack(p, tid, bases)
}

// putBack undoes the regions at bases in p's memory, and lets p go. tid is one of its
// threads.
func (r *recovery) putBack(p *ptrace.Process, tid int, bases []arch.Addr) error {
	var errs []error
	r.space = p.Space
	for _, base := range bases { // before the threads are stopped, since Known is asked meanwhile
		l, err := openLeftover(p.Space, base)
		if errs = append(errs, err); l != nil {
			r.found = append(r.found, l)
		}
	}
	err := p.Space.Freeze(func(frozen *ptrace.Frozen) error {
		if err := r.frozen(); err != nil {
			return err
		}
		defer recoveries.take()()
		p.Space.LeaveRefuges(frozen)
		errs = append(errs, r.undoAll(frozen)...)
		errs = append(errs, r.unmapRest(tid, errors.Join(errs...) == nil))
		r.tracer.SettleForks(r.space)
		for _, p := range r.space.Processes() {
			errs = append(errs, r.tracer.Detach(p))
		}
		return nil
	})
	return errors.Join(append(errs, err)...)
}

// openLeftover reads what a region is. With an error it may be a part of that.
func openLeftover(mem arch.Memory, base arch.Addr) (*leftover, error) {
	h, err := trampoline.Inspect(mem, base)
	if err != nil {
		return nil, err
	}
	if h.Arch != host.Arch.Name() {
		return nil, fmt.Errorf("region at %s is for %s: %w", base, h.Arch, trampoline.ErrHeader)
	}
	l := &leftover{Header: h, mem: mem, detours: &trampoline.DetourIndex{}, original: patchedMemory{mem: mem}}
	for _, e := range h.Arenas {
		l.code = append(l.code, e.Code)
	}
	l.code = joined(l.code)
	l.guard, _, err = h.Guard(mem)
	if insn, ok := l.syscallInsn(); ok {
		l.guard.Place.Trap = insn.Add(int64(len(host.Arch.SyscallInsn())))
	}
	return l, err
}

// read reads the changes to undo. With an error it is a part of that.
func (l *leftover) read(a *trampoline.Allowance) error {
	records, err1 := l.Records(l.mem, a)
	detours, err2 := l.Detours(l.mem, a)
	entries := make([]patch.Entry, len(records))
	for i, rec := range records {
		entries[i] = patch.Entry(rec)
	}
	l.original, l.detours = patchedMemory{l.mem, indexRecords(entries)}, detours
	err := errors.Join(err1, err2)
	l.part = errors.Is(err, trampoline.ErrTooMuch)
	return err
}

// undoAll undoes the changes that were found.
func (r *recovery) undoAll(frozen *ptrace.Frozen) (errs []error) {
	threads := r.space.Threads()
	work, records := r.purse.draw(len(threads))
	allowance := trampoline.NewAllowance(records)
	r.work, r.steps = newEffort(work), ptrace.StepsFor(len(threads))
	*r.steps = min(*r.steps, mostSteps)
	steps := *r.steps
	defer func() {
		r.purse.pay(r.work.given-r.work.left+stepWork*int(steps-*r.steps), allowance.Used())
	}()
	errs = r.readAll(allowance)
	r.leaveCode(frozen, threads)
	for _, l := range r.found {
		errs = append(errs, r.undo(frozen, l))
	}
	if r.work.over() {
		errs = append(errs, fmt.Errorf("looking at %s and what their stacks refer to: %w; the original code is back, the injected memory stays", escape.Count(len(threads), "thread"), trampoline.ErrTooMuch))
	}
	return errs
}

// readAll reads the changes to undo. What lies behind a region that has too much is not
// read.
func (r *recovery) readAll(a *trampoline.Allowance) (errs []error) {
	for i, l := range r.found {
		errs = append(errs, l.read(a))
		if !l.part {
			continue
		}
		for _, other := range r.found[i+1:] {
			other.part = true
		}
		break
	}
	return errs
}

// leaveCode takes the threads out of all code of ours, and corrects saved contexts that
// lead them back there. What it can't is noted with the regions.
func (r *recovery) leaveCode(frozen *ptrace.Frozen, threads []*ptrace.Thread) {
	for _, th := range threads {
		if r.takeOut(th) {
			r.Moved++
			th.Commit()
		}
	}
	for _, l := range r.found {
		l.giveBackMasks(r.space)
	}
	// Only now, when all threads are out of the guard: one that leaves it goes by the context that the kernel has saved on its stack, which this
	// changes. Which stack it is does not tell whose context is found there: Go's lie side by side.
	if !r.searchStacks(threads) {
		for _, l := range r.found {
			l.frames = true
		}
	}
	r.straighten(frozen, threads)
	for _, th := range threads {
		if regs, err := th.Regs(); th.Stopped() && err == nil {
			if l := r.holder(regs.IP()); l != nil {
				l.frames = true // it could not be taken out of our code, and still needs that
			}
		}
	}
}

// takeOut takes a thread out of all that is ours.
func (r *recovery) takeOut(th *ptrace.Thread) bool {
	for _, l := range r.found {
		if r.outOfCall(l, th) {
			return true
		}
	}
	return r.moveOut(th)
}

// undo puts the code back that one region tells of, and takes the region away. No
// thread is in its code, except threads that can't be taken out.
func (r *recovery) undo(frozen *ptrace.Frozen, l *leftover) error {
	r.Regions++
	l.mem = r.space.Text()
	entries := l.tailsLast()
	maps, err := r.space.Maps()
	if err != nil {
		return err
	}
	if err := patch.Restore(frozen, l.mem, l.judge(maps), entries); err != nil {
		return fmt.Errorf("%w; the injected memory stays", err)
	}
	r.Patches += len(entries)
	switch {
	case l.part: // the rest leads there
		return nil
	case l.frames && r.work.over(): // perhaps; another attempt would end like this one
		return nil
	case l.frames: // they lead into our code: to the guard, or to a slot
		r.Kept++
		return nil
	}
	return r.unmap(frozen, l)
}

// unmapRest removes mappings that the tracer was about to use.
func (r *recovery) unmapRest(pid int, undone bool) error {
	_, added, err := regionsOf(pid)
	if err != nil || !undone || r.Kept > 0 || len(added) == 0 {
		return err
	}
	r.Regions = max(r.Regions, 1)
	return r.space.Unmap(added...)
}

// Known implements ptrace.Handler.
func (r *recovery) Known(_ *ptrace.Thread, at arch.Addr) (ours bool, length int) {
	for _, l := range r.found {
		if _, ok, err := l.resumeAt(at); ok && err == nil {
			return true, 1
		}
	}
	return false, 0
}

// Execed implements ptrace.Handler.
func (r *recovery) Execed(*ptrace.Process, *ptrace.Space) ptrace.Fate { return ptrace.LetGo }

// Panicked implements ptrace.Handler.
func (r *recovery) Panicked(value any, stack []byte) {
	fmt.Fprintf(os.Stderr, "%v\n%s", value, stack)
	if r.space != nil {
		for _, p := range r.space.Processes() {
			_ = r.tracer.Detach(p)
		}
	}
}
