package kprobes_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
)

// trapnumbers are the exceptions that a record tells of, by case: those that the program
// raised at the case's own instruction, in order.
func trapnumbers(t testing.TB, prog *testprog.Prog, record []string) map[string][]int {
	t.Helper()
	found := map[string][]int{}
	name := ""
	for _, l := range record {
		if n, _, ok := strings.Cut(l, " "); ok && strings.Contains(l, ": signal ") {
			name = n
		}
		words := strings.Fields(l)
		if len(words) == 0 || words[0] != "at" || l[0] != ' ' {
			continue
		}
		var ip uint64
		var trap int
		if _, err := fmt.Sscanf(words[slices.Index(gregs, "rip")]+" "+words[slices.Index(gregs, "trapno")], "%x %x", &ip, &trap); err != nil {
			t.Fatalf("%q: %v", l, err)
		}
		found[fmt.Sprintf("f_%s %x", name, ip)] = append(found[fmt.Sprintf("f_%s %x", name, ip)], trap)
	}
	return found
}

// TestFaultHandlersThatDecline (B11, B13): for every kind of fault a FaultHandler is called
// with the number of the processor's exception, as the program's own handler finds it in the
// ucontext, at the probed address. It makes no difference to the program, also when it made
// system calls in its name meanwhile.
func TestFaultHandlersThatDecline(t *testing.T) {
	// The signal does not tell these apart: #OF looks like #GP, #NP like #SS.
	alike := map[int]int{4: 13, 11: 12}
	for _, busy := range []bool{false, true} {
		for _, m := range modes {
			t.Run(fmt.Sprintf("%s/busy=%v", m, busy), func(t *testing.T) {
				prog := start(t, "faults")
				all := labels(t, prog)
				want := record(prog)
				s := attach(t, prog.PID(), kprobes.Options{})
				told := map[string][]int{}
				for _, l := range all {
					kp := m.probe(l.name)
					kp.FaultHandler = func(kp *kprobes.Kprobe, r *kprobes.Regs, trapnr int) int {
						if r.IP() != kp.Addr {
							t.Errorf("%s: the IP is %s, want %s", kp.SymbolName, r.IP(), kp.Addr)
						}
						key := fmt.Sprintf("%s %x", kp.SymbolName, uint64(r.IP()))
						told[key] = append(told[key], trapnr)
						if busy {
							allocateAndFree(t, r)
						}
						return 0
					}
					if err := s.RegisterKprobe(kp); err != nil {
						t.Errorf("register: %v", err)
					}
				}
				compareRecords(t, record(prog), want)
				numbers := trapnumbers(t, prog, want)
				compareTraps(t, told, numbers, alike)
				closeSession(t, s)
				wantRight(t, prog)
			})
		}
	}
}

