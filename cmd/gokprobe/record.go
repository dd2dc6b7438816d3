package main

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/event"
	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/symbols"
)

// probe is a registered place and what its hits record.
type probe struct {
	place
	kp     kprobes.Kprobe
	symbol string // symbol+offset of the patched instruction
	module string
	params []symbols.Param
	regs   bool
	stack  int // frames of each hit
	stacks int // how many hits still get a stack; -1 for all
}

// recorder makes records of hits. Its handlers run on the tracer's thread.
type recorder struct {
	sess *kprobes.Session
	sink *sink // nil if only counts are wanted

	mu     sync.Mutex
	left   uint64 // hits until the limit; meaningful if limited
	probes []*probe

	limited bool
	full    chan struct{} // closed when the limit is reached
}

// handler is the PreHandler of p, nil if the session's own count is all that is
// wanted.
func (r *recorder) handler(p *probe) kprobes.PreHandler {
	if r.sink == nil && !r.limited {
		return nil
	}
	return func(_ *kprobes.Kprobe, regs *kprobes.Regs) int {
		if r.limited {
			r.mu.Lock()
			defer r.mu.Unlock()
			if r.left == 0 {
				return 0
			}
		}
		if r.sink != nil && !r.sink.put(r.hit(p, regs)) {
			return 0
		}
		if r.limited {
			if r.left--; r.left == 0 {
				r.silence()
			}
		}
		return 0
	}
}

// silence disables all probes at once, so that the summary counts exactly the hits
// up to the limit.
func (r *recorder) silence() {
	for _, p := range r.probes {
		_ = r.sess.DisableKprobe(&p.kp) // Close puts the code back in any case
	}
	close(r.full)
}

func (r *recorder) hit(p *probe, regs *kprobes.Regs) *event.Hit {
	h := &event.Hit{
		Time: time.Now(), PID: regs.PID(), TID: regs.TID(), Comm: regs.Comm(),
		Probe: p.name, Kind: "kprobe", Addr: p.kp.Addr, Symbol: p.symbol, Module: p.module,
	}
	if n := len(p.params); n > 0 {
		h.Args = make([]event.Arg, 0, n)
		view := vectorRegs{regs}
		for i := range p.params {
			h.Args = append(h.Args, argument(p.params[i].Name, p.params[i].Value(view, regs)))
		}
	}
	if p.regs {
		h.Args = appendRegs(h.Args, regs, p.kp.Addr)
	}
	if p.stack > 0 && p.stacks != 0 {
		p.stacks = max(p.stacks-1, -1)
		h.Stack = frames(r.sess.Symbols(), regs.Backtrace(p.stack))
	}
	return h
}

// vectorRegs offers the vector registers under the name that symbols asks for.
type vectorRegs struct{ *kprobes.Regs }

// Vector implements symbols.FloatRegs.
func (r vectorRegs) Vector(n int) (v [16]byte, ok bool) {
	lo, hi, err := r.XMM(n)
	binary.LittleEndian.PutUint64(v[:8], lo)
	binary.LittleEndian.PutUint64(v[8:], hi)
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
// kernel's fetch arguments. The instruction pointer is shown as the probed address.
func appendRegs(args []event.Arg, regs *kprobes.Regs, at arch.Addr) []event.Arg {
	for _, name := range regs.Names() {
		v, ok := regs.Get(name)
		if !ok {
			continue
		}
		if name == "rip" {
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
