package main

import (
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/internal/testprog"
)

// returnLine is the text of a return: its probe and the value.
var returnLine = regexp.MustCompile(`^\S+  \S+ +(\S+) +ret=(.*) duration=(?:~<?)?[0-9.]+(?:ns|µs|ms|s)$`)

// The oracle is the target, which prints the results that it got.
func TestReturnedValuesAreWhatTheProgramGot(t *testing.T) {
	for _, c := range []struct {
		fixture string
		flags   []string
	}{
		{"cvalues", nil},
		{"cvalues", []string{"-O2", "-fcf-protection"}},
		{"cxxvalues", nil},
		{"cxxvalues", []string{"-O0"}},
		{"govalues", nil},
		{"govalues", []string{"-gcflags=-N -l"}},
	} {
		p := testprog.Start(t, testprog.Build(t, c.fixture, c.flags...))
		dry := said(p, "call 5")
		args := []string{"-ret"}
		for name := range dry {
			args = append(args, "-sym", name)
		}
		l := attachTo(t, p, args...)
		for _, command := range []string{"call 5", "call 2"} {
			want := said(p, command)
			for len(want) > 0 {
				line := l.line()
				m := returnLine.FindStringSubmatch(line)
				if m == nil || want[m[1]] != m[2] {
					t.Fatalf("%s %v: %q, the target got %q", c.fixture, c.flags, line, want)
				}
				delete(want, m[1])
			}
		}
		if r := l.interrupt(); r.status != 0 || r.stdout != "" {
			t.Errorf("%s: status %d, stdout %q, stderr %q", c.fixture, r.status, r.stdout, r.stderr)
		}
		p.CheckClean()
		p.Quit()
	}
}

// said is what a fixture prints of one command, up to its result, by function.
func said(p *testprog.Prog, command string) map[string]string {
	out := map[string]string{}
	p.Send(command)
	for {
		line := p.Line()
		// A C++ or Go name may hold anything but a blank.
		name, value, _ := strings.Cut(line, " ")
		if name == "ret" {
			return out
		}
		out[name] = value
	}
}

func TestAReturnIsARecordWithAllItsFields(t *testing.T) {
	p := prey(t)
	before := testprog.TakeSnapshot(t, p.PID())
	l := attachTo(t, p, "-ret", "-sym", "foo", "-format", "json")
	p.Do("call foo -3", "ret -5")
	var h hitLine
	strictly(t, l.line(), &h)
	if h.Type != "hit" || h.Kind != "kretprobe" || h.Probe != "foo" || h.PID != p.PID() || h.TID != p.PID() || h.Time.IsZero() ||
		!strings.HasPrefix(h.Symbol, "foo+0x") || string(h.Args) != "{}" || string(h.Results) != `{"ret":-5}` {
		t.Errorf("hit %+v", h)
	}
	if h.Ret == nil || *h.Ret != -5 || h.Duration == nil || *h.Duration <= 0 {
		t.Errorf("ret %v, duration %v", h.Ret, h.Duration)
	}
	_, sum := records(t, l.interrupt().stdout)
	if s := sum.Probes[0]; s.Kind != "kretprobe" || s.Probe != "foo" || s.Hits != 1 || s.NMissed != 0 || s.Addr != h.Addr || s.Symbol != h.Symbol {
		t.Errorf("summary %+v", sum)
	}
	before.Compare(t, p.PID())
	p.CheckClean()
	p.Quit()
}

func TestRetIsTheIntegerOfItsTypeOrAllOfRax(t *testing.T) {
	for _, c := range []struct {
		flags   []string
		ret     int64
		results string
	}{
		{nil, -5, `{"ret":-5}`},          // an int: the upper half of rax has no meaning
		{[]string{"-g0"}, 1<<32 - 5, ``}, // nothing says that it is one
	} {
		p := testprog.Start(t, testprog.Build(t, "cvalues", c.flags...))
		l := attachTo(t, p, "-sym", "negative%return", "-format", "json")
		said(p, "call 5")
		var h hitLine
		strictly(t, l.line(), &h)
		if h.Ret == nil || *h.Ret != c.ret || string(h.Results) != c.results || h.Probe != "negative%return" {
			t.Errorf("%v: %+v", c.flags, h)
		}
		l.interrupt()
		p.Quit()
	}
}

