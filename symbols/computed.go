package symbols

import (
	"debug/dwarf"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"slices"
	"sort"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/host"
)

// computedPart is the reg of a part whose bytes an expression computes.
const computedPart = "computed"

// computation is a DWARF expression that computes a value, or an address.
type computation struct {
	steps  []step
	result cell         // its type, and whether it needs the function's caller
	caller *callerPlace // what opEntryValue is answered by; nil if nothing does
}

// opStatic is the step that pushes an address of the file's, until it is known where that is mapped.
const opStatic = opAddr

// computed reads an expression that computes something, up to the end, or that of a piece. indirect says that it is the value's address.
func (c callee) computed(x *lineCursor) (l location, indirect bool) {
	other := location{knowledge: saidOther}
	made, indirect, ok := c.computation(x)
	if !ok {
		return other, false
	}
	p := part{reg: computedPart, made: made}
	if at := made.result; indirect && !at.isLate && at.isWord && at.word.Reg != "" { // such as a register and constants
		if at.word.Reg == host.DwarfNames[host.DwarfSP] {
			return onStack(at.word.Plus), false
		}
		return location{saidPlace, place{behind: at.word.Plus, parts: []part{{reg: at.word.Reg}}}}, true
	}
	if indirect && (made.result.isLate || made.result.isFloat || made.result.bytes() != 8) {
		return other, false
	}
	return location{saidPlace, place{parts: []part{p}}}, indirect
}

// computation decodes an expression.
func (c callee) computation(x *lineCursor) (made *computation, isAddress, ok bool) {
	made, isAddress = &computation{caller: c.caller}, true
	for len(x.b) > 0 && x.b[0] != opPiece {
		op := x.uint(1)
		if op == opStackValue {
			isAddress = false
			break
		}
		s, known := c.step(x, op)
		if !known || x.isBad || len(made.steps) == mostSteps {
			return nil, false, false
		}
		if op == opImplicit {
			isAddress = false
		}
		if s.op != opNop {
			made.steps = append(made.steps, s)
		}
	}
	if len(x.b) > 0 && x.b[0] != opPiece {
		return nil, false, false
	}
	var err error
	made.result, err = execute(dryWorld{made}, made.steps, true)
	return made, isAddress, err == nil
}

// step reads the operands of an operation.
func (c callee) step(x *lineCursor, op uint64) (s step, known bool) {
	switch {
	case op >= opBreg0 && op < opBreg0+32:
		return based(op-opBreg0, x.sleb())
	case op == opBregx:
		return based(x.uleb(), x.sleb())
	case op == opFbreg:
		return c.based(x.sleb())
	case op == opCFA:
		s, known = c.based(0)
		return s, known && c.frame.isCFA
	case isConstant(op):
		return step{op: opConst8u, n: uint64(pushed(x, op))}, true
	case op == opAddr:
		return step{op: opStatic, n: x.uint(8)}, true
	case op == opAddrx, op == opGNUAddrx:
		return step{op: opStatic, n: c.addressOf(x.uleb())}, c.address != nil
	case op == opEntryValue || op == opGNUEntry:
		return c.entryStep(x)
	case op == opImplicit:
		return immediate(x, x.uleb(), number{})
	case op == opDeref:
		return step{op: opDeref, n: 8}, true
	case op == opDerefSize:
		return step{op: opDerefSize, n: x.uint(1)}, true
	case op == opPick:
		return step{op: opPick, n: x.uint(1)}, true
	case op == opPlusUconst:
		return step{op: opPlusUconst, n: x.uleb()}, true
	case op == opNop, op >= opDup && op <= opOver, op == opSwap, op == opRot, op >= opAbs && op <= opPlus, op >= opShl && op <= opXor, op >= opEq && op <= opNe:
		return step{op: uint8(op)}, true
	}
	return c.typedStep(x, op)
}

// gnuTyped are the operations with types, as GCC has written them before DWARF 5.
var gnuTyped = map[uint64]uint64{0xf4: opConstType, 0xf5: opRegvalType, 0xf6: opDerefType, 0xf7: opConvert, 0xf9: opReinterpret}

