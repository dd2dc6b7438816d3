package ptrace

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/internal/testprog"
)

// prober is the simplest Handler that sees hits: a breakpoint is taken away for the step over its instruction, and put back. Other threads may pass
// meanwhile. Its fields are for the tracer's thread, but what events takes.
type prober struct {
	Nop
	t     *testing.T
	tr    *Tracer
	p     *Process
	prog  *testprog.Prog
	bin   string
	taken map[arch.Addr][]byte // what stands under each breakpoint
	steps map[*Thread]arch.Addr
	hits  int

	lengths map[arch.Addr]int // of the instructions under breakpoints

	onHit    func(th *Thread, regs arch.Regs)
	onSignal func(th *Thread, info *Siginfo) (Delivery, Verdict)
	onEntry  func(th *Thread) bool
	onExec   func(p *Process, old *Space)
	noMasks  bool // that threads block by themselves can be noted
	fate     Fate // of forked processes

	mu     sync.Mutex
	events []string
}

// probe attaches a prober to a program.
func probe(t *testing.T, fixture string, args ...string) *prober {
	t.Helper()
	k := newProber(t, fixture)
	k.prog = testprog.Start(t, k.bin, args...)
	k.attach(k.prog.PID())
	return k
}

func (k *prober) attach(pid int) {
	k.t.Helper()
	k.tr, k.p = attachKeeper(k.t, k, pid)
	k.t.Cleanup(k.tr.Close)
}

func newProber(t *testing.T, fixture string) *prober {
	t.Helper()
	return &prober{
		t: t, bin: testprog.Build(t, fixture),
		taken: map[arch.Addr][]byte{}, steps: map[*Thread]arch.Addr{}, lengths: map[arch.Addr]int{}, fate: Keep,
	}
}

// do runs f on the tracer's thread.
func (k *prober) do(f func() error) {
	k.t.Helper()
	var failed error
	if err := k.tr.Do(func() { failed = f() }); err != nil || failed != nil {
		k.t.Fatal(err, failed)
	}
}

// release lets the program go, from wherever its threads are.
func (k *prober) release() {
	k.t.Helper()
	k.do(func() error {
		return k.p.Space.Freeze(func(*Frozen) error {
			for at := range k.taken {
				k.remove(at)
			}
			for _, th := range k.p.Space.Threads() {
				k.back(th)
			}
			return k.tr.Detach(k.p)
		})
	})
	k.prog.CheckClean()
}

// back has a thread stand in the program's code, which has no breakpoints any more.
func (k *prober) back(th *Thread) {
	regs, err := th.Regs()
	if err != nil {
		return // it can't be stopped, or has ended
	}
	before := regs.IP().Add(int64(-host.Arch.BreakpointAdvance()))
	at, steps := k.steps[th]
	switch {
	case th.Stop().Reason == Breakpoint && k.taken[before] != nil && !th.HasLeft():
		regs.SetIP(before)
		th.Go(RunOn())
	case steps && (regs.IP() == at || th.Stop().Reason == SingleStep):
		th.Go(RunOn())
	}
}

// end lets the program go, which must be right and clean.
func (k *prober) end() {
	k.t.Helper()
	k.release()
	if got := k.prog.Quit(); got != "right" {
		k.t.Errorf("the program says %q, want right", got)
	}
}

// symbol is where a function of the program is.
func (k *prober) symbol(name string) arch.Addr {
	k.t.Helper()
	f, err := elf.Open(k.bin)
	if err != nil {
		k.t.Fatal(err)
	}
	defer f.Close()
	maps, err := procfs.Maps(k.prog.PID())
	if err != nil {
		k.t.Fatal(err)
	}
	base := arch.Addr(0)
	if f.Type == elf.ET_DYN {
		for _, m := range maps {
			if m.Path == k.bin && m.Offset == 0 {
				base = m.Range.Start
			}
		}
	}
	list, err := f.Symbols()
	if err != nil {
		k.t.Fatal(err)
	}
	for _, s := range list {
		if s.Name == name {
			return base + arch.Addr(s.Value)
		}
	}
	k.t.Fatalf("%s has no %s", k.bin, name)
	return 0
}

