package kprobes_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/internal/testsize"
	"github.com/gokprobe/gokprobe/kprobes"
)

var (
	rewriting = kprobes.Options{Returns: kprobes.ReturnRewrite}
	automatic = kprobes.Options{Returns: kprobes.ReturnAuto}
)

// relayProgram is testdata/relays.cc. Its functions that jump to others do so.
func relayProgram(t *testing.T) *testprog.Prog {
	t.Helper()
	return testprog.Start(t, testprog.Build(t, "relays", "-O2"))
}

// codeOfNobody is the memory with code that is no file's.
func codeOfNobody(t *testing.T, pid int) (n uint64) {
	t.Helper()
	maps, err := procfs.Maps(pid)
	ok(t, err)
	for _, m := range maps {
		if m.Exec && m.Path == "" {
			n += m.Range.Len()
		}
	}
	return n
}

// TestReturnsIntoGeneratedCode: no breakpoint can stand there. By sites such calls are missed, by rewriting they are followed.
func TestReturnsIntoGeneratedCode(t *testing.T) {
	const rounds, sum = 20, 3*190 + 3*20
	for _, c := range []struct {
		name            string
		opts            kprobes.Options
		returns, missed uint64
	}{
		{"sites", kprobes.Options{Log: func(string) {}}, 0, rounds},
		{"rewrite", rewriting, rounds, 0},
		{"auto", automatic, rounds, 0},
		{"stepped", kprobes.Options{Returns: kprobes.ReturnRewrite, NoBoost: true}, rounds, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			prog := relayProgram(t)
			before := codeOfNobody(t, prog.PID())
			s := attach(t, prog.PID(), c.opts)
			seen := 0
			rp := &kprobes.Kretprobe{KP: kprobes.Kprobe{SymbolName: "from_jit"}}
			rp.EntryHandler = func(ri *kprobes.KretprobeInstance, r *kprobes.Regs) int { return 0 }
			rp.Handler = func(ri *kprobes.KretprobeInstance, r *kprobes.Regs) int {
				if want := uint64(3*seen + 1); r.ReturnValue() != want || r.IP() != ri.RetAddr || r.Place() != ri.RetAddr {
					t.Errorf("call %d returns %d to %s, at %s", seen, r.ReturnValue(), ri.RetAddr, r.IP())
				}
				b := make([]byte, 4)
				if err := r.ReadMemory(ri.RetAddr, b); err != nil || string(b) != "\x48\x83\xc0\x02" {
					t.Errorf("it returns to %x, %v", b, err)
				}
				seen++
				return 0
			}
			registerReturns(t, s, rp)
			wantSays(t, prog, fmt.Sprint("jit ", rounds), fmt.Sprint("jit ", sum))
			wantReturns(t, rp, rounds, c.returns, c.missed)
			closeSession(t, s)
			prog.CheckClean()
			if after := codeOfNobody(t, prog.PID()); after != before {
				t.Errorf("%d bytes of code are left", after-before)
			}
			wantSays(t, prog, fmt.Sprint("jit ", rounds), fmt.Sprint("jit ", sum))
			wantRight(t, prog)
		})
	}
}

// TestOnlyWhereNoBreakpointCanStandIsAnAddressReplaced: a function is called from generated code and from compiled code in turns. Its calls are counted in the target,
// or told of with their results; the compiled callers' end at breakpoints.
func TestOnlyWhereNoBreakpointCanStandIsAnAddressReplaced(t *testing.T) {
	const n = 200
	const sum = 2*(3*n*(n-1)/2+n) + 2*n
	for name, opts := range map[string]kprobes.Options{"jumps": automatic, "breakpoints": {Returns: kprobes.ReturnAuto, NoOptimize: true}, "followed": {Returns: kprobes.ReturnAuto, Follow: true}} {
		t.Run(name, func(t *testing.T) {
			prog := relayProgram(t)
			before := codeOfNobody(t, prog.PID())
			s := attach(t, prog.PID(), opts)
			rp := &kprobes.Kretprobe{KP: kprobes.Kprobe{SymbolName: "from_jit"}}
			registerReturns(t, s, rp)
			for round := range 5 {
				wantSays(t, prog, fmt.Sprint("both ", n), fmt.Sprint("both ", sum))
				wantReturns(t, rp, uint64(2*n*(round+1)), uint64(2*n*(round+1)), 0)
				if !opts.NoOptimize {
					wantOptimized(t, s, &rp.KP)
				}
			}
			closeSession(t, s)
			prog.CheckClean()
			if after := codeOfNobody(t, prog.PID()); after != before {
				t.Errorf("%d bytes of code are left", after-before)
			}
			wantSays(t, prog, fmt.Sprint("both ", n), fmt.Sprint("both ", sum))
			wantRight(t, prog)
		})
	}
}

