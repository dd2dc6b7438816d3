package script

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/kprobes"
)

// TestHandlersSeeTheCall: what ctx tells of a call, checked by scenarios themselves.
func TestHandlersSeeTheCall(t *testing.T) {
	for _, optimize := range []bool{true, false} {
		t.Run(fmt.Sprintf("optimize=%v", optimize), func(t *testing.T) {
			l := attach(t, "prey", kprobes.Options{NoOptimize: !optimize}).run(`
			foo = symbol("foo")
			def pre(ctx):
				expect(ctx.arg(0) == 7, "the argument")
				expect(ctx.args.v == 7, "the parameter, by debug information")
				expect(ctx.regs.rdi == 7 and ctx.regs["edi"] == 7, "the register")
				expect(ctx.pid == target.pid and ctx.tid == ctx.pid, "IDs")
				expect(ctx.comm == target.name, "the name")
				expect(ctx.addr - foo in (0, 4), "the address")
				expect(ctx.name == "foo" and ctx.probe.spec == "foo", "the probe")
				expect(ctx.time > 1700000000 * 1000000000, "nanoseconds")
				frames = ctx.stack(3)
				expect(frames[0].name == "foo" and frames[1].name == "main", str(frames))
				expect(ctx.string(symbol("text")) == "test", "a string")
				expect(ctx.read(symbol("text"), 5) == b"test\x00", "bytes")
				expect(ctx.int(symbol("text"), size = 1) == 116, "a byte")
				expect(ctx.read(8, 4, default = b"") == b"", "what can't be read")
				expect(ctx.string(8, default = "none") == "none", "what can't be read")
				expect(ctx.int(8, default = -1) == -1, "what can't be read")
				expect(type(ctx.data if hasattr(ctx, "nothing") else 1) == "int", "attributes")
				state.seen = state.seen + 1
			state.seen = 0
			k = kprobe("foo", pre = pre)
			at_end(lambda: expect(state.seen == 3 and k.hits == 3, "%s %s" % (state, k.hits)))
			`)
			l.s.WaitForOptimizer(t.Context())
			for range 3 {
				if got := l.Do("call foo 7", "ret"); got != "ret 15" {
					t.Errorf("foo(7): %s", got)
				}
			}
			r := l.passes()
			if n := len(r.Cases); n != 18 {
				t.Errorf("%d cases", n)
			}
		})
	}
}

// TestHandlersChangeTheCall: its arguments, registers, memory, and what it returns.
func TestHandlersChangeTheCall(t *testing.T) {
	l := attach(t, "prey", kprobes.Options{}).run(`
	def pre(ctx):
		n = ctx.arg(0)
		if n == 1: ctx.set_arg(0, 100)
		if n == 2: ctx.regs.rdi = 200
		if n == 3: ctx.regs["rdi"] = -1
		if n == 4: ctx.skip(44)
		if n == 5: ctx.fail(-5)
		if n == 6: ctx.fail(errno = "EIO")
		if n == 7: expect(ctx.call("foo", 10, timeout = "20m") == 21 and ctx.call(symbol("foo"), -1, timeout = "20m") == -1, "calls")
		if n == 8: expect(ctx.call("libc.so.6:usleep", 1100000, timeout = "20m") == 0, "a call that takes longer than usual")
	kprobe("foo", pre = pre)
	def length(ctx):
		ctx.write(symbol("text"), "te\x00")
		ctx.set_int(symbol("text") + 3, 65, size = 1)
	kprobe("length", pre = length)
	def post(ctx):
		ctx.regs.rax = 9
	def ret(ctx):
		expect(ctx.ret == ctx.arg(0) // 3, "%d of %d" % (ctx.ret, ctx.arg(0)))
		expect(ctx.args.v == ctx.arg(0), "parameters of the entry")
		expect(ctx.data["n"] == ctx.arg(0) and ctx.duration_ns > 0, "data")
		ctx.ret = ctx.ret + 1000
	def entry(ctx):
		ctx.data["n"] = ctx.arg(0)
		return ctx.arg(0) != 30
	kretprobe("target", entry = entry, ret = ret)
	kretprobe("target2", ret = lambda ctx: ctx.fail(-2, errno = "EPERM"))
	`)
	for _, c := range [][2]string{
		{"foo 0", "1"}, {"foo 1", "201"}, {"foo 2", "401"}, {"foo 3", "-1"}, {"foo 4", "44"}, {"foo 5", "-5"}, {"foo 6", "-1"}, {"foo 7", "15"}, {"foo 8", "17"},
		{"string 1", "3"}, {"target 9", "1003"}, {"target 30", "10"}, {"target2 9", "-2"},
	} {
		if got := l.Do("call "+c[0], "ret"); got != "ret "+c[1] {
			t.Errorf("%s: %s, want %s", c[0], got, c[1])
		}
	}
	l.passes()
}

