package kprobes_test

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
)

const sumIs = "ret 8987654321"

// sumProbe is a Jprobe on the fixture's function with stack arguments.
func sumProbe(body func(regs *kprobes.Regs, j int)) *kprobes.Jprobe {
	return &kprobes.Jprobe{
		KP:    kprobes.Kprobe{SymbolName: "sum"},
		Entry: func(regs *kprobes.Regs, a, b, c, d, e, f, g, h, i, j int) { body(regs, j) },
	}
}

// TestJprobesLeaveNoTrace (B38, B41): registers and the first 64 bytes of the stack are put
// back, what lies behind is not, however the body ends.
func TestJprobesLeaveNoTrace(t *testing.T) {
	const slots = 12
	for name, end := range map[string]func(s *kprobes.Session){
		"returns":      func(*kprobes.Session) {},
		"JprobeReturn": func(*kprobes.Session) { kprobes.JprobeReturn() },
		"panics":       func(*kprobes.Session) { panic("of the test") },
		"closes":       func(s *kprobes.Session) { _ = s.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			prog := start(t, "jprobe")
			s := attach(t, prog.PID(), kprobes.Options{Log: func(string) {}})
			var before, after [slots]uint64
			var sp kprobes.Ptr
			look := func(regs *kprobes.Regs, words *[slots]uint64) {
				for i := range words {
					words[i], _ = regs.ReadUint64(sp + kprobes.Ptr(8*i))
				}
			}
			jp := sumProbe(func(regs *kprobes.Regs, _ int) {
				sp = regs.SP()
				look(regs, &before)
				// Over the return address and the arguments, in pieces that overlap.
				for _, off := range []int64{0, 4, 20, 36, 44, 56} {
					if err := regs.WriteMemory(sp.Add(off), []byte("overwritten!")); err != nil {
						t.Error(err)
					}
				}
				for _, reg := range regs.Names() {
					if !strings.HasSuffix(reg, "s") && !strings.HasSuffix(reg, "_base") {
						regs.Set(reg, 0x4141)
					}
				}
				end(s)
			})
			if err := s.RegisterJprobe(jp); err != nil {
				t.Fatal(err)
			}
			// A PostHandler behind the first instruction sees the stack first.
			jp2 := &kprobes.Kprobe{SymbolName: "sum", PostHandler: func(_ *kprobes.Kprobe, regs *kprobes.Regs, _ uint64) { look(regs, &after) }}
			register(t, s, jp2)
			if got := prog.Do("sum", "ret"); got != sumIs {
				t.Errorf("got %q, want %q", got, sumIs)
			}
			if name != "closes" {
				for i := range before {
					if same := before[i] == after[i]; same != (i != 8) {
						t.Errorf("word %d of the stack was %#x and is %#x", i, before[i], after[i])
					}
				}
			}
			closeSession(t, s)
			prog.CheckClean()
			wantRight(t, prog)
		})
	}
}

// TestJprobeReturnEndsTheBody (B39, B42) from a function that it calls, and nothing else.
func TestJprobeReturnEndsTheBody(t *testing.T) {
	prog := start(t, "jprobe")
	var log []string
	s := attach(t, prog.PID(), kprobes.Options{Log: testprog.ButUprobes(func(m string) { log = append(log, m) })})
	got := 0
	jp := sumProbe(func(_ *kprobes.Regs, j int) {
		defer func() { got++ }()
		func() {
			got += j
			kprobes.JprobeReturn()
		}()
		got += 1000
	})
	if err := s.RegisterJprobe(jp); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		prog.Do("sum", "ret")
	}
	if got != 3*9 || jp.KP.Hits() != 3 || len(log) > 0 {
		t.Errorf("got %d, %d hits, log %q; want 27, 3, none", got, jp.KP.Hits(), log)
	}
	// Outside of a body it is a panic.
	kp := &kprobes.Kprobe{SymbolName: "sum", PreHandler: func(*kprobes.Kprobe, *kprobes.Regs) int {
		kprobes.JprobeReturn()
		return 0
	}}
	register(t, s, kp)
	prog.Do("sum", "ret")
	if len(log) != 1 || !strings.Contains(log[0], "outside of a Jprobe's Entry") || kp.Flags&kprobes.FlagDisabled == 0 {
		t.Errorf("log %q, flags %d", log, kp.Flags)
	}
	wantRight(t, prog)
}

