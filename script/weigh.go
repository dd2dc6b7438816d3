package script

import (
	"slices"
	"strings"

	"go.starlark.net/starlark"
	"go.starlark.net/starlarkstruct"
	"go.starlark.net/syntax"
)

// bulk lists Starlark's functions that go through their arguments, and whether they
// also go through nested values.
var bulk = map[string]bool{
	"any": false, "all": false, "enumerate": false, "reversed": false, "zip": false, "list": false, "tuple": false,
	"max": true, "min": true, "sorted": true, "dict": true, "set": true, "bytes": true, "str": true, "repr": true,
	"print": true, "hash": true, "float": false,
}

// guards adds what instrument calls, and bulk functions that charge.
func (s *Script) guards(all starlark.StringDict) {
	for name, deep := range bulk {
		all[name] = s.guarded(starlark.Universe[name].(*starlark.Builtin), deep)
	}
	all["int"] = s.toInt()
	for _, op := range guardedOps {
		all[guardOp(op)] = starlark.NewBuiltin(guardOp(op), func(thread *starlark.Thread, _ *starlark.Builtin, args starlark.Tuple, _ []starlark.Tuple) (starlark.Value, error) {
			if err := s.chargeOp(op, args[0], args[1]); err != nil {
				return nil, err
			}
			return operate(op, args[0], args[1])
		})
		all[guardSet(op)] = starlark.NewBuiltin(guardSet(op), func(_ *starlark.Thread, _ *starlark.Builtin, args starlark.Tuple, _ []starlark.Tuple) (starlark.Value, error) {
			return args[1], s.chargeOp(op, args[0], args[1])
		})
	}
	all[guardSpread] = starlark.NewBuiltin(guardSpread, func(_ *starlark.Thread, _ *starlark.Builtin, args starlark.Tuple, _ []starlark.Tuple) (starlark.Value, error) {
		return args[0], s.running.charge(length(args[0]))
	})
	all[guardKey] = starlark.NewBuiltin(guardKey, func(_ *starlark.Thread, _ *starlark.Builtin, args starlark.Tuple, _ []starlark.Tuple) (starlark.Value, error) {
		return args[0], s.running.charge(s.keyWeight(args[0]))
	})
	all[guardLoop] = starlark.NewBuiltin(guardLoop, func(_ *starlark.Thread, _ *starlark.Builtin, args starlark.Tuple, _ []starlark.Tuple) (starlark.Value, error) {
		return args[0], nil
	})
	all[guardMethod] = starlark.NewBuiltin(guardMethod, s.callMethod)
	all["json"] = s.guardedModule(all["json"].(*starlarkstruct.Module))
}

// operate is x op y.
func operate(op syntax.Token, x, y starlark.Value) (starlark.Value, error) {
	switch op {
	case syntax.EQL, syntax.NEQ, syntax.LT, syntax.LE, syntax.GT, syntax.GE:
		ok, err := starlark.Compare(op, x, y)
		return starlark.Bool(ok), err
	}
	return starlark.Binary(op, x, y)
}

// guarded is a function that charges for its arguments.
func (s *Script) guarded(fn *starlark.Builtin, deep bool) *starlark.Builtin {
	return starlark.NewBuiltin(fn.Name(), func(thread *starlark.Thread, _ *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
		cost := uint64(0)
		for _, a := range args {
			if cost += length(a); deep {
				cost += s.weight(a)
			}
		}
		for _, kw := range kwargs {
			cost += s.weight(kw[1])
		}
		if err := s.running.charge(cost); err != nil {
			return nil, err
		}
		return fn.CallInternal(thread, args, kwargs)
	})
}

// guardedModule has all functions of a module charge for all that is in their arguments.
func (s *Script) guardedModule(m *starlarkstruct.Module) *starlarkstruct.Module {
	all := starlark.StringDict{}
	for name, v := range m.Members {
		if fn, ok := v.(*starlark.Builtin); ok {
			if name == "decode" {
				fn = s.decode(fn)
			}
			v = s.guarded(fn, true)
		}
		all[name] = v
	}
	return &starlarkstruct.Module{Name: m.Name, Members: all}
}

