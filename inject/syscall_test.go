package inject_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/inject"
	"github.com/gokprobe/gokprobe/inject/fault"
	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
)

var ways = []kprobes.SyscallWay{kprobes.SyscallBySites, kprobes.SyscallByStops}

// onCalls takes hold of a target that makes system calls.
func onCalls(t *testing.T, opts kprobes.Options, flags ...string) *bench {
	t.Helper()
	return onProgram(t, testprog.Build(t, "sysfails", flags...), opts)
}

// eachWay runs f by sites and by ptrace, in a dynamically linked program and a static one.
func eachWay(t *testing.T, f func(b *bench, by kprobes.SyscallWay)) {
	for _, link := range [][]string{{}, {"-static"}} {
		for _, by := range ways {
			t.Run(fmt.Sprintf("%s%v", by, link), func(t *testing.T) {
				f(onCalls(t, kprobes.Options{}, link...), by)
			})
		}
	}
}

func TestSystemCallsFailWhereAPathMatches(t *testing.T) {
	eachWay(t, func(b *bench, by kprobes.SyscallWay) {
		f := b.add(inject.Rule{
			Syscall: "openat", SyscallBy: by, Attr: fault.Always(), Args: []string{"path=+0($arg2):string"}, If: `path ~ "*.conf"`,
			Do: []inject.Action{inject.Return{Errno: unix.EPERM, Fails: true}},
		})
		if got := b.Do("open 20", "opened"); got != "opened noent 20 perm 20" {
			b.t.Error(got)
		}
		st := f.Stats()
		if st.Calls != 40 || st.Eligible != 20 || st.Injected != 20 || st.Places[0].Way != by || len(b.told()) != 20 {
			b.t.Errorf("%+v, %d events", st, len(b.told()))
		}
		for _, e := range b.told() {
			if e.Place != "openat" || len(e.What) != 1 || e.What[0] != "return -1 EPERM" || e.Values[0].S != "/nonexistent/a.conf" || e.Symbol == "" {
				b.t.Errorf("%+v", e)
			}
		}
		if err := f.Remove(); err != nil {
			b.t.Error(err)
		}
		if got := b.Do("open 20", "opened"); got != "opened noent 40 perm 0" {
			b.t.Error(got)
		}
	})
}

// full fails writes to descriptor 77.
func full(by kprobes.SyscallWay, a fault.Attr) inject.Rule {
	return inject.Rule{
		Syscall: "write", SyscallBy: by, Attr: a, Args: []string{"fd=$arg1:u32"}, If: "fd == 77",
		Do: []inject.Action{inject.Return{Errno: unix.ENOSPC, Fails: true}},
	}
}

func TestEveryThirdWriteFails(t *testing.T) {
	eachWay(t, func(b *bench, by kprobes.SyscallWay) {
		f := b.add(full(by, attr(b.t, "when=3+3")))
		if got := b.Do("write 10", "failed"); got != "failed 3: 3 6 9" {
			b.t.Error(got)
		}
		if got := b.Do("threads 8 300", "failed"); got != "failed 800 of 2400" { // the tenth was the first of three
			b.t.Error(got)
		}
		if st := f.Stats(); st.Eligible != 2410 || st.Injected != 803 {
			b.t.Errorf("%+v", st)
		}
	})
}

