package symbols

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/symbols/walk"
)

// Value is a parameter's value at one hit.
type Value struct {
	// Text is the value as the source language writes it: 42, "abc", 0xc000012345,
	// true, {x: 1, y: 2}; "?" if it could not be had, with Err telling why.
	Text string
	// JSON is the value for encoding/json: a number, a string, a bool, a list, a
	// map by field names, a hexadecimal string for a pointer, nil if unknown.
	JSON any
	Err  error
	// Parts are the members of a structure, in the source's order, or the elements of a list.
	Parts []Part
}

// Part is a member of a structure, or an element of a list, which has no name.
type Part struct {
	Name string
	Value
}

// FloatRegs is an interface of register sets, beside arch.Regs, that have the vector
// registers. Without it floating-point parameters are unknown.
type FloatRegs interface {
	// Vector returns the low 16 bytes of vector register n (xmm n).
	Vector(n int) (v [16]byte, ok bool)
}

// X87Regs is an interface of register sets that have the x87 registers. Without it results
// of type long double are unknown.
type X87Regs interface {
	// ST returns the n-th register from the top of the x87 stack.
	ST(n int) (v [10]byte, err error)
}

var (
	errNoVector = errors.New("the vector registers are not available")
	errNoX87    = errors.New("the x87 registers are not available")
	errNoPlace  = errors.New("how the value is passed is not known")
)

// Value reads a parameter at the first instruction of its function, where r's stack
// pointer still points at the return address, and one of Variables or InlinedCall.Params at that instruction. It reads a result after the return, as Results
// says. r may also be a FloatRegs and an X87Regs.
func (p Param) Value(r arch.Regs, m arch.Memory) Value {
	if p.late != nil {
		there, err := p.at(spot{r, m})
		if err != nil {
			return unknown(fmt.Errorf("%s: %w", p.Name, err))
		}
		return there.Value(r, m)
	}
	if p.dynamic != nil {
		end, err := p.arrive(r, m)
		if err != nil {
			return unknown(fmt.Errorf("%s: %w", p.Name, err))
		}
		return end.Value(r, m)
	}
	raw, err := p.place.read(p.typ, r, m)
	if err != nil {
		return unknown(fmt.Errorf("%s: %w", p.Name, err))
	}
	bounds := p.bounds.made()
	f := &formatter{mem: m, lang: p.lang, budget: bounds.fields, bounds: bounds, table: p.table, mod: p.mod, brief: p.brief, walks: walk.Reader{Mem: m, Left: bounds.reads}}
	if p.field != nil {
		part, ok := p.field.of(raw)
		if !ok {
			return unknown(fmt.Errorf("%s: %w", p.Name, errNoPlace))
		}
		return f.format(p.field.typ, part, 0)
	}
	return f.format(p.typ, raw, 0)
}

func unknown(err error) Value { return Value{Text: "?", Err: err} }

// isKnown reports whether a value of type t can be collected.
func (p place) isKnown(t *dtype) bool {
	const largest = 1 << 16 // bytes of a value passed on the stack
	return !p.isUnknown && t.size >= 0 && t.size <= largest
}

// read collects the bytes of a value of type t.
func (p place) read(t *dtype, r arch.Regs, m arch.Memory) ([]byte, error) {
	if !p.isKnown(t) {
		return nil, errNoPlace
	}
	for _, l := range p.limits {
		if err := l.check(r, m); err != nil {
			return nil, err
		}
	}
	size := t.size
	if p.isIndirect {
		size = 8
	}
	raw, err := p.begin(size, r, m)
	at := unread
	if err == nil && p.isIndirect {
		at, raw, err = p.follow(arch.Addr(binary.LittleEndian.Uint64(raw)), t.size, m)
	}
	if p.number != nil {
		return p.number.of(raw, at, err, r, m)
	}
	return raw, err
}

// unread is an address that was not read: it is not 0.
const unread = ^arch.Addr(0)

