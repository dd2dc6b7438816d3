package numbers

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/expr/fetch"
	"github.com/gokprobe/gokprobe/expr/values"
	"github.com/gokprobe/gokprobe/kprobes"
)

// doors are the fetch arguments and conditions of a function's call.
type doors struct {
	x      *checker
	f      *function
	paths  []string
	wants  []any
	all    *values.Values // every path
	passes *values.Values // a condition that the call meets
	// recorded tells that the target has recorded the call.
	recorded bool
	fails    []*values.Values
}

// doors makes fetch arguments and conditions of all that is known of f's parameters, or of its result.
func (x *checker) doors(f *function, at arch.Addr, atReturn bool) *doors {
	d := &doors{x: x, f: f}
	list := f.params
	if atReturn {
		list = nil
		if f.result != nil {
			list = []param{{"$retval", f.result.value}}
		}
	}
	var args, conds []string
	meets := func(w values.Wish) *values.Values {
		w.Return = atReturn
		v, err := w.At(x.s.Symbols(), values.Place{Addr: at})
		if err != nil {
			return nil
		}
		return v
	}
	for _, p := range list {
		for _, path := range slices.Sorted(maps.Keys(p.leaves)) {
			want := p.leaves[path]
			expr := p.name + path
			a := fmt.Sprintf("a%d=%s", len(args), expr)
			if _, ok := want.(string); ok {
				a += ":string"
			}
			if meets(values.Wish{Args: []string{a}}) == nil {
				x.unknown++
				continue
			}
			name := fmt.Sprintf("a%d", len(args))
			args, d.paths, d.wants = append(args, a), append(d.paths, expr), append(d.wants, want)
			pass, fail := conditions(name, want)
			conds = append(conds, pass...)
			for _, c := range fail {
				if v := meets(values.Wish{Hidden: slices.Clone(args), Filter: c}); v == nil {
					x.Errorf("%s: %s: no condition %s on %s", x.what, f.name, c, a)
				} else {
					d.fails = append(d.fails, v)
				}
			}
		}
	}
	if len(args) == 0 {
		return d
	}
	d.all = meets(values.Wish{Args: args})
	d.passes = meets(values.Wish{Hidden: args, Filter: strings.Join(conds, " && ")})
	if d.passes == nil && len(conds) > 0 {
		x.Errorf("%s: %s: no condition %v", x.what, f.name, conds)
	}
	return d
}

// conditions on a value that hold and that do not.
func conditions(name string, want any) (hold, fail []string) {
	switch n := want.(type) {
	case int64:
		sign, other := ">=", "<"
		if n < 0 {
			sign, other = "<", ">="
		}
		return []string{fmt.Sprintf("%s == %d && %s %s 0", name, n, name, sign)}, []string{fmt.Sprintf("%s %s 0", name, other)}
	case uint64:
		return []string{fmt.Sprintf("%s == %d && %s >= 0", name, n, name)}, []string{fmt.Sprintf("%s != %d", name, n)}
	case float64:
		text := strconv.FormatFloat(n, 'f', -1, 64)
		return []string{fmt.Sprintf("%s == %s", name, text)}, []string{fmt.Sprintf("%s < %s || %s > %s", name, text, name, text)}
	case string:
		return []string{fmt.Sprintf("%s == %q", name, n)}, []string{fmt.Sprintf("%s != %q", name, n)}
	}
	return nil, nil
}

func (d *doors) check(regs *kprobes.Regs) {
	if d.all == nil {
		return
	}
	fetched := func(v *values.Values) []fetch.Value {
		payload, err := v.Layout.Run(regs, regs, nil)
		if err != nil {
			d.x.Error(err)
		}
		return v.Layout.Decode(payload, fetch.Host{})
	}
	for i, v := range fetched(d.all) {
		d.x.same(d.f, "-arg "+d.paths[i], d.wants[i], shown(d.all.Args[i].Type, v))
	}
	if d.passes != nil && !d.passes.Keeps(fetched(d.passes), "", 0) {
		d.x.wrong++
		d.x.Errorf("%s: %s: it does not meet %s", d.x.what, d.f.name, d.passes.Filter)
	}
	for _, v := range d.fails {
		if v.Keeps(fetched(v), "", 0) {
			d.x.wrong++
			d.x.Errorf("%s: %s: it meets %s", d.x.what, d.f.name, v.Filter)
		}
	}
}

// shown is a fetched value as JSON has it.
func shown(t fetch.Type, v fetch.Value) any {
	if t.Count > 0 {
		t.Count = 0
		var all []any
		for _, e := range v.Elems {
			all = append(all, shown(t, e))
		}
		return all
	}
	switch {
	case v.Fault:
		return "(fault)"
	case t.HasSign():
		return int64(v.U)
	case t.Kind == fetch.Float:
		return t.Float(v)
	case t.Kind == fetch.String:
		return v.S
	}
	return v.U
}