// TestChosenInFlight: of three calls in flight the middle one's return address is replaced, since its caller is generated code, and is put back when nobody follows it.
func TestChosenInFlight(t *testing.T) {
	for _, f := range []flight{{"return", "let 10"}, {"jump", "let 407"}} {
		for _, end := range []string{"close", "unregister", "none", "follow"} {
			t.Run(f.way+"/"+end, func(t *testing.T) {
				prog := relayProgram(t)
				own := ownCode(t, prog.PID())
				opts := automatic
				opts.Follow = end == "follow"
				s := attach(t, prog.PID(), opts)
				rps := countedFlight() // the calls may be in the target's table
				registerReturns(t, s, rps...)
				for _, rp := range rps {
					wantOptimized(t, s, &rp.KP)
				}
				prog.Do("hold "+f.way+" 7 generated", "held")
				if n := replacedWords(t, prog.PID(), own); n != 1 {
					t.Errorf("%d return addresses are replaced", n)
				}
				switch end {
				case "close":
					closeSession(t, s)
				case "unregister":
					ok(t, s.UnregisterKretprobes(rps))
				}
				if n := replacedWords(t, prog.PID(), own); (end == "close" || end == "unregister") && n != 0 {
					t.Errorf("%d return addresses are replaced still", n)
				}
				wantSays(t, prog, "let", f.says)
				closeSession(t, s)
				prog.CheckClean()
				prog.Do("hold "+f.way+" 7 generated", "held")
				wantSays(t, prog, "let", f.says)
				wantRight(t, prog)
				returns := uint64(1)
				if f.way == "jump" || end == "close" || end == "unregister" {
					returns = 0
				}
				for _, rp := range rps {
					if rp.KP.Hits() != 1 || rp.Hits() != returns {
						t.Errorf("%s: %d entries, %d returns; want 1, %d", rp.KP.SymbolName, rp.KP.Hits(), rp.Hits(), returns)
					}
				}
			})
		}
	}
}

// flight is calls of fl_outer, fl_mid and fl_inner that wait, and how they end.
type flight struct{ way, says string }

var flights = []flight{{"return", "let 10"}, {"throw", "let 107"}, {"jump", "let 407"}, {"exit", "let 207"}, {"fork", "let 10"}}

func flightProbes() (rps []*kprobes.Kretprobe) {
	for _, name := range []string{"fl_outer", "fl_mid", "fl_inner"} {
		rps = append(rps, &kprobes.Kretprobe{KP: kprobes.Kprobe{SymbolName: name}, Handler: func(*kprobes.KretprobeInstance, *kprobes.Regs) int { return 0 }})
	}
	return rps
}

// countedFlight is flightProbes for calls that the target follows.
func countedFlight() []*kprobes.Kretprobe {
	rps := flightProbes()
	for _, rp := range rps {
		rp.Handler = nil
	}
	return rps
}

// replacedWords is how many words of the stacks of threads, which wait, lead into code that is no file's and not the program's own.
func replacedWords(t *testing.T, pid int, own arch.Range) (n int) {
	t.Helper()
	maps, err := procfs.Maps(pid)
	ok(t, err)
	var code []arch.Range
	for _, m := range maps {
		if m.Exec && m.Path == "" && m.Range != own {
			code = append(code, m.Range)
		}
	}
	tids, err := procfs.Tasks(pid)
	ok(t, err)
	mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	ok(t, err)
	defer mem.Close()
	for _, tid := range tids {
		var sp arch.Addr
		testprog.Await(t, "a thread that waits", func() bool {
			sp, _ = procfs.StackPointer(pid, tid)
			return sp != 0
		})
		b := make([]byte, 4096)
		got, _ := mem.ReadAt(b, int64(sp))
		for ; got >= 8; got, b = got-8, b[8:] {
			word := arch.Addr(uint64(b[0]) | uint64(b[1])<<8 | uint64(b[2])<<16 | uint64(b[3])<<24 | uint64(b[4])<<32 | uint64(b[5])<<40)
			for _, r := range code {
				if r.Contains(word) {
					n++
				}
			}
		}
	}
	return n
}

