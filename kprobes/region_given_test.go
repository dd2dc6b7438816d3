package kprobes

import (
	"cmp"
	"fmt"
	"os"
	trace "runtime/debug"
	"slices"
	"sync/atomic"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/ptrace"
	"github.com/gokprobe/gokprobe/trampoline"
)

// Who may be in memory of the target's that is given back? Nobody, and nobody may come: that is asked each time, of all sessions of the tests.
//
//	threads       none stands there, none is handled that will go on there, none waits in a system call made there
//	sites         none has its slot there, or a jump to there
//	code          nothing stands in the program that jumps there, whatever the books say
//	detours       none that is left is there, or uses memory there; no head and no stray is one's that is there
//	the guard     sends nobody there, and nobody from there

// leftBehind counts what was found.
var leftBehind atomic.Int64

// firstLeft is what was said of the first; nil if there is none.
var firstLeft atomic.Pointer[string]

// FirstGivenBack is that, empty for nothing.
func FirstGivenBack() string {
	if text := firstLeft.Load(); text != nil {
		return *text
	}
	return ""
}

// WatchGivenBack begins to ask. It tells how much was found so far, which is on standard error.
func WatchGivenBack() (found func() int64) {
	givenBack = func(d *domain, space *ptrace.Space, memory []arch.Range) {
		g := given{d: d, space: space, memory: slices.SortedFunc(slices.Values(memory), func(a, b arch.Range) int { return cmp.Compare(a.Start, b.Start) })}
		g.look()
	}
	return leftBehind.Load
}

// Where there are many sites, their slots may go one by one, and what all books say is asked now and then.
const manySites = 256

var pieces atomic.Int64

// given is memory in space that is given back.
type given struct {
	d      *domain
	space  *ptrace.Space
	memory []arch.Range // in order
}

func (g *given) has(at arch.Addr) bool { return g.meets(arch.Range{Start: at, End: at + 1}) }

func (g *given) meets(o arch.Range) bool {
	i, _ := slices.BinarySearchFunc(g.memory, o.Start, func(r arch.Range, at arch.Addr) int { return cmp.Compare(r.End, at+1) })
	return o.Len() > 0 && i < len(g.memory) && g.memory[i].Start < o.End
}

// wrong tells of somebody who is left.
func (g *given) wrong(format string, args ...any) {
	if leftBehind.Add(1) > 20 {
		return
	}
	what := g.memory
	if len(what) > 8 {
		what = what[:8]
	}
	text := fmt.Sprintf("GIVEN BACK, %d pieces %v of process %d: %s\n%s\n", len(g.memory), what, g.d.session.pid, fmt.Sprintf(format, args...), trace.Stack())
	fmt.Fprint(os.Stderr, text)
	firstLeft.CompareAndSwap(nil, &text)
}

func (g *given) look() {
	if whole := g.space != g.d.space || g.d.released; whole { // the books are closed
		g.frozen(g.threads)
		return
	}
	if len(g.memory) > 1 || len(g.d.sites) < manySites || pieces.Add(1)%manySites == 0 {
		g.books()
		g.guard()
		g.code()
	}
	if g.d.region.Contains(g.memory[0].Start) {
		g.frozen(func() { g.hits(); g.threads() })
	}
}

// frozen leaves those in their system calls that will not come back to there: a test may count on it.
func (g *given) frozen(f func()) {
	_ = g.space.FreezeAwake(g.has, func() error { f(); return nil })
}

func (g *given) threads() {
	for _, th := range g.space.Threads() {
		regs, err := th.Regs()
		if !th.Stopped() || err != nil {
			continue
		}
		if ip := regs.IP(); g.has(ip) {
			g.wrong("thread %d stands at %s, stopped for %v", th.TID, ip, th.Stop())
		} else if th.Stop().Reason == ptrace.Breakpoint && g.has(regs.Trapped()) && !g.slotBegins(ip) {
			g.wrong("thread %d has trapped at %s", th.TID, regs.Trapped())
		}
	}
}