// begin reads size bytes of the parts, which are the value or its address.
func (p place) begin(size int64, r arch.Regs, m arch.Memory) ([]byte, error) {
	raw := make([]byte, size)
	for _, x := range p.parts {
		if x.off < 0 || x.off+x.size > size {
			return nil, errNoPlace
		}
		if err := x.read(raw[x.off:x.off+x.size], r, m); err != nil {
			return nil, err
		}
	}
	return raw, nil
}

// follow reads size bytes of what an address leads to. It returns the last address too, that of the whole of which the value may be a part.
func (p place) follow(whole arch.Addr, size int64, m arch.Memory) (arch.Addr, []byte, error) {
	off := p.behind
	for _, next := range p.more {
		var word [8]byte
		if err := m.ReadMemory(whole.Add(off), word[:]); err != nil {
			return unread, nil, err
		}
		whole, off = arch.Addr(binary.LittleEndian.Uint64(word[:])), next
	}
	raw := make([]byte, size)
	return whole, raw, m.ReadMemory(whole.Add(off), raw)
}

// read fills p with the part.
func (x part) read(p []byte, r arch.Regs, m arch.Memory) error {
	if x.skip > 0 {
		whole := make([]byte, x.skip+int64(len(p)))
		skip := x.skip
		x.skip = 0
		err := x.read(whole, r, m)
		copy(p, whole[skip:])
		return err
	}
	switch x.reg {
	case "":
		return m.ReadMemory(r.SP().Add(x.stack), p)
	case constantPart:
		copy(p, binary.LittleEndian.AppendUint64(nil, uint64(x.stack)))
		return nil
	case computedPart:
		return x.made.read(p, r, m)
	case entryPart:
		at, err := x.entry.read(r, m)
		copy(p, binary.LittleEndian.AppendUint64(nil, uint64(at)))
		return err
	case "xmm":
		if fr, ok := r.(FloatRegs); ok {
			if v, ok := fr.Vector(x.n); ok {
				copy(p, v[:])
				return nil
			}
		}
		return errNoVector
	case "st":
		if fr, ok := r.(X87Regs); ok {
			if v, err := fr.ST(x.n); err == nil {
				copy(p, v[:])
				return nil
			}
		}
		return errNoX87
	}
	v, ok := r.Get(x.reg)
	if !ok {
		return fmt.Errorf("no register %s", x.reg)
	}
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], v)
	copy(p, b[:])
	return nil
}

// uintOf reads raw as a little-endian unsigned number of up to 8 bytes.
func uintOf(raw []byte) uint64 {
	var b [8]byte
	copy(b[:], raw)
	return binary.LittleEndian.Uint64(b[:])
}

// intOf reads raw as a signed number.
func intOf(raw []byte) int64 {
	if len(raw) == 0 || len(raw) > 8 {
		return int64(uintOf(raw))
	}
	shift := 64 - 8*len(raw)
	return int64(uintOf(raw)<<shift) >> shift
}

// floatOf reads an IEEE single, double or, if quad is set, quadruple number, or an
// x87 extended number.
func floatOf(raw []byte, quad bool) (float64, bool) {
	switch len(raw) {
	case 4:
		return float64(math.Float32frombits(uint32(uintOf(raw)))), true
	case 8:
		return math.Float64frombits(uintOf(raw)), true
	case 10, 12, 16:
		frac, top := uintOf(raw), raw[8:10]
		if quad { // 112 bits behind a one that is not stored; 63 of them are enough
			frac, top = 1<<63|uintOf(raw[6:14])>>1, raw[14:16]
		}
		return scaled(frac, binary.LittleEndian.Uint16(top)), true
	}
	return 0, false
}

// scaled returns a number: top holds its sign and a 15-bit exponent, frac its fraction with
// the integer bit.
func scaled(frac uint64, top uint16) float64 {
	const special, bias = 0x7fff, 16383
	v := math.Ldexp(float64(frac), int(top&special)-bias-63)
	switch {
	case top&special == special && frac<<1 != 0:
		return math.NaN()
	case top&special == special:
		v = math.Inf(1)
	}
	if top&^special != 0 {
		v = -v
	}
	return v
}
