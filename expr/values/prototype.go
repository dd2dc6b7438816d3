package values

import (
	"errors"
	"fmt"
	"slices"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/expr/arg"
	"github.com/gokprobe/gokprobe/expr/fetch"
	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/symbols"
)

// prototype is what DWARF says of a probed function. For Go it tells the registers of its
// own calling convention, as $argN do.
type prototype struct {
	abi      fetch.ABI
	isReturn bool
	isInside bool // params are what the source names at an instruction inside of the function
	params   []symbols.Param
	results  []symbols.Param
	// elsewhere finds what the source names outside of the function; nil: nothing.
	elsewhere func(name string) (symbols.Param, error)
	index     func(path arg.Path) (symbols.Param, bool) // finds the variables in indexes; nil: none
	caller    func() (arg.Variable, error)              // unless elsewhere finds the name; nil: nothing
}

// Prototype is what debug information says of the function that contains an address, for fetch arguments at its
// entry or its return. The error is that of symbols.Table.Params.
func Prototype(table *symbols.Table, at arch.Addr, isReturn bool) (arg.Function, error) {
	p := &prototype{abi: host.C, isReturn: isReturn}
	if table.GoFunction(at) {
		p.abi = host.Go
	}
	var err error
	if p.params, err = table.Params(at); err == nil && isReturn {
		p.results, err = table.Results(at)
	}
	if err != nil {
		return nil, err
	}
	return p, nil
}

// surroundings is what debug information says of the variables at an instruction inside of a function. The error is that of symbols.Table.Variables.
func surroundings(table *symbols.Table, at arch.Addr) (arg.Function, error) {
	seen, err := table.Variables(at)
	if err != nil {
		return nil, err
	}
	all := seen.Locals
	for _, p := range seen.Params { // which a local variable may hide
		if !slices.ContainsFunc(seen.Locals, func(l symbols.Param) bool { return l.Name == p.Name }) {
			all = append(all, p)
		}
	}
	return &prototype{abi: ABIOf(table, at), isInside: true, params: all}, nil
}

// indexedBy has the variables in indexes found by index.
func indexedBy(f arg.Function, index func(arg.Path) (symbols.Param, bool)) {
	if p, ok := f.(*prototype); ok {
		p.index = index
	}
}

// Params implements arg.Function.
func (p *prototype) Params() []string {
	names := make([]string, len(p.params))
	for i, param := range p.params {
		names[i] = param.Name
	}
	return names
}

// Variable implements arg.Function. A result is the first one, of functions that give several.
func (p *prototype) Variable(name string, path []arg.Member) (v arg.Variable, err error) {
	param, err := p.at(name, path)
	switch {
	case errors.Is(err, arg.ErrNoVariable) && name == callerName && len(path) == 0 && p.caller != nil:
		return p.caller()
	case err != nil:
		return v, err
	}
	return p.described(name, param)
}

// described is where a value is that is reached from name, and what it is.
func (p *prototype) described(name string, param symbols.Param) (v arg.Variable, err error) {
	d, err := param.Datum()
	if err != nil {
		return v, arg.ErrNoVariable
	}
	if v.Type, v.Text, err = typeOf(d); err != nil {
		v.Untyped, err = true, nil
	}
	if target, err := param.At(name, symbols.Step{Kind: symbols.StepTarget}); err == nil && param.IsReference() && !target.IsReference() && d.Shape != symbols.ShapeCountedText {
		if to, err := p.described(name, target); err == nil {
			v.Target = &to
		}
	}
	v.Enum = d.Enum
	if v.Source, err = p.sourceOf(name, d); err == nil && d.Len != nil {
		v.Len, err = p.sourceOf(name, *d.Len)
	}
	for _, l := range d.Limits {
		length, failed := p.sourceOf(name, l.Length)
		if err == nil {
			err = failed
		}
		v.Source.Limits = append(v.Source.Limits, fetch.Limit{Length: length, Index: l.Index})
	}
	return v, err
}

// whole is what a path leads to, as the source's language writes it. ok is false where that is not to be had: at returns there are no parameters.
func (p *prototype) whole(name string, path []arg.Member) (v symbols.Param, ok bool) {
	v, err := p.at(name, path)
	return v, err == nil && !(p.isReturn && p.isParam(name))
}

func (p *prototype) isParam(name string) bool {
	return slices.ContainsFunc(p.params, func(x symbols.Param) bool { return x.Name == name })
}

// at is what a path leads to. The error is one of a Function's Variable.
func (p *prototype) at(name string, path []arg.Member) (symbols.Param, error) {
	param, used, err := p.named(name, path)
	if err != nil {
		return param, err
	}
	steps, err := p.steps(path[used:])
	var end symbols.Param
	if err == nil {
		end, err = param.At(name, steps...)
	}
	if err != nil {
		return end, stepError(err, used)
	}
	return end, nil
}

