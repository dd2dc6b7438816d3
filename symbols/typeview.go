package symbols

import "reflect"

// Type is a type of the target's, as debug information describes it. The zero value is a
// type that is not known.
type Type struct {
	t    *dtype
	lang language
}

// Field is a member of a structure.
type Field struct {
	Name   string
	Offset int64 // in bytes
	Type   Type
}

// TypeOf is p's type.
func (p Param) TypeOf() Type { return Type{p.typ, p.lang} }

// Name is the type as its source language writes it.
func (t Type) Name() string {
	if t.t == nil {
		return "?"
	}
	return t.t.name
}

// Size is the number of bytes that a value has.
func (t Type) Size() int64 {
	if t.t == nil {
		return 0
	}
	return t.t.size
}

// Go reports whether it is a type of the Go language.
func (t Type) Go() bool { return t.lang == langGo }

// Kind is the kind of the most similar Go type. Integers, enumerations and characters are an
// Int or a Uint, of any size. Floating-point numbers are a Float64, complex ones a Complex128.
// References are a Pointer. Go's maps, channels and functions are an UnsafePointer. Unions, and
// types that are not understood, are Invalid.
func (t Type) Kind() reflect.Kind {
	if t.t == nil {
		return reflect.Invalid
	}
	switch t.t.kind {
	case typeChar, typeEnum:
		if t.t.isSigned() {
			return reflect.Int
		}
		return reflect.Uint
	case typeFloat:
		if t.t.size > 8 {
			return reflect.Invalid
		}
	}
	return kinds[t.t.kind]
}

var kinds = map[typeKind]reflect.Kind{
	typeInt: reflect.Int, typeUint: reflect.Uint, typeBool: reflect.Bool,
	typeFloat: reflect.Float64, typeComplex: reflect.Complex128,
	typePointer: reflect.Pointer, typeReference: reflect.Pointer, typeGoPointer: reflect.UnsafePointer,
	typeStruct: reflect.Struct, typeArray: reflect.Array,
	typeGoString: reflect.String, typeGoSlice: reflect.Slice, typeGoInterface: reflect.Interface,
}

// Elem is what a pointer, an array or a slice holds; the zero Type if it is none, or that is
// not known.
func (t Type) Elem() Type {
	if t.t == nil || t.t.elem == nil {
		return Type{}
	}
	return Type{t.t.elem, t.lang}
}

// Enumerator is the value of an enumeration's member.
func (t Type) Enumerator(name string) (v int64, ok bool) {
	if t.t == nil {
		return 0, false
	}
	for v, n := range t.t.enum {
		if n == name {
			return v, true
		}
	}
	return 0, false
}

// Fields are a structure's members, base classes among them; bit fields are left out.
func (t Type) Fields() []Field {
	if t.t == nil || t.t.kind != typeStruct {
		return nil
	}
	var out []Field
	for _, f := range t.t.field {
		if !f.bits {
			out = append(out, Field{f.name, f.off, Type{f.typ, t.lang}})
		}
	}
	return out
}

// Direct reports whether a Go interface holds a value of t directly, not its address
// (abi.TFlagDirectIface). This is so for pointers, maps, channels and functions, and for
// structures and arrays that consist of a single one.
func (t Type) Direct() bool {
	for depth := 0; depth < deepest && t.t != nil; depth++ {
		switch t.t.kind {
		case typePointer, typeGoPointer:
			return true
		case typeStruct:
			if len(t.t.field) != 1 {
				return false
			}
			t.t = t.t.field[0].typ
		case typeArray:
			if t.t.count != 1 {
				return false
			}
			t.t = t.t.elem
		default:
			return false
		}
	}
	return false
}
