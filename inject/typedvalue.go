package inject

import (
	"encoding/binary"
	"errors"
	"fmt"
	"go/ast"
	"math"
	"reflect"
	"strconv"
	"strings"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/symbols"
)

// making is the state of the call for which values are made.
type making struct {
	keeper *keeper
	memory keptMemory
	regs   arch.Regs // at the function's entry; also a symbols.FloatRegs
}

// maker makes the bytes of a value of one type.
type maker func(*making) ([]byte, error)

func constant(b []byte) maker { return func(*making) ([]byte, error) { return b, nil } }

// typing compiles expressions for a function's results.
type typing struct {
	table  *symbols.Table
	at     arch.Addr       // in the function
	params []symbols.Param // that values may refer to; none when the call has returned
}

// misfit is the error of an expression that is no value of a type.
func misfit(x expression, t symbols.Type, hint string) error {
	return fmt.Errorf("%s is no value for the type %s%s", x.text, t.Name(), hint)
}

// value compiles x for a place of type t.
func (c *typing) value(x expression, t symbols.Type) (maker, error) {
	if p, ok := c.param(x); ok {
		return copyOf(p, t)
	}
	switch t.Kind() {
	case reflect.Bool:
		return boolean(x, t)
	case reflect.Int, reflect.Uint:
		return c.integer(x, t)
	case reflect.Float64:
		return float(x, t)
	case reflect.Pointer, reflect.UnsafePointer:
		return c.pointer(x, t)
	}
	if x.isZero(t) {
		return constant(make([]byte, t.Size())), nil
	}
	if t.Go() {
		switch t.Kind() {
		case reflect.String:
			return text(x, t)
		case reflect.Slice:
			return slice(x, t)
		case reflect.Interface:
			return c.boxed(x, t.Name())
		case reflect.Struct:
			return c.structure(x, t)
		}
	}
	return nil, misfit(x, t, "; only 0, for all its bytes, can be had")
}

// isZero reports whether x means the zero value of t.
func (x expression) isZero(t symbols.Type) bool {
	if n, ok := x.number(); ok {
		return n == "0"
	}
	switch t.Kind() {
	case reflect.Slice, reflect.Interface:
		return x.name() == "nil"
	}
	return false
}

// param is the function's parameter that x names.
func (c *typing) param(x expression) (symbols.Param, bool) {
	name := x.name()
	for _, p := range c.params {
		if p.Name == name && name != "" && name != "_" {
			return p, true
		}
	}
	return symbols.Param{}, false
}

// longestCopy is how many bytes of a string parameter are copied.
const longestCopy = 4096

// copyOf makes a copy of the value of a parameter, whose type must be the same. The bytes of a
// string are copied too: the target may reuse their memory.
func copyOf(p symbols.Param, t symbols.Type) (maker, error) {
	from := p.TypeOf()
	if from.Kind() != t.Kind() || from.Size() != t.Size() {
		return nil, fmt.Errorf("the parameter %s has the type %s, not %s", p.Name, from.Name(), t.Name())
	}
	switch t.Kind() {
	case reflect.Bool, reflect.Int, reflect.Uint, reflect.Float64:
		return func(m *making) ([]byte, error) { return p.Bytes(m.regs, m.memory) }, nil
	case reflect.String:
		return func(m *making) ([]byte, error) {
			head, err := p.Bytes(m.regs, m.memory)
			if err != nil {
				return nil, err
			}
			n := min(binary.LittleEndian.Uint64(head[8:]), longestCopy)
			b := make([]byte, n)
			if err := m.memory.ReadMemory(arch.Addr(binary.LittleEndian.Uint64(head)), b); err != nil {
				return nil, err
			}
			return m.text(string(b))
		}, nil
	}
	return nil, fmt.Errorf("the parameter %s has the type %s, which can't be copied", p.Name, from.Name())
}

// text makes a Go string's header, and stores its bytes. If there is no room for them the string is empty.
func (m *making) text(s string) ([]byte, error) {
	if s == "" {
		return words(0, 0), nil
	}
	at, err := m.keeper.put(m.memory, []byte(s))
	if errors.Is(err, errKeptFull) {
		return words(0, 0), nil
	}
	return words(uint64(at), uint64(len(s))), err
}

func text(x expression, t symbols.Type) (maker, error) {
	s, ok := x.str()
	if !ok {
		return nil, misfit(x, t, `: write it in quotes, "like this"`)
	}
	return func(m *making) ([]byte, error) { return m.text(s) }, nil
}

