package debugfs

import (
	"slices"
	"time"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/debugfs/dynevent"
	"github.com/gokprobe/gokprobe/debugfs/trigger"
	"github.com/gokprobe/gokprobe/expr/fetch"
	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/program"
	"github.com/gokprobe/gokprobe/trace"
)

// The work at a hit, on the tracer's thread.

// stackDepth is how many frames of a stack are recorded.
const stackDepth = 64

// hit is one of a probe.
type hit struct {
	comm   string
	tid    int
	cpu    int
	when   time.Time
	values []fetch.Value   // of the addresses and the arguments
	depth  int             // of a synthetic event's: see trigger.Hit
	stack  func() []uint64 // nil: not known any more
}

// newFetching is how the values that l fetches come to p's event, behind the place kp. Triggers want to see all hits, and returns are
// filtered by the tracer.
func (p *probe) newFetching(l *fetch.Layout, kp *kprobes.Kprobe) *trace.Fetching {
	ev, t := p.event, p.event.tree
	where, back := place{tree: t}, place{tree: t}
	f := &trace.Fetching{
		Session: t.session, Name: ev.path(), Layout: l, Fields: inTarget{ev, l}, Stack: ev.stacks,
		Symbolize: t.symbolize, Lost: func() { t.trace.lose(1) },
	}
	if ev.kind != dynevent.Return && !ev.soft {
		f.Filter = ev.filter.Load()
	}
	f.Hit = func(r *trace.Fetched) {
		if ev.kind == dynevent.Return {
			r.Values[0] = back.value(arch.Addr(r.Values[0].U))
		}
		h := &hit{comm: r.Comm, tid: r.TID, cpu: r.CPU, when: r.Time, values: slices.Concat([]fetch.Value{where.value(kp.Addr)}, r.Values)}
		if r.Regs != nil {
			h.stack = func() []uint64 { return stackOf(r.Regs) }
		}
		ev.hit(h)
	}
	return f
}

// stackOf is the stack of a thread that has stopped, by its addresses.
func stackOf(regs *kprobes.Regs) (all []uint64) {
	for _, f := range regs.Backtrace(stackDepth) {
		all = append(all, uint64(f.Addr))
	}
	return all
}

// inTarget is what the target finds out of event.queried (filter.Target).
type inTarget struct {
	ev *event
	l  *fetch.Layout
}

func (t inTarget) Expr(field int) (program.Expr, bool) {
	if i := field - t.ev.firstArg(); i < len(t.ev.args) {
		return t.l.Expr(i)
	}
	return program.CurrentProcessor(), t.ev.queried[field].Type == processorType
}

func (t inTarget) Text(field int) (at program.Expr, size int, ok bool) {
	return t.l.Text(field - t.ev.firstArg())
}

// place is the value of a field that says where. It remembers the last one: that is most often the next.
type place struct {
	tree *Tree
	last fetch.Value
}

func (w *place) value(at arch.Addr) fetch.Value {
	if w.last.S == "" || w.last.U != uint64(at) {
		w.last = fetch.Value{U: uint64(at), S: w.tree.symbolize(at)}
	}
	return w.last
}

// hit is what the kernel does between trace_trigger_soft_disabled and the end of
// trace_event_buffer_commit.
func (ev *event) hit(h *hit) {
	t := ev.tree
	if pids := t.pids.Load(); pids != nil && !(*pids)[h.tid] {
		return
	}
	since := t.sinceBoot(h.when)
	f := ev.filter.Load()
	var asked []fetch.Value
	if f != nil || ev.triggers.Len() > 0 {
		asked = ev.answers(h)
	}
	told := &trigger.Hit{Values: asked, Comm: h.comm, PID: h.tid, CPU: h.cpu, Time: since, Depth: h.depth, Stack: h.stack}
	after := ev.triggers.Hit(told)
	if t.on.Load() && !ev.quiet.Load() && (f == nil || f.Match(asked)) {
		t.trace.add(&entry{comm: h.comm, tid: h.tid, cpu: h.cpu, when: since, event: ev, values: h.values})
		if t.stacks.Load() {
			triggered{t}.Stack(told)
		}
	}
	if after != nil {
		after()
	}
}

// answers are the values of event.queried.
func (ev *event) answers(h *hit) []fetch.Value {
	all := make([]fetch.Value, 0, len(ev.queried))
	all = append(all, fetch.Value{U: uint64(ev.id)}, fetch.Value{}, fetch.Value{}, fetch.Value{U: uint64(h.tid)})
	all = append(all, h.values...)
	cpu, comm := fetch.Value{U: uint64(h.cpu)}, fetch.Value{S: h.comm}
	return append(all, cpu, cpu, cpu, comm, comm)
}
