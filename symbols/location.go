package symbols

import (
	"bytes"
	"debug/dwarf"
	"encoding/binary"
	"sort"
	"strings"

	"github.com/gokprobe/gokprobe/internal/host"
)

// knowledge says how much debug information tells about the place of a parameter at its function's first instruction.
type knowledge uint8

const (
	saidNothing knowledge = iota // the compiler has thrown the parameter away, or some of it
	saidFrame                    // it will be in the function's frame, when the prologue has put it there
	saidPlace                    // where it is, all of it
	saidOther                    // an expression that is not understood, or a constant
)

// location is the place of a parameter at its function's first instruction, as debug information tells it.
type location struct {
	knowledge
	place place // of saidPlace
}

// callee holds the facts that decide whether a function is called by the calling convention.
type callee struct {
	low        uint64 // the link-time address of its first instruction
	isLLVM     bool   // built by LLVM, which may leave out parameters that the body does not use, or pass garbage in them
	isExternal bool   // other files may call it, so it has the convention's registers
	isNocall   bool   // DW_CC_nocall: it is called in another way
	isMarked   bool   // this version of LLVM sets nocall where it has removed the result
	frameBase  []byte // a DWARF expression
	// isInside says that low is inside of the function, or at the beginning of an inlined call: what holds at the entry does not hold there.
	isInside   bool
	inPrologue bool                            // and places that hold for the whole function do not hold yet
	isSettled  bool                            // the unwinding rules there are those behind the prologue
	frame      frameBase                       // where the frame is there, if that was looked for
	address    func(n uint64) uint64           // number n of the unit's addresses; nil if there are none
	numbers    func(off uint64) (number, bool) // the base type at an offset in the unit; nil if they are not known
	caller     *callerPlace                    // where the function's caller is found; nil if that is not known
	// isOptimized reports whether LLVM has optimized the function. Without optimization it has all parameters of the source.
	optimized func() bool
}

// calleeOf reads the facts about the function with code at v. list has its entries (see origins), e is the first.
func (d *dwarfData) calleeOf(u *unit, list []*dwarf.Entry, v uint64) callee {
	const nocall = 3
	c := callee{low: v, isLLVM: u.isLLVM(), isMarked: u.marksLostResults(), optimized: func() bool { return d.isOptimized(u) }}
	cc, _ := attr(list, dwarf.AttrCalling).(int64)
	c.isNocall = cc == nocall
	c.isExternal, _ = attr(list, dwarf.AttrExternal).(bool)
	c.frameBase, _ = attr(list, dwarf.AttrFrameBase).([]byte)
	if low, ok := list[0].Val(dwarf.AttrLowpc).(uint64); ok {
		c.low = low
	}
	return c
}

// isOptimized reports whether LLVM has optimized u, by the places of parameters. Without optimization a parameter has one place in memory for the
// whole function. With it most are in registers, and have lists of places. (Functions that are always inlined, and assembly, have such lists
// without optimization too.) Frame pointers are no sign: Rust has none at any level. A unit without parameters is taken for optimized.
func (d *dwarfData) isOptimized(u *unit) bool {
	u.optimizedOnce.Do(func() {
		u.isOptimized = true // where nothing tells otherwise
		i := sort.Search(len(d.headers), func(i int) bool { return d.headers[i].first >= u.off })
		if i == len(d.headers) {
			return
		}
		const few, enough = 8, 512 // places: of how many one may be otherwise, and how many are looked at
		frames, others := 0, 0
		r := d.entriesAt(u.off)
		for e := r.next(); e != nil && uint64(e.Offset) < d.headers[i].end && frames+others < enough; e = r.next() {
			switch f := e.AttrField(dwarf.AttrLocation); {
			case e.Tag == dwarf.TagInlinedSubroutine:
				r.skip(e)
			case f == nil || e.Tag != dwarf.TagFormalParameter:
			case isInMemoryAlways(f):
				frames++
			default:
				others++
			}
		}
		u.isOptimized = r.err != nil || frames == 0 || few*others > frames
	})
	return u.isOptimized
}

// isInMemoryAlways reports whether a location is one place in memory for the whole function.
func isInMemoryAlways(f *dwarf.Field) bool {
	expr, ok := f.Val.([]byte)
	if !ok || len(expr) == 0 || f.Class != dwarf.ClassExprLoc && f.Class != dwarf.ClassBlock {
		return false
	}
	op := expr[0]
	return op != opRegx && op != opPiece && (op < opReg0 || op >= opReg0+32)
}

