package symbols

import (
	"debug/dwarf"
	"strings"
)

// typeKind sorts types by how their values are passed and printed.
type typeKind uint8

const (
	typeUnknown typeKind = iota
	typeVoid
	typeInt
	typeUint
	typeBool
	typeChar // a character, signed or not
	typeFloat
	typeComplex
	typeEnum
	typePointer
	typeReference
	typeStruct
	typeUnion
	typeArray
	typeVector // of up to 16 bytes
	typeFunc   // only behind a pointer, except in Go
	typeGoString
	typeGoSlice
	typeGoInterface
	typeGoPointer // map, chan, func: one word
	typeSum       // Rust's enumeration with data
)

// dtype is a type as debug information describes it. debug/dwarf's own types
// lack references, base classes and how C++ passes a class.
type dtype struct {
	kind    typeKind
	name    string
	under   string // the name behind typedefs and qualifiers
	size    int64
	align   int64 // System V ABI alignment
	elem    *dtype
	count   int64   // elements of an array
	dims    []int64 // of an array of arrays: how many each has
	lows    []int64 // and the index of the first of each
	enum    map[int64]string
	field   []dfield
	isByRef bool // C++: never passed in registers, a copy's address is
	// variants are those of a Rust enumeration, as fields: their types are structures as large as it. Which one a value is, the
	// field discr tells; there is none if no value can be another variant.
	variants []variant
	discr    *dfield
	params   []*dtype // the types that a library's type was made for, if printers want them; also those of a Go map's keys and values
	// hasLength says of a Go map or channel that what it leads to begins with its length: runtime.hmap and internal/runtime/maps.Map, runtime.hchan.
	hasLength bool
	// isUnsigned says that a character or an enumeration has no sign.
	isUnsigned bool
	// isCut says of an array that it is some bytes of a text, which no zero need end.
	isCut bool

	weight int // see parts
}

// mostParams is how many of the types are kept that a type was made for.
const mostParams = 64

type variant struct {
	dfield
	value  int64 // of the discriminant
	isRest bool  // the variant for all other values
}

type dfield struct {
	name   string
	off    int64
	typ    *dtype
	bits   bool  // a bit field: off and typ are those of its storage
	bit    int64 // of a bit field: where it begins, in bits of the structure
	wide   int64 // of a bit field: bits
	isBase bool  // a C++ base class
}

const attrSignature = dwarf.Attr(0x69) // DW_AT_signature

// DW_AT_endianity, and its DW_END_big.
const (
	attrEndianity = dwarf.Attr(0x65)
	bigEndian     = 1
)

// ref follows e's DW_AT_type; without one the type is void.
func (r *typeReader) ref(e *dwarf.Entry) *dtype {
	switch off := e.Val(dwarf.AttrType).(type) {
	case dwarf.Offset:
		return r.at(off)
	case nil:
		return &dtype{kind: typeVoid, name: "void", align: 1}
	}
	return lostType("?") // the signature of a type in another section
}

// lostType is a type that is not understood, not even how large it is.
func lostType(name string) *dtype {
	return &dtype{kind: typeUnknown, name: name, under: name, align: 1}
}

// fillSigned fills t from the type that it stands for, if that was found.
func (r *typeReader) fillSigned(t *dtype, at any) {
	off, ok := at.(dwarf.Offset)
	if !ok {
		return
	}
	rd := r.d.entriesAt(off)
	if e := rd.next(); e != nil && e.AttrField(attrSignature) == nil {
		r.fill(t, e, rd)
	}
}

func (r *typeReader) fill(t *dtype, e *dwarf.Entry, rd *dies) {
	if name, ok := e.Val(dwarf.AttrName).(string); ok {
		t.name, t.under = name, name
	}
	t.size, _ = e.Val(dwarf.AttrByteSize).(int64)
	if f := e.AttrField(attrSignature); f != nil { // it is described in a unit of its own
		r.fillSigned(t, f.Val)
		return
	}
	switch e.Tag {
	case dwarf.TagBaseType:
		enc, _ := e.Val(dwarf.AttrEncoding).(int64)
		if t.kind = baseKind(enc); t.kind == typeComplex {
			t.align = t.size / 2
		}
		t.isUnsigned = enc == 0x08 || enc == 0x10 // DW_ATE_unsigned_char, DW_ATE_UTF
		if end, _ := e.Val(attrEndianity).(int64); end == bigEndian {
			t.kind = typeUnknown
		}
	case dwarf.TagPointerType:
		r.fillPointer(t, e, typePointer, " *")
	case dwarf.TagReferenceType:
		r.fillPointer(t, e, typeReference, " &")
	case dwarf.TagRvalueReferenceType:
		r.fillPointer(t, e, typeReference, " &&")
	case dwarf.TagPtrToMemberType: // a function's has two words, a field's one
		t.kind, t.size = typeInt, 8
		if r.ref(e).kind == typeFunc {
			t.kind, t.size, t.align = typeUnknown, 16, 8
		}
	case dwarf.TagTypedef, dwarf.TagConstType, dwarf.TagVolatileType, dwarf.TagRestrictType, dwarf.TagAtomicType:
		r.fillAlias(t, e)
		return
	case dwarf.TagEnumerationType:
		r.fillEnum(t, e, rd)
	case dwarf.TagStructType, dwarf.TagClassType, dwarf.TagUnionType:
		r.fillStruct(t, e, rd)
	case dwarf.TagArrayType:
		r.fillArray(t, e, rd)
	case dwarf.TagSubroutineType:
		t.kind = typeFunc
	case dwarf.TagUnspecifiedType: // decltype(nullptr)
		t.kind, t.size = typePointer, 8
		t.elem = &dtype{kind: typeVoid, name: "void"}
	}
	r.fillGo(t, e)
}