// TestTheSameSystemCallsFailWhoeverDecides: the target, by breakpoints, by ptrace; with a condition that it tells, wholly or in part.
func TestTheSameSystemCallsFailWhoeverDecides(t *testing.T) {
	eachWay(t, func(b *bench, by kprobes.SyscallWay) {
		for _, optimized := range []bool{true, false} {
			if err := b.s.SetOptimization(optimized); err != nil {
				b.t.Fatal(err)
			}
			for _, words := range []string{
				"interval=7", "when=3+3", "when=4..30+5", "space=20", "probability=20% seed=4711", "fail-nth=5 probability=0",
				"space=4 when=2+ interval=2 probability=50% seed=3", "probability=50% seed=1 times=5", "interval=3 per-thread=Y",
			} {
				for _, also := range []string{"", ` && comm ~ "sysfails*"`} {
					a := attr(b.t, strings.Fields(words)...)
					r := full(by, a)
					r.If += also
					f := b.add(r)
					b.s.WaitForOptimizer(t.Context())
					place := f.Stats().Places[0]
					if got, want := b.Do("write 100", "failed"), expected(b.t, a, 100, nil); got != want {
						b.t.Errorf("%s, if %s: %s, want %s", words, r.If, got, want)
					}
					want := "tracer"
					if _, err := a.Static(); err == nil && also == "" && optimized && by == kprobes.SyscallBySites {
						want = "target"
					}
					if place.Decides != want {
						b.t.Errorf("%s, if %s: %+v, want the %s to decide", words, r.If, place, want)
					}
					if st := f.Stats(); f.Armed() && (st.Eligible != 100 || st.Calls != 100 && st.Calls != 101) { // its answer is a call too
						b.t.Errorf("%s, if %s: %+v", words, r.If, st)
					}
					if err := f.Remove(); err != nil {
						b.t.Error(err)
					}
				}
			}
		}
	})
}

// TestARuleSeesWhatAnotherHasChanged of a call, whoever decides.
func TestARuleSeesWhatAnotherHasChanged(t *testing.T) {
	eachWay(t, func(b *bench, by kprobes.SyscallWay) {
		b.add(inject.Rule{
			Syscall: "write", SyscallBy: by, Attr: attr(b.t, "interval=4"), Args: []string{"fd=$arg1:u32"}, If: "fd == 77",
			Do: []inject.Action{inject.SetArgument{N: 1, Value: "0x10000004d"}}, // of which the kernel looks at 32 bits
		})
		r := full(by, attr(b.t, "interval=5"))
		r.Args, r.If = []string{"fd=$arg1:u64"}, "fd == 0x10000004d"
		f := b.add(r)
		b.s.WaitForOptimizer(t.Context())
		if got := b.Do("write 100", "failed"); got != "failed 5: 20 40 60 80 100" {
			b.t.Error(got)
		}
		if st := f.Stats(); st.Eligible != 25 || st.Injected != 5 {
			b.t.Errorf("%+v", st)
		}
	})
}

// TestTheTargetDrawsRandomNumbers of a rule about system calls, if nothing else is to be decided about each of them.
func TestTheTargetDrawsRandomNumbers(t *testing.T) {
	const calls = 20_000
	lists := map[string]bool{}
	for _, opts := range []kprobes.Options{{}, {}, {NoOptimize: true}} {
		b := onCalls(t, opts)
		f := b.add(inject.Rule{
			Syscall: "getpid", SyscallBy: kprobes.SyscallBySites, Attr: attr(t, "probability=0.1%", "seed=4711"), Do: []inject.Action{inject.Return{Value: 1}},
		})
		b.s.WaitForOptimizer(t.Context())
		got := b.Do(fmt.Sprintf("raw %d", calls), "other")
		st := f.Stats()
		if want := fmt.Sprintf("other %d", st.Injected); got != want || st.Injected == 0 || st.Calls != 2*calls+1 || st.Eligible != st.Calls {
			t.Errorf("%s: %+v", got, st)
		}
		if want := map[bool]string{false: "target", true: "tracer"}[opts.NoOptimize]; st.Places[0].Decides != want {
			t.Errorf("%+v, want the %s to decide", st, want)
		}
		lists[fmt.Sprint(st.Injected, eventPlaces(b))] = true
	}
	if len(lists) != 1 {
		t.Errorf("one seed chooses %v", lists)
	}
}

// eventPlaces is where calls were injected, in their order.
func eventPlaces(b *bench) (all []string) {
	for _, e := range b.told() {
		all = append(all, e.Symbol)
	}
	return all
}

