package ptrace

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/internal/testprog"
)

// TestAGuardRunsWhereThereIsRoom: on the alternate stack where the program has no handler of its own, or has one there; also before one of a program whose
// stacks have no room for a signal's frame.
func TestAGuardRunsWhereThereIsRoom(t *testing.T) {
	for _, c := range []struct {
		name           string
		own            sigaction
		small, onStack bool
	}{
		{"default", sigaction{}, false, true},
		{"default, small stacks", sigaction{}, true, true},
		{"ignored", sigaction{handler: sigIgn}, false, true},
		{"handler on the thread's stack", sigaction{handler: 0x1000}, false, false},
		{"handler on the alternate stack", sigaction{handler: 0x1000, flags: saOnStack}, false, true},
		{"handler on the thread's stack, small stacks", sigaction{handler: 0x1000}, true, true},
	} {
		sa := guardAction(&c.own, GuardHandler{Handler: 0x2000, Restorer: 0x3000, OnStack: c.small})
		if got := sa.flags&saOnStack != 0; got != c.onStack || sa.handler != 0x2000 {
			t.Errorf("%s: handler %#x on the alternate stack: %t, want %t", c.name, sa.handler, got, c.onStack)
		}
	}
}

// Where the programs here have room for actions: what a guard saves, and what is passed to calls.
const savedAction, scratchAction = arch.Addr(0x200000000000), arch.Addr(0x200000000100)

func withRoom(k *prober, f func(r *Remote) error) {
	k.t.Helper()
	e := Extent{Data: stretch(savedAction, pageSize), Code: stretch(savedAction+pageSize, pageSize)}
	k.do(func() error {
		return k.p.Space.Freeze(func(*Frozen) error {
			if m := must2(k.p.Space.mapAt(savedAction)); m == nil {
				if err := k.p.Space.MapPrivate(e); err != nil {
					return err
				}
			}
			return k.p.Remote(f)
		})
	})
}

// endRoom unmaps that room and ends the test.
func (k *prober) endRoom() {
	k.t.Helper()
	k.do(func() error { return k.p.Space.Unmap(stretch(savedAction, 2*pageSize)) })
	k.end()
}

// caught tells whether the kernel has a handler for SIGTRAP.
func (k *prober) caught() bool {
	return Sigset(must2(procfs.ReadStatus(k.prog.PID(), 0)).SigCgt).Has(unix.SIGTRAP)
}

// guard puts a guard in the place of the program's action for SIGTRAP, which nothing calls.
func (k *prober) guard() {
	k.t.Helper()
	foo := k.symbol("foo")
	withRoom(k, func(r *Remote) error {
		return r.Guard(unix.SIGTRAP, GuardHandler{Handler: foo, Restorer: foo}, savedAction, scratchAction, func() error { return nil })
	})
}

// TestAGuardStandsInPlaceOfTheProgramsAction, which is saved before that and put back when it goes: the program tells what it sees.
func TestAGuardStandsInPlaceOfTheProgramsAction(t *testing.T) {
	for _, kind := range []string{"default", "ignore", "handle", "nodefer", "block"} {
		t.Run(kind, func(t *testing.T) {
			k := probe(t, "owntraps")
			foo := k.symbol("foo")
			k.prog.Do("act "+kind, "did")
			want, was := k.prog.Do("ask", "did"), k.caught()
			withRoom(k, func(r *Remote) error {
				return r.Guard(unix.SIGTRAP, GuardHandler{Handler: foo, Restorer: foo}, savedAction, scratchAction, func() error {
					if now := must2(r.exchange(unix.SIGTRAP, 0, scratchAction+0x100)); k.caught() != was || now.handler == uintptr(foo) {
						t.Errorf("the guard is there before the action is saved: %+v", now)
					}
					b := make([]byte, 8)
					if err := k.p.Space.ReadMemory(savedAction, b); err != nil || (littleWords(b)[0] > sigIgn) != was {
						t.Errorf("saved is the handler % x, %v", b, err)
					}
					return nil
				})
			})
			k.do(func() error {
				if !k.p.trap.guarded() || k.p.trap.own.handled != was || k.p.trap.own.ignored != (kind == "ignore") || k.p.trap.handled() != was {
					t.Errorf("the program's own action is taken for %+v", k.p.trap)
				}
				return nil
			})
			var handler string
			var flags, mask uint64
			guarded := k.prog.Do("ask", "did")
			if n, err := fmt.Sscanf(guarded, "did %s flags %x mask %x", &handler, &flags, &mask); n != 3 || handler != "other" || !k.caught() {
				t.Errorf("with a guard the program's action is %q, %v", guarded, err)
			}
			if flags&(saNoDefer|saSiginfo) != saNoDefer|saSiginfo || Sigset(mask)&forced != 0 || (Sigset(mask)|forced).Full() != (kind == "block") {
				t.Errorf("the guard has flags %x, mask %x", flags, mask)
			}
			withRoom(k, func(r *Remote) error { return r.Unguard(unix.SIGTRAP, foo, savedAction, scratchAction) })
			if got := k.prog.Do("ask", "did"); got != want {
				t.Errorf("afterwards the action is %q, was %q", got, want)
			}
			k.do(func() error {
				if k.p.trap.guarded() || k.p.trap.handled() != was || k.p.trap.ignored() != (kind == "ignore") {
					t.Errorf("there is a guard still: %+v", k.p.trap)
				}
				return nil
			})
			k.endRoom()
		})
	}
}

