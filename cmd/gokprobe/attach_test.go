package main

import (
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
)

func TestAttachPrintsEveryCallAndASummary(t *testing.T) {
	p := prey(t)
	before := testprog.TakeSnapshot(t, p.PID())
	l := attachTo(t, p, "-sym", "foo", "-format", "json")
	armed := regexp.MustCompile(`^armed: 1 probe in ` + strconv.Itoa(p.PID()) + ` \(prey[^)]*\)\n$`)
	if !armed.MatchString(l.said.String()) {
		t.Errorf("stderr is %q", l.said.String())
	}
	var hits []hitLine
	for range 3 {
		if got := p.Do("call foo 3", "ret"); got != "ret 7" {
			t.Errorf("foo(3) gives %q", got)
		}
		var h hitLine
		strictly(t, l.line(), &h) // as it happens, not at the end
		hits = append(hits, h)
	}
	r := l.interrupt()
	rest, sum := records(t, r.stdout)
	if r.status != 0 || len(rest) != 0 {
		t.Errorf("status %d, %d more hits", r.status, len(rest))
	}
	for _, h := range hits {
		if h.Type != "hit" || h.PID != p.PID() || h.TID != p.PID() || h.Probe != "foo" || h.Kind != "kprobe" ||
			!strings.HasPrefix(h.Symbol, "foo+0x") || !strings.HasPrefix(h.Comm, "prey") || string(h.Args) != "{}" || h.Time.IsZero() {
			t.Errorf("hit %+v", h)
		}
	}
	if s := sum.Probes[0]; s.Hits != 3 || s.NMissed != 0 || s.Mechanism != "optimized" || s.Reason != "" || s.Addr != hits[0].Addr || sum.Lost != 0 {
		t.Errorf("summary %+v", sum)
	}
	before.Compare(t, p.PID())
	p.CheckClean()
	p.Quit()
}

func TestEverySignalThatEndsAttachDetachesCleanly(t *testing.T) {
	if signal.Ignored(syscall.SIGHUP) { // as under nohup(1), and so it would be for the command
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
		defer signal.Ignore(syscall.SIGHUP)
	}
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGABRT} {
		p := prey(t)
		l := attachTo(t, p, "-sym", "foo", "-count")
		p.Do("call foo 3", "ret")
		l.signal(sig)
		r := l.end()
		if r.status != 0 || !counted(r.stdout, "1 0 foo optimized") || strings.Contains(r.stderr, "PROBE") {
			t.Errorf("%v: status %d, stdout %q, stderr %q", sig, r.status, r.stdout, r.stderr)
		}
		p.CheckClean()
		p.Quit()
	}
}

// counted tells whether a row of what -count prints is as in want, whose columns have one blank between them.
func counted(out, want string) bool {
	for line := range strings.Lines(out) {
		if strings.Join(strings.Fields(line), " ") == want {
			return true
		}
	}
	return false
}

func TestCountsOfWhatWasHitAreOnStdoutAndWithAllTheOthersToo(t *testing.T) {
	file := filepath.Join(t.TempDir(), "counts")
	for _, flags := range [][]string{nil, {"-all-rows"}, {"-all-rows", "-o", file}} {
		p := prey(t)
		l := attachTo(t, p, append(flags, "-count", "-sym", "recurse", "-sym", "foo", "-sym", "getpid")...)
		p.Do("call foo 3", "ret")
		p.Do("call recurse 4", "ret")
		r := l.interrupt()
		out := r.stdout
		if len(flags) > 1 {
			text, err := os.ReadFile(file)
			if out = string(text); err != nil || r.stdout != "" {
				t.Errorf("%v, stdout is %q", err, r.stdout)
			}
		}
		rows := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
		if r.status != 0 || len(rows) != 4 || !counted(rows[0], "HITS MISSED PROBE MECHANISM") || !counted(rows[1], "5 0 recurse optimized") || !counted(rows[2], "1 0 foo optimized") {
			t.Errorf("%v: status %d, %q", flags, r.status, out)
		}
		if last := rows[len(rows)-1]; flags == nil && last != "1 probe was not hit; -all-rows prints all" || flags != nil && !strings.Contains(last, "getpid") {
			t.Errorf("%v: the last row is %q", flags, last)
		}
		p.Quit()
	}
}

