package symbols

import (
	"errors"
	"math"
	"slices"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/symbols/walk"
)

// entryPart is the reg of a part that is the address of a map's value, which is looked for at each hit.
const entryPart = "entry"

// mapEntry is the value under a key of a Go map.
type mapEntry struct {
	of  place // of the map
	typ *dtype
	key any // a string, bool, int64, uint64 or float64 that keys of the map can be
}

// Bounds of the search for one key: about a millisecond of reading.
const (
	mostKeyPages = 512
	mostKeyReads = 1 << 14
)

var (
	errNoKey   = errors.New("no such key")
	errManyMap = errors.New("the map is too large to be searched while a thread waits")
)

// entry goes to the value under a key of a Go map.
func (w *way) entry(key any) error {
	c, ok := w.typ.printer(w.lang).(*container)
	if !ok || c.each == nil {
		return ErrNoElement
	}
	fit, ok := c.key.typ.fits(key)
	if !ok {
		return ErrKey
	}
	w.place = place{parts: []part{{size: 8, reg: entryPart, entry: &mapEntry{w.place, w.typ, fit}}}, isIndirect: true}
	w.typ = c.val.typ
	return nil
}

// isMap tells that elements of t are found by keys.
func (w *way) isMap() bool {
	c, ok := w.typ.printer(w.lang).(*container)
	return ok && c.each != nil
}

// isSought tells that p is looked for at each hit.
func (p Param) isSought() bool { return p.late != nil || p.dynamic != nil || p.place.isSought() }

// isSought tells that a place is found at each hit, by a map's keys or the type that an interface holds.
func (p place) isSought() bool {
	return slices.ContainsFunc(p.parts, func(x part) bool { return x.entry != nil }) ||
		slices.ContainsFunc(p.limits, func(l limit) bool { return l.holds != nil || l.length.isSought() })
}

// fits makes of a key one that a t may be equal to: a number of its kind. What debug information says of t may be wrong, as may be its size.
func (t *dtype) fits(key any) (fit any, ok bool) {
	isWord := t.size >= 1 && t.size <= 8
	bits := 8 * uint(t.size)
	switch k := key.(type) {
	case string:
		return k, t.kind == typeGoString && t.size == 16
	case bool:
		return k, t.kind == typeBool && t.size == 1
	case float64:
		return k, t.isFloat()
	case uint64: // more than an int64 has
		return k, t.kind == typeUint && t.size == 8
	case int64:
		switch {
		case t.isFloat():
			return float64(k), int64(float64(k)) == k
		case t.kind == typeUint && isWord:
			return uint64(k), k >= 0 && (bits == 64 || k < 1<<bits)
		case t.kind == typeInt && isWord:
			return k, bits == 64 || k >= -1<<(bits-1) && k < 1<<(bits-1)
		}
	}
	return nil, false
}

// isFloat tells of a floating-point type that Go has it.
func (t *dtype) isFloat() bool { return t.kind == typeFloat && (t.size == 4 || t.size == 8) }

// read is the address of the value.
func (e *mapEntry) read(r arch.Regs, m arch.Memory) (arch.Addr, error) {
	raw, err := e.of.read(e.typ, r, m)
	if err != nil {
		return 0, err
	}
	c, ok := e.typ.printer(langGo).(*container)
	if !ok || c.each == nil {
		return 0, errNoPlace
	}
	pages := &walk.Pages{Mem: m, Left: mostKeyPages}
	header, n, err := c.begin(&formatter{mem: pages}, raw)
	switch {
	case err != nil:
		return 0, err
	case header == nil || n == 0:
		return 0, errNoKey
	case n < 0:
		return 0, errLength
	}
	s := &keySearch{c: c, key: e.key, r: &walk.Reader{Mem: pages, Left: mostKeyReads}}
	switch err := c.each(s.r, header, s.visit); {
	case errors.Is(err, walk.ErrMany):
		return 0, errManyMap
	case err != nil:
		return 0, err
	case s.at != 0:
		return s.value()
	case s.seen != n: // it was not all of it
		return 0, walk.ErrTorn
	}
	return 0, errNoKey
}

// keySearch looks at one key after the other.
type keySearch struct {
	c    *container
	key  any
	r    *walk.Reader
	seen int64
	at   arch.Addr // where the value lies, or its address does; 0 if it was not found yet

	raw  [16]byte // of one key, as the largest that fits has
	text []byte   // of one that is a text
}

// visit implements walk.Visit.
func (s *keySearch) visit(e walk.Entry) (more bool, err error) {
	s.seen++
	same, err := s.isAt(e.Key.Add(s.c.key.off))
	if same {
		s.at = e.Val.Add(s.c.val.off)
	}
	return !same, err
}

func (s *keySearch) value() (arch.Addr, error) {
	if !s.c.val.isIndirect {
		return s.at, nil
	}
	var word [8]byte
	err := s.r.Read(s.at, word[:])
	return arch.Addr(uintOf(word[:])), err
}

// isAt compares the key at an address as Go's == does.
func (s *keySearch) isAt(at arch.Addr) (bool, error) {
	raw := s.raw[:s.c.key.typ.size]
	if err := s.r.Read(at, raw); err != nil {
		return false, err
	}
	switch k := s.key.(type) {
	case string:
		if uintOf(raw[8:]) != uint64(len(k)) {
			return false, nil
		}
		if len(k) > len(s.text) {
			s.text = make([]byte, len(k))
		}
		text := s.text[:len(k)]
		err := s.r.Read(address(raw, 0), text)
		return err == nil && string(text) == k, err
	case bool:
		return (raw[0] != 0) == k, nil
	case int64:
		return intOf(raw) == k, nil
	case uint64:
		return uintOf(raw) == k, nil
	case float64:
		if len(raw) == 4 {
			return math.Float32frombits(uint32(uintOf(raw))) == float32(k), nil
		}
		return math.Float64frombits(uintOf(raw)) == k, nil
	}
	return false, errNoPlace
}