// TestAGuardThatCannotBeChangesNothing: the program's handler is to run once only, or what is to be done in between fails.
func TestAGuardThatCannotBeChangesNothing(t *testing.T) {
	k := probe(t, "owntraps")
	foo := k.symbol("foo")
	failed := errors.New("it fails")
	k.prog.Do("act handle", "did")
	want := k.prog.Do("ask", "did")
	withRoom(k, func(r *Remote) error {
		err := r.Guard(unix.SIGTRAP, GuardHandler{Handler: foo}, savedAction, scratchAction, func() error { return failed })
		if !errors.Is(err, failed) || k.p.trap.guarded() {
			t.Errorf("%v; a guard: %+v", err, k.p.trap)
		}
		return nil
	})
	if got := k.prog.Do("ask", "did"); got != want {
		t.Errorf("the action is %q, was %q", got, want)
	}
	withRoom(k, func(r *Remote) error {
		own := must2(r.sigaction(unix.SIGTRAP))
		own.flags |= saResetHand
		must(r.setSigaction(unix.SIGTRAP, own))
		err := r.Guard(unix.SIGTRAP, GuardHandler{Handler: foo}, savedAction, scratchAction, func() error { t.Error("it goes on"); return nil })
		if now := must2(r.sigaction(unix.SIGTRAP)); !errors.Is(err, ErrOnce) || *now != *own || k.p.trap.guarded() {
			t.Errorf("%v; the action is %+v, was %+v", err, now, own)
		}
		own.flags &^= saResetHand
		return r.setSigaction(unix.SIGTRAP, own)
	})
	k.endRoom()
}

// TestAGuardFindsAnActionThatComesMeanwhile: another thread has set one since the signal was seen to have the default action. The guard saves it, and runs with its
// mask; or is none, and the action stays.
func TestAGuardFindsAnActionThatComesMeanwhile(t *testing.T) {
	k := probe(t, "owntraps")
	foo := k.symbol("foo")
	for _, once := range []bool{false, true} {
		withRoom(k, func(r *Remote) error {
			must(r.setSigaction(unix.SIGUSR2, &sigaction{}))
			set := &sigaction{handler: uintptr(foo), flags: saRestart | saRestorer, restorer: uintptr(foo), mask: 0xf0}
			if once {
				set.flags |= saResetHand
			}
			err := r.Guard(unix.SIGUSR2, GuardHandler{Handler: foo + 1, Restorer: foo}, savedAction, scratchAction, func() error { return r.setSigaction(unix.SIGUSR2, set) })
			now := must2(r.sigaction(unix.SIGUSR2))
			if once {
				if !errors.Is(err, ErrOnce) || *now != *set {
					t.Errorf("%v; the action is %+v, was %+v", err, now, set)
				}
				return r.setSigaction(unix.SIGUSR2, &sigaction{})
			}
			if err != nil || now.handler != uintptr(foo+1) || now.mask != set.mask&^forced || now.flags&saRestart == 0 {
				t.Errorf("%v; the guard is %+v in the place of %+v", err, now, set)
			}
			must(r.Unguard(unix.SIGUSR2, foo+1, savedAction, scratchAction))
			if now := must2(r.sigaction(unix.SIGUSR2)); *now != *set {
				t.Errorf("afterwards the action is %+v, was %+v", now, set)
			}
			return r.setSigaction(unix.SIGUSR2, &sigaction{})
		})
	}
	k.endRoom()
}

