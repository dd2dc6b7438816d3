package symbols

import (
	"debug/dwarf"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/gokprobe/gokprobe/arch"
)

// Prototype reads a function's arguments as values of Go types.
type Prototype struct {
	params []Param
	types  []reflect.Type
	decode []decoder
	stack  int64 // where the stack arguments end: distance from the stack pointer
}

// Prototype pairs the parameters of the function at a, in order, with the Go types as which
// its arguments shall be read. Debug information tells the places of parameters in any
// language. A type that does not fit is an error that names the parameter. Without debug
// information the types are taken for those of a C function.
//
// The Go type must have the kind and size of the parameter:
//
//   - an integer of either sign for integers, enumerations and characters
//   - arch.Addr, or another 8-byte integer, for pointers and references
//   - bool, floating-point and complex types for their like
//   - string for char * and for Go's strings
//   - a structure with fitting fields for a structure
//   - a type that fits one of the members for a union
//   - [N]byte for any value of N bytes, also if Go has no such type (long double, __int128,
//     bit fields). Without debug information this is an array, which C does not pass.
func (t *Table) Prototype(a arch.Addr, types []reflect.Type) (*Prototype, error) {
	params, err := t.Params(a)
	if err != nil {
		return cPrototype(types)
	}
	loc, _ := t.Lookup(a)
	p, err := newPrototype(params, types)
	if err != nil {
		return nil, fmt.Errorf("%s(%s): %w", loc.Symbol.Name, declared(params), err)
	}
	return p, nil
}

// declared is a parameter list as in the source.
func declared(params []Param) string {
	var out []string
	for _, p := range params {
		out = append(out, strings.TrimSpace(p.Type+" "+p.Name))
	}
	return strings.Join(out, ", ")
}

// cPrototype is the prototype of a C function without debug information.
func cPrototype(types []reflect.Type) (*Prototype, error) {
	params := make([]Param, len(types))
	list := make([]*dtype, len(types))
	for i, g := range types {
		t, err := cType(g)
		if err == nil && t.kind == typeArray {
			err = fmt.Errorf("arrays are not passed in C: %s may be a structure's field only", g)
		}
		if err != nil {
			return nil, fmt.Errorf("parameter %d: %w", i+1, err)
		}
		list[i] = t
		params[i] = Param{Type: t.name, typ: t}
	}
	for i, at := range sysvPlaces(list, nil) {
		params[i].place = at
	}
	return newPrototype(params, types)
}

func newPrototype(params []Param, types []reflect.Type) (*Prototype, error) {
	if len(params) != len(types) {
		return nil, fmt.Errorf("the number of its parameters is %d, not %d", len(params), len(types))
	}
	p := &Prototype{params: params, types: types, decode: make([]decoder, len(types))}
	for i, x := range params {
		var err error
		if p.decode[i], err = decoderOf(x.typ, types[i]); err == nil && !x.place.isKnown(x.typ) {
			err = errNoPlace
		}
		if err != nil {
			return nil, fmt.Errorf("parameter %d: %w", i+1, err)
		}
		for _, at := range x.place.parts {
			if at.reg == "" {
				p.stack = max(p.stack, at.stack+at.size)
			}
		}
	}
	return p, nil
}

// Arguments reads the arguments at the function's first instruction: r's stack pointer
// must still point at the return address. r may also be a FloatRegs. It fails if a register or
// the stack can't be read. If the memory of a string can't be read, the string is cut there.
func (p *Prototype) Arguments(r arch.Regs, m arch.Memory) ([]reflect.Value, error) {
	stack := window{Memory: m, at: r.SP()}
	if p.stack > 0 {
		stack.bytes = make([]byte, p.stack)
		if err := m.ReadMemory(stack.at, stack.bytes); err != nil {
			return nil, fmt.Errorf("stack arguments: %w", err)
		}
	}
	args := make([]reflect.Value, len(p.params))
	for i, x := range p.params {
		raw, err := x.place.read(x.typ, r, stack)
		if err != nil {
			return nil, fmt.Errorf("parameter %d: %w", i+1, err)
		}
		v := reflect.New(p.types[i]).Elem()
		p.decode[i](v, raw, m)
		args[i] = v
	}
	return args, nil
}

// window is a memory that keeps bytes that were read from at.
type window struct {
	arch.Memory
	at    arch.Addr
	bytes []byte
}

func (w window) ReadMemory(at arch.Addr, p []byte) error {
	if size := uint64(len(w.bytes)); uint64(at-w.at) < size && uint64(len(p)) <= size-uint64(at-w.at) {
		copy(p, w.bytes[at-w.at:])
		return nil
	}
	return w.Memory.ReadMemory(at, p)
}

// isAssembly reports whether u's functions were written in assembly language: the assembler
// describes them as if they had no parameters.
func (u *unit) isAssembly() bool {
	const mipsAssembler, assembly = 0x8001, 0x31 // DW_LANG_…, for all processors
	lang, _ := u.entry.Val(dwarf.AttrLanguage).(int64)
	return lang == mipsAssembler || lang == assembly
}

var (
	addrType = reflect.TypeFor[arch.Addr]()
	byteType = reflect.TypeFor[byte]()
)

var errNoCType = errors.New("is no type of C's")

// cType is the C type that g stands for, with the layout of the System V ABI.
func cType(g reflect.Type) (*dtype, error) {
	t := &dtype{name: g.String(), size: int64(g.Size()), align: int64(g.Align())}
	switch g.Kind() {
	case reflect.Bool:
		t.kind = typeBool
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		t.kind = typeInt
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		t.kind = typeUint
	case reflect.Float32, reflect.Float64:
		t.kind = typeFloat
	case reflect.Complex64, reflect.Complex128:
		t.kind = typeComplex
	case reflect.String:
		t.kind, t.size = typePointer, 8
		t.elem = &dtype{kind: typeChar, name: "char", size: 1, align: 1}
	case reflect.Array:
		elem, err := cType(g.Elem())
		if err != nil {
			return nil, err
		}
		t.kind, t.elem, t.count, t.size = typeArray, elem, int64(g.Len()), int64(g.Len())*elem.size
	case reflect.Struct:
		return cStruct(g)
	case reflect.Pointer, reflect.UnsafePointer:
		return nil, fmt.Errorf("%s would be an address of this process: take an %s", g, addrType)
	default:
		return nil, fmt.Errorf("%s %w", g, errNoCType)
	}
	return t, nil
}

// cStruct lays the fields out as a C compiler does, which is not always as Go's does:
// strings are pointers, and a last field of no size takes no room.
func cStruct(g reflect.Type) (*dtype, error) {
	t := &dtype{kind: typeStruct, name: g.String(), align: 1}
	for i := range g.NumField() {
		f := g.Field(i)
		ft, err := cType(f.Type)
		if err != nil {
			return nil, fmt.Errorf("field %s: %w", f.Name, err)
		}
		off := roundUp(t.size, ft.align)
		t.field = append(t.field, dfield{name: f.Name, off: off, typ: ft})
		t.size, t.align = off+ft.size, max(t.align, ft.align)
	}
	t.size = roundUp(t.size, t.align)
	return t, nil
}
