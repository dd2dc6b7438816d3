package debugfs_test

import (
	"fmt"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/gokprobe/gokprobe/kprobes"
)

func TestTriggersSwitchEvents(t *testing.T) {
	inAllModes(t, "prey", func(t *testing.T, tr *tree) {
		tr.must(tr.add(events, "p:t target v=%di:s64\np:u target2 v=%di:s64"))
		tr.must(tr.add(group+"t/trigger", "enable_event:kprobes:u:1 if v == 7"))
		tr.is(group+"t/enable", "0*\n")
		tr.is(group+"u/enable", "0*\n")
		tr.refused(tr.add(group+"t/trigger", "enable_event:kprobes:u"), syscall.EEXIST)
		tr.refused(tr.add(events, "-:u"), syscall.EBUSY)
		tr.call("target2", 1)
		tr.call("target", 6)
		tr.call("target2", 2)
		tr.wantLines()
		tr.call("target", 7) // it is not recorded itself
		tr.call("target2", 3)
		tr.wantLines(`u: .* v=3`)
		tr.is(group+"u/enable", "1*\n")
		tr.must(tr.add(group+"u/enable", "0"))
		tr.is(group+"u/enable", "0*\n")
		tr.call("target", 7) // its count is used up
		tr.call("target2", 4)
		tr.must(tr.add(group+"u/enable", "1"))
		tr.call("target2", 5)
		tr.wantLines(`u: .* v=3`, `u: .* v=5`)
		tr.must(tr.add(group+"t/trigger", "!enable_event:kprobes:u"))
		tr.is(group+"t/enable", "0\n")
		tr.is(group+"u/enable", "1\n")
		tr.must(tr.add(group+"u/enable", "0"))
		tr.must(tr.Truncate(events))
	})
}

func TestTriggersStopTheTrace(t *testing.T) {
	inAllModes(t, "prey", func(t *testing.T, tr *tree) {
		tr.must(tr.add(events, "p:t target v=%di:s64"))
		tr.must(tr.add(group+"t/enable", "1"))
		tr.must(tr.add(group+"t/trigger", "traceoff if v == 3"))
		tr.must(tr.add(group+"t/trigger", "snapshot:1 if v == 2"))
		for i := range 5 {
			tr.call("target", i)
		}
		tr.wantLines(`t: .* v=2`, `t: .* v=3`)
		if got := tr.cat("tracing/snapshot"); strings.Count(got, " t: ") != 2 {
			t.Errorf("the snapshot is %q", got)
		}
		tr.is("tracing/tracing_on", "0\n")
	})
}

// A hit whose stack is wanted is handled by the tracer, also where its program is in the target.
func TestStacks(t *testing.T) {
	inAllModes(t, "prey", func(t *testing.T, tr *tree) {
		tr.must(tr.add(events, "p:t stack_internal v=%di:s64\nr:back stack_internal ret=$retval:s64"))
		tr.must(tr.add(group+"enable", "1"))
		tr.call("stack_driver", 30)
		tr.must(tr.add(group+"t/trigger", "stacktrace:1"))
		tr.must(tr.add(group+"back/trigger", "stacktrace:1"))
		tr.call("stack_driver", 30)
		tr.must(tr.add(group+"t/trigger", "!stacktrace"))
		tr.call("stack_driver", 30)
		hit, back := `t: \(stack_internal\+.*\) v=30`, `back: \(stack_target\+.* <- stack_internal\) ret=10`
		callers := []string{" => stack_target", " => stack_driver", " => main"}
		want := append([]string{hit, back, hit, "<stack trace>", " => stack_internal"}, callers...)
		want = append(append(want, back, "<stack trace>"), callers...)
		got := tr.lines()
		var kept []string // without what lies outside of the program
		for i, line := range got {
			outside := strings.HasPrefix(line, " => ") && (strings.Contains(line, " [lib") || strings.HasPrefix(line, " => _start"))
			if !outside || i > 0 && !strings.HasPrefix(got[i-1], " => ") {
				kept = append(kept, line)
			}
		}
		want = append(want, hit, back)
		if len(kept) != len(want) {
			t.Fatalf("the trace is\n%s", strings.Join(kept, "\n"))
		}
		for i := range want {
			if !regexp.MustCompile("^" + want[i] + "$").MatchString(kept[i]) {
				t.Errorf("line %d is %q, want %q", i, kept[i], want[i])
			}
		}
	})
}