// TestAGuardKnowsTheHandlerThatABreakpointHasReset, between the program's call and the guard's.
func TestAGuardKnowsTheHandlerThatABreakpointHasReset(t *testing.T) {
	k := probe(t, "owntraps")
	foo := k.symbol("foo")
	withRoom(k, func(r *Remote) error {
		set := &sigaction{handler: uintptr(foo), flags: saRestart | saRestorer, restorer: uintptr(foo), mask: 0xf0}
		must(r.putAction(scratchAction, set))
		must(r.SetOwn(unix.SIGUSR2, scratchAction))
		lost := set.rest()
		must(r.setSigaction(unix.SIGUSR2, &lost)) // as force_sig_info_to_task does
		must(r.Guard(unix.SIGUSR2, GuardHandler{Handler: foo + 1, Restorer: foo}, savedAction, scratchAction, func() error { return nil }))
		if now := must2(r.sigaction(unix.SIGUSR2)); now.handler != uintptr(foo+1) || now.mask != set.mask&^forced || now.flags&saRestart == 0 {
			t.Errorf("the guard is %+v in the place of %+v", now, set)
		}
		must(r.Unguard(unix.SIGUSR2, foo+1, savedAction, scratchAction))
		if now := must2(r.sigaction(unix.SIGUSR2)); *now != *set {
			t.Errorf("afterwards the action is %+v, was %+v", now, set)
		}
		return r.setSigaction(unix.SIGUSR2, &sigaction{})
	})
	k.endRoom()
}

// TestAForkedChildGetsItsOwnActionAtOnce, unless it is another one than the guard's.
func TestAForkedChildGetsItsOwnActionAtOnce(t *testing.T) {
	k := probe(t, "owntraps")
	foo := k.symbol("foo")
	for _, replaced := range []bool{false, true} {
		withRoom(k, func(r *Remote) error {
			want := &sigaction{handler: uintptr(foo), flags: saRestorer, restorer: uintptr(foo), mask: 0xf0}
			must(r.setSigaction(unix.SIGUSR2, want))
			must(r.Guard(unix.SIGUSR2, GuardHandler{Handler: foo + 1, Restorer: foo}, savedAction, scratchAction, func() error { return nil }))
			if replaced {
				want.mask = 0xe00
				must(r.setSigaction(unix.SIGUSR2, want))
			}
			k.p.newborn = true
			must(r.Unguard(unix.SIGUSR2, foo+1, savedAction, scratchAction))
			k.p.newborn = false
			if now := must2(r.sigaction(unix.SIGUSR2)); *now != *want {
				t.Errorf("replaced %v: the action is %+v, the program's %+v", replaced, now, want)
			}
			return r.setSigaction(unix.SIGUSR2, &sigaction{})
		})
	}
	k.endRoom()
}

// TestWhatTheProgramHasPutInAGuardsPlaceStays; what a breakpoint has left of the guard does not.
func TestWhatTheProgramHasPutInAGuardsPlaceStays(t *testing.T) {
	for _, c := range []struct{ name, act, want string }{
		{"ignored since", "act ignore", "did ignored"},
		{"another handler since", "act block", "did own"},
		{"reset by a breakpoint", "", "did own"},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := probe(t, "owntraps")
			foo := k.symbol("foo")
			k.prog.Do("act nodefer", "did")
			nodefer := k.prog.Do("ask", "did")
			k.guard()
			if c.act != "" {
				k.prog.Do(c.act, "did")
			} else {
				withRoom(k, func(r *Remote) error {
					sa := must2(r.sigaction(unix.SIGTRAP))
					sa.handler = 0 // as force_sig_info_to_task does
					return r.setSigaction(unix.SIGTRAP, sa)
				})
			}
			before := k.prog.Do("ask", "did")
			withRoom(k, func(r *Remote) error { return r.Unguard(unix.SIGTRAP, foo, savedAction, scratchAction) })
			want := before
			if c.act == "" {
				want = nodefer
			}
			if got := k.prog.Do("ask", c.want); got != want {
				t.Errorf("the action is %q, want %q", got, want)
			}
			k.endRoom()
		})
	}
}

