package debugfs_test

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/gokprobe/gokprobe/kprobes"
)

const (
	events = "tracing/kprobe_events"
	group  = "tracing/events/kprobes/"
)

// modes are the ways in which hits are handled: in the target and by the tracer.
var modes = map[string]kprobes.Options{"optimized": {}, "by the tracer": {NoOptimize: true}}

func inAllModes(t *testing.T, fixture string, f func(t *testing.T, tr *tree)) {
	for name, o := range modes {
		t.Run(name, func(t *testing.T) { f(t, open(t, fixture, o)) })
	}
}

// wantLines fails the test unless the trace's lines match patterns, one each.
func (t *tree) wantLines(patterns ...string) {
	t.t.Helper()
	got := t.lines()
	ok := len(got) == len(patterns)
	for i := 0; ok && i < len(got); i++ {
		ok = regexp.MustCompile("^" + patterns[i] + "$").MatchString(got[i])
	}
	if !ok {
		t.t.Errorf("the trace is\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(patterns, "\n"))
	}
}

// call has the fixture call a function once, and the target's program in place if it is to be.
func (t *tree) call(function string, arg int) {
	t.t.Helper()
	t.session.WaitForOptimizer(context.Background())
	t.prog.Do(fmt.Sprintf("call %s %d", function, arg), "ret")
}

func TestAnEventRecordsItsArguments(t *testing.T) {
	inAllModes(t, "prey", func(t *testing.T, tr *tree) {
		tr.must(tr.set(events, "p:greet length text=+0(%di):string c=+0(%di):char ch=+0(%di):char[4] w=+0(%di):u16 me=$comm where=%ip:symbol"))
		tr.is(events, "p:kprobes/greet length text=+0(%di):string c=+0(%di):char ch=+0(%di):char[4] w=+0(%di):u16 me=$comm where=%ip:symbol\n")
		tr.call("string", 3)
		tr.wantLines()
		tr.must(tr.set(group+"greet/enable", "1"))
		tr.is(group+"greet/enable", "1\n")
		tr.call("string", 3)
		tr.must(tr.set(group+"greet/enable", "0"))
		tr.call("string", 3)
		tr.wantLines(`greet: \(length\+0x[04]/0x[0-9a-f]+\) text="test" c='t' ch=\{'t','e','s','t'\} w=25972 me="prey" where=length\+0x[0145]/0x[0-9a-f]+`)
		tr.is("tracing/kprobe_profile", fmt.Sprintf("  %-44s %15d %15d\n", "greet", 1, 0))
		if got := tr.cat("tracing/trace"); !regexp.MustCompile(`(?m)^ {12}prey-\d+ +\[\d{3}\] \.{5} +\d+\.\d{6}: greet: `).MatchString(got) {
			t.Errorf("the trace is\n%s", got)
		}
		tr.must(tr.Truncate("tracing/trace"))
		tr.wantLines()
		tr.must(tr.Truncate(events))
		tr.is(events, "")
		tr.is("tracing/kprobe_profile", "")
	})
}

func TestReturnsAndTheirEntries(t *testing.T) {
	inAllModes(t, "prey", func(t *testing.T, tr *tree) {
		tr.must(tr.set(events, "r7:back target arg=$arg1:s64 ret=$retval:s32\np:suffixed target2%return $retval:u8"))
		tr.is(events, "r7:kprobes/back target arg=$arg1:s64 ret=$retval:s32\nr10:kprobes/suffixed target2 arg1=$retval:u8\n")
		tr.must(tr.set("tracing/events/kprobes/enable", "1"))
		tr.call("target", 33)
		tr.call("target2", 33)
		tr.wantLines(`back: \(main\+0x[0-9a-f]+/0x[0-9a-f]+ <- target\) arg=33 ret=11`, `suffixed: \(main\+0x[0-9a-f]+/0x[0-9a-f]+ <- target2\) arg1=12`)
		want := fmt.Sprintf("  %-44s %15d %15d\n  %-44s %15d %15d\n", "back", 1, 0, "suffixed", 1, 0)
		tr.is("tracing/kprobe_profile", want)
	})
}

// What is on can't be deleted, and one that is on keeps all others of the file.
func TestEventsThatAreOnStay(t *testing.T) {
	tr := open(t, "prey", kprobes.Options{})
	tr.must(tr.add(events, "p:a foo\np:b target"))
	tr.must(tr.set(group+"b/enable", "1"))
	list := tr.cat(events)
	tr.refused(tr.Truncate(events), syscall.EBUSY)
	tr.refused(tr.add(events, "-:b"), syscall.EBUSY)
	tr.refused(tr.add(events, "-:kprobes/"), syscall.EBUSY)
	tr.is(events, list)
	tr.is("tracing/events/kprobes/enable", "X\n")
	tr.must(tr.add(events, "-:a"))
	tr.refused(tr.add(events, "-:a"), syscall.ENOENT)
	tr.is("tracing/events/enable", "1\n")
	tr.must(tr.add("tracing/events/enable", "0"))
	tr.must(tr.Truncate(events))
	tr.is("tracing/events/enable", "?\n")
	if _, err := tr.Stat("tracing/events/kprobes"); err == nil {
		t.Error("a group without events has a directory")
	}
}

// The same name again adds a probe; what does not fit is told so, and where.
func TestSeveralProbesOfAnEvent(t *testing.T) {
	inAllModes(t, "prey", func(t *testing.T, tr *tree) {
		tr.must(tr.add(events, "p:both target v=%di:u64"))
		tr.must(tr.add(group+"both/enable", "1"))
		tr.must(tr.add(events, "p:both target2 v=%di:u64"))
		tr.call("target", 1)
		tr.call("target2", 2)
		tr.wantLines(`both: \(target\+.*\) v=1`, `both: \(target2\+.*\) v=2`)
		for _, c := range [...][2]string{
			{"p:both foo w=%di:u64", "DIFF"}, {"r:both foo", "DIFF"}, {"p:both target v=%di:u64", "exact same"},
			{"p:both foo v=%di:u32", "Argument type or name is different from existing probe\n  Command: p:both foo v=%di:u32\n                      ^"},
		} {
			tr.must(tr.Truncate("tracing/error_log"))
			tr.refused(tr.add(events, c[0]), syscall.EEXIST)
			if c[1] != "DIFF" && !strings.Contains(tr.cat("tracing/error_log"), c[1]) {
				t.Errorf("error_log is %q, want %q", tr.cat("tracing/error_log"), c[1])
			}
		}
		tr.must(tr.add(events, "-:both target v=%di:u64")) // one of two goes though the event is on
		tr.is(events, "p:kprobes/both target2 v=%di:u64\n")
		tr.refused(tr.add("tracing/uprobe_events", "p:kprobes/both /bin/sh:0x1000"), syscall.EEXIST)
		tr.must(tr.add(group+"both/enable", "0"))
		tr.must(tr.add("tracing/dynamic_events", "!p:kprobes/both target2 v=%di:u64"))
		tr.is(events, "")
	})
}

// What is wrong with a place is found out when it is defined.
func TestPlacesThatCanNotBeProbed(t *testing.T) {
	tr := open(t, "prey", kprobes.Options{})
	for _, c := range []struct {
		line  string
		errno error
		text  string
		caret int
	}{
		{"p nosuchsymbol", syscall.ENOENT, "Invalid probed address or symbol", 2},
		{"p foo+1", syscall.EILSEQ, "Probe point is not an instruction boundary", 2},
		{"p 0x10", syscall.EINVAL, "Failed to register probe event", 2},
		{"r:name target+4", syscall.EINVAL, "Retprobe address must be an function entry", 7},
		{"p text", syscall.EINVAL, "Invalid probed address or symbol", 2},
		{"p foo arg=@nosuchvariable", syscall.ENOENT, "", 0},
	} {
		tr.must(tr.Truncate("tracing/error_log"))
		tr.refused(tr.add(events, c.line), c.errno)
		log := tr.cat("tracing/error_log")
		want := fmt.Sprintf("trace_kprobe: error: %s\n  Command: %s\n%*s^\n", c.text, c.line, len("  Command: ")+c.caret, "")
		if c.text != "" && !strings.HasSuffix(log, want) {
			t.Errorf("error_log is %q, want %q", log, want)
		}
	}
	tr.is(events, "")
	if n := len(tr.session.Probes()); n != 0 {
		t.Errorf("%d probes are left", n)
	}
}

// A line that is wrong ends a write; those in front of it have been done.
func TestLinesOfAWrite(t *testing.T) {
	tr := open(t, "prey", kprobes.Options{})
	tr.refused(tr.add(events, "# two events\np:a foo # one\n\n  p:b\ttarget  \np:c nosuch\np:d target2"), syscall.ENOENT)
	tr.is(events, "p:kprobes/a foo\np:kprobes/b target\n")
	tr.is("tracing/available_events", "kprobes:a\nkprobes:b\n")
	tr.must(tr.add("tracing/set_event", "kprobes:*"))
	tr.is("tracing/set_event", "kprobes:a\nkprobes:b\n")
	tr.must(tr.add("tracing/set_event", "!a"))
	tr.is("tracing/set_event", "kprobes:b\n")
	tr.refused(tr.add("tracing/set_event", "nosuch:*"), syscall.EINVAL)
	tr.must(tr.Truncate("tracing/set_event"))
	tr.is("tracing/set_event", "")
}

func TestHostileWriters(t *testing.T) {
	tr := open(t, "prey", kprobes.Options{})
	tr.must(tr.add(events, "p:a foo"))
	before := map[string]string{}
	files := []string{events, "tracing/uprobe_events", "tracing/dynamic_events", group + "a/enable", group + "a/filter", group + "a/trigger",
		"kprobes/enabled", "sys/debug/kprobes-optimization", "tracing/tracing_on", "tracing/set_event", "tracing/set_event_pid", "tracing/buffer_size_kb", "tracing/snapshot",
		"fail_function/inject", "fail_function/foo/retval", fmt.Sprintf("fail_function/tasks/%d/make-it-fail", tr.prog.PID()), fmt.Sprintf("fail_function/tasks/%d/fail-nth", tr.prog.PID())}
	for _, name := range []string{"probability", "interval", "times", "space", "verbose", "task-filter", "stacktrace-depth", "require-start", "when", "rate", "for", "seed"} {
		files = append(files, "fail_function/"+name)
	}
	tr.must(tr.add("fail_function/inject", "foo"))
	for _, f := range files {
		before[f] = tr.cat(f)
	}
	binary := make([]byte, 5000)
	for i := range binary {
		binary[i] = byte(i*7 + 128)
	}
	for _, junk := range [][]byte{[]byte(strings.Repeat("p foo ", 64<<20/6)), []byte(strings.Repeat("p", 5000)), binary, {0}, {'\n', 0xff}, []byte("\x01\x02 \x03")} {
		for _, f := range files {
			if _, err := tr.Write(f, junk); err == nil {
				t.Errorf("%d bytes of junk are taken by %s", len(junk), f)
			}
		}
	}
	for _, f := range files {
		if now := tr.cat(f); now != before[f] && !strings.HasSuffix(f, "filter") {
			t.Errorf("%s was %q and is %q", f, before[f], now)
		}
	}
	for _, name := range []string{"tracing/kprobe_profile", "kprobes/list", "tracing/trace_pipe", group + "a/format"} {
		tr.refused(tr.add(name, "1"), syscall.EACCES)
	}
	tr.refused(tr.add("tracing", "1"), syscall.EISDIR)
	tr.refused(tr.add("tracing/nosuch", "1"), syscall.ENOENT)
	tr.refused(tr.Mkdir("tracing/instances"), syscall.EPERM)
	tr.refused(tr.Remove(events), syscall.EPERM)
}

func TestFiltersOfAnEvent(t *testing.T) {
	inAllModes(t, "prey", func(t *testing.T, tr *tree) {
		tr.must(tr.add(events, "p:t target v=%di:s64"))
		file := group + "t/filter"
		tr.is(file, "none\n")
		tr.must(tr.add(group+"t/enable", "1"))
		tr.must(tr.add(file, "v > 5 && v != 8 || v == -3"))
		tr.is(file, "v > 5 && v != 8 || v == -3\n")
		for _, v := range []int{-3, -2, 4, 6, 8, 9} {
			tr.call("target", v)
		}
		tr.must(tr.add(file, `comm == "prey" && v == 1`))
		tr.call("target", 1)
		tr.must(tr.add(file, `comm == "other" && v == 1`))
		tr.call("target", 1)
		tr.refused(tr.add(file, "v = 5"), syscall.EINVAL)
		if got := tr.cat(file); !strings.HasPrefix(got, "v = 5\n") || !strings.Contains(got, "^\nparse_error: ") {
			t.Errorf("the filter file shows %q", got)
		}
		tr.call("target", 2) // there is no filter now
		tr.must(tr.add(file, "0"))
		tr.is(file, "none\n")
		var want []string
		for _, v := range []int{-3, 6, 9, 1, 2} {
			want = append(want, fmt.Sprintf(`t: \(.*\) v=%d`, v))
		}
		tr.wantLines(want...)
		tr.must(tr.add("tracing/events/kprobes/filter", "v == 7"))
		tr.is(file, "v == 7\n")
		tr.refused(tr.add("tracing/events/kprobes/filter", "nosuch == 7"), syscall.EINVAL)
		tr.is("tracing/kprobe_profile", fmt.Sprintf("  %-44s %15d %15d\n", "t", 9, 0))
	})
}

func TestOneWriterAtATime(t *testing.T) {
	tr := open(t, "prey", kprobes.Options{})
	done := make(chan error)
	const writers = 8
	for i := range writers {
		go func() {
			var err error
			for n := 0; n < 5 && err == nil; n++ {
				name := fmt.Sprintf("w%d_%d", i, n)
				err = tr.add(events, fmt.Sprintf("p:%s foo v=%%di", name))
				if err == nil {
					err = tr.add(group+name+"/enable", "1")
				}
				tr.cat("tracing/trace")
				if err == nil {
					err = tr.add(group+name+"/enable", "0")
				}
				if err == nil && n%2 == 0 {
					err = tr.add(events, "-:"+name)
				}
			}
			done <- err
		}()
	}
	for range writers {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if n := strings.Count(tr.cat(events), "\n"); n != writers*2 {
		t.Errorf("%d events are left, want %d", n, writers*2)
	}
	if !slices.Contains(strings.Split(tr.cat(events), "\n"), "p:kprobes/w3_1 foo v=%di") {
		t.Error("an event is not listed")
	}
}
