package symbols

import (
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/host"
)

// StepKind says what a Step does.
type StepKind uint8

// The kinds of steps.
const (
	StepMember  StepKind = iota // a Member of a structure, or of the one that a pointer leads to
	StepDot                     // a Member of a structure alone
	StepArrow                   // a Member of what a pointer leads to
	StepElement                 // number Index of an array, of a slice, or from where a pointer leads to
	StepTarget                  // what a pointer leads to
	StepAddress                 // the address
	StepLength                  // how many elements there are, of a text how many bytes
	StepRange                   // the elements from number Index on, up to but not including number End
	StepCast                    // the same address, as a pointer to the type that is called Member; or with Index more *
	StepKey                     // the value of a Go map under Key
	StepAssert                  // what a Go interface holds, if that is of the type called Member
)

// Step leads from a value to another one.
type Step struct {
	Kind   StepKind
	Member string
	Index  int64
	End    int64
	// IndexOf and EndOf, unless they are nil, stand in the place of Index and End.
	IndexOf, EndOf *Sum
	Key            any // of a StepKey: a string, bool, int64, uint64 or float64

	meant *goMeaning // the type of a StepCast or StepAssert, if that was found already
}

// Why a step leads nowhere, or a value is at no such place.
var (
	ErrNoMember     = errors.New("no member of that name")
	ErrNotPointer   = errors.New("not a pointer to a structure")
	ErrNoElement    = errors.New("it has no such element")
	ErrNoLength     = errors.New("it has no length")
	ErrNoAddress    = errors.New("it has no address")
	ErrNoType       = errors.New("no type of that name")
	ErrNotInterface = errors.New("it is no Go interface")
	ErrKey          = errors.New("its keys are not of this kind")
	ErrNoPlace      = errors.New("not in a general register or in memory")
)

// StepError tells which step of a path leads nowhere, and why.
type StepError struct {
	Step  int // from 0
	Err   error
	Known []string // the members that there are, of ErrNoMember
}

// Error implements error.
func (e *StepError) Error() string { return fmt.Sprintf("step %d: %v", e.Step+1, e.Err) }

// Unwrap makes the error match Err.
func (e *StepError) Unwrap() error { return e.Err }

// At is the value that a path leads to from p, at the same hits. Members of anonymous structures and of base classes are found as in the source. Where an index
// is not below the length, as far as that is known, the value is unknown. Path is what the value is called. The error is a *StepError, which matches one of
// ErrNoMember to ErrNoPlace. Steps behind a Go interface are gone at each hit, by the type that it holds then.
func (p Param) At(name string, path ...Step) (Param, error) {
	if i := slices.IndexFunc(path, Step.isLate); i >= 0 || p.late != nil {
		return p.lateAt(name, path)
	}
	w := &way{Param: p}
	w.place.parts = slices.Clone(p.place.parts)
	for i, s := range path {
		if w.isDynamic(s) {
			if failed, err := w.beDynamic(path[i:]); err != nil {
				return Param{}, &StepError{i + failed, err, nil}
			}
			break
		}
		if err := w.step(s); err != nil {
			return Param{}, &StepError{i, err, w.known}
		}
	}
	w.Name, w.Type = name, w.typ.name
	return w.Param, nil
}

// Shown is p as it can be printed: a C array whose end is not told is the text there, or unknown.
func (p Param) Shown() Param {
	if p.late != nil || p.dynamic != nil || p.lang != langC || p.typ.kind != typeArray || p.typ.count != 0 || p.field != nil {
		return p
	}
	w := &way{Param: p}
	if p.typ.elem == nil || len(p.typ.dims) > 1 || !p.typ.elem.isText() || w.address() != nil {
		p.place.isUnknown = true
		return p
	}
	w.typ = &dtype{kind: typePointer, name: p.typ.name, size: 8, align: 8, elem: p.typ.elem}
	return w.Param
}

// Alike reports whether p and o are at the same place, and print alike. What is looked for at each hit is at no such place.
func (p Param) Alike(o Param) bool {
	return !p.isSought() && !o.isSought() && p.Name == o.Name && p.typ.name == o.typ.name && p.typ.size == o.typ.size && reflect.DeepEqual(p.place, o.place) && reflect.DeepEqual(p.field, o.field)
}

// IsReference reports whether p is a reference of C++'s, which stands for what it refers to.
func (p Param) IsReference() bool { return p.typ.kind == typeReference }

// way is a value on the way to another one.
type way struct {
	Param
	known []string // the members that there are, where one was not found
}

