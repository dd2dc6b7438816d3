package symbols

import (
	"debug/dwarf"
	"errors"
	"fmt"
	"strings"

	"github.com/gokprobe/gokprobe/arch"
)

// printer shows the values of a library's type otherwise than member by member.
//
// A hit is recorded in the target by a list of reads that is made beforehand. No such list follows a chain or a tree, or an address that only some values
// have. If somebody has asked for such a value by its name, the threads stop that reach the probe. If nobody has, it is shown briefly: a container by the
// number of its elements, a pointer that owns something by its address. Measured with a Go map of 3 elements, a stop took 500 times as long as a record.
type printer interface {
	format(f *formatter, raw []byte, depth int) Value
	// reads collects what format reads.
	reads(r *reader, s source, depth int)
}

// printerKey is how a type's name begins, up to what it was made for.
type printerKey struct {
	lang language
	stem string
}

// maker makes the printer of a type, nil if it is another type of that name.
type maker struct {
	wantsParams bool // it needs to know the types that the type was made for
	make        func(lang language, t *dtype) printer
}

// stem is the name of a type without what it was made for.
func (t *dtype) stem() string {
	if n := strings.IndexAny(t.under, "<["); n > 0 {
		return t.under[:n]
	}
	return t.under
}

// printer is how values of t are shown, nil for member by member.
func (t *dtype) printer(lang language) printer {
	switch {
	case t.kind == typeStruct:
	case t.kind == typePointer && t.elem != nil && t.elem.kind == typeFunc:
		return codeName{}
	case t.kind == typeGoPointer && t.hasLength && len(t.params) == 2:
		return goMap(t)
	case t.kind == typeGoPointer && !t.hasLength && lang == langGo:
		return codeName{isIndirect: true}
	case (t.kind != typeInt || lang != langGo) && (t.kind != typePointer || lang != langRust):
		return nil
	}
	m, ok := printers[printerKey{lang, t.stem()}]
	if !ok {
		return nil
	}
	return m.make(lang, t)
}

const tagParameterPack = dwarf.Tag(0x4107) // DW_TAG_GNU_template_parameter_pack

// templateTypes are the types of one template parameter, or of a pack.
func (r *typeReader) templateTypes(e *dwarf.Entry) []*dtype {
	if e.Tag == dwarf.TagTemplateTypeParameter {
		return []*dtype{r.ref(e)}
	}
	var all []*dtype
	rd := r.d.entriesAt(e.Offset)
	if rd.next() == nil {
		return nil
	}
	rd.children(e, func(c *dwarf.Entry) {
		if c.Tag == dwarf.TagTemplateTypeParameter && len(all) < deepest {
			all = append(all, r.ref(c))
		}
	})
	return all
}

// HasForm reports whether values of p are printed otherwise than their bytes are: those of many types of libraries, functions, and Go's maps.
func (p Param) HasForm() bool {
	x := p.typ.printer(p.lang)
	_, isInner := x.(inner)
	return p.field == nil && x != nil && !isInner
}

// Brief is p shown so that the target can record it, if that is possible at all.
func (p Param) Brief() Param {
	p.brief = true
	return p
}

// inner shows what a value wraps.
type inner struct {
	off int64
	typ *dtype
}

func (x inner) format(f *formatter, raw []byte, depth int) Value {
	part, ok := slice(raw, x.off, x.typ.size)
	if !ok {
		return unknown(errNoPlace)
	}
	return f.format(x.typ, part, depth)
}

func (x inner) reads(r *reader, s source, depth int) { r.value(x.typ, s.from(x.off), depth) }

// slice is n bytes of raw.
func slice(raw []byte, off, n int64) ([]byte, bool) {
	if off < 0 || n < 0 || off > int64(len(raw))-n {
		return nil, false
	}
	return raw[off : off+n], true
}

