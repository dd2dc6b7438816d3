package inject

import (
	"encoding/binary"
	"fmt"
	"go/ast"
	"reflect"
	"slices"
	"strings"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/escape"
	"github.com/gokprobe/gokprobe/symbols"
)

// A value of an interface type is two words: the address of the interface table of its type,
// and the value or its address. The linker has made such a table for every type that the
// target's own code converts to the interface. Only values of these types can be made.

// boxed compiles x for an interface, such as error.
func (c *typing) boxed(x expression, iface string) (maker, error) {
	if s, ok := x.str(); ok {
		return c.errorString(x, iface, s)
	}
	if typ, lit := x.literal(); typ != "" {
		return c.boxedLiteral(x, iface, typ, lit)
	}
	if fn, args := x.call(); fn != "" {
		return c.boxedCall(x, iface, fn, args)
	}
	name := x.name()
	if name == "nil" {
		return constant(words(0, 0)), nil
	}
	if _, ok := errnoNamed(name); ok {
		return c.boxedAs(x, iface, "syscall.Errno")
	}
	if strings.Contains(name, ".") {
		return c.variable(name, iface)
	}
	return nil, fmt.Errorf("%s is no %s: write an errno such as ENOENT, a variable such as io.EOF, a \"text\", or a Go expression such as &fs.PathError{Op: \"open\", Err: EIO}", x.text, iface)
}

// errorString compiles a value as errors.New makes it.
func (c *typing) errorString(x expression, iface, s string) (maker, error) {
	lit := &ast.CompositeLit{Elts: []ast.Expr{x.node}}
	m, err := c.boxedLiteral(x, iface, "*errors.errorString", lit)
	if err != nil {
		return nil, fmt.Errorf("errors.New(%q) can't be had: %w", s, err)
	}
	return m, nil
}

func (c *typing) boxedCall(x expression, iface, fn string, args []expression) (maker, error) {
	switch {
	case fn == "errors.New" && len(args) == 1:
		if s, ok := args[0].str(); ok {
			return c.errorString(args[0], iface, s)
		}
	case fn == "fmt.Errorf" && len(args) > 0:
		return c.errorf(x, iface, args)
	case len(args) == 1:
		return c.boxedAs(x, iface, fn)
	}
	return nil, fmt.Errorf("%s can't be had: only errors.New(\"text\"), fmt.Errorf(\"text: %%w\", ERROR) and conversions such as syscall.Errno(2) are understood", x.text)
}

// errorf compiles a value as fmt.Errorf makes it, of a text with one %w or none.
func (c *typing) errorf(x expression, iface string, args []expression) (maker, error) {
	format, ok := args[0].str()
	head, tail, wraps := strings.Cut(format, "%w")
	if !ok || strings.Contains(head+tail, "%") || wraps != (len(args) == 2) || len(args) > 2 {
		return nil, fmt.Errorf("%s can't be had: fmt.Errorf may have one %%w and no other verb", x.text)
	}
	if !wraps {
		return c.errorString(x.with(quoted(format)), iface, format)
	}
	inner, ok := args[1].message()
	if !ok {
		return nil, fmt.Errorf("%s can't be had: the text of the error that it wraps is not known; wrap an errno, a \"text\" or another fmt.Errorf", x.text)
	}
	lit := &ast.CompositeLit{Elts: []ast.Expr{quoted(head + inner + tail), args[1].node}}
	return c.boxedLiteral(x, iface, "*fmt.wrapError", lit)
}

// message returns the result of the Error method of x's value, if x itself holds the text.
func (x expression) message() (string, bool) {
	if s, ok := x.str(); ok {
		return s, true
	}
	if e, ok := errnoNamed(x.name()); ok {
		return e.Error(), true
	}
	fn, args := x.call()
	if len(args) == 0 || fn != "errors.New" && fn != "fmt.Errorf" {
		return "", false
	}
	s, ok := args[0].str()
	if ok && len(args) == 2 {
		var inner string
		inner, ok = args[1].message()
		s = strings.Replace(s, "%w", inner, 1)
	}
	return s, ok
}

