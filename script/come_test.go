package script

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
)

// await takes hold of a program that loads or executes others. Its session may warn: of what waits.
func await(t *testing.T, p *testprog.Prog, o kprobes.Options) *live {
	t.Helper()
	l := &live{t: t, Prog: p}
	o.Log = testprog.ButUprobes(func(text string) { l.mu.Lock(); defer l.mu.Unlock(); l.logged = append(l.logged, text) })
	var err error
	if l.s, err = kprobes.Attach(t.Context(), p.PID(), o); err != nil {
		t.Fatal(err)
	}
	return l
}

// TestScenariosPatternsWaitForTheirLibrary: probes and faults are where a library's functions are as soon as it comes, switched as the scenario has switched
// them, also in handlers, and count all together.
func TestScenariosPatternsWaitForTheirLibrary(t *testing.T) {
	lib, other := testprog.Build(t, "libplug.so", "-shared", "-fPIC"), testprog.Build(t, "libother.so", "-shared", "-fPIC")
	third := filepath.Join(t.TempDir(), "libthird.so")
	if code, err := os.ReadFile(other); err != nil || os.WriteFile(third, code, 0o755) != nil {
		t.Fatal(err)
	}
	for _, o := range []kprobes.Options{{}, {NoOptimize: true}} {
		l := await(t, testprog.Start(t, testprog.Build(t, "modules", "-rdynamic")), o).run(`
		state.names, state.sum, state.late = [], 0, None
		def pre(ctx):
			if ctx.name not in state.names: state.names.append(ctx.name)
			expect(ctx.args.v == ctx.arg(0), "the argument")
		def ret(ctx):
			state.sum += ctx.ret
		def switch(ctx):
			if ctx.arg(0) == 0:
				off.start()
				return
			every.stop()
			state.late = kprobe("libthird.so:o*", pre = lambda ctx: None)
		every = kprobe("libplug.so:[bcpw]*[!n]", pre = pre, args = ["v=$arg1"], filter = "v < 7")
		returned = kretprobe("libplug.so:pl*", ret = ret)
		off = kprobe("libplug.so:[pc]*", pre = lambda ctx: None, enabled = False)
		kprobe("libplug.so:zz*")
		kprobe("libnone.so:z*")
		kprobe("libother.so:o*", pre = switch)
		fault = inject("libplug.so:ca*", retval = 7, times = 1)
		inject("libnone.so:y*", retval = 7)
		expect(every.addrs == [], str(every.addrs))
		def end():
			expect(sorted(state.names) == ["build", "calls", "plugged", "wreck"], str(state.names))
			expect(every.hits == 10, str(every.hits))
			expect(state.sum == 90 + 89 + 1, str(state.sum))
			expect(off.hits == 5, str(off.hits))
			expect(state.late.hits == 5, str(state.late.hits))
			expect(fault.injected == 1 and not fault.armed, str(fault.injected))
			expect(every.missed == 0 and returned.missed == 0, "missed")
		at_end(end)
		`)
		if n := l.sc.Placed(); n != 8 {
			t.Errorf("%d places, want each pattern as one", n)
		}
		for _, step := range [][2]string{
			{"open 0 " + lib}, {"call 0 plugged 3", "did 90"}, {"close 0"}, {"open 1 " + other}, {"call 1 other 1", "did 2"},
			{"open 0 " + lib}, {"call 0 calls 2", "did 96"}, {"call 1 other 2", "did 35"}, {"call 0 plugged 1", "did 1"},
			{"open 2 " + third}, {"call 2 other 5", "did 320"},
		} {
			if got := l.Do(step[0], "did"); step[1] != "" && got != step[1] {
				t.Errorf("%s: %s, want %s", step[0], got, step[1])
			}
		}
		if why, gone := l.sc.Gone(l.s); gone {
			t.Error(why)
		}
		r := l.passes()
		for i, want := range []string{3: "unknown symbol", 4: "libnone.so is not loaded yet"} {
			if p := r.Probes[i]; want != "" && (p.Places != 0 || !strings.Contains(p.Reason, want)) {
				t.Errorf("%+v, want %s", p, want)
			}
		}
		if at := r.Faults[1].Stats.Places; len(at) != 1 || !at[0].Waiting || at[0].Reason != "libnone.so is not loaded yet" {
			t.Errorf("%+v", at)
		}
		if n := strings.Count(strings.Join(l.logged, "\n"), "probe libplug.so:zz* is not placed: unknown symbol"); n != 1 {
			t.Errorf("told %d times: %q", n, l.logged)
		}
	}
}

