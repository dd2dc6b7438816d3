package kprobes_test

import (
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/ptrace"
)

// TestFlagsHaveTheKernelsValues (A3).
func TestFlagsHaveTheKernelsValues(t *testing.T) {
	got := []kprobes.Flags{kprobes.FlagGone, kprobes.FlagDisabled, kprobes.FlagOptimized, kprobes.FlagOnFuncEntry}
	if want := []kprobes.Flags{1, 2, 4, 16}; !slices.Equal(got, want) {
		t.Errorf("flags %v, want %v", got, want)
	}
}

// TestFieldsOfAKprobe (A1, A4, A5, A14): what registration does with each of them.
func TestFieldsOfAKprobe(t *testing.T) {
	prog := start(t, "conform")
	s := attach(t, prog.PID(), kprobes.Options{})
	at := symbol(t, s, "at_go_next")
	kp := &kprobes.Kprobe{Addr: at - 4, Offset: 4, Flags: ^kprobes.FlagDisabled}
	kp.PreHandler = func(_ *kprobes.Kprobe, r *kprobes.Regs) int { _, _ = r.ReadUint64(1); return 0 }
	kp.FaultHandler = func(*kprobes.Kprobe, *kprobes.Regs, int) int { return 0 }
	register(t, s, kp)
	if kp.Addr != at || kp.Flags != 0 {
		t.Errorf("placed at %s with flags %d, want %s and none", kp.Addr, kp.Flags, at)
	}
	if st := s.Status(kp); !strings.HasPrefix(st.Instruction, "add") || st.FuncEntry || st.Addr != at {
		t.Errorf("the status is %+v", st)
	}
	for range 3 {
		prog.Do("call go_next 30", "ret")
	}
	if kp.Hits() != 3 || kp.NMissed() != 3 {
		t.Errorf("%d hits, %d missed, want 3 of both", kp.Hits(), kp.NMissed())
	}
	if err := s.UnregisterKprobe(kp); err != nil {
		t.Fatal(err)
	}
	kp.Flags, kp.Offset = 0, 0
	register(t, s, kp)
	if kp.Hits() != 0 || kp.NMissed() != 0 {
		t.Errorf("%d hits, %d missed after registration, want none", kp.Hits(), kp.NMissed())
	}
}

// TestHandlersMayBeNil (A9): a probe without handlers counts.
func TestHandlersMayBeNil(t *testing.T) {
	prog := start(t, "conform")
	s := attach(t, prog.PID(), kprobes.Options{})
	kp := &kprobes.Kprobe{SymbolName: "third"}
	register(t, s, kp)
	prog.Do("call third 30", "ret")
	wantHits(t, kp, 1)
}

// TestAFailedRegistrationLeavesTheProbeAsItWas (A16 is not reproduced): the same call again has
// the same answer.
func TestAFailedRegistrationLeavesTheProbeAsItWas(t *testing.T) {
	prog := start(t, "conform")
	s := attach(t, prog.PID(), kprobes.Options{})
	kp := &kprobes.Kprobe{SymbolName: "go_next", Offset: 1}
	for range 2 {
		if err := s.RegisterKprobe(kp); !errors.Is(err, unix.EILSEQ) || kp.Addr != 0 {
			t.Errorf("%v with address %s, want EILSEQ and none", err, kp.Addr)
		}
	}
}

// TestUndecodableCodeInFront (A25): what stands between a function's start and the probe must be
// instructions.
func TestUndecodableCodeInFront(t *testing.T) {
	prog := start(t, "conform")
	s := attach(t, prog.PID(), kprobes.Options{})
	err := s.RegisterKprobe(&kprobes.Kprobe{Addr: symbol(t, s, "undecodable") + 3})
	if !errors.Is(err, kprobes.ErrUndecodable) || !errors.Is(err, unix.EILSEQ) {
		t.Errorf("got %v, want ErrUndecodable and EILSEQ", err)
	}
	if got := prog.Do("call undecodable 3", "ret"); got != "ret 11" {
		t.Errorf("got %q", got)
	}
}