// TestTheTracerDecidesTheRest: what is behind the random numbers holds for all places together.
func TestTheTracerDecidesTheRest(t *testing.T) {
	eachWay(t, func(b *bench, by kprobes.SyscallWay) {
		f := b.add(inject.Rule{
			Syscall: "getpid,getppid", SyscallBy: by, Attr: attr(b.t, "probability=20%", "times=7"), Do: []inject.Action{inject.Return{Value: 1}},
		})
		if got := b.Do("raw 500", "other"); got != "other 7" {
			b.t.Error(got)
		}
		if st := f.Stats(); st.Injected != 7 || f.Armed() || st.Eligible != st.Calls || st.Calls < 7 {
			b.t.Errorf("%+v", st)
		}
	})
}

func TestCallsByEitherKindOfInstruction(t *testing.T) {
	eachWay(t, func(b *bench, by kprobes.SyscallWay) {
		f := b.add(inject.Rule{Syscall: "getpid", SyscallBy: by, Attr: attr(b.t, "interval=4"), Do: []inject.Action{inject.Return{Value: 1}}})
		if got := b.Do("raw 100", "other"); got != "other 50" {
			b.t.Error(got)
		}
		if st := f.Stats(); st.Eligible != 201 || st.Injected != 50 { // one is the program's own
			b.t.Errorf("%+v", st)
		}
	})
}

func TestResultsAreChangedAfterTheCall(t *testing.T) {
	eachWay(t, func(b *bench, by kprobes.SyscallWay) {
		f := b.add(inject.Rule{
			Syscall: "openat", SyscallBy: by, After: true, Attr: fault.Always(), Args: []string{"path=+0($arg2):string", "ret=$retval:s32"},
			If: `ret == -2 && path ~ "*.txt"`, Do: []inject.Action{inject.Return{Errno: unix.EPERM, Fails: true}},
		})
		if got := b.Do("open 20", "opened"); got != "opened noent 20 perm 20" {
			b.t.Error(got)
		}
		if st := f.Stats(); st.Injected != 20 || len(b.told()) != 20 || int32(b.told()[0].Values[1].U) != -2 {
			b.t.Errorf("%+v, %+v", st, b.told())
		}
	})
}

// TestCallsThatMakeSomething: fork, vfork and clone fail, or pass, by their kinds.
func TestCallsThatMakeSomething(t *testing.T) {
	eachWay(t, func(b *bench, by kprobes.SyscallWay) {
		f := b.add(inject.Rule{Syscall: "fork,vfork,clone,clone3", SyscallBy: by, Attr: attr(b.t, "when=2+2"), Do: []inject.Action{inject.Return{Errno: unix.EAGAIN, Fails: true}}})
		for _, c := range []struct{ command, passes, fails string }{
			{"fork", "fork errno 0 status 9", "fork errno 11 status -1"},
			{"spawn", "spawn errno 0 status 0", "spawn errno 11 status -1"},
			{"thread", "thread errno 0", "thread errno 11"},
		} {
			if got := b.Do(c.command, c.command); got != c.passes {
				b.t.Error(got)
			}
			if got := b.Do(c.command, c.command); got != c.fails {
				b.t.Error(got)
			}
		}
		if st := f.Stats(); st.Calls != 6 || st.Injected != 3 {
			b.t.Errorf("%+v", st)
		}
	})
}

