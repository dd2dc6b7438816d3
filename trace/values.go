package trace

import (
	"cmp"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/expr/fetch"
	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/symbols"
)

// From what debug information, fetch arguments and registers say to the values of a Hit.

// arguments reads parameters or results of a stopped thread.
func arguments(params []symbols.Param, regs *kprobes.Regs) []Arg {
	return argumentsFrom(params, regs, regs)
}

// argumentsFrom reads parameters or results from registers and memory, which may be a record's.
func argumentsFrom(params []symbols.Param, regs arch.Regs, mem arch.Memory) []Arg {
	args := make([]Arg, 0, len(params))
	for i := range params {
		args = append(args, argument(params[i].Name, params[i].Value(regs, mem)))
	}
	return args
}

// argument is a parameter's value as a hit's.
func argument(name string, v symbols.Value) Arg {
	a := Arg{Name: name, Text: v.Text}
	switch j := v.JSON.(type) {
	case int64, uint64, float64, bool, string:
		a.Value = j
	case nil:
	default:
		a.Value = composite{j, v.Parts}
	}
	var fault *arch.FaultError
	if errors.As(v.Err, &fault) {
		a.Text = "(fault)"
	}
	return a
}

// composite is a list or a structure on its way into JSON.
type composite struct {
	v     any
	parts []symbols.Part
}

// MarshalJSON implements json.Marshaler.
func (c composite) MarshalJSON() ([]byte, error) { return json.Marshal(c.v) }

// appendRegs adds the general registers, with the % that marks a register in the
// kernel's fetch arguments. The instruction pointer is shown as at.
func appendRegs(args []Arg, regs arch.Regs, at arch.Addr) []Arg {
	for _, name := range regs.Names() {
		v, ok := regs.Get(name)
		if !ok {
			continue
		}
		if name == host.Roles.IP {
			v = uint64(at)
		}
		args = append(args, Arg{Name: "%" + name, Value: v, Text: arch.Addr(v).String()})
	}
	return args
}

// replace appends values to arguments. A value replaces an argument of the same name.
func replace(args, values []Arg) []Arg {
	if len(values) == 0 {
		return args
	}
	ours := func(a Arg) bool { return slices.ContainsFunc(values, func(v Arg) bool { return v.Name == a.Name }) }
	return append(slices.DeleteFunc(slices.Clone(args), ours), values...)
}

// FetchedArgs are the values of fetch arguments as a hit's. values may be more than args: the rest is left out.
func FetchedArgs(args []fetch.Arg, values []fetch.Value) []Arg { return fetchedArgs(args, values, 0) }

// fetchedArgs is FetchedArgs, with so many bytes of a text; 0 for all that were recorded.
func fetchedArgs(args []fetch.Arg, values []fetch.Value, bytes int) []Arg {
	all := make([]Arg, min(len(args), len(values)))
	for i := range all {
		t := args[i].Type
		v, text := values[i], ""
		if t.Kind == fetch.String || t.Kind == fetch.UString {
			v, text = shortened(v, bytes)
		}
		all[i] = Arg{Name: args[i].Name, Text: cmp.Or(text, fetchedText(t, v)), Value: fetchedJSON(t, v)}
		if t.Count > 0 {
			all[i].Value = composite{v: all[i].Value}
		}
	}
	return all
}

// shortened is a text of so many bytes at most, and how people read it if it was cut.
func shortened(v fetch.Value, bytes int) (short fetch.Value, text string) {
	if bytes <= 0 {
		return v, ""
	}
	if v.Elems != nil {
		v.Elems = slices.Clone(v.Elems)
		for i, e := range v.Elems {
			v.Elems[i], _ = shortened(e, bytes)
		}
	}
	if len(v.S) <= bytes {
		return v, ""
	}
	end := bytes
	for end > bytes-utf8.UTFMax && end > 0 && !utf8.RuneStart(v.S[end]) {
		end--
	}
	text = strconv.Quote(v.S[:end]) + "…"
	v.S = v.S[:end] + "…"
	return v, text
}

// fetchedText is a value as the kernel prints it, but for numbers that could not be read.
func fetchedText(t fetch.Type, v fetch.Value) string {
	switch {
	case v.Absent:
		return "?"
	case t.Count > 0:
		t.Count = 0
		elems := make([]string, len(v.Elems))
		for i, e := range v.Elems {
			elems[i] = fetchedText(t, e)
		}
		return "{" + strings.Join(elems, ",") + "}"
	case v.Fault:
		return fetch.FaultText
	}
	return string(t.Append(nil, v))
}

// fetchedJSON is a value by its type, nil if it could not be read.
func fetchedJSON(t fetch.Type, v fetch.Value) any {
	switch {
	case v.Absent:
		return nil
	case t.Count > 0:
		t.Count = 0
		elems := make([]any, len(v.Elems))
		for i, e := range v.Elems {
			elems[i] = fetchedJSON(t, e)
		}
		return elems
	case v.Fault:
		return nil
	}
	if t.Kind == fetch.Caller {
		return caller{Addr: arch.Addr(v.U).String(), Symbol: v.S}
	}
	if t.HasSign() {
		return int64(v.U)
	}
	switch t.Kind {
	case fetch.Float:
		return floatJSON(t.Float(v))
	case fetch.Char:
		return string([]byte{byte(v.U)})
	case fetch.String, fetch.UString, fetch.SymbolOff, fetch.SymStr:
		return v.S
	}
	return v.U
}

// caller is the place that a function returns to, as JSON has it.
type caller struct {
	Addr   string `json:"addr"`
	Symbol string `json:"symbol"`
}

// MarshalJSON implements json.Marshaler.
func (c caller) MarshalJSON() ([]byte, error) {
	type plain caller
	return json.Marshal(plain(c))
}

// floatJSON is a number, or a string if JSON has no such number.
func floatJSON(x float64) any {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return strconv.FormatFloat(x, 'g', -1, 64)
	}
	return x
}
