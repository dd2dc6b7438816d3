package debugfs

import (
	"slices"
	"time"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/debugfs/trigger"
	"github.com/gokprobe/gokprobe/expr/fetch"
	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/program"
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

// onHit sets kp to do its event's work at hits: in the target, if nothing of it needs a
// tracer.
func (p *probe) onHit(kp *kprobes.Kprobe, l *fetch.Layout) error {
	ev, where := p.event, place{tree: p.event.tree}
	if p.handled(l) {
		kp.PreHandler = func(kp *kprobes.Kprobe, regs *kprobes.Regs) int {
			ev.handle(l, regs, nil, func(args []fetch.Value) []fetch.Value {
				return slices.Concat([]fetch.Value{where.value(kp.Addr)}, args)
			})
			return 0
		}
		return nil
	}
	var err error
	kp.Program, err = p.program(l)
	kp.RecordHandler = func(kp *kprobes.Kprobe, r *kprobes.HitRecord) {
		args := l.Decode(r.Payload, fetch.Host{Comm: r.Comm, Symbolize: ev.tree.symbolize})
		values := slices.Concat([]fetch.Value{where.value(kp.Addr)}, args)
		ev.hit(&hit{comm: r.Comm, tid: r.TID, cpu: l.Processor(r.Payload), when: r.Time, values: values})
	}
	return err
}

// onReturn sets rp to do its event's work at returns: in the target, if nothing of it
// needs a tracer. What the arguments need of the function's entry is saved there.
func (p *probe) onReturn(rp *kprobes.Kretprobe, l *fetch.Layout) error {
	ev, where, back := p.event, place{tree: p.event.tree}, place{tree: p.event.tree}
	// values puts the function in front of what l has fetched: the return address and the arguments.
	values := func(fetched []fetch.Value) []fetch.Value {
		fetched[0] = back.value(arch.Addr(fetched[0].U))
		return slices.Concat([]fetch.Value{where.value(rp.KP.Addr)}, fetched)
	}
	rp.MaxActive = p.def.MaxActive
	if !p.handled(l) {
		var err error
		rp.KP.Program, err = l.Program(ev.path(), program.Cond{}, ring)
		rp.KP.RecordHandler = func(_ *kprobes.Kprobe, r *kprobes.HitRecord) {
			fetched := l.Decode(r.Payload, fetch.Host{Comm: r.Comm, Symbolize: ev.tree.symbolize})
			ev.hit(&hit{comm: r.Comm, tid: r.TID, cpu: l.Processor(r.Payload), when: r.Time, values: values(fetched)})
		}
		return err
	}
	saved := map[*kprobes.KretprobeInstance][]uint64{} // as many as there are instances
	if l.Saved() > 0 {
		rp.EntryHandler = func(ri *kprobes.KretprobeInstance, regs *kprobes.Regs) int {
			saved[ri] = l.Save(regs, regs)
			return 0
		}
	}
	rp.Handler = func(ri *kprobes.KretprobeInstance, regs *kprobes.Regs) int {
		ev.handle(l, regs, saved[ri], values)
		return 0
	}
	return nil
}

// program is the work of p's hits in the target. They are filtered, as far as the
// target can and unless triggers want to see all, and recorded.
func (p *probe) program(l *fetch.Layout) (*program.Program, error) {
	ev := p.event
	if f := ev.filter.Load(); f != nil && !ev.soft {
		cond, _ := f.Cond(inTarget{ev, l})
		made, err := l.Program(ev.path(), cond, ring)
		if err == nil {
			if _, err = program.Check(made); err == nil {
				return made, nil
			}
		} // it is too long: the tracer filters
	}
	return l.Program(ev.path(), program.Cond{}, ring)
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

// handle makes a hit of a thread that has stopped.
func (ev *event) handle(l *fetch.Layout, regs *kprobes.Regs, saved []uint64, values func([]fetch.Value) []fetch.Value) {
	ev.tree.session.FlushRecords() // of hits before this one
	h := &hit{comm: regs.Comm(), tid: regs.TID(), cpu: regs.Processor(), when: time.Now()}
	payload, err := l.Run(regs, regs, saved)
	if err != nil {
		ev.tree.trace.lose(1) // of a register that is not there
		return
	}
	h.values = values(l.Decode(payload, fetch.Host{Comm: h.comm, Symbolize: ev.tree.symbolize}))
	h.stack = func() (all []uint64) {
		for _, f := range regs.Backtrace(stackDepth) {
			all = append(all, uint64(f.Addr))
		}
		return all
	}
	ev.hit(h)
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
