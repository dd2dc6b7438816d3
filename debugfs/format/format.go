// Package format is an event's format file: the layout of its record and how it is printed, as
// libtraceevent and perf read it (kernel/trace/trace_events.c, f_show; kernel/trace/trace_probe.c,
// traceprobe_set_print_fmt).
//
// The package is pure: no system call, no build tag.
//
// Not part of the public promise: any version may change it.
package format

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gokprobe/gokprobe/expr/fetch"
)

// commons are the fields that all records begin with (struct trace_entry).
const commons = `	field:unsigned short common_type;	offset:0;	size:2;	signed:0;
	field:unsigned char common_flags;	offset:2;	size:1;	signed:0;
	field:unsigned char common_preempt_count;	offset:3;	size:1;	signed:0;
	field:int common_pid;	offset:4;	size:4;	signed:1;
`

const commonsSize = 8

// Text is the format file of an event with the given fields: the addresses __probe_ip, or __probe_func
// and __probe_ret_ip, or none of a synthetic event, then the arguments. Those that all events have
// (common_…) are left out. A string is in the record as a word with its length and place (__data_loc).
func Text(name string, id int, fields []fetch.Field) string {
	var b strings.Builder
	fmt.Fprintf(&b, "name: %s\nID: %d\nformat:\n%s\n", name, id, commons)
	offset := commonsSize
	var layout, args strings.Builder
	for _, f := range fields {
		if strings.HasPrefix(f.Name, "common_") {
			continue
		}
		t := typeOf(f)
		fmt.Fprintf(&b, "\tfield:%s %s%s;\toffset:%d;\tsize:%d;\tsigned:%d;\n",
			t.name, f.Name, t.array, offset, t.size, t.signed)
		offset += t.size
		if !address(f.Name) {
			layout.WriteString(" " + f.Name + "=" + layoutOf(f.Type))
			args.WriteString(argsOf(f))
		}
	}
	text, values := head(fields)+layout.String(), addresses(fields)+args.String()
	if head(fields) == "" { // an event without a place begins with its first field
		text, values = strings.TrimPrefix(text, " "), strings.TrimPrefix(values, ", ")
	}
	fmt.Fprintf(&b, "\nprint fmt: \"%s\", %s\n", text, values)
	return b.String()
}

func address(name string) bool { return strings.HasPrefix(name, "__probe_") }

// head is how the addresses are printed.
func head(fields []fetch.Field) string {
	switch {
	case has(fields, "__probe_ret_ip"):
		return "(%lx <- %lx)"
	case has(fields, "__probe_ip"):
		return "(%lx)"
	}
	return ""
}

func addresses(fields []fetch.Field) string {
	switch {
	case has(fields, "__probe_ret_ip"):
		return "REC->__probe_func, REC->__probe_ret_ip"
	case has(fields, "__probe_ip"):
		return "REC->__probe_ip"
	}
	return ""
}

func has(fields []fetch.Field, name string) bool {
	return slices.ContainsFunc(fields, func(f fetch.Field) bool { return f.Name == name })
}

// cType is a field's type as C has it.
type cType struct {
	name, array  string
	size, signed int
}

func typeOf(f fetch.Field) cType {
	if address(f.Name) {
		return cType{name: "unsigned long", size: 8}
	}
	t := cType{name: fmt.Sprintf("u%d", 8*f.Type.Size), size: f.Type.Size}
	switch {
	case isText(f.Type):
		t = cType{name: "__data_loc char[]", size: 4, signed: 1}
	case f.Type.HasSign():
		t.name, t.signed = fmt.Sprintf("s%d", 8*f.Type.Size), 1
	case f.Type.Kind == fetch.Float:
		t.name, t.signed = map[int]string{4: "float", 8: "double"}[f.Type.Size], 1
	}
	if f.Type.Count > 0 {
		t.size *= f.Type.Count
		t.array = fmt.Sprintf("[%d]", f.Type.Count)
		if isText(f.Type) { // the brackets are part of the type
			t.name, t.array = fmt.Sprintf("__data_loc char[][%d]", f.Type.Count), ""
		}
	}
	return t
}

func isText(t fetch.Type) bool {
	return t.Kind == fetch.String || t.Kind == fetch.UString || t.Kind == fetch.SymStr
}

// layoutOf is the type's conversion, of an array all of them.
func layoutOf(t fetch.Type) string {
	if t.Count == 0 {
		return conversion(t)
	}
	return "{" + strings.Repeat(conversion(t)+",", t.Count-1) + conversion(t) + "}"
}

func conversion(t fetch.Type) string {
	long := ""
	if t.Size == 8 {
		long = "L"
	}
	if t.HasSign() {
		return "%" + long + "d"
	}
	switch t.Kind {
	case fetch.Float:
		return "%g"
	case fetch.Hex:
		return "0x%" + long + "x"
	case fetch.Char:
		return "'%c'"
	case fetch.SymbolOff:
		return "%pS"
	case fetch.String, fetch.UString, fetch.SymStr:
		return `\"%s\"`
	}
	return "%" + long + "u" // bit fields too
}

// argsOf is what the conversions print.
func argsOf(f fetch.Field) string {
	value := "REC->" + f.Name + "%s"
	if isText(f.Type) {
		value = "__get_str(" + f.Name + "%s)"
	}
	if f.Type.Count == 0 {
		return ", " + fmt.Sprintf(value, "")
	}
	var b strings.Builder
	for i := range f.Type.Count {
		b.WriteString(", " + fmt.Sprintf(value, fmt.Sprintf("[%d]", i)))
	}
	return b.String()
}