// isLLVM reports whether LLVM generated the code of u.
func (u *unit) isLLVM() bool {
	producer, _ := u.entry.Val(dwarf.AttrProducer).(string)
	return strings.Contains(producer, "clang") || strings.Contains(producer, "LLVM")
}

// marksLostResults reports whether LLVM marks the functions of u whose results it has removed (DeadArgumentElimination). It does since LLVM 15,
// which rustc uses from 1.65 on. No version marks functions whose parameters it has split (ArgumentPromotion).
func (u *unit) marksLostResults() bool {
	clang, _ := versionBehind(u.entry, "clang version ")
	rustc, _ := versionBehind(u.entry, "rustc version 1.")
	return clang >= 15 || rustc >= 65
}

// locate reads where the parameter e, of type t, is at the first instruction of c.
func (d *dwarfData) locate(u *unit, c callee, e *dwarf.Entry, t *dtype) location {
	f := e.AttrField(dwarf.AttrLocation)
	if f == nil {
		return c.constantOf(e, t)
	}
	if expr, ok := f.Val.([]byte); ok {
		if c.isInside && !c.holds(expr) {
			return location{knowledge: saidFrame}
		}
		l := c.evaluate(expr, t, c.isInside)
		if c.isInside && l.knowledge == saidPlace && l.place.usesRegisters() && !c.isSettled {
			return location{knowledge: saidFrame}
		}
		return l
	}
	var off uint64
	switch v := f.Val.(type) {
	case int64:
		off = uint64(v)
	case uint64:
		off = v
	default:
		return location{knowledge: saidOther}
	}
	base, _ := u.entry.Val(dwarf.AttrLowpc).(uint64)
	list := &locationList{d: d, base: base, at: c.low}
	h, _ := d.header(e.Offset)
	switch {
	case h.joined != nil && h.version < 5:
		list.addr, _ = u.entry.Val(dwarf.AttrAddrBase).(int64)
		list.readGNU(h.joined.loc + off)
	case h.version < 5:
		list.read4(off)
	case f.Class == dwarf.ClassLocList: // an index
		start, _ := u.entry.Val(dwarf.AttrLoclistsBase).(int64)
		b, ok := section(d.loclists, uint64(start)+4*off, 4)
		if !ok {
			return location{knowledge: saidOther}
		}
		off = uint64(start) + uint64(binary.LittleEndian.Uint32(b))
		list.addr, _ = u.entry.Val(dwarf.AttrAddrBase).(int64)
		list.read5(off)
	default:
		if h.joined != nil {
			off += h.joined.loc
		}
		list.addr, _ = u.entry.Val(dwarf.AttrAddrBase).(int64)
		list.read5(off)
	}
	if list.found == nil {
		return location{}
	}
	return c.evaluate(list.found, t, true)
}

// holds tells of an expression for the whole function that it holds inside of it. One that begins with a register does where the function has not
// begun to give back its frame, and the registers that it has saved.
func (c callee) holds(expr []byte) bool {
	if len(expr) == 0 {
		return false
	}
	switch op := uint64(expr[0]); {
	case op == opAddr, op == opAddrx, op == opGNUAddrx:
		return true
	case op >= opReg0 && op <= opRegx, op == opBregx:
		return !c.inPrologue && c.isSettled
	}
	return !c.inPrologue
}

// section returns the n bytes of b at off, and false if b is too short.
func section(b []byte, off, n uint64) ([]byte, bool) {
	if off > uint64(len(b)) || uint64(len(b))-off < n {
		return nil, false
	}
	return b[off : off+n], true
}