// typedStep reads the operands of an operation with a type.
func (c callee) typedStep(x *lineCursor, op uint64) (s step, known bool) {
	if modern, ok := gnuTyped[op]; ok {
		op = modern
	}
	s.op = uint8(op)
	switch op {
	case opConvert, opReinterpret:
		off := x.uleb()
		if off == 0 { // the generic type
			return s, true
		}
		s.to, known = c.number(off)
		return s, known
	case opConstType:
		if s.to, known = c.number(x.uleb()); !known {
			return s, false
		}
		return immediate(x, x.uint(1), s.to)
	case opDerefType:
		s.n = x.uint(1)
		s.to, known = c.number(x.uleb())
		return s, known && s.n == uint64(s.to.bytes())
	case opRegvalType:
		l := inRegister(x.uleb())
		if s.to, known = c.number(x.uleb()); !known || l.knowledge != saidPlace {
			return s, false
		}
		if one := l.place.parts[0]; one.reg == "xmm" {
			s.n = uint64(one.n)
		} else {
			s.reg = one.reg
		}
		return s, true
	}
	return s, false
}

// immediate is so many bytes that stand in the expression, of the given type, or only bytes.
func immediate(x *lineCursor, size uint64, to number) (step, bool) {
	b, ok := x.block(size)
	if to == (number{}) {
		to = number{size: int64(len(b)), isFloat: true}
	}
	if !ok || size != uint64(to.size) || size != 1 && size != 2 && size != 4 && size != 8 {
		return step{}, false
	}
	return step{op: opConstType, n: uintOf(b), to: to}, true
}

// based is what a register with a DWARF number holds, and off.
func based(reg uint64, off int64) (step, bool) {
	if reg >= uint64(len(host.DwarfNames)) || reg == host.DwarfIP {
		return step{}, false
	}
	return step{op: opBreg0, reg: host.DwarfNames[reg], off: off}, true
}

// based is an address in the frame.
func (c callee) based(off int64) (step, bool) {
	reg := c.frame.reg
	if reg == "" {
		reg = host.DwarfNames[host.DwarfSP]
	}
	return step{op: opBreg0, reg: reg, off: c.frame.off + off}, c.frame.known
}

func (c callee) addressOf(n uint64) uint64 {
	if c.address == nil {
		return 0
	}
	return c.address(n)
}

func (c callee) number(off uint64) (number, bool) {
	if c.numbers == nil {
		return number{}, false
	}
	return c.numbers(off)
}

// numbers returns a function that reads the base type at an offset in u, for operations with types.
func (d *dwarfData) numbers(u *unit) func(off uint64) (number, bool) {
	i := sort.Search(len(d.headers), func(i int) bool { return d.headers[i].first >= u.off })
	if i == len(d.headers) || d.headers[i].first != u.off {
		return nil
	}
	start, h := uint64(0), d.headers[i]
	if i > 0 {
		start = d.headers[i-1].end
	}
	type answer struct {
		number
		ok bool
	}
	known := map[uint64]answer{}
	return func(off uint64) (n number, ok bool) {
		a, met := known[off]
		at := start + off
		if !met && len(known) < mostNumbers && off < h.end && at >= uint64(h.first) && at < h.end {
			a.number, a.ok = d.numberAt(dwarf.Offset(at))
			known[off] = a
		}
		return a.number, a.ok
	}
}

// mostNumbers bounds the types that are read for the expressions of one question.
const mostNumbers = 64

// numberAt is the base type at an offset. ok is false if that is none, or one of which no number is made.
func (d *dwarfData) numberAt(off dwarf.Offset) (n number, ok bool) {
	e := d.entryAt(off)
	if e == nil || e.Tag != dwarf.TagBaseType || e.AttrField(attrEndianity) != nil {
		return n, false
	}
	n.size, _ = e.Val(dwarf.AttrByteSize).(int64)
	switch enc, _ := e.Val(dwarf.AttrEncoding).(int64); enc {
	case 0x04: // DW_ATE_float
		n.isFloat = true
		return n, n.size == 4 || n.size == 8
	case 0x05, 0x06: // DW_ATE_signed, DW_ATE_signed_char
	case 0x01, 0x02, 0x07, 0x08, 0x10: // DW_ATE_address, boolean, unsigned, unsigned_char, UTF
		n.isUnsigned = true
	default:
		return n, false
	}
	return n, n.size == 1 || n.size == 2 || n.size == 4 || n.size == 8
}

