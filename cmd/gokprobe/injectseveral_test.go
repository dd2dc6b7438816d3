package main

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/internal/testprog"
)

// faultLine is what a summary tells of a fault.
type faultLine struct {
	Fault                                      string
	Calls, Eligible, Injected, Refused, Missed uint64
	Actions                                    []struct {
		Action string
		N      uint64
	}
	Seed   uint64
	DryRun bool `json:"dry_run"`
}

// wholeInjected is the summary of inject with several processes.
type wholeInjected struct {
	Type   string          `json:"type"`
	Probes json.RawMessage `json:"probes"`
	Faults []faultLine     `json:"faults"`
	Lost   uint64          `json:"lost"`

	Processes []struct {
		PID           int
		Comm          string
		Hits, NMissed uint64
		Probes        json.RawMessage
		Faults        []faultLine
		Lost          uint64
	} `json:"processes"`
}

// of is how many calls there were in a process, and how many were injected.
func (s wholeInjected) of(pid int) (calls, injected uint64) {
	for _, p := range s.Processes {
		if p.PID == pid && len(p.Faults) == 1 && p.Faults[0].Calls == p.Hits {
			return p.Hits, p.Faults[0].Injected
		}
	}
	return 0, 0
}

// injectedWhole parses the output of inject with several processes, and checks what holds of it in any case: each injected call has its line,
// with its number in its process, and the numbers of all processes are those of the whole.
func injectedWhole(t *testing.T, output string) (lines map[int][]injectedLine, sum wholeInjected) {
	t.Helper()
	lines = map[int][]injectedLine{}
	for line := range strings.Lines(output) {
		if strings.HasPrefix(line, `{"type":"summary"`) {
			strictly(t, line, &sum)
			continue
		}
		var c injectedLine
		strictly(t, line, &c)
		if lines[c.PID] = append(lines[c.PID], c); c.N != uint64(len(lines[c.PID])) {
			t.Errorf("the line number %d of process %d has n %d", len(lines[c.PID]), c.PID, c.N)
		}
	}
	if sum.Type != "summary" || len(sum.Faults) != 1 || sum.Lost != 0 {
		t.Fatalf("no summary of one fault in %q", output)
	}
	var calls, injected uint64
	for _, p := range sum.Processes {
		n, did := sum.of(p.PID)
		if calls, injected = calls+n, injected+did; did != uint64(len(lines[p.PID])) {
			t.Errorf("process %d: %d injected, %d lines", p.PID, did, len(lines[p.PID]))
		}
	}
	if f := sum.Faults[0]; f.Calls != calls || f.Injected != injected || len(f.Actions) != 1 || f.Actions[0].N != injected {
		t.Errorf("all together: %+v; by process %d calls, %d injected", f, calls, injected)
	}
	return lines, sum
}

// TestInjectIntoSeveralProcesses: by their numbers, their name, or a file that they map; each counts for itself, and all come out as they were.
func TestInjectIntoSeveralProcesses(t *testing.T) {
	file, name := renamedFixture(t, "fails")
	progs := []*testprog.Prog{testprog.Start(t, file), testprog.Start(t, file), testprog.Start(t, file)}
	for _, who := range [][]string{
		{"-p", pidOf(progs[0]), "-p", pidOf(progs[1]), "-p", pidOf(progs[2])},
		{"-p", name, "-all"},
		{"-p", pidOf(progs[1]), "-x", file},
		{"-x", file, "-no-optimize", "-if", `comm ~ "p*"`},
	} {
		l := start(t, append(append([]string{"inject"}, who...), "-sym", "work", "-errno", "EIO", "-interval", "5", "-format", "json")...)
		for i, p := range progs {
			want := []string{"failed 0:", "failed 1: 5", "failed 2: 5 10"}[i]
			if got := p.Do(fmt.Sprintf("run %d", 5*i+1), "failed"); got != want {
				t.Errorf("%v: process %d: %s, want %s", who, i, got, want)
			}
		}
		r := l.interrupt()
		_, sum := injectedWhole(t, r.stdout)
		for i, p := range progs {
			if calls, injected := sum.of(p.PID()); calls != uint64(5*i+1) || injected != uint64(i) {
				t.Errorf("%v: process %d: %d calls, %d injected", who, i, calls, injected)
			}
			p.CheckClean()
		}
		if f := sum.Faults[0]; r.status != 0 || len(sum.Processes) != 3 || f.Fault != "work" || f.Eligible != 18 || f.Injected != 3 {
			t.Errorf("%v: status %d, %+v, stderr %q", who, r.status, sum, r.stderr)
		}
	}
}

