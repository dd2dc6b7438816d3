package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/gokprobe/gokprobe/internal/testprog"
)

// injectedLine is a call that was injected, as -format json prints it.
type injectedLine struct {
	hitLine
	N       uint64   `json:"n"`
	Actions []string `json:"actions"`
	DryRun  bool     `json:"dry_run"`
}

// injectSummary is the last line.
type injectSummary struct {
	Type   string `json:"type"`
	PID    int    `json:"pid"`
	Probes []struct {
		Probe, Kind, Addr, Symbol, Mechanism, Reason, Decides string
		Hits, NMissed                                         uint64
	} `json:"probes"`
	Faults []struct {
		Fault                                      string
		Calls, Eligible, Injected, Refused, Missed uint64
		Actions                                    []struct {
			Action string
			N      uint64
		}
		Seed   uint64
		DryRun bool `json:"dry_run"`
	} `json:"faults"`
	Lost uint64 `json:"lost"`
}

// injected parses the output of -format json. It leaves out lines that the target printed.
func injected(t *testing.T, output string) (calls []injectedLine, sum injectSummary) {
	t.Helper()
	for line := range strings.Lines(output) {
		switch {
		case strings.HasPrefix(line, `{"type":"injected"`):
			var c injectedLine
			strictly(t, line, &c)
			calls = append(calls, c)
		case strings.HasPrefix(line, `{"type":"summary"`):
			strictly(t, line, &sum)
		}
	}
	if sum.Type != "summary" || len(sum.Faults) != 1 {
		t.Fatalf("no summary of one fault in %q", output)
	}
	return calls, sum
}

func fails(t *testing.T) *testprog.Prog {
	t.Helper()
	return testprog.Start(t, testprog.Build(t, "fails"))
}

// injectInto is start of gokprobe inject into p.
func injectInto(t *testing.T, p *testprog.Prog, args ...string) *live {
	t.Helper()
	return start(t, append([]string{"inject", "-p", pidOf(p)}, args...)...)
}

func TestInjectPrintsEachInjectedCallAndASummary(t *testing.T) {
	p := fails(t)
	before := testprog.TakeSnapshot(t, p.PID())
	l := injectInto(t, p, "-sym", "work", "-errno", "enoent", "-interval", "5", "-arg", "n=$arg1:s64", "-arg", "name=+0($arg2):string", "-format", "json", "-verbose", "1")
	if got := p.Do("run 11", "failed"); got != "failed 2: 5 10" {
		t.Error(got)
	}
	r := l.interrupt()
	calls, sum := injected(t, r.stdout)
	if r.status != 0 || len(calls) != 2 {
		t.Fatalf("status %d, %d calls: %s", r.status, len(calls), r.stderr)
	}
	for i, c := range calls {
		args := []string{`{"n":5,"name":"c.txt"}`, `{"n":10,"name":"b.conf"}`}[i]
		if c.N != uint64(i+1) || c.PID != p.PID() || c.TID != p.PID() || c.Probe != "work" || c.Kind != "kprobe" || c.Symbol != "work+0x0" || c.Time.IsZero() ||
			string(c.Args) != args || !slices.Equal(c.Actions, []string{"return -1 errno ENOENT"}) || c.DryRun || c.Stack != nil {
			t.Errorf("%+v", c)
		}
	}
	f := sum.Faults[0]
	if f.Fault != "work" || f.Calls != 11 || f.Eligible != 11 || f.Injected != 2 || f.Refused != 0 || f.Missed != 0 || f.DryRun ||
		len(f.Actions) != 1 || f.Actions[0].Action != "return -1 errno ENOENT" || f.Actions[0].N != 2 {
		t.Errorf("%+v", f)
	}
	if q := sum.Probes[0]; len(sum.Probes) != 1 || q.Hits != 11 || q.Mechanism != "optimized" || q.Decides != "target" || sum.Lost != 0 {
		t.Errorf("%+v", sum)
	}
	before.Compare(t, p.PID())
	p.CheckClean()
	p.Quit()
}