// TestCodeOutsideOfEverySymbol can be probed, unlike in the kernel (A13): it may be a
// just-in-time compiler's.
func TestCodeOutsideOfEverySymbol(t *testing.T) {
	for _, m := range modes {
		prog := start(t, "conform")
		page := arch.Addr(number(t, prog.Do("page", "at"), "at"))
		s := attach(t, prog.PID(), kprobes.Options{})
		kps := []*kprobes.Kprobe{m.probeAt(page), m.probeAt(page + 4)}
		register(t, s, kps...)
		if got := prog.Do("run 5", "ret"); got != "ret 14" {
			t.Errorf("%s: got %q", m, got)
		}
		wantHits(t, kps[0], 1)
		wantHits(t, kps[1], 1)
		closeSession(t, s)
		wantRight(t, prog)
	}
}

// TestNoHandlerRunsAfterUnregister (A40), while 8 threads hit all the time.
func TestNoHandlerRunsAfterUnregister(t *testing.T) {
	for _, m := range modes {
		t.Run(string(m), func(t *testing.T) {
			prog := start(t, "threads", "8")
			s := attach(t, prog.PID(), kprobes.Options{})
			prog.Send("start")
			for range 100 {
				var gone atomic.Bool
				hit := make(chan struct{}, 1)
				kp := m.probe("foo")
				kp.PreHandler = func(*kprobes.Kprobe, *kprobes.Regs) int {
					select {
					case hit <- struct{}{}:
					default:
					}
					if gone.Load() {
						t.Error("a handler runs after UnregisterKprobe")
					}
					return 0
				}
				register(t, s, kp)
				<-hit
				if err := s.UnregisterKprobe(kp); err != nil {
					t.Error(err)
				}
				gone.Store(true)
			}
			prog.Do("stop", "calls")
			closeSession(t, s)
			wantRight(t, prog)
		})
	}
}

// TestPostHandlersForceStepping (B6, B21, A42), as long as there is one that is enabled.
func TestPostHandlersForceStepping(t *testing.T) {
	prog := start(t, "conform")
	s := attach(t, prog.PID(), kprobes.Options{})
	plain, post := boosted.probe("go_next"), stepped.probe("go_next")
	want := func(mechanism kprobes.Mechanism) {
		t.Helper()
		if got := s.Status(plain); got.Mechanism != mechanism {
			t.Errorf("the mechanism is %s (%s), want %s", got.Mechanism, got.Reason, mechanism)
		}
		if got := prog.Do("call go_next 30", "ret"); got != "ret 33" {
			t.Errorf("got %q", got)
		}
	}
	register(t, s, plain)
	want(kprobes.Boosted)
	register(t, s, post)
	want(kprobes.Int3)
	if err := s.DisableKprobe(post); err != nil {
		t.Fatal(err)
	}
	want(kprobes.Boosted)
	if err := s.EnableKprobe(post); err != nil {
		t.Fatal(err)
	}
	want(kprobes.Int3)
	if err := s.UnregisterKprobe(post); err != nil {
		t.Fatal(err)
	}
	want(kprobes.Boosted)
	wantHits(t, plain, 5)
}

// TestBatchesOfOddKinds (A44, A45, A46): none at all; a failure in the middle; bad ones among
// those to remove.
func TestBatchesOfOddKinds(t *testing.T) {
	prog := start(t, "conform")
	s := attach(t, prog.PID(), kprobes.Options{})
	if err := s.RegisterKprobes(t.Context(), nil); !errors.Is(err, unix.EINVAL) {
		t.Errorf("registering none: %v, want EINVAL", err)
	}
	if err := s.UnregisterKprobes(nil); err != nil {
		t.Errorf("unregistering none: %v", err)
	}
	first, bad, last := boosted.probe("third"), boosted.probe("go_next"), boosted.probe("counted")
	bad.Offset = 1
	if err := s.RegisterKprobes(t.Context(), []*kprobes.Kprobe{first, bad, last}); !errors.Is(err, unix.EILSEQ) {
		t.Errorf("got %v, want EILSEQ", err)
	}
	if last.Addr != 0 || last.Flags != 0 || !errors.Is(s.EnableKprobe(first), kprobes.ErrNotRegistered) {
		t.Errorf("the last probe has address %s and flags %d; the first is registered", last.Addr, last.Flags)
	}
	first = boosted.probe("third")
	register(t, s, first, last)
	stranger := &kprobes.Kprobe{Addr: 4711}
	if err := s.UnregisterKprobes([]*kprobes.Kprobe{first, stranger, last}); err != nil {
		t.Error(err)
	}
	prog.Do("call third 30", "ret")
	prog.Do("call counted 30", "ret")
	wantHits(t, first, 0)
	wantHits(t, last, 0)
	if stranger.Addr != 0 {
		t.Errorf("the stranger's address is %s", stranger.Addr)
	}
}