// TestTimesOfInjectAreForAllProcesses, which end the session together, those that join later included.
func TestTimesOfInjectAreForAllProcesses(t *testing.T) {
	file, name := renamedFixture(t, "fails")
	progs := []*testprog.Prog{testprog.Start(t, file), testprog.Start(t, file), testprog.Start(t, file)}
	for _, who := range [][]string{{"-p", name, "-all"}, {"-x", file}} {
		l := start(t, append(append([]string{"inject"}, who...), "-sym", "work", "-errno", "EIO", "-times", "7", "-format", "json")...)
		for _, p := range progs {
			p.Send("threads 3 100")
		}
		var failed [3]uint64
		sum := uint64(0)
		for i, p := range progs {
			var of int
			if _, err := fmt.Sscanf(p.Expect("failed"), "failed %d of %d", &failed[i], &of); err != nil {
				t.Fatal(err)
			}
			sum += failed[i]
		}
		r := l.end()
		if sum != 7 || r.status != 0 {
			t.Errorf("%v: %d calls failed, status %d, stderr %q", who, sum, r.status, r.stderr)
		}
		_, whole := injectedWhole(t, r.stdout)
		for i, p := range progs {
			if _, injected := whole.of(p.PID()); injected != failed[i] {
				t.Errorf("%v: process %d: %d failed, %d were injected", who, i, failed[i], injected)
			}
			p.CheckClean()
		}
	}
	// The third call of each: the session ends when all have failed, and the text tells of each.
	l := start(t, "inject", "-p", name, "-all", "-sym", "work", "-errno", "EIO", "-fail-nth", "3")
	if said := l.said.String(); !strings.Contains(said, "armed: 3 probes in ") {
		t.Errorf("it says %q", said)
	}
	for _, p := range progs {
		if got := p.Do("run 5", "failed"); got != "failed 1: 3" {
			t.Error(got)
		}
	}
	r := l.end()
	row := func(p *testprog.Prog) string {
		return fmt.Sprintf(`(?m)^%d +%s +[345] +[345] +1 +0 +0$`, p.PID(), name)
	}
	for _, want := range []string{
		`(?m)^FAULT +CALLS +ELIGIBLE +INJECTED +REFUSED +MISSED +WHAT\nwork +\d+ +\d+ +3 +0 +0 +return -1 errno EIO: 3\nPROBE +KIND +HITS +MISSED\nwork +kprobe +\d+ +0\n\nPROCESS +NAME +CALLS +ELIGIBLE +INJECTED +REFUSED +MISSED\n`,
		row(progs[0]), row(progs[1]), row(progs[2]),
	} {
		if r.status != 0 || !regexp.MustCompile(want).MatchString(r.stderr) {
			t.Errorf("status %d, no %s in %s", r.status, want, r.stderr)
		}
	}
	if n := strings.Count(r.stdout, "=> return -1 errno EIO\n"); n != 3 {
		t.Errorf("%d lines: %s", n, r.stdout)
	}
	for _, p := range progs {
		p.CheckClean()
	}
}

// TestInjectIntoProcessesThatComeAndGo: what is injected goes on in all others.
func TestInjectIntoProcessesThatComeAndGo(t *testing.T) {
	file, _ := renamedFixture(t, "fails")
	l := start(t, "inject", "-x", file, "-sym", "work", "-errno", "EIO", "-interval", "2", "-times", "5", "-format", "json")
	if got := l.said.String(); !strings.Contains(got, "armed: nothing yet, and in whatever maps "+file) {
		t.Errorf("it says %q", got)
	}
	var progs []*testprog.Prog
	for i, want := range []string{"failed 1: 2", "failed 2: 2 4", "failed 2: 2 4"} {
		p := testprog.Start(t, file)
		l.waitFor("joined: " + pidOf(p))
		if got := p.Do(fmt.Sprintf("run %d", 2*min(i, 1)+2), "failed"); got != want {
			t.Errorf("process %d: %s, want %s", i, got, want)
		}
		if progs = append(progs, p); i == 0 {
			p.Kill()
		}
	}
	r := l.end() // since no time is left, in none
	_, sum := injectedWhole(t, r.stdout)
	for i, p := range progs {
		want := uint64(min(i, 1) + 1)
		if calls, injected := sum.of(p.PID()); calls != 2*want || injected != want {
			t.Errorf("process %d: %d calls, %d injected", i, calls, injected)
		}
		if i > 0 {
			p.CheckClean()
		}
	}
	if r.status != 0 || len(sum.Processes) != 3 {
		t.Errorf("status %d, %+v, stderr %q", r.status, sum, r.stderr)
	}
}

// TestInjectGoesOnWhenAProcessEnds, and ends when nothing can be injected into those that are left.
func TestInjectGoesOnWhenAProcessEnds(t *testing.T) {
	file, _ := renamedFixture(t, "fails")
	one, two, three := testprog.Start(t, file), testprog.Start(t, file), testprog.Start(t, file)
	l := start(t, "inject", "-p", pidOf(one), "-p", pidOf(two), "-p", pidOf(three), "-sym", "work", "-errno", "EIO", "-fail-nth", "2", "-format", "json")
	if got := one.Do("run 1", "failed"); got != "failed 0:" {
		t.Error(got)
	}
	one.Kill()
	for _, p := range []*testprog.Prog{two, three} {
		if got := p.Do("run 4", "failed"); got != "failed 1: 2" {
			t.Error(got)
		}
	}
	r := l.end()
	_, sum := injectedWhole(t, r.stdout)
	if calls, injected := sum.of(one.PID()); r.status != 0 || calls != 1 || injected != 0 || sum.Faults[0].Injected != 2 {
		t.Errorf("status %d, %+v, stderr %q", r.status, sum, r.stderr)
	}
	two.CheckClean()
	three.CheckClean()
}

