package kprobes_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/internal/testsize"
	"github.com/gokprobe/gokprobe/kprobes"
)

// label is an instruction of the fixture faults, and how often "run" executes it.
type label struct {
	name string
	runs uint64
}

func labels(t testing.TB, prog *testprog.Prog) []label {
	t.Helper()
	prog.Send("list")
	var all []label
	for _, line := range untilDid(prog) {
		var l label
		if _, err := fmt.Sscanf(line, "label %s %d", &l.name, &l.runs); err != nil {
			t.Fatalf("a line of the list is %q: %v", line, err)
		}
		all = append(all, l)
	}
	if len(all) < 100 {
		t.Fatalf("only %d labels", len(all))
	}
	return all
}

// untilDid reads what a command prints, up to "did".
func untilDid(prog *testprog.Prog) []string {
	var lines []string
	for line := prog.Line(); line != "did"; line = prog.Line() {
		lines = append(lines, line)
	}
	return lines
}

// record has the fixture run a case, or all of them.
func record(prog *testprog.Prog, only ...string) []string {
	prog.Send(strings.Join(append([]string{"run"}, only...), " "))
	return untilDid(prog)
}

// cases splits a record into what was printed for each case in each mode. The lines of a
// case's signals and of its end start with its name; others begin with a space.
func cases(record []string) (names []string, lines map[string][]string) {
	lines = map[string][]string{}
	name := ""
	for _, l := range record {
		if n, _, ok := strings.Cut(l, ":"); ok && l[0] != ' ' {
			name = n
		}
		if lines[name] == nil {
			names = append(names, name)
		}
		lines[name] = append(lines[name], l)
	}
	return names, lines
}

// compareRecords reports the cases that differ, and by what at first.
func compareRecords(t testing.TB, got, want []string) {
	t.Helper()
	_, g := cases(got)
	names, w := cases(want)
	for _, name := range names {
		for i := range max(len(g[name]), len(w[name])) {
			if i >= len(g[name]) || i >= len(w[name]) {
				t.Errorf("%s: %d lines, want %d", name, len(g[name]), len(w[name]))
			} else if g[name][i] != w[name][i] {
				t.Errorf("%s: %s", name, difference(g[name][i], w[name][i]))
				break
			}
		}
	}
	if len(g) != len(w) {
		t.Errorf("%d cases ran, want %d", len(g), len(w))
	}
}

// gregs are the words of a record's line of registers, in the order of ucontext_t.
var gregs = strings.Fields("at r8 r9 r10 r11 r12 r13 r14 r15 rdi rsi rbp rbx rdx rax rcx rsp rip eflags csgsfs err trapno oldmask cr2")

// difference names the words of two lines that are not the same.
func difference(got, want string) string {
	g, w := strings.Fields(got), strings.Fields(want)
	if len(g) != len(w) {
		return fmt.Sprintf("\n got  %q\n want %q", got, want)
	}
	var out []string
	for i := range w {
		if g[i] == w[i] {
			continue
		}
		what := fmt.Sprintf("word %d", i)
		if w[0] == "at" && i < len(gregs) {
			what = gregs[i]
		} else if i > 0 {
			what += " after " + w[i-1]
		}
		out = append(out, fmt.Sprintf("%s is %s, want %s", what, g[i], w[i]))
	}
	return strings.Join(out, "; ")
}

// TestFaultsTellTheTruth: every kind of fault, raised by a probed instruction, is told to the
// program as it is without a probe: signal, siginfo, all of the ucontext, memory, and what
// follows when the handler goes on behind the instruction, mends the cause, or jumps away.
func TestFaultsTellTheTruth(t *testing.T) {
	for _, m := range modes {
		t.Run(string(m), func(t *testing.T) {
			prog := start(t, "faults")
			all := labels(t, prog)
			want := record(prog)
			compareRecords(t, record(prog), want) // or nothing below means anything
			s := attach(t, prog.PID(), kprobes.Options{NoOptimize: true})
			var kps []*kprobes.Kprobe
			for _, l := range all {
				kp := m.probe(l.name)
				if err := s.RegisterKprobe(kp); err != nil {
					t.Errorf("register: %v", err)
					continue
				}
				kps = append(kps, kp)
			}
			compareRecords(t, record(prog), want)
			for _, l := range all {
				if i := slices.IndexFunc(kps, func(kp *kprobes.Kprobe) bool { return kp.SymbolName == l.name }); i >= 0 {
					wantHits(t, kps[i], l.runs)
				}
			}
			closeSession(t, s)
			prog.CheckClean()
			compareRecords(t, record(prog), want)
			wantRight(t, prog)
		})
	}
}

