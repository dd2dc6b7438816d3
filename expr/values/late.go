package values

import (
	"fmt"
	"reflect"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/expr/arg"
	"github.com/gokprobe/gokprobe/expr/fetch"
	"github.com/gokprobe/gokprobe/symbols"
)

// late is something that the filter compares and no fetch argument can be: an entry of a map, or what an interface holds. It is read from a thread that has stopped.
type late struct {
	param symbols.Param
	field fetch.Field
}

// addLate adds what a path leads to, if a condition can compare it. ok is false if it can't.
func (v *Values) addLate(text string, isText bool, scope arg.Scope) (ok bool) {
	path, ok := arg.ParsePath(text)
	if !ok || !arg.IsPath(text) || scope.Function == nil {
		return false
	}
	whole, ok := wholeOf(path, scope)
	if !ok {
		return false
	}
	if _, err := whole.Datum(); err == nil {
		return false // there is a fetch argument for it, and why that does not do has been told
	}
	t, ok := lateType(whole, isText)
	if ok {
		v.late = append(v.late, late{whole, fetch.Field{Name: text, Type: t}})
	}
	return ok
}

// lateType is the type that a condition compares p as.
func lateType(p symbols.Param, isText bool) (fetch.Type, bool) {
	kind, size, isLate := p.ScalarKind()
	switch {
	case isLate && isText:
		return TypeOf("string"), true
	case isLate: // a number of another kind is none to compare with
		return TypeOf("s64"), true
	case kind == reflect.String:
		return TypeOf("string"), true
	case kind == reflect.Int:
		return arg.TypeOf(fmt.Sprintf("s%d", 8*size))
	case kind == reflect.Uint, kind == reflect.Bool:
		return arg.TypeOf(fmt.Sprintf("u%d", 8*size))
	case kind == reflect.Float64:
		return arg.TypeOf(fmt.Sprintf("f%d", 8*size))
	}
	return fetch.Type{}, false
}

// Stops tells that a thread has to stop for the filter, none of nil.
func (v *Values) Stops() bool { return v != nil && len(v.late) > 0 }

// Late are the values that stand behind all others for Keeps: what is read of a thread that has stopped. None of nil.
func (v *Values) Late(r arch.Regs, m arch.Memory) []fetch.Value {
	if v == nil {
		return nil
	}
	var all []fetch.Value
	for _, x := range v.late {
		s, err := x.param.Scalar(r, m, fetch.MaxString)
		if err != nil || !x.hasType(s) {
			all = append(all, fetch.Value{Absent: true})
			continue
		}
		all = append(all, fetch.Value{U: s.Bits, S: s.Text})
	}
	return all
}

// hasType tells that a value is of the kind that the condition compares.
func (x late) hasType(s symbols.Scalar) bool {
	switch s.Kind {
	case reflect.String:
		return x.field.Type.Kind == fetch.String
	case reflect.Float64:
		return x.field.Type.Kind == fetch.Float
	case reflect.Uint:
		_, _, isLate := x.param.ScalarKind()
		return x.field.Type.Kind != fetch.String && x.field.Type.Kind != fetch.Float && (!isLate || int64(s.Bits) >= 0)
	case reflect.Int, reflect.Bool:
		return x.field.Type.Kind != fetch.String && x.field.Type.Kind != fetch.Float
	}
	return false
}

// lateFields are the fields of Late.
func (v *Values) lateFields() []fetch.Field {
	var all []fetch.Field
	for _, x := range v.late {
		all = append(all, x.field)
	}
	return all
}