// TestJprobesRunLast (B17, B19, B41): behind all Kprobes, whose changes of registers they
// see and which may keep them from running.
func TestJprobesRunLast(t *testing.T) {
	prog := start(t, "jprobe")
	s := attach(t, prog.PID(), kprobes.Options{})
	var order string
	answer := 0
	probe := func(name string, f func(regs *kprobes.Regs) int) *kprobes.Kprobe {
		return &kprobes.Kprobe{SymbolName: "sum", PreHandler: func(_ *kprobes.Kprobe, regs *kprobes.Regs) int {
			order += name
			return f(regs)
		}}
	}
	register(t, s, probe("a", func(*kprobes.Regs) int { return 0 }))
	jp := sumProbe(func(regs *kprobes.Regs, j int) {
		v, _ := regs.Arg(0)
		order += fmt.Sprintf("j%d.%d", v, j)
		regs.SetArg(0, 7)
	})
	post := ""
	jp.KP.PostHandler = func(_ *kprobes.Kprobe, regs *kprobes.Regs, _ uint64) {
		v, _ := regs.Arg(0)
		post += fmt.Sprintf("p%d", v)
	}
	if err := s.RegisterJprobe(jp); err != nil {
		t.Fatal(err)
	}
	register(t, s, probe("b", func(regs *kprobes.Regs) int {
		regs.SetArg(0, 2)
		if answer != 0 { // as if sum had returned 5
			regs.SetReturnValue(5)
			back, _ := regs.ReadUint64(regs.SP())
			regs.SetIP(kprobes.Ptr(back))
			regs.SetSP(regs.SP() + 8)
		}
		return answer
	}))
	if got := prog.Do("sum", "ret"); got != "ret 8987654322" || order != "baj2.8" || post != "p2" {
		t.Errorf("got %q, handlers %q, %q", got, order, post)
	}
	answer = 1
	if got := prog.Do("sum", "ret"); got != "ret 5" || order != "baj2.8b" || post != "p2" {
		t.Errorf("got %q, handlers %q, %q", got, order, post)
	}
	closeSession(t, s)
	prog.CheckClean()
	wantRight(t, prog)
}

// TestJprobesAreRefused (A61 to A64).
func TestJprobesAreRefused(t *testing.T) {
	prog := start(t, "jprobe")
	s := attach(t, prog.PID(), kprobes.Options{})
	sum := func(a, b, c, d, e, f, g, h, i, j int) {}
	body := symbol(t, s, "sum") + 1
	for boundary := false; !boundary; body++ {
		kp := &kprobes.Kprobe{Addr: body}
		boundary = s.RegisterKprobe(kp) == nil
		_ = s.UnregisterKprobe(kp)
	}
	body--
	var none func()
	for _, c := range []struct {
		why   string
		at    string
		addr  kprobes.Ptr
		entry any
		want  error
		errno unix.Errno
		says  string
	}{
		{"no Entry", "sum", 0, nil, kprobes.ErrEntryType, unix.EINVAL, "it is <nil>"},
		{"a nil Entry", "none", 0, none, kprobes.ErrEntryType, unix.EINVAL, "it is func()"},
		{"no func", "sum", 0, 1, kprobes.ErrEntryType, unix.EINVAL, "it is int"},
		{"a result", "none", 0, func() int { return 0 }, kprobes.ErrEntryType, unix.EINVAL, "it is func() int"},
		{"too few", "sum", 0, func(int) {}, kprobes.ErrEntryType, unix.EINVAL, "sum(long int a, long int b,"},
		{"another size", "small", 0, func(int16, uint8, int16, uint16, int32, uint32, int64, bool, bool) {},
			kprobes.ErrEntryType, unix.EINVAL, "parameter 1: signed char has 1 bytes and can't be read as int16"},
		{"Regs not first", "variadic", 0, func(int32, *kprobes.Regs) {}, kprobes.ErrEntryType, unix.EINVAL, "parameter 2"},
		{"not an entry", "", body, sum, kprobes.ErrNotEntry, unix.EINVAL, "not the entry"},
		{"unknown symbol", "no_such", 0, sum, kprobes.ErrUnknownSymbol, unix.ENOENT, "no_such"},
		{"no place", "", 0, sum, kprobes.ErrNoAddrOrSymbol, unix.EINVAL, "neither"},
		{"both", "sum", 1, sum, kprobes.ErrBothAddrAndSymbol, unix.EINVAL, "both"},
		{"unmapped", "", 4096, sum, kprobes.ErrNotMapped, unix.EINVAL, "no mapping"},
	} {
		jp := &kprobes.Jprobe{KP: kprobes.Kprobe{SymbolName: c.at, Addr: c.addr}, Entry: c.entry}
		err := s.RegisterJprobe(jp)
		if !errors.Is(err, c.want) || !errors.Is(err, c.errno) || !strings.Contains(fmt.Sprint(err), c.says) {
			t.Errorf("%s: error %v, want %v with %q", c.why, err, c.want, c.says)
		}
	}
	if err := s.RegisterJprobes(t.Context(), nil); !errors.Is(err, unix.EINVAL) {
		t.Errorf("none: error %v, want EINVAL", err)
	}
}