func (k *prober) plant(at arch.Addr) {
	old := make([]byte, len(host.Arch.Breakpoint()))
	text := k.p.Space.Text()
	code := make([]byte, host.Arch.MaxInsnLen())
	if err := text.ReadMemory(at, code); err != nil {
		k.t.Error(err)
	}
	copy(old, code)
	if insn, err := host.Arch.Decode(code, at); err == nil && k.lengths[at] == 0 {
		k.lengths[at] = insn.Len()
	}
	if err := text.WriteMemory(at, host.Arch.Breakpoint()); err != nil {
		k.t.Error(err)
	}
	k.taken[at] = old
}

func (k *prober) remove(at arch.Addr) {
	if err := k.p.Space.Text().WriteMemory(at, k.taken[at]); err != nil {
		k.t.Error(err)
	}
}

func (k *prober) Known(_ *Thread, at arch.Addr) (bool, int) { return k.taken[at] != nil, k.lengths[at] }

func (k *prober) Breakpoint(th *Thread) Verdict {
	regs, err := th.Regs()
	if err != nil {
		return AsTold()
	}
	at := regs.IP().Add(int64(-host.Arch.BreakpointAdvance()))
	if k.taken[at] == nil {
		return NotOurs()
	}
	k.hits++
	standing := th.at
	if regs.SetIP(at); k.onHit != nil {
		k.onHit(th, regs)
	}
	if !k.tr.holds(th, standing) {
		return AsTold()
	}
	if regs.IP() != at {
		return RunOn()
	}
	k.remove(at)
	k.steps[th] = at
	return StepOnce()
}

func (k *prober) SingleStepped(th *Thread) Verdict {
	if at, ok := k.steps[th]; ok {
		delete(k.steps, th)
		k.plant(at)
	}
	return RunOn()
}

// Signal holds what comes in front of the instruction that is to be stepped over: its handler would be entered first.
func (k *prober) Signal(th *Thread, info *Siginfo) (Delivery, Verdict) {
	if _, ok := k.steps[th]; ok && !info.Synchronous() {
		return Hold, AsTold()
	}
	if k.onSignal != nil {
		return k.onSignal(th, info)
	}
	return Deliver, AsTold()
}

func (k *prober) SyscallEntered(th *Thread) bool { return k.onEntry == nil || k.onEntry(th) }

func (k *prober) KeepMask(*Thread, Sigset, Sigset) bool { return !k.noMasks }

func (k *prober) SyscallReturned(th *Thread) { k.event("returned") }

func (k *prober) event(format string, args ...any) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.events = append(k.events, fmt.Sprintf(format, args...))
}

// seen tells whether an event has come, and how often.
func (k *prober) seen(event string) (n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, e := range k.events {
		if e == event {
			n++
		}
	}
	return n
}

func (k *prober) Panicked(v any, stack []byte) {
	if _, ended := v.(string); !ended { // a test's own end of the tracer is none
		k.t.Errorf("the tracer panics: %v\n%s", v, stack)
	}
}
func (k *prober) Forked(*Space, *Process) Fate { k.event("forked"); return k.fate }
func (k *prober) Copied(_ *Thread, p *Process) { k.event("copied") }
func (k *prober) Shared(_ *Thread, p *Process) { k.event("shared") }
func (k *prober) Born(_, th *Thread)           { k.event("born") }
func (k *prober) Gone(*Thread)                 { k.event("gone") }
func (k *prober) Renamed(int, *Thread)         { k.event("renamed") }
func (k *prober) ThreadExit(*Thread)           { k.event("exit") }
func (k *prober) VforkEnded(*Thread)           { k.event("vfork ended") }
func (k *prober) Exited(p *Process)            { k.event("exited %d", p.ExitStatus()) }
func (k *prober) Execed(p *Process, old *Space) Fate {
	k.event("execed")
	if k.onExec != nil {
		k.onExec(p, old)
	}
	return Keep
}

func (k *prober) Left(*Process, *Space) { k.event("left") }

