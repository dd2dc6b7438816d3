package script

import (
	"errors"
	"fmt"

	"go.starlark.net/starlark"

	"github.com/gokprobe/gokprobe/expr/fetch"
	"github.com/gokprobe/gokprobe/expr/values"
	"github.com/gokprobe/gokprobe/symbols"
)

// registers is ctx.regs: ctx.regs.rdi, ctx.regs["rdi"], to read and to set.
type registers struct{ c *hitContext }

func (r registers) String() string      { return "<registers>" }
func (registers) Type() string          { return "registers" }
func (registers) Freeze()               {}
func (registers) Truth() starlark.Bool  { return true }
func (registers) Hash() (uint32, error) { return 0, errors.New("unhashable type: registers") }

// Attr implements starlark.HasAttrs.
func (r registers) Attr(name string) (starlark.Value, error) {
	if r.c.hit == nil {
		return nil, errLate
	}
	if v, ok := r.c.hit.Get(name); ok {
		return starlark.MakeUint64(v), nil
	}
	return nil, nil
}

// AttrNames implements starlark.HasAttrs.
func (r registers) AttrNames() []string {
	if r.c.hit == nil {
		return nil
	}
	return r.c.hit.Names()
}

// Get implements starlark.Mapping.
func (r registers) Get(k starlark.Value) (starlark.Value, bool, error) {
	name, _ := starlark.AsString(k)
	v, err := r.Attr(name)
	return v, v != nil, err
}

// SetField implements starlark.HasSetField.
func (r registers) SetField(name string, v starlark.Value) error {
	if r.c.hit == nil {
		return errLate
	}
	var w word
	if err := w.Unpack(v); err != nil {
		return fmt.Errorf("ctx.regs.%s: %w", name, err)
	}
	switch ok := r.c.hit.Set(name, uint64(w)); {
	case ok:
		return nil
	case name == "":
		return errors.New("a register is named by a string")
	}
	if _, ok := r.c.hit.Get(name); ok {
		return fmt.Errorf("register %s can't be set; set the whole of it, such as rax for eax", name)
	}
	return starlark.NoSuchAttrError(fmt.Sprintf("there is no register %s", name))
}

// SetKey implements starlark.HasSetKey.
func (r registers) SetKey(k, v starlark.Value) error {
	name, _ := starlark.AsString(k)
	return r.SetField(name, v)
}

// arguments is ctx.args: the arguments that the probe's args name, and the function's
// parameters by their names, as far as debug information knows them.
type arguments struct{ c *hitContext }

func (a arguments) String() string      { return "<arguments>" }
func (arguments) Type() string          { return "arguments" }
func (arguments) Freeze()               {}
func (arguments) Truth() starlark.Bool  { return true }
func (arguments) Hash() (uint32, error) { return 0, errors.New("unhashable type: arguments") }

// Attr implements starlark.HasAttrs.
func (a arguments) Attr(name string) (starlark.Value, error) {
	if v, ok := a.c.values[name]; ok {
		return v, nil
	}
	if a.c.call != nil && a.c.call.params != nil {
		return a.c.call.params[name], nil
	}
	if a.c.hit == nil {
		return nil, errLate
	}
	if a.c.at != atPre && a.c.at != atEntry {
		return nil, fmt.Errorf("parameters are known at the function's entry; fetch %s with args=", name)
	}
	return a.c.parameter(name)
}

// Get implements starlark.Mapping.
func (a arguments) Get(k starlark.Value) (starlark.Value, bool, error) {
	name, _ := starlark.AsString(k)
	v, err := a.Attr(name)
	return v, v != nil, err
}

// AttrNames implements starlark.HasAttrs.
func (a arguments) AttrNames() []string {
	var names []string
	for name := range a.c.values {
		names = append(names, name)
	}
	params, _ := a.c.params()
	for _, p := range params {
		names = append(names, p.Name)
	}
	return names
}