// TestOneJprobeAtAnAddress (A63), also within a batch, of which then nothing is left (A45).
func TestOneJprobeAtAnAddress(t *testing.T) {
	prog := start(t, "jprobe")
	s := attach(t, prog.PID(), kprobes.Options{})
	counter := func() *kprobes.Jprobe { return sumProbe(func(*kprobes.Regs, int) {}) }
	first := counter()
	var said []string
	other := recorder("none", reflect.TypeFor[func()](), &said)
	if err := s.RegisterJprobes(t.Context(), []*kprobes.Jprobe{other, first, counter()}); !errors.Is(err, kprobes.ErrJprobeExists) {
		t.Errorf("a batch with two at an address: error %v", err)
	}
	prog.Do("call none", "got")
	if prog.Do("sum", "ret"); len(said) > 0 || first.KP.Hits() > 0 {
		t.Errorf("probes of a refused batch are hit: %q, %d", said, first.KP.Hits())
	}
	first.KP.Addr, first.KP.Flags = 0, 0 // as after any unregistration (A39)
	if err := s.RegisterJprobe(first); err != nil {
		t.Fatal(err)
	}
	if err := s.RegisterJprobe(first); !errors.Is(err, kprobes.ErrRegistered) {
		t.Errorf("registered twice: error %v", err)
	}
	second := counter()
	if err := s.RegisterJprobe(second); !errors.Is(err, kprobes.ErrJprobeExists) || !errors.Is(err, unix.EEXIST) {
		t.Errorf("a second at the address: error %v", err)
	}
	prog.Do("sum", "ret")
	if err := s.UnregisterJprobe(first); err != nil {
		t.Fatal(err)
	}
	if err := s.RegisterJprobe(second); err != nil {
		t.Errorf("after the first is gone: %v", err)
	}
	prog.Do("sum", "ret")
	if first.KP.Hits() != 1 || second.KP.Hits() != 1 {
		t.Errorf("hits %d and %d, want 1 and 1", first.KP.Hits(), second.KP.Hits())
	}
	if err := s.UnregisterJprobes([]*kprobes.Jprobe{second, counter()}); err != nil {
		t.Error(err)
	}
	prog.Do("sum", "ret")
	closeSession(t, s)
	prog.CheckClean()
	wantRight(t, prog)
}

// TestJprobesAreEnabledAndDisabled (B45), and registered disabled.
func TestJprobesAreEnabledAndDisabled(t *testing.T) {
	prog := start(t, "jprobe")
	s := attach(t, prog.PID(), kprobes.Options{})
	ran := 0
	jp := sumProbe(func(*kprobes.Regs, int) { ran++ })
	jp.KP.Flags = kprobes.FlagDisabled
	step := func(name string, err error, want int) {
		t.Helper()
		if prog.Do("sum", "ret"); err != nil || ran != want {
			t.Errorf("%s: error %v, %d runs, want %d", name, err, ran, want)
		}
	}
	if err := s.EnableJprobe(jp); !errors.Is(err, unix.EINVAL) {
		t.Errorf("enabled before registration: %v", err)
	}
	step("registered disabled", s.RegisterJprobe(jp), 0)
	step("enabled", s.EnableJprobe(jp), 1)
	step("enabled again", s.EnableJprobe(jp), 2)
	step("disabled", s.DisableJprobe(jp), 2)
	step("enabled", s.EnableJprobe(jp), 3)
	closeSession(t, s)
	prog.CheckClean()
	wantRight(t, prog)
}