// ownCode is the page that the program has made.
func ownCode(t *testing.T, pid int) arch.Range {
	t.Helper()
	maps, err := procfs.Maps(pid)
	ok(t, err)
	for _, m := range maps {
		if m.Exec && m.Path == "" {
			return m.Range
		}
	}
	t.Fatal("it has made no code")
	return arch.Range{}
}

// TestRewrittenInFlight: calls are in flight when the session ends, the probes are unregistered, or nothing happens. They end as they would have.
func TestRewrittenInFlight(t *testing.T) {
	t.Run("handled", func(t *testing.T) { rewrittenInFlight(t, flightProbes) })
	t.Run("counted", func(t *testing.T) { rewrittenInFlight(t, countedFlight) })
}

func rewrittenInFlight(t *testing.T, probes func() []*kprobes.Kretprobe) {
	t.Helper()
	for _, f := range flights {
		for _, end := range []string{"close", "unregister", "disable", "none", "follow"} {
			t.Run(f.way+"/"+end, func(t *testing.T) {
				prog := relayProgram(t)
				own := ownCode(t, prog.PID())
				opts := rewriting
				opts.Follow = end == "follow"
				s := attach(t, prog.PID(), opts)
				rps := probes()
				registerReturns(t, s, rps...)
				if rps[0].Handler == nil { // the second time the target replaces them
					for range 2 {
						s.WaitForOptimizer(t.Context())
						prog.Do("hold return 7", "held")
						wantSays(t, prog, "let", "let 10")
					}
					s.WaitForOptimizer(t.Context())
				}
				var was [3][3]uint64
				for i, rp := range rps {
					was[i] = [3]uint64{rp.KP.Hits(), rp.Hits(), rp.NMissed()}
				}
				handled := s.Handled()
				prog.Do("hold "+f.way+" 7", "held")
				if n := replacedWords(t, prog.PID(), own); n != len(rps) {
					t.Errorf("%d return addresses are replaced", n)
				}
				if n := s.Handled() - handled; rps[0].Handler == nil && n != 0 {
					t.Errorf("the tracer has dealt with %d hits", n)
				}
				switch end {
				case "close":
					closeSession(t, s)
				case "unregister":
					ok(t, s.UnregisterKretprobes(rps))
				case "disable":
					for _, rp := range rps {
						ok(t, s.DisableKretprobe(rp))
					}
				}
				if end == "close" || end == "unregister" {
					if n := replacedWords(t, prog.PID(), own); n != 0 {
						t.Errorf("%d return addresses are replaced still", n)
					}
				}
				wantSays(t, prog, "let", f.says)
				if end == "close" {
					prog.CheckClean()
				}
				closeSession(t, s)
				prog.CheckClean()
				prog.Do("hold "+f.way+" 7", "held")
				wantSays(t, prog, "let", f.says)
				wantRight(t, prog)
				for i, rp := range rps {
					returns, missed := uint64(1), uint64(0)
					switch {
					case f.way == "throw" && i > 0, f.way == "jump", f.way == "exit":
						returns, missed = 0, 1
					case f.way == "fork" && end == "follow":
						continue // the child's are counted as well
					}
					if end == "close" || end == "unregister" {
						returns, missed = 0, 0
					}
					if hits, left, gone := rp.KP.Hits()-was[i][0], rp.Hits()-was[i][1], rp.NMissed()-was[i][2]; hits != 1 || left != returns || f.way != "jump" && gone != missed {
						t.Errorf("%s: %d entries, %d returns, %d missed; want 1, %d, %d", rp.KP.SymbolName, hits, left, gone, returns, missed)
					}
				}
			})
		}
	}
}

// TestRewrittenWhenTheTracerIsKilled: with a guardian, true addresses come back; without, the target needs nobody for its returns.
func TestRewrittenWhenTheTracerIsKilled(t *testing.T) {
	t.Run("handled", func(t *testing.T) { rewrittenAndKilled(t, false) })
	t.Run("counted", func(t *testing.T) { rewrittenAndKilled(t, true) })
}

