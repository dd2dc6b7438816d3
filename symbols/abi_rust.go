package symbols

import (
	"cmp"
	"slices"
	"strings"

	"github.com/gokprobe/gokprobe/internal/host"
)

// scalar is a number or an address in a value.
type scalar struct {
	off, size, align   int64
	isFloat            bool
	hasSign, isAddress bool // the properties by which versions of rustc tell scalars of one size apart
}

// passing says as what rustc passes a value of a type: as up to two scalars, or as an aggregate. It is undecided if debug
// information does not tell.
type passing struct {
	scalars     []scalar
	isAggregate bool
	isUndecided bool
	// isWrapped says that the value is in a structure or union that may be repr(C), which debug information does not tell. If
	// it is, the value is an aggregate, and passed as an integer. For a lone integer of up to 8 bytes that is the same.
	isWrapped bool
}

var (
	inAggregate = passing{isAggregate: true}
	inDoubt     = passing{isUndecided: true}
)

// passing says as what rustc passes a value of type t. No document specifies this. It is what versions 1.63 to 1.97 have in common (rustc_abi,
// layout.rs, BackendRepr): a structure of one part is passed as that part, and one of two adjacent scalars as the two.
func (t *dtype) passing(depth int) passing {
	switch {
	case depth > deepest, t.kind == typeUnknown:
		return inDoubt
	case t.size == 0:
		return passing{}
	}
	switch t.kind {
	case typeStruct:
		return t.ofFields(depth)
	case typeUnion:
		return t.ofAlternatives(depth)
	case typeArray:
		return inAggregate
	case typeSum:
		return t.ofVariants(depth)
	case typeUnknown, typeVoid, typeFunc, typeVector, typeComplex:
		return inDoubt
	}
	address := t.kind == typePointer || t.kind == typeReference
	return passing{scalars: []scalar{{size: t.size, align: t.align, isFloat: t.kind == typeFloat, hasSign: t.isSigned(), isAddress: address}}}
}

// sized returns the fields whose size is not 0.
func sized(fields []dfield) (parts []dfield) {
	for _, f := range fields {
		if f.typ.size > 0 {
			parts = append(parts, f)
		}
	}
	return parts
}

// standardWrappers are structures and unions of Rust's library that have one part and are not repr(C). Debug information does
// not tell repr(C); it changes how a value is passed.
var standardWrappers = map[string]bool{
	"Arc": true, "Box": true, "Cap": true, "Cell": true, "ManuallyDrop": true, "MaybeDangling": true, "MaybeUninit": true, "Nanoseconds": true, "NonNull": true,
	"NonZero": true, "Pin": true, "Rc": true, "Saturating": true, "SyncUnsafeCell": true, "Unique": true, "UnsafeCell": true, "UsizeNoHighBit": true, "Wrapping": true,
}

func (t *dtype) isTransparent() bool {
	name, _, _ := strings.Cut(t.under, "<")
	return standardWrappers[name]
}

// asPassed is passing for a parameter or result of type t as a whole. It is undecided if repr(C) would make a difference.
func (t *dtype) asPassed() passing {
	p := t.passing(0)
	if p.isWrapped && t.size <= 16 && (len(p.scalars) != 1 || p.scalars[0].isFloat || t.size > 8) {
		return inDoubt
	}
	return p
}

// ofFields is passing for a structure. Its fields may be in any order in memory.
func (t *dtype) ofFields(depth int) passing {
	parts := sized(t.field)
	switch len(parts) {
	case 0:
		return inAggregate // it has a size, but no known fields
	case 1:
		f := parts[0]
		p := f.typ.passing(depth + 1)
		if !p.isUndecided && (f.off != 0 || f.typ.size != t.size || f.typ.align != t.align) {
			return inAggregate
		}
		p.isWrapped = p.isWrapped || len(p.scalars) == 1 && !t.isTransparent()
		return p
	case 2:
		return t.pair(parts, depth)
	}
	return inAggregate
}

func (t *dtype) pair(parts []dfield, depth int) passing {
	slices.SortFunc(parts, func(a, b dfield) int { return cmp.Compare(a.off, b.off) })
	both, whole := scalarsOf(parts, depth)
	if whole != nil {
		return *whole
	}
	return t.ofScalars(both)
}