func TestArgumentsOfAReturnAreThoseOfTheEntry(t *testing.T) {
	for _, c := range []struct {
		fixture, sym, args string
		calls              int
	}{
		{"cvalues", "in_memory", `{"b":{"a":1,"b":2,"c":3},"v":5}`, 1},
		{"cvalues", "text", `{"s":"results","v":5}`, 1},
		{"cxxvalues", "values::Counter::add", ``, 1},
		{"govalues", "main.parse", `{"s":"text","v":5}`, 1},
		{"cvalues", "outer", ``, 6},
		{"govalues", "main.deep", ``, 6},
	} {
		p := testprog.Start(t, testprog.Build(t, c.fixture))
		l := attachTo(t, p, "-ret", "-args", "-sym", c.sym, "-format", "json")
		said(p, "call 5")
		for i := range c.calls {
			var h hitLine
			strictly(t, l.line(), &h)
			want := c.args
			switch {
			case c.calls > 1: // the innermost returns first
				want = `{"v":` + string(rune('0'+i)) + `}`
			case want == "":
				var args struct {
					This string
					V    int
				}
				strictly(t, string(h.Args), &args)
				if !strings.HasPrefix(args.This, "0x") || args.V != 5 {
					t.Errorf("%s: arguments %s", c.sym, h.Args)
				}
				continue
			}
			if string(h.Args) != want {
				t.Errorf("%s: arguments %s, not %s", c.sym, h.Args, want)
			}
		}
		_, sum := records(t, l.interrupt().stdout)
		if s := sum.Probes[0]; s.Hits != uint64(c.calls) || s.NMissed != 0 {
			t.Errorf("summary %+v", s)
		}
		p.CheckClean()
		p.Quit()
	}
}

func TestACallThatForksReturnsTwice(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "cvalues"))
	l := attachTo(t, p, "-follow", "-sym", "twice%return", "-args", "-format", "json")
	for range 3 {
		child, err := strconv.Atoi(strings.TrimPrefix(p.Do("fork 7", "child "), "child "))
		if err != nil {
			t.Fatal(err)
		}
		returned := map[int]int64{}
		for range 2 {
			var h hitLine
			strictly(t, l.line(), &h)
			if h.Ret == nil || h.Duration == nil || *h.Duration <= 0 || string(h.Args) != `{"v":7}` {
				t.Fatalf("hit %+v", h)
			}
			returned[h.PID] = *h.Ret
		}
		if returned[p.PID()] != int64(child) || returned[child] != 0 || len(returned) != 2 {
			t.Errorf("it returned %v in the processes, the child is %d", returned, child)
		}
	}
	l.interrupt()
	p.CheckClean()
	p.Quit()
}

func TestFollowProbesReturnsOfTheProgramThatIsExecuted(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "execer"))
	l := attachTo(t, p, "-sym", "foo%return", "-follow", "-format", "json")
	p.Do("exec", "ready 1")
	p.Do("call 2", "ret 27")
	var h hitLine
	strictly(t, l.line(), &h)
	if h.Probe != "foo%return" || h.Ret == nil || *h.Ret != 27 || string(h.Results) != `{"ret":27}` {
		t.Errorf("hit %+v", h)
	}
	l.interrupt()
	p.CheckClean()
	p.Quit()
}

func TestEntriesAndReturnsInOneRun(t *testing.T) {
	p := prey(t)
	l := attachTo(t, p, "-sym", "stack_target", "-sym", "stack_target%return", "-sym", "stack_internal", "-format", "json", "-stack", "3")
	p.Do("call stack_driver 9", "ret")
	for _, want := range []struct{ probe, kind, stack string }{
		{"stack_target", "kprobe", "stack_target stack_driver main"},
		{"stack_internal", "kprobe", "stack_internal stack_target stack_driver"},
		{"stack_target%return", "kretprobe", "stack_driver main __libc_start_call_main"},
	} {
		var h hitLine
		strictly(t, l.line(), &h)
		var names []string
		for _, f := range h.Stack {
			name, _, _ := strings.Cut(f.Symbol, "+")
			names = append(names, name)
		}
		if got := strings.Join(names, " "); h.Probe != want.probe || h.Kind != want.kind || got != want.stack {
			t.Errorf("%s %s: stack %s, not %+v", h.Probe, h.Kind, got, want)
		}
		if (h.Ret != nil) != (want.kind == "kretprobe") {
			t.Errorf("%s: ret %v", h.Kind, h.Ret)
		}
	}
	l.interrupt()
	p.CheckClean()
	p.Quit()
}

func TestCountsOfReturnsAreExactUnderThreads(t *testing.T) {
	for _, flags := range [][]string{{"-count"}, {"-count", "-no-boost"}, {"-maxactive", "8"}} {
		p := prey(t)
		l := attachTo(t, p, append(flags, "-ret", "-sym", "foo", "-format", "json")...)
		p.Do("threads 8 2000 foo", "sum")
		hits, sum := records(t, l.interrupt().stdout)
		if s := sum.Probes[0]; s.Hits != 16000 || s.NMissed != 0 || flags[0] == "-maxactive" && uint64(len(hits))+sum.Lost != 16000 {
			t.Errorf("%v: %+v, %d records", flags, sum, len(hits))
		}
		p.CheckClean()
		p.Quit()
	}
}