func (c *hitContext) params() ([]symbols.Param, error) {
	return c.session().Symbols().Params(c.site.kp.Addr)
}

// parameter is a parameter of the function at whose entry the thread is; nil if there is
// none of that name.
func (c *hitContext) parameter(name string) (starlark.Value, error) {
	params, err := c.params()
	if err != nil {
		return nil, fmt.Errorf("nothing is known of the parameters: %w", values.NoParams(c.session().Symbols(), c.site.kp.Addr, err))
	}
	for _, p := range params {
		if p.Name == name {
			return typed(p, c.hit)
		}
	}
	return nil, nil
}

// typed is a parameter's or a result's value: numbers, truth values, texts, and lists
// and dicts of those. A value that can't be read is None.
func typed(p symbols.Param, h hit) (starlark.Value, error) {
	v := p.Value(h, h)
	if v.Err != nil && v.JSON == nil {
		return starlark.None, nil
	}
	if v.JSON == nil {
		return starlark.String(v.Text), nil
	}
	return fromJSON(v.JSON), nil
}

// fromJSON is the value that toJSON makes this of.
func fromJSON(v any) starlark.Value {
	switch v := v.(type) {
	case bool:
		return starlark.Bool(v)
	case int64:
		return starlark.MakeInt64(v)
	case uint64:
		return starlark.MakeUint64(v)
	case float64:
		return starlark.Float(v)
	case string:
		return starlark.String(v)
	case []any:
		all := make([]starlark.Value, len(v))
		for i, e := range v {
			all[i] = fromJSON(e)
		}
		return starlark.NewList(all)
	case map[string]any:
		all := starlark.NewDict(len(v))
		for k, e := range v {
			_ = all.SetKey(starlark.String(k), fromJSON(e)) // a string can be a key
		}
		return all
	case nil:
		return starlark.None
	}
	return starlark.String(fmt.Sprint(v))
}

// arg is ctx.arg(n): the n-th integer or pointer argument, from 0. At a return it is
// the value at the entry.
func (c *hitContext) arg(b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	var n int
	if err := starlark.UnpackArgs(b.Name(), args, kwargs, "n", &n); err != nil {
		return nil, err
	}
	if c.at == atReturn {
		if n < 0 || n >= len(c.call.args) {
			return nil, fmt.Errorf("at the return the first %d arguments are known, from 0", len(c.call.args))
		}
		return starlark.MakeUint64(c.call.args[n]), nil
	}
	v, err := c.argument(n)
	if err != nil {
		return nil, err
	}
	return starlark.MakeUint64(v), nil
}

// argument is an argument by number, where the function begins.
func (c *hitContext) argument(n int) (uint64, error) {
	in := c.site.abi().Args
	switch {
	case n < 0:
		return 0, errors.New("arguments are numbered from 0")
	case n < len(in):
		v, _ := c.hit.Get(in[n])
		return v, nil
	}
	v, err := c.hit.StackArg(n - len(in))
	if err != nil {
		return 0, unreadable(err)
	}
	return v, nil
}

// setArg is ctx.set_arg(n, value), for arguments in registers.
func (c *hitContext) setArg(b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	var n int
	var v word
	if err := starlark.UnpackArgs(b.Name(), args, kwargs, "n", &n, "value", &v); err != nil {
		return nil, err
	}
	in := c.site.abi().Args
	if n < 0 || n >= len(in) {
		return nil, fmt.Errorf("arguments 0 to %d are in registers; others are memory, behind ctx.regs.rsp", len(in)-1)
	}
	if c.at != atPre && c.at != atEntry {
		return nil, errors.New("the function has begun with its arguments; do it in pre or entry")
	}
	c.hit.Set(in[n], uint64(v))
	return starlark.None, nil
}

// abi is how the function at a place is called.
func (at *site) abi() fetch.ABI {
	if at.convention == nil {
		abi := values.ABIOf(at.part.m.session.Symbols(), at.kp.Addr)
		at.convention = &abi
	}
	return *at.convention
}