func (k *prober) GuardLost(*Process)  { k.event("guard lost") }
func (k *prober) GuardTaken(*Process) { k.event("guard taken") }

// TestAGuardThatABreakpointHasTakenAwayIsPutBack soon: a thread blocks SIGTRAP, and the kernel resets the action at its breakpoint. It blocks the signal as
// before.
func TestAGuardThatABreakpointHasTakenAwayIsPutBack(t *testing.T) {
	k := probe(t, "owntraps")
	foo := k.symbol("foo")
	k.prog.Do("mask block", "did")
	k.guard()
	k.do(func() error { return k.p.Space.Freeze(func(*Frozen) error { k.plant(foo); return nil }) })
	for n := range 3 {
		if got := k.prog.Do("call", "did"); got != "did call: traps 0 deep 0 blocked 1 pending 0" {
			t.Errorf("the program says %q", got)
		}
		testprog.Await(t, "a guard that was put back", func() bool { return k.seen("guard lost") > n && k.caught() })
	}
	if k.hits != 15 || k.seen("guard taken") > 0 {
		t.Errorf("%d hits, events %v", k.hits, k.events)
	}
	withRoom(k, func(r *Remote) error { return r.Unguard(unix.SIGTRAP, foo, savedAction, scratchAction) })
	k.endRoom()
}

// TestAGuardThatGoesTellsWhoBlocksItsSignal: it goes while a thread stands at a breakpoint that was believed to block SIGTRAP, as in a handler. What
// stood in the guard's place until then tells whether it did.
func TestAGuardThatGoesTellsWhoBlocksItsSignal(t *testing.T) {
	for mask, want := range map[string]string{
		"mask unblock": "did call: traps 0 deep 0 blocked 0 pending 0",
		"mask block":   "did call: traps 0 deep 0 blocked 1 pending 0",
	} {
		for _, act := range []string{"act handle", "act default"} {
			t.Run(mask+", "+act, func(t *testing.T) {
				k := probe(t, "owntraps")
				foo := k.symbol("foo")
				k.prog.Do(act, "did")
				action := k.prog.Do("ask", "did")
				k.guard()
				k.prog.Do(mask, "did")
				k.do(func() error { return k.p.Space.Freeze(func(*Frozen) error { k.plant(foo); return nil }) })
				k.onHit = func(th *Thread, _ arch.Regs) {
					k.onHit = nil
					th.blocks.trap = true
					must(th.Proc.Remote(func(r *Remote) error { return r.Unguard(unix.SIGTRAP, foo, savedAction, scratchAction) }))
				}
				if got := k.prog.Do("call", "did"); got != want {
					t.Errorf("the program says %q, want %q", got, want)
				}
				if got := k.prog.Do("ask", "did"); got != action {
					t.Errorf("the action is %q, was %q", got, action)
				}
				k.endRoom()
			})
		}
	}
}

// TestAProgramTakesItsGuardsPlace: it sets an action of its own, which is seen at the next SIGTRAP, or breakpoint.
func TestAProgramTakesItsGuardsPlace(t *testing.T) {
	for _, c := range []struct {
		act, then, want string
		hit             bool // in between, which takes the action away
	}{
		{"act handle", "raise", "did raise: traps 1 deep 1 blocked 0 pending 0", false},
		{"act block", "int3", "did int3: traps 1001 deep 1 blocked 0 pending 0", false},
		{"act ignore", "raise", "did raise: traps 0 deep 0 blocked 0 pending 0", false},
		{"act ignore", "raise", "did raise: traps 0 deep 0 blocked 0 pending 0", true},
	} {
		t.Run(fmt.Sprintf("%s, %s, hit %v", c.act, c.then, c.hit), func(t *testing.T) {
			k := probe(t, "owntraps")
			foo := k.symbol("foo")
			k.guard()
			k.do(func() error { return k.p.Space.Freeze(func(*Frozen) error { k.plant(foo); return nil }) })
			k.prog.Do(c.act, "did")
			want := k.prog.Do("ask", "did")
			if c.hit {
				k.prog.Do("call", "did")
			}
			if got := k.prog.Do(c.then, "did"); got != c.want {
				t.Errorf("the program says %q, want %q", got, c.want)
			}
			if got := k.prog.Do("ask", "did"); got != want {
				t.Errorf("the action is %q, was %q", got, want)
			}
			k.prog.Do("call", "did")
			k.do(func() error {
				if k.p.trap.guarded() || k.p.trap.ignored() != (c.act == "act ignore") {
					t.Errorf("there is a guard still: %+v, ignored: %v", k.p.trap, k.p.trap.ignored())
				}
				return nil
			})
			if k.seen("guard taken") != 1 {
				t.Errorf("events: %v", k.events)
			}
			k.endRoom()
		})
	}
}