func TestCountIsExactUnderThreads(t *testing.T) {
	for _, flags := range [][]string{{"-count"}, {"-count", "-no-boost"}} {
		p := prey(t)
		l := attachTo(t, p, append(flags, "-sym", "foo", "-format", "json")...)
		p.Do("threads 8 5000 foo", "sum")
		_, sum := records(t, l.interrupt().stdout)
		if sum.Probes[0].Hits != 40000 {
			t.Errorf("%v: %d hits", flags, sum.Probes[0].Hits)
		}
		p.Quit()
	}
}

func TestEveryHitIsARecordOrCountedAsLost(t *testing.T) {
	file := filepath.Join(t.TempDir(), "hits.jsonl")
	p := prey(t)
	l := attachTo(t, p, "-sym", "foo", "-format", "json", "-o", file)
	p.Do("threads 8 5000 foo", "sum")
	if r := l.interrupt(); r.status != 0 || r.stdout != "" {
		t.Errorf("status %d, stdout %q, stderr %q", r.status, r.stdout, r.stderr)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	hits, sum := records(t, string(text))
	if uint64(len(hits))+sum.Lost != 40000 || sum.Probes[0].Hits != 40000 {
		t.Errorf("%d records, %d lost, %d hits", len(hits), sum.Lost, sum.Probes[0].Hits)
	}
	p.Quit()
}

func TestMaxHitsIsExactOverAllProbesAndThreads(t *testing.T) {
	for _, extra := range [][]string{nil, {"-count"}} {
		p := prey(t)
		l := attachTo(t, p, append(extra, "-sym", "foo", "-sym", "foo+*", "-max-hits", "100", "-format", "json")...)
		if got := p.Do("threads 8 20000 foo", "sum"); got != "sum 3200000000 count 160000" {
			t.Errorf("the target says %q", got)
		}
		r := l.end()
		hits, sum := records(t, r.stdout)
		total := uint64(0)
		for _, s := range sum.Probes {
			total += s.Hits
		}
		if want := map[bool]int{true: 100, false: 0}[extra == nil]; r.status != 0 || len(hits) != want || total != 100 || sum.Lost != 0 {
			t.Errorf("status %d, %d records, %d hits counted, %d lost", r.status, len(hits), total, sum.Lost)
		}
		p.CheckClean()
		p.Quit()
	}
}

func TestAClosedPipeEndsAttachQuietly(t *testing.T) {
	p := prey(t)
	l := attachTo(t, p, "-sym", "foo")
	p.Do("call foo 1", "ret")
	l.line()
	l.pipe.Close() // as head -1 does
	p.Do("threads 2 1000 foo", "sum")
	r := l.end()
	if r.status != 0 || strings.Contains(r.stderr, "gokprobe:") {
		t.Errorf("status %d, stderr %q", r.status, r.stderr)
	}
	p.CheckClean()
	p.Quit()
}

func TestAFullDiskEndsAttachWithASentence(t *testing.T) {
	p := prey(t)
	l := attachTo(t, p, "-sym", "foo", "-o", "/dev/full")
	p.Do("call foo 1", "ret")
	r := l.end()
	want := "gokprobe: cannot write to /dev/full, so the probes were removed: no space left on device\n"
	if r.status != 1 || !strings.HasSuffix(r.stderr, want) || !strings.Contains(r.stderr, "\n1 record could not be written\n") {
		t.Errorf("status %d, stderr %q", r.status, r.stderr)
	}
	p.CheckClean()
	p.Quit()
}

func TestABlockedOutputDoesNotStopTheTarget(t *testing.T) {
	p := prey(t)
	l := attachTo(t, p, "-sym", "foo", "-format", "json")
	if got := p.Do("threads 4 400000 foo", "sum"); got != "sum 640000000000 count 1600000" { // nobody reads stdout
		t.Errorf("the target says %q", got)
	}
	l.signal(syscall.SIGINT)
	hits, sum := records(t, l.end().stdout)
	if got := uint64(len(hits)) + sum.Lost; got != 1600000 || sum.Lost == 0 {
		t.Errorf("%d records and %d lost", len(hits), sum.Lost)
	}
	if !slices.ContainsFunc(sum.Losses, func(l loss) bool { return l.Reason == notTaken || l.Reason == tooFast }) || lossesOf(sum.Losses) != sum.Lost {
		t.Errorf("%d are lost, since %+v", sum.Lost, sum.Losses)
	}
	if !strings.Contains(l.said.String(), "lost, since ") {
		t.Errorf("no warning of lost records: %s", l.said.String())
	}
	p.CheckClean()
	p.Quit()
}

func TestASecondInterruptGivesUpABlockedOutput(t *testing.T) {
	p := prey(t)
	l := attachTo(t, p, "-sym", "foo")
	p.Do("threads 1 5000 foo", "sum")
	l.signal(syscall.SIGINT)
	l.signal(syscall.SIGTERM)
	l.waitFor("gokprobe: detaching")
	l.waitFor("gokprobe: writing to stdout was given up")
	if r := l.end(); r.status != 1 {
		t.Errorf("status %d, stderr %q", r.status, r.stderr)
	}
	p.CheckClean()
	p.Quit()
}

func TestDurationEndsAttach(t *testing.T) {
	p := prey(t)
	r := lasting(t, "attach", "-p", pidOf(p), "-sym", "foo")
	if r.status != 0 || !strings.Contains(r.stderr, "PROBE") {
		t.Errorf("status %d, stderr %q", r.status, r.stderr)
	}
	p.CheckClean()
	p.Quit()
}

func TestTheTargetsExitEndsAttach(t *testing.T) {
	p := prey(t)
	l := attachTo(t, p, "-sym", "foo")
	p.Do("call foo 1", "ret")
	p.Quit()
	if r := l.end(); r.status != 0 || !strings.Contains(r.stderr, fmt.Sprintf("process %d exited with status 0", p.PID())) {
		t.Errorf("status %d, stderr %q", r.status, r.stderr)
	}
	p = prey(t)
	l = attachTo(t, p, "-sym", "foo")
	p.Kill()
	if r := l.end(); r.status != 0 || !strings.Contains(r.stderr, "was killed by signal 9") {
		t.Errorf("status %d, stderr %q", r.status, r.stderr)
	}
}

func TestAnExecThatEndsAllProbesEndsAttach(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "execer"))
	l := attachTo(t, p, "-sym", "foo")
	p.Do("exec", "ready 1")
	if r := l.end(); r.status != 0 || !strings.Contains(r.stderr, "executes another program now, so all probes are gone") {
		t.Errorf("status %d, stderr %q", r.status, r.stderr)
	}
	p.CheckClean()
}