// TestFaultWithoutAHandlerKills: the process ends by the signal that ends it unprobed, also
// where there is no stack for a handler.
func TestFaultWithoutAHandlerKills(t *testing.T) {
	for _, name := range strings.Fields("load_gap store_bus push_gap call_stack_gap call_stack_nc ret_nc ret_null jmp_nx div_zero divss fdiv ud2 int1 int4 hlt movaps") {
		t.Run(name, func(t *testing.T) {
			want := dieOf(t, name, nil)
			if want.Signal == 0 {
				t.Fatalf("unprobed it ended with %+v", want)
			}
			if name == "call_stack_nc" && start(t, "faults").Do("resumes", "resumes") == "resumes 0" {
				want.Signal = unix.SIGSEGV // by which whoever is resumed there ends, after a stop of anybody's
			}
			for _, m := range modes {
				if got := dieOf(t, name, m.probe("f_"+name)); got.Signal != want.Signal {
					t.Errorf("%s: it ended with %+v, want %+v", m, got, want)
				}
			}
		})
	}
}

func dieOf(t *testing.T, name string, kp *kprobes.Kprobe) testprog.Exit {
	t.Helper()
	prog := start(t, "faults")
	if kp != nil {
		s := attach(t, prog.PID(), kprobes.Options{})
		if err := s.RegisterKprobe(kp); err != nil {
			t.Errorf("register: %v", err)
		}
		defer func() { <-s.Done() }()
	}
	prog.Send("die " + name)
	return prog.Wait()
}

// TestOwnBreakpointsAreRefused: the processor can't tell them from ours.
func TestOwnBreakpointsAreRefused(t *testing.T) {
	prog := start(t, "faults")
	s := attach(t, prog.PID(), kprobes.Options{})
	for _, name := range []string{"own_int3", "own_cd03"} {
		err := s.RegisterKprobe(boosted.probe(name))
		if !errors.Is(err, kprobes.ErrException) || !errors.Is(err, unix.EILSEQ) {
			t.Errorf("%s: %v, want ErrException and EILSEQ", name, err)
		}
	}
	if testprog.BesideUprobes() {
		// In a process that has a uprobe, wherever, the kernel takes a trap for one of an instruction of one byte, and has the thread go on at the second
		// byte of the program's int $3 (handle_swbp of Linux 6.18). That is the program's end without us as well.
		return
	}
	if got := prog.Do("breakpoints", "traps"); got != "traps 2" {
		t.Errorf("the program says %q", got)
	}
	if prog.Line() != "did" {
		t.Error("the command did not end")
	}
}

// TestHitInAHandlerOfSIGTRAP: the handler runs with SIGTRAP blocked, as handlers do, and our
// breakpoint in it neither unblocks the signal nor resets its action.
func TestHitInAHandlerOfSIGTRAP(t *testing.T) {
	for _, m := range modes {
		t.Run(string(m), func(t *testing.T) {
			prog := start(t, "faults")
			want := record(prog, "int1_inner")
			s := attach(t, prog.PID(), kprobes.Options{})
			for _, name := range []string{"h_push", "h_call", "h_leaf"} {
				register(t, s, m.probe(name))
			}
			for range 3 {
				compareRecords(t, record(prog, "int1_inner"), want)
			}
			closeSession(t, s)
			compareRecords(t, record(prog, "int1_inner"), want)
			wantRight(t, prog)
		})
	}
}

// TestManyFaults: signals arrive in the slots, in the handlers, and on the way to both.
func TestManyFaults(t *testing.T) {
	rounds := testsize.Rounds(1, 3, 50)
	prog := start(t, "faults")
	all := labels(t, prog)
	want := record(prog)
	s := attach(t, prog.PID(), kprobes.Options{NoOptimize: true})
	var kps []*kprobes.Kprobe
	for i, l := range all {
		kps = append(kps, modes[i%2].probe(l.name))
	}
	register(t, s, kps...)
	stop := flood(prog)
	for n := 0; n < rounds || !t.Failed() && number(t, prog.Do("users", "users"), "users") < 100; n++ { // on a busy machine they arrive slowly
		compareRecords(t, record(prog), want)
	}
	stop()
	closeSession(t, s)
	wantRight(t, prog)
}

// flood sends SIGUSR1 to a program without a pause, until the returned function is called.
func flood(prog *testprog.Prog) (stop func()) {
	quit, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-quit:
				return
			default:
				if err := prog.Signal(syscall.SIGUSR1); err != nil {
					return
				}
			}
		}
	}()
	return func() { close(quit); <-ended }
}
