package trigger

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/gokprobe/gokprobe/expr/caret"
	"github.com/gokprobe/gokprobe/expr/fetch"
)

// Synthetic is the definition of an event that histograms' actions make happen (Documentation/trace/histogram.rst
// §2.2; kernel/trace/trace_events_synth.c).
type Synthetic struct {
	Name   string
	Fields []fetch.Field // a type's Name is as it is listed; Size is the most bytes of a string with its zero

	remove bool
}

// SyntheticSystem is the system of synthetic events.
const SyntheticSystem = "synthetic"

const (
	maxSyntheticFields = 64
	maxSyntheticText   = 256
	maxName            = 63
)

var syntheticErrors = map[string]string{
	"BAD_NAME":           "Illegal name",
	"INVALID_CMD":        "Command must be of the form: <name> field[;field] ...",
	"INVALID_DYN_CMD":    "Command must be of the form: s or -:[synthetic/]<name> field[;field] ...",
	"EVENT_EXISTS":       "Event already exists",
	"TOO_MANY_FIELDS":    "Too many fields",
	"INCOMPLETE_TYPE":    "Incomplete type",
	"INVALID_TYPE":       "Invalid type",
	"INVALID_FIELD":      "Invalid field",
	"INVALID_ARRAY_SPEC": "Invalid array specification",
}

// syntheticTypes are the types of numbers.
var syntheticTypes = map[string]fetch.Type{
	"u8": {Size: 1}, "u16": {Size: 2}, "u32": {Size: 4}, "u64": {Size: 8},
	"s8": {Size: 1, Kind: fetch.Signed}, "s16": {Size: 2, Kind: fetch.Signed},
	"s32": {Size: 4, Kind: fetch.Signed}, "s64": {Size: 8, Kind: fetch.Signed},
	"char": {Size: 1, Kind: fetch.Signed}, "short": {Size: 2, Kind: fetch.Signed},
	"int": {Size: 4, Kind: fetch.Signed}, "long": {Size: 8, Kind: fetch.Signed},
	"unsigned char": {Size: 1}, "unsigned short": {Size: 2}, "unsigned int": {Size: 4}, "unsigned long": {Size: 8},
	"pid_t": {Size: 4, Kind: fetch.Signed}, "gfp_t": {Size: 4}, "bool": {Size: 1},
}

// Error is what is wrong with a definition: one of the kernel's ids, and the text where the caret stands.
func (s *Synthetic) Error(line, id, at string) error {
	errno := syscall.EINVAL
	if id == "EVENT_EXISTS" {
		errno = syscall.EEXIST
	}
	return &caret.Error{System: "synthetic_events", ID: id, Text: syntheticErrors[id], Command: line,
		Column: max(0, strings.Index(line, at)), Errno: errno}
}

