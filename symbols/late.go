package symbols

import (
	"errors"
	"fmt"
	"math/big"
)

// Sum is an index that each hit may have another one of.
type Sum struct {
	N     int64
	Terms []Term
}

// Term is a whole number of the target's that is added, or taken off.
type Term struct {
	Param Param
	Minus bool
}

// late is a value that a path leads to which is gone at each hit, since indexes are variables.
type late struct {
	base  Param
	steps []Step
}

// ErrNoIndex tells of an index that it is no whole number.
var ErrNoIndex = errors.New("the index is no whole number")

func (s Step) isLate() bool { return s.IndexOf != nil || s.EndOf != nil }

// lateAt is At for a path with variables, or one that follows such a path.
func (p Param) lateAt(name string, path []Step) (Param, error) {
	base, steps, before := p, path, 0
	if p.late != nil {
		base, steps = p.late.base, append(p.late.steps[:len(p.late.steps):len(p.late.steps)], path...)
		before = len(p.late.steps)
	}
	end, err := base.sampleAt(name, steps, 0)
	if errors.Is(err, ErrNoElement) { // Fortran counts from 1
		end, err = base.sampleAt(name, steps, 1)
	}
	var wrong *StepError
	if errors.As(err, &wrong) {
		wrong.Step = max(wrong.Step-before, 0)
		return Param{}, wrong
	}
	for i, s := range path {
		for _, sum := range []*Sum{s.IndexOf, s.EndOf} {
			if sum != nil && !sum.isWhole() {
				return Param{}, &StepError{Step: i, Err: ErrNoIndex}
			}
		}
	}
	steps, failed, err := base.understood(steps)
	if err != nil {
		return Param{}, &StepError{max(failed-before, 0), err, nil}
	}
	end.late, end.place = &late{base, steps}, place{isUnknown: true}
	return end, nil
}

// sampleAt is where steps lead to with such an index: of the same type as with any other one.
func (p Param) sampleAt(name string, steps []Step, index int64) (Param, error) {
	sample := make([]Step, len(steps))
	for i, s := range steps {
		if sample[i] = s; s.isLate() {
			sample[i] = Step{Kind: s.Kind, Index: index, End: index + 1}
		}
	}
	return p.At(name, sample...)
}

func (s *Sum) isWhole() bool {
	for _, t := range s.Terms {
		if x, _, ok := t.Param.Compares(); !ok || x != ShapeSigned && x != ShapeUnsigned {
			return false
		}
	}
	return true
}

// of is the number at a hit.
func (s *Sum) of(n int64, w spot) (int64, error) {
	if s == nil {
		return n, nil
	}
	sum := big.NewInt(s.N)
	for _, t := range s.Terms {
		c, err := t.Param.Compared(w.regs, w.mem)
		if err != nil {
			return 0, err
		}
		v := new(big.Int).SetUint64(c.Bits)
		if shape, _, _ := t.Param.Compares(); shape == ShapeSigned {
			v.SetInt64(int64(c.Bits))
		}
		if t.Minus {
			v.Neg(v)
		}
		sum.Add(sum, v)
	}
	const most = 1 << 31
	if !sum.IsInt64() || sum.Int64() >= most || sum.Int64() <= -most {
		return 0, fmt.Errorf("the index %v is none that anything has", sum)
	}
	return sum.Int64(), nil
}

// at is the value of p at a hit.
func (p Param) at(w spot) (Param, error) {
	steps := make([]Step, len(p.late.steps))
	for i, s := range p.late.steps {
		var err error
		if s.Index, err = s.IndexOf.of(s.Index, w); err != nil {
			return p, err
		}
		if s.End, err = s.EndOf.of(s.End, w); err != nil {
			return p, err
		}
		if s.isLate() && s.Kind == StepRange && s.End <= s.Index {
			return p, fmt.Errorf("there is nothing from element %d up to element %d", s.Index, s.End)
		}
		s.IndexOf, s.EndOf = nil, nil
		steps[i] = s
	}
	q, err := p.late.base.At(p.Name, steps...)
	q.brief, q.bounds = p.brief, p.bounds
	return q, err
}