// wraps makes an inner of the first of paths that there is. Rust's library has no names of its own: what has more than the wrapped value is another's
// type, unless that is in an UnsafeCell.
func wraps(paths ...string) maker {
	return maker{make: func(lang language, t *dtype) printer {
		for _, p := range paths {
			off, typ, ok := t.walk(p)
			if !ok || typ == t {
				continue
			}
			if holder, _, nested := strings.Cut(p, "."); lang == langRust && typ.size != t.size {
				if _, cell, ok := t.walk(holder); !nested || !ok || cell.stem() != "UnsafeCell" {
					continue
				}
			}
			return inner{off, typ}
		}
		return nil
	}}
}

// own shows a value by the bytes that it has.
type own func(raw []byte) Value

func (x own) format(_ *formatter, raw []byte, _ int) Value { return x(raw) }

func (own) reads(*reader, source, int) {}

// owner shows what a pointer leads to that owns it. The object of a weak pointer is there while a count of its owners is not 0.
type owner struct {
	addr   int64 // of the address in the value
	elem   *dtype
	into   int64  // how far behind the address the object begins
	null   string // what no object is called
	isWeak bool
	count  int64 // of a weak one: of the address of the block that counts, in the value
	within int64 // and of the count there
}

// gone is a weak pointer whose object has no owner any more.
var gone = Value{Text: "expired"}

func (x owner) format(f *formatter, raw []byte, depth int) Value {
	word, ok := slice(raw, x.addr, 8)
	if !ok {
		return unknown(errNoPlace)
	}
	at := arch.Addr(uintOf(word))
	switch {
	case at == 0:
		return Value{Text: x.null}
	case f.brief || x.elem.size <= 0 || x.elem.size > 1<<12:
		return hexValue(uint64(at))
	}
	if x.isWeak {
		block, ok := slice(raw, x.count, 8)
		if !ok {
			return unknown(errNoPlace)
		}
		var n [4]byte
		if at := arch.Addr(uintOf(block)); at == 0 || at == ^arch.Addr(0) {
			return gone
		} else if err := f.mem.ReadMemory(at.Add(x.within), n[:]); err != nil {
			return unknown(err)
		}
		if uintOf(n[:]) == 0 {
			return gone
		}
	}
	b := make([]byte, x.elem.size)
	if err := f.mem.ReadMemory(at.Add(x.into), b); err != nil {
		return unknown(err)
	}
	return f.format(x.elem, b, depth)
}

func (x owner) reads(r *reader, s source, depth int) {
	if r.brief || x.elem.size <= 0 || x.elem.size > 1<<12 {
		return
	}
	if x.isWeak {
		r.read(Read{Addr: r.word(s, x.count), Off: x.within, Max: 4})
	}
	r.value(x.elem, r.read(Read{Addr: r.word(s, x.addr), Off: x.into, Max: x.elem.size}), depth)
}

// perhaps shows a value that may not be there.
type perhaps struct {
	flag int64 // of the byte that tells
	inner
}

func (x perhaps) format(f *formatter, raw []byte, depth int) Value {
	switch b, ok := slice(raw, x.flag, 1); {
	case !ok:
		return unknown(errNoPlace)
	case b[0] == 0:
		return Value{Text: "nullopt"}
	case b[0] != 1:
		return unknown(errNoVariant)
	}
	if f.isUnread(x.typ, depth) {
		return unseen
	}
	return x.inner.format(f, raw, depth)
}

func (x perhaps) reads(r *reader, _ source, depth int) { r.only(x.typ, depth) }

// unseen is shown briefly for what is read from elsewhere.
var unseen = Value{Text: "…", JSON: "…"}

// isUnread tells of a t that is there only in some values, that it is not read for a brief form.
func (f *formatter) isUnread(t *dtype, depth int) bool {
	return f.brief && leadsOn(t, &reader{lang: f.lang, brief: true, bounds: f.bounds}, depth+1)
}

// oneOf shows the one of several types that a value has.
type oneOf struct {
	index, size int64 // of the number that tells which
	off         int64
	types       []*dtype
}

func (x oneOf) format(f *formatter, raw []byte, depth int) Value {
	b, ok := slice(raw, x.index, x.size)
	if !ok {
		return unknown(errNoPlace)
	}
	switch i := uintOf(b); {
	case i < uint64(len(x.types)) && f.isUnread(x.types[i], depth):
		return unseen
	case i < uint64(len(x.types)):
		return inner{x.off, x.types[i]}.format(f, raw, depth)
	case i == 1<<(8*x.size)-1: // std::variant_npos
		return Value{Text: "valueless"}
	}
	return unknown(errNoVariant)
}