// ParseSynthetic reads a line of synthetic_events: NAME TYPE FIELD[;TYPE FIELD…], or !NAME, and with anything
// behind it, to delete the event. A line of dynamic_events has "s:" and maybe "synthetic/" in front of the name.
// Errors are *caret.Error.
func ParseSynthetic(line string) (*Synthetic, error) {
	s := &Synthetic{}
	rest, dynamic := line, false
	rest, s.remove = strings.CutPrefix(rest, "!")
	if rest, dynamic = strings.CutPrefix(rest, "s:"); dynamic {
		var ok bool
		if rest, ok = strings.CutPrefix(rest, SyntheticSystem+"/"); !ok && strings.Contains(strings.Fields(rest + " x")[0], "/") {
			return nil, s.Error(line, "INVALID_DYN_CMD", "")
		}
	}
	var fields string
	if i := strings.IndexAny(rest, " \t"); i >= 0 {
		rest, fields = rest[:i], strings.TrimSpace(rest[i:])
	}
	s.Name = rest
	switch {
	case rest == "" || strings.Contains(rest, ";"):
		return nil, s.Error(line, "INVALID_CMD", "")
	case !isName(rest):
		return nil, s.Error(line, "BAD_NAME", rest)
	case s.remove:
		return s, nil
	case fields == "" || fields[0] == ';':
		return nil, s.Error(line, "INVALID_CMD", "")
	}
	for text := range strings.SplitSeq(strings.TrimSuffix(fields, ";"), ";") {
		if err := s.field(line, strings.TrimSpace(text)); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Removes is whether the line deletes the event.
func (s *Synthetic) Removes() bool { return s.remove }

// field reads TYPE NAME or char NAME[N] or char[N] NAME; without N the string's length varies.
func (s *Synthetic) field(line, text string) error {
	words := strings.Fields(text)
	switch {
	case len(words) == 1 && words[0] == "unsigned", len(words) == 2 && words[0] == "unsigned" && syntheticTypes["unsigned "+words[1]].Size == 0:
		return s.Error(line, "INCOMPLETE_TYPE", text)
	case len(words) < 2:
		return s.Error(line, "INVALID_FIELD", text)
	case len(s.Fields) == maxSyntheticFields:
		return s.Error(line, "TOO_MANY_FIELDS", text)
	}
	kind, name := strings.Join(words[:len(words)-1], " "), words[len(words)-1]
	name, array, arrayed := strings.Cut(name, "[")
	if !arrayed {
		kind, array, arrayed = strings.Cut(kind, "[")
	}
	size, err := s.arraySize(line, words[len(words)-1], array, arrayed)
	if err != nil {
		return err
	}
	t, known := syntheticTypes[kind]
	switch {
	case !isName(name):
		return s.Error(line, "BAD_NAME", words[len(words)-1])
	case !known, arrayed && kind != "char":
		return s.Error(line, "INVALID_TYPE", text)
	case slices.ContainsFunc(s.Fields, func(f fetch.Field) bool { return f.Name == name }):
		return s.Error(line, "INVALID_FIELD", text)
	}
	t.Name = kind
	if arrayed {
		t = fetch.Type{Name: kind + "[" + array, Kind: fetch.String, Size: size}
	}
	s.Fields = append(s.Fields, fetch.Field{Name: name, Type: t})
	return nil
}

// arraySize reads N], or ] alone, which stands for the most.
func (s *Synthetic) arraySize(line, at, array string, arrayed bool) (int, error) {
	number, closed := strings.CutSuffix(array, "]")
	switch {
	case !arrayed:
		return 0, nil
	case closed && number == "":
		return maxSyntheticText, nil
	}
	n, err := strconv.Atoi(number)
	if !closed || err != nil || n <= 0 || n > maxSyntheticText {
		return 0, s.Error(line, "INVALID_ARRAY_SPEC", at)
	}
	return n, nil
}

// isName is whether s is an identifier that is not too long.
func isName(s string) bool {
	for i := range len(s) {
		c := s[i]
		if c != '_' && (c|0x20 < 'a' || c|0x20 > 'z') && (i == 0 || !isDigit(c)) {
			return false
		}
	}
	return s != "" && len(s) <= maxName
}

// String is the definition as synthetic_events lists it.
func (s *Synthetic) String() string {
	fields := make([]string, len(s.Fields))
	for i, f := range s.Fields {
		fields[i] = f.Type.Name + " " + f.Name
	}
	return s.Name + "\t" + strings.Join(fields, "; ")
}

// Values are values as the event's fields can hold them.
func (s *Synthetic) Values(values []fetch.Value) []fetch.Value {
	held := slices.Clone(values)
	for i, f := range s.Fields {
		switch shift := 64 - 8*f.Type.Size; {
		case isText(f.Type):
			held[i].S = held[i].S[:min(len(held[i].S), f.Type.Size-1)]
		case f.Type.Kind == fetch.Signed:
			held[i].U = uint64(int64(held[i].U) << shift >> shift)
		default:
			held[i].U = held[i].U << shift >> shift
		}
	}
	return held
}

// Append appends values as the trace shows them: field=value….
func (s *Synthetic) Append(b []byte, values []fetch.Value) []byte {
	for i, f := range s.Fields {
		b = append(b, ' ')
		switch {
		case isText(f.Type):
			b = fmt.Appendf(b, "%s=%s", f.Name, values[i].S)
		case f.Type.Kind == fetch.Signed:
			b = fmt.Appendf(b, "%s=%d", f.Name, int64(values[i].U))
		default:
			b = fmt.Appendf(b, "%s=%d", f.Name, values[i].U)
		}
	}
	return b
}
