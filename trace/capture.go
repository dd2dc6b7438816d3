package trace

import (
	"encoding/binary"
	"errors"
	"slices"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/expr/fetch"
	"github.com/gokprobe/gokprobe/expr/filter"
	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/program"
	"github.com/gokprobe/gokprobe/symbols"
)

// A hit that is only printed needs no tracer: the target itself records what the line is made
// of, and the line is made later, by the same code as at a breakpoint.

// capture is what a probe's hits record.
type capture struct {
	names  []string // registers or processor, each an item, behind the time and the thread
	params []symbols.Param
	locals int            // how many of params are local variables,
	wholes int            // and how many, behind those, are what Fetch names
	reads  []symbols.Read // of all parameters; each an item, behind the registers
	items  []program.Item
	layout *fetch.Layout // nil, or its items stand behind the others
	typed  bool          // params are what a function returns, and known
	spares bool          // some of reads are spare
	filter program.Cond

	made *program.Program
	size int // bytes of a record
}

// Items of every record.
const (
	timeItem = iota
	threadItem
	firstItem
)

// processor is the name of the processor's number among registers.
const processor = "processor"

// stackPointer is the register that parameters on the stack are found by.
var stackPointer = host.Roles.SP

var errNotCapturable = errors.New("the values of a hit can't be recorded in the target")

// newCapture prepares to record the registers in names, and the registers and memory from which params are printed; also what is spare of that, if spare is set.
func newCapture(names []string, params []symbols.Param, spare bool) (*capture, error) {
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
	c.items = append(c.items, program.Item{Name: "time", Value: program.Now()}, program.Item{Name: "thread", Value: program.CurrentThread()})
	for _, name := range c.names {
		value := program.Reg(name)
		if name == processor {
			value = program.CurrentProcessor()
		}
		c.items = append(c.items, program.Item{Name: name, Value: value})
	}
	for _, reads := range all {
		c.addReads(reads, spare)
	}
	return c, nil
}

// briefly shows less of those params of which the target can't record all. Nobody has asked for one of them by its name, and so no thread stops for it.
func briefly(params []symbols.Param) []symbols.Param {
	all := slices.Clone(params)
	for i, p := range all {
		if _, _, ok := p.Reads(stackPointer); !ok {
			all[i] = p.Brief()
		}
	}
	return all
}

// own are the parameters and local variables, or the results.
func (c *capture) own() []symbols.Param { return c.params[:len(c.params)-c.wholes] }

// wholly are the values that Fetch names.
func (c *capture) wholly() []symbols.Param { return c.params[len(c.params)-c.wholes:] }

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

// addReads adds the reads of one parameter, which count from its first. Nothing is read by what spare ones have read, and several parameters may have the same.
func (c *capture) addReads(reads []symbols.Read, spare bool) {
	places := make([]int, len(reads)) // among c.reads
	for i, r := range reads {
		if r.IsSpare && (!spare || slices.Contains(c.reads, r)) {
			continue
		}
		places[i] = len(c.reads)
		if c.spares = c.spares || r.IsSpare; !r.IsSpare {
			r.Addr.Read, r.Count.Read = places[r.Addr.Read], places[r.Count.Read]
		}
		item := program.Item{Value: c.expr(r.Addr).Plus(r.Off), Max: int(r.Max)}
		switch r.Kind {
		case symbols.ReadBytes:
			item.Kind = program.Bytes
		case symbols.ReadArray:
			item.Kind = program.Array
		case symbols.ReadCounted:
			item.Kind, item.Len, item.Elem = program.CountedBytes, c.expr(r.Count), int(r.Elem)
		case symbols.ReadText:
			item.Kind, item.Max = program.Text, int(r.Max)+1 // the last one is made zero
		}
		c.reads = append(c.reads, r)
		c.items = append(c.items, item)
	}
}