func TestInjectTextSaysWhatWasDoneAndHowOften(t *testing.T) {
	p := fails(t)
	l := injectInto(t, p, "-sym", "fill", "-after", "-corrupt", "$arg1@2^0x01", "-delay", "1ms", "-arg", "n=$arg2", "-if", "ret == 9", "-verbose", "2")
	if got := p.Do("fill 9", "fill"); got != "fill 9 wrong 1 first 2 is 0x3" {
		t.Error(got)
	}
	p.Do("fill 8", "fill")
	r := l.interrupt()
	line := regexp.MustCompile(`(?m)^\d\d:\d\d:\d\d\.\d{9}  fails-\d+ +fill n=0x9 => corrupt 0x[0-9a-f]+: 0x02 -> 0x03, delay 1ms\n +#0 +0x[0-9a-f]+ in [a-z]+\+`)
	if !line.MatchString(r.stdout) || strings.Count(r.stdout, "=>") != 1 {
		t.Errorf("stdout %s", r.stdout)
	}
	table := regexp.MustCompile(`(?m)^FAULT +CALLS +ELIGIBLE +INJECTED +REFUSED +MISSED +WHAT\nfill +2 +1 +1 +0 +0 +corrupt \$arg1@2\^0x1: 1, delay 1ms: 1\nPROBE .*\nfill +kretprobe .*, the tracer decides\n`)
	if !table.MatchString(r.stderr) {
		t.Errorf("stderr %s", r.stderr)
	}
	p.Quit()
}

func TestInjectRepeatsByTheSeedThatItPrints(t *testing.T) {
	p := fails(t)
	l := begin(t, "inject", "-p", pidOf(p), "-sym", "work", "-retval", "-1", "-probability", "20%")
	said := l.waitFor("gokprobe: the seed is ")
	var seed, same uint64
	if _, err := fmt.Sscanf(said, "gokprobe: the seed is %d; with -seed %d the same", &seed, &same); err != nil || seed != same {
		t.Fatalf("%q: %v", said, err)
	}
	l.waitFor("armed: ")
	first := p.Do("run 200", "failed")
	l.interrupt()
	l = injectInto(t, p, "-sym", "work", "-retval", "-1", "-probability", "20%", "-seed", fmt.Sprint(seed), "-no-optimize")
	if again := p.Do("run 200", "failed"); again != first || strings.Count(first, " ") < 10 {
		t.Errorf("%s, then %s", first, again)
	}
	if r := l.interrupt(); strings.Contains(r.stderr, "seed") {
		t.Errorf("a seed that was given is told: %s", r.stderr)
	}
	p.Quit()
}

func TestInjectEndsWhenNothingCanBeInjectedAnyMore(t *testing.T) {
	for _, c := range []struct {
		flags []string
		want  string
		hold  bool
	}{
		{flags: []string{"-times", "2"}, want: "failed 2: 1 2"},
		{flags: []string{"-fail-nth", "3"}, want: "failed 1: 3"},
		{flags: []string{"-attr", "4,100,0,1"}, want: "failed 1: 4"},
		{flags: []string{"-times", "1", "-delay", "20ms"}, want: "failed 1: 1"},
		{flags: []string{"-times", "2", "-hold"}, want: "failed 2: 1 2", hold: true},
	} {
		p := fails(t)
		l := injectInto(t, p, append(c.flags, "-sym", "work", "-errno", "EIO", "-format", "json")...)
		if got := p.Do("run 20", "failed"); got != c.want {
			t.Errorf("%v: %s, want %s", c.flags, got, c.want)
		}
		if got := p.Do("run 20", "failed"); got != "failed 0:" {
			t.Errorf("%v: again %s", c.flags, got)
		}
		if c.hold {
			l.signal(syscall.SIGINT)
		}
		r := l.end()
		if calls, sum := injected(t, r.stdout); r.status != 0 || uint64(len(calls)) != sum.Faults[0].Injected || len(calls) != strings.Count(c.want, " ")-1 {
			t.Errorf("%v: status %d, %+v", c.flags, r.status, sum)
		}
		p.CheckClean()
		p.Quit()
	}
}

func TestInjectADryRunOnlyPrints(t *testing.T) {
	p := fails(t)
	l := injectInto(t, p, "-sym", "work", "-retval", "-1", "-when", "2+2", "-dry-run", "-format", "json")
	if got := p.Do("run 6", "failed"); got != "failed 0:" {
		t.Error(got)
	}
	calls, sum := injected(t, l.interrupt().stdout)
	if len(calls) != 3 || !calls[0].DryRun || !sum.Faults[0].DryRun || sum.Faults[0].Injected != 3 {
		t.Errorf("%+v, %+v", calls, sum)
	}
	p.Quit()
}

func TestInjectStartsAProgramAndExitsAsItDoes(t *testing.T) {
	for _, c := range []struct {
		args   []string
		status int
		stdout string
	}{
		{[]string{"-sym", "libc.so.6:getppid", "-retval", "7", "--", "sh", "-c", "exit 3"}, 3, ""},
		{[]string{"-sym", "libc.so.6:getppid", "-retval", "7", "--", "sh", "-c", "kill -9 $$"}, 128 + 9, ""},
		{[]string{"-sym", "libc.so.6:read", "-errno", "EIO", "--", "cat", "/etc/passwd"}, 1, ""},
	} {
		r := gokprobe(t, append([]string{"inject", "-verbose", "0"}, c.args...)...)
		if r.status != c.status || r.stdout != c.stdout || !strings.Contains(r.stderr, "armed: 1 probe in ") {
			t.Errorf("%v: %+v", c.args, r)
		}
	}
}

