package script

import (
	"errors"
	"math/bits"

	"go.starlark.net/starlark"
	"go.starlark.net/starlarkstruct"

	"github.com/gokprobe/gokprobe/inject/fault"
)

// random is a source of numbers that are the same for the same seed.
type random struct {
	seed uint64
	n    uint64
}

// next is the next 64 bits.
func (r *random) next() uint64 {
	r.n++
	return fault.Mix(r.seed, r.n-1)
}

// below is a number from 0 to n-1, all equally likely but for less than n/2^64.
func (r *random) below(n uint64) uint64 {
	hi, _ := bits.Mul64(r.next(), n)
	return hi
}

// unit is a number from 0 to less than 1.
func (r *random) unit() float64 { return float64(r.next()>>11) / (1 << 53) }

// module is the scenario's random.
func (r *random) module() *starlarkstruct.Module {
	fn := func(name string, f func(args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error)) *starlark.Builtin {
		return starlark.NewBuiltin("random."+name, func(_ *starlark.Thread, _ *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
			return f(args, kwargs)
		})
	}
	return &starlarkstruct.Module{Name: "random", Members: starlark.StringDict{
		"random": fn("random", r.random),
		"int":    fn("int", r.int),
		"chance": fn("chance", r.chance),
		"choice": fn("choice", r.choice),
		"seed":   starlark.MakeUint64(r.seed),
	}}
}

func (r *random) random(args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	if err := starlark.UnpackArgs("random.random", args, kwargs); err != nil {
		return nil, err
	}
	return starlark.Float(r.unit()), nil
}

// int is random.int(low, high): both may come.
func (r *random) int(args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	var low, high int64
	if err := starlark.UnpackArgs("random.int", args, kwargs, "low", &low, "high", &high); err != nil {
		return nil, err
	}
	if high < low {
		return nil, errors.New("random.int: high is less than low")
	}
	if span := uint64(high-low) + 1; span != 0 {
		return starlark.MakeInt64(low + int64(r.below(span))), nil
	}
	return starlark.MakeInt64(int64(r.next())), nil
}

func (r *random) chance(args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	var p starlark.Value
	if err := starlark.UnpackArgs("random.chance", args, kwargs, "p", &p); err != nil {
		return nil, err
	}
	f, ok := starlark.AsFloat(p)
	if !ok || f < 0 || f > 1 {
		return nil, errors.New("random.chance: p is a number from 0 to 1")
	}
	return starlark.Bool(r.unit() < f), nil
}

func (r *random) choice(args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	var from starlark.Indexable
	if err := starlark.UnpackArgs("random.choice", args, kwargs, "list", &from); err != nil {
		return nil, err
	}
	if from.Len() == 0 {
		return nil, errors.New("random.choice: the list is empty")
	}
	return from.Index(int(r.below(uint64(from.Len())))), nil
}