// baseKind translates DW_ATE_… (DWARF 5 §7.8).
func baseKind(enc int64) typeKind {
	switch enc {
	case 0x02:
		return typeBool
	case 0x03:
		return typeComplex
	case 0x04:
		return typeFloat
	case 0x05:
		return typeInt
	case 0x06, 0x08, 0x10:
		return typeChar
	case 0x01, 0x07:
		return typeUint
	}
	return typeUnknown
}

func (r *typeReader) fillPointer(t *dtype, e *dwarf.Entry, k typeKind, suffix string) {
	t.kind, t.size = k, 8
	t.elem = r.ref(e)
	if e.AttrField(dwarf.AttrName) == nil {
		t.name = strings.TrimSuffix(t.elem.name+suffix, " ")
		t.name = strings.ReplaceAll(t.name, "* *", "**")
		if t.elem.kind == typeFunc {
			t.name = "function *"
		}
	}
}

func (r *typeReader) fillAlias(t *dtype, e *dwarf.Entry) {
	a := alias{r, t, r.ref(e), e}
	a.copyTarget()
	r.aliases = append(r.aliases, a)
}

// copyTarget gives an alias the properties of its target.
func (a alias) copyTarget() {
	t := a.t
	*t = *a.target
	switch a.entry.Tag {
	case dwarf.TagTypedef:
		// A type of a generic Go function is called .param0, for its place in a dictionary.
		if name, _ := a.entry.Val(dwarf.AttrName).(string); a.r.lang != langGo || !strings.HasPrefix(name, ".param") {
			t.name = name
		}
	case dwarf.TagConstType:
		if t.kind == typePointer {
			t.name += " const"
		} else {
			t.name = "const " + t.name
		}
	case dwarf.TagVolatileType:
		t.name = "volatile " + t.name
	}
	a.r.fillGo(t, a.entry)
}

func (r *typeReader) fillEnum(t *dtype, e *dwarf.Entry, rd *dies) {
	t.kind, t.enum = typeEnum, map[int64]string{}
	under := r.ref(e)
	if t.size == 0 {
		t.size = under.size
	}
	t.isUnsigned = under.kind == typeUint || under.kind == typeBool || under.kind == typeChar && under.isUnsigned
	rd.children(e, func(c *dwarf.Entry) {
		if c.Tag == dwarf.TagEnumerator {
			if v, ok := c.Val(dwarf.AttrConstValue).(int64); ok {
				t.enum[v], _ = c.Val(dwarf.AttrName).(string)
			}
		}
	})
}

// fillStruct reads members and base classes.
func (r *typeReader) fillStruct(t *dtype, e *dwarf.Entry, rd *dies) {
	if declared, _ := e.Val(dwarf.AttrDeclaration).(bool); declared {
		return // its members are described elsewhere, if at all
	}
	t.kind = typeStruct
	if e.Tag == dwarf.TagUnionType {
		t.kind = typeUnion
	}
	const byReference = 4 // DW_CC_pass_by_reference
	cc, known := e.Val(dwarf.AttrCalling).(int64)
	class := cxxClass{r: r, entry: e}
	var members, parts []*dwarf.Entry
	rd.children(e, func(c *dwarf.Entry) {
		switch c.Tag {
		case dwarf.TagMember, dwarf.TagInheritance:
			if ext, _ := c.Val(dwarf.AttrExternal).(bool); !ext { // not a static one
				members = append(members, c)
			}
		case dwarf.TagSubprogram:
			class.member(c)
		case dwarf.TagTemplateTypeParameter, tagParameterPack:
			if printers[printerKey{r.lang, t.stem()}].wantsParams {
				if t.params = append(t.params, r.templateTypes(c)...); len(t.params) > mostParams {
					t.params = t.params[:mostParams]
				}
			}
		case dwarf.TagVariantPart: // Rust enumeration
			parts = append(parts, c)
		}
	})
	t.isByRef = known && cc == byReference || !known && r.lang == langC && class.isByReference()
	for _, c := range members {
		f := r.member(c)
		virtual, _ := c.Val(dwarf.AttrVirtuality).(int64)
		t.isByRef = t.isByRef || !known && (f.typ.isByRef || virtual != 0)
		t.field = append(t.field, f)
	}
	if t.kind == typeUnion && len(t.field) == 0 && t.size > 1 && r.lang == langC {
		t.fillTransparent()
		return
	}
	t.align = t.alignment(e, members)
	switch {
	case len(parts) == 1 && len(t.field) == 0:
		r.fillSum(t, parts[0])
	case len(parts) > 0:
		t.kind = typeUnknown
	}
}

