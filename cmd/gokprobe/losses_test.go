package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/cmd/gokprobe/internal/event"
	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/trace"
)

// lossCase is one way to lose hits, returns or probes.
type lossCase struct {
	name    string
	program string
	args    []string
	do      [][2]string // commands of the program, and what it says then
	text    string      // a line of the summary
	json    func(summaryLine) []loss
	want    []loss
}

func missesOfFirst(s summaryLine) []loss { return s.Probes[0].Misses }

func lossCases() []lossCase {
	held := [][2]string{{"hold 1", "held"}, {"hold 2", "held"}, {"hold 3", "held"}}
	return []lossCase{
		{
			"more calls than -maxactive", "kret", []string{"-sym", "held%return", "-maxactive", "1"}, append(held, [2]string{"let", "let 9"}),
			"held%return missed 2: too many calls were followed at once (2)", missesOfFirst, []loss{{"too many calls were followed at once", 2}},
		},
		{
			"the thread ends within a call", "kret", []string{"-sym", "leaving%return"}, [][2]string{{"leave 1", "left"}, {"leave 2", "left"}},
			"leaving%return missed 2: the call ended without a return (2)", missesOfFirst, []loss{{"the call ended without a return", 2}},
		},
		{
			"longjmp over calls", "kret", []string{"-sym", "deep%return"}, [][2]string{{"jump 3", "left"}},
			"deep%return missed 6: the call ended without a return (6)", missesOfFirst, []loss{{"the call ended without a return", 6}},
		},
		{
			"a return into generated code", "kret", []string{"-sym", "third%return"}, [][2]string{{"page 9", "ret 3"}},
			"third%return missed 1: the return address takes no breakpoint (1)", missesOfFirst, []loss{{"the return address takes no breakpoint", 1}},
		},
		{
			"calls that last longer than we", "kret", []string{"-sym", "held%return"}, held,
			"calls that have not returned: held%return (3)", func(s summaryLine) []loss { return []loss{{"active", s.Probes[0].Active}} }, []loss{{"active", 3}},
		},
		{
			"places of a pattern that can't be probed", "kret", []string{"-sym", "third", "-sym", "libc.so.6:__restore_rt+*"}, nil,
			"places that are not probed: ", func(s summaryLine) []loss { // how many there are is the C library's affair
				i := slices.IndexFunc(s.Skipped, func(l loss) bool { return l.Reason == "the address must not be probed" && l.N > 0 })
				return []loss{{fmt.Sprint("listed: ", i >= 0), 0}}
			}, []loss{{"listed: true", 0}},
		},
		{
			"a library that does not come", "kret", []string{"-sym", "third", "-sym", "libnever.so:foo"}, nil,
			"waiting", func(s summaryLine) []loss { return []loss{{s.Probes[1].Mechanism, 0}} }, []loss{{"waiting", 0}},
		},
	}
}

func lossesOf(all []loss) (n uint64) {
	for _, l := range all {
		n += l.N
	}
	return n
}

// Whatever is lost is counted and told in the summary, with its reason: as text and as JSON.
func TestLossesAreTold(t *testing.T) {
	for _, c := range lossCases() {
		for _, format := range []string{"text", "json"} {
			t.Run(fmt.Sprintf("%s/%s", c.name, format), func(t *testing.T) {
				p := testprog.Start(t, testprog.Build(t, c.program))
				l := attachTo(t, p, append([]string{"-format", format}, c.args...)...)
				for _, d := range c.do {
					p.Do(d[0], d[1])
				}
				r := l.interrupt()
				if r.status != 0 {
					t.Errorf("status %d", r.status)
				}
				if format == "text" {
					if !strings.Contains(r.stderr, c.text) {
						t.Errorf("no %q in\n%s", c.text, r.stderr)
					}
				} else if _, sum := records(t, r.stdout); !slices.Equal(c.json(sum), c.want) {
					t.Errorf("%+v, want %+v, in\n%s", c.json(sum), c.want, r.stdout)
				}
				p.CheckClean()
				if len(c.do) > 0 && c.do[len(c.do)-1][1] == "held" {
					p.Do("let", "let 9")
				}
				if last := p.Quit(); last != "right" {
					t.Error(last)
				}
			})
		}
	}
}

// The output takes nothing: then only text can tell.
func TestRecordsThatTheOutputDoesNotTakeAreTold(t *testing.T) {
	p := prey(t)
	l := attachTo(t, p, "-sym", "foo", "-o", "/dev/full")
	p.Do("call foo 1", "ret")
	if r := l.end(); !strings.Contains(r.stderr, "\nrecords lost: the output did not take them (1)\n") {
		t.Errorf("status %d, stderr %q", r.status, r.stderr)
	}
	p.CheckClean()
	p.Quit()
}

func TestLossesAreByReason(t *testing.T) {
	st := trace.Stats{Lost: 7, Places: []trace.PlaceStats{{Lost: 4, Torn: 2}, {Lost: 3, Unread: 1}}}
	got := losses(st, 5)
	if want := []event.Loss{{Reason: tooFast, N: 4}, {Reason: torn, N: 2}, {Reason: unread, N: 1}, {Reason: notTaken, N: 5}}; !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := losses(trace.Stats{}, 0); got != nil {
		t.Errorf("nothing is lost, since %+v", got)
	}
}

// Scenarios and rules tell of what they miss as well.
func TestLossesOfScenariosAndRulesAreTold(t *testing.T) {
	nested := "def pre(ctx):\n    ctx.call('third', 3)\nkprobe('third')\nkprobe('magic', pre = pre)\nkretprobe('leaving')\n"
	for _, c := range []struct {
		args       []string
		text, json []string
	}{
		{
			[]string{"script", scenarioFile(t, nested)},
			[]string{"third: 0 hits, 1 missed (a handler ran in the thread (1))", "leaving: 0 hits, 1 missed (the call ended without a return (1))"},
			[]string{`"misses":[{"n":1,"reason":"a handler ran in the thread"}]`, `"misses":[{"n":1,"reason":"the call ended without a return"}]`},
		},
		{
			[]string{"inject", "-sym", "leaving", "-after", "-retval", "1"},
			[]string{"\nleaving missed 1: the call ended without a return (1)\n"}, []string{`"nmissed":1,"misses":[{"reason":"the call ended without a return","n":1}]`},
		},
	} {
		for _, format := range []string{"text", "json"} {
			p := testprog.Start(t, testprog.Build(t, "kret"))
			l := start(t, slices.Concat(c.args[:1], []string{"-p", pidOf(p), "-format", format}, c.args[1:])...)
			p.Do("call magic 9", "ret 9")
			p.Do("leave 9", "left")
			r := l.interrupt()
			want := c.text
			if format == "json" {
				want = c.json
			}
			for _, w := range want {
				if !strings.Contains(r.stdout+r.stderr, w) {
					t.Errorf("%v: no %q in\n%s%s", c.args, w, r.stdout, r.stderr)
				}
			}
			p.CheckClean()
			p.Quit()
		}
	}
}