func (x oneOf) reads(r *reader, _ source, depth int) {
	for _, t := range x.types {
		r.only(t, depth)
	}
}

// only says that a t is there only in some values: the reads for it can't be listed.
func (r *reader) only(t *dtype, depth int) {
	r.hasFailed = r.hasFailed || !r.brief && leadsOn(t, r, depth+1)
}

// together shows values without names.
type together []inner

func (x together) format(f *formatter, raw []byte, depth int) Value {
	texts, list := []string{}, []any{}
	for i, part := range x {
		v := part.format(f, raw, depth+1)
		texts, list = append(texts, v.Text), append(list, v.JSON)
		if f.budget <= 0 && i+1 < len(x) {
			texts = append(texts, "…")
			break
		}
	}
	return Value{Text: "{" + strings.Join(texts, ", ") + "}", JSON: list}
}

func (x together) reads(r *reader, s source, depth int) {
	for _, part := range x {
		part.reads(r, s, depth+1)
	}
}

// codeName shows the name of a function whose address, or the address of whose address, is the word at off.
type codeName struct {
	off        int64
	isIndirect bool
}

func (x codeName) format(f *formatter, raw []byte, _ int) Value {
	word, ok := slice(raw, x.off, 8)
	if !ok {
		return unknown(errNoPlace)
	}
	at := uintOf(word)
	if at == 0 {
		return map[language]Value{langGo: {Text: "nil"}, langC: hexValue(0), langRust: hexValue(0)}[f.lang]
	}
	if x.isIndirect {
		var b [8]byte
		if f.mem.ReadMemory(arch.Addr(at), b[:]) != nil {
			return hexValue(at)
		}
		at = uintOf(b[:])
	}
	if f.table != nil {
		if l, ok := f.table.Lookup(arch.Addr(at)); ok && l.Offset == 0 && l.Symbol.Name != "" && l.Symbol.Func {
			return Value{Text: l.Symbol.Name, JSON: l.Symbol.Name}
		}
	}
	return hexValue(uintOf(word))
}

func (x codeName) reads(r *reader, s source, _ int) {
	if x.isIndirect {
		r.read(Read{Addr: r.word(s, x.off), Max: 8})
	}
}

// functor shows what a std::function of libstdc++ calls: a function, or an object by its type, as a lambda has it.
type functor struct{ manager, invoker, held int64 }

func (x functor) format(f *formatter, raw []byte, depth int) Value {
	if manager, ok := slice(raw, x.manager, 8); ok && uintOf(manager) == 0 {
		return Value{Text: "nullptr"}
	}
	v := codeName{off: x.invoker}.format(f, raw, depth)
	_, kind, ok := strings.Cut(v.Text, "_Function_handler<")
	kind, isHandler := strings.CutSuffix(kind, ">::_M_invoke")
	if !ok || !isHandler {
		return v
	}
	nested := 0 // the first parameter is the function's type, the other one the object's
	for i, c := range kind {
		switch c {
		case '<', '(', '{':
			nested++
		case '>', ')', '}':
			nested--
		case ',':
			if nested > 0 {
				continue
			}
			if kind = strings.TrimSpace(kind[i+1:]); strings.Contains(kind, "(*)") {
				return codeName{off: x.held}.format(f, raw, depth)
			}
			return Value{Text: kind, JSON: kind}
		}
	}
	return v
}

func (functor) reads(*reader, source, int) {}

var errLength = errors.New("its length is impossible")

// lengthOnly is a container of n elements, none of which is shown.
func lengthOnly(name string, n int64, isMap bool) Value {
	text, json := name+"{}", any([]any{})
	if n > 0 {
		text, json = fmt.Sprintf("%s{… %d in all}", name, n), []any{"…"}
	}
	if isMap {
		object := map[string]any{}
		if n > 0 {
			object["…"] = n
		}
		json = object
	}
	return Value{Text: text, JSON: json}
}