// dynamic finds the interface table of a type, and the type's description in debug information.
func (c *typing) dynamic(iface, name string) (symbols.GoItab, symbols.Type, error) {
	all := c.table.GoItabs(c.at, iface)
	var found []symbols.GoItab
	for _, tab := range all {
		if isSameType(name, tab.Type) {
			found = append(found, tab)
		}
	}
	switch len(found) {
	case 0:
		return symbols.GoItab{}, symbols.Type{}, fmt.Errorf("the target never makes %s of a value of type %s%s", article(iface), name, others(all))
	case 1:
	default:
		return symbols.GoItab{}, symbols.Type{}, fmt.Errorf("the type %s is one of %s: write the full path", name, typeNames(found))
	}
	t, ok := c.table.GoReceiver(c.at, found[0].Type)
	if !ok {
		return symbols.GoItab{}, symbols.Type{}, fmt.Errorf("debug information does not describe the type %s", found[0].Type)
	}
	return found[0], t, nil
}

func article(iface string) string {
	if iface == "error" {
		return "an error"
	}
	return "a " + iface
}

// others lists some of the types for which there are interface tables.
func others(tabs []symbols.GoItab) string {
	if len(tabs) == 0 {
		return ": it has no symbols of interface tables (go:itab.…), or none for this interface"
	}
	const most = 8
	if len(tabs) > most {
		return ": it does of " + typeNames(tabs[:most]) + " …"
	}
	return ": it does of " + typeNames(tabs)
}

