package fetch

import (
	"bytes"
	"encoding/binary"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/program"
)

// Host provides facts that are not in the record, for the values of events.
type Host struct {
	Comm      string                 // the thread's name
	Symbolize func(arch.Addr) string // sym+0xoff/0xsize; nil or an empty result: the address is printed
	// Caller names a return address by the call before it; nil or an empty result: the address is printed.
	Caller func(arch.Addr) string
	// Leads is where an address leads to that may stand in the place of a return address; nil: to itself.
	Leads func(arch.Addr) arch.Addr
}

// Decode makes values of a record that a program of the layout has written, one for each
// argument; nil if it is too short to be one.
func (l *Layout) Decode(payload []byte, h Host) []Value {
	if len(payload) < l.size {
		return nil
	}
	return l.DecodeFields(payload, l.runs.Fields[headItems:], h)
}

// DecodeFields is Decode for the record of another program, which has Items as well: fields are theirs, and must lie in payload.
func (l *Layout) DecodeFields(payload []byte, fields []program.Field, h Host) []Value {
	values := make([]Value, len(l.args))
	for i, a := range l.args {
		p := l.plans[i]
		values[i] = decode(a, p, payload, fields[p.item-headItems:][:p.items], h)
	}
	return values
}

func decode(a Arg, p plan, payload []byte, fields []program.Field, h Host) Value {
	own := len(fields) - p.lengths
	fields, lengths := fields[:own], fields[own:]
	switch {
	case !within(a.Source.Limits, payload, lengths):
		return Value{Fault: true, Absent: true}
	case a.Source.Base == Comm:
		return Value{S: h.Comm}
	case len(fields) == 0:
		return p.known
	case a.isString() && a.Type.Count == 0 && a.Source.Len != nil:
		return counted(payload, fields[0], fields[1])
	case a.isString() && a.Type.Count == 0:
		return text(payload, fields[0])
	case a.isString():
		v := Value{Elems: make([]Value, len(fields))}
		for i, f := range fields {
			v.Elems[i] = text(payload, f)
		}
		return v
	case a.Type.Count > 0:
		return a.Type.array(payload, fields[0], h)
	}
	if a.Source.From != nil {
		n, ok := between(a.Source, payload, fields)
		return Value{U: uint64(n), Fault: !ok}
	}
	v := a.Type.value(payload[fields[0].Off:][:word], h)
	v.Fault = result(payload, fields[0]) < 0
	if last := fields[own-1]; v.Fault && p.isNilZero && result(payload, last) >= 0 && binary.LittleEndian.Uint64(payload[last.Off:]) == 0 {
		v.Fault = false // U is 0
	}
	return v
}

// within tells whether there is a value, by the lengths in fields.
func within(limits []Limit, payload []byte, lengths []program.Field) bool {
	for _, l := range limits {
		n, ok := between(l.Length, payload, lengths)
		if !ok || n <= l.Index {
			return false
		}
		if lengths = lengths[1:]; l.Length.From != nil {
			lengths = lengths[1:]
		}
	}
	return true
}

// between is the number of s in the first of fields, or, with From, between that and the second one.
func between(s Source, payload []byte, fields []program.Field) (n int64, ok bool) {
	n = int64(binary.LittleEndian.Uint64(payload[fields[0].Off:]))
	if ok = result(payload, fields[0]) >= 0; !ok || s.From == nil {
		return n, ok
	}
	n -= int64(binary.LittleEndian.Uint64(payload[fields[1].Off:]))
	if n < 0 || s.Per <= 0 || n%s.Per != 0 || result(payload, fields[1]) < 0 {
		return 0, false
	}
	return n / s.Per, true
}

// result is what reading a field has resulted in: negative if it could not be read.
func result(payload []byte, f program.Field) int64 {
	if f.Err < 0 {
		return 0
	}
	return int64(binary.LittleEndian.Uint64(payload[f.Err:]))
}

// text is the string in f.
func text(payload []byte, f program.Field) Value {
	n := result(payload, f)
	if n < 1 || n > int64(f.Size) {
		return Value{Fault: true}
	}
	s, _, _ := bytes.Cut(payload[f.Off:][:n], []byte{0})
	return Value{S: string(s), IsCut: len(s) >= f.Size-1}
}

// counted is the string in f, whose length is in n. An empty one may be anywhere.
func counted(payload []byte, n, f program.Field) Value {
	got := result(payload, f)
	if result(payload, n) == 0 && binary.LittleEndian.Uint64(payload[n.Off:]) == 0 {
		got = 0
	}
	if got < 0 || got > int64(f.Size) {
		return Value{Fault: true}
	}
	return Value{S: string(payload[f.Off:][:got]), IsCut: got == int64(f.Size)}
}

// array is the elements in f. If only the first of them could be read, the others are faults.
func (t Type) array(payload []byte, f program.Field, h Host) Value {
	there := int64(f.Size)
	if n := result(payload, f); n != 0 {
		there = max(n, 0)
	}
	v := Value{Elems: make([]Value, t.Count), Fault: there == 0}
	size := t.size()
	for i := range v.Elems {
		e := &v.Elems[i]
		if int64((i+1)*size) > there {
			e.Fault = true
			continue
		}
		*e = t.value(payload[f.Off+i*size:][:size], h)
	}
	return v
}

// value is the number whose low bytes begin p, as far as t has some.
func (t Type) value(p []byte, h Host) Value {
	var b [word]byte
	copy(b[:], p[:min(len(p), t.size())])
	v := Value{U: binary.LittleEndian.Uint64(b[:])}
	if h.Leads != nil && t.isWord() {
		v.U = uint64(h.Leads(arch.Addr(v.U)))
	}
	switch t.Kind {
	case Signed:
		shift := word * (word - t.size())
		v.U = uint64(int64(v.U<<shift) >> shift)
	case BitField, SignedBits:
		v.U = v.U >> t.Shift & (1<<t.Width - 1)
		if t.HasSign() {
			shift := 64 - t.Width
			v.U = uint64(int64(v.U<<shift) >> shift)
		}
	case SymbolOff, SymStr:
		v.S = named(h.Symbolize, v.U)
	case Caller:
		v.S = named(h.Caller, v.U)
	}
	return v
}

// named is an address as name has it, or as a number.
func named(name func(arch.Addr) string, at uint64) (s string) {
	if name != nil {
		s = name(arch.Addr(at))
	}
	if s == "" {
		s = arch.Addr(at).String()
	}
	return s
}
