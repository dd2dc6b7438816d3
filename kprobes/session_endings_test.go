package kprobes_test

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/internal/testsize"
	"github.com/gokprobe/gokprobe/kprobes"
)

// TestHandlersThatEndTheSession: the thread that hit goes on where it would have, whichever way
// its instruction is run and whichever handler ends the session.
func TestHandlersThatEndTheSession(t *testing.T) {
	sites := []struct{ symbol, command string }{
		{"raw_getpid", "calls"}, {"raw_getpid_insn", "calls"}, {"raw_getpid_insn+2", "calls"}, // mov, syscall, ret
		{"step_jump", "step"}, {"jump_insn", "step"}, // pushf; jmp in a program that traces itself
		{"divide", "divide"}, {"own_int3+1", "own"},
	}
	for _, at := range sites {
		for _, last := range []string{"pre", "pre that skips", "post"} {
			t.Run(at.symbol+" "+last, func(t *testing.T) {
				prog := start(t, "interrupts")
				prog.Do("handler", "did")
				s := attach(t, prog.PID(), kprobes.Options{})
				end := sync.OnceFunc(func() { closeSession(t, s) })
				kp := &kprobes.Kprobe{SymbolName: at.symbol}
				switch last {
				case "pre":
					kp.PreHandler = func(*kprobes.Kprobe, *kprobes.Regs) int { end(); return 0 }
				case "pre that skips": // to where it was anyway
					kp.PreHandler = func(kp *kprobes.Kprobe, r *kprobes.Regs) int { r.SetIP(kp.Addr); end(); return 1 }
				default:
					kp.PostHandler = func(*kprobes.Kprobe, *kprobes.Regs, uint64) { end() }
				}
				register(t, s, kp)
				prog.Send(at.command)
				<-s.Done()
				prog.Send("hello")
				prog.Expect("did") // the command's
				prog.Expect("did")
				wantRight(t, prog)
			})
		}
	}
}

// TestSessionsComeAndGoInASelfTracingProgram: attach, probe every third instruction, and close,
// over and over, while the program single-steps itself.
func TestSessionsComeAndGoInASelfTracingProgram(t *testing.T) {
	rounds := testsize.Rounds(15, 150, 3000)
	prog := start(t, "traceflag")
	want := withoutRF(record(prog))
	end := comeAndGo(t, prog, func(s *kprobes.Session, i int) (kps []*kprobes.Kprobe) {
		for j, at := range instructions(t, s, prog, "tf_block") {
			if (i+j)%3 == 0 {
				kps = append(kps, modes[(i+j)/3%2].probeAt(at))
			}
		}
		return kps
	})
	defer end()
	for range rounds {
		if compareSteps(t, withoutRF(record(prog)), want); t.Failed() {
			break
		}
	}
}

// TestSessionsComeAndGoAmongFaults: the same with a program that faults all the time.
func TestSessionsComeAndGoAmongFaults(t *testing.T) {
	rounds := testsize.Rounds(2, 10, 200)
	prog := start(t, "faults")
	all := labels(t, prog)
	want := withoutPresence(record(prog))
	end := comeAndGo(t, prog, func(_ *kprobes.Session, i int) (kps []*kprobes.Kprobe) {
		for j, l := range all {
			if (i+j)%3 == 0 {
				kps = append(kps, modes[(i+j)/3%2].probe(l.name))
			}
		}
		return kps
	})
	defer end()
	for range rounds {
		if compareRecords(t, withoutPresence(record(prog)), want); t.Failed() {
			break
		}
	}
}

