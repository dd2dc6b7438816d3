package godelve

import (
	"fmt"
	"go/constant"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/go-delve/delve/pkg/proc"
)

// As much of a value is shown as of those that package symbols prints.
const (
	mostText     = 64
	mostElements = 8
	deepest      = 4
)

func text(v *proc.Variable, depth int) string {
	switch {
	case v == nil || v.Unreadable != nil:
		return "?"
	case depth > deepest:
		return "…"
	}
	switch v.Kind {
	case reflect.String:
		return quoted(v)
	case reflect.Struct:
		return v.TypeString() + list(v.Children, v.Len, depth, func(c *proc.Variable) string { return c.Name + ": " })
	case reflect.Array, reflect.Slice:
		return list(v.Children, v.Len, depth, nil)
	case reflect.Map:
		return mapText(v, depth)
	case reflect.Interface:
		return interfaceText(v, depth)
	case reflect.Pointer:
		return pointer(v)
	case reflect.Func:
		if v.Value != nil && v.Base != 0 {
			return constant.StringVal(v.Value)
		}
		return "nil"
	case reflect.UnsafePointer:
		return pointer(v)
	case reflect.Chan:
		return fmt.Sprintf("%#x", v.Base)
	}
	return number(v)
}

// quoted is a text, as far as it is shown.
func quoted(v *proc.Variable) string {
	if v.Value == nil || v.Value.Kind() != constant.String {
		return "?"
	}
	s := constant.StringVal(v.Value)
	if n := min(len(s), mostText); int64(n) < max(v.Len, int64(len(s))) {
		return strconv.Quote(s[:n]) + "…"
	}
	return strconv.Quote(s)
}

func number(v *proc.Variable) string {
	switch v.FloatSpecial {
	case proc.FloatIsNaN:
		return "NaN"
	case proc.FloatIsPosInf:
		return "+Inf"
	case proc.FloatIsNegInf:
		return "-Inf"
	}
	if v.Value == nil || v.Value.Kind() == constant.Unknown {
		return "?"
	}
	if v.Value.Kind() == constant.Float {
		bits := 64
		if v.Kind == reflect.Float32 {
			bits = 32
		}
		f, _ := constant.Float64Val(v.Value)
		return strconv.FormatFloat(f, 'g', -1, bits)
	}
	return v.Value.ExactString()
}

func pointer(v *proc.Variable) string {
	if len(v.Children) == 0 || v.Children[0].Addr == 0 {
		return "0x0"
	}
	return fmt.Sprintf("%#x", v.Children[0].Addr)
}

func list(all []proc.Variable, n int64, depth int, name func(*proc.Variable) string) string {
	var texts []string
	for i := range all {
		s := text(&all[i], depth+1)
		if name != nil {
			s = name(&all[i]) + s
		}
		texts = append(texts, s)
	}
	if n > int64(len(all)) {
		texts = append(texts, fmt.Sprintf("… %d in all", n))
	}
	return "{" + strings.Join(texts, ", ") + "}"
}

func mapText(v *proc.Variable, depth int) string {
	if v.Base == 0 {
		return v.TypeString() + "(nil)"
	}
	return sortedPairs(v.TypeString(), v.Children, v.Len, depth)
}

// sortedPairs shows keys and values, one behind the other: the order of a map means nothing.
func sortedPairs(name string, pairs []proc.Variable, n int64, depth int) string {
	var texts []string
	for i := 0; i+1 < len(pairs); i += 2 {
		texts = append(texts, text(&pairs[i], depth+1)+": "+text(&pairs[i+1], depth+1))
	}
	slices.Sort(texts)
	if n > int64(len(texts)) {
		texts = append(texts, fmt.Sprintf("… %d in all", n))
	}
	return name + "{" + strings.Join(texts, ", ") + "}"
}

// The kinds of what is made here.
const (
	stringKind = reflect.String
	intKind    = reflect.Int64
)

func interfaceText(v *proc.Variable, depth int) string {
	if len(v.Children) == 0 || v.Children[0].Kind == reflect.Invalid {
		return "nil"
	}
	held := &v.Children[0]
	name := held.TypeString()
	if strings.HasPrefix(name, "*") {
		name = "(" + name + ")"
	}
	return name + "(" + text(held, depth+1) + ")"
}

// value is a value as text and, where JSON has it, as a number, a text or a bool; all else is its text there too. It is nil where it could not be read.
func value(v *proc.Variable) (shown string, json any) {
	shown = text(v, 0)
	switch {
	case shown == "?":
		return shown, nil
	case v.Value == nil:
		return shown, shown
	}
	switch v.Value.Kind() {
	case constant.Bool:
		return shown, constant.BoolVal(v.Value)
	case constant.Int:
		if n, ok := constant.Int64Val(v.Value); ok {
			return shown, n
		}
		if n, ok := constant.Uint64Val(v.Value); ok {
			return shown, n
		}
	case constant.Float:
		f, _ := constant.Float64Val(v.Value)
		return shown, f
	case constant.String:
		if v.Kind == reflect.String {
			return shown, constant.StringVal(v.Value)
		}
	}
	return shown, shown
}
