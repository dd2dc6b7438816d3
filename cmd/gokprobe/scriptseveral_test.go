package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/internal/testprog"
)

// scenarioSummary is the last line of script with several processes.
type scenarioSummary struct {
	Type       string
	Failed     bool
	Seed       uint64
	DurationNS uint64 `json:"duration_ns"`
	Cases      json.RawMessage
	Counters   map[string]int64
	Probes     []scenarioProbe
	Faults     []struct{ Injected uint64 }
	Processes  []struct {
		PID        int
		Comm       string
		ExitStatus *int `json:"exit_status"`
		Probes     []scenarioProbe
		Faults     []struct{ Injected uint64 }
	}
}

type scenarioProbe struct {
	Probe string
	Hits  uint64
}

// summaryOf parses that line.
func summaryOf(t *testing.T, stdout string) (sum scenarioSummary) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(stdout), "\n")
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &sum); err != nil || sum.Type != "summary" {
		t.Fatalf("%v: no summary in %q", err, stdout)
	}
	return sum
}

// TestOneScriptForSeveralProcesses: by their numbers, their name, or a file that they map; all come out as they were.
func TestOneScriptForSeveralProcesses(t *testing.T) {
	bin, name := renamedFixture(t, "fails")
	progs := []*testprog.Prog{testprog.Start(t, bin), testprog.Start(t, bin), testprog.Start(t, bin)}
	file := scenarioFile(t, `
state.pids = {}
def pre(ctx):
    state.pids[ctx.pid] = state.pids.get(ctx.pid, 0) + 1
    counter("calls").add()
    report("work", pid = ctx.pid, n = ctx.arg(0))
k = kprobe("work", pre = pre)
inject("work", errno = "EIO", interval = 5)
test("all are seen", lambda: expect(sorted(state.pids.values()) == [1, 6, 11] and len(targets()) == 3, str(state.pids)))
`)
	for _, who := range [][]string{
		{"-p", pidOf(progs[0]), "-p", pidOf(progs[1]), "-p", pidOf(progs[2])},
		{"-p", name, "-all"},
		{"-p", pidOf(progs[1]), "-x", bin},
		{"-x", bin, "-no-optimize"},
	} {
		l := start(t, append(append([]string{"script"}, who...), "-format", "json", "-injected", "-seed", "3", file)...)
		if said := l.said.String(); !strings.Contains(said, "seed: 3\narmed: 6 probes in ") {
			t.Errorf("it says %q", said)
		}
		for i, p := range progs {
			want := []string{"failed 0:", "failed 1: 5", "failed 2: 5 10"}[i]
			if got := p.Do(fmt.Sprintf("run %d", 5*i+1), "failed"); got != want {
				t.Errorf("%v: process %d: %s, want %s", who, i, got, want)
			}
		}
		r := l.interrupt()
		sum := summaryOf(t, r.stdout)
		if r.status != 0 || sum.Failed || sum.Counters["calls"] != 18 || sum.Probes[0].Hits != 18 || sum.Faults[0].Injected != 3 || len(sum.Processes) != 3 {
			t.Errorf("%v: status %d, %+v, stderr %q", who, r.status, sum, r.stderr)
		}
		for _, p := range sum.Processes {
			for i, prog := range progs {
				if p.PID == prog.PID() && (p.Comm != name || p.Probes[0].Hits != uint64(5*i+1) || p.Faults[0].Injected != uint64(i) || p.ExitStatus != nil) {
					t.Errorf("%v: process %d: %+v", who, i, p)
				}
			}
		}
		if n := strings.Count(r.stdout, `"type":"injected"`); n != 3 || strings.Count(r.stdout, `"type":"report"`) != 18 {
			t.Errorf("%v: %d injected: %s", who, n, r.stdout)
		}
		for _, p := range progs {
			p.CheckClean()
		}
	}
}

// TestAScriptsProcessesComeAndGo, the scenario goes on in all others, and stop() ends it in all.
func TestAScriptsProcessesComeAndGo(t *testing.T) {
	bin, name := renamed(t)
	file := scenarioFile(t, `
def pre(ctx):
    counter("calls").add()
    if ctx.arg(0) == 9:
        stop()
kprobe("foo", pre = pre)
at_end(lambda: expect([t.exit_status for t in targets()] == [137, None, None], str([t.exit_status for t in targets()])))
`)
	l := start(t, "script", "-x", bin, file)
	if got := l.said.String(); !strings.Contains(got, "armed: nothing yet, and in whatever maps "+bin) {
		t.Errorf("it says %q", got)
	}
	var progs []*testprog.Prog
	for i := range 3 {
		p := testprog.Start(t, bin)
		l.waitFor("joined: " + pidOf(p))
		p.Do("call foo 3", "ret 7")
		if progs = append(progs, p); i == 0 {
			p.Kill()
		}
	}
	progs[1].Do("call foo 9", "ret 19")
	r := l.end()
	for _, want := range []string{
		"kprobe foo: 4 hits", "counter calls: 4\n", "passed: 2 checks",
		fmt.Sprintf("process %d (%s): 1 hit, exit status 137\n", progs[0].PID(), name),
		fmt.Sprintf("process %d (%s): 2 hits\n", progs[1].PID(), name), fmt.Sprintf("process %d (%s): 1 hit\n", progs[2].PID(), name),
	} {
		if r.status != 0 || !strings.Contains(r.stderr, want) {
			t.Errorf("status %d, %q is not in\n%s", r.status, want, r.stderr)
		}
	}
	progs[1].CheckClean()
	progs[2].CheckClean()
}