func rewrittenAndKilled(t *testing.T, counted bool) {
	t.Helper()
	for _, f := range flights {
		for _, kept := range []string{"guardian", "guard", "recover"} {
			if kept == "guard" && f.way != "return" && f.way != "jump" {
				continue // its unwinder finds true addresses when somebody has put them back
			}
			t.Run(f.way+"/"+kept, func(t *testing.T) {
				prog := relayProgram(t)
				own := ownCode(t, prog.PID())
				settle, kill := startRewriter(t, prog.PID(), kept == "guardian", counted)
				for range 2 { // then the target replaces them itself, if it may
					prog.Do("hold return 7", "held")
					wantSays(t, prog, "let", "let 10")
					settle()
				}
				prog.Do("hold "+f.way+" 7", "held")
				if n := replacedWords(t, prog.PID(), own); n != 3 {
					t.Errorf("%d return addresses are replaced", n)
				}
				kill()
				switch kept {
				case "guardian":
					testprog.Await(t, "an untouched process", func() bool { return untouched(prog.PID()) })
				case "recover":
					_, err := kprobes.Recover(context.Background(), prog.PID())
					ok(t, err)
				}
				if n := replacedWords(t, prog.PID(), own); kept != "guard" && n != 0 {
					t.Errorf("%d return addresses are replaced still", n)
				}
				wantSays(t, prog, "let", f.says)
				if counted && kept == "guard" { // nobody replaces addresses any more: an exception finds true ones
					for _, later := range flights {
						prog.Do("hold "+later.way+" 7", "held")
						if n := replacedWords(t, prog.PID(), own); n != 0 {
							t.Errorf("%d return addresses were replaced when the tracer was dead", n)
						}
						wantSays(t, prog, "let", later.says)
					}
				}
				prog.Do("hold return 7", "held")
				wantSays(t, prog, "let", "let 10")
				if kept == "guard" {
					_, err := kprobes.Recover(context.Background(), prog.PID())
					ok(t, err)
				}
				prog.CheckClean()
				wantRight(t, prog)
			})
		}
	}
}

// startRewriter starts a process that follows the calls of a flight; settle waits for its optimizer, and kill ends it.
func startRewriter(t *testing.T, pid int, withGuardian, counted bool) (settle, kill func()) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestRewriter$", "-test.timeout=30m")
	cmd.Env = append(os.Environ(), "GOKPROBE_REWRITE="+strconv.Itoa(pid))
	if counted {
		cmd.Env = append(cmd.Env, "GOKPROBE_REWRITE_COUNTED=1")
	}
	if withGuardian {
		cmd.Env = append(cmd.Env, guarded+"=1")
	}
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	ok(t, err)
	in, err := cmd.StdinPipe()
	ok(t, err)
	ok(t, cmd.Start())
	lines := bufio.NewReader(out)
	armed := func() {
		t.Helper()
		if line, err := lines.ReadString('\n'); strings.TrimSpace(line) != "armed" {
			t.Fatalf("the tracer says %q, then %v", line, err)
		}
	}
	settle = func() {
		t.Helper()
		fmt.Fprintln(in)
		armed()
	}
	kill = func() {
		if cmd.ProcessState == nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	}
	t.Cleanup(kill)
	armed()
	return settle, kill
}

// TestRewriter is not a test but the process that startRewriter starts.
func TestRewriter(t *testing.T) {
	pid, err := strconv.Atoi(os.Getenv("GOKPROBE_REWRITE"))
	if err != nil {
		return
	}
	s, err := kprobes.Attach(context.Background(), pid, rewriting)
	ok(t, err)
	rps := flightProbes()
	if os.Getenv("GOKPROBE_REWRITE_COUNTED") != "" {
		rps = countedFlight()
	}
	registerReturns(t, s, rps...)
	for asked := bufio.NewScanner(os.Stdin); ; {
		s.WaitForOptimizer(t.Context())
		fmt.Println("armed")
		if !asked.Scan() {
			break
		}
	}
	<-s.Done()
}