func TestMaxHitsCountsReturns(t *testing.T) {
	for _, extra := range [][]string{nil, {"-count"}} {
		p := prey(t)
		l := attachTo(t, p, append(extra, "-ret", "-sym", "foo", "-max-hits", "100", "-format", "json")...)
		if got := p.Do("threads 8 5000 foo", "sum"); got != "sum 200000000 count 40000" {
			t.Errorf("the target says %q", got)
		}
		r := l.end()
		hits, sum := records(t, r.stdout)
		if want := map[bool]int{true: 100, false: 0}[extra == nil]; r.status != 0 || len(hits) != want || sum.Probes[0].Hits != 100 || sum.Lost != 0 {
			t.Errorf("status %d, %d records, summary %+v", r.status, len(hits), sum)
		}
		p.CheckClean()
		p.Quit()
	}
}

func TestCallsThatCanNotBeFollowedAreMissed(t *testing.T) {
	p := prey(t) // 21 calls at once
	l := attachTo(t, p, "-ret", "-sym", "recurse", "-maxactive", "5", "-format", "json")
	p.Do("call recurse 20", "ret 20")
	hits, sum := records(t, l.interrupt().stdout)
	if s := sum.Probes[0]; len(hits) != 5 || s.Hits != 5 || s.NMissed != 16 {
		t.Errorf("%d records, summary %+v", len(hits), s)
	}
	p.Quit()

	p = testprog.Start(t, testprog.Build(t, "cxxvalues")) // half of the calls throw
	l = attachTo(t, p, "-ret", "-sym", "values::thrower", "-format", "json")
	p.Do("throw 20", "ret 10")
	p.Do("throw 1", "ret 0")
	p.Do("throw 2", "ret 1")
	hits, sum = records(t, l.interrupt().stdout)
	if s := sum.Probes[0]; len(hits) != 11 || s.Hits != 11 || s.NMissed != 12 {
		t.Errorf("%d records, summary %+v", len(hits), s)
	}
	p.CheckClean()
	p.Quit()
}

func TestPatternsOfReturnsFollowWhatTheyCan(t *testing.T) {
	p := prey(t)
	l := attachTo(t, p, "-sym", "stack_*%return", "-count", "-format", "json")
	p.Do("call stack_driver 9", "ret")
	_, sum := records(t, l.interrupt().stdout)
	if len(sum.Probes) != 3 {
		t.Errorf("summary %+v", sum)
	}
	for _, s := range sum.Probes {
		if s.Kind != "kretprobe" || s.Hits != 1 || s.NMissed != 0 || !strings.HasSuffix(s.Probe, "%return") {
			t.Errorf("probe %+v", s)
		}
	}
	p.CheckClean()
	p.Quit()
}

func TestReturnsOfTheRunProgramsMain(t *testing.T) {
	cmd := command(t, "run", "-ret", "-sym", "main", "-sym", "foo", "-format", "json", "--", testprog.Build(t, "prey"))
	cmd.Stdin = strings.NewReader("call foo 3\n")
	r := finish(t, cmd)
	var ours []string
	for line := range strings.Lines(r.stdout) {
		if strings.HasPrefix(line, "{") {
			ours = append(ours, line)
		}
	}
	hits, _ := records(t, strings.Join(ours, ""))
	if len(hits) != 2 || hits[0].Probe != "foo" || *hits[0].Ret != 7 || hits[1].Probe != "main" || *hits[1].Ret != 0 || r.status != 0 {
		t.Errorf("status %d, hits %+v", r.status, hits)
	}
}

func TestWhatHasNoReturnIsRefusedByName(t *testing.T) {
	p := prey(t)
	pid := []string{"attach", "-p", pidOf(p), "-duration", "1m"}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"-ret", "-sym", "target+*"}, "cannot place probe target+*: a call is followed from the entry of its function"},
		{[]string{"-sym", "target+*%return"}, "cannot place probe target+*%return: a call is followed"},
		{[]string{"-ret", "-sym", "prey.c:58"}, "not the entry of a function"},
		{[]string{"-sym", "no_such_function%return"}, "cannot place probe no_such_function%return: unknown symbol"},
	} {
		r := gokprobe(t, append(pid, c.args...)...)
		if r.status != 4 || r.stdout != "" || !strings.Contains(r.stderr, c.want) {
			t.Errorf("%v: status %d, stdout %q, stderr %q", c.args, r.status, r.stdout, r.stderr)
		}
		oneSentence(t, r)
	}
	p.CheckClean()
	p.Quit()
}

