package main

import (
	"encoding/binary"
	"errors"
	"slices"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/cmd/gokprobe/internal/event"
	"github.com/gokprobe/gokprobe/expr/fetch"
	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/kprobes"
	prog "github.com/gokprobe/gokprobe/program"
	"github.com/gokprobe/gokprobe/symbols"
)

// A hit that is only printed needs no tracer: the target itself records what the line is made
// of, and the line is made later, by the same code as at a breakpoint.

// capture is what a probe's hits record.
type capture struct {
	names  []string // registers, each an item, behind the time and the thread
	params []symbols.Param
	reads  []symbols.Read // of all parameters; each an item, behind the registers
	items  []prog.Item
	fetch  *fetching // nil, or its items stand behind the others
	filter prog.Cond

	program *prog.Program
	size    int // bytes of a record
}

// Items of every record.
const (
	timeItem = iota
	threadItem
	firstItem
)

// stackPointer is the register that parameters on the stack are found by.
var stackPointer = host.Roles.SP

var errNotCapturable = errors.New("what is printed of a hit can't be recorded in the target")

// newCapture prepares to record the registers in names and what params are printed from.
func newCapture(names []string, params []symbols.Param) (*capture, error) {
	c := &capture{params: params}
	for _, name := range names {
		c.register(name)
	}
	all := make([][]symbols.Read, len(params))
	for i, p := range params {
		regs, reads, ok := p.Reads(stackPointer)
		if !ok {
			return nil, errNotCapturable
		}
		for _, name := range regs {
			c.register(name)
		}
		for _, r := range reads {
			c.registerOf(r.Addr)
			c.registerOf(r.Count)
		}
		all[i] = reads
	}
	c.items = append(c.items, prog.Item{Name: "time", Value: prog.Now()}, prog.Item{Name: "thread", Value: prog.CurrentThread()})
	for _, name := range c.names {
		c.items = append(c.items, prog.Item{Name: name, Value: prog.Reg(name)})
	}
	for _, reads := range all {
		c.addReads(reads)
	}
	return c, nil
}

func (c *capture) register(name string) {
	if !slices.Contains(c.names, name) {
		c.names = append(c.names, name)
	}
}

func (c *capture) registerOf(w symbols.Word) {
	if w.Reg != "" {
		c.register(w.Reg)
	}
}

// item is the index of a register's item.
func (c *capture) item(name string) (int, bool) {
	i := slices.Index(c.names, name)
	return firstItem + i, i >= 0
}

// addReads adds the reads of one parameter, which count from its first.
func (c *capture) addReads(reads []symbols.Read) {
	before := len(c.reads)
	for _, r := range reads {
		r.Addr.Read += before
		r.Count.Read += before
		item := prog.Item{Value: c.expr(r.Addr).Plus(r.Off), Max: int(r.Max)}
		switch r.Kind {
		case symbols.ReadBytes:
			item.Kind = prog.Bytes
		case symbols.ReadCounted:
			item.Kind, item.Len, item.Elem = prog.CountedBytes, c.expr(r.Count), int(r.Elem)
		case symbols.ReadText:
			item.Kind, item.Max = prog.Text, int(r.Max)+1 // the last one is made zero
		}
		c.reads = append(c.reads, r)
		c.items = append(c.items, item)
	}
}

func (c *capture) expr(w symbols.Word) prog.Expr {
	if w.Reg != "" {
		return prog.Reg(w.Reg)
	}
	return prog.ItemWord(c.readItem(w.Read), w.At)
}

// readItem is the index of a read's item.
func (c *capture) readItem(read int) int { return firstItem + len(c.names) + read }

// addFetching adds what -arg and -filter want.
func (c *capture) addFetching(f *fetching) {
	if c.fetch = f; f == nil {
		return
	}
	c.items = append(c.items, f.Layout.Items()[fetch.HeadItems:]...)
	if f.Filter != nil {
		c.filter, f.exact = f.Filter.Cond(f.Layout)
	}
}