// TestRewrittenCallersAreAsked: a function whose return address is replaced jumps to dlsym, which looks up by it who has called. The next
// function of a name is found as ever.
func TestRewrittenCallersAreAsked(t *testing.T) {
	prog := relayProgram(t)
	s := attach(t, prog.PID(), rewriting)
	rp := &kprobes.Kretprobe{KP: kprobes.Kprobe{SymbolName: "ask_next"}}
	registerReturns(t, s, rp)
	for range 2 {
		if got := prog.Do("next", "next"); got != "next 1" {
			t.Errorf("it says %q", got)
		}
	}
	wantReturns(t, rp, 2, 2, 0)
	closeSession(t, s)
	prog.CheckClean()
	wantRight(t, prog)
}

// TestNoHandlerSeesARelay: signals arrive all the time, also where a thread has returned to a relay.
func TestNoHandlerSeesARelay(t *testing.T) {
	t.Run("jumps", func(t *testing.T) { noHandlerSeesARelay(t, rewriting) })
	t.Run("breakpoints", func(t *testing.T) {
		noHandlerSeesARelay(t, kprobes.Options{Returns: kprobes.ReturnRewrite, NoOptimize: true})
	})
}

func noHandlerSeesARelay(t *testing.T, opts kprobes.Options) {
	t.Helper()
	prog := relayProgram(t)
	s := attach(t, prog.PID(), opts)
	rp := &kprobes.Kretprobe{KP: kprobes.Kprobe{SymbolName: "from_jit"}}
	registerReturns(t, s, rp)
	wantSays(t, prog, "signals 300", "signals 24")
	if rp.Hits() == 0 || rp.NMissed() != 0 || rp.Hits() != rp.KP.Hits() {
		t.Errorf("%d entries, %d returns, %d missed", rp.KP.Hits(), rp.Hits(), rp.NMissed())
	}
	closeSession(t, s)
	prog.CheckClean()
	wantRight(t, prog)
}

// TestGoIsNotRewritten: its runtime reads and moves stacks. Breakpoints serve there, also in the program's C functions.
func TestGoIsNotRewritten(t *testing.T) {
	prog := start(t, "gocgo")
	before := codeOfNobody(t, prog.PID())
	s := attach(t, prog.PID(), rewriting)
	var rps []*kprobes.Kretprobe
	for _, name := range []string{"main.cgCall", "cg_outer"} {
		rps = append(rps, &kprobes.Kretprobe{KP: kprobes.Kprobe{SymbolName: name}, MaxActive: 100})
	}
	registerReturns(t, s, rps...)
	prog.Do("run call 5", "ran")
	for _, rp := range rps {
		wantReturns(t, rp, 5, 5, 0)
	}
	if after := codeOfNobody(t, prog.PID()); after != before {
		t.Errorf("%d bytes of code were mapped", after-before)
	}
	closeSession(t, s)
	prog.CheckClean()
	prog.Quit()
}

// countedReturns makes Kretprobes without handlers.
func countedReturns(names ...string) (rps []*kprobes.Kretprobe) {
	for _, name := range names {
		rps = append(rps, &kprobes.Kretprobe{KP: kprobes.Kprobe{SymbolName: name}})
	}
	return rps
}

// TestUnwindersFindAddressesThatTheTargetHasReplaced on stacks of several mappings, and on the stack that a signal was taken on.
func TestUnwindersFindAddressesThatTheTargetHasReplaced(t *testing.T) {
	for _, way := range []string{"throw", "backtrace"} {
		t.Run(way, func(t *testing.T) {
			unprobed := testprog.Start(t, testprog.Build(t, "framings", "-O2"))
			want := unprobed.Do(way, way)
			unprobed.Quit()
			prog := testprog.Start(t, testprog.Build(t, "framings", "-O2"))
			s := attach(t, prog.PID(), rewriting)
			registerReturns(t, s, countedReturns("leaf", "split", "top")...)
			for range 2 {
				for range 2 {
					prog.Do("plain", "plain")
					s.WaitForOptimizer(t.Context())
				}
				handled := s.Handled()
				prog.Do("plain", "plain")
				if n := s.Handled() - handled; n != 0 {
					t.Errorf("the tracer has dealt with %d hits", n)
				}
				if got := prog.Do(way, way); got != want {
					t.Errorf("it says %q, unprobed %q", got, want)
				}
			}
			closeSession(t, s)
			prog.CheckClean()
			if got := prog.Do(way, way); got != want {
				t.Errorf("it says %q then, unprobed %q", got, want)
			}
			prog.Quit()
		})
	}
}