// slotBegins: a thread that has trapped somewhere else may have been sent there.
func (g *given) slotBegins(at arch.Addr) bool {
	slot, ok := g.d.region.SlotOf(at)
	chunk, isChunk := g.d.region.ChunkOf(at)
	return ok && slot == at || isChunk && chunk == at
}

// hits are those in progress.
func (g *given) hits() {
	for _, th := range g.space.Threads() {
		for ts := g.d.session.hits.states.Of(th); ts != nil; ts = ts.outer {
			if st := ts.site; st != nil && st.domain == g.d && g.meets(st.slot.Range()) {
				g.wrong("a hit of %s by thread %d goes on in its slot", st.addr, th.TID)
			}
			for _, det := range []*detour{ts.detour, ts.leaving} {
				if det != nil && det.site.domain == g.d && g.leadsTo(det) {
					g.wrong("thread %d is in the detour of %s, or comes back to it", th.TID, det.site.addr)
				}
			}
		}
	}
}

// leadsTo tells whether det's code is there, or the way to it.
func (g *given) leadsTo(det *detour) bool {
	return det.Detour != nil && (g.meets(det.Range()) || g.has(det.landing.Entry))
}

// books are what sites and detours say.
func (g *given) books() {
	for at, st := range g.d.sites {
		if g.meets(st.slot.Range()) {
			g.wrong("the site at %s has its slot there", at)
		}
		for _, det := range []*detour{st.jump(), st.next()} {
			if det != nil && g.leadsTo(det) {
				g.wrong("the site at %s has its detour there", at)
			}
		}
	}
	own := *g // a stray is a byte that may lie among cells, where nobody may execute
	own.memory = slices.DeleteFunc(slices.Clone(g.memory), func(r arch.Range) bool { return r.Len() == 1 })
	for _, det := range g.d.detours.at {
		if g.leadsTo(det) {
			g.wrong("the detour of %s is known", det.site.addr)
		}
		if slices.ContainsFunc(det.uses(), own.meets) {
			g.wrong("the detour of %s, which is known, uses memory there", det.site.addr)
		}
	}
	for head, det := range g.d.detours.heads {
		if g.leadsTo(det) {
			g.wrong("the head %s leads there", head)
		}
	}
	code := *g // a stray may lie among cells, where others than its owner come and go: nobody can execute anything there, whose ever it is
	code.memory = slices.DeleteFunc(slices.Clone(g.memory), func(r arch.Range) bool {
		return slices.ContainsFunc(g.d.region.Mapped(), func(e trampoline.Extent) bool { return e.Data.Contains(r.Start) })
	})
	for stray, det := range g.d.neighbours.strays {
		if g.leadsTo(det) || code.has(stray) {
			g.wrong("the stray %s is one of the detour of %s", stray, det.site.addr)
		}
	}
}

// uses is all memory that det's code refers to.
func (det *detour) uses() (all []arch.Range) {
	for _, rec := range append(slices.Clone(det.returned), det.record) {
		if rec == nil {
			continue
		}
		for _, m := range rec.maps {
			all = append(all, m.span())
		}
	}
	if det.count != nil {
		all = append(all, det.count.memory())
	}
	if det.upcall != nil {
		all = append(all, det.upcall.board.where)
	}
	return all
}

// guard is the table by which threads go on when the tracer is dead, and in front of the program's own handlers.
func (g *given) guard() {
	for at, to := range g.d.region.Resumes() {
		if g.has(at) || g.has(to) {
			g.wrong("the guard sends who traps at %s to %s", at, to)
		}
	}
}

// code is what stands in the program.
func (g *given) code() {
	for at, past := range g.d.optimizer.jumps {
		for _, jump := range past.replacements {
			insn, err := host.Arch.Decode(jump, at)
			if err != nil || !g.has(insn.Target) {
				continue
			}
			now := make([]byte, len(jump))
			if g.space.Text().ReadMemory(at, now) == nil && slices.Equal(now, jump) {
				g.wrong("the code at %s jumps to %s", at, insn.Target)
			}
		}
	}
}