func (w *way) step(s Step) error {
	switch {
	case w.field != nil, w.place.number != nil:
		return ErrNotPointer // a bit field or a number leads nowhere
	}
	switch s.Kind {
	case StepElement:
		if w.isMap() {
			return w.entry(s.Index)
		}
		return w.elements(s.Index, 1, false)
	case StepKey:
		return w.entry(s.Key)
	case StepAssert:
		return w.assert(s)
	case StepRange:
		if s.End <= s.Index || s.End-s.Index > mostInRange {
			return ErrNoElement
		}
		return w.elements(s.Index, s.End-s.Index, true)
	case StepCast:
		return w.cast(s)
	case StepTarget:
		return w.target()
	case StepAddress:
		return w.address()
	case StepLength:
		return w.length()
	}
	return w.member(s)
}

// member goes to a member. A structure that is referred to is one in the source.
func (w *way) member(s Step) error {
	isReference := w.typ.kind == typeReference
	isPointer := w.typ.kind == typePointer || isReference
	switch {
	case s.Kind == StepArrow && !isPointer, s.Kind == StepDot && isPointer:
		return ErrNotPointer
	case isPointer:
		if err := w.target(); err != nil {
			return err
		}
	}
	if s.Kind == StepMember && w.typ != nil && (w.typ.kind == typeReference || isReference && w.typ.kind == typePointer) {
		if err := w.target(); err != nil {
			return err
		}
	}
	name := s.Member
	if w.lang == langRust && name != "" && name[0] >= '0' && name[0] <= '9' {
		name = "__" + name // of a tuple
	}
	if err := w.enter(name); err != nil {
		return err
	}
	if w.typ == nil || w.typ.kind != typeStruct && w.typ.kind != typeUnion {
		return ErrNotPointer
	}
	off, f, ok := w.typ.member(name, map[*dtype]bool{})
	switch {
	case !ok:
		w.known = w.typ.memberNames(nil, 0)
		return ErrNoMember
	case f.bits:
		return w.bits(off+f.bit/8-f.off, f)
	}
	return w.inside(off, f.typ)
}

// memberNames lists the members that may be named, up to a hundred.
func (t *dtype) memberNames(all []string, depth int) []string {
	for _, f := range t.field {
		switch {
		case len(all) >= 100 || depth > mostNested:
			return all
		case f.isBase || f.name == "":
			all = f.typ.memberNames(all, depth+1)
		default:
			all = append(all, f.name)
		}
	}
	return all
}

// inside goes to the t that begins off bytes further on.
func (w *way) inside(off int64, t *dtype) error {
	p := &w.place
	if w.typ = t; p.isIndirect || p.isUnknown {
		p.shift(off)
		return nil
	}
	var parts []part
	for _, x := range p.parts {
		if x, some := x.cut(off, t.size); some {
			parts = append(parts, x)
		}
	}
	if len(parts) == 0 && t.size > 0 {
		return ErrNoPlace
	}
	p.parts = parts
	return nil
}

// shift moves what a pointer leads to by so many bytes.
func (p *place) shift(off int64) {
	if n := len(p.more); n > 0 {
		p.more = slices.Clone(p.more)
		p.more[n-1] += off
		return
	}
	p.behind += off
}

// cut is the part of the size bytes at off that x has; some is false if it has none.
func (x part) cut(off, size int64) (cut part, some bool) {
	first, last := max(off, x.off), min(off+size, x.off+x.size)
	if first >= last {
		return part{}, false
	}
	skipped := first - x.off
	x.off, x.size = first-off, last-first
	if x.reg == "" {
		x.stack += skipped
	} else {
		x.skip += skipped
	}
	return x, true
}

// bits goes to the bit field f, which begins in the byte at off.
func (w *way) bits(off int64, f dfield) error {
	f.bit %= 8
	if f.wide < 1 || f.wide > 64 {
		return ErrNoPlace
	}
	holder := &dtype{kind: typeStruct, name: f.typ.name, size: (f.bit + f.wide + 7) / 8}
	f.off, w.field = 0, &f
	return w.inside(off, holder)
}

// target goes to what a pointer or a reference leads to.
func (w *way) target() error {
	if isOwner, err := w.owned(); isOwner {
		return err
	}
	if w.typ.kind != typePointer && w.typ.kind != typeReference || w.typ.elem == nil {
		return ErrNotPointer
	}
	w.follow(w.typ.elem)
	return nil
}