func compareTraps(t testing.TB, told, numbers map[string][]int, alike map[int]int) {
	t.Helper()
	seen := map[int]int{}
	for key, got := range told {
		want := slices.Clone(numbers[key])
		for i, n := range want {
			if as, ok := alike[n]; ok {
				want[i] = as
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: exceptions %v, want %v", key, got, want)
		}
		for _, n := range got {
			seen[n]++
		}
	}
	t.Logf("exceptions by number: %v", seen)
	for _, n := range []int{0, 6, 12, 13, 14, 16, 17, 19} {
		if seen[n] == 0 {
			t.Errorf("exception %d was not raised", n)
		}
	}
}

func allocateAndFree(t testing.TB, r *kprobes.Regs) arch.Addr {
	t.Helper()
	at, err := r.Alloc(1)
	if err != nil {
		t.Errorf("alloc: %v", err)
	}
	if err := r.Free(at, 1); err != nil {
		t.Errorf("free: %v", err)
	}
	return at
}

// mends are cases of the fixture faults, and what removes the cause.
var mends = []struct {
	name string
	mend func(t *testing.T, r *kprobes.Regs) error
	rax  uint64 // with which the case ends
}{
	{"load_gap", func(t *testing.T, r *kprobes.Regs) error { return pointAt(t, r, "rsi", 0x5a5a) }, 0x5a5a},
	{"load_nc", func(t *testing.T, r *kprobes.Regs) error { return pointAt(t, r, "rsi", 0x1234) }, 0x1234},
	{"div_zero", func(_ *testing.T, r *kprobes.Regs) error {
		r.Set("rax", 42)
		r.Set("rdx", 0)
		r.Set("rcx", 6)
		return nil
	}, 7},
	{"ud2", func(_ *testing.T, r *kprobes.Regs) error {
		r.Set("rax", 99)
		r.SetIP(r.IP() + 2)
		return nil
	}, 99},
	{"call_stack_gap", func(t *testing.T, r *kprobes.Regs) error {
		r.Set("rax", 98)
		return pointAt(t, r, "rsp", 0)
	}, 98},
}

// TestFaultHandlersThatMend: the instruction is tried again in the same hit, or the thread
// goes on where the handler sends it. The program gets no signal.
func TestFaultHandlersThatMend(t *testing.T) {
	for _, c := range mends {
		for _, m := range modes {
			t.Run(c.name+"/"+string(m), func(t *testing.T) {
				prog := start(t, "faults")
				runs := len(endsOf(record(prog, c.name)))
				s := attach(t, prog.PID(), kprobes.Options{})
				kp, faults := m.probe("f_"+c.name), 0
				kp.FaultHandler = func(_ *kprobes.Kprobe, r *kprobes.Regs, _ int) int {
					faults++
					if err := c.mend(t, r); err != nil {
						t.Error(err)
					}
					return 1
				}
				register(t, s, kp)
				got := record(prog, c.name)
				for _, l := range got {
					if strings.Contains(l, ": signal") {
						t.Errorf("the program tells of a fault: %s", l)
					}
				}
				ends := endsOf(got)
				for _, rax := range ends {
					if rax != c.rax {
						t.Errorf("rax is %#x at the end, want %#x", rax, c.rax)
					}
				}
				if len(ends) < runs || faults != len(ends) {
					t.Errorf("%d ends, %d faults; without a probe there were %d", len(ends), faults, runs)
				}
				wantHits(t, kp, uint64(faults))
				if n := kp.NMissed(); n != 0 {
					t.Errorf("%d missed; no handler has accessed memory in vain", n)
				}
				closeSession(t, s)
				wantRight(t, prog)
			})
		}
	}
}

// endsOf is rax at the end of each run in a record.
func endsOf(record []string) (rax []uint64) {
	for _, l := range record {
		var v uint64
		if _, end, ok := strings.Cut(l, ": end "); ok {
			if _, err := fmt.Sscanf(end, "%x", &v); err == nil {
				rax = append(rax, v)
			}
		}
	}
	return rax
}

// pointAt makes a register point into new memory that holds v.
func pointAt(t *testing.T, r *kprobes.Regs, name string, v uint64) error {
	t.Helper()
	at, err := r.Alloc(8192)
	if err != nil {
		return err
	}
	at += 4096
	r.Set(name, uint64(at))
	return r.WriteUint64(at, v)
}

const nowhere = 0x1000

// accesses are the ways in which a handler reaches target memory.
var accesses = map[string]func(r *kprobes.Regs, at arch.Addr) error{
	"read":   func(r *kprobes.Regs, at arch.Addr) error { return r.ReadMemory(at, make([]byte, 3)) },
	"word":   func(r *kprobes.Regs, at arch.Addr) error { _, err := r.ReadUint64(at); return err },
	"string": func(r *kprobes.Regs, at arch.Addr) error { _, err := r.ReadString(at, 10); return err },
	"write":  func(r *kprobes.Regs, at arch.Addr) error { return r.WriteMemory(at, []byte("abc")) },
}

// TestFaultsOfHandlers (B12, B14): an access to target memory that a handler can't make counts
// as missed and asks the FaultHandler of that probe, no other's. It may mend the cause; else the
// handler gets the error.
func TestFaultsOfHandlers(t *testing.T) {
	for name := range accesses {
		for _, when := range []string{"pre", "post"} {
			for _, mended := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%s/mended=%v", name, when, mended), func(t *testing.T) {
					faultOfAHandler(t, name, when, mended)
				})
			}
		}
	}
}

