package script

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"go.starlark.net/starlark"

	"github.com/gokprobe/gokprobe/expr/caret"
	"github.com/gokprobe/gokprobe/expr/fetch"
	"github.com/gokprobe/gokprobe/expr/values"
)

// newWish is what args= and filter= ask of a probe's hits; nil if nothing is wanted.
func (p *probe) newWish(args texts, filter string) *values.Wish {
	if len(args) == 0 && filter == "" {
		return nil
	}
	w := &values.Wish{Args: args, Filter: filter, Params: true, Operands: true, Return: p.returns}
	if p.returns {
		w.More = values.ReturnFields
	}
	return w
}

// fetching finds out how what is wished is fetched at a place: where a parameter lies depends on the function.
func (pt *part) fetching(ctx context.Context, at *site) (err error) {
	if pt.p.wish == nil {
		return nil
	}
	table, place := pt.m.session.Symbols(), values.Place{Waits: true}
	if !at.Waits {
		place = values.Place{Addr: at.Addr}
		if err := table.ReadyParams(ctx, at.Addr); err != nil {
			return err
		}
	}
	if at.values, err = pt.p.wish.At(table, place); err != nil {
		return wishError(err)
	}
	return nil
}

// wishError reports a mistake in an argument or filter, and shows its place.
func wishError(err error) error {
	var wrong *values.Error
	var parse *caret.Error
	if !errors.As(err, &wrong) || wrong.Unknown != nil || !errors.As(err, &parse) {
		return err
	}
	col := min(parse.Column, len(parse.Command))
	return fmt.Errorf("%w: at the ^ in %s^%s", err, parse.Command[:col], parse.Command[col:])
}

// save keeps values of a call's entry for its return.
func (c *hitContext) save() []uint64 {
	if v := c.site.values; v != nil && v.Layout.Saved() > 0 {
		return v.Layout.Save(c.hit, c.hit)
	}
	return nil
}

// fetch makes the values of a hit, and tells whether the filter keeps it.
func (c *hitContext) fetch(saved []uint64) (keep bool, err error) {
	p := c.site.part.p
	v := c.site.values
	if v == nil {
		return true, nil
	}
	if !v.Stands(c.hit.Symbols()) {
		c.site.foreign.Add(1)
		return false, nil
	}
	comm := c.hit.Comm()
	got, err := v.Layout.Fetch(c.hit, c.hit, saved, values.Host(c.session().Symbols(), comm, nil))
	if err != nil {
		return false, c.script.errorAt(p.pos, err)
	}
	var more []fetch.Value
	if c.at == atReturn {
		more = []fetch.Value{{U: c.hit.ReturnValue()}, {U: uint64(c.took.Time)}}
	}
	if !v.KeepsAt(c.hit, c.hit, got, comm, c.tid, more...) {
		return false, nil
	}
	c.values = make(map[string]starlark.Value, len(got))
	for i, a := range v.Args {
		c.values[a.Name] = fetched(a.Type, got[i])
	}
	return true, nil
}

// fetched is a value by its type; None if it could not be read.
func fetched(t fetch.Type, v fetch.Value) starlark.Value {
	switch {
	case t.Count > 0:
		t.Count = 0
		all := make([]starlark.Value, len(v.Elems))
		for i, e := range v.Elems {
			all[i] = fetched(t, e)
		}
		return starlark.NewList(all)
	case v.Fault:
		return starlark.None
	}
	if t.HasSign() {
		return starlark.MakeInt64(int64(v.U))
	}
	switch t.Kind {
	case fetch.Float:
		return starlark.Float(t.Float(v))
	case fetch.Char:
		return starlark.String([]byte{byte(v.U)})
	case fetch.String, fetch.UString, fetch.SymbolOff, fetch.SymStr:
		return starlark.String(strings.ToValidUTF8(v.S, "\uFFFD"))
	}
	return starlark.MakeUint64(v.U)
}