// TestEachHitIsSeenOnce, and the program does what it does alone.
func TestEachHitIsSeenOnce(t *testing.T) {
	k := probe(t, "call")
	at := k.symbol("probed")
	k.do(func() error { k.plant(at); return nil })
	for n := range 20 {
		if got, want := k.prog.Do(fmt.Sprintf("go %d", 3*n), "ret"), fmt.Sprintf("ret %d", n); got != want {
			t.Errorf("the program says %q, want %q", got, want)
		}
	}
	if k.hits != 20 {
		t.Errorf("%d hits, want 20", k.hits)
	}
	k.end()
}

// TestSignalsAroundSteps: the program sends itself signals that queue, in order, and gets alarms; it checks that each comes once, with its own
// siginfo, and that SIGTRAP is to it as it has set it.
func TestSignalsAroundSteps(t *testing.T) {
	for _, mode := range []string{"default", "blocked", "ignored", "handled"} {
		t.Run(mode, func(t *testing.T) {
			k := probe(t, "signals", mode)
			at := k.symbol("foo")
			k.do(func() error { k.plant(at); return k.p.NoteTrapAction() })
			const calls = 200
			got := k.prog.Do(fmt.Sprintf("run %d", calls), "ran")
			var ran, alarms, queued, traps int
			if _, err := fmt.Sscanf(got, "ran %d alarms %d queued %d traps %d", &ran, &alarms, &queued, &traps); err != nil || ran != calls || queued != calls/10 {
				t.Errorf("the program says %q (%v)", got, err)
			}
			if k.hits != calls {
				t.Errorf("%d hits, want %d", k.hits, calls)
			}
			k.end()
		})
	}
}

// TestACallIsTheHandlersOwn: a function that a handler calls returns to it, and the thread knows nothing of it.
func TestACallIsTheHandlersOwn(t *testing.T) {
	k := probe(t, "call")
	at, none, landing := k.symbol("probed"), k.symbol("none"), k.symbol("recursed_target")
	var results []uint64
	var last error
	k.onHit = func(th *Thread, regs arch.Regs) {
		standing := th.at
		last = th.Call(Call{
			Enter:   func(r arch.Regs) error { return host.Arch.SetCall(r, k.p.Space, none, landing, nil) },
			Landing: landing, Timeout: testprog.Patience,
			Landed: func(r arch.Regs) { results = append(results, r.ReturnValue()) },
			Left:   func() bool { return false },
		})
		if th.at != standing {
			t.Error("the thread stands elsewhere")
		}
	}
	k.do(func() error { k.plant(at); k.plant(landing); return nil })
	for n := range 10 {
		if got, want := k.prog.Do(fmt.Sprintf("go %d", 3*n), "ret"), fmt.Sprintf("ret %d", n); got != want {
			t.Errorf("the program says %q, want %q", got, want)
		}
	}
	if len(results) != 10 || last != nil || k.hits != 10 {
		t.Errorf("%d calls, %d hits, the last one: %v", len(results), k.hits, last)
	}
	for _, r := range results {
		if r != 4711 {
			t.Errorf("a call returns %d", r)
		}
	}
	k.end()
}

// TestACallThatFaultsEndsWithIt: the handler is told, and the program is not.
func TestACallThatFaultsEndsWithIt(t *testing.T) {
	k := probe(t, "call")
	at, landing := k.symbol("probed"), k.symbol("recursed_target")
	faults := 0
	k.onHit = func(th *Thread, regs arch.Regs) {
		err := th.Call(Call{
			Enter:   func(r arch.Regs) error { return host.Arch.SetCall(r, k.p.Space, 0x10, landing, nil) },
			Landing: landing, Timeout: testprog.Patience,
			Landed: func(arch.Regs) { t.Error("it has returned") },
			Left:   func() bool { return false },
		})
		if fault := (*CallFault)(nil); errors.As(err, &fault) && fault.Signo() == unix.SIGSEGV && fault.IP == 0x10 {
			faults++
		} else {
			t.Errorf("the call ends with %v", err)
		}
	}
	k.do(func() error { k.plant(at); k.plant(landing); return nil })
	for range 5 {
		if got := k.prog.Do("go 27", "ret"); got != "ret 9" {
			t.Errorf("the program says %q", got)
		}
	}
	if faults != 5 {
		t.Errorf("%d faults", faults)
	}
	k.end()
}