// TestJprobesInThreadsAndChildren: every call is a hit, in a followed child too.
func TestJprobesInThreadsAndChildren(t *testing.T) {
	prog := start(t, "jprobe")
	s := attach(t, prog.PID(), kprobes.Options{Follow: true})
	n, bad, pids := 0, 0, map[int]int{}
	jp := &kprobes.Jprobe{KP: kprobes.Kprobe{SymbolName: "sum"}}
	jp.Entry = func(regs *kprobes.Regs, a, b, c, d, e, f, g, h, i, j int) {
		n++
		pids[regs.PID()]++
		if [10]int{a, b, c, d, e, f, g, h, i, j} != [10]int{1, 2, 3, 4, 5, 6, 7, 8, 9, 8} {
			bad++
		}
		for k := range 8 { // another's registers and stack would be disturbed by now
			_ = regs.WriteUint64(regs.SP()+kprobes.Ptr(8*k), 0)
		}
		regs.SetArg(1, 0)
	}
	if err := s.RegisterJprobe(jp); err != nil {
		t.Fatal(err)
	}
	prog.Do("busy 500", "did 500")
	if got := prog.Do("fork", "status"); got != "status 0" || n != 2001 || bad != 0 || len(pids) != 2 || jp.KP.Hits() != 2001 {
		t.Errorf("%s, %d runs, %d wrong, %d processes; want status 0, 2001, 0, 2", got, n, bad, len(pids))
	}
	closeSession(t, s)
	prog.CheckClean()
	wantRight(t, prog)
}

// TestJprobesBesideKretprobes: the return is followed first, and the body changes nothing of it.
func TestJprobesBesideKretprobes(t *testing.T) {
	prog := start(t, "jprobe")
	s := attach(t, prog.PID(), kprobes.Options{})
	order := ""
	rp := &kprobes.Kretprobe{
		KP:           kprobes.Kprobe{SymbolName: "sum"},
		EntryHandler: func(*kprobes.KretprobeInstance, *kprobes.Regs) int { order += "e"; return 0 },
		Handler: func(_ *kprobes.KretprobeInstance, regs *kprobes.Regs) int {
			order += fmt.Sprintf("r%d", regs.ReturnValue())
			return 0
		},
	}
	jp := sumProbe(func(regs *kprobes.Regs, j int) {
		order += fmt.Sprintf("j%d", j)
		_ = regs.WriteUint64(regs.SP(), 0) // the return address
	})
	if err := s.RegisterJprobe(jp); err != nil {
		t.Fatal(err)
	}
	if err := s.RegisterKretprobe(rp); err != nil {
		t.Fatal(err)
	}
	if got := prog.Do("sum", "ret"); got != sumIs || order != "ej8r8987654321" || rp.NMissed() != 0 {
		t.Errorf("got %q, handlers %q, %d missed", got, order, rp.NMissed())
	}
	closeSession(t, s)
	prog.CheckClean()
	wantRight(t, prog)
}

// TestJprobesThatMeetTheStacksEnd: a hit whose arguments can't be read is missed.
func TestJprobesThatMeetTheStacksEnd(t *testing.T) {
	prog := testprog.Start(t, testprog.Build(t, "jprobe", "-g0"))
	s := attach(t, prog.PID(), kprobes.Options{})
	ran := 0
	jp := &kprobes.Jprobe{KP: kprobes.Kprobe{SymbolName: "sum"}, Entry: func(struct{ b [60000]byte }) { ran++ }}
	if err := s.RegisterJprobe(jp); err != nil {
		t.Fatal(err)
	}
	if got := prog.Do("sum", "ret"); got != sumIs || ran != 0 || jp.KP.Hits() != 1 || jp.KP.NMissed() != 1 {
		t.Errorf("got %q, %d runs, %d hits, %d missed; want none run, 1 hit, 1 missed", got, ran, jp.KP.Hits(), jp.KP.NMissed())
	}
	closeSession(t, s)
	prog.CheckClean()
	wantRight(t, prog)
}

// TestJprobesThatUnregisterThemselves, and register another in their place.
func TestJprobesThatUnregisterThemselves(t *testing.T) {
	prog := start(t, "jprobe")
	s := attach(t, prog.PID(), kprobes.Options{})
	second := sumProbe(func(*kprobes.Regs, int) {})
	var first *kprobes.Jprobe
	first = sumProbe(func(regs *kprobes.Regs, _ int) {
		regs.SetArg(0, 0)
		if err := errors.Join(s.UnregisterJprobe(first), s.RegisterJprobe(second)); err != nil {
			t.Error(err)
		}
	})
	if err := s.RegisterJprobe(first); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if got := prog.Do("sum", "ret"); got != sumIs {
			t.Errorf("got %q", got)
		}
	}
	if first.KP.Hits() != 1 || second.KP.Hits() != 1 {
		t.Errorf("hits %d and %d, want 1 and 1", first.KP.Hits(), second.KP.Hits())
	}
	closeSession(t, s)
	prog.CheckClean()
	wantRight(t, prog)
}
