package main

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/cmd/gokprobe/internal/event"
	"github.com/gokprobe/gokprobe/expr/fetch"
	"github.com/gokprobe/gokprobe/expr/values"
	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/symbols"
)

// probe is a registered place and what its hits record.
type probe struct {
	place
	kp     *kprobes.Kprobe
	ret    *returnProbe // nil for a probe that is not at a return
	symbol string       // symbol+offset of the patched instruction
	module string
	params []symbols.Param
	status kprobes.Status
	// described is the address that symbol, module, params and status belong to.
	described arch.Addr
	capture   *capture  // nil if hits are handled by the tracer
	fetch     *fetching // nil without -arg and -filter
	counted   bool      // the program counts the hits that meet the filter
	args      bool
	regs      bool
	stack     int // frames of each hit
	stacks    int // how many hits still get a stack; -1 for all
}

// kind is the word for p in records.
func (p *probe) kind() string {
	if p.ret != nil {
		return "kretprobe"
	}
	return "kprobe"
}

// counts is the summary's: handled hits or returns that meet the filter, and those that were missed.
func (p *probe) counts() (hits, missed uint64) {
	hits, missed = p.all()
	if f := p.fetch; f != nil && f.Filter != nil {
		hits = f.kept
		if f.exact {
			hits += p.lost()
		}
		if p.counted {
			hits = p.kp.Values(0)[0]
		}
	}
	return hits, missed
}

// all is counts without a filter.
func (p *probe) all() (hits, missed uint64) {
	if ret := p.ret; ret != nil {
		return ret.rp.Hits() - ret.late, ret.rp.NMissed() + p.kp.NMissed()
	}
	return p.kp.Hits(), p.kp.NMissed()
}

// recorder makes records of hits. Its handlers run on the tracer's thread.
type recorder struct {
	sess  *kprobes.Session
	sink  *sink // nil if only counts are wanted
	warn  func(format string, args ...any)
	began time.Time

	mu     sync.Mutex
	left   uint64 // hits until the limit; meaningful if limited
	probes []*probe

	limited  bool
	full     chan struct{} // closed when the limit is reached
	inTarget bool          // hits of some probes are recorded by the target
}

// catchUp hands on the records that lie in the target before it handles a hit: so a
// thread's hits come in their order.
func (r *recorder) catchUp() {
	if r.inTarget {
		r.sess.FlushRecords()
	}
}

// handler is the PreHandler of p, nil if the session's own count is all that is
// wanted.
func (r *recorder) handler(p *probe) kprobes.PreHandler {
	if r.sink == nil && !r.limited && !p.waits && !p.filtered() {
		return nil
	}
	return func(_ *kprobes.Kprobe, regs *kprobes.Regs) int {
		r.notice(p)
		r.catchUp()
		values, err := r.fetched(p, regs, nil)
		if err != nil {
			r.warn("a hit of %s is not printed: %v", p.name, err)
			return 0
		}
		if p.fetch.keeps(values, regs.Comm(), regs.TID()) && r.record(func() *event.Hit { return r.hit(p, regs, values) }) {
			p.keep()
		}
		return 0
	}
}

// filtered tells that some hits are not wanted.
func (p *probe) filtered() bool { return p.fetch != nil && p.fetch.Filter != nil }

// keep counts a hit that met the filter.
func (p *probe) keep() {
	if p.fetch != nil {
		p.fetch.kept++
	}
}

// fetched is the values of -arg at a hit.
func (r *recorder) fetched(p *probe, regs *kprobes.Regs, saved []uint64) ([]fetch.Value, error) {
	if p.fetch == nil {
		return nil, nil
	}
	payload, err := p.fetch.Layout.Run(regs, regs, saved)
	if err != nil {
		return nil, err
	}
	return p.fetch.Layout.Decode(payload, r.host(regs.Comm())), nil
}

// host is what values are made of, of a thread.
func (r *recorder) host(comm string) fetch.Host {
	return fetch.Host{Comm: comm, Symbolize: r.symbolize}
}

// notice comes with every hit. A probe may be where it was not when it was registered.
func (r *recorder) notice(p *probe) {
	if p.kp.Addr == p.described {
		return
	}
	if err := p.describe(r.sess); err != nil {
		r.warn("a probe prints no arguments: %v", values.NoParams(r.sess.Symbols(), p.kp.Addr, err))
	}
	p.status = r.sess.Status(p.kp)
}

// record writes one hit and counts it. Once the limit is reached it does neither and
// reports false.
func (r *recorder) record(hit func() *event.Hit) bool {
	if r.limited {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.left == 0 {
			return false
		}
	}
	if r.sink != nil && !r.sink.put(hit()) {
		return true
	}
	if r.limited {
		if r.left--; r.left == 0 {
			r.silence()
		}
	}
	return true
}