// TestCallsAreDelayedAndChanged: a thread waits in front of its call, arguments are changed.
func TestCallsAreDelayedAndChanged(t *testing.T) {
	eachWay(t, func(b *bench, by kprobes.SyscallWay) {
		b.add(inject.Rule{
			Syscall: "write", SyscallBy: by, Attr: attr(b.t, "interval=50"), Args: []string{"fd=$arg1:u32"}, If: "fd == 77",
			Do: []inject.Action{inject.Delay{D: 1e6}, inject.SetArgument{N: 1, Value: "-1"}},
		})
		if got := b.Do("raw 10", "other"); got != "other 0" {
			b.t.Error(got)
		}
		b.add(inject.Rule{
			Syscall: "/^write$", SyscallBy: by, Attr: fault.Always(), Args: []string{"fd=$arg1:s32"}, If: "fd == -1",
			Do: []inject.Action{inject.Return{Errno: unix.ENOSPC, Fails: true}}, After: true,
		})
		if got := b.Do("threads 4 100", "failed"); got != "failed 8 of 400" {
			b.t.Error(got)
		}
	})
}

// TestCallsUnderAFilterThatKills: a call that is not made is not one of another number to the program's seccomp filter, whether that
// was there before or comes later.
func TestCallsUnderAFilterThatKills(t *testing.T) {
	for _, when := range []string{"before", "later"} {
		t.Run(when, func(t *testing.T) {
			b := onCalls(t, kprobes.Options{})
			if when == "before" {
				b.Do("jail", "jailed")
			}
			b.add(inject.Rule{Syscall: "getpid,prctl", SyscallBy: kprobes.SyscallByStops, Attr: attr(t, "interval=4"), Do: []inject.Action{inject.Return{Value: 1}}})
			if when == "later" {
				b.Do("jail", "jailed")
			}
			if got := b.Do("raw 100", "other"); got != "other 50" {
				t.Error(got)
			}
		})
	}
}

// TestDelayedCallsUnderSignals: signals that come while a call is late do not make another call of it.
func TestDelayedCallsUnderSignals(t *testing.T) {
	const n = 20
	for _, by := range ways {
		t.Run(by.String(), func(t *testing.T) {
			b := onCalls(t, kprobes.Options{})
			f := b.add(inject.Rule{Syscall: "getuid", SyscallBy: by, Attr: fault.Always(), Do: []inject.Action{inject.Delay{D: 5 * time.Millisecond}}})
			if got := b.Do(fmt.Sprintf("tick %d", n), "ticked"); got != "ticked 0" {
				t.Error(got)
			}
			if st := f.Stats(); st.Calls != n || st.Injected != n {
				t.Errorf("%d calls, %d of them late, want %d", st.Calls, st.Injected, n)
			}
		})
	}
}

// TestACallWhoseRuleEnds goes on: its handler takes the rule away while the thread stands in front of the call, and has the tracer map memory.
func TestACallWhoseRuleEnds(t *testing.T) {
	b := onCalls(t, kprobes.Options{})
	var f *inject.Fault
	f = b.add(inject.Rule{Syscall: "getpid", SyscallBy: kprobes.SyscallByStops, Attr: fault.Always(), Handler: func(*inject.Call) bool {
		if err := errors.Join(b.in.Remove(f), b.s.RegisterKprobe(&kprobes.Kprobe{SymbolName: "main"})); err != nil {
			t.Error(err)
		}
		return true
	}})
	if got := b.Do("raw 50", "other"); got != "other 0" {
		t.Error(got)
	}
	if st := f.Stats(); st.Calls != 1 {
		t.Errorf("%+v", st)
	}
}

// TestFiltersAreBack: after the last call that is not made the target's filter holds as before.
func TestFiltersAreBack(t *testing.T) {
	b := onCalls(t, kprobes.Options{})
	b.Do("jail", "jailed")
	b.add(inject.Rule{Syscall: "getpid", SyscallBy: kprobes.SyscallByStops, Attr: attr(t, "times=1"), Do: []inject.Action{inject.Return{Value: 1}}})
	if got := b.Do("raw 3", "other"); got != "other 6" { // the first is what the others are compared with
		t.Error(got)
	}
	if got := b.Do("parent", "errno"); got != "errno 1" {
		t.Error(got)
	}
}