// TestWhatGoesWrongInAHandlerEndsItsProbeOnly: the program goes on, other probes too.
func TestWhatGoesWrongInAHandlerEndsItsProbeOnly(t *testing.T) {
	for _, c := range []struct{ body, want, line string }{
		{"{}['x']", `key "x" not in dict`, "{}['x']"},
		{"while True: pass", "cut off after 5000 steps", "while True: pass"},
		{"x = 'x' * 1000000", "cut off: this takes more", "x = 'x' * 1000000"},
		{"list(range(1 << 40))", "cut off: this takes more", "list(range(1 << 40))"},
		{"handler(ctx)", "function handler called recursively", "handler(ctx)"},
		{"ctx.read(8, 8)", "ctx.read: 0x8 can't be read", "ctx.read(8, 8)"},
		{"ctx.write(8, 'x')", "ctx.write: 0x8 can't be written", "ctx.write(8, 'x')"},
		{"ctx.nothing", "ctx has no .nothing field or method", "ctx.nothing"},
		{"ctx.arg()", "ctx.arg: missing argument for n", "ctx.arg()"},
		{"ctx.arg(1, 2)", "ctx.arg: got 2 arguments, want at most 1", "ctx.arg(1, 2)"},
		{"ctx.arg('0')", "ctx.arg: for parameter n: got string, want int", "ctx.arg('0')"},
		{"ctx.regs.xyz", "registers has no .xyz field or method", "ctx.regs.xyz"},
		{"ctx.regs.xyz = 1", "there is no register xyz", "ctx.regs.xyz = 1"},
		{"ctx.regs.rax = 1 << 70", "ctx.regs.rax: 1180591620717411303424 does not fit in 64 bits", "ctx.regs.rax"},
		{"ctx.pid = 1", "ctx.pid can't be set", "ctx.pid = 1"},
		{"ctx.ret", "ctx.ret is for the ret handler of a kretprobe", "ctx.ret"},
		{"ctx.data", "ctx.data goes from a kretprobe's entry handler", "ctx.data"},
		{"ctx.fail()", "ctx.fail: give ret, errno, or both", "ctx.fail()"},
		{"ctx.fail(errno = 'EX')", "ctx.fail: there is no error of this name", "ctx.fail("},
		{"ctx.signal('SIGX')", "ctx.signal: ", "ctx.signal("},
		{"ctx.delay(5)", "ctx.delay: for parameter duration: got int", "ctx.delay(5)"},
		{"ctx.call('nope_nope')", `ctx.call: unknown symbol: "nope_nope"`, "ctx.call("},
		{"ctx.call('foo', 1, timeout = '0s')", "ctx.call: timeout must be more than 0", "ctx.call("},
		{"ctx.call('foo', 1, wait = 1)", "ctx.call: unexpected keyword argument", "ctx.call("},
		{"ctx.call('libc.so.6:usleep', 60000000, timeout = '20ms')", "ctx.call: calling 0x", "ctx.call("},
		{"ctx.string(ctx.arg(0), max = -1)", "ctx.string: max must be from 0", "ctx.string("},
		{"kprobe('nope_nope')", `kprobe: unknown symbol: "nope_nope"`, "kprobe("},
		{"ctx.args.w", "arguments has no .w field or method", "ctx.args.w"},
	} {
		t.Run(c.body, func(t *testing.T) {
			l := attach(t, "prey", kprobes.Options{}).run(`
			def handler(ctx):
				`+c.body+`
			bad = kprobe("foo", pre = handler)
			good = kprobe("foo", pre = lambda ctx: counter("good").add())
			def end():
				expect(not bad.enabled and good.enabled, "enabled")
				expect(counter("good").value == 3, "the other probe went on")
			at_end(end)
			`, func(o *Options) { o.Steps = 5000 })
			for range 3 {
				if got := l.Do("call foo 7", "ret"); got != "ret 15" {
					t.Errorf("foo(7): %s", got)
				}
			}
			r := l.finish()
			if !r.Failed || len(l.problems) != 1 {
				t.Fatalf("failed: %v, with %v", r.Failed, l.problems)
			}
			p := l.problems[0]
			if !strings.HasPrefix(p.Message, c.want) || p.Line != 2 || p.Where != "pre handler of kprobe foo" {
				t.Errorf("told is %q at line %d in the %s", p.Message, p.Line, p.Where)
			}
			if !strings.Contains(p.Source, c.line) || !strings.HasSuffix(strings.SplitN(p.Picture(), "\n", 3)[1], "^") {
				t.Errorf("shown is\n%s", p.Picture())
			}
		})
	}
}