// TestACallThatCannotBeginChangesNothing.
func TestACallThatCannotBeginChangesNothing(t *testing.T) {
	k := probe(t, "call")
	at := k.symbol("probed")
	refused := fmt.Errorf("refused")
	k.onHit = func(th *Thread, regs arch.Regs) {
		before, standing := regs.Clone(), th.at
		if err := th.Call(Call{Enter: func(r arch.Regs) error { r.SetIP(0x10); return refused }}); !errors.Is(err, refused) {
			t.Errorf("the call ends with %v", err)
		}
		if th.at != standing || regs.IP() != before.IP() || th.call != nil {
			t.Error("the thread stands elsewhere")
		}
	}
	k.do(func() error {
		k.plant(at)
		if err := k.p.Leader().Call(Call{}); !errors.Is(err, ErrNotHandled) {
			t.Errorf("outside of a handler a call ends with %v", err)
		}
		return nil
	})
	if got := k.prog.Do("go 27", "ret"); got != "ret 9" {
		t.Errorf("the program says %q", got)
	}
	k.end()
}

// TestAHandlerSendsItsThreadElsewhere: RunOn goes on where the registers say.
func TestAHandlerSendsItsThreadElsewhere(t *testing.T) {
	k := probe(t, "call")
	at, none := k.symbol("probed"), k.symbol("none")
	k.onHit = func(_ *Thread, regs arch.Regs) { regs.SetIP(none) }
	k.do(func() error { k.plant(at); return nil })
	if got := k.prog.Do("go 27", "ret"); got != "ret 4711" {
		t.Errorf("the program says %q", got)
	}
	k.end()
}

// TestSystemCallsAreTheHandlers: one that is not made has the result that the handler gives, one that is made its own; each is told of once.
func TestSystemCallsAreTheHandlers(t *testing.T) {
	k := probe(t, "call")
	entered, skip := 0, false
	k.onEntry = func(th *Thread) bool {
		regs, err := th.hostRegs()
		if err != nil {
			return true
		}
		if entered++; skip {
			regs.SetCallResult(int64(regs.CallArg(2))) // as if all were written
			return false
		}
		return true
	}
	k.do(func() error { return k.p.Space.TraceSyscalls(map[uint64]bool{unix.SYS_WRITE: true}) })
	for n := range 5 {
		if got, want := k.prog.Do(fmt.Sprintf("go %d", 3*n), "ret"), fmt.Sprintf("ret %d", n); got != want {
			t.Errorf("the program says %q, want %q", got, want)
		}
	}
	k.do(func() error { skip = true; return nil })
	k.prog.Send("go 300")
	testprog.Await(t, "a call that was not made", func() (gone bool) {
		k.do(func() error { gone = entered == 6; return nil })
		return gone
	})
	k.do(func() error { skip = false; return k.p.Space.TraceSyscalls(nil) })
	if got := k.prog.Do("go 3", "ret"); got != "ret 1" {
		t.Errorf("behind a line that was not written the program says %q", got)
	}
	if entered != 6 || k.seen("returned") != 5 {
		t.Errorf("%d calls are told of, want 6, and %d returns, want 5", entered, k.seen("returned"))
	}
	k.end()
}