// usesRegisters tells that what p computes depends on registers, which may not hold yet what the expression means, or no longer.
func (p place) usesRegisters() bool {
	return slices.ContainsFunc(p.parts, func(x part) bool {
		return !p.isIndirect && (x.isGeneral() || x.reg == "xmm") || x.made != nil && slices.ContainsFunc(x.made.steps, func(s step) bool { return s.op == opBreg0 || s.op == opRegvalType })
	})
}

// loaded is c in the process. ok is false if it has an address of nothing that is mapped.
func (c *computation) loaded(t *Table, m *Module) (_ *computation, ok bool) {
	out := *c
	if c.caller != nil {
		caller := *c.caller
		caller.table, caller.mod = t, m
		out.caller = &caller
	}
	out.steps = slices.Clone(c.steps)
	for i := range out.steps {
		s := &out.steps[i]
		if s.op != opStatic {
			continue
		}
		if !m.img.hasData(s.n) || m.replacesData(s.n) {
			return nil, false
		}
		s.op, s.n = opConst8u, uint64(m.addr(s.n))
	}
	return &out, true
}

// hasData tells that a section which is loaded, and is no code, is at v. Linkers leave other addresses for data that they have discarded.
func (img *image) hasData(v uint64) bool {
	return slices.ContainsFunc(img.f.Sections, func(s *elf.Section) bool {
		return s.Flags&elf.SHF_ALLOC != 0 && s.Flags&(elf.SHF_EXECINSTR|elf.SHF_TLS) == 0 && s.Addr != 0 && v >= s.Addr && v < s.Addr+s.Size
	})
}

// read computes the bytes of a part.
func (c *computation) read(p []byte, r arch.Regs, m arch.Memory) error {
	v, err := execute(hitWorld{r, m, c}, c.steps, false)
	if err == nil && (v.bytes() < int64(len(p)) || v.sure > 0 && v.sure < int64(len(p))) {
		err = errNotComputed
	}
	if err != nil {
		return err
	}
	copy(p, binary.LittleEndian.AppendUint64(nil, v.v))
	return nil
}

// dryWorld is where types are checked, before there is a hit.
type dryWorld struct{ c *computation }

func (dryWorld) register(name string) (cell, error) {
	return cell{word: Word{Reg: name}, isWord: true}, nil
}

func (dryWorld) vector(int) (uint64, error) { return 0, nil }

// load refuses an address that is known only when a record is read.
func (dryWorld) load(at cell, _ int64) (cell, error) {
	if at.isLate {
		return cell{}, errNotComputed
	}
	return cell{}, nil
}

func (w dryWorld) entry(uint64) (cell, error) {
	if w.c.caller == nil {
		return cell{}, errNotComputed
	}
	return cell{}, nil
}

// hitWorld is a hit.
type hitWorld struct {
	arch.Regs
	arch.Memory
	c *computation
}

func (w hitWorld) register(name string) (cell, error) {
	v, ok := w.Get(name)
	if !ok {
		return cell{}, fmt.Errorf("no register %s", name)
	}
	return cell{v: v}, nil
}

func (w hitWorld) vector(n int) (uint64, error) {
	var b [8]byte
	err := part{reg: "xmm", n: n}.read(b[:], w.Regs, w.Memory)
	return binary.LittleEndian.Uint64(b[:]), err
}

func (w hitWorld) load(at cell, size int64) (cell, error) {
	var b [8]byte
	if err := w.ReadMemory(arch.Addr(at.v), b[:size]); err != nil {
		return cell{}, err
	}
	return cell{v: binary.LittleEndian.Uint64(b[:])}, nil
}

func (w hitWorld) entry(reg uint64) (cell, error) {
	if w.c.caller == nil {
		return cell{}, errNotComputed
	}
	return w.c.caller.held(reg, w.Regs, w.Memory)
}