// TestAKeptContextIsOfNoUse when its handler has returned: the thread runs.
func TestAKeptContextIsOfNoUse(t *testing.T) {
	l := attach(t, "prey", kprobes.Options{}).run(`
	state.kept = None
	def pre(ctx):
		if state.kept:
			state.kept.arg(0)
		state.kept = ctx
	kprobe("foo", pre = pre)
	`)
	l.Do("call foo 1", "ret")
	l.Do("call foo 2", "ret")
	l.finish()
	if len(l.problems) != 1 || !strings.Contains(l.problems[0].Message, "its handler has returned") {
		t.Errorf("problems: %v", l.problems)
	}
}

// TestScenariosRemember in state, in globals, in counters, over handlers and threads.
func TestScenariosRemember(t *testing.T) {
	l := attach(t, "prey", kprobes.Options{}).run(`
	seen, by_thread = [], {}
	state.sum = 0
	c = counter("calls")
	def pre(ctx):
		seen.append(ctx.arg(0))
		by_thread[ctx.tid] = by_thread.get(ctx.tid, 0) + 1
		state.sum += ctx.arg(0)
		c.add()
		c.add(2)
	kprobe("foo", pre = pre)
	def end():
		expect(len(seen) == 400 and state.sum == 4 * 4950, str(state.sum))
		expect(sorted(by_thread.values()) == [100] * 4, str(by_thread))
		expect(c.value == 1200 and c == counter("calls"), str(c))
		report(calls = c, state = state["sum"], all = by_thread.values(), text = "a", none = None, yes = True, half = 0.5)
	at_end(end)
	`)
	if got := l.Do("threads 4 100 foo", "sum"); got != "sum 40000 count 400" {
		t.Error(got)
	}
	l.passes()
	if len(l.entries) != 1 || fmt.Sprint(l.entries[0].Values) != "[{calls calls=1200 1200} {state 19800 19800} {all [100, 100, 100, 100] [100 100 100 100]} {text a a} {none None <nil>} {yes True true} {half 0.5 0.5}]" {
		t.Errorf("reported is %v", l.entries)
	}
}

// TestProbesAreSwitchedAndMadeLater by handlers and by timers.
func TestProbesAreSwitchedAndMadeLater(t *testing.T) {
	l := attach(t, "prey", kprobes.Options{}).run(`
	off = kprobe("target", pre = lambda ctx: counter("off").add(), enabled = False)
	def pre(ctx):
		n = ctx.arg(0)
		if n == 1: off.start()
		if n == 2: off.stop()
		if n == 3: state.late = kretprobe("target2", ret = lambda ctx: counter("late").add())
		if n == 4: once.stop()
	once = kprobe("foo", pre = pre)
	def end():
		expect(counter("off").value == 1 and off.hits == 1, "off: %d %d" % (counter("off").value, off.hits))
		expect(counter("late").value == 1 and state.late.hits == 1, "late: %d" % counter("late").value)
		expect(once.hits == 4, str(once.hits))
	at_end(end)
	`)
	for _, c := range []string{"target 1", "foo 1", "target 2", "foo 2", "target 3", "target2 1", "foo 3", "target2 2", "foo 4", "foo 5"} {
		l.Do("call "+c, "ret")
	}
	l.passes()
}

// TestArgumentsAndFilters choose and tell by the kernel's expressions.
func TestArgumentsAndFilters(t *testing.T) {
	l := attach(t, "prey", kprobes.Options{}).run(`
	def pre(ctx):
		state["seen"].append([ctx.args.n, ctx.args.text, ctx.args.words, ctx.args["comm"]])
	state.seen, state.rets = [], []
	k = kprobe("foo", pre = pre, args = ["n=$arg1:s32", "text=@text:string", "words=+0(%sp):x64[2]", "comm=$comm"], filter = 'n > 1 && text == "test"')
	r = kretprobe("target", ret = lambda ctx: state.rets.append(ctx.args.n), args = "n=$arg1:s64", filter = "ret >= 2")
	def end():
		expect([s[:2] for s in state.seen] == [[2, "test"], [3, "test"]], str(state.seen))
		expect(len(state.seen[0][2]) == 2 and state.seen[0][3] == "prey"[:15], str(state.seen))
		expect(state.rets == [6, 9] and r.hits == 2, "%s %d" % (state.rets, r.hits))
		expect(k.hits == 2, str(k.hits))
	at_end(end)
	`)
	for _, c := range []string{"foo -1", "foo 1", "foo 2", "foo 3", "target 3", "target 6", "target 9"} {
		l.Do("call "+c, "ret")
	}
	l.passes()
}