// slice makes []byte("text").
func slice(x expression, t symbols.Type) (maker, error) {
	c, ok := x.node.(*ast.CallExpr)
	if ok {
		_, ok = c.Fun.(*ast.ArrayType)
	}
	if !ok || len(c.Args) != 1 || t.Elem().Size() != 1 {
		return nil, misfit(x, t, ": only nil can be had")
	}
	s, ok := x.with(c.Args[0]).str()
	if !ok {
		return nil, misfit(x, t, ": only nil can be had")
	}
	return func(m *making) ([]byte, error) {
		head, err := m.text(s)
		return append(head, head[8:]...), err
	}, nil
}

func boolean(x expression, t symbols.Type) (maker, error) {
	b := make([]byte, t.Size())
	n, _ := x.number()
	switch {
	case x.name() == "true", x.name() == "TRUE", n == "1":
		b[0] = 1
	case x.name() == "false", x.name() == "FALSE", n == "0":
	default:
		return nil, misfit(x, t, ": write true or false")
	}
	return constant(b), nil
}

func (c *typing) integer(x expression, t symbols.Type) (maker, error) {
	if fn, args := x.call(); len(args) == 1 && isSameType(fn, t.Name()) {
		return c.value(args[0], t)
	}
	n, ok := x.number()
	if v, known := t.Enumerator(x.name()); known {
		n, ok = strconv.FormatInt(v, 10), true
	}
	if e, known := errnoNamed(x.name()); known {
		n, ok = strconv.Itoa(int(e)), true
	}
	switch x.name() {
	case "true", "TRUE":
		n, ok = "1", true
	case "false", "FALSE":
		n, ok = "0", true
	}
	if !ok {
		return nil, misfit(x, t, "")
	}
	bits := int(8 * t.Size())
	if bits > 64 {
		return nil, misfit(x, t, fmt.Sprintf(", which has %d bits", bits))
	}
	v, err := wholeNumber(n, bits, t.Kind() == reflect.Int)
	if err != nil {
		return nil, misfit(x, t, ": "+err.Error())
	}
	return constant(words(v)[:t.Size()]), nil
}

// wholeNumber reads a number of so many bits. Hexadecimal ones may use all of them, for
// signed types, too. For unsigned ones, -1 sets all of them, as in C.
func wholeNumber(text string, bits int, signed bool) (uint64, error) {
	if u, err := strconv.ParseUint(text, 0, 64); err == nil {
		prefixed := len(text) > 1 && text[0] == '0'
		if bits < 64 && u>>bits != 0 || signed && !prefixed && u>>(bits-1) != 0 {
			return 0, fmt.Errorf("it does not fit into %d bits", bits)
		}
		return u, nil
	}
	v, err := strconv.ParseInt(text, 0, 64)
	if err != nil {
		return 0, fmt.Errorf("it is no whole number of 64 bits")
	}
	if low := int64(math.MinInt64) >> (64 - bits); v < low {
		return 0, fmt.Errorf("it does not fit into %d bits", bits)
	}
	return uint64(v), nil
}

func float(x expression, t symbols.Type) (maker, error) {
	n, ok := x.number()
	if !ok {
		n = x.name() // Inf, NaN
	}
	v, err := strconv.ParseFloat(n, int(8*t.Size()))
	if whole, werr := wholeNumber(n, 64, true); werr == nil { // hexadecimal ones, too
		v, err = float64(int64(whole)), nil
	}
	if err != nil || n == "" {
		return nil, misfit(x, t, ": write a number such as 2.5")
	}
	if t.Size() == 4 {
		return constant(binary.LittleEndian.AppendUint32(nil, math.Float32bits(float32(v)))), nil
	}
	return constant(words(math.Float64bits(v))), nil
}

// pointer makes nil, an address, or a pointer to a structure of the pointer's type.
func (c *typing) pointer(x expression, t symbols.Type) (maker, error) {
	switch x.name() {
	case "nil", "NULL", "nullptr":
		return constant(words(0)), nil
	}
	if n, ok := x.number(); ok {
		v, err := wholeNumber(n, 64, false)
		if err != nil {
			return nil, misfit(x, t, ": "+err.Error())
		}
		return constant(words(v)), nil
	}
	typ, lit := x.literal()
	if lit == nil || !strings.HasPrefix(typ, "*") || !t.Go() {
		return nil, misfit(x, t, ": write an address or NULL")
	}
	if elem := t.Elem(); !isSameType(typ[1:], elem.Name()) {
		return nil, misfit(x, t, "")
	}
	return c.pointee(x, t.Elem())
}