// TestScenariosPatternsWaitForPrograms: a function that is executed later meets its handlers and faults, and the outcome says where it was.
func TestScenariosPatternsWaitForPrograms(t *testing.T) {
	spawned := testprog.Build(t, "spawned", "-Dfoo=food")
	l := await(t, testprog.Start(t, testprog.Build(t, "spawner"), spawned), kprobes.Options{Follow: true, AwaitPrograms: true}).run(`
	state.pids, state.names = [], []
	def pre(ctx):
		expect(ctx.pid != target.pid and ctx.args.v == 10, str(ctx.args.v))
		state.pids.append(ctx.pid)
		state.names.append(ctx.name)
	later = kprobe("food*", pre = pre, args = ["v=$arg2:s16"])
	more = kprobe("fo?*", pre = lambda ctx: None)
	kprobe("fooz*")
	inject("foo[d]", retval = 5, after = True)
	inject("foozy*", retval = 5)
	at_end(lambda: expect(later.hits == 2 and len(state.pids) == 2 and state.names == ["food", "food"], str(state.names)))
	at_end(lambda: expect(more.hits >= 4, str(more.hits)))
	`)
	for _, how := range []string{"fork", "spawn"} {
		if got := l.Do(how+" 10", "child"); got != "child 5" {
			t.Errorf("%s: %s", how, got)
		}
	}
	var found []string
	for _, p := range l.passes().Patterns() {
		modules := []string{p.Spec}
		for _, m := range p.Found {
			modules = append(modules, m.Module)
		}
		if slices.Contains([]string{"food*", "fooz*", "foo[d]", "foozy*"}, p.Spec) {
			found = append(found, strings.Join(modules, " "))
		}
	}
	if want := []string{"food* spawned", "fooz*", "foo[d] spawned", "foozy*"}; !slices.EqualFunc(found, want, strings.HasPrefix) {
		t.Errorf("%q", found)
	}
}

// switching is a session in which something happens as soon as probes are registered.
type switching struct {
	Session
	then func()
}

func (s *switching) RegisterKprobes(ctx context.Context, kps []*kprobes.Kprobe) error {
	defer s.then()
	return s.Session.RegisterKprobes(ctx, kps)
}

// TestAProbeIsSwitchedWhilePlacesOfItComeIn: a place that is being made when the probe is switched, which sees the other places only, follows.
func TestAProbeIsSwitchedWhilePlacesOfItComeIn(t *testing.T) {
	lib := testprog.Build(t, "libplug.so", "-shared", "-fPIC")
	for enabled, hits := range map[string]string{"True": "0", "False": "3"} {
		l := await(t, testprog.Start(t, testprog.Build(t, "modules")), kprobes.Options{}).run(`
		k = kprobe("libplug.so:pl*", enabled = ` + enabled + `)
		at_end(lambda: expect(k.hits == ` + hits + `, str(k.hits)))
		`)
		p := l.sc.probes[0]
		p.parts[0].m.session = &switching{l.s, func() {
			defer l.sc.turn.take(l.sc.one)()
			if err := p.enable(l.sc.one, enabled == "False"); err != nil {
				t.Error(err)
			}
		}}
		l.Do("open 0 "+lib, "did")
		l.Do("call 0 plugged 3", "did")
		l.passes()
	}
}
