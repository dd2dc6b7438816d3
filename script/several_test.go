package script

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
)

// group is a scenario for several processes.
type group struct {
	said
	t        *testing.T
	sc       *Script
	progs    []*testprog.Prog
	sessions []*kprobes.Session
	done     chan struct{} // closed when Run has returned
	end      context.CancelFunc
}

// together loads a scenario that is armed when n processes of a fixture have joined.
func together(t *testing.T, fixture string, n int, o kprobes.Options, src string) *group {
	t.Helper()
	g := &group{t: t, done: make(chan struct{})}
	so := g.options()
	so.Seed = 1
	var err error
	if g.sc, err = Load(write(t, "scenario.star", src), so); err != nil {
		t.Fatal(err)
	}
	for range n {
		g.join(fixture, o)
	}
	if err := g.sc.Arm(); err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(context.Background())
	g.end = end
	go func() {
		defer close(g.done)
		g.sc.Run(ctx)
	}()
	return g
}

// join takes one process more.
func (g *group) join(fixture string, o kprobes.Options) *testprog.Prog {
	g.t.Helper()
	p := testprog.Start(g.t, testprog.Build(g.t, fixture))
	s, err := kprobes.Attach(context.Background(), p.PID(), o)
	if err != nil {
		g.t.Fatal(err)
	}
	if err := g.sc.Join(context.Background(), s); err != nil {
		g.t.Fatal(err)
	}
	g.progs, g.sessions = append(g.progs, p), append(g.sessions, s)
	return p
}

// passes ends the scenario, which is its own judge, and checks that the programs that live were left as they were found.
func (g *group) passes() Result {
	g.t.Helper()
	g.end()
	<-g.done
	for i, s := range g.sessions {
		exit := s.Exit()
		if err := errors.Join(g.sc.Leave(s), s.Close()); err != nil {
			g.t.Error(err)
		}
		if exit != nil {
			continue
		}
		g.progs[i].CheckClean()
		if got := g.progs[i].Quit(); got != "right" {
			g.t.Errorf("program %d says %q", i, got)
		}
	}
	r := g.sc.Finish(Ending{})
	for _, p := range g.problems {
		g.t.Errorf("%v\n%s", p, p.Picture())
	}
	if r.Failed != (len(g.problems) > 0) {
		g.t.Errorf("failed is %v with %d problems", r.Failed, len(g.problems))
	}
	return r
}

// TestOneScenarioInSeveralProcesses has its state once, and each hit is its process's: values, memory, symbols, calls of functions.
func TestOneScenarioInSeveralProcesses(t *testing.T) {
	for _, optimize := range []bool{true, false} {
		t.Run(fmt.Sprintf("optimize=%v", optimize), func(t *testing.T) {
			o := kprobes.Options{NoOptimize: !optimize}
			g := together(t, "prey", 2, o, `
			by_pid, datas = {}, {}
			state.inside = 0
			def pre(ctx):
				by_pid[ctx.pid] = by_pid.get(ctx.pid, 0) + 1
				counter("all").add()
				expect(state.inside == 0, "handlers run one at a time")
				state.inside = 1
				if ctx.arg(0) == 1007:
					expect(ctx.pid == target.pid and ctx.comm == target.name, "IDs")
					expect(ctx.args.v == 1007 and ctx.args.n == 1007, "the parameter, and a fetched one")
					expect(ctx.addr - symbol("foo") in (0, 4), "the address")
					expect(ctx.addr in k.addrs, "the probe's addresses")
					expect(ctx.stack(1)[0].name == "foo", "the stack")
					old = ctx.string(symbol("text"))
					ctx.set_int(symbol("text"), 65 + len(seen), size = 1)
					seen.append(ctx.string(symbol("text")))
					expect(old == "test", "memory is of each by itself: " + old)
					state.inside = 0 # others run while it waits
					expect(ctx.call("target2", 30, timeout = "20m") == 11, "a call")
				state.inside = 0
			seen = []
			k = kprobe("foo", pre = pre, args = "n=$arg1:s32", filter = "n >= 0")
			def entry(ctx):
				ctx.data["pid"] = ctx.pid
			def ret(ctx):
				expect(ctx.data["pid"] == ctx.pid and ctx.ret == ctx.arg(0) // 3, "a call's return is of its process")
				ctx.ret = ctx.ret + 1000
			r = kretprobe("target", entry = entry, ret = ret)
			def end():
				expect([t.pid for t in targets()] == [int(p) for p in args] or not args, str(targets()))
				expect(len(targets()) == 3 and targets()[2].name == "prey" and targets()[0].exit_status == None, str(targets()))
				expect(sorted(by_pid.values()) == [401, 402, 403], str(by_pid))
				expect(counter("all").value == 1206 and k.hits == 1206 and r.hits == 3, "%d %d" % (k.hits, r.hits))
				expect(seen == ["Aest", "Best", "Cest"], str(seen))
			test("end", end)
			`)
			g.join("prey", o)
			for _, s := range g.sessions {
				s.WaitForOptimizer(t.Context())
			}
			for _, p := range g.progs {
				p.Send("threads 4 100 foo")
			}
			for _, p := range g.progs {
				if got := p.Expect("sum"); got != "sum 40000 count 400" {
					t.Error(got)
				}
			}
			for i, p := range g.progs {
				if got := p.Do("call foo 1007", "ret"); got != "ret 2015" {
					t.Errorf("foo(1007) in process %d: %s", i, got)
				}
				for range i {
					p.Do("call foo 3", "ret 7")
				}
				if got := p.Do("call target 9", "ret"); got != "ret 1003" {
					t.Errorf("target(9) in process %d: %s", i, got)
				}
				p.Do("call foo -1", "ret -1") // which the filter does not let pass
			}
			r := g.passes()
			if len(r.Processes) != 3 || r.Probes[0].Places != 1 || r.Probes[0].Hits != 1206 {
				t.Errorf("%+v", r.Probes)
			}
			for i, p := range r.Processes {
				if p.PID != g.progs[i].PID() || p.Comm != "prey" || p.Exited || len(p.Probes) != 2 || p.Probes[0].Hits != uint64(401+i) || p.Probes[1].Hits != 1 {
					t.Errorf("process %d: %+v", i, p)
				}
			}
		})
	}
}

