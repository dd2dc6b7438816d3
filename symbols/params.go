package symbols

import (
	"debug/dwarf"
	"errors"
	"fmt"
	"strings"

	"github.com/gokprobe/gokprobe/arch"
)

// Param is one parameter of a function, with its place at the function's first
// instruction, one result, with its place at the return, or a variable, with its place at one
// instruction (Table.Variables). Places of the first two are those of the calling convention. Locations from debug information are used only where the compiler
// may have changed the convention: gcc's are often wrong before the end of the prologue.
type Param struct {
	Name string // "this" for C++ methods, the receiver's name for Go ones; of a result, see Results
	Type string // as the source language writes it

	typ   *dtype
	field *dfield // the bit field of typ that it is; nil for all others
	lang  language
	place place
	table *Table
	mod   *Module
	brief bool // see Brief
	// bounds are of what is shown: see Within.
	bounds Bounds
	late   *late // nil unless its path is gone at each hit: place is not known then
	// dynamic are the steps from an interface on, which are gone at each hit.
	dynamic []Step
}

type language uint8

const (
	langC language = iota // and C++
	langGo
	langRust
)

// place is where a value lies at a function's entry, or at its return.
type place struct {
	parts      []part
	isIndirect bool    // the part is the value's address,
	behind     int64   // less so many bytes,
	more       []int64 // or that of the first of further addresses; each is followed by so many bytes
	isUnknown  bool
	limits     []limit  // which hold where there is a value
	number     *derived // nil if the value is what lies there
}

// part is a run of bytes of a value in one register or on the stack.
type part struct {
	off, size int64        // within the value
	skip      int64        // bytes in front of it in the register, the constant, or what was computed
	reg       string       // general register, constantPart, staticPart, threadPart, computedPart, entryPart, or
	n         int          // vector register if reg is "xmm", x87 register if it is "st", or
	stack     int64        // if reg is empty: distance from the stack pointer; of a constantPart the value, of a staticPart the link-time address, of a threadPart the offset in the block
	made      *computation // of a computedPart
	entry     *mapEntry    // of an entryPart
}

// constantPart is the reg of a part that is the same at each hit.
const constantPart = "constant"

// staticPart is the reg of the one part of a place at an address, until Table.Variables knows where the file is mapped.
const staticPart = "static"

// Params returns the parameters of the function that contains a, in
// declaration order. It reads the debug information of one compilation unit.
// The error matches ErrNoParams if nothing describes the function, or if the
// compiler changed its parameters; ErrNotMapped if a is in no module.
func (t *Table) Params(a arch.Addr) ([]Param, error) {
	sig, err := t.signature(a)
	if err != nil {
		return nil, err
	}
	return sig.places(), nil
}

// signature lists the parameters and results of a function, without places.
type signature struct {
	unit    *unit
	linkage string
	params  []Param
	results []Param // one or none, except in Go

	callee    callee
	locations []location // of params, but for Go's
}

// errAssembly is the error for assembly: the debug information that assemblers write has no parameters.
var errAssembly = errors.New("it is written in assembly language")

var errCopy = errors.New("it is a copy whose parameters the compiler changed")

// signature reads the debug information of the function that contains a.
func (t *Table) signature(a arch.Addr) (*signature, error) {
	m := t.module(a)
	if m == nil {
		return nil, errNotMapped(a)
	}
	if m.img == nil {
		return nil, fmt.Errorf("%w: %w", ErrNoParams, m.Err)
	}
	d, err := m.img.dwarfOf(t)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoParams, err)
	}
	name := ""
	if loc, ok := t.Lookup(a); ok {
		name = loc.Symbol.Linkage
		if _, suffix := splitClone(name); suffix != "" && !t.GoFunction(a) { // in Go it is the function's name, as in main.cold
			return nil, fmt.Errorf("%w: %s: %w", ErrNoParams, name, errCopy)
		}
	}
	sig, err := d.signature(m.link(a))
	if err != nil {
		return nil, fmt.Errorf("%w: %s in %s: %w", ErrNoParams, name, m.Name, err)
	}
	if file, _, ok := t.Line(a); ok && sig.unit.lang == langGo && strings.HasSuffix(file, ".s") {
		return nil, fmt.Errorf("%w: %s in %s: %w", ErrNoParams, name, m.Name, errAssembly)
	}
	sig.linkage = name
	for _, list := range [][]Param{sig.params, sig.results} {
		for i := range list {
			list[i].table, list[i].mod, list[i].lang = t, m, sig.unit.lang
		}
	}
	return sig, nil
}

