package debugfs_test

import (
	"fmt"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
)

// hits is what kprobe_profile tells of an event.
func (t *tree) hits(event string) (hits, missed int) {
	t.t.Helper()
	for line := range strings.Lines(t.cat("tracing/kprobe_profile")) {
		if f := strings.Fields(line); f[0] == event {
			if _, err := fmt.Sscan(f[1], &hits); err != nil {
				t.t.Fatal(err)
			}
			if _, err := fmt.Sscan(f[2], &missed); err != nil {
				t.t.Fatal(err)
			}
		}
	}
	return hits, missed
}

// Everything is turned off and on again while eight threads run through it: they see nothing of it.
func TestSwitchesUnderLoad(t *testing.T) {
	inAllModes(t, "prey", func(t *testing.T, tr *tree) {
		tr.must(tr.add(events, "p:t target v=%di\nr:back target ret=$retval"))
		tr.must(tr.add("tracing/events/enable", "1"))
		for calls := 3000000; !hitsGoOn(t, tr, calls); calls *= 4 { // on a busy machine all calls may have been made before all is turned on again
			if calls > 1e9 {
				t.Fatal("hits do not go on when all is turned on again")
			}
		}
		tr.must(tr.add("tracing/events/enable", "1"))
		tr.must(tr.add(group+"t/filter", "0"))
		tr.must(tr.Truncate("tracing/trace"))
		tr.call("target", 9)
		tr.wantLines(`t: .* v=0x9`, `back: .* ret=3`)
		for _, bad := range []string{"2", "-1", "x", ""} {
			tr.refused(tr.add("sys/debug/kprobes-optimization", bad), errInvalid)
			tr.refused(tr.add("kprobes/enabled", "x"+bad), errInvalid)
		}
		if got := tr.prog.Quit(); got != "right" {
			t.Errorf("the program says %q", got)
		}
	})
}

// hitsGoOn turns all off and on again while eight threads run through it, and reports whether there were hits in between.
func hitsGoOn(t *testing.T, tr *tree, calls int) bool {
	tr.must(tr.add("tracing/events/enable", "1"))
	tr.prog.Send(fmt.Sprintf("threads 8 %d target", calls))
	first, last := 0, 0
	for i := range 5 {
		tr.must(tr.add("kprobes/enabled", "0"))
		tr.is("kprobes/enabled", "0\n")
		before, _ := tr.hits("t")
		if last = before; i == 0 {
			first = before
		}
		if list := tr.cat("kprobes/list"); strings.Contains(list, "[") {
			t.Errorf("a probe has a tag: %q", list)
		}
		if after, _ := tr.hits("t"); after != before {
			t.Errorf("%d hits while all is off", after-before)
		}
		tr.must(tr.add("kprobes/enabled", "1"))
		tr.is("kprobes/enabled", "1\n")
		tr.must(tr.add(group+"t/filter", fmt.Sprintf("v == %d", before)))
		tr.must(tr.add("sys/debug/kprobes-optimization", "0"))
		tr.is("sys/debug/kprobes-optimization", "0\n")
		tr.must(tr.add(group+"back/enable", "0"))
		tr.must(tr.add("sys/debug/kprobes-optimization", "1"))
		tr.must(tr.add(group+"back/enable", "1"))
	}
	tr.must(tr.add("tracing/events/enable", "0"))
	tr.prog.Expect("sum")
	return last != first
}

// Returns of many threads are recorded without a stop, and none is lost unseen; what a trigger wants of the tracer may
// be turned on and off in between.
func TestReturnsAreRecordedInTheTarget(t *testing.T) {
	inAllModes(t, "prey", func(t *testing.T, tr *tree) {
		tr.must(tr.add(events, "r64:back target v=$retval:s64 where=%ip:symbol"))
		tr.must(tr.add(group+"back/enable", "1"))
		const threads, calls = 4, 3000
		total := 0
		for range 3 {
			tr.session.WaitForOptimizer(t.Context())
			tr.prog.Do(fmt.Sprintf("threads %d %d target", threads, calls), "sum")
			total += threads * calls
			tr.must(tr.add(group+"back/trigger", "stacktrace:0"))
			tr.call("target", 1)
			tr.must(tr.add(group+"back/trigger", "!stacktrace"))
			total++
		}
		text := tr.cat("tracing/trace")
		if want := fmt.Sprintf("/%d   #P:", total); !strings.Contains(text, want) {
			t.Errorf("the trace has no %q: %.100q", want, text)
		}
		if hits, missed := tr.hits("back"); hits != total || missed != 0 {
			t.Errorf("%d hits and %d misses, want %d hits", hits, missed, total)
		}
		line := regexp.MustCompile(`back: \((worker\+0x[0-9a-f]+/0x[0-9a-f]+) <- target\) v=(\d+) where=(worker\+0x[0-9a-f]+/0x[0-9a-f]+)\n`)
		m := line.FindAllStringSubmatch(text, -1)
		for _, m := range m {
			if m[1] != m[3] {
				t.Fatalf("%q tells two return addresses", m[0])
			}
		}
		if n := strings.Count(text, " back: (worker+"); len(m) == 0 || len(m) != n { // how many the target had room for depends on when they were read
			t.Errorf("%d of %d lines tell of returns", len(m), n)
		}
	})
}