// follow goes to the t whose address is here.
func (w *way) follow(t *dtype) {
	p := &w.place
	if p.isIndirect {
		p.more = append(slices.Clone(p.more), 0)
	}
	p.isIndirect, w.typ = true, t
	if len(p.more) == 0 {
		p.behind = 0
	}
}

var wordType = &dtype{kind: typeUint, name: "uint64", under: "uint64", size: 8, align: 8}

var octetType = &dtype{kind: typeUint, name: "byte", under: "byte", size: 1, align: 1}

// length goes to the number of elements.
func (w *way) length() error {
	if w.typ.kind == typeReference && w.typ.elem != nil {
		w.follow(w.typ.elem)
	}
	for w.unwrap() {
	}
	t := w.typ
	if c, ok := t.printer(w.lang).(*container); ok && c.header == nil && c.length >= 0 {
		return w.inside(c.length, lengthType)
	}
	switch s, ok := t.sequence(w.lang); {
	case ok:
		return w.countOf(s)
	case t.kind == typeArray && t.count >= 0:
		n, _ := t.rows()
		if n == 0 && w.lang == langC {
			return ErrNoLength // its end is not told
		}
		w.place, w.typ = place{parts: []part{{size: 8, reg: constantPart, stack: n}}, limits: w.place.limits}, lengthType
		return nil
	case t.kind == typeGoPointer && t.hasLength: // that of nil is 0
		w.follow(lengthType)
		w.place.number = &derived{isNilZero: true}
		return nil
	}
	return ErrNoLength
}

var lengthType = &dtype{kind: typeInt, name: "int", under: "int", size: 8, align: 8}

// address goes to the address of what is in memory.
func (w *way) address() error {
	p, t := &w.place, w.typ
	switch {
	case p.isIndirect && len(p.more) > 0:
		n := len(p.more) - 1
		p.number, p.more = &derived{plus: p.more[n]}, p.more[:n]
	case p.isIndirect:
		p.number, p.isIndirect, p.behind = &derived{plus: p.behind}, false, 0
	case p.isOnStack():
		p.number = &derived{plus: p.parts[0].stack}
		p.parts = []part{{size: 8, reg: host.DwarfNames[host.DwarfSP]}}
	case !p.isUnknown:
		return ErrNoAddress
	}
	w.typ = &dtype{kind: typePointer, name: strings.TrimSuffix(t.name+" *", " "), size: 8, align: 8, elem: &dtype{kind: typeVoid, name: "void"}}
	return nil
}

// isOnStack reports whether the value lies on the stack, in one piece.
func (p place) isOnStack() bool {
	for _, x := range p.parts {
		if x.reg != "" || x.stack-x.off != p.parts[0].stack-p.parts[0].off {
			return false
		}
	}
	return len(p.parts) > 0 && p.parts[0].off == 0
}

// derived says of a place that the value is made of the number there.
type derived struct {
	plus      int64  // what is added
	from      *place // the address up to which it is counted down, in units of size bytes; nil for none
	size      int64
	isNilZero bool // it is 0 if the address that leads to it is 0
}

// limit is a number that an index is below, where there is such an element.
type limit struct {
	length *place
	index  int64
	holds  *dynamic // unless it is nil, length is that of an interface's first word, which must hold such a type
}

// errIndex is a limit that does not hold.
type errIndex struct{ index, length int64 }

func (e errIndex) Error() string {
	return fmt.Sprintf("there is no element %d, but %d in all", e.index, e.length)
}

// check returns an error unless the element is there.
func (l limit) check(r arch.Regs, m arch.Memory) error {
	raw, err := l.length.read(wordType, r, m)
	switch {
	case err != nil:
		return err
	case l.holds != nil:
		return l.holds.check(uintOf(raw), m)
	}
	if n := int64(binary.LittleEndian.Uint64(raw)); n <= l.index {
		return errIndex{l.index, n}
	}
	return nil
}

// of makes the value of the number that was read; err is why there is none.
func (n derived) of(raw []byte, at arch.Addr, err error, r arch.Regs, m arch.Memory) ([]byte, error) {
	switch {
	case n.isNilZero && at == 0:
		return make([]byte, 8), nil
	case err != nil:
		return nil, err
	}
	v := uintOf(raw) + uint64(n.plus)
	if n.from != nil {
		first, err := n.from.read(wordType, r, m)
		if err != nil {
			return nil, err
		}
		if v -= uintOf(first); int64(v) < 0 || int64(v)%n.size != 0 {
			return nil, errNoPlace
		}
		v /= uint64(n.size)
	}
	return binary.LittleEndian.AppendUint64(nil, v), nil
}