// TestAnExecutedProgramIsHeldAtItsBeginning, by whichever thread it is executed: with another address space, and nothing left of what was asked of the thread.
func TestAnExecutedProgramIsHeldAtItsBeginning(t *testing.T) {
	for command, renamed := range map[string]int{"exec": 0, "execthread": 1} {
		t.Run(command, func(t *testing.T) {
			k := probe(t, "execer")
			before := k.p.Space
			k.onExec = func(p *Process, old *Space) {
				th := p.Leader()
				if old != before || p.Space == old || len(p.Threads()) != 1 || th == nil || th.TID != p.PID {
					t.Errorf("the process has %d threads, its space is new: %v", len(p.Threads()), p.Space != old)
					return
				}
				regs, err := th.Regs()
				if err != nil {
					t.Error(err)
					return
				}
				maps, err := p.Space.Maps()
				if err != nil {
					t.Error(err)
				}
				for _, m := range maps {
					if m.Range.Contains(regs.IP()) && m.Path == k.bin {
						t.Error("the program has begun") // its dynamic linker comes first
					}
				}
				if th.at.next != nextAny || th.at.restartAt != 0 || len(th.owed.resent) > 0 {
					t.Errorf("it stands at %+v", th.at)
				}
			}
			if got := k.prog.Do(command, "ready"); got != "ready 1" {
				t.Errorf("the program says %q", got)
			}
			if got := k.prog.Do("call 2", "ret"); got != "ret 27" {
				t.Errorf("the program says %q", got)
			}
			if k.seen("execed") != 1 || k.seen("renamed") != renamed {
				t.Errorf("events: %v", k.events)
			}
			k.end()
		})
	}
}

// TestNewProcessesAreTold: a copy of the memory, told of at birth, then of its first stop, then of its end.
func TestNewProcessesAreTold(t *testing.T) {
	for _, fate := range []Fate{Keep, LetGo} {
		k := probe(t, "siblings")
		k.fate = fate
		k.prog.Do("fork", "forked")
		k.prog.Send("swap")
		if got := k.prog.Do("reap", "reaped"); got != "reaped 2" {
			t.Errorf("the program says %q", got)
		}
		k.do(func() error { return nil })
		want := map[string]int{"born": 2, "copied": 2, "forked": 2, "shared": 0, "exited 0": 2}
		if fate == LetGo {
			want["exited 0"] = 0
		}
		for event, n := range want {
			testprog.Await(t, fmt.Sprintf("%d of %q", n, event), func() bool { k.do(func() error { return nil }); return k.seen(event) == n })
		}
		k.end()
	}
}

// TestAFreezeGivesBackAllThreads: they stand still in it, nested ones too, and run on behind it, also when what it is for has panicked.
func TestAFreezeGivesBackAllThreads(t *testing.T) {
	k := probe(t, "threads", "3")
	k.prog.Send("start")
	var late *Frozen
	for _, panics := range []bool{false, true} {
		k.do(func() error {
			defer func() { _ = recover() }()
			return k.p.Space.Freeze(func(f *Frozen) error {
				return k.p.Space.Freeze(func(inner *Frozen) error {
					if late = inner; !f.Holds() || !inner.Holds() {
						t.Error("a Freeze does not hold")
					}
					for _, th := range k.p.Threads() {
						if !th.Stopped() {
							t.Errorf("thread %d runs", th.TID)
						}
					}
					if panics {
						panic("in the middle")
					}
					return nil
				})
			})
		})
		if late.Holds() {
			t.Error("it holds when it is over")
		}
		k.do(func() error {
			for _, th := range k.p.Threads() {
				if th.frozen || k.p.Space.depth != 0 {
					t.Errorf("thread %d is frozen still", th.TID)
				}
			}
			return nil
		})
	}
	k.prog.Do("stop", "calls")
	k.end()
}

// TestAThreadIsSteppedThroughItsCode, one instruction each time, and does what it does alone.
func TestAThreadIsSteppedThroughItsCode(t *testing.T) {
	k := probe(t, "threads", "1")
	foo := k.symbol("foo")
	k.prog.Send("start")
	testprog.Await(t, "the thread in foo", func() (there bool) { // from there on it makes no calls, which might wait for another thread
		k.do(func() error {
			return k.p.Space.Freeze(func(*Frozen) error {
				for _, th := range k.p.Threads() {
					if ip := th.ip(); ip >= foo && ip < foo+5 {
						there = true
						return k.stepOn(th, 500)
					}
				}
				return nil
			})
		})
		return there
	})
	k.prog.Do("stop", "calls")
	k.end()
}