// scalarsOf returns the scalars as which fields are passed, at their offsets. If a field is not passed as one scalar, whole is the
// passing of the type that contains the fields.
func scalarsOf(fields []dfield, depth int) (all []scalar, whole *passing) {
	for _, f := range fields {
		p := f.typ.passing(depth + 1)
		switch {
		case p.isAggregate, !p.isUndecided && len(p.scalars) != 1:
			return nil, &inAggregate
		case p.isUndecided, p.isWrapped:
			whole = &inDoubt // unless another one makes it an aggregate
		default:
			s := p.scalars[0]
			s.off += f.off
			all = append(all, s)
		}
	}
	return all, whole
}

// ofScalars is passing for a type t that contains two scalars.
func (t *dtype) ofScalars(both []scalar) passing {
	if !t.holdsPair(both) {
		return inAggregate
	}
	return passing{scalars: both}
}

// holdsPair reports whether t consists of two scalars alone, with the layout of a pair.
func (t *dtype) holdsPair(s []scalar) bool {
	align := max(s[0].align, s[1].align)
	return align > 0 && s[0].off == 0 && s[1].off == roundUp(s[0].size, s[1].align) && t.align == align && t.size == roundUp(s[1].off+s[1].size, align)
}

// ofAlternatives is passing for a union: that of its members, if it is the same for all that have a size.
func (t *dtype) ofAlternatives(depth int) passing {
	var all []passing
	for _, f := range sized(t.field) {
		all = append(all, f.typ.passing(depth+1))
	}
	if len(all) == 0 || t.align != sized(t.field)[0].typ.align && len(all) == 1 {
		return inDoubt
	}
	for _, p := range all {
		if p.isUndecided || p.isAggregate != all[0].isAggregate || !slices.Equal(p.scalars, all[0].scalars) {
			return inDoubt
		}
	}
	out := all[0]
	out.isWrapped = !out.isAggregate && !t.isTransparent()
	return out
}

// ofVariants is passing for an enumeration. If the discriminant has a place of its own, it is one scalar, and the data of all variants is the other.
// Else only one variant has data, and some values of this data stand for the other variants.
func (t *dtype) ofVariants(depth int) passing {
	var data []variant
	for _, v := range t.variants {
		if len(sized(v.typ.field)) > 0 {
			data = append(data, v)
		}
	}
	switch {
	case strings.HasPrefix(t.under, "{"): // the state of an async function or a coroutine
		return inAggregate
	case len(data) == 0 && (t.discr == nil || t.discr.off != 0 || t.discr.typ.size != t.size):
		return inAggregate // it is larger than its discriminant
	case len(data) == 0:
		return t.discr.typ.passing(depth + 1)
	case t.discr == nil && len(t.variants) == 1, len(data) == 1 && t.overlaps(t.discr):
		return (&dtype{size: t.size, align: t.align, field: data[0].typ.field}).ofFields(depth + 1)
	case t.discr == nil:
		return inDoubt
	case t.overlaps(t.discr):
		return inAggregate
	}
	return t.tagged(data, depth)
}

// tagged is passing for an enumeration whose discriminant has a place of its own.
func (t *dtype) tagged(data []variant, depth int) passing {
	var parts []dfield
	for _, v := range data {
		fields := sized(v.typ.field)
		if len(fields) > 1 {
			return inAggregate
		}
		f := fields[0]
		f.off += v.off
		parts = append(parts, f)
	}
	all, whole := scalarsOf(parts, depth)
	if whole != nil {
		return *whole
	}
	alike := true
	for _, s := range all {
		if s.off != all[0].off || s.size != all[0].size || s.isFloat != all[0].isFloat {
			return inAggregate
		}
		alike = alike && s == all[0]
	}
	tag := t.discr.typ.passing(depth + 1)
	if !alike || t.discr.off != 0 || len(tag.scalars) != 1 { // if scalars differ only in sign, or in being addresses, it depends on the version of rustc
		return inDoubt
	}
	return t.ofScalars([]scalar{tag.scalars[0], all[0]})
}

// overlaps reports whether the discriminant lies within the data of a variant.
func (t *dtype) overlaps(discr *dfield) bool {
	if discr == nil {
		return false
	}
	for _, v := range t.variants {
		for _, f := range sized(v.typ.field) {
			if at := v.off + f.off; discr.off < at+f.typ.size && at < discr.off+discr.typ.size {
				return true
			}
		}
	}
	return false
}