// TestOneOfTwoReplacedCallsInAFrameEnds: the other one's return is met still.
func TestOneOfTwoReplacedCallsInAFrameEnds(t *testing.T) {
	for gone := range 2 {
		prog := testprog.Start(t, testprog.Build(t, "framings", "-O2"))
		s := attach(t, prog.PID(), rewriting)
		rps := countedReturns("first", "last")
		registerReturns(t, s, rps...)
		for range 3 {
			prog.Do("tail", "tail")
			wantSays(t, prog, "let", "let 8")
			s.WaitForOptimizer(t.Context())
		}
		handled := s.Handled()
		prog.Do("tail", "tail")
		if n := s.Handled() - handled; n != 0 {
			t.Errorf("the tracer has dealt with %d hits", n)
		}
		ok(t, s.UnregisterKretprobe(rps[gone]))
		wantSays(t, prog, "let", "let 8")
		wantReturns(t, rps[1-gone], 4, 4, 0)
		closeSession(t, s)
		prog.CheckClean()
		prog.Quit()
	}
}

// TestThreadsUnwindBesideOthersOnOneMapping: whose call is whose can't be told by where the frames are.
func TestThreadsUnwindBesideOthersOnOneMapping(t *testing.T) {
	n := testsize.Rounds(200, 1000, 50_000)
	prog := testprog.Start(t, testprog.Build(t, "framings", "-O2"))
	s := attach(t, prog.PID(), rewriting)
	rps := countedReturns("storm_leaf", "storm_mid")
	registerReturns(t, s, rps...)
	prog.Do("storm 100", "storm 400")
	s.WaitForOptimizer(t.Context())
	wantSays(t, prog, fmt.Sprint("storm ", n), fmt.Sprint("storm ", 4*n))
	closeSession(t, s)
	for _, rp := range rps {
		if all := uint64(4 * (n + 100)); rp.KP.Hits() != all || rp.Hits()+rp.NMissed() != all || rp.Hits() < all*3/4*9/10 {
			t.Errorf("%s: %d entries, %d returns, %d missed of %d", rp.KP.SymbolName, rp.KP.Hits(), rp.Hits(), rp.NMissed(), all)
		}
	}
	prog.CheckClean()
	prog.Quit()
}

// TestALibraryThatReadsStacksComes while the target follows a call whose return address it has replaced: that gets its own one back, is followed still, and no further one is
// replaced.
func TestALibraryThatReadsStacksComes(t *testing.T) {
	code, err := os.ReadFile(testprog.Build(t, "libother.so", "-shared", "-fPIC"))
	ok(t, err)
	reader := t.TempDir() + "/libnode.so.9"
	ok(t, os.WriteFile(reader, code, 0o755))
	prog := testprog.Start(t, testprog.Build(t, "framings", "-O2"))
	s := attach(t, prog.PID(), rewriting)
	rps := countedReturns("first", "last")
	registerReturns(t, s, rps...)
	const before, after = 3, 3
	held := func(replaced int) {
		t.Helper()
		if n := replacedWords(t, prog.PID(), arch.Range{}); n != replaced {
			t.Errorf("%d return addresses are replaced, want %d", n, replaced)
		}
	}
	for range before {
		prog.Do("tail", "tail")
		held(1) // they share a frame
		wantSays(t, prog, "let", "let 8")
		s.WaitForOptimizer(t.Context())
	}
	handled := s.Handled()
	prog.Do("tail", "tail")
	if n := s.Handled() - handled; n != 0 {
		t.Errorf("the tracer has dealt with %d hits", n)
	}
	held(1)
	prog.Do("open "+reader, "open")
	held(0)
	wantSays(t, prog, "let", "let 8")
	for range after {
		prog.Do("tail", "tail")
		held(0)
		wantSays(t, prog, "let", "let 8")
	}
	for _, rp := range rps {
		wantReturns(t, rp, before+1+after, before+1+after, 0)
	}
	closeSession(t, s)
	prog.CheckClean()
	prog.Quit()
}