// silence disables all probes at once, so that the summary counts exactly the hits
// up to the limit.
func (r *recorder) silence() {
	for _, p := range r.probes {
		_ = r.sess.DisableKprobe(p.kp) // Close puts the code back in any case
	}
	close(r.full)
}

func (r *recorder) hit(p *probe, regs *kprobes.Regs, values []fetch.Value) *event.Hit {
	h := r.newHit(p, regs)
	if len(p.params) > 0 {
		h.Args = arguments(p.params, regs)
	}
	h.Args = p.fetch.appendTo(h.Args, values)
	r.addState(h, p, regs, p.kp.Addr)
	return h
}

func (r *recorder) newHit(p *probe, regs *kprobes.Regs) *event.Hit {
	return &event.Hit{
		Time: time.Now(), PID: regs.PID(), TID: regs.TID(), Comm: regs.Comm(),
		Probe: p.name, Kind: p.kind(), Addr: p.kp.Addr, Symbol: p.symbol, Module: p.module,
	}
}

// addState adds what the user wants to see of the thread. The instruction pointer is
// shown as at.
func (r *recorder) addState(h *event.Hit, p *probe, regs *kprobes.Regs, at arch.Addr) {
	if p.regs {
		h.Args = appendRegs(h.Args, regs, at)
	}
	if p.stack > 0 && p.stacks != 0 {
		p.stacks = max(p.stacks-1, -1)
		h.Stack = frames(r.sess.Symbols(), regs.Backtrace(p.stack))
	}
}

// arguments reads parameters or results.
func arguments(params []symbols.Param, regs *kprobes.Regs) []event.Arg {
	return argumentsFrom(params, floatRegs{regs}, regs)
}

// argumentsFrom reads parameters or results from whatever registers and memory there are.
func argumentsFrom(params []symbols.Param, regs arch.Regs, mem arch.Memory) []event.Arg {
	args := make([]event.Arg, 0, len(params))
	for i := range params {
		args = append(args, argument(params[i].Name, params[i].Value(regs, mem)))
	}
	return args
}

// floatRegs offers floating-point registers under the names that symbols asks for.
type floatRegs struct{ *kprobes.Regs }

// Vector implements symbols.FloatRegs.
func (r floatRegs) Vector(n int) (v [16]byte, ok bool) {
	lo, hi, err := r.XMM(n)
	binary.LittleEndian.PutUint64(v[:8], lo)
	binary.LittleEndian.PutUint64(v[8:], hi)
	return v, err == nil
}

// ST implements symbols.X87Regs.
func (r floatRegs) ST(n int) (v [10]byte, ok bool) {
	v, err := r.Regs.ST(n)
	return v, err == nil
}

// argument is a parameter's value as a record's.
func argument(name string, v symbols.Value) event.Arg {
	a := event.Arg{Name: name, Text: v.Text}
	switch j := v.JSON.(type) {
	case int64, uint64, float64, bool, string:
		a.Value = j
	case nil:
	default:
		a.Value = composite{j}
	}
	var fault *arch.FaultError
	if errors.As(v.Err, &fault) {
		a.Text = "(fault)"
	}
	return a
}

// composite is a list or a structure on its way into JSON.
type composite struct{ v any }

// MarshalJSON implements json.Marshaler.
func (c composite) MarshalJSON() ([]byte, error) { return json.Marshal(c.v) }

// appendRegs adds the general registers, with the % that marks a register in the
// kernel's fetch arguments. The instruction pointer is shown as at.
func appendRegs(args []event.Arg, regs arch.Regs, at arch.Addr) []event.Arg {
	for _, name := range regs.Names() {
		v, ok := regs.Get(name)
		if !ok {
			continue
		}
		if name == host.Roles.IP {
			v = uint64(at)
		}
		args = append(args, event.Arg{Name: "%" + name, Value: v, Text: arch.Addr(v).String()})
	}
	return args
}

// frames is a backtrace as a record's.
func frames(table *symbols.Table, trace []symbols.Frame) []event.Frame {
	out := make([]event.Frame, len(trace))
	for i, f := range trace {
		out[i] = event.Frame{Addr: f.Addr}
		if f.Symbol.Name != "" {
			out[i].Symbol = f.String()
		}
		if f.Symbol.Module != nil {
			out[i].Module = f.Symbol.Module.Name
		}
		at := f.Addr
		if i > 0 && !trace[i-1].Signal {
			at-- // a return address may belong to the next line
		}
		if file, line, ok := table.Line(at); ok {
			out[i].File, out[i].Line = file[strings.LastIndexByte(file, '/')+1:], line
		}
	}
	return out
}