// TestAScriptFollowsWhatExecutesTheFileAgain, as any process that comes to map it, and lets go of what executes something else.
func TestAScriptFollowsWhatExecutesTheFileAgain(t *testing.T) {
	bin, _ := renamedFixture(t, "execer")
	one, two := testprog.Start(t, bin), testprog.Start(t, bin)
	file := scenarioFile(t, `kprobe("foo", pre = lambda ctx: ctx.fail(5))`)
	l := start(t, "script", "-x", bin, file)
	one.Do("exec", "ready 1")
	l.waitFor("joined: " + pidOf(one))
	if got := one.Do("call 2", "ret"); got != "ret 5" {
		t.Error(got)
	}
	if r := l.interrupt(); r.status != 0 || strings.Contains(r.stderr, "gone") {
		t.Errorf("status %d, stderr %q", r.status, r.stderr)
	}
	l = start(t, "script", "-p", pidOf(one), "-p", pidOf(two), file)
	one.Do("exec", "ready 2")
	two.Do("exec", "ready 1")
	if r := l.end(); r.status != 0 || strings.Count(r.stderr, "so all its probes are gone") != 2 {
		t.Errorf("status %d, stderr %q", r.status, r.stderr)
	}
	one.CheckClean()
	two.CheckClean()
}

// TestAScriptForSeveralOrNone: what is wrong with one that is named, or with the file, leaves all as they were; one that is found is told of.
func TestAScriptForSeveralOrNone(t *testing.T) {
	bin, name := renamed(t)
	one, two := testprog.Start(t, bin), testprog.Start(t, testprog.Build(t, "fails"))
	file := scenarioFile(t, "print('it is there')\nkprobe('foo', pre = lambda ctx: ctx.fail(5))")
	for _, c := range []struct {
		args   []string
		status int
		said   string
	}{
		{[]string{"-p", pidOf(one), "-p", pidOf(two), file}, exitPlace, "process " + pidOf(two) + ": " + file + ":2:1: kprobe: unknown symbol: \"foo\"\n  kprobe('foo'"},
		{[]string{"-p", pidOf(one), "-p", "4194301", file}, exitAttach, "no such process"},
		{[]string{"-p", pidOf(one), "-p", pidOf(one), file}, exitUsage, "twice"},
		{[]string{"-p", pidOf(one), "-all", file}, exitUsage, "-p NAME"},
		{[]string{"-x", "/nothing/there", file}, exitUsage, "-x /nothing/there"},
		{[]string{"-p", name, "-all", "-x", bin, scenarioFile(t, "symbol('foo')")}, exitUsage, ":1:1: symbol: addresses differ between processes"},
		{[]string{"-x", bin, scenarioFile(t, "kprobe('foo'")}, exitUsage, ":1:13: "},
		{[]string{"-x", bin, "/nonexistent.star"}, exitUsage, "cannot read the scenario"},
	} {
		r := gokprobe(t, append([]string{"script"}, c.args...)...)
		if r.status != c.status || r.stdout != "" || !strings.Contains(r.stderr, c.said) || strings.Contains(r.stderr, "armed") {
			t.Errorf("%v: status %d, %q; want %d and %q", c.args, r.status, r.stderr, c.status, c.said)
		}
		one.CheckClean()
		two.CheckClean()
	}
	l := start(t, "script", "-p", pidOf(one), "-x", testprog.Build(t, "fails"), file)
	if got := one.Do("call foo 3", "ret"); got != "ret 5" {
		t.Error(got)
	}
	two.CheckClean()
	if r := l.interrupt(); r.status != 0 || !strings.Contains(r.stderr, "process "+pidOf(two)+" is not probed: ") || !strings.Contains(r.stderr, "it is there\n") {
		t.Errorf("status %d, stderr %q", r.status, r.stderr)
	}
	r := lasting(t, "script", "-p", pidOf(one), "-p", pidOf(two), scenarioFile(t, "expect(False, 'no')\nafter('1h', stop)"))
	if r.status != exitFailed || !strings.Contains(r.stderr, "failed: 1 of 2 checks") {
		t.Errorf("status %d, stderr %q", r.status, r.stderr)
	}
	one.CheckClean()
	two.CheckClean()
}