// fillSum reads the variants of a Rust enumeration. If one can't be read, the type is unknown.
func (r *typeReader) fillSum(t *dtype, part *dwarf.Entry) {
	t.kind = typeUnknown
	discr, told := part.Val(dwarf.AttrDiscr).(dwarf.Offset)
	rd := r.d.entriesAt(part.Offset)
	if rd.next() == nil {
		return
	}
	whole := true
	rd.children(part, func(c *dwarf.Entry) {
		switch {
		case c.Tag == dwarf.TagMember && told && c.Offset == discr:
			f := r.member(c)
			t.discr = &f
		case c.Tag == dwarf.TagVariant:
			v, ok := r.variant(c)
			whole = whole && ok
			t.variants = append(t.variants, v)
		}
	})
	if !whole || rd.err != nil || len(t.variants) == 0 || told && (t.discr == nil || !t.discr.typ.mayBeDiscriminant()) {
		t.variants, t.discr = nil, nil
		return
	}
	t.kind = typeSum
}

// variant reads the variant c, which has one member.
func (r *typeReader) variant(c *dwarf.Entry) (v variant, ok bool) {
	v.value, ok = c.Val(dwarf.AttrDiscrValue).(int64)
	v.isRest = !ok
	rd := r.d.entriesAt(c.Offset)
	if rd.next() == nil {
		return v, false
	}
	rd.children(c, func(m *dwarf.Entry) {
		if m.Tag == dwarf.TagMember {
			v.dfield = r.member(m)
		}
	})
	return v, rd.err == nil && v.typ != nil
}

// mayBeDiscriminant reports whether the discriminant of an enumeration may have type t.
func (t *dtype) mayBeDiscriminant() bool {
	switch t.kind {
	case typeInt, typeUint, typeBool, typeChar, typeEnum, typePointer, typeReference:
		return t.size > 0 && t.size <= 8
	}
	return false
}

func (r *typeReader) member(c *dwarf.Entry) dfield {
	f := dfield{typ: r.ref(c), isBase: c.Tag == dwarf.TagInheritance}
	f.name, _ = c.Val(dwarf.AttrName).(string)
	if off, ok := offsetOf(c); ok {
		f.off = off
	} else {
		f.typ = lostType(f.typ.name)
	}
	f.readBits(c)
	return f
}

// offsetOf is the distance of a member from the beginning. ok is false if that is another one in each value: a virtual base class is found by the object's table.
func offsetOf(c *dwarf.Entry) (off int64, ok bool) {
	const plusUconst = 0x23 // DWARF 2 knows expressions alone
	switch loc := c.Val(dwarf.AttrDataMemberLoc).(type) {
	case nil:
		return 0, true
	case int64:
		return loc, true
	case []byte:
		if len(loc) > 1 && loc[0] == plusUconst {
			x := &lineCursor{b: loc[1:]}
			off = int64(x.uleb())
			return off, !x.isBad && len(x.b) == 0
		}
	}
	return 0, false
}

// readBits reads the extent of a bit field, in the form of DWARF 4 or in the older form, which counts from the highest
// bit of the storage.
func (f *dfield) readBits(c *dwarf.Entry) {
	f.wide, f.bits = c.Val(dwarf.AttrBitSize).(int64)
	if !f.bits {
		return
	}
	if bit, ok := c.Val(dwarf.AttrDataBitOffset).(int64); ok {
		f.off, f.bit = bit/8, bit
		return
	}
	storage, ok := c.Val(dwarf.AttrByteSize).(int64)
	if !ok {
		storage = f.typ.size
	}
	high, _ := c.Val(dwarf.AttrBitOffset).(int64)
	f.bit = 8*(f.off+storage) - high - f.wide
}

// fillTransparent makes t what a transparent union is passed as: its members, which GCC
// does not describe, are pointers or integers (the address of glibc's connect).
func (t *dtype) fillTransparent() {
	t.kind, t.align = typeUint, t.size
	if t.size == 8 {
		t.kind, t.elem = typePointer, &dtype{kind: typeVoid, name: "void"}
	}
}

// alignment is the alignment of the structure e with the given members. It is the one that the
// source demands, else the largest of the members' alignments. Debug information does not say
// that a structure is packed; its layout tells, and then the alignment is 1.
func (t *dtype) alignment(e *dwarf.Entry, members []*dwarf.Entry) int64 {
	const most = 1 << 28 // the compiler's; damaged debug information may have more
	align, packed := int64(1), false
	for i, f := range t.field {
		align = max(align, f.typ.align)
		packed = packed || !f.bits && f.typ.align > 0 && f.off%f.typ.align != 0
		if demanded, ok := members[i].Val(dwarf.AttrAlignment).(int64); ok {
			align = max(align, min(demanded, most))
		}
	}
	if packed || t.size%align != 0 {
		align = 1
	}
	if demanded, ok := e.Val(dwarf.AttrAlignment).(int64); ok && demanded > 0 {
		align = min(demanded, most)
	}
	return align
}