// TestTheBreakpointGoesWithTheLastEnabledProbe (A41, A50, B23, B24): disabled ones stay
// registered, and an enabled one that comes arms the site again.
func TestTheBreakpointGoesWithTheLastEnabledProbe(t *testing.T) {
	prog := start(t, "conform")
	s := attach(t, prog.PID(), kprobes.Options{NoOptimize: true})
	at := symbol(t, s, "third")
	plain := codeAt(t, prog.PID(), at)
	armed := func(want bool) {
		t.Helper()
		if now := codeAt(t, prog.PID(), at); (now == 0xcc) != want || !want && now != plain {
			t.Errorf("the code is %#x, want a breakpoint: %v", now, want)
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	a, b, c := boosted.probe("third"), boosted.probe("third"), boosted.probe("third")
	register(t, s, a, b)
	armed(true)
	must(s.DisableKprobe(a))
	must(s.DisableKprobe(a)) // twice is once (A48)
	armed(true)
	must(s.DisableKprobe(b))
	armed(false)
	for _, kp := range []*kprobes.Kprobe{a, b} {
		if st := s.Status(kp); st.Addr != at || st.Flags != kprobes.FlagDisabled {
			t.Errorf("a disabled probe's status is %+v", st)
		}
	}
	register(t, s, c)
	armed(true)
	prog.Do("call third 30", "ret")
	must(s.UnregisterKprobe(c))
	armed(false)
	must(s.EnableKprobe(a))
	armed(true)
	prog.Do("call third 30", "ret")
	must(s.UnregisterKprobe(a))
	must(s.UnregisterKprobe(b))
	armed(false)
	for i, kp := range []*kprobes.Kprobe{a, b, c} {
		wantHits(t, kp, []uint64{1, 0, 1}[i])
	}
	if err := s.DisableKprobe(a); !errors.Is(err, unix.EINVAL) {
		t.Errorf("disabling what is not registered: %v, want EINVAL (A47)", err)
	}
}

func codeAt(t *testing.T, pid int, at arch.Addr) byte {
	t.Helper()
	var b [1]byte
	if err := (ptrace.PeekMemory{PID: pid}).ReadMemory(at, b[:]); err != nil {
		t.Fatal(err)
	}
	return b[0]
}

// TestGoneProbes (A3, A49): they can't be enabled, count as disabled, and can be removed.
func TestGoneProbes(t *testing.T) {
	prog := start(t, "execer")
	s := attach(t, prog.PID(), kprobes.Options{})
	kp := boosted.probe("foo")
	register(t, s, kp)
	prog.Do("exec", "ready")
	if st := s.Status(kp); st.Flags&kprobes.FlagGone == 0 {
		t.Errorf("the status is %+v, want it gone", st)
	}
	if err := s.EnableKprobe(kp); !errors.Is(err, kprobes.ErrGone) || !errors.Is(err, unix.EINVAL) {
		t.Errorf("enabling it: %v, want ErrGone and EINVAL", err)
	}
	prog.Do("call 3", "ret")
	wantHits(t, kp, 0)
	if err := s.UnregisterKprobe(kp); err != nil {
		t.Error(err)
	}
	kp.Addr, kp.Flags = 0, 0
	register(t, s, kp)
	prog.Do("call 3", "ret")
	wantHits(t, kp, 1)
}

// TestNoMemoryForTheSlot (A29): ENOMEM, and nothing is left.
func TestNoMemoryForTheSlot(t *testing.T) {
	prog := start(t, "conform")
	s := attach(t, prog.PID(), kprobes.Options{})
	var before unix.Rlimit
	limit := unix.Rlimit{Cur: 4096, Max: unix.RLIM_INFINITY}
	if err := unix.Prlimit(prog.PID(), unix.RLIMIT_AS, &limit, &before); err != nil {
		t.Fatal(err)
	}
	kp := boosted.probe("third")
	if err := s.RegisterKprobe(kp); !errors.Is(err, kprobes.ErrNoSlot) || !errors.Is(err, unix.ENOMEM) {
		t.Errorf("got %v, want ErrNoSlot and ENOMEM", err)
	}
	if err := unix.Prlimit(prog.PID(), unix.RLIMIT_AS, &before, nil); err != nil {
		t.Fatal(err)
	}
	register(t, s, kp)
	prog.Do("call third 30", "ret")
	wantHits(t, kp, 1)
}