// callMethod calls its first argument with the others.
func (s *Script) callMethod(thread *starlark.Thread, _ *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	fn, args := args[0], args[1:]
	if b, ok := fn.(*starlark.Builtin); ok && b.Receiver() != nil {
		if err := s.running.charge(s.methodCost(b, args, kwargs)); err != nil {
			return nil, err
		}
	}
	return starlark.Call(thread, fn, args, kwargs)
}

// methodCost is what a method of one of Starlark's own types takes.
func (s *Script) methodCost(b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) uint64 {
	text, isText := b.Receiver().(starlark.String)
	cost := uint64(1)
	for _, a := range args {
		cost += length(a)
	}
	if !isText {
		return cost + s.containerCost(b, args)
	}
	cost += length(text)
	switch b.Name() {
	case "join":
		for _, a := range args {
			cost += s.weight(a) + length(a)*length(text)
		}
	case "replace":
		if len(args) >= 2 {
			old, _ := starlark.AsString(args[0])
			cost += uint64(strings.Count(string(text), old)) * (1 + length(args[1]))
		}
	case "format":
		places := uint64(strings.Count(string(text), "{"))
		for _, a := range args {
			cost += places * s.weight(a)
		}
		for _, kw := range kwargs {
			cost += places * s.weight(kw[1])
		}
	}
	return cost
}

// containerCost is what a method of a list, dict, set or bytes takes, beside going through its arguments.
func (s *Script) containerCost(b *starlark.Builtin, args starlark.Tuple) (cost uint64) {
	if !changesOneEnd[b.Name()] {
		cost = length(b.Receiver())
	}
	if len(args) == 0 {
		return cost
	}
	_, isDict := b.Receiver().(*starlark.Dict)
	_, isSet := b.Receiver().(*starlark.Set)
	switch {
	case isDict || isSet:
		if takesOneKey[b.Name()] {
			return cost + s.keyWeight(args[0])
		}
		for _, a := range args {
			cost += s.keysWeight(a, isDict)
		}
	case b.Name() == "index" || b.Name() == "remove":
		cost += length(b.Receiver()) * s.weight(args[0])
	}
	return cost
}

// takesOneKey are methods of dicts and sets whose first argument is a key, or an element, and not many of them.
var takesOneKey = map[string]bool{"get": true, "setdefault": true, "pop": true, "add": true, "discard": true, "remove": true}

// changesOneEnd are methods that do not go through all of their receiver.
var changesOneEnd = map[string]bool{
	"append": true, "extend": true, "pop": true, "get": true, "setdefault": true, "update": true, "add": true, "discard": true,
}

// chargeOp charges for x op y. The error may also be that the result is too large.
func (s *Script) chargeOp(op syntax.Token, x, y starlark.Value) error {
	if err := checkOp(op, x, y); err != nil {
		return err
	}
	i, isInt := x.(starlark.Int)
	j, both := y.(starlark.Int)
	if isInt && both {
		if _, small := i.Int64(); small {
			if _, small := j.Int64(); small {
				return nil
			}
		}
		return s.running.charge(1 + length(x)*length(y))
	}
	cost := length(x) + length(y)
	switch op {
	case syntax.STAR:
		cost += repeated(x, y) + repeated(y, x)
	case syntax.PERCENT:
		cost += s.weight(y)
	case syntax.EQL, syntax.NEQ, syntax.LT, syntax.LE, syntax.GT, syntax.GE:
		if length(x) != 0 && length(y) != 0 {
			cost = min(s.weight(x), s.weight(y))
		}
	case syntax.IN, syntax.NOT_IN:
		switch y.(type) {
		case *starlark.List, starlark.Tuple:
			cost = length(y) * (1 + s.weight(x))
		case starlark.String, starlark.Bytes:
		default:
			cost = s.keyWeight(x)
		}
	}
	return s.running.charge(cost)
}