func TestInjectTakesTheOptionsOfFailcmd(t *testing.T) {
	p := fails(t)
	l := injectInto(t, p, "--sym", "work", "--errno", "EIO", "--probability", "100", "--times", "3", "--interval", "2", "--space", "0", "--verbose", "1",
		"--task-filter", "Y", "--thread", pidOf(p), "--stacktrace-depth", "16", "--require-start", "0", "--require-end", "0xffffffffffffffff", "--reject-start", "0", "--reject-end", "0")
	if got := p.Do("run 20", "failed"); got != "failed 3: 2 4 6" {
		t.Error(got)
	}
	if r := l.end(); r.status != 0 {
		t.Errorf("%+v", r)
	}
	p.Quit()
}

func TestInjectFiltersByCallersAndThreads(t *testing.T) {
	for _, c := range []struct {
		flags []string
		want  string
	}{
		{[]string{"-require", "first_caller"}, "nested 10 0"},
		{[]string{"-reject", "first_caller"}, "nested 0 10"},
		{[]string{"-thread", "its own"}, "nested 10 10"},
	} {
		p := fails(t)
		if c.flags[0] == "-thread" {
			c.flags[1] = pidOf(p)
		}
		l := injectInto(t, p, append(c.flags, "-sym", "work", "-errno", "EIO")...)
		if got := p.Do("nested 10", "nested"); got != c.want {
			t.Errorf("%v: %s, want %s", c.flags, got, c.want)
		}
		l.interrupt()
		p.Quit()
	}
}

func TestWhatCantBeInjectedIsOneSentenceAndNothingIsArmed(t *testing.T) {
	p := fails(t)
	before := testprog.TakeSnapshot(t, p.PID())
	for _, c := range []struct {
		args   []string
		status int
		want   string
	}{
		{[]string{"-sym", "nosuch", "-retval", "0"}, 4, "cannot inject into nosuch: unknown symbol"},
		{[]string{"-sym", "work", "-sym", "nosuch", "-retval", "0"}, 4, "unknown symbol"},
		{[]string{"-sym", "work+0x3", "-retval", "0"}, 4, "only a function can return at once"},
		{[]string{"-sym", "work+0x3", "-delay", "1ms", "-after"}, 4, "only a call of a function can be followed"},
		{[]string{"-sym", "work", "-set", "%xyz=1"}, 2, "no such register"},
		{[]string{"-sym", "work", "-set", "%ip=1"}, 2, "where the thread goes on"},
		{[]string{"-sym", "work", "-after", "-set", "$arg1=1"}, 2, "before its body runs"},
		{[]string{"-sym", "work", "-corrupt", "nosuch", "-require", "work"}, 2, "nosuch"},
		{[]string{"-sym", "work", "-retval", "0", "-require", "nosuch"}, 4, "-require nosuch"},
		{[]string{"-sym", "work", "-retval", "0", "-if", "nosuch > 1"}, 2, "nosuch"},
		{[]string{"-sym", "work", "-retval", "0", "-thread", "1"}, 2, "-thread 1: process " + pidOf(p) + " has no such thread, it has " + pidOf(p)},
		{[]string{"-sym", "work", "-retval", "0", "-task-filter", "Y"}, 2, "name them with -thread TID"},
	} {
		r := gokprobe(t, append([]string{"inject", "-p", pidOf(p)}, c.args...)...)
		first, _, _ := strings.Cut(r.stderr, "\n")
		if r.status != c.status || r.stdout != "" || !strings.HasPrefix(first, "gokprobe: ") || !strings.Contains(r.stderr, c.want) || strings.Contains(r.stderr, "armed") {
			t.Errorf("%v: status %d, not %d; %q", c.args, r.status, c.status, r.stderr)
		}
		before.Compare(t, p.PID())
		p.CheckClean()
	}
	if got := p.Do("run 3", "failed"); got != "failed 0:" {
		t.Error(got)
	}
	p.Quit()
}

func TestTheHelpOfInjectHasEveryFlagThatItSpeaksOf(t *testing.T) {
	flags := visibleNames(injectCommand(stdio{}))
	help := gokprobe(t, "inject", "-h").stdout
	for _, flag := range regexp.MustCompile(`(?:^|[ (])-([a-z][a-z-]+)`).FindAllStringSubmatch(help, -1) {
		if !slices.Contains(flags, flag[1]) {
			t.Errorf("-%s is in the help, and is no flag", flag[1])
		}
	}
}