// named is what a name means, with as many steps behind it as belong to the name: Go has packages in front, pkg.x.
func (p *prototype) named(name string, path []arg.Member) (param symbols.Param, used int, err error) {
	i := slices.IndexFunc(p.params, func(x symbols.Param) bool { return x.Name == name })
	switch {
	case name == "$retval" && len(p.results) == 0:
		return param, 0, arg.ErrNoResult
	case name == "$retval":
		return p.results[0], 0, nil
	case i >= 0:
		return p.params[i], 0, nil
	case p.elsewhere == nil:
		return param, 0, arg.ErrNoVariable
	}
	param, err = p.elsewhere(name)
	if err != nil && len(path) > 0 && path[0].Name != "" && !path[0].Arrow {
		x, inPackage := p.elsewhere(name + "." + path[0].Name)
		switch {
		case inPackage == nil:
			return x, 1, nil
		case errors.Is(err, symbols.ErrNoGlobal):
			err = inPackage
		}
	}
	switch {
	case errors.Is(err, symbols.ErrAmbiguous), errors.Is(err, symbols.ErrNoPlace), errors.Is(err, symbols.ErrNoThreadLocal):
		return param, 0, &arg.UnsureError{Note: name + ": " + err.Error()}
	case err != nil:
		return param, 0, arg.ErrNoVariable
	}
	return param, 0, nil
}

// Steps are those of a path, as package symbols goes them, but for indexes that are variables.
func Steps(path []arg.Member) []symbols.Step {
	steps := make([]symbols.Step, len(path))
	for i, m := range path {
		steps[i] = symbols.Step{Kind: kinds[m.How], Member: m.Name, Index: m.Index, End: m.End, Key: m.Key}
		if m.Arrow {
			steps[i].Kind = symbols.StepArrow
		}
	}
	return steps
}

// steps are those of a path, with its variables. The error is a *symbols.StepError.
func (p *prototype) steps(path []arg.Member) (steps []symbols.Step, err error) {
	steps = Steps(path)
	for i, m := range path {
		if steps[i].IndexOf, err = p.sum(m.IndexOf); err == nil {
			steps[i].EndOf, err = p.sum(m.EndOf)
		}
		if err != nil {
			return nil, &symbols.StepError{Step: i, Err: symbols.ErrNoIndex}
		}
	}
	return steps, nil
}

// sum is an index whose variables are found as all others are.
func (p *prototype) sum(s *arg.Sum) (*symbols.Sum, error) {
	if s == nil {
		return nil, nil
	}
	sum := &symbols.Sum{N: s.N}
	for _, t := range s.Terms {
		if p.index == nil {
			return nil, symbols.ErrNoIndex
		}
		v, ok := p.index(t.Path)
		if ok {
			v, ok = referred(v)
		}
		if !ok {
			return nil, symbols.ErrNoIndex
		}
		sum.Terms = append(sum.Terms, symbols.Term{Param: v, Minus: t.Minus})
	}
	return sum, nil
}

// kinds are those of steps without an arrow.
var kinds = map[arg.How]symbols.StepKind{
	arg.Strict: symbols.StepDot, arg.Either: symbols.StepMember, arg.Element: symbols.StepElement,
	arg.Target: symbols.StepTarget, arg.Address: symbols.StepAddress, arg.Length: symbols.StepLength, arg.Range: symbols.StepRange, arg.Cast: symbols.StepCast,
	arg.Key: symbols.StepKey, arg.Assert: symbols.StepAssert,
}

// sourceOf is where d is, which is a parameter's or the result's.
func (p *prototype) sourceOf(name string, d symbols.Datum) (s fetch.Source, err error) {
	switch isParam := p.isParam(name); {
	case isParam || p.isInside:
		s, err = p.source(d)
	case name == "$retval":
		s = p.result(d)
	default: // it is read when the hit is, also at returns
		s = anywhere(d)
	}
	if err != nil {
		return s, err
	}
	s.IsNilZero, s.Per = d.IsNilZero, d.Per
	if d.From != nil {
		from, err := p.sourceOf(name, *d.From)
		if err != nil {
			return s, err
		}
		s.From = &from
	}
	return s, nil
}

// stepError is the error of a step, in front of which so many were part of the name.
func stepError(err error, used int) error {
	var s *symbols.StepError
	if !errors.As(err, &s) {
		return arg.ErrNoVariable
	}
	s.Step += used
	switch {
	case errors.Is(err, symbols.ErrNoPlace):
		return arg.ErrNoVariable
	case errors.Is(err, symbols.ErrNoMember):
		return &arg.MemberError{Step: s.Step, Err: arg.ErrNoMember, Known: s.Known}
	case errors.Is(err, symbols.ErrNoType):
		return &arg.MemberError{Step: s.Step, Err: arg.ErrNoType}
	case errors.Is(err, symbols.ErrKey):
		return &arg.MemberError{Step: s.Step, Err: arg.ErrKey}
	case errors.Is(err, symbols.ErrNotInterface):
		return &arg.MemberError{Step: s.Step, Err: arg.ErrNoAssert}
	case errors.Is(err, symbols.ErrNoElement):
		return &arg.MemberError{Step: s.Step, Err: arg.ErrNoElement}
	case errors.Is(err, symbols.ErrNoLength):
		return &arg.MemberError{Step: s.Step, Err: arg.ErrNoLength}
	case errors.Is(err, symbols.ErrNoIndex):
		return &arg.MemberError{Step: s.Step, Err: arg.ErrNoIndex}
	case errors.Is(err, symbols.ErrNoAddress):
		return &arg.MemberError{Step: s.Step, Err: arg.ErrNoAddress}
	}
	return &arg.MemberError{Step: s.Step, Err: arg.ErrNoPointer}
}

