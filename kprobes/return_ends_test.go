package kprobes_test

import (
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
)

// changer is two Kretprobes of one function, of which the second, whose EntryHandler is first and
// whose Handler is last, does something once.
type changer struct {
	t           *testing.T
	s           *kprobes.Session
	first, last *journal
	more        *journal // registered by the handler
	done        int
}

// changes are what handlers do to their probes, and how many returns each of the two sees
// of three calls, the change being made at the entry or at the return of the first.
var changes = []struct {
	name             string
	do               func(c *changer)
	entry, exit      [2]int
	warns, endsAtAll bool
}{
	{"nothing", func(*changer) {}, [2]int{3, 3}, [2]int{3, 3}, false, false},
	{"disable", func(c *changer) { ok(c.t, c.s.DisableKretprobe(&c.last.Kretprobe)) }, [2]int{3, 1}, [2]int{3, 1}, false, false},
	{"unregister", func(c *changer) { ok(c.t, c.s.UnregisterKretprobe(&c.last.Kretprobe)) }, [2]int{3, 0}, [2]int{3, 1}, false, false},
	{"unregister the other", func(c *changer) { ok(c.t, c.s.UnregisterKretprobe(&c.first.Kretprobe)) }, [2]int{0, 3}, [2]int{1, 3}, false, false},
	{"unregister both", func(c *changer) {
		ok(c.t, c.s.UnregisterKretprobes([]*kprobes.Kretprobe{&c.last.Kretprobe, &c.first.Kretprobe}))
	}, [2]int{0, 0}, [2]int{1, 1}, false, false},
	{"register again", func(c *changer) {
		ok(c.t, c.s.UnregisterKretprobe(&c.last.Kretprobe))
		c.last.KP.Addr, c.last.KP.Flags = 0, 0
		ok(c.t, c.s.RegisterKretprobe(&c.last.Kretprobe))
	}, [2]int{3, 2}, [2]int{3, 3}, false, false},
	{"register one more", func(c *changer) { ok(c.t, c.s.RegisterKretprobe(&c.more.Kretprobe)) }, [2]int{3, 3}, [2]int{3, 3}, false, false},
	{"panic", func(*changer) { panic("of the test") }, [2]int{3, 1}, [2]int{3, 1}, true, false},
	{"close", func(c *changer) { closeSession(c.t, c.s) }, [2]int{0, 0}, [2]int{1, 1}, false, true},
}

// TestHandlersChangeTheirKretprobes (A40, C18, C19): a handler may do to its own probe, and to
// others of the function, what may be done to probes at any time. The calls return what they
// must, and those in flight are treated as at any other moment.
func TestHandlersChangeTheirKretprobes(t *testing.T) {
	for _, change := range changes {
		for _, when := range []string{"entry", "return"} {
			t.Run(change.name+"/"+when, func(t *testing.T) {
				prog := start(t, "kret")
				var warned []string
				c := &changer{t: t, first: keepJournal("third"), last: keepJournal("third"), more: keepJournal("third")}
				c.s = attach(t, prog.PID(), kprobes.Options{Log: testprog.ButUprobes(func(m string) { warned = append(warned, m) })})
				want := c.arrange(when, change.do, change.entry, change.exit)
				registerReturns(t, c.s, &c.first.Kretprobe, &c.last.Kretprobe)
				for range 3 {
					if got := prog.Do("call third 30", "ret"); got != "ret 10" {
						t.Errorf("got %q", got)
					}
				}
				if got := [2]int{len(c.first.returned), len(c.last.returned)}; got != want || c.done != 1 {
					t.Errorf("%v returns, want %v; done %d times", got, want, c.done)
				}
				if len(warned) > 0 != change.warns {
					t.Errorf("warnings: %s", strings.Join(warned, "; "))
				}
				if !change.endsAtAll {
					for _, j := range []*journal{c.first, c.last} {
						if st := c.s.Status(&j.KP); st.Active != 0 || st.ReturnsMissed != 0 {
							t.Errorf("%d active, %d missed", st.Active, st.ReturnsMissed)
						}
					}
				}
				closeSession(t, c.s)
				prog.CheckClean()
				wantRight(t, prog)
			})
		}
	}
}

// arrange has the second probe's handler do something, once, and returns how many returns are
// to be seen.
func (c *changer) arrange(when string, do func(*changer), entry, exit [2]int) [2]int {
	once := func(h kprobes.KretprobeHandler) kprobes.KretprobeHandler {
		return func(ri *kprobes.KretprobeInstance, r *kprobes.Regs) int {
			v := h(ri, r)
			if c.done == 0 {
				c.done++
				do(c)
			}
			return v
		}
	}
	if when == "entry" {
		c.last.EntryHandler = once(c.last.EntryHandler)
		return entry
	}
	c.last.Handler = once(c.last.Handler)
	return exit
}

// TestHandlersThatEndTheirThread (B33, C27) have it call exit(2): the calls that it is in are
// missed, but for what has run, and no more handlers run for it.
func TestHandlersThatEndTheirThread(t *testing.T) {
	for _, c := range []struct {
		when            string
		returns, missed [2]uint64 // of the probe that ends it, which is first, and of the other
	}{
		{"entry", [2]uint64{0, 0}, [2]uint64{1, 0}},
		{"return", [2]uint64{1, 0}, [2]uint64{0, 1}},
	} {
		t.Run(c.when, func(t *testing.T) {
			prog := start(t, "kret")
			s := attach(t, prog.PID(), kprobes.Options{})
			exit := symbol(t, s, "vanishing")
			end, other := keepJournal("held"), keepJournal("held")
			last := func(_ *kprobes.KretprobeInstance, r *kprobes.Regs) int {
				if _, err := callWithin(r, within, exit, 0); err == nil {
					t.Error("exit returned")
				}
				return 0
			}
			rps := []*kprobes.Kretprobe{&end.Kretprobe, &other.Kretprobe}
			if end.Handler = last; c.when == "entry" {
				end.EntryHandler = last
				rps[0], rps[1] = rps[1], rps[0]
			}
			registerReturns(t, s, rps...)
			prog.Send("hold 10")
			if c.when == "return" {
				prog.Expect("held")
			}
			prog.Do("let", "let") // when the thread has ended
			for i, j := range []*journal{end, other} {
				wantFlights(t, s, &j.Kretprobe, c.returns[i]+c.missed[i], c.returns[i], c.missed[i], 0)
			}
			if len(other.returned) != 0 {
				t.Errorf("the other Handler ran for %v", other.returned)
			}
			closeSession(t, s)
			prog.CheckClean()
			wantRight(t, prog)
		})
	}
}