func typeNames(tabs []symbols.GoItab) string {
	var names []string
	for _, t := range tabs {
		names = append(names, t.Type)
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// isSameType reports whether the name that a user has written means a type of that full name: the
// package's path may be left out up to its last element.
func isSameType(written, full string) bool {
	w, wstar := strings.CutPrefix(written, "*")
	f, fstar := strings.CutPrefix(full, "*")
	return w != "" && wstar == fstar && (w == f || strings.HasSuffix(f, "/"+w))
}

// boxedLiteral compiles T{…} or &T{…}.
func (c *typing) boxedLiteral(x expression, iface, typ string, lit *ast.CompositeLit) (maker, error) {
	tab, t, err := c.dynamic(iface, typ)
	if err != nil {
		return nil, err
	}
	body := x.with(lit)
	var value maker
	if strings.HasPrefix(tab.Type, "*") {
		value, err = c.pointee(body, t.Elem())
	} else {
		value, err = c.structure(body, t)
	}
	if err != nil {
		return nil, err
	}
	return inInterface(tab, t, value), nil
}

// boxedAs compiles a value of the named type, which is no structure, such as syscall.Errno(2).
func (c *typing) boxedAs(x expression, iface, typ string) (maker, error) {
	tab, t, err := c.dynamic(iface, typ)
	if err != nil {
		return nil, err
	}
	if _, args := x.call(); len(args) == 1 {
		x = args[0]
	}
	value, err := c.value(x, t)
	if err != nil {
		return nil, err
	}
	return inInterface(tab, t, value), nil
}

// inInterface puts a value into an interface.
func inInterface(tab symbols.GoItab, t symbols.Type, value maker) maker {
	if !t.Direct() {
		value = kept(value)
	}
	return func(m *making) ([]byte, error) {
		data, err := value(m)
		if err != nil {
			return nil, err
		}
		return append(words(uint64(tab.Addr)), data...), nil
	}
}

// kept stores a value in the target, and makes its address.
func kept(value maker) maker {
	return func(m *making) ([]byte, error) {
		b, err := value(m)
		if err != nil {
			return nil, err
		}
		at, err := m.keeper.put(m.memory, b)
		return words(uint64(at)), err
	}
}

// pointee stores a structure in the target, and makes its address.
func (c *typing) pointee(x expression, t symbols.Type) (maker, error) {
	if _, lit := x.literal(); lit != nil {
		x = x.with(lit)
	}
	value, err := c.structure(x, t)
	if err != nil {
		return nil, err
	}
	return kept(value), nil
}

// structure compiles a composite literal's fields.
func (c *typing) structure(x expression, t symbols.Type) (maker, error) {
	lit, ok := x.node.(*ast.CompositeLit)
	if !ok || t.Kind() != reflect.Struct {
		return nil, misfit(x, t, "")
	}
	type member struct {
		off   int64
		value maker
	}
	fields, members := t.Fields(), []member(nil)
	for i, e := range lit.Elts {
		f, value, err := field(fields, t, x, i, e)
		if err != nil {
			return nil, err
		}
		v, err := c.value(value, f.Type)
		if err != nil {
			return nil, fmt.Errorf("%s.%s: %w", t.Name(), f.Name, err)
		}
		members = append(members, member{f.Offset, v})
	}
	return func(m *making) ([]byte, error) {
		b := make([]byte, t.Size())
		for _, f := range members {
			v, err := f.value(m)
			if err != nil {
				return nil, err
			}
			copy(b[f.off:], v)
		}
		return b, nil
	}, nil
}

// field finds the field for the i-th element of a literal, by its name or by its place.
func field(fields []symbols.Field, t symbols.Type, x expression, i int, e ast.Expr) (symbols.Field, expression, error) {
	kv, ok := e.(*ast.KeyValueExpr)
	if !ok {
		if i >= len(fields) {
			return symbols.Field{}, x, fmt.Errorf("%s has %s", t.Name(), escape.Count(len(fields), "field"))
		}
		return fields[i], x.with(e), nil
	}
	key := x.with(kv.Key).name()
	at := slices.IndexFunc(fields, func(f symbols.Field) bool { return f.Name == key })
	if at < 0 {
		return symbols.Field{}, x, fmt.Errorf("%s has no field %s", t.Name(), key)
	}
	return fields[at], x.with(kv.Value), nil
}

// variable compiles the value that a package's variable has when the call is made, such as
// io.EOF. It is the very same error, so comparisons in the target find it equal.
func (c *typing) variable(name, iface string) (maker, error) {
	found := c.table.GoVariables(c.at, name)
	switch len(found) {
	case 0:
		return nil, fmt.Errorf("the target has no variable %s; for an error of that text write errors.New(%q)", name, name)
	case 1:
	default:
		return nil, fmt.Errorf("the variable %s is one of %s and %s: write the full path", name, found[0].Name, found[1].Name)
	}
	if found[0].Size != 16 {
		return nil, fmt.Errorf("the variable %s is no %s", found[0].Name, iface)
	}
	like := c.table.GoItabs(c.at, iface)
	if len(like) == 0 {
		return nil, fmt.Errorf("the target has no %s%s", iface, others(nil))
	}
	return current(found[0], iface, like[0].Addr), nil
}

// current reads a variable, and makes sure that it holds a value of the interface: the table's
// first word is the interface's type (abi.ITab), the same in the table like.
func current(v symbols.Symbol, iface string, like arch.Addr) maker {
	return func(m *making) ([]byte, error) {
		value := make([]byte, 16)
		if err := m.memory.ReadMemory(v.Addr, value); err != nil {
			return nil, err
		}
		var want, have [8]byte
		tab := arch.Addr(binary.LittleEndian.Uint64(value))
		if tab == 0 {
			return nil, fmt.Errorf("the variable %s is nil", v.Name)
		}
		if m.memory.ReadMemory(like, want[:]) != nil || m.memory.ReadMemory(tab, have[:]) != nil || want != have {
			return nil, fmt.Errorf("the variable %s is no %s", v.Name, iface)
		}
		return value, nil
	}
}
