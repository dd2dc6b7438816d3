package values

import (
	"errors"
	"slices"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/expr/arg"
	"github.com/gokprobe/gokprobe/expr/caret"
	"github.com/gokprobe/gokprobe/expr/fetch"
	"github.com/gokprobe/gokprobe/expr/filter"
	"github.com/gokprobe/gokprobe/symbols"
)

// Operand is a value that a filter compares as Type. Of one whose type is known only at each hit, another kind of value is absent.
type Operand struct {
	symbols.Param
	Type fetch.Type
}

// operandFields are Values.Operands as fields of a filter.
func operandFields(operands []Operand) []fetch.Field {
	fields := make([]fetch.Field, len(operands))
	for i, x := range operands {
		fields[i] = fetch.Field{Name: x.Name, Type: x.Type, Enum: x.Enumerators(), IsDynamic: x.IsDynamic()}
	}
	return fields
}

// has tells whether c is of the kind that the filter compares.
func (x Operand) has(c symbols.Compared) bool {
	isText := x.Type.Kind == fetch.String
	switch c.Shape {
	case symbols.ShapeText:
		return isText
	case symbols.ShapeUnsigned, symbols.ShapePointer:
		return !isText && int64(c.Bits) >= 0
	}
	return !isText && c.Shape == symbols.ShapeSigned
}

func operandType(p symbols.Param) (name string, ok bool) {
	shape, size, ok := p.Compares()
	if bits, isField := p.FieldBits(); ok && isField {
		return bitFieldName(symbols.Datum{Shape: shape, Bits: bits}), true
	}
	if shape == symbols.ShapeText {
		return "string", ok
	}
	return numberName(shape, size), ok
}

// longestText is what no text is longer than that a filter compares with others.
const longestText = 256

// addOperands adds what a filter compares and nobody has named yet: variables, and any fetch argument.
func (v *Values) addOperands(w Wish, more []fetch.Field, scope arg.Scope) error {
	text := w.Filter
	for _, x := range filter.Operands(text) {
		known := func(f fetch.Field) bool { return f.Name == x.Text }
		if slices.ContainsFunc(fetch.Fields(v.Args), known) || slices.ContainsFunc(more, known) || x.Text == "duration" && slices.ContainsFunc(more, isDuration) {
			continue
		}
		expr := x.Text
		if x.IsText && arg.IsPath(expr) && expr[0] != '$' {
			expr += ":string"
		}
		a, err := arg.ParseExpr(expr, scope)
		if err != nil && expr != x.Text {
			a, err = arg.ParseExpr(x.Text, scope)
		}
		var fault *caret.Error
		switch {
		case err == nil:
			a.Name = x.Text
			v.Args = append(v.Args, a)
		case (w.Whole || w.Operands) && v.addOperand(x.Text, x.IsText, scope):
		case !errors.As(err, &fault), x.IsName && fault.Note == "": // the filter's own error tells that it is not known
		default:
			fault.Column += x.At
			fault.Command = text
			return fault
		}
	}
	return nil
}

// addOperand adds what a filter compares as a value of the source's language, if it is one.
func (v *Values) addOperand(text string, isText bool, scope arg.Scope) bool {
	path, ok := arg.ParsePath(text)
	if !ok || scope.Function == nil {
		return false
	}
	p, ok := wholeOf(path, scope)
	if ok {
		p, ok = referred(p)
	}
	if !ok {
		return false
	}
	name, ok := operandType(p)
	switch {
	case ok:
	case !p.IsDynamic():
		return false
	case isText:
		name = "string"
	default:
		name = "s64"
	}
	p.Name = text
	v.Operands = append(v.Operands, Operand{p.Within(symbols.Bounds{Bytes: longestText}), TypeOf(name)})
	return true
}

// isDuration tells of a field that it is what filters also call duration.
func isDuration(f fetch.Field) bool { return f.Name == "duration_ns" }

// referred is what a reference stands for, and all else itself.
func referred(p symbols.Param) (symbols.Param, bool) {
	for range 2 {
		if !p.IsReference() {
			return p, true
		}
		var err error
		if p, err = p.At(p.Name, symbols.Step{Kind: symbols.StepTarget}); err != nil {
			return p, false
		}
	}
	return p, !p.IsReference()
}

// KeepsAt is Keeps, with the values that Operands have in r and m. They are read only where they decide, and one that is not known meets no comparison.
func (v *Values) KeepsAt(r arch.Regs, m arch.Memory, values []fetch.Value, comm string, tid int, more ...fetch.Value) bool {
	return v.keeps(func(x Operand) fetch.Value {
		c, err := x.Compared(r, m)
		absent := err != nil || x.IsDynamic() && !x.has(c)
		return fetch.Value{U: c.Bits, S: c.Text, IsCut: c.IsCut, Fault: err != nil, Absent: absent}
	}, values, comm, tid, more)
}

// Read are all that is read as the source's language has it: Wholes, then Globals, then Operands. Of nil it is nothing.
func (v *Values) Read() []symbols.Param {
	if v == nil {
		return nil
	}
	all := slices.Concat(v.Wholes, v.Globals)
	for _, x := range v.Operands {
		all = append(all, x.Param)
	}
	return all
}