// 256 functions at once, as the kernel's multiple_kprobes.tc.
func TestManyEvents(t *testing.T) {
	tr := open(t, "prey", kprobes.Options{})
	const want = 256
	var b strings.Builder
	n := 0
	seen := map[arch.Addr]bool{}
	for _, s := range tr.session.Symbols().Symbols("libc.so.6:*") {
		if n == want || !s.Func || s.IFunc || s.Size == 0 || seen[s.Addr] {
			continue
		}
		seen[s.Addr] = true
		if tr.add(events, fmt.Sprintf("p:e%d 0x%x", n, uint64(s.Addr))) == nil {
			fmt.Fprintf(&b, "p:kprobes/e%d %s\n", n, s.Addr)
			n++
		}
	}
	tr.is(events, b.String())
	tr.must(tr.add(events, "p:write libc.so.6:write"))
	tr.must(tr.add(group+"enable", "1"))
	tr.is("tracing/events/enable", "1\n")
	tr.session.WaitForOptimizer(t.Context())
	if on := strings.Count(tr.cat("kprobes/list"), "[DISABLED]"); on != 0 || n != want {
		t.Errorf("%d events are defined, %d are off", n, on)
	}
	tr.prog.Do("call foo 1", "ret 3")
	if got := tr.lines(); len(got) == 0 {
		t.Error("nothing is hit")
	}
	tr.refused(tr.Truncate(events), syscall.EBUSY)
	tr.must(tr.add(group+"enable", "0"))
	tr.must(tr.Truncate(events))
}

// All probes of the session are listed, whoever has registered them.
func TestTheListHasAllProbes(t *testing.T) {
	tr := open(t, "prey", kprobes.Options{})
	kp := &kprobes.Kprobe{SymbolName: "six", PreHandler: func(*kprobes.Kprobe, *kprobes.Regs) int { return 0 }}
	if err := tr.session.RegisterKprobe(kp); err != nil {
		t.Fatal(err)
	}
	tr.must(tr.add(events, "p:t target\nr:back recurse"))
	tr.session.WaitForOptimizer(t.Context())
	list := tr.cat("kprobes/list")
	for _, want := range []string{"  k  target+0x0    [DISABLED]", "  r  recurse+0x0    [DISABLED]\n", "  k  six+0x"} {
		if !strings.Contains(list, want) {
			t.Errorf("kprobes/list has no %q:\n%s", want, list)
		}
	}
	if err := tr.session.UnregisterKprobe(kp); err != nil {
		t.Fatal(err)
	}
	if err := tr.session.Blacklist("six"); err != nil {
		t.Fatal(err)
	}
	if got := tr.cat("kprobes/blacklist"); !strings.HasSuffix(got, "\tsix\n") {
		t.Errorf("kprobes/blacklist is %q", got)
	}
	tr.refused(tr.add(events, "p six"), errInvalid)
}

// Go's functions have their arguments and results in other registers than C's.
func TestGoFunctions(t *testing.T) {
	for name, o := range modes {
		t.Run(name, func(t *testing.T) {
			tr := openProg(t, testprog.Start(t, testprog.Build(t, "govalues")), o)
			tr.must(tr.add(events, "p:in main.negative v=$arg1:s64\nr:out main.parse s=+0($arg1):char[4] len=$arg2 v=$arg3:s64 n=$retval:s64\np:mine/moved main.(*Point).Moved x=+0($arg1):s64 y=+8($arg1):s64 v=$arg2:s64"))
			tr.must(tr.add("tracing/events/enable", "1"))
			tr.session.WaitForOptimizer(t.Context())
			tr.prog.Do("call 21", "ret")
			tr.wantLines(`in: \(main\.negative\+0x0/.*\) v=21`, `out: \(main\.call\+.* <- main\.parse\) s=\{'t','e','x','t'\} len=0x4 v=21 n=25`,
				`moved: \(main\.\(\*Point\)\.Moved\+0x0/.*\) x=1 y=2 v=21`)
		})
	}
}