func faultOfAHandler(t *testing.T, name, when string, mended bool) {
	prog := start(t, "prey")
	s := attach(t, prog.PID(), kprobes.Options{})
	at := arch.Addr(nowhere)
	if mended {
		at = freedPage(t, s)
	}
	var got error
	kp := handlersAt(when, func(r *kprobes.Regs) { got = accesses[name](r, at) })
	calls, others := 0, 0
	kp.FaultHandler = func(_ *kprobes.Kprobe, r *kprobes.Regs, trapnr int) int {
		if calls++; trapnr != 14 {
			t.Errorf("trapnr is %d, want 14", trapnr)
		}
		if err := r.ReadMemory(nowhere, make([]byte, 1)); err == nil {
			t.Error("a FaultHandler could read where nothing is")
		}
		if !mended {
			return 0
		}
		if again, err := r.Alloc(4096); err != nil || again != at {
			t.Errorf("allocated at %s, %v; want %s", again, err, at)
		}
		return 1
	}
	other := handlersAt(when, func(*kprobes.Regs) {})
	other.FaultHandler = func(*kprobes.Kprobe, *kprobes.Regs, int) int { others++; return 1 }
	register(t, s, kp, other)
	if ret := prog.Do("call target 30", "ret"); ret != "ret 10" {
		t.Errorf("got %q", ret)
	}
	var fault *arch.FaultError
	if mended != (got == nil) || !mended && !errors.As(got, &fault) {
		t.Errorf("the access said %v", got)
	}
	if calls != 1 || others != 0 || kp.NMissed() != 1 || other.NMissed() != 0 || kp.Hits() != 1 {
		t.Errorf("called %d times, the other %d; missed %d and %d; %d hits", calls, others, kp.NMissed(), other.NMissed(), kp.Hits())
	}
}

func handlersAt(when string, act func(*kprobes.Regs)) *kprobes.Kprobe {
	kp := &kprobes.Kprobe{SymbolName: "target"}
	if when == "pre" {
		kp.PreHandler = func(_ *kprobes.Kprobe, r *kprobes.Regs) int { act(r); return 0 }
	} else {
		kp.PostHandler = func(_ *kprobes.Kprobe, r *kprobes.Regs, _ uint64) { act(r) }
	}
	return kp
}

// freedPage is where the kernel puts the next page that is asked for.
func freedPage(t *testing.T, s *kprobes.Session) arch.Addr {
	t.Helper()
	register(t, s, boosted.probe("target2")) // our own region is mapped
	at, err := s.Alloc(4096)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Free(at, 4096); err != nil {
		t.Fatal(err)
	}
	return at
}

// TestFaultsOfOtherReaders: without a FaultHandler an access that fails is not a miss; and a
// backtrace, which reads as far as it can, is no handler's access.
func TestFaultsOfOtherReaders(t *testing.T) {
	prog := start(t, "prey")
	s := attach(t, prog.PID(), kprobes.Options{})
	plain := handlersAt("pre", func(r *kprobes.Regs) { _, _ = r.ReadUint64(1) })
	traces := handlersAt("pre", func(r *kprobes.Regs) {
		if f := r.Backtrace(64); len(f) < 2 {
			t.Errorf("only %d frames", len(f))
		}
	})
	traces.FaultHandler = func(*kprobes.Kprobe, *kprobes.Regs, int) int {
		t.Error("a backtrace has called a FaultHandler")
		return 1
	}
	register(t, s, plain, traces)
	prog.Do("call target 30", "ret")
	if plain.NMissed() != 0 || traces.NMissed() != 0 {
		t.Errorf("missed %d and %d, want none", plain.NMissed(), traces.NMissed())
	}
}
