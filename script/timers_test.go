package script

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gokprobe/gokprobe/kprobes"
)

// TestTimersComeInTheirOrder, those of the file from the moment on when it is armed.
func TestTimersComeInTheirOrder(t *testing.T) {
	sc, heard, e := loaded(t, `
	order = []
	after("30ms", lambda: order.append("c"))
	after("10ms", lambda: order.append("a"))
	after("20ms", lambda: order.append("b"))
	gone = after("15ms", lambda: fail("a timer that was stopped came"))
	gone.stop()
	def third():
		state.n = getattr(state, "n", 0) + 1
		if state.n == 3:
			phase("done")
			tick.stop() # the end may come later than its next time
			after("1ms", stop)
	tick = every(time.parse_duration("35ms"), third)
	after("1h", lambda: fail("too early"))
	at_end(lambda: print(order, state.n))
	`)
	if e != nil {
		t.Fatal(e)
	}
	if err := sc.Arm(); err != nil {
		t.Fatal(err)
	}
	sc.Run(context.Background())
	r := sc.Finish(Ending{})
	if r.Failed || !slices.Equal(heard.printed, []string{`["a", "b", "c"] 3`}) || !slices.Equal(heard.logged, []string{"phase: done"}) {
		t.Errorf("failed %v, printed %q, logged %q", r.Failed, heard.printed, heard.logged)
	}
}

// TestATimerThatFailsIsGone and the scenario has failed; others go on.
func TestATimerThatFailsIsGone(t *testing.T) {
	sc, heard, e := loaded(t, `
	def bad():
		state.bad = state.bad + 1
		while True: pass
	state.bad = 0
	every("1ms", bad)
	after("60ms", stop)
	at_end(lambda: print(state.bad))
	`, func(o *Options) { o.Steps = 5000 })
	if e != nil {
		t.Fatal(e)
	}
	if err := sc.Arm(); err != nil {
		t.Fatal(err)
	}
	sc.Run(context.Background())
	if r := sc.Finish(Ending{}); !r.Failed || heard.printed[0] != "1" || len(heard.problems) != 1 {
		t.Errorf("failed %v, printed %v, problems %v", r.Failed, heard.printed, heard.problems)
	}
	if p := heard.problems[0]; p.Where != "function of every()" || p.Line != 3 || !strings.Contains(p.Message, "cut off after 5000 steps") {
		t.Errorf("told is %v", p)
	}
}

// TestTimesThatHavePassedAreLeftOut: a function that takes longer than its interval is not
// called in one go later.
func TestTimesThatHavePassedAreLeftOut(t *testing.T) {
	var all timers
	now := time.Unix(1000, 0)
	one := &timer{when: now, every: time.Second}
	for _, c := range []struct{ called, next time.Duration }{
		{0, time.Second}, {900 * time.Millisecond, 2 * time.Second}, {10 * time.Second, 11 * time.Second},
	} {
		if all.again(one, now.Add(c.called)); !one.when.Equal(now.Add(c.next)) {
			t.Errorf("called %v late, comes again after %v, not %v", c.called, one.when.Sub(now), c.next)
		}
	}
}

// TestScenariosEndByThemselves with stop(), in a handler too: nothing runs any more.
func TestScenariosEndByThemselves(t *testing.T) {
	l := attach(t, "prey", kprobes.Options{}).run(`
	def pre(ctx):
		counter("calls").add()
		if ctx.arg(0) == 3:
			stop()
	kprobe("foo", pre = pre)
	every("1ms", lambda: counter("ticks"))
	at_end(lambda: expect(counter("calls").value == 3, str(counter("calls"))))
	`)
	for _, n := range []string{"1", "2", "3", "4", "5"} {
		l.Do("call foo "+n, "ret")
	}
	<-l.done
	l.passes()
}

// TestScenariosEndWithTheProcess and know how it ended.
func TestScenariosEndWithTheProcess(t *testing.T) {
	l := attach(t, "prey", kprobes.Options{}).run(`
	expect(target.exit_status == None)
	test("the end is known", lambda: expect(target.exit_status == 137))
	kprobe("foo", pre = lambda ctx: None)
	`)
	l.Kill()
	<-l.done
	if err := l.sc.Disarm(); err != nil {
		t.Error(err)
	}
	if err := l.s.Close(); err != nil {
		t.Error(err)
	}
	if r := l.sc.Finish(Ending{Exited: true, Status: l.s.Exit().Code}); r.Failed || len(r.Cases) != 3 {
		t.Errorf("failed: %v %v", l.problems, r.Cases)
	}
}

// TestTimersActOnTheProcess between its hits, while it hits.
func TestTimersActOnTheProcess(t *testing.T) {
	l := attach(t, "prey", kprobes.Options{}).run(`
	def tick():
		state.n += 1
		if state.n % 2:
			k.stop()
		else:
			k.start()
		if state.n > 20:
			state.extra = kprobe("target", pre = lambda ctx: None)
			print("enough")
			t.stop()
	state.n = 0
	k = kprobe("foo", pre = lambda ctx: counter("hits").add())
	t = every("1ms", tick)
	at_end(lambda: expect(counter("hits").value == k.hits and state.n == 21, "%s %d %s" % (counter("hits"), k.hits, state["n"])))
	`)
	for len(l.prints()) == 0 {
		if got := l.Do("threads 2 2000 foo", "sum"); got != "sum 8000000 count 4000" {
			t.Fatal(got)
		}
	}
	l.passes()
}

// TestFilesAreLoadedOnce, by a path relative to the one that loads them, and share state.
func TestFilesAreLoadedOnce(t *testing.T) {
	dir := t.TempDir()
	for name, src := range map[string]string{
		"main.star":    "load('lib/a.star', 'add', twice = 'double')\nload('lib/b.star', 'seen')\nadd(3)\nprint(seen, twice(4), args)",
		"lib/a.star":   "load('b.star', 'seen')\ndef add(x): seen.append(x)\ndef double(x): return 2 * x\nadd(1)",
		"lib/b.star":   "print('once')\nseen = []",
		"circle.star":  "load('circle2.star', 'x')",
		"circle2.star": "load('circle.star', 'y')",
	} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(src), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var heard said
	o := heard.options()
	o.Session, o.Args = newStand(t), []string{"x", "10%"}
	if _, err := Load(filepath.Join(dir, "main.star"), o); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(heard.printed, []string{"once", `[1, 3] 8 ["x", "10%"]`}) {
		t.Errorf("printed %q", heard.printed)
	}
	_, err := Load(filepath.Join(dir, "circle.star"), o)
	if err == nil || !strings.Contains(err.Error(), "load each other in a circle") {
		t.Errorf("a circle: %v", err)
	}
}