func TestFollowProbesTheProgramThatIsExecuted(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "execer"))
	l := attachTo(t, p, "-sym", "foo", "-follow", "-format", "json")
	p.Do("exec", "ready 1")
	p.Do("call 2", "ret 27")
	var h hitLine
	strictly(t, l.line(), &h)
	if h.Probe != "foo" || h.PID != p.PID() {
		t.Errorf("hit %+v", h)
	}
	if r := l.interrupt(); r.status != 0 {
		t.Errorf("status %d, stderr %q", r.status, r.stderr)
	}
	p.CheckClean()
}

func TestAttachPrintsArgumentsRegistersAndStack(t *testing.T) {
	p := prey(t)
	l := attachTo(t, p, "-sym", "sum6", "-sym", "length", "-sym", "stack_internal", "-args", "-stack", "4", "-format", "json")
	p.Do("call six 10", "ret")
	p.Do("call string 1", "ret")
	p.Do("call stack_driver 9", "ret")
	for _, want := range []struct{ probe, args string }{
		{"sum6", `{"a":10,"b":11,"c":12,"d":13,"e":14,"f":15}`},
		{"length", `{"s":"test"}`},
		{"stack_internal", `{"v":9}`},
	} {
		var h hitLine
		strictly(t, l.line(), &h)
		if h.Probe != want.probe || string(h.Args) != want.args {
			t.Errorf("%s %s, not %s %s", h.Probe, h.Args, want.probe, want.args)
		}
		if want.probe != "stack_internal" {
			continue
		}
		var names []string
		for _, f := range h.Stack {
			name, _, _ := strings.Cut(f.Symbol, "+")
			names = append(names, name)
			if f.File != "prey.c" || f.Line == 0 || f.Addr == "" {
				t.Errorf("frame %+v", f)
			}
		}
		if got := strings.Join(names, " "); got != "stack_internal stack_target stack_driver main" {
			t.Errorf("the stack is %s", got)
		}
	}
	l.interrupt()

	l = attachTo(t, p, "-sym", "foo", "-regs")
	p.Do("call foo 4660", "ret")
	if line := l.line(); !strings.Contains(line, " %rdi=0x1234 ") || !strings.Contains(line, " %rip=0x") {
		t.Errorf("registers: %s", line)
	}
	l.interrupt()
	p.Quit()
}