// TestHandlersDeclareAndSwitchInAllProcesses: in their own at once, in the others soon, all at the same time.
func TestHandlersDeclareAndSwitchInAllProcesses(t *testing.T) {
	g := together(t, "prey", 3, kprobes.Options{}, `
	late = {}
	def count(ctx):
		counter("late").add()
		if ctx.arg(0) == 5: print("late", ctx.pid)
	def pre(ctx):
		n = ctx.arg(0)
		if n < 20: # all declare, in each other's way
			late[n] = kprobe("target", pre = count)
			off.start()
		if n == 100: late[0].stop()
		if n == 101: late[0].start()
		if n == 102: state.fault = inject("target2", retval = 44)
		if n == 103: state.fault.stop()
	k = kprobe("foo", pre = pre)
	off = kprobe("length", pre = lambda ctx: print("started", ctx.pid), enabled = False)
	`)
	until := func(p *testprog.Prog, text, call string) {
		for want := fmt.Sprintf("%s %d", text, p.PID()); ; {
			p.Do(call, "ret")
			n := 0
			for _, line := range g.prints() {
				if line == want {
					n++
				}
			}
			if n > 0 {
				return
			}
		}
	}
	for i, p := range g.progs {
		p.Send(fmt.Sprintf("call foo %d", i))
	}
	for i, p := range g.progs {
		p.Expect(fmt.Sprintf("ret %d", 2*i+1))
	}
	for _, p := range g.progs {
		until(p, "late", "call target 5")
		until(p, "started", "call string 1")
	}
	one, two := g.progs[0], g.progs[1]
	until2 := func(p *testprog.Prog, call, want string) {
		for p.Do(call, "ret") != want {
		}
	}
	one.Do("call foo 102", "ret")
	if got := one.Do("call target2 9", "ret"); got != "ret 44" {
		t.Errorf("in the process of the handler: %s", got)
	}
	until2(two, "call target2 9", "ret 44")
	one.Do("call foo 103", "ret")
	if got := one.Do("call target2 9", "ret"); got != "ret 4" {
		t.Errorf("in the process of the handler: %s", got)
	}
	until2(two, "call target2 9", "ret 4")
	// A handler that is stopped is called in no process any more, at once.
	one.Do("call foo 100", "ret")
	hits := func() (n uint64) {
		defer g.sc.turn.take(nil)()
		for _, p := range g.sc.probes {
			if p.spec == "target" && !p.enabled {
				n += p.parts[0].handled + p.parts[1].handled + p.parts[2].handled
			}
		}
		return n
	}
	before := hits()
	for _, p := range g.progs {
		p.Do("call target 4", "ret")
	}
	if got := hits(); got != before {
		t.Errorf("%d hits after the stop", got-before)
	}
	one.Do("call foo 101", "ret")
	g.passes()
}

