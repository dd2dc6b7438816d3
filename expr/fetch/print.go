package fetch

import "strconv"

// Format prints an argument as the trace file does: name=value.
func (a Arg) Format(v Value) string { return string(a.AppendTo(nil, v)) }

// AppendTo appends what Format returns.
func (a Arg) AppendTo(b []byte, v Value) []byte {
	b = append(b, a.Name...)
	return a.Type.Append(append(b, '='), v)
}

// Append appends a value as the kernel prints it: numbers by their kind, a string in double quotes and
// otherwise as it is, one that could not be read as (fault), an array in braces.
func (t Type) Append(b []byte, v Value) []byte {
	if t.Count == 0 {
		return t.appendOne(b, v)
	}
	b = append(b, '{')
	for i, e := range v.Elems {
		if i > 0 {
			b = append(b, ',')
		}
		b = t.appendOne(b, e)
	}
	return append(b, '}')
}

func (t Type) appendOne(b []byte, v Value) []byte {
	if t.HasSign() {
		return strconv.AppendInt(b, int64(v.U), 10)
	}
	switch t.Kind {
	case Float:
		return strconv.AppendFloat(b, t.Float(v), 'g', -1, 8*t.Size)
	case Hex:
		return strconv.AppendUint(append(b, "0x"...), v.U, 16)
	case Char:
		return append(b, '\'', byte(v.U), '\'')
	case SymbolOff, Caller:
		return append(b, v.S...)
	case String, UString, SymStr:
		if v.Fault {
			return append(b, FaultText...)
		}
		return append(append(append(b, '"'), v.S...), '"')
	}
	return strconv.AppendUint(b, v.U, 10)
}

// FaultText is printed in place of a string that could not be read.
const FaultText = "(fault)"