// source is a parameter's: an $argN if it can be, since those are kept for the return.
func (p *prototype) source(d symbols.Datum) (fetch.Source, error) {
	const word = 8
	s := fetch.Source{Base: fetch.Argument, Derefs: derefs(d.Loads)}
	n := slices.Index(p.abi.Args, d.Reg)
	if d.Fixed {
		return fixed(d), nil
	}
	onStack := d.Reg == "" && d.Stack >= word && d.Stack%word == 0 && (d.Shape != symbols.ShapeText && d.Shape != symbols.ShapeArray || len(d.Loads) > 0)
	switch {
	case p.isInside:
	case n >= 0:
		s.N = int64(n) + 1
		return s, nil
	case onStack:
		s.N = int64(len(p.abi.Args)) + d.Stack/word
		return s, nil
	case p.isReturn:
		return s, arg.ErrNoVariable
	}
	return anywhere(d), nil
}

// anywhere is the source of what is not to be kept for the return.
func anywhere(d symbols.Datum) fetch.Source {
	switch {
	case d.Fixed:
		return fixed(d)
	case d.Reg != "":
		return fetch.Source{Base: fetch.Register, Name: d.Reg, Derefs: derefs(d.Loads)}
	}
	return fetch.Source{Base: fetch.Stack, Derefs: derefs(append([]int64{d.Stack}, d.Loads...))}
}

// fixed is a constant's source, or that of memory at an address that is always the same.
func fixed(d symbols.Datum) fetch.Source {
	if len(d.Loads) == 0 {
		return fetch.Source{Base: fetch.Immediate, N: d.Stack}
	}
	return fetch.Source{Base: fetch.Memory, N: d.Stack + d.Loads[0], Derefs: derefs(d.Loads[1:])}
}

// result is a result's source, read when the function has returned.
func (p *prototype) result(d symbols.Datum) fetch.Source {
	if !d.Fixed && d.Reg == p.abi.Results[0] {
		return fetch.Source{Base: fetch.Retval, Derefs: derefs(d.Loads)}
	}
	return anywhere(d)
}

func derefs(loads []int64) []fetch.Deref {
	var all []fetch.Deref
	for _, off := range loads {
		all = append(all, fetch.Deref{Off: off})
	}
	return all
}

// errNoType is of values that no fetch argument's type has.
var errNoType = errors.New("no type of fetch arguments has such values")

// typeOf is the type that the kernel gives a variable: by sign and size, in hexadecimal an address. Floating-point
// numbers and bit fields with a sign have types that are not the kernel's, arrays have that of their elements.
func typeOf(d symbols.Datum) (t fetch.Type, text arg.Text, err error) {
	switch d.Shape {
	case symbols.ShapeTextPointer:
		return t, arg.TextPointer, nil
	case symbols.ShapePointer:
		return t, text, nil
	case symbols.ShapeText:
		return t, arg.TextArray, nil
	case symbols.ShapeCountedText:
		return t, arg.TextCounted, nil
	}
	name := numberName(d.Shape, d.Size)
	switch {
	case d.Shape == symbols.ShapeArray:
		name = numberName(d.Elem, d.Size)
	case d.Bits > 0:
		name = bitFieldName(d)
	}
	t, ok := arg.TypeOf(name)
	if !ok || d.Count > arg.MaxArray {
		return fetch.Type{}, text, errNoType
	}
	t.Count = int(d.Count)
	return t, text, nil
}

// numberName is the type of a number of so many bytes, or of an address.
func numberName(s symbols.Shape, size int64) string {
	switch s {
	case symbols.ShapeSigned:
		return fmt.Sprintf("s%d", 8*size)
	case symbols.ShapeUnsigned:
		return fmt.Sprintf("u%d", 8*size)
	case symbols.ShapeFloat:
		return fmt.Sprintf("f%d", 8*size)
	case symbols.ShapePointer:
		return "x64"
	}
	return ""
}

// bitFieldName is the type of a bit field, in the smallest container that holds it from where it begins.
func bitFieldName(d symbols.Datum) string {
	container := int64(8)
	for container < d.Bit+d.Bits {
		container *= 2
	}
	sign := ""
	if d.Shape == symbols.ShapeSigned {
		sign = "s"
	}
	return fmt.Sprintf("%sb%d@%d/%d", sign, d.Bits, d.Bit, container)
}