// evaluate returns the place that an expression means at the first instruction of c, for a value of type t. listed says that the expression
// is from a list and holds at this instruction; else it holds after the prologue.
func (c callee) evaluate(expr []byte, t *dtype, listed bool) location {
	x := &lineCursor{b: expr}
	var p place
	for off := int64(0); len(x.b) > 0; {
		if x.b[0] == opPiece { // the bytes are nowhere
			return location{}
		}
		l, indirect := c.one(x, listed)
		if l.knowledge != saidPlace {
			return l
		}
		one := l.place.parts[0]
		one.off, one.size = off, t.size-off
		if len(x.b) > 0 {
			if x.uint(1) != opPiece {
				return location{knowledge: saidOther}
			}
			one.size = int64(min(x.uleb(), 1<<16))
		}
		if indirect {
			if len(x.b) > 0 || off > 0 || one.size != t.size {
				return location{knowledge: saidOther}
			}
			one.size, p.isIndirect, p.behind = 8, true, l.place.behind
		}
		most := int64(8)
		if one.reg == "xmm" {
			most = 16
		}
		if x.isBad || one.size <= 0 || one.reg != "" && one.size > most || one.made != nil && one.size > one.made.result.bytes() {
			return location{knowledge: saidOther}
		}
		p.parts = append(p.parts, one)
		if off += one.size; len(p.parts) > 16 {
			return location{knowledge: saidOther}
		}
	}
	if n := len(p.parts); n == 0 || !p.isIndirect && p.parts[n-1].off+p.parts[n-1].size != t.size {
		return location{}
	}
	return location{saidPlace, p}
}

// DWARF operations (DWARF 5 §7.7.1).
const (
	opAddr       = 0x03
	opAddrx      = 0xa1
	opGNUAddrx   = 0xfb // of split DWARF 4
	opReg0       = 0x50
	opBreg0      = 0x70
	opRegx       = 0x90
	opFbreg      = 0x91
	opPiece      = 0x93
	opCFA        = 0x9c
	opConst1u    = 0x08
	opConsts     = 0x11
	opLit0       = 0x30
	opStackValue = 0x9f
	opEntryValue = 0xa3
	opGNUEntry   = 0xf3

	opThreadLocal    = 0x9b // DW_OP_form_tls_address
	opGNUThreadLocal = 0xe0 // DW_OP_GNU_push_tls_address
)

// one reads the location of a value, or of a piece: a simple one, or else one that is computed.
func (c callee) one(x *lineCursor, listed bool) (l location, indirect bool) {
	start := *x
	l, indirect = c.operation(x, listed)
	if !c.isInside || !x.isBad && l.knowledge == saidPlace && (len(x.b) == 0 || x.b[0] == opPiece) {
		return l, indirect
	}
	*x = start
	made, indirect := c.computed(x)
	if made.knowledge != saidPlace && l.knowledge != saidPlace {
		return l, false
	}
	return made, indirect
}

// operation reads a simple location: a register, a value in memory, or a value that a register holds. indirect says that the register holds
// the value's address, or one that many bytes in front of it.
func (c callee) operation(x *lineCursor, listed bool) (l location, indirect bool) {
	other := location{knowledge: saidOther}
	switch op := x.uint(1); {
	case op >= opReg0 && op < opReg0+32:
		return inRegister(op - opReg0), false
	case op == opRegx:
		return inRegister(x.uleb()), false
	case c.isInside && isConstant(op):
		return constant(x, op)
	case op == opEntryValue || op == opGNUEntry:
		b, ok := x.block(x.uleb())
		if c.isInside || !ok || len(b) != 1 || b[0] < opReg0 || b[0] >= opReg0+32 || x.uint(1) != opStackValue {
			return other, false
		}
		return inRegister(uint64(b[0] - opReg0)), false
	case op == opFbreg:
		return c.inFrame(x.sleb(), listed)
	case op == opCFA && c.isInside && c.frame.isCFA:
		return c.inFrame(0, listed)
	case op == opAddr && c.isInside:
		return location{saidPlace, place{parts: []part{{reg: staticPart, stack: int64(x.uint(8))}}}}, true
	case (op == opAddrx || op == opGNUAddrx) && c.address != nil:
		return location{saidPlace, place{parts: []part{{reg: staticPart, stack: int64(c.address(x.uleb()))}}}}, true
	case op >= opBreg0 && op < opBreg0+32:
		n, off := op-opBreg0, x.sleb()
		value := len(x.b) > 0 && x.b[0] == opStackValue
		switch {
		case value && off == 0:
			x.skip(1)
			return inRegister(n), false
		case value || n == host.DwarfFP && !c.isInside:
			return other, false
		case n == host.DwarfSP && listed:
			return onStack(off), false
		case n == host.DwarfSP:
			return location{knowledge: saidFrame}, false
		case (off == 0 || c.isInside) && len(x.b) == 0:
			return behindRegister(n, off)
		}
	}
	return other, false
}