// Entries that the target records and returns that the tracer handles come as they were.
func TestAThreadsHitsComeInTheirOrder(t *testing.T) {
	p := prey(t)
	l := attachTo(t, p, "-sym", "sum6", "-sym", "sum6%return", "-args", "-format", "json")
	const calls = 40
	for range calls {
		p.Do("call six 1", "ret")
	}
	hits, _ := records(t, l.interrupt().stdout)
	if len(hits) != 2*calls {
		t.Errorf("%d records of %d calls", len(hits), calls)
	}
	for i, h := range hits {
		if want := []string{"sum6", "sum6%return"}[i%2]; h.Probe != want {
			t.Fatalf("record %d is of %s, want %s", i, h.Probe, want)
		}
	}
	p.CheckClean()
	p.Quit()
}

// TestReturnsIntoGeneratedCode: -returns chooses how calls are followed. Only by rewriting, which may be for these calls alone, are returns into the target's own code seen.
func TestReturnsIntoGeneratedCode(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "relays", "-O2"))
	for _, way := range []string{"rewrite", "auto"} {
		l := attachTo(t, p, "-ret", "-sym", "from_jit", "-returns", way)
		p.Do("jit 3", "jit 18")
		for _, want := range []string{"1", "4", "7"} {
			if m := returnLine.FindStringSubmatch(l.line()); m == nil || m[1] != "from_jit" || !strings.HasSuffix(m[2], want) {
				t.Errorf("%s: %q, want the result %s", way, m, want)
			}
		}
		if r := l.interrupt(); r.status != 0 || r.stderr != "" && strings.Contains(r.stderr, "missed:") {
			t.Errorf("%s: status %d, stderr %q", way, r.status, r.stderr)
		}
		p.CheckClean()
	}
	p.Quit()
	if r := gokprobe(t, "attach", "-p", strconv.Itoa(p.PID()), "-sym", "from_jit", "-returns", "jump"); r.status != 2 || !strings.Contains(r.stderr, "choose sites, rewrite or auto") {
		t.Errorf("status %d, stderr %q", r.status, r.stderr)
	}
}

// TestAFetchedReturnAddressIsTheTrueOne, though another one stands on the stack since calls are followed: in the tracer, in what the target records, as a symbol, and in filters.
func TestAFetchedReturnAddressIsTheTrueOne(t *testing.T) {
	p := prey(t)
	fetched := func(more ...string) []string {
		t.Helper()
		args := append([]string{"-max-hits", "8", "-arg", "ra=$stack0:x64", "-arg", "sym=+0(%sp):symbol", "-arg", "words=+0(%sp):x64[2]"}, more...)
		l := attachTo(t, p, args...)
		for range 4 {
			p.Do("call foo 3", "ret 7")
		}
		r := l.end()
		p.CheckClean()
		var lines []string
		for _, line := range strings.Split(r.stdout, "\n") {
			if at := strings.Index(line, " ra="); at >= 0 && !strings.Contains(line, "foo%return") {
				lines = append(lines, line[at:])
			}
		}
		if r.status != 0 || len(lines) != 4 {
			t.Fatalf("%v: status %d, stdout %q, stderr %q", more, r.status, r.stdout, r.stderr)
		}
		return lines
	}
	want := fetched("-sym", "foo", "-sym", "foo%return")[0]
	value, _, _ := strings.Cut(strings.TrimPrefix(want, " ra="), " ")
	if !strings.Contains(want, " sym=main+") {
		t.Fatalf("it fetches %q", want)
	}
	for _, more := range [][]string{nil, {"-no-optimize"}} {
		for _, line := range fetched(append([]string{"-sym", "foo", "-sym", "foo%return", "-returns", "rewrite"}, more...)...) {
			if line != want {
				t.Errorf("%v: it fetches %q, want %q", more, line, want)
			}
		}
	}
	for _, more := range [][]string{{"-count"}, {"-count", "-no-optimize"}, nil} {
		l := attachTo(t, p, append([]string{"-sym", "foo", "-sym", "foo%return", "-returns", "rewrite", "-arg", "ra=$stack0:x64", "-filter", "ra == " + value}, more...)...)
		for range 4 {
			p.Do("call foo 3", "ret 7")
		}
		r := l.interrupt()
		lines := 0
		for _, line := range strings.Split(r.stdout, "\n") {
			if strings.Contains(line, " ra="+value) && !strings.Contains(line, "foo%return") {
				lines++
			}
		}
		if counted := regexp.MustCompile(`(?m)^ *4 +0 +foo `).MatchString(r.stdout); r.status != 0 || more == nil && lines != 4 || more != nil && !counted {
			t.Errorf("%v: status %d, stdout %q, stderr %q", more, r.status, r.stdout, r.stderr)
		}
		p.CheckClean()
	}
}
