package trace

import (
	"time"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/expr/fetch"
	"github.com/gokprobe/gokprobe/expr/filter"
	"github.com/gokprobe/gokprobe/kprobes"
)

// Fetching is how the values of a layout come from the hits of one probe to whom they are for. The target records them. Where it can't, threads
// stop at hits, and the values are read from them.
type Fetching struct {
	Session *kprobes.Session
	Name    string // of the probe
	Layout  *fetch.Layout
	// Filter tells which hits are wanted, nil for all, and Fields how the target finds what it looks at. Other hits come too: the
	// target can't tell everything.
	Filter *filter.Filter
	Fields filter.Target
	// Stack tells that the stack of each hit is wanted.
	Stack     bool
	Symbolize func(arch.Addr) string // as that of fetch.Host
	// Hit gets every hit, and Lost is called for one that can't be read. They run on the tracer's thread.
	Hit  func(*Fetched)
	Lost func()
}

// Fetched is one hit with its values.
type Fetched struct {
	Time   time.Time
	TID    int
	CPU    int
	Comm   string
	Values []fetch.Value
	Regs   *kprobes.Regs // of the thread that has stopped; nil if the target has recorded the hit
}

// Stops tells that threads stop at hits: the target can't unwind a stack, or keep values of a call's entry for its return.
func (f *Fetching) Stops() bool { return f.StopsWith(f.Stack) }

// StopsWith is Stops if Stack were another one.
func (f *Fetching) StopsWith(stack bool) bool { return stack || f.Layout.Saved() > 0 }

// At sets kp to fetch at its hits.
func (f *Fetching) At(kp *kprobes.Kprobe) error {
	if !f.Stops() {
		return f.record(kp)
	}
	kp.PreHandler = func(_ *kprobes.Kprobe, regs *kprobes.Regs) int {
		f.stopped(regs, nil)
		return 0
	}
	return nil
}

// AtReturns sets rp to fetch at the returns of its function.
func (f *Fetching) AtReturns(rp *kprobes.Kretprobe) error {
	if !f.Stops() {
		return f.record(&rp.KP)
	}
	Keep(rp, f.Layout)
	rp.Handler = func(ri *kprobes.KretprobeInstance, regs *kprobes.Regs) int {
		f.stopped(regs, fetch.Kept(ri.Data))
		return 0
	}
	return nil
}

// Keep makes rp keep, at the entries of calls, what l wants of them at their returns: it is fetch.Kept of a call's Data.
func Keep(rp *kprobes.Kretprobe, l *fetch.Layout) {
	if l.Saved() == 0 {
		return
	}
	rp.DataSize = l.KeptSize()
	rp.EntryHandler = func(ri *kprobes.KretprobeInstance, regs *kprobes.Regs) int {
		l.Keep(ri.Data, regs, regs)
		return 0
	}
}

// record makes the target record kp's hits.
func (f *Fetching) record(kp *kprobes.Kprobe) error {
	c, err := newCapture([]string{processor}, nil, false)
	if err != nil {
		return err
	}
	c.add(f.Layout)
	by := f.Filter
	if f.Session.ReplacesReturns() && f.Layout.ReadsAddresses() {
		by = nil // the target may find another address than the true one
	}
	if _, err := c.plan(f.Name, by, f.Fields); err != nil {
		return err
	}
	kp.Program = c.made
	kp.RecordHandler = func(_ *kprobes.Kprobe, r *kprobes.HitRecord) {
		s := c.decode(r.Payload)
		if s == nil {
			f.Lost()
			return
		}
		cpu, _ := s.Get(processor)
		f.Hit(&Fetched{Time: r.Time, TID: r.TID, CPU: int(cpu), Comm: r.Comm, Values: c.values(r.Payload, f.host(r.Comm, r.ReturnPlace))})
	}
	return nil
}

// stopped makes a hit of a thread that has stopped. saved is what was kept of the call that returns.
func (f *Fetching) stopped(regs *kprobes.Regs, saved []uint64) {
	f.Session.FlushRecords() // of hits before this one
	h := &Fetched{Time: time.Now(), TID: regs.TID(), CPU: regs.Processor(), Comm: regs.Comm(), Regs: regs}
	var err error
	if h.Values, err = f.Layout.Fetch(regs, regs, saved, f.host(h.Comm, regs.ReturnPlace)); err != nil { // a register is not there
		f.Lost()
		return
	}
	f.Hit(h)
}

func (f *Fetching) host(comm string, leads func(arch.Addr) arch.Addr) fetch.Host {
	return fetch.Host{Comm: comm, Symbolize: f.Symbolize, Leads: leads}
}

// Lost is how many of kp's records the target has dropped, since there was no room for them.
func Lost(kp *kprobes.Kprobe) uint64 {
	const losses = 1 // the map behind the ring
	if v := kp.Values(losses); len(v) > 0 {
		return v[0]
	}
	return 0
}