// TestAProcessThatEndsLeavesTheOthers, and how it ended is known.
func TestAProcessThatEndsLeavesTheOthers(t *testing.T) {
	g := together(t, "prey", 3, kprobes.Options{}, `
	kprobe("foo", pre = lambda ctx: counter("calls").add())
	f = inject("target", retval = 5)
	def end():
		expect([t.exit_status for t in targets()] == [None, 137, None], str([t.exit_status for t in targets()]))
		expect(counter("calls").value == 5 and f.injected == 3, "%s %d" % (counter("calls"), f.injected))
	at_end(end)
	`)
	for _, p := range g.progs {
		p.Do("call foo 1", "ret 3")
		p.Do("call target 1", "ret 5")
	}
	g.progs[1].Kill()
	<-g.sessions[1].Done()
	for _, i := range []int{0, 2} {
		g.progs[i].Do("call foo 1", "ret 3")
	}
	r := g.passes()
	if p := r.Processes[1]; !p.Exited || p.Status != 137 || len(p.Probes) != 1 || p.Probes[0].Hits != 1 || len(p.Faults) != 1 || p.Faults[0].Stats.Injected != 1 {
		t.Errorf("%+v", p)
	}
	if r.Probes[0].Hits != 5 || r.Faults[0].Stats.Injected != 3 {
		t.Errorf("%+v %+v", r.Probes, r.Faults)
	}
}

// TestFaultsCountInEachProcess, but for what all have together.
func TestFaultsCountInEachProcess(t *testing.T) {
	g := together(t, "fails", 3, kprobes.Options{}, `
	def choose(ctx):
		state.asked[ctx.pid] = state.asked.get(ctx.pid, 0) + ctx.args.n
	state.asked = {}
	f = inject("work", errno = "EIO", interval = 2, times = 5, handler = choose, args = ["n=$arg1:s32"])
	at_end(lambda: expect(f.injected == 5 and not f.armed and state.asked.values() == [12, 6], "%d %s" % (f.injected, state.asked)))
	`)
	for i, want := range []string{"failed 3: 2 4 6", "failed 2: 2 4", "failed 0:"} {
		if got := g.progs[i].Do("run 6", "failed"); got != want {
			t.Errorf("process %d: %s, want %s", i, got, want)
		}
	}
	r := g.passes()
	for i, want := range []uint64{3, 2, 0} {
		injected := uint64(0)
		for _, f := range r.Processes[i].Faults {
			injected += f.Stats.Injected
		}
		if injected != want {
			t.Errorf("process %d: %d injected, want %d", i, injected, want)
		}
	}
	for _, e := range g.injected {
		if e.Fault.Symbols() == nil {
			t.Error("an event has no symbols")
		}
	}
}