// TestHandlersRunWithTrapsNotBlocked, if that is asked for, and with what they block themselves when it is taken back: the program tells their masks.
func TestHandlersRunWithTrapsNotBlocked(t *testing.T) {
	k := probe(t, "masks")
	sigs := []unix.Signal{unix.SIGHUP, unix.SIGILL, unix.SIGBUS, unix.SIGUSR1, unix.SIGSEGV, unix.SIGALRM} // in the program's order
	masks := func() (list [6]Sigset) {
		var m [6]uint64
		line := k.prog.Do("look", "masks")
		if n, err := fmt.Sscanf(line, "masks %x %x %x %x %x %x", &m[0], &m[1], &m[2], &m[3], &m[4], &m[5]); n != 6 {
			t.Errorf("%q: %v", line, err)
		}
		for i := range m {
			list[i] = Sigset(m[i])
		}
		return list
	}
	before := masks()
	withRoom(k, func(r *Remote) error {
		for _, sig := range append(slices.Clone(sigs[1:]), unix.SIGUSR2) {
			changed, err := r.Unmask(sig, forced, scratchAction)
			if handled := sig != unix.SIGUSR2; err != nil || handled != (changed == forced) || !handled && changed != 0 {
				t.Errorf("%s: changed %x, %v", unix.SignalName(sig), changed, err)
			}
			if changed, err := r.Unmask(sig, forced, scratchAction); changed != 0 || err != nil {
				t.Errorf("%s again: changed %x, %v", unix.SignalName(sig), changed, err)
			}
		}
		return nil
	})
	for i, m := range masks() {
		if want := before[i] &^ forced; i == 0 && m != before[0] || i > 0 && m != want {
			t.Errorf("the handler of %s blocks %x, want %x", unix.SignalName(sigs[i]), m, want)
		}
	}
	withRoom(k, func(r *Remote) error {
		for _, sig := range sigs[1:] {
			must(r.Mask(sig, forced, scratchAction))
		}
		return r.Mask(unix.SIGUSR2, forced, scratchAction)
	})
	if after := masks(); after != before {
		t.Errorf("handlers block %x, before %x", after, before)
	}
	k.endRoom()
}

// blocks tells what a thread of the program blocks, by the kernel.
func (k *prober) blocks(tid int) Sigset {
	return Sigset(must2(procfs.ReadStatus(k.prog.PID(), tid)).SigBlk)
}

// deaf is the thread of the program's that blocks all signals.
func (k *prober) deaf() (tid int, full Sigset) {
	for _, tid := range tids(k.t, k.prog.PID()) {
		if m := k.blocks(tid); m.Full() {
			return tid, m
		}
	}
	k.t.Fatal("no thread blocks all signals")
	return 0, 0
}

