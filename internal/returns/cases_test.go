package returns

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/gokprobe/gokprobe/internal/testprog"
)

// program is a fixture that plays rounds of its cases.
type program struct {
	fixture string
	flags   []string
	prefix  string // of its functions' names
	library string // a fixture that is its argument
	cases   []playing
}

// playing is one case. calls has for each function the calls of one round, and how many of
// them don't return or can't be followed: "outer 1, inner 2 1".
type playing struct {
	name      string
	calls     string
	maxActive int    // 0: 100
	strict    bool   // all calls nest: the last to begin is the first to return
	warns     string // what the session may warn of
	survives  bool   // under the naive tracer
	lucky     bool   // so it does, if no scan of its stack comes in the way
}

const restorer = "are missed" // handlers of signals return to the code that calls it

var programs = []program{
	{fixture: "jumps", cases: []playing{
		{name: "longjmp", calls: "lj_outer 1, lj_mid 1 1, lj_inner 1 1", survives: true},
		{name: "loop", calls: "lo_outer 1, lo_inner 1001 1000", maxActive: 4, survives: true},
		{name: "cut", calls: "cut_down 9 4", maxActive: 9, survives: true},
		{name: "siglongjmp", calls: "sj_outer 1, sj_inner 1 1, sj_handler 1 1, sj_leave 1 1", survives: true},
		{name: "altstack", calls: "as_work 1, as_called 2, as_handler 1", survives: true},
		{name: "coroutine", calls: "co_body 1, co_yield 5, co_resume 6"},
		{name: "ring", calls: "ri_pass 12 2, ri_go 3 2"},
		{name: "threads", calls: "mt_body 1 1, mt_switch 10 1, mt_resume 10"},
		{name: "orphan", calls: "or_body 1, or_leave 2, or_resume 3"},
	}},
	{fixture: "tails", flags: []string{"-O2"}, cases: []playing{
		{name: "chain", calls: "ch_first 1, ch_mid 1, ch_last 1", strict: true, survives: true},
		{name: "mutual", calls: "mu_even 21, mu_odd 20", strict: true, survives: true},
		{name: "self", calls: "se_self 21", strict: true, survives: true},
		{name: "pointer", calls: "po_call 2, po_twice 1, po_thrice 1", strict: true, survives: true},
		{name: "recursion", calls: "re_down 31, re_step 30", strict: true, survives: true},
		{name: "plt", calls: "pl_length 1", strict: true, survives: true},
		{name: "fall", calls: "fa_first 1, fa_last 2", strict: true, survives: true},
	}},
	{fixture: "ends", cases: []playing{
		{name: "pthread_exit", calls: "pe_outer 1 1, pe_inner 1 1", survives: true},
		{name: "cancel", calls: "ca_outer 2 2, ca_wait 1 1, ca_spin 1 1", survives: true},
		{name: "thread", calls: "th_outer 1 1, th_inner 1 1", survives: true},
		{name: "vfork", calls: "vf_outer 1, vf_end 1 1, vf_back 1, vf_exec 1 1"},
		{name: "fork", calls: "fo_outer 1, fo_inner 1"},
		{name: "spawn", calls: "sp_system 1, sp_spawn 1", survives: true},
		{name: "deep", calls: "de_down 100 90", maxActive: 10, survives: true},
		{name: "backtrace", calls: "bt_outer 1, bt_mid 1, bt_inner 1", strict: true},
	}},
	{fixture: "ends", flags: []string{"-fexceptions"}, cases: []playing{ // the cleanup handlers are in the unwinder's hands
		{name: "pthread_exit", calls: "pe_outer 1 1, pe_inner 1 1"},
		{name: "cancel", calls: "ca_outer 2 2, ca_wait 1 1, ca_spin 1 1"},
	}},
	{fixture: "throws", library: "throwlib", cases: []playing{
		{name: "above", calls: "ab_outer 2, ab_mid 2 1, ab_inner 2 1"},
		{name: "rethrow", calls: "rt_outer 1, rt_down 6 6"},
		{name: "destructor", calls: "de_outer 1, de_mid 1 1, de_drop 7, de_throw 7 7"},
		{name: "pointer", calls: "ep_outer 1, ep_thread 1, ep_inner 1 1, ep_again 1 1"},
		{name: "threads", calls: "th_outer 80, th_mid 80 80, th_inner 80 80"},
		{name: "library", calls: "li_outer 1, li_callback 2 1, tl_through 2 1, tl_throws 2 2"},
		{name: "forced", calls: "fo_outer 2 2, fo_inner 2 2"},
	}},
	{fixture: "coro20", flags: []string{"-std=c++20"}, cases: []playing{
		{name: "generator", calls: "cr_sum 2, cr_next 10 1, cr_check 9 1, _Z10cr_numbersll 3"},
		{name: "threads", calls: "ct_step 6, cr_next 6, cr_check 5, _Z10cr_numbersll 1", strict: true, survives: true},
	}},
	{fixture: "unwind", cases: []playing{
		{name: "catch", calls: "ca_outer 2, ca_mid 2 1, ca_inner 2 1, ca_drop 6"},
		{name: "resume", calls: "rs_down 6 6"},
		{name: "thread", calls: "th_outer 2 1, th_inner 2 1"},
		{name: "closure", calls: "cl_outer 1, cl_call 1 1"},
	}},
	{fixture: "gounwind", prefix: "main.", cases: []playing{
		{name: "grow", calls: "grDown 501", maxActive: 501},
		{name: "recover", calls: "reOuter 2, reMid 2 1, reInner 2 1"},
		{name: "deep", calls: "dpOuter 1, dpDown 200 200, dpDefer 20", maxActive: 200},
		{name: "nested", calls: "neOuter 1, neMid 1 1, neInner 1 1"},
		{name: "goexit", calls: "geOuter 1 1, geInner 1 1"},
		{name: "collect", calls: "gcOuter 1, gcInner 1, grDown 201", maxActive: 201},
		{name: "locked", calls: "loOuter 20, loInner 20"},
		{name: "migrate", calls: "miOuter 50, miInner 50"},
		{name: "blocked", calls: "blWait 10000", maxActive: 10000},
		{name: "preempt", calls: "prSpin 3"},
		{name: "head", calls: "heLoop 1", strict: true, lucky: true},
		{name: "callers", calls: "caOuter 1, caMid 1, caInner 1", strict: true},
		{name: "results", calls: "rsMany 1, rsStruct 1", strict: true, lucky: true},
		{name: "iterate", calls: "itNext 6, itYield 5, itSeq 2, itSeq.func1 2 1"},
		{name: "closures", calls: "clApply 2, adder.clAdd 2", lucky: true},
	}},
	{fixture: "gocgo", cases: []playing{
		{name: "call", calls: "main.cgCall 1, cg_outer 1, cg_inner 2, main.cbGo 1, main.cbDown 101", maxActive: 101},
		{name: "panic", calls: "main.cgRecover 1, main.cgCall 1 1, cg_outer 1 1, cg_inner 1, main.cbGo 1 1, main.cbPanic 1 1"},
		{name: "threads", calls: "main.cgCall 10, cg_outer 10, cg_inner 20, main.cbGo 10, main.cbDown 1010", maxActive: 1010},
	}},
}