// TestALibraryThatComes makes calls of its own: they fail as well.
func TestALibraryThatComes(t *testing.T) {
	lib := testprog.Build(t, "libsys.so", "-shared", "-fPIC")
	for _, by := range ways {
		t.Run(by.String(), func(t *testing.T) {
			b := onCalls(t, kprobes.Options{})
			f := b.add(inject.Rule{Syscall: "getpid", SyscallBy: by, Attr: attr(t, "times=1"), Do: []inject.Action{inject.Return{Value: 1}}})
			if got := b.Do("load "+lib, "loaded"); got != "loaded other 1" {
				t.Error(got)
			}
			if st := f.Stats(); st.Injected != 1 {
				t.Errorf("%+v", st)
			}
		})
	}
}

// TestFollowedChildrenFailToo: each process counts its own calls.
func TestFollowedChildrenFailToo(t *testing.T) {
	for _, by := range ways {
		t.Run(by.String(), func(t *testing.T) {
			b := onCalls(t, kprobes.Options{Follow: true})
			b.add(full(by, attr(t, "when=3+3")))
			b.Send("child 10")
			if got := b.Expect("failed"); got != "failed 3: 3 6 9" {
				t.Error(got)
			}
			b.Expect("did")
			if got := b.Do("write 5", "failed"); got != "failed 1: 3" {
				t.Error(got)
			}
		})
	}
}

// TestFollowedChildrenDrawTheSameNumbers: each process begins the sequences anew.
func TestFollowedChildrenDrawTheSameNumbers(t *testing.T) {
	for _, by := range ways {
		t.Run(by.String(), func(t *testing.T) {
			b := onCalls(t, kprobes.Options{Follow: true})
			r := full(by, attr(t, "probability=5%", "seed=12"))
			r.Args, r.If = nil, ""
			f := b.add(r)
			var lists []string
			for range 3 {
				b.Send("child 300")
				lists = append(lists, b.Expect("failed"))
				b.Expect("did")
			}
			if lists[0] == "failed 0:" || lists[1] != lists[0] || lists[2] != lists[0] {
				t.Error(lists)
			}
			if st := f.Stats(); st.Calls < 900 || st.Eligible != st.Calls {
				t.Errorf("%+v", st)
			}
		})
	}
}

func TestRulesAboutSystemCallsThatMakeNoSense(t *testing.T) {
	b := onCalls(t, kprobes.Options{})
	pass := []inject.Action{inject.Return{}}
	for _, c := range []struct {
		rule inject.Rule
		want string
	}{
		{inject.Rule{Syscall: "opennat", Do: pass}, `there is no system call "opennat"; did you mean openat?`},
		{inject.Rule{Syscall: "nothing*", Do: pass}, "no system call is like nothing*"},
		{inject.Rule{Syscall: "/(", Do: pass}, "/( is no regular expression"},
		{inject.Rule{Syscall: "write", Do: []inject.Action{inject.Return{Value: 5, Errno: unix.EIO}}}, "a system call returns 5 or an error, not both"},
		{inject.Rule{Syscall: "write", Do: []inject.Action{inject.Results{Error: "io.EOF"}}}, "a system call returns a number"},
		{inject.Rule{Syscall: "write", Args: []string{"path"}, Do: pass}, "of a system call's arguments only the registers are known"},
		{inject.Rule{Syscall: "write", After: true, Do: []inject.Action{inject.SetArgument{N: 1, Value: "1"}}}, "arguments can only be changed at the entry"},
		{inject.Rule{Syscall: "write", Do: []inject.Action{inject.SetArgument{N: 7, Value: "1"}}}, "has no argument 7"},
		{inject.Rule{Spec: "main", Do: []inject.Action{inject.SetArgument{N: 7, Value: "1"}}}, "main has no argument 7"},
		{inject.Rule{Syscall: "rt_sigreturn", SyscallBy: kprobes.SyscallBySites, Do: pass}, "not all places that make the system call can be known"},
	} {
		if _, err := b.in.Add(t.Context(), c.rule); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %s", c.rule, err, c.want)
		}
	}
}