// TestAThreadThatBlocksAllIsUnblockedForTheGuard, if that can be noted, and blocks all again when it is let go.
func TestAThreadThatBlocksAllIsUnblockedForTheGuard(t *testing.T) {
	k := probe(t, "masks")
	tid, full := k.deaf()
	before := testprog.TakeSnapshot(t, k.prog.PID())
	for _, agrees := range []bool{false, true} {
		k.do(func() error {
			return k.p.Space.Freeze(func(*Frozen) error {
				noted := map[Sigset]int{}
				k.p.Space.Unblock(func(m Sigset) bool { noted[m]++; return agrees })
				if noted[full] != 1 || len(noted) != 1 {
					t.Errorf("noted %x, want %x", noted, full)
				}
				want := full
				if agrees {
					want &^= forced
				}
				if got := k.blocks(tid); got != want {
					t.Errorf("agreed: %v; it blocks %x, want %x", agrees, got, want)
				}
				if got := k.p.Space.Masks(); len(got) != 2 || !slices.Contains(got, full) {
					t.Errorf("masks are %x", got)
				}
				return nil
			})
		})
	}
	k.do(func() error {
		th := k.p.threads[tid]
		if m := must2(procfs.ReadStatus(k.p.PID, tid)).SigBlk; Sigset(m) != full&^forced || !th.unblocked.is || th.blocks.trap {
			t.Errorf("running on, it blocks %x", m)
		}
		return k.tr.Detach(k.p)
	})
	before.Compare(t, k.prog.PID())
	k.prog.CheckClean()
	if got := k.prog.Quit(); got != "right" {
		t.Errorf("the program says %q, want right", got)
	}
}

// TestWhatAKilledTracerHasUnblockedIsBlockedAgain: the next one finds the thread that blocks all signals but those of breakpoints.
func TestWhatAKilledTracerHasUnblockedIsBlockedAgain(t *testing.T) {
	k := probe(t, "masks")
	tid, full := k.deaf()
	before := testprog.TakeSnapshot(t, k.prog.PID())
	k.do(func() error {
		return k.p.Space.Freeze(func(*Frozen) error { k.p.Space.Unblock(func(Sigset) bool { return true }); return nil })
	})
	k.tr.Close() // as if it were killed
	if got := k.blocks(tid); got != full&^forced {
		t.Errorf("it blocks %x, want %x", got, full&^forced)
	}
	tr, p := attachKeeper(t, keeper{copied: map[int]*Space{}}, k.prog.PID())
	defer tr.Close()
	whileHeld(t, tr, func() {}, func() error {
		return p.Space.Freeze(func(frozen *Frozen) error {
			for range 2 {
				p.Space.Unblocked(frozen)
			}
			for _, th := range p.Threads() {
				if th.unblocked.is != (th.TID == tid) || th.TID == tid && th.unblocked.from != full {
					t.Errorf("thread %d was unblocked: %v, from %x", th.TID, th.unblocked.is, th.unblocked.from)
				}
			}
			return tr.Detach(p)
		})
	})
	before.Compare(t, k.prog.PID())
	k.prog.CheckClean()
	if got := k.prog.Quit(); got != "right" {
		t.Errorf("the program says %q, want right", got)
	}
}

// TestASetIsKnownWithoutTheSignalsOfBreakpoints: a killed tracer has left a thread so whose set is one that the program is known to use.
func TestASetIsKnownWithoutTheSignalsOfBreakpoints(t *testing.T) {
	k := probe(t, "siblings")
	set := (allSignals &^ unblockable) &^ sigbit(unix.SIGUSR1) &^ sigbit(unix.SIGUSR2)
	k.do(func() error {
		return k.p.Space.Freeze(func(frozen *Frozen) error {
			th := k.p.Leader()
			own := must2(th.BlockedSignals())
			must(th.BlockSignals(set &^ forced))
			for _, c := range []struct {
				sets []Sigset
				is   bool
			}{{nil, false}, {[]Sigset{set &^ sigbit(unix.SIGHUP)}, false}, {[]Sigset{sigbit(unix.SIGUSR1), set | unblockable}, true}} {
				if k.p.Space.Unblocked(frozen, c.sets...); th.unblocked.is != c.is || c.is && th.unblocked.from != set {
					t.Errorf("of %x it is left: %v, from %x", c.sets, th.unblocked.is, th.unblocked.from)
				}
			}
			th.block()
			if got := must2(th.BlockedSignals()); got != set || th.unblocked.is {
				t.Errorf("it blocks %x, want %x", got, set)
			}
			must(th.BlockSignals(own))
			if got := k.blocks(th.TID); got != own {
				t.Errorf("it blocks %x, before %x", got, own)
			}
			return nil
		})
	})
	k.end()
}
