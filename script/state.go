package script

import (
	"fmt"

	"go.starlark.net/starlark"
	"go.starlark.net/syntax"
)

// state is where a scenario remembers: state.n = 1, state.n += 1, state["key"] = v.
// Functions can't assign to globals in Starlark; they can to this.
type state struct{ *starlark.Dict }

func (state) String() string       { return "state" }
func (state) Type() string         { return "state" }
func (state) Truth() starlark.Bool { return true }
func (state) Freeze()              {}

// Attr implements starlark.HasAttrs: the entry of that name, else a dict's method.
func (s state) Attr(name string) (starlark.Value, error) {
	if v, found, err := s.Get(starlark.String(name)); found || err != nil {
		return v, err
	}
	if v, err := s.Dict.Attr(name); v != nil || err != nil {
		return v, err
	}
	return nil, starlark.NoSuchAttrError(fmt.Sprintf("state has no %s yet", name))
}

// SetField implements starlark.HasSetField.
func (s state) SetField(name string, v starlark.Value) error {
	return s.SetKey(starlark.String(name), v)
}

// AttrNames implements starlark.HasAttrs.
func (s state) AttrNames() []string {
	names := s.Dict.AttrNames()
	for _, k := range s.Keys() {
		if name, ok := starlark.AsString(k); ok {
			names = append(names, name)
		}
	}
	return names
}

// counter is a number with a name, shown in the summary.
type counter struct {
	name string
	n    int64
}

// newCounter is counter(name): there is one of each name.
func (s *Script) newCounter(_ *starlark.Thread, b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	var name string
	if err := starlark.UnpackArgs(b.Name(), args, kwargs, "name", &name); err != nil {
		return nil, err
	}
	for _, c := range s.counters {
		if c.name == name {
			return c, nil
		}
	}
	c := &counter{name: name}
	s.counters = append(s.counters, c)
	return c, nil
}

func (c *counter) String() string        { return fmt.Sprintf("%s=%d", c.name, c.n) }
func (c *counter) Type() string          { return "counter" }
func (c *counter) Freeze()               {}
func (c *counter) Truth() starlark.Bool  { return c.n != 0 }
func (c *counter) Hash() (uint32, error) { return 0, fmt.Errorf("unhashable type: counter") }

// Attr implements starlark.HasAttrs.
func (c *counter) Attr(name string) (starlark.Value, error) {
	switch name {
	case "name":
		return starlark.String(c.name), nil
	case "value":
		return starlark.MakeInt64(c.n), nil
	case "add":
		return starlark.NewBuiltin("add", c.add), nil
	case "reset":
		return starlark.NewBuiltin("reset", c.reset), nil
	}
	return nil, nil
}

// AttrNames implements starlark.HasAttrs.
func (c *counter) AttrNames() []string { return []string{"add", "name", "reset", "value"} }

// CompareSameType implements starlark.Comparable.
func (c *counter) CompareSameType(op syntax.Token, y starlark.Value, _ int) (bool, error) {
	return starlark.Compare(op, starlark.MakeInt64(c.n), starlark.MakeInt64(y.(*counter).n))
}

func (c *counter) add(_ *starlark.Thread, b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	n := int64(1)
	if err := starlark.UnpackArgs(b.Name(), args, kwargs, "n?", &n); err != nil {
		return nil, err
	}
	c.n += n
	return starlark.MakeInt64(c.n), nil
}

func (c *counter) reset(_ *starlark.Thread, b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	if err := starlark.UnpackArgs(b.Name(), args, kwargs); err != nil {
		return nil, err
	}
	c.n = 0
	return starlark.None, nil
}