// TestAProcessJoinsWholeOrNotAtAll, and others do not notice.
func TestAProcessJoinsWholeOrNotAtAll(t *testing.T) {
	g := together(t, "prey", 1, kprobes.Options{}, `
	f = inject("foo", retval = 9)
	k = kprobe("target", pre = lambda ctx: None)
	r = kretprobe("length", ret = lambda ctx: None)
	`)
	other := testprog.Start(t, testprog.Build(t, "execer")) // it has foo alone
	s, err := kprobes.Attach(context.Background(), other.PID(), kprobes.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var e *Error
	if err := g.sc.Join(context.Background(), s); !errors.As(err, &e) || e.Line != 2 || !strings.Contains(e.Message, "kprobe: unknown symbol") {
		t.Errorf("it joins: %v", err)
	}
	if got := other.Do("call 2", "ret"); got != "ret 27" {
		t.Error(got)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	other.CheckClean()
	if got := g.progs[0].Do("call foo 2", "ret"); got != "ret 9" {
		t.Error(got)
	}
	if err := g.sc.Leave(s); err != nil {
		t.Error(err)
	}
	if r := g.passes(); len(r.Processes) != 1 {
		t.Errorf("%+v", r.Processes)
	}
	if err := g.sc.Join(context.Background(), s); !errors.Is(err, kprobes.ErrClosed) {
		t.Errorf("after the end: %v", err)
	}
}

// TestAProbeThatCanNotBeInAnotherProcess fails the scenario, and is where it can be.
func TestAProbeThatCanNotBeInAnotherProcess(t *testing.T) {
	g := together(t, "prey", 1, kprobes.Options{}, `
	kprobe("foo", pre = lambda ctx: kprobe("target", pre = lambda ctx: counter("target").add()) if ctx.arg(0) == 1 else counter("foo").add())
	at_end(lambda: expect(counter("target").value == 1 and counter("foo").value == 2, "%s %s" % (counter("target"), counter("foo"))))
	`)
	other := g.join("execer", kprobes.Options{})
	g.progs[0].Do("call foo 1", "ret 3")
	g.progs[0].Do("call target 3", "ret 1")
	for len(g.told()) == 0 {
		g.progs[0].Do("call target2 3", "ret 2")
	}
	want := fmt.Sprintf("process %d: kprobe: unknown symbol", other.PID())
	if p := g.told(); len(p) != 1 || p[0].Line != 1 || !strings.HasPrefix(p[0].Message, want) {
		t.Errorf("told is %v, want %s", p, want)
	}
	g.problems = nil
	g.progs[0].Do("call foo 2", "ret 5")
	other.Do("call 2", "ret 27")
	g.end()
	<-g.done
	for i, s := range g.sessions {
		if err := errors.Join(g.sc.Leave(s), s.Close()); err != nil {
			t.Error(err)
		}
		g.progs[i].CheckClean()
	}
	if r := g.sc.Finish(Ending{}); !r.Failed || len(g.problems) != 0 {
		t.Errorf("failed %v, %v", r.Failed, g.problems)
	}
}

// told is the problems up to now.
func (s *said) told() []*Error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]*Error(nil), s.problems...)
}

// TestTimersOfSeveralProcesses switch and declare in all of them, and stop() ends all.
func TestTimersOfSeveralProcesses(t *testing.T) {
	g := together(t, "prey", 2, kprobes.Options{}, `
	def tick():
		state.n += 1
		if state.n % 2: k.stop()
		else: k.start()
		if state.n > 20:
			kprobe("target", pre = lambda ctx: stop() if len(seen) == 2 else seen.update({ctx.pid: True}))
			t.stop()
			print("enough")
	seen = {}
	state.n = 0
	k = kprobe("foo", pre = lambda ctx: counter("hits").add())
	t = every("1ms", tick)
	at_end(lambda: expect(counter("hits").value == k.hits and len(seen) == 2, "%s %d" % (counter("hits"), k.hits)))
	`)
	for len(g.prints()) == 0 {
		for _, p := range g.progs {
			p.Send("threads 2 200 foo")
		}
		for _, p := range g.progs {
			p.Expect("sum 80000 count 400")
		}
	}
	for over := false; !over; {
		for _, p := range g.progs {
			p.Do("call target 3", "ret 1")
		}
		select {
		case <-g.done:
			over = true
		default:
		}
	}
	g.passes()
}

// TestWhatSeveralProcessesCanNotShareIsRefused in a sentence.
func TestWhatSeveralProcessesCanNotShareIsRefused(t *testing.T) {
	for _, c := range []struct{ src, want string }{
		{`symbol("foo")`, "symbol: addresses differ between processes; ask for it in a handler"},
		{`target.pid`, "target: outside of handlers no process is the one; targets() lists them all"},
		{`kprobe(4096)`, "kprobe: 0x1000 is an address in one process; name a function"},
		{`inject(4096, retval = 1)`, "inject: 0x1000 is an address in one process; name a function"},
		{`inject("foo", retval = 1, require_start = 4096)`, "inject: for parameter require_start: it is an address in one process"},
		{`kprobe("foo").addrs`, "addrs: addresses differ between processes"},
		{`kprobe("foo", args = "x=(", pre = print)`, "kprobe: "},
	} {
		_, _, e := loaded(t, c.src, func(o *Options) { o.Session = nil })
		if e == nil || !strings.HasPrefix(e.Message, c.want) {
			t.Errorf("%s: %v, want %q", c.src, e, c.want)
		}
	}
	sc, _, e := loaded(t, `symbol("foo", default = 5)`+"\nprint(targets(), target)", func(o *Options) { o.Session = nil })
	if e != nil || !sc.Idle() {
		t.Errorf("%v", e)
	}
	one, _, _ := loaded(t, "")
	if err := one.Join(context.Background(), newStand(t)); err == nil || !strings.Contains(err.Error(), "for one process") {
		t.Errorf("another process joins: %v", err)
	}
}
