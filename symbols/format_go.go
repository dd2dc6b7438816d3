package symbols

import (
	"encoding/binary"
	"strings"
	"unicode/utf8"

	"github.com/gokprobe/gokprobe/arch"
)

// An abi.Type, and where it has its kind.
const (
	descriptorSize  = 48
	descriptorKind  = 23
	descriptorKinds = 31
)

// rtype holds the fields that are read from a type descriptor (src/internal/abi/type.go).
type rtype struct {
	name string
	kind byte // reflect.Kind
}

// goInterface prints an interface value as a conversion: the dynamic type, and the
// value if that is a number or text, else its address.
func (f *formatter) goInterface(tab, data uint64) Value {
	if tab == 0 {
		return Value{Text: "nil", JSON: nil}
	}
	typ, ok := f.dynamicType(tab)
	if !ok {
		typ.name = "interface"
	}
	v := f.boxed(typ, data)
	if v.Err != nil || v.Text == "" {
		v = hexValue(data)
	}
	name := typ.name
	if strings.HasPrefix(name, "*") {
		name = "(" + name + ")"
	}
	s := name + "(" + v.Text + ")"
	return Value{Text: s, JSON: s}
}

// boxed is the value that an interface's second word points to, empty if it is not
// printed.
func (f *formatter) boxed(typ rtype, data uint64) Value {
	switch typ.name {
	case "*errors.errorString", "*fmt.wrapError", "*fmt.wrapErrors": // their first field is the text
		return f.boxedString(data)
	}
	const kBool, kInt, kUint, kUintptr, kFloat32, kFloat64, kString = 1, 2, 7, 12, 13, 14, 24
	sizes := [...]int64{8, 1, 2, 4, 8} // int, int8, int16, int32, int64, and the same unsigned
	t := &dtype{}
	switch k := typ.kind; {
	case k == kString:
		return f.boxedString(data)
	case k == kBool:
		t.kind, t.size = typeBool, 1
	case k >= kInt && k < kUint:
		t.kind, t.size = typeInt, sizes[k-kInt]
	case k >= kUint && k < kUintptr:
		t.kind, t.size = typeUint, sizes[k-kUint]
	case k == kUintptr:
		t.kind, t.size = typeUint, 8
	case k == kFloat32, k == kFloat64:
		t.kind, t.size = typeFloat, 4*int64(k-kFloat32+1)
	default:
		return Value{}
	}
	raw := make([]byte, t.size)
	if err := f.mem.ReadMemory(arch.Addr(data), raw); err != nil {
		return unknown(err)
	}
	return f.scalar(t, raw)
}

func (f *formatter) boxedString(at uint64) Value {
	var head [16]byte
	if err := f.mem.ReadMemory(arch.Addr(at), head[:]); err != nil {
		return unknown(err)
	}
	return f.text(arch.Addr(uintOf(head[:8])), uintOf(head[8:]))
}

// dynamicType reads the type behind an interface's first word, which is an
// abi.Type or, for an interface with methods, an abi.ITab that holds one
// (src/internal/abi/type.go, iface.go).
func (f *formatter) dynamicType(tab uint64) (rtype, bool) {
	if f.mod == nil {
		return rtype{}, false
	}
	lo, hi, ok := f.mod.goTypes(f.mem)
	if !ok {
		return rtype{}, false
	}
	for _, at := range []uint64{tab, tab + 8} {
		typ := at
		if at != tab {
			b := f.prefix(arch.Addr(at), 8)
			if len(b) < 8 {
				return rtype{}, false
			}
			typ = binary.LittleEndian.Uint64(b)
		}
		if typ < lo || typ >= hi {
			continue
		}
		if t, ok := f.readType(typ, lo, hi); ok {
			return t, true
		}
	}
	return rtype{}, false
}

// readType reads the abi.Type at typ; names are offsets from lo.
func (f *formatter) readType(typ, lo, hi uint64) (rtype, bool) {
	const tflagAt, strAt = 20, 40
	const extraStar = 2
	b := f.prefix(arch.Addr(typ), descriptorSize)
	if len(b) < descriptorSize {
		return rtype{}, false
	}
	at := lo + uint64(binary.LittleEndian.Uint32(b[strAt:]))
	if at >= hi {
		return rtype{}, false
	}
	nb := f.prefix(arch.Addr(at), 256) // flag byte, length varint, text
	if len(nb) < 2 {
		return rtype{}, false
	}
	n, used := binary.Uvarint(nb[1:])
	if used <= 0 || n == 0 || 1+used+int(min(n, 256)) > len(nb) {
		return rtype{}, false
	}
	name := string(nb[1+used : 1+used+int(n)])
	if b[tflagAt]&extraStar != 0 {
		name = strings.TrimPrefix(name, "*")
	}
	return rtype{name, b[descriptorKind] & descriptorKinds}, utf8.ValidString(name)
}

// goTypes is the address range of a Go program's type descriptors:
// moduledata.types and etypes (Go 1.20 and later).
func (m *Module) goTypes(mem arch.Memory) (lo, hi uint64, ok bool) {
	md := m.img.moduledata()
	if md == 0 {
		return 0, 0, false
	}
	const typesAt = 296
	var b [16]byte
	if mem.ReadMemory(m.addr(md+typesAt), b[:]) != nil {
		return 0, 0, false
	}
	lo, hi = binary.LittleEndian.Uint64(b[:]), binary.LittleEndian.Uint64(b[8:])
	return lo, hi, lo < hi && hi-lo < 1<<32
}