// values are those of -arg in a record.
func (c *capture) values(payload []byte, h fetch.Host) []fetch.Value {
	if c.fetch == nil {
		return nil
	}
	return c.fetch.Layout.DecodeFields(payload, c.program.Fields[firstItem+len(c.names)+len(c.reads):], h)
}

// context is the registers that the program reads.
func (c *capture) context() []string {
	names := slices.Clone(c.names)
	if c.fetch != nil {
		for _, name := range c.fetch.Layout.Regs() {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

// build makes the program that records.
func (c *capture) build(name string, ring prog.Map) error {
	p, err := prog.Build(name, 0, c.context(), c.filter, prog.WriteRecord{Ring: ring, Items: c.items})
	if err != nil {
		return err
	}
	if _, err := prog.Check(p); err != nil {
		return err
	}
	c.program, c.size = p, 0
	for _, f := range p.Fields {
		c.size = max(c.size, f.Off+f.Size, f.Err+8)
	}
	return nil
}

// inTarget has p's hits recorded by the target, if a record can hold what is printed of them.
func (pl *placer) inTarget(p *probe) bool {
	r := pl.rec
	if pl.req.noOptimize || pl.req.noBoost {
		return false // then a handler costs less
	}
	if r.sink == nil && !r.limited && !p.waits && p.filtered() {
		return p.countInTarget()
	}
	if r.sink == nil || r.limited || p.waits || p.stack > 0 || p.args && pl.req.follow {
		return false
	}
	var names []string
	if p.regs {
		names = host.Arch.NewRegs().Names()
	}
	var params []symbols.Param
	if p.args {
		params, _ = parameters(pl.sess.Symbols(), &probe{place: p.place, kp: &kprobes.Kprobe{Addr: p.addr}})
	}
	c, err := newCapture(names, params)
	if err == nil {
		c.addFetching(p.fetch)
		err = c.build(p.name, prog.Map{Kind: prog.Ring, Size: prog.MaxRecord * 8})
	}
	if err != nil {
		return false
	}
	p.capture, r.inTarget = c, true
	p.kp.Program, p.kp.RecordHandler = c.program, r.recorded(p)
	return true
}

// countInTarget makes the target count p's hits that meet the filter, if it can tell
// them.
func (p *probe) countInTarget() bool {
	f := p.fetch
	cond, exact := f.Filter.Cond(f.Layout)
	if !exact {
		return false
	}
	program, err := prog.Build(p.name, 0, f.Layout.Regs(), cond, prog.CountHit{Shards: 4})
	if err == nil {
		_, err = prog.Check(program)
	}
	if err != nil {
		return false
	}
	p.kp.Program, p.counted = program, true
	return true
}

// recorded is the RecordHandler of p.
func (r *recorder) recorded(p *probe) kprobes.RecordHandler {
	return func(_ *kprobes.Kprobe, rec *kprobes.HitRecord) {
		r.notice(p)
		s := p.capture.decode(rec.Payload)
		if s == nil {
			return
		}
		values := p.capture.values(rec.Payload, r.host(rec.Comm))
		if !p.fetch.keeps(values, rec.Comm, rec.TID) {
			return
		}
		p.keep()
		r.record(func() *event.Hit {
			h := &event.Hit{
				Time: rec.Time, PID: rec.PID, TID: rec.TID, Comm: rec.Comm,
				Probe: p.name, Kind: p.kind(), Addr: p.kp.Addr, Symbol: p.symbol, Module: p.module,
			}
			if len(p.capture.params) > 0 {
				h.Args = argumentsFrom(p.capture.params, s, s)
			}
			h.Args = p.fetch.appendTo(h.Args, values)
			if p.regs {
				h.Args = appendRegs(h.Args, s, p.kp.Addr)
			}
			return h
		})
	}
}

// lost is the records of p for which there was no room.
func (p *probe) lost() uint64 {
	const losses = 1 // the map behind the ring
	if p.capture == nil || p.kp.Values(losses) == nil {
		return 0
	}
	return p.kp.Values(losses)[0]
}

// snapshot is the registers and the memory of a hit, as far as they have been recorded.
type snapshot struct {
	arch.Regs // nothing else is asked for
	c         *capture
	regs      []uint64
	ranges    []recorded
	missed    bool // something was asked for that had not been recorded
}

// recorded is memory that the target has read, or tried to.
type recorded struct {
	at    arch.Addr
	bytes []byte
	want  int // bytes that it tried to read
}

// decode makes a snapshot of a record, nil if the record is none.
func (c *capture) decode(payload []byte) *snapshot {
	if len(payload) < c.size {
		return nil
	}
	p := c.program
	s := &snapshot{c: c, regs: make([]uint64, len(c.names)), ranges: make([]recorded, 0, len(c.reads))}
	word := func(off int) uint64 { return binary.LittleEndian.Uint64(payload[off:]) }
	for i := range c.names {
		s.regs[i] = word(p.Fields[firstItem+i].Off)
	}
	for i, r := range c.reads {
		f := p.Fields[c.readItem(i)]
		s.add(r, payload[f.Off:f.Off+f.Size], int64(word(f.Err)))
	}
	return s
}

// add is what a read with the given result has brought.
func (s *snapshot) add(r symbols.Read, bytes []byte, result int64) {
	x := recorded{at: arch.Addr(s.word(r.Addr) + uint64(r.Off)), bytes: bytes, want: int(r.Max)}
	switch {
	case result < 0, result > int64(len(bytes)):
		x.bytes = nil
	case r.Kind == symbols.ReadCounted:
		x.bytes = bytes[:result]
	case r.Kind == symbols.ReadText && result > 0 && result <= r.Max && bytes[result-1] == 0:
		x.bytes = bytes[:r.Max] // what is behind the zero does not matter
	case r.Kind == symbols.ReadText:
		x.bytes = bytes[:min(result, r.Max)]
	}
	s.ranges = append(s.ranges, x)
}

// word is a number that reads are made with.
func (s *snapshot) word(w symbols.Word) uint64 {
	if w.Reg != "" {
		v, _ := s.Get(w.Reg)
		return v
	}
	if b := s.ranges[w.Read].bytes; w.At+8 <= int64(len(b)) {
		return binary.LittleEndian.Uint64(b[w.At:])
	}
	return 0
}

// SP implements arch.Regs.
func (s *snapshot) SP() arch.Addr {
	v, _ := s.Get(stackPointer)
	return arch.Addr(v)
}

// Names implements arch.Regs.
func (s *snapshot) Names() []string { return s.c.names }

// Get implements arch.Regs.
func (s *snapshot) Get(name string) (uint64, bool) {
	i, ok := s.c.item(name)
	if !ok {
		s.missed = true
		return 0, false
	}
	return s.regs[i-firstItem], true
}

// ReadMemory implements arch.Memory.
func (s *snapshot) ReadMemory(at arch.Addr, p []byte) error {
	known := len(p) == 0
	for _, x := range s.ranges {
		if at < x.at || at+arch.Addr(len(p)) > x.at+arch.Addr(x.want) {
			continue
		}
		if in := int(at - x.at); in+len(p) <= len(x.bytes) {
			copy(p, x.bytes[in:])
			return nil
		}
		known = true
	}
	if len(p) == 0 {
		return nil
	}
	s.missed = s.missed || !known
	return &arch.FaultError{Addr: at, Cause: errNotCapturable}
}

// WriteMemory implements arch.Memory.
func (s *snapshot) WriteMemory(at arch.Addr, _ []byte) error {
	return &arch.FaultError{Addr: at, Write: true, Cause: errNotCapturable}
}