// TestSessionsComeAndGoAroundAHandlerOfSIGTRAP: a session may begin while the program is in the handler, where it blocks the signal, and end while
// it stands at a breakpoint behind. It is not left to block it: its next trap would be its end.
func TestSessionsComeAndGoAroundAHandlerOfSIGTRAP(t *testing.T) {
	rounds := testsize.Rounds(20, 300, 6000)
	prog := start(t, "faults")
	all := labels(t, prog)
	want := map[string][]string{"int1": nil, "int1_inner": nil, "hlt": nil}
	for name := range want {
		want[name] = withoutPresence(record(prog, name))
	}
	end := comeAndGo(t, prog, func(_ *kprobes.Session, i int) (kps []*kprobes.Kprobe) {
		for j, l := range all {
			if (i+j)%3 == 0 {
				kps = append(kps, modes[(i+j)/3%2].probe(l.name))
			}
		}
		return kps
	})
	defer end()
	for i := 0; i < rounds && !t.Failed(); i++ {
		for name := range want {
			compareRecords(t, withoutPresence(record(prog, name)), want[name])
		}
	}
}

// withoutPresence clears, in the error codes of page faults, whether the page was present. A session that begins looks into the
// mappings that it has seen listed, which makes a page present where the program has another mapping by then.
func withoutPresence(record []string) []string {
	code, trap := slices.Index(gregs, "err"), slices.Index(gregs, "trapno")
	for i, line := range record {
		words := strings.Fields(line)
		if len(words) != len(gregs) || words[0] != gregs[0] || words[trap] != "e" {
			continue
		}
		if v, err := strconv.ParseUint(words[code], 16, 64); err == nil {
			words[code] = strconv.FormatUint(v&^1, 16)
			record[i] = " " + strings.Join(words, " ")
		}
	}
	return record
}

// comeAndGo attaches and closes sessions with the given probes until end is called.
func comeAndGo(t *testing.T, prog *testprog.Prog, probes func(*kprobes.Session, int) []*kprobes.Kprobe) (end func()) {
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			s, err := kprobes.Attach(context.Background(), prog.PID(), kprobes.Options{Log: testprog.NoWarnings(t)})
			if err != nil {
				t.Errorf("attach: %v", err)
				return
			}
			if err := s.RegisterKprobes(t.Context(), probes(s, i)); err != nil {
				t.Errorf("register: %v", err)
			}
			closeSession(t, s)
		}
	}()
	return func() {
		close(stop)
		<-ended
		prog.CheckClean()
		wantRight(t, prog)
	}
}

// withoutRF clears the resume flag, which a trap that is told a little later may have set.
func withoutRF(steps []string) []string {
	for i := range steps {
		steps[i] = strings.Replace(steps[i], "flags 10", "flags ", 1)
	}
	return steps
}

// TestQueuedSignalsKeepTheirOrderAtCalls: real-time signals are first in, first out (signal(7)), also
// in front of a probed system call.
func TestQueuedSignalsKeepTheirOrderAtCalls(t *testing.T) {
	for _, m := range modes {
		t.Run(string(m), func(t *testing.T) {
			prog := start(t, "interrupts")
			s := attach(t, prog.PID(), kprobes.Options{})
			register(t, s, m.probe("raw_getpid"), m.probe("raw_getpid_insn"), m.probe("raw_getpid_insn+2"))
			prog.Do("queue 3000", "did 3000")
			closeSession(t, s)
			wantRight(t, prog)
		})
	}
}

// TestOurCallsPassUserDispatch: the program lets no system call pass; those that it makes for
// us do, and its handler of SIGSYS neither runs nor is lost.
func TestOurCallsPassUserDispatch(t *testing.T) {
	prog := start(t, "interrupts")
	if prog.Do("dispatch", "did") == "did -1" {
		t.Log("the kernel has no syscall user dispatch")
		return
	}
	prog.Do("spin", "going")
	s := attach(t, prog.PID(), kprobes.Options{})
	register(t, s, boosted.probe("raw_getpid_insn"))
	closeSession(t, s)
	if err := prog.Signal(syscall.SIGALRM); err != nil {
		t.Fatal(err)
	}
	prog.Expect("did")
	wantRight(t, prog)
}
