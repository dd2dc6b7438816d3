package symbols

import (
	"slices"
	"strconv"
)

// mostInRange is how many elements a StepRange leads to at most.
const mostInRange = 1 << 12

// elements goes to n elements, from number i on, as an array of theirs or as the one that it is.
func (w *way) elements(i, n int64, isArray bool) error {
	t := w.typ
	if t.kind == typeReference && t.elem != nil {
		w.follow(t.elem)
	}
	for w.unwrap() {
	}
	t = w.typ
	row := func(elem *dtype, isText bool) *dtype {
		if !isArray {
			return elem
		}
		return &dtype{kind: typeArray, name: elem.name + " [" + strconv.FormatInt(n, 10) + "]", elem: elem, count: n, size: n * elem.size, align: elem.align, isCut: isText}
	}
	switch {
	case t.kind == typeArray && t.elem != nil:
		all, inner := t.rows()
		if len(t.lows) > 0 {
			i -= t.lows[0]
		}
		if err := w.has(i, n, all, inner); err != nil {
			return err
		}
		return w.inside(i*inner.size, row(inner, w.lang == langC && inner.isText()))
	case t.kind == typePointer && t.elem != nil && t.elem.size > 0 && t.elem.size <= largestType/n:
		elem := t.elem
		w.follow(elem)
		return w.inside(i*elem.size, row(elem, w.lang == langC && elem.isText()))
	}
	s, ok := t.sequence(w.lang)
	if !ok || s.elem.size <= 0 || i < 0 || i+n-1 > largestType/s.elem.size {
		return ErrNoElement
	}
	length := *w
	if err := length.countOf(s); err != nil {
		return err
	}
	if err := w.inside(s.addr, wordType); err != nil {
		return err
	}
	length.place.limits = nil // they are among those of the element, which are met one after the other
	w.place.limits = append(slices.Clone(w.place.limits), limit{length: &length.place, index: i + n - 1})
	w.follow(s.elem)
	return w.inside(i*s.elem.size, row(s.elem, s.isText))
}

// countOf goes to how many elements there are.
func (w *way) countOf(s sequence) error {
	from := *w
	err := w.inside(s.length, lengthType)
	if err != nil || !s.isSpan {
		return err
	}
	err = from.inside(s.addr, wordType)
	from.place.limits = nil
	w.place.number = &derived{from: &from.place, size: s.elem.size}
	return err
}

// has tells whether there are n elements of type t from number i on, among all of an array. A C array whose length is not told has as many as one asks for.
func (w *way) has(i, n, all int64, t *dtype) error {
	open := all == 0 && w.lang == langC
	if i < 0 || i+n > all && !open || t.size <= 0 || i+n-1 > largestType/t.size {
		return ErrNoElement
	}
	if open && !w.place.isIndirect {
		for _, x := range w.place.parts {
			if x.reg != "" {
				return ErrNoElement
			}
		}
	}
	return nil
}