// rustPlaces assigns places to the parameters of a Rust function. A function with a linkage name of its own, which other
// languages can call, probably has C's convention, but debug information does not say so. Of such a function only parameters
// that have the same place in both conventions are known.
func (s *signature) rustPlaces(types []*dtype, result *dtype) []place {
	out := rustPlaces(types, result, s.unit.hasRustMemory)
	if !s.hasOwnName() {
		return out
	}
	for i, p := range sysvPlaces(types, result) {
		if !p.equals(out[i]) {
			out[i] = place{isUnknown: true}
		}
	}
	return out
}

// hasOwnName reports whether the source itself gives the function's linkage name (no_mangle, export_name).
func (s *signature) hasOwnName() bool { return s.linkage != "" && !isMangled(s.linkage) }

// rustPlaces assigns places as rustc does on x86-64: scalars in registers by their kinds, aggregates of up to 8 bytes as an
// integer, larger ones by address.
func rustPlaces(types []*dtype, result *dtype, memory bool) []place {
	a := &sysvArgs{stack: entryStack}
	lost := false // where registers are: a value that is not understood may take any
	if result != nil {
		p := result.asPassed()
		switch {
		case result.size > 16 && !p.isWide():
			a.ints = 1
		case p.isUndecided || p.isWide() && result.size > 16 || p.isAggregate && result.size > 8 && !memory:
			lost = true
		case p.isAggregate && result.size > 8:
			a.ints = 1
		}
	}
	out := make([]place, len(types))
	for i, t := range types {
		p := t.asPassed()
		lost = lost || p.isUndecided && t.size <= 16 || p.isWide() && (p.scalars[0].isFloat || !a.canHold128(t))
		switch {
		case lost:
			out[i] = place{isUnknown: true}
		case t.size == 0:
			out[i] = place{}
		case t.size > 16 || p.isAggregate && t.size > 8:
			out[i] = a.assign(8, 8, []class{classInteger})
			out[i].isIndirect = true
		case p.isAggregate:
			out[i] = a.assign(t.size, 8, []class{classInteger})
		default:
			out[i] = a.assignScalars(p.scalars)
		}
	}
	return out
}

// isWide reports whether t is a number of 128 bits.
func (p passing) isWide() bool {
	return slices.ContainsFunc(p.scalars, func(s scalar) bool { return s.size > 8 })
}

// canHold128 reports whether t is a number of 128 bits that fits in registers: versions differ in what else they do with one.
func (a *sysvArgs) canHold128(t *dtype) bool { return t.size == 16 && a.ints+2 <= len(host.C.Args) }

func (a *sysvArgs) assignScalars(scalars []scalar) place {
	var p place
	for _, s := range scalars {
		c := classInteger
		if s.isFloat {
			c = classSSE
		}
		classes := []class{c}
		if s.size > 8 {
			classes = []class{c, c}
		}
		q := a.assign(s.size, s.align, classes)
		for _, x := range q.parts {
			x.off += s.off
			p.parts = append(p.parts, x)
		}
	}
	return p
}

// rustResult places the result of a Rust function, see rustPlaces.
func (s *signature) rustResult(t *dtype) place {
	out := rustResult(t, s.unit.hasRustMemory)
	if s.hasOwnName() && !out.equals(sysvResult(t)) {
		return place{isUnknown: true}
	}
	return out
}

func rustResult(t *dtype, memory bool) place {
	p := t.asPassed()
	switch {
	case p.isWide() && (t.size > 16 || p.scalars[0].isFloat):
		return place{isUnknown: true}
	case t.size > 16, p.isAggregate && t.size > 8 && memory:
		return inMemory()
	case p.isUndecided || p.isAggregate && t.size > 8:
		return place{isUnknown: true}
	case p.isAggregate:
		return inRegisters(t.size, []class{classInteger}, host.C.Results, 0, 0)
	}
	var out place
	ints, floats := 0, 0
	for _, l := range p.scalars {
		for off := int64(0); off < l.size; off += 8 {
			x := part{off: l.off + off, size: min(8, l.size-off), reg: "xmm", n: floats}
			if l.isFloat {
				floats++
			} else {
				x.reg, x.n = host.C.Results[ints], 0
				ints++
			}
			out.parts = append(out.parts, x)
		}
	}
	return out
}