// TestFaultsAreInjected by inject(), which tells how often.
func TestFaultsAreInjected(t *testing.T) {
	l := attach(t, "fails", kprobes.Options{}).run(`
	f = inject("work", errno = "ENOENT", when = "3..7+2", if_ = "n != 5", args = ["n=$arg1:s64"])
	g = inject("pthread_like", retval = 11, times = 1)
	h = inject("truth", after = True, retval = 0)
	def end():
		expect((f.calls, f.eligible, f.injected, f.missed, f.refused) == (20, 19, 3, 0, 0), "%d %d %d" % (f.calls, f.eligible, f.injected))
		expect(g.injected == 1 and h.injected == 1, "the others")
	at_end(end)
	`)
	if got := l.Do("run 20", "failed"); got != "failed 3: 3 6 8" {
		t.Error(got)
	}
	if got := l.Do("types", "pointer"); got != "pointer 1 truth 0 small 9 real 2.5 both 5 -5 like 11 errno 0" {
		t.Error(got)
	}
	r := l.passes()
	if len(l.injected) != 5 || r.Faults[0].Stats.Injected != 3 || r.Faults[0].Name != "work" {
		t.Errorf("injected: %v, told: %v", l.injected, r.Faults)
	}
}

// TestFaultsAskTheirHandler whether and how to fail.
func TestFaultsAskTheirHandler(t *testing.T) {
	l := attach(t, "fails", kprobes.Options{}).run(`
	def choose(ctx):
		state.asked += 1
		return ctx.args.name.endswith(".conf") and ctx.arg(0) > 3
	state.asked = 0
	f = inject("work", errno = "EIO", handler = choose, args = ["name=+0($arg2):string"], interval = 2)
	def act(ctx):
		ctx.fail(6)
	g = inject("pthread_like", handler = act)
	at_end(lambda: expect(state.asked == 6 and f.injected == 4 and g.injected == 1, "%d %d" % (state.asked, f.injected)))
	`)
	if got := l.Do("run 12", "failed"); got != "failed 4: 4 6 10 12" {
		t.Error(got)
	}
	if got := l.Do("types", "pointer"); !strings.Contains(got, "like 6") {
		t.Error(got)
	}
	l.passes()
}

// TestSameSeedSameFaults: the list of injected calls is the same, twice; with another seed
// it is another.
func TestSameSeedSameFaults(t *testing.T) {
	play := func(seed uint64) []string {
		l := attach(t, "fails", kprobes.Options{}).run(`
		inject("work", errno = "EIO", probability = 0.1)
		inject("sized", retval = -1, probability = "10%", interval = 2)
		def pre(ctx):
			if random.chance(0.2):
				report(random.int(1, 1000000), random.choice(["a", "b", "c"]), random.random())
		kprobe("work", pre = pre)
		`, func(o *Options) { o.Seed = seed })
		l.Do("run 300", "failed")
		l.Do("sized"+strings.Repeat(" 1", 200), "sized")
		l.passes()
		var list []string
		for _, e := range l.injected {
			list = append(list, fmt.Sprint(e.Place, e.N, e.What))
		}
		for _, e := range l.entries {
			list = append(list, e.Text)
		}
		return list
	}
	first, again, other := play(7), play(7), play(8)
	if len(first) < 50 || !slices.Equal(first, again) {
		t.Errorf("with the same seed:\n%v\n%v", first, again)
	}
	if slices.Equal(first, other) {
		t.Error("another seed changes nothing")
	}
}

// TestPatternsAndSeveralHandlers: each handler is called for each place.
func TestPatternsAndSeveralHandlers(t *testing.T) {
	l := attach(t, "prey", kprobes.Options{}).run(`
	names = []
	a = kprobe("target*", pre = lambda ctx: names.append("a " + ctx.name))
	b = kprobe("target", pre = lambda ctx: names.append("b"))
	at_end(lambda: expect(sorted(names) == ["a target", "a target2", "b"] and len(a.addrs) == 2 and a.hits == 2, str(names)))
	`)
	l.Do("call target 3", "ret")
	l.Do("call target2 3", "ret")
	l.passes()
}

func TestSystemCallsAreSeenAsTheScenarioSays(t *testing.T) {
	for name, way := range map[string]kprobes.SyscallWay{"ptrace": kprobes.SyscallByStops, "auto": kprobes.SyscallAuto} {
		l := attach(t, "prey", kprobes.Options{}).run(`inject(syscall = "getppid", errno = "EPERM", syscall_by = "` + name + `")`)
		if got := l.sc.injections[0].parts[0].fault.Rule().SyscallBy; got != way {
			t.Errorf("syscall_by = %q is %v", name, got)
		}
		l.passes()
	}
}
