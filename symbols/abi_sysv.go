package symbols

import (
	"strings"

	"github.com/gokprobe/gokprobe/internal/host"
)

// class is an eightbyte's class in the System V ABI, x86-64 supplement §3.2.3.
type class uint8

const (
	classNone class = iota
	classInteger
	classSSE
	classSSEUp // the upper half of a vector register
	classX87
	classX87Up
	classMemory
)

// sysvArgs hands out argument registers and stack.
type sysvArgs struct {
	ints, floats int   // used so far
	stack        int64 // next stack argument's distance from the stack pointer
}

// entryStack is where stack arguments start at a function's first instruction:
// above the return address.
const entryStack = 8

// largestInRegisters is the bytes of the largest structure that is passed in registers.
const largestInRegisters = 16

// sysvPlaces assigns the parameters of a C or C++ function.
func sysvPlaces(types []*dtype, result *dtype) []place {
	a := &sysvArgs{stack: entryStack}
	out, lost := make([]place, len(types)), false
	switch {
	case result == nil:
	case result.kind == typeUnknown && result.size == 0, result.isWide(): // whether it is in memory is not known
		lost = true
	case sysvResult(result).isIndirect, result.size > largestInRegisters && result.holdsUnknown(0):
		a.ints = 1 // the hidden pointer to the result
	}
	for i, t := range types {
		switch {
		case lost || t.kind == typeSum || t.kind == typeVoid || t.kind == typeUnknown || !t.isByRef && (t.size <= largestInRegisters && t.holdsUnknown(0) || t.isWide()):
			// A type that is not understood may take any register, so the
			// places of all later parameters are unknown too.
			lost = true
			out[i] = place{isUnknown: true}
		case t.isByRef:
			out[i] = a.assign(8, 8, []class{classInteger})
			out[i].isIndirect = true
		default:
			out[i] = a.assign(t.size, t.align, classify(t))
		}
	}
	return out
}

// isWide reports whether t may be, or consist of, one vector of 32 or 64 bytes, which has a register.
func (t *dtype) isWide() bool { return (t.size == 32 || t.size == 64) && t.holdsUnknown(0) }

// assign places one value: in registers if there are enough of each class for
// all of it, else on the stack.
func (a *sysvArgs) assign(size, align int64, classes []class) place {
	ints, floats := 0, 0
	for _, c := range classes {
		switch c {
		case classInteger:
			ints++
		case classSSE:
			floats++
		}
	}
	if classes[0] == classMemory || classes[0] == classX87 || a.ints+ints > len(host.C.Args) || a.floats+floats > host.C.Vectors {
		return a.onStack(size, align)
	}
	p := inRegisters(size, classes, host.C.Args, a.ints, a.floats)
	a.ints += ints
	a.floats += floats
	return p
}

// inRegisters places a value of the given classes in the general registers regs from
// ints on and in the vector registers from floats on.
func inRegisters(size int64, classes []class, regs []string, ints, floats int) place {
	var p place
	for i, c := range classes {
		n := min(8, size-int64(8*i))
		switch c {
		case classInteger:
			p.parts = append(p.parts, part{off: int64(8 * i), size: n, reg: regs[ints]})
			ints++
		case classSSE:
			p.parts = append(p.parts, part{off: int64(8 * i), size: n, reg: "xmm", n: floats})
			floats++
		case classSSEUp:
			p.parts[len(p.parts)-1].size += n
		}
	}
	return p
}

func (a *sysvArgs) onStack(size, align int64) place {
	if align > 8 { // alignment holds for the frame above the return address
		a.stack = roundUp(a.stack-entryStack, align) + entryStack
	}
	p := place{parts: []part{{size: size, stack: a.stack}}}
	a.stack += (size + 7) &^ 7
	return p
}

// classify returns the classes of t's eightbytes, one of classMemory for a
// value that is passed in memory.
func classify(t *dtype) []class {
	if t.size > 16 || t.isByRef {
		return []class{classMemory}
	}
	out := make([]class, max(1, (t.size+7)/8))
	if !merge(out, t, 0, 0) || !settle(out) {
		return []class{classMemory}
	}
	return out
}

// settle does the ABI's "post merger cleanup", and reports whether the value goes in
// registers. An upper half of a vector without its lower half becomes a number of its own; an
// upper half of an x87 number without its lower half puts the value into memory.
func settle(classes []class) bool {
	for i, c := range classes {
		switch {
		case c == classSSEUp && (i == 0 || classes[i-1] != classSSE):
			classes[i] = classSSE
		case c == classX87Up && (i == 0 || classes[i-1] != classX87):
			return false
		}
	}
	return true
}

// deepest bounds the nesting of types: damaged debug information may be cyclic.
const deepest = 32

// merge adds the scalars of t, at offset off, to the classes; false means
// memory.
func merge(out []class, t *dtype, off int64, depth int) bool {
	if depth > deepest || off < 0 || off+t.size > int64(8*len(out)) {
		return false
	}
	composite := t.kind == typeStruct || t.kind == typeUnion || t.kind == typeArray
	if t.align > 0 && off%t.align != 0 && !composite {
		return false // an unaligned field, of a packed structure
	}
	switch t.kind {
	case typeStruct, typeUnion:
		return mergeFields(out, t, off, depth)
	case typeArray:
		if t.elem.size <= 0 {
			return t.elem.kind == typeStruct
		}
		for i := range min(t.count, int64(8*len(out))) {
			if !merge(out, t.elem, off+i*t.elem.size, depth+1) {
				return false
			}
		}
		return true
	case typeComplex:
		return t.size <= 16 && mark(out, off, classSSE) && mark(out, off+t.size/2, classSSE)
	case typeUnknown, typeSum, typeVoid, typeFunc:
		return false
	}
	first, second := classInteger, classInteger
	if t.kind == typeVector || t.kind == typeFloat {
		first, second = classSSE, classSSEUp
	}
	if t.kind == typeFloat && t.size > 8 && !t.isQuad() {
		first, second = classX87, classX87Up
	}
	return mark(out, off, first) && (t.size <= 8 || mark(out, off+8, second))
}

// mergeFields adds the aggregate t. It merges the classes of t's fields first, and the result into out: the order matters,
// since a long double's class gives way to an integer's, but sends the value to memory beside a float's.
func mergeFields(out []class, t *dtype, off int64, depth int) bool {
	own := make([]class, len(out))
	for _, f := range t.field {
		if f.bits {
			first := 8*off + f.bit
			for bit := first; bit < first+f.wide && mark(own, bit/8, classInteger); bit += 64 - bit%64 {
			}
		} else if !merge(own, f.typ, off+f.off, depth+1) {
			return false
		}
	}
	if !settle(own) {
		return false
	}
	for i, c := range own {
		if c != classNone && !mark(out, int64(8*i), c) {
			return false
		}
	}
	return true
}

// isQuad reports whether t is a 128-bit IEEE number or a complex of such: neither is
// passed as a long double is.
func (t *dtype) isQuad() bool { return strings.Contains(t.under, "loat128") }

// mark merges class c into the eightbyte that holds off; false means memory.
func mark(out []class, off int64, c class) bool {
	if off < 0 || off/8 >= int64(len(out)) {
		return false // damaged debug information
	}
	old := &out[off/8]
	switch {
	case *old == c || *old == classNone:
		*old = c
	case *old == classInteger || c == classInteger:
		*old = classInteger
	case *old >= classX87 || c >= classX87:
		return false
	default:
		*old = classSSE
	}
	return true
}