// stepOn steps a thread so often, and checks where each step ends.
func (k *prober) stepOn(th *Thread, steps int) error {
	for range steps {
		regs, err := th.hostRegs()
		if err != nil {
			return err
		}
		code := make([]byte, host.Arch.MaxInsnLen())
		at := regs.IP()
		_ = k.p.Space.ReadMemory(at, code)
		insn, derr := host.Arch.Decode(code, at)
		if err := k.p.Space.Step(th); err != nil {
			return err
		}
		if th.Stop().Reason != SingleStep || !th.HasLeft() {
			k.t.Errorf("the step ends with %s", th.Stop())
		}
		if derr == nil && insn.Flow == arch.FlowNext && !bytes.HasPrefix(code, []byte{0xf3}) && th.ip() != at.Add(int64(insn.Len())) {
			k.t.Errorf("a step from %s comes to %s", at, th.ip())
		}
	}
	if err := th.EndStep(); err != nil || th.stepping {
		k.t.Errorf("the last step: %v, in force: %v", err, th.stepping)
	}
	return nil
}

// TestADelayedThreadIsLetGoAtOnce: it stands still for as long as the delay, which a detach does not wait for.
func TestADelayedThreadIsLetGoAtOnce(t *testing.T) {
	k := probe(t, "call")
	at := k.symbol("probed")
	k.onHit = func(th *Thread, _ arch.Regs) {
		th.Delay(1 << 61)
		th.Delay(1 << 62)
		th.Delay(-1)
		k.event("hit")
	}
	k.do(func() error { k.plant(at); k.p.Leader().Delay(1); return nil })
	k.prog.Send("go 27")
	testprog.Await(t, "a delayed thread", func() (delayed bool) {
		k.do(func() error { delayed = k.p.Leader().Delayed(); return nil })
		return delayed
	})
	k.do(func() error {
		th := k.p.Leader()
		return k.p.Space.Remote(func(r *Remote) error {
			pid, err := r.Syscall(unix.SYS_GETPID)
			if err != nil || int(pid) != k.p.PID || r.th != th {
				t.Errorf("a call of the delayed thread: %d, %v", pid, err)
			}
			return nil
		})
	})
	k.do(func() error {
		return k.p.Space.Freeze(func(*Frozen) error {
			k.remove(at)
			delete(k.taken, at)
			return nil
		})
	})
	k.end27()
}

// end27 is end for a program whose call of "go 27" is under way.
func (k *prober) end27() {
	k.t.Helper()
	k.do(func() error { return k.tr.Detach(k.p) })
	if got := k.prog.Expect("ret"); got != "ret 9" {
		k.t.Errorf("the program says %q", got)
	}
	k.prog.CheckClean()
	if got := k.prog.Quit(); got != "right" {
		k.t.Errorf("the program says %q, want right", got)
	}
}

// TestTheEndOfAProcessIsTold, with what ended it; nothing can be sent to it any more.
func TestTheEndOfAProcessIsTold(t *testing.T) {
	k := probe(t, "threads", "2")
	k.do(func() error { return k.p.Kill(unix.SIGKILL) })
	testprog.Await(t, "the end", func() bool { k.do(func() error { return nil }); return k.seen("exited 137") == 1 })
	k.do(func() error {
		if err := k.p.Kill(unix.SIGTERM); !errors.Is(err, ErrExited) {
			t.Errorf("a signal to it: %v", err)
		}
		if len(k.p.Threads()) != 0 || k.p.Leader() != nil || len(k.tr.threads) != 0 || len(k.tr.procs) != 0 {
			t.Error("threads are left")
		}
		if _, err := k.p.Space.TID(); err == nil {
			t.Error("its address space has a thread")
		}
		return nil
	})
}

// TestAThreadHasItsName, also a new one.
func TestAThreadHasItsName(t *testing.T) {
	k := probe(t, "threads", "1")
	k.do(func() error {
		th := k.p.Leader()
		now := th.Born
		if got := th.Comm(now); got != "threads" {
			t.Errorf("it is %q", got)
		}
		th.name.text = "old"
		if got := th.Comm(now); got != "old" {
			t.Errorf("read again at once, it is %q", got)
		}
		if got := th.Comm(now.Add(1e9)); got != "threads" {
			t.Errorf("a second later it is %q", got)
		}
		return nil
	})
	k.end()
}