func (c *capture) expr(w symbols.Word) program.Expr {
	e := program.ItemWord(c.readItem(w.Read), w.At)
	switch {
	case w.Reg != "":
		e = program.Reg(w.Reg)
	case w.IsConst:
		return program.Const(w.Plus)
	}
	if w.Plus != 0 {
		e = e.Plus(w.Plus)
	}
	return e
}

// readItem is the index of a read's item.
func (c *capture) readItem(read int) int { return firstItem + len(c.names) + read }

// add adds what a layout fetches.
func (c *capture) add(l *fetch.Layout) {
	c.layout = l
	c.items = append(c.items, l.Items()...)
}

// values reads the values of the layout from a record.
func (c *capture) values(payload []byte, h fetch.Host) []fetch.Value {
	if c.layout == nil {
		return nil
	}
	return c.layout.DecodeFields(payload, c.made.Fields[firstItem+len(c.names)+len(c.reads):], h)
}

// ring stands for the session's ring in a program.
var ring = program.Map{Kind: program.Ring, Size: program.MaxRecord * 8}

// plan makes the program that records the hits which meet f, nil for all: as far as the target can tell, and does not take too many instructions for
// it. exact tells that it can tell all.
func (c *capture) plan(name string, f *filter.Filter, fields filter.Target) (exact bool, err error) {
	if f == nil {
		return false, c.build(name, ring)
	}
	if c.filter, exact = f.Cond(fields); c.build(name, ring) == nil {
		return exact, nil
	}
	c.filter = program.Cond{}
	return false, c.build(name, ring)
}

// context lists the registers that the recording program reads.
func (c *capture) context() []string {
	names := slices.DeleteFunc(slices.Clone(c.names), func(name string) bool { return name == processor })
	if c.layout != nil {
		for _, name := range c.layout.Regs() {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

// build makes the program that records.
func (c *capture) build(name string, ring program.Map) error {
	p, err := program.Build(name, 0, c.context(), c.filter, program.WriteRecord{Ring: ring, Items: c.items})
	if err != nil {
		return err
	}
	if _, err := program.Check(p); err != nil {
		return err
	}
	c.made, c.size = p, 0
	for _, f := range p.Fields {
		c.size = max(c.size, f.Off+f.Size, f.Err+8)
	}
	return nil
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
	// padded is what who asks for all of that gets, of a text whose zero was found: what lies behind the zero does not matter then.
	padded []byte
}

// decode makes a snapshot of a record, nil if the record is none.
func (c *capture) decode(payload []byte) *snapshot {
	if len(payload) < c.size {
		return nil
	}
	p := c.made
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
	case r.Kind == symbols.ReadArray && result > 0:
		x.bytes = bytes[:result]
	case r.Kind == symbols.ReadCounted:
		x.bytes = bytes[:result]
	case r.Kind == symbols.ReadText && result > 0 && result <= r.Max && bytes[result-1] == 0:
		x.bytes, x.padded = bytes[:result], bytes[:r.Max]
	case r.Kind == symbols.ReadText:
		x.bytes = bytes[:min(result, r.Max)]
	}
	s.ranges = append(s.ranges, x)
}

// word is a number that reads are made with.
func (s *snapshot) word(w symbols.Word) uint64 {
	v := uint64(0)
	if w.Reg != "" {
		v, _ = s.Get(w.Reg)
	} else if !w.IsConst {
		if b := s.ranges[w.Read].bytes; w.At >= 0 && w.At <= int64(len(b))-8 {
			v = binary.LittleEndian.Uint64(b[w.At:])
		}
	}
	return v + uint64(w.Plus)
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
		in, n, want := at-x.at, arch.Addr(len(p)), arch.Addr(x.want)
		if at < x.at || in > want || n > want-in { // without a sum, which may be too large
			continue
		}
		have := x.bytes
		if in == 0 && n == want && x.padded != nil {
			have = x.padded
		}
		if in+n <= arch.Addr(len(have)) {
			copy(p, have[in:])
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