// eachCase runs f for all cases.
func eachCase(t *testing.T, f func(t *testing.T, p program, c playing)) {
	for _, p := range programs {
		for _, c := range p.cases {
			t.Run(strings.Join(append([]string{p.fixture}, p.flags...), " ")+"/"+c.name, func(t *testing.T) { f(t, p, c) })
		}
	}
}

// command is the program with its arguments.
func (p program) command(t testing.TB) []string {
	t.Helper()
	args := []string{testprog.Build(t, p.fixture, p.flags...)}
	if p.library != "" {
		args = append(args, testprog.Build(t, p.library, "-shared", "-fPIC"))
	}
	return args
}

func (p program) start(t testing.TB) *testprog.Prog {
	t.Helper()
	args := p.command(t)
	return testprog.Start(t, args[0], args[1:]...)
}

// count is what is known of a function's calls in one round.
type count struct {
	function       string
	calls, missing uint64
}

func (p program) counts(t testing.TB, c playing) []count {
	t.Helper()
	var all []count
	for _, text := range strings.Split(c.calls, ", ") {
		n := count{}
		if k, _ := fmt.Sscan(text, &n.function, &n.calls, &n.missing); k < 2 {
			t.Fatalf("what is %q?", text)
		}
		n.function = p.prefix + n.function
		all = append(all, n)
	}
	return all
}

// play has the program play n rounds of a case, and returns its answer.
func play(prog *testprog.Prog, c playing, n int) string {
	return prog.Do(fmt.Sprintf("run %s %d", c.name, n), "ran")
}

// TestNaiveTracer: which of the programs break when return addresses are rewritten. The
// others show that the naive tracer does its work.
func TestNaiveTracer(t *testing.T) {
	const rounds = 3
	eachCase(t, func(t *testing.T, p program, c playing) {
		args, input := p.command(t), fmt.Sprintf("run %s %d\n", c.name, rounds)
		unprobed := exec.Command(args[0], args[1:]...)
		unprobed.Stdin = strings.NewReader(input)
		want, err := unprobed.Output()
		if err != nil {
			t.Fatalf("unprobed: %v", err)
		}
		var functions []string
		returning := false
		for _, n := range p.counts(t, c) {
			functions = append(functions, n.function)
			returning = returning || n.calls > n.missing
		}
		hangs := 10 * time.Second
		if c.survives { // however long it takes
			hangs = testprog.Patience
		}
		out, end, returns := runNaive(t, args, input, functions, hangs)
		t.Logf("%s, after %d returns", describe(out, end), returns)
		if same := out == string(want) && end == 0; same != c.survives && !c.lucky {
			t.Errorf("same as unprobed: %v, want %v", same, c.survives)
		}
		if c.survives && returning && returns == 0 {
			t.Error("no return was seen")
		}
	})
}