// TestInjectFollowsWhatExecutesTheFileAgain, as any process that comes to map it.
func TestInjectFollowsWhatExecutesTheFileAgain(t *testing.T) {
	bin, _ := renamedFixture(t, "execer")
	p := testprog.Start(t, bin)
	l := start(t, "inject", "-x", bin, "-sym", "foo", "-retval", "5", "-format", "json")
	if got := p.Do("call 2", "ret"); got != "ret 5" {
		t.Error(got)
	}
	p.Do("exec", "ready 1")
	l.waitFor("joined: " + pidOf(p))
	if got := p.Do("call 2", "ret"); got != "ret 5" {
		t.Error(got)
	}
	if r := l.interrupt(); r.status != 0 || strings.Count(r.stdout, `"type":"injected"`) != 2 {
		t.Errorf("status %d, stdout %q, stderr %q", r.status, r.stdout, r.stderr)
	}
	p.CheckClean()
	for i, args := range [][]string{{"-sym", "foo"}, {"-syscall", "getppid"}, {"-syscall", "getppid", "-syscall-by", "ptrace"}} {
		l = start(t, append([]string{"inject", "-p", pidOf(p), "-retval", "5"}, args...)...)
		p.Do("exec", "ready "+strconv.Itoa(i+2))
		if r := l.end(); r.status != 0 || !strings.Contains(r.stderr, "the process executes another program now, so all probes are gone") {
			t.Errorf("%v: status %d, stderr %q", args, r.status, r.stderr)
		}
		p.CheckClean()
	}
}

// TestInjectIntoSeveralOrNone: what is wrong with one that is named leaves all as they were; one that is found is told of, and the others go on.
func TestInjectIntoSeveralOrNone(t *testing.T) {
	file, name := renamedFixture(t, "fails")
	one, two := testprog.Start(t, file), testprog.Start(t, testprog.Build(t, "prey"))
	for _, c := range []struct {
		args   []string
		status int
		said   string
	}{
		{[]string{"-p", pidOf(one), "-p", pidOf(two)}, exitPlace, "process " + pidOf(two)},
		{[]string{"-p", pidOf(one), "-p", "4194301"}, exitAttach, "no such process"},
		{[]string{"-p", pidOf(one), "-p", pidOf(one)}, exitUsage, "twice"},
		{[]string{"-p", pidOf(one), "-all"}, exitUsage, "-p name"},
		{[]string{"-all"}, exitUsage, "no process given"},
		{[]string{"-x", "/nothing/there"}, exitUsage, "-x /nothing/there"},
		{[]string{"-p", name, "-all", "-x", file, "-mount", "/nonexistent"}, exitFailed, "cannot mount on /nonexistent: no such file or directory"},
		{[]string{"-x", file, "-thread", pidOf(one)}, exitUsage, "-thread is for a thread of one process"},
		{[]string{"-x", file, "-task-filter", "Y"}, exitUsage, "-thread tid"},
		{[]string{"-p", pidOf(one), "-p", pidOf(two), "-require-start", "0x1000"}, exitUsage, "-require-start is an address in one process"},
		{[]string{"-x", file, "--", "true"}, exitUsage, `unexpected argument "true"`},
	} {
		r := gokprobe(t, append([]string{"inject", "-sym", "work", "-errno", "EIO"}, c.args...)...)
		if r.status != c.status || r.stdout != "" || !strings.Contains(strings.ToLower(r.stderr), c.said) || strings.Contains(r.stderr, "armed") {
			t.Errorf("%v: status %d, %q; want %d and %q", c.args, r.status, r.stderr, c.status, c.said)
		}
		oneSentence(t, r)
		one.CheckClean()
		two.CheckClean()
	}
	l := start(t, "inject", "-p", pidOf(one), "-x", testprog.Build(t, "prey"), "-sym", "work", "-errno", "EIO", "-require", "first_caller")
	if got := one.Do("nested 4", "nested"); got != "nested 4 0" {
		t.Error(got)
	}
	two.CheckClean()
	if r := l.interrupt(); r.status != 0 || !strings.Contains(r.stderr, "process "+pidOf(two)+" is not probed: ") || strings.Contains(r.stderr, "joined: "+pidOf(two)) {
		t.Errorf("status %d, stderr %q", r.status, r.stderr)
	}
	one.CheckClean()
	two.CheckClean()
}