func TestHistograms(t *testing.T) {
	inAllModes(t, "prey", func(t *testing.T, tr *tree) {
		tr.must(tr.add(events, "p:t target v=%di:s64\np:s length text=+0(%di):string"))
		tr.must(tr.add(group+"t/trigger", "hist:keys=v:vals=v:sort=v if v < 100"))
		tr.must(tr.add(group+"s/trigger", "hist:keys=text,common_pid.execname"))
		tr.is(group+"t/trigger", "hist:keys=v:vals=hitcount,v:sort=v:size=2048 if v < 100 [active]\n")
		for _, v := range []int{5, 200, 5, 3} {
			tr.call("target", v)
		}
		tr.call("string", 1)
		tr.wantLines() // nothing is on but for the histograms
		got := tr.cat(group + "t/hist")
		want := fmt.Sprintf("{ v: %10d } hitcount: %10d  v: %10d\n{ v: %10d } hitcount: %10d  v: %10d\n\nTotals:\n    Hits: 3\n    Entries: 2\n    Dropped: 0\n", 3, 1, 3, 5, 2, 10)
		if !strings.Contains(got, "# trigger info: hist:keys=v:") || !strings.HasSuffix(got, want) {
			t.Errorf("the hist file is\n%s\nwant\n%s", got, want)
		}
		if got := tr.cat(group + "s/hist"); !regexp.MustCompile(`\{ text: test +, common_pid: prey +\[ *\d+\] \} hitcount: +1\n`).MatchString(got) {
			t.Errorf("the hist file is\n%s", got)
		}
		tr.refused(tr.add(group+"t/trigger", "hist:keys=nosuch"), syscall.EINVAL)
		if got := tr.cat("tracing/error_log"); !strings.HasSuffix(got, "hist:kprobes:t: error: Couldn't find field\n  Command: hist:keys=nosuch\n                     ^\n") {
			t.Errorf("error_log is %q", got)
		}
		tr.must(tr.Truncate(group + "t/trigger"))
		tr.is(group+"t/enable", "0\n")
		tr.must(tr.add(group+"s/trigger", "!hist:keys=text,common_pid.execname"))
		tr.must(tr.Truncate(events))
	})
}

// The stack as a histogram's key.
func TestStacksAreKeys(t *testing.T) {
	tr := open(t, "prey", kprobes.Options{})
	tr.must(tr.add(events, "p:t stack_internal"))
	tr.must(tr.add(group+"t/trigger", "hist:keys=common_stacktrace"))
	tr.call("stack_driver", 30)
	tr.call("stack_driver", 33)
	if got := tr.cat(group + "t/hist"); !strings.Contains(got, "stack_target+0x") || !regexp.MustCompile(`hitcount: +2\n`).MatchString(got) {
		t.Errorf("the hist file is\n%s", got)
	}
}

// Hits for whose records the target had no room are dropped ones of histograms; those of an event that is quiet are
// none of the trace's.
func TestHistogramsCountLosses(t *testing.T) {
	tr := open(t, "prey", kprobes.Options{})
	tr.must(tr.add(events, "p:s length text=+0(%di):string more=+0(%di):string"))
	tr.must(tr.add(group+"s/trigger", "hist:keys=text"))
	tr.session.WaitForOptimizer(t.Context())
	const calls = 200_000
	tr.prog.Do(fmt.Sprintf("threads 2 %d string", calls/2), "sum")
	var hits, dropped int
	for line := range strings.Lines(tr.cat(group + "s/hist")) {
		_, _ = fmt.Sscanf(line, "    Hits: %d", &hits)
		_, _ = fmt.Sscanf(line, "    Dropped: %d", &dropped)
	}
	if hits+dropped != calls || hits == 0 {
		t.Errorf("%d hits and %d dropped of %d", hits, dropped, calls)
	}
	if got := tr.cat("tracing/trace"); strings.Contains(got, "LOST") {
		t.Errorf("the trace is\n%s", got)
	}
	t.Logf("%d hits, %d dropped", hits, dropped)
}
