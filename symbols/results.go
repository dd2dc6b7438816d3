package symbols

import (
	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/host"
)

// soleResult is the name of a C, C++ or Rust function's result.
const soleResult = "ret"

// Results returns the results of the function that contains a; none if it has
// none. Their values must be read when a call has just returned: at the return
// address, with the stack pointer above it. Go's results have the names of the
// source, or ~r0, ~r1 … if it names none. The result of another language is named
// "ret". Errors are those of Params.
func (t *Table) Results(a arch.Addr) ([]Param, error) {
	sig, err := t.signature(a)
	if err != nil {
		return nil, err
	}
	return sig.resultPlaces(), nil
}

// resultPlaces gives the results their places by the calling convention.
func (s *signature) resultPlaces() []Param {
	if s.unit.lang == langGo {
		return s.goResultPlaces()
	}
	if len(s.results) == 0 {
		return nil
	}
	ret := s.results[0]
	switch {
	case ret.typ.kind == typeVoid, s.unit.lang == langRust && ret.typ.size == 0:
		return nil
	case !s.callee.returnsAsDeclared():
		ret.place = place{isUnknown: true}
	case s.unit.lang == langRust:
		ret.place = s.rustResult(ret.typ)
	default:
		ret.place = sysvResult(ret.typ)
	}
	if ret.place.isIndirect && !s.callee.keepsConvention() {
		ret.place = place{isUnknown: true}
	}
	return []Param{ret}
}

// goResultPlaces moves the places on the stack to where the stack pointer is after
// the return.
func (s *signature) goResultPlaces() []Param {
	_, places := goPlaces(dtypesOf(withDictionary(s.params, s.linkage)), dtypesOf(s.results), s.hasGoRegisters())
	for i := range places {
		for j := range places[i].parts {
			if x := &places[i].parts[j]; x.reg == "" {
				x.stack -= entryStack
			}
		}
		s.results[i].place = places[i]
	}
	return s.results
}

// sysvResult places the result of a C or C++ function.
func sysvResult(t *dtype) place {
	switch {
	case t.isByRef:
		return inMemory()
	case t.holdsUnknown(0):
		return place{isUnknown: true}
	case t.kind == typeComplex && t.size == 32 && !t.isQuad():
		return place{parts: []part{{size: x87Size, reg: "st"}, {off: 16, size: x87Size, reg: "st", n: 1}}}
	}
	classes := classify(t)
	switch classes[0] {
	case classMemory:
		return inMemory()
	case classX87:
		return place{parts: []part{{size: x87Size, reg: "st"}}}
	}
	return inRegisters(t.size, classes, host.C.Results, 0, 0)
}

// inMemory is a result that lies in memory of the caller. The register for integer results has its address.
func inMemory() place {
	return place{parts: []part{{size: 8, reg: host.C.Results[0]}}, isIndirect: true}
}

// x87Size is the number of bytes of a long double that are not padding.
const x87Size = 10

// holdsUnknown reports whether a part of t is not understood, so that its class
// can't be told.
func (t *dtype) holdsUnknown(depth int) bool {
	if depth > deepest {
		return true
	}
	switch t.kind {
	case typeUnknown, typeSum, typeVoid, typeFunc:
		return true
	case typeArray:
		return t.elem.holdsUnknown(depth + 1)
	case typeStruct, typeUnion:
		for _, f := range t.field {
			if f.typ.holdsUnknown(depth + 1) {
				return true
			}
		}
	}
	return false
}

// Integer returns the number that v, a general register with p's value, means. It is extended
// from the width of p's type, with its sign if the type has one. For a type that is no
// number it is v itself.
func (p Param) Integer(v uint64) int64 {
	if p.typ.size <= 0 || p.typ.size >= 8 {
		return int64(v)
	}
	bits := 64 - 8*p.typ.size
	switch p.typ.kind {
	case typeInt, typeEnum, typeChar:
		if p.typ.isSigned() {
			return int64(v<<bits) >> bits
		}
		return int64(v << bits >> bits)
	case typeUint, typeBool:
		return int64(v << bits >> bits)
	}
	return int64(v)
}

// Whole reports whether p is a whole number, a truth value, a character, an enumeration or an address, all of it in one
// general register: so that Integer of that register is its value.
func (p Param) Whole() bool {
	switch p.typ.kind {
	case typeInt, typeUint, typeBool, typeChar, typeEnum, typePointer, typeReference, typeGoPointer:
	default:
		return false
	}
	x := p.place
	return !x.isUnknown && !x.isIndirect && len(x.parts) == 1 && p.typ.size <= 8 && x.parts[0].size == p.typ.size && x.parts[0].isGeneral()
}

// isGeneral reports whether x is in a general register.
func (x part) isGeneral() bool {
	return x.reg != "" && x.reg != "xmm" && x.reg != "st" && x.reg != constantPart && x.reg != staticPart && x.reg != threadPart && x.reg != computedPart && x.reg != entryPart
}