// repeated is what n times x is long.
func repeated(x, n starlark.Value) uint64 {
	times, err := starlark.AsInt32(n)
	if err != nil || times <= 0 {
		return 0 // the interpreter refuses what is larger
	}
	switch x := x.(type) {
	case starlark.String, starlark.Bytes:
		return uint64(starlark.Len(x)) * uint64(times) / textPerStep
	case *starlark.List, starlark.Tuple:
		return uint64(starlark.Len(x)) * uint64(times)
	}
	return 0
}

// length returns the steps of going through v, without its nested values.
func length(v starlark.Value) uint64 {
	switch v := v.(type) {
	case starlark.String:
		return uint64(len(v)) / textPerStep
	case starlark.Bytes:
		return uint64(len(v)) / textPerStep
	case starlark.Int:
		if _, small := v.Int64(); small {
			return 0
		}
		return 1 + uint64(v.BigInt().BitLen())/64
	case starlark.Sequence:
		return uint64(max(v.Len(), 0))
	}
	return 0
}

// maxNesting is how deep weight looks: values that are nested deeper can't be printed,
// compared or looked up.
const maxNesting = 500

// weight is the steps that going through v takes, and through all that is in it, as often as
// it is in it; at most a little more than the whole budget.
func (s *Script) weight(v starlark.Value) uint64 {
	w := weigher{limit: s.running.steps}
	w.add(v)
	s.running.deep = s.running.deep || w.deep
	return w.n
}

// keyWeight returns the steps of hashing v: an element of a tuple or struct is hashed
// as often as it occurs.
func (s *Script) keyWeight(v starlark.Value) uint64 {
	switch v.(type) {
	case starlark.Tuple, *starlarkstruct.Struct:
		return s.weight(v)
	}
	return length(v)
}

// keysWeight is keyWeight for all elements of v, or for the first of each where they are pairs.
func (s *Script) keysWeight(v starlark.Value, pairs bool) (cost uint64) {
	all, ok := v.(starlark.Iterable)
	if !ok {
		return 0
	}
	_, mapping := v.(starlark.Mapping)
	for e := range starlark.Elements(all) {
		if pair, ok := e.(starlark.Indexable); ok && pairs && !mapping && pair.Len() > 0 {
			e = pair.Index(0)
		}
		if cost += s.keyWeight(e); cost > s.running.steps {
			break
		}
	}
	return cost
}

// weigher counts the parts of a value.
type weigher struct {
	n, limit uint64
	inside   []starlark.Value // the lists and dicts it is in: one that is in itself is gone through once
	depth    int
	deep     bool // it is nested deeper than maxNesting
}

func (w *weigher) add(v starlark.Value) {
	if w.n++; w.n > w.limit {
		return
	}
	if w.depth++; w.depth > maxNesting {
		w.n, w.deep = w.limit+1, true
	} else {
		w.elements(v)
	}
	w.depth--
}

// elements adds the parts of v.
func (w *weigher) elements(v starlark.Value) {
	switch v.(type) {
	case *starlark.List, *starlark.Dict:
		if slices.Contains(w.inside, v) {
			return
		}
		w.inside = append(w.inside, v)
		defer func() { w.inside = w.inside[:len(w.inside)-1] }()
	}
	switch v := v.(type) {
	case starlark.String, starlark.Bytes:
		w.n += length(v)
	case starlark.Int:
		w.n += length(v) + conversion(bitLen(v))
	case starlark.IterableMapping:
		for _, pair := range v.Items() {
			w.add(pair[0])
			w.add(pair[1])
		}
	case *starlarkstruct.Struct:
		all := starlark.StringDict{}
		v.ToStringDict(all)
		for _, e := range all {
			w.add(e)
		}
	case starlark.Indexable:
		for i := 0; i < v.Len() && w.n <= w.limit; i++ {
			w.add(v.Index(i))
		}
	case *starlark.Set:
		for e := range starlark.Elements(v) {
			w.add(e)
		}
	}
}