// constantOf is the value of a parameter that the compiler knows, in an inlined call.
func (c callee) constantOf(e *dwarf.Entry, t *dtype) location {
	var v int64
	switch n := e.Val(dwarf.AttrConstValue).(type) {
	case int64:
		v = n
	case uint64:
		v = int64(n)
	case []byte: // of a floating-point number
		if int64(len(n)) != t.size || len(n) > 8 {
			return location{}
		}
		v = int64(uintOf(n))
	default:
		return location{}
	}
	if !c.isInside || t.size <= 0 || t.size > 8 {
		return location{}
	}
	return location{saidPlace, place{parts: []part{{size: t.size, reg: constantPart, stack: v}}}}
}

func isConstant(op uint64) bool {
	return op >= opConst1u && op <= opConsts || op >= opLit0 && op < opLit0+32
}

// pushed is the value that the operation op pushes.
func pushed(x *lineCursor, op uint64) int64 {
	switch {
	case op >= opLit0:
		return int64(op - opLit0)
	case op == opConsts:
		return x.sleb()
	case op == opConstu:
		return int64(x.uleb())
	}
	size := 1 << ((op - opConst1u) / 2) // DW_OP_const1u, const1s, const2u … const8s
	v := int64(x.uint(size))
	if (op-opConst1u)%2 == 1 {
		shift := 64 - 8*size
		v = v << shift >> shift
	}
	return v
}

// constant is the value that the operation op pushes, if that is all there is, or a thread-local variable that is so many bytes behind the beginning of its block.
func constant(x *lineCursor, op uint64) (l location, indirect bool) {
	v := pushed(x, op)
	if len(x.b) > 0 {
		switch x.uint(1) {
		case opStackValue:
			return location{saidPlace, place{parts: []part{{reg: constantPart, stack: v}}}}, false
		case opThreadLocal, opGNUThreadLocal:
			return location{saidPlace, place{parts: []part{{reg: threadPart, stack: v}}}}, true
		}
	}
	return location{knowledge: saidOther}, false
}

// inFrame is the place off bytes after the frame's base.
func (c callee) inFrame(off int64, listed bool) (l location, indirect bool) {
	switch {
	case c.isInside && c.frame.known && c.frame.reg == "":
		return onStack(c.frame.off + off), false
	case c.isInside && c.frame.known:
		return behindNamed(c.frame.reg, c.frame.off+off)
	case c.isInside: // the frame is not where it was at the function's entry
	case bytes.Equal(c.frameBase, []byte{opCFA}) && off >= 0:
		return onStack(entryStack + off), false
	case bytes.Equal(c.frameBase, []byte{opReg0 + host.DwarfSP}) && listed:
		return onStack(off), false
	}
	return location{knowledge: saidFrame}, false
}

// behindRegister is the place off bytes behind the address that the register with a DWARF number holds.
func behindRegister(n uint64, off int64) (l location, indirect bool) {
	if l = inRegister(n); l.knowledge == saidPlace {
		l.place.behind = off
	}
	return l, true
}

func behindNamed(reg string, off int64) (l location, indirect bool) {
	return location{saidPlace, place{behind: off, parts: []part{{reg: reg}}}}, true
}

func onStack(off int64) location {
	return location{saidPlace, place{parts: []part{{stack: off}}}}
}

// inRegister is the register with a DWARF number.
func inRegister(n uint64) location {
	const vectors = 17
	switch {
	case n < uint64(len(host.DwarfNames)) && n != host.DwarfIP:
		return location{saidPlace, place{parts: []part{{reg: host.DwarfNames[n]}}}}
	case n >= vectors && n < vectors+16:
		return location{saidPlace, place{parts: []part{{reg: "xmm", n: int(n - vectors)}}}}
	}
	return location{knowledge: saidOther}
}

func (c *lineCursor) sleb() int64 {
	v, shift := int64(0), 0
	for {
		b := c.uint(1)
		v |= int64(b&0x7f) << shift
		if shift += 7; shift > 63 && b&0x80 != 0 { // longer than any of 64 bits
			c.isBad, c.b = true, nil
			return 0
		}
		if b&0x80 == 0 {
			if shift < 64 && b&0x40 != 0 {
				v |= -1 << shift
			}
			return v
		}
	}
}