func TestPatternsPlaceWhatCanBeProbed(t *testing.T) {
	p := prey(t)
	l := attachTo(t, p, "-sym", "stack_*", "-sym", "target+*", "-count", "-format", "json")
	p.Do("call stack_driver 9", "ret")
	p.Do("call target 9", "ret 3")
	_, sum := records(t, l.interrupt().stdout)
	hits := map[string]uint64{}
	for _, s := range sum.Probes {
		hits[s.Probe] = s.Hits
	}
	for _, name := range []string{"stack_driver", "stack_target", "stack_internal", "target+0x0"} {
		if hits[name] != 1 {
			t.Errorf("%s: %d hits, of %v", name, hits[name], hits)
		}
	}
	p.Quit()
}

func TestATargetIsFoundByItsName(t *testing.T) {
	p := prey(t)
	link := filepath.Join(t.TempDir(), "onlyprey12345678") // comm keeps 15 bytes
	if err := os.Link(fmt.Sprintf("/proc/%d/exe", p.PID()), link); err != nil {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/exe", p.PID()))
		if err == nil {
			err = os.WriteFile(link, text, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	named := testprog.Start(t, link)
	r := lasting(t, "attach", "-p", "onlyprey12345678", "-sym", "foo")
	if r.status != 0 || !strings.Contains(r.stderr, fmt.Sprintf("armed: 1 probe in %d (onlyprey1234567)", named.PID())) {
		t.Errorf("status %d, stderr %q", r.status, r.stderr)
	}
}

func TestTheTextSummaryGivesReasonsForSlowProbes(t *testing.T) {
	for _, c := range []struct {
		flags []string
		want  string // at the end of the probe's line
	}{{nil, "optimized"}, {[]string{"-no-optimize"}, "boosted"}, {[]string{"-no-boost"}, "int3 (boosting is turned off)"}} {
		p := prey(t)
		l := attachTo(t, p, append(c.flags, "-sym", "foo")...)
		if r := l.interrupt(); r.stdout != "" || !strings.HasSuffix(strings.TrimRight(r.stderr, "\n"), "  "+c.want) {
			t.Errorf("%v: the summary is %q", c.flags, r.stderr)
		}
		l = attachTo(t, p, append(c.flags, "-sym", "foo", "-count", "-all-rows")...)
		if r := l.interrupt(); !counted(r.stdout, "0 0 foo "+c.want) {
			t.Errorf("%v: the counts are %q", c.flags, r.stdout)
		}
		p.Quit()
	}
}

func TestWhyAProbeIsNotOptimized(t *testing.T) {
	for _, c := range []struct {
		noOptimize bool
		st         kprobes.Status
		want       string
	}{
		{false, kprobes.Status{Mechanism: kprobes.Optimized}, "optimized"},
		{false, kprobes.Status{Mechanism: kprobes.Boosted, Reason: "no function is known there"}, "boosted (no function is known there)"},
		{true, kprobes.Status{Mechanism: kprobes.Boosted, Reason: "optimization is turned off"}, "boosted"},
		{true, kprobes.Status{Mechanism: kprobes.Int3, Reason: "the instruction is emulated"}, "int3 (the instruction is emulated)"},
	} {
		r := request{noOptimize: c.noOptimize}
		if got, _ := r.explained(c.st.Mechanism, c.st.Mechanism.String(), c.st.Reason); got != c.want {
			t.Errorf("%+v (-no-optimize %t) is %q, want %q", c.st, c.noOptimize, got, c.want)
		}
	}
}

func TestArgumentsWithoutDebugInformationAreOneShortWarning(t *testing.T) {
	for _, c := range []struct {
		flags []string
		want  string
	}{
		{[]string{"-g0", "-Wl,--build-id=0x0123456789"}, "(build ID 0123456789)"},
		{[]string{"-g0", "-Wl,--build-id=none"}, "(it has no build ID)"},
	} {
		p := testprog.Start(t, testprog.Build(t, "prey", c.flags...))
		r := attachTo(t, p, "-sym", "foo", "-args").interrupt()
		warning := "no debug information; install its debug package " + c.want
		if strings.Count(r.stderr, warning) != 1 || strings.Contains(r.stderr, ".debug") {
			t.Errorf("%v: stderr is %q, want %q", c.flags, r.stderr, warning)
		}
		p.Quit()
	}
}
