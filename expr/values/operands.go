package values

import (
	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/expr/fetch"
	"github.com/gokprobe/gokprobe/symbols"
)

// operandFields are Values.Operands as fields of a filter.
func operandFields(operands []symbols.Param) []fetch.Field {
	fields := make([]fetch.Field, len(operands))
	for i, p := range operands {
		shape, size, _ := p.Compares()
		fields[i] = fetch.Field{Name: p.Name, Type: TypeOf(operandType(shape, size))}
	}
	return fields
}

func operandType(s symbols.Shape, size int64) string {
	switch s {
	case symbols.ShapeText:
		return "string"
	case symbols.ShapePointer:
		return "u64"
	}
	return numberName(s, size)
}

// longestText is what no text is longer than that a filter compares with others.
const longestText = 256

// KeepsAt is Keeps, with the values that Operands have in r and m. One that is not known meets no comparison.
func (v *Values) KeepsAt(r arch.Regs, m arch.Memory, values []fetch.Value, comm string, tid int, more ...fetch.Value) bool {
	if v == nil || len(v.Operands) == 0 {
		return v.Keeps(values, comm, tid, more...)
	}
	all := make([]fetch.Value, v.more, v.more+len(v.Operands)) // a return may have fewer
	copy(all, more)
	for _, p := range v.Operands {
		c, err := p.Compared(r, m)
		all = append(all, fetch.Value{U: c.Bits, S: c.Text, Fault: err != nil, Absent: err != nil})
	}
	return v.Keeps(values, comm, tid, all...)
}

// Read are all that is read as the source's language has it: Wholes, then Operands. Of nil it is nothing.
func (v *Values) Read() []symbols.Param {
	if v == nil {
		return nil
	}
	return append(v.Wholes[:len(v.Wholes):len(v.Wholes)], v.Operands...)
}