// signature reads the function around v.
func (d *dwarfData) signature(v uint64) (*signature, error) {
	u, off, ok := d.subprogram(v)
	if !ok {
		return nil, fmt.Errorf("the debug information has no function at %#x", v)
	}
	if u.isAssembly() {
		return nil, errAssembly
	}
	d.typeMu.Lock()
	defer d.typeMu.Unlock()
	rd := d.entriesAt(off)
	e := rd.next()
	if e == nil {
		return nil, fmt.Errorf("the debug information ends at %#x: %w", off, rd.err)
	}
	sig := &signature{unit: u, callee: d.calleeOf(u, d.origins(e), v)}
	r := &typeReader{d: d, cache: d.types, lang: u.lang}
	rd.children(e, func(c *dwarf.Entry) {
		if c.Tag != dwarf.TagFormalParameter {
			return
		}
		p, list := r.param(c)
		to := &sig.params
		if result, _ := attr(list, dwarf.AttrVarParam).(bool); result && u.lang == langGo {
			to = &sig.results
		}
		// Go describes a variable that it has split twice, one after the other.
		if n := len(*to); n == 0 || u.lang != langGo || (*to)[n-1].Name != p.Name || p.Name == "_" {
			*to = append(*to, p)
			if to == &sig.params && u.lang != langGo {
				sig.locations = append(sig.locations, d.locate(u, sig.callee, c, p.typ))
			}
		}
	})
	if off, ok := attr(d.origins(e), dwarf.AttrType).(dwarf.Offset); ok {
		typ := r.at(off)
		sig.results = append(sig.results, Param{Name: soleResult, Type: typ.name, typ: typ})
	}
	if r.err != nil { // a type that is missing would give the others wrong places
		return nil, r.err
	}
	return sig, nil
}

// param is the parameter that c and its origins describe, without a place.
func (r *typeReader) param(c *dwarf.Entry) (p Param, list []*dwarf.Entry) {
	list = r.d.origins(c)
	p.typ = &dtype{name: "?"}
	p.Name, _ = attr(list, dwarf.AttrName).(string)
	if off, ok := attr(list, dwarf.AttrType).(dwarf.Offset); ok {
		p.typ = r.at(off)
	}
	p.Type = p.typ.name
	return p, list
}

// places gives the parameters their places by the calling convention.
func (s *signature) places() []Param {
	params := s.params
	if s.unit.lang == langGo {
		params = withDictionary(params, s.linkage)
	}
	types := dtypesOf(params)
	var result *dtype
	if len(s.results) > 0 {
		result = s.results[0].typ
	}
	var places []place
	switch s.unit.lang {
	case langGo:
		places, _ = goPlaces(types, nil, s.hasGoRegisters())
	case langRust:
		places = s.rustPlaces(types, result)
	default:
		places = sysvPlaces(types, result)
	}
	var out []Param
	for i, p := range params {
		if p.place = places[i]; p.Name != goDictionary {
			out = append(out, p)
		}
	}
	s.callee.settle(s.unit.lang, out, s.locations)
	return out
}

// hasGoRegisters reports whether a Go function passes parameters and results in registers.
func (s *signature) hasGoRegisters() bool {
	return s.unit.hasGoRegisters && !strings.HasSuffix(s.linkage, goABI0)
}

func dtypesOf(params []Param) []*dtype {
	types := make([]*dtype, len(params))
	for i := range params {
		types[i] = params[i].typ
	}
	return types
}

const goDictionary = ".dict"

// withDictionary adds the hidden parameter of an instance of a generic function, which debug
// information of optimized code omits: its dictionary. It is the first parameter, or follows
// the receiver. Closures have it in their context instead.
func withDictionary(params []Param, linkage string) []Param {
	i := strings.Index(linkage, "[go.shape.")
	end := strings.LastIndexByte(linkage, ']')
	if i < 0 || end < i {
		return params
	}
	for _, p := range params {
		if p.Name == goDictionary {
			return params
		}
	}
	at, rest := 0, strings.TrimPrefix(linkage[end+1:], ")")
	if rest != "" {
		method := strings.TrimPrefix(rest, ".")
		if strings.ContainsAny(method, ".-") || strings.HasPrefix(method, "func") || len(params) == 0 {
			return params
		}
		at = 1
	}
	dict := Param{Name: goDictionary, lang: langGo, typ: &dtype{kind: typeGoPointer, name: "uintptr", size: 8, align: 8}}
	return append(params[:at:at], append([]Param{dict}, params[at:]...)...)
}
