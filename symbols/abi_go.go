package symbols

import (
	"github.com/gokprobe/gokprobe/internal/host"
)

// goArgs is the state of the register assignment algorithm.
type goArgs struct {
	ints, floats int
	stack        int64
}

// goPlaces assigns the parameters of a Go function, the receiver first, and its
// results. The results use the same registers again; on the stack they come after the
// parameters. All stack distances are those at the entry. A unit without register
// arguments has ABI0: assembly, and Go before 1.17.
func goPlaces(params, results []*dtype, registers bool) (in, out []place) {
	a := &goArgs{stack: entryStack}
	in = a.places(params, registers)
	a.ints, a.floats = 0, 0
	a.stack = (a.stack + 7) &^ 7
	return in, a.places(results, registers)
}

func (a *goArgs) places(types []*dtype, registers bool) []place {
	out := make([]place, len(types))
	lost := false
	for i, t := range types {
		if lost = lost || t.kind == typeUnknown && t.size == 0; lost {
			out[i] = place{isUnknown: true}
			continue
		}
		saved := *a
		parts, ok := a.assign(t, 0, nil)
		if registers && ok {
			out[i] = place{parts: parts}
			continue
		}
		*a = saved
		if t.align > 0 {
			a.stack = (a.stack + t.align - 1) / t.align * t.align
		}
		out[i] = place{parts: []part{{size: t.size, stack: a.stack}}}
		a.stack += t.size
	}
	return out
}

// assign tries to place all scalars of t, which lies at off in its value, in
// registers.
func (a *goArgs) assign(t *dtype, off int64, parts []part) ([]part, bool) {
	switch t.kind {
	case typeFloat:
		return a.float(off, t.size, parts)
	case typeComplex:
		parts, ok := a.float(off, t.size/2, parts)
		if !ok {
			return nil, false
		}
		return a.float(off+t.size/2, t.size/2, parts)
	case typeArray:
		switch t.count {
		case 0:
			return parts, true
		case 1:
			return a.assign(t.elem, off, parts)
		}
		return nil, false
	case typeStruct:
		ok := true
		for _, f := range t.field {
			if parts, ok = a.assign(f.typ, off+f.off, parts); !ok {
				return nil, false
			}
		}
		return parts, true
	case typeGoString, typeGoInterface, typeGoSlice:
		ok := true
		for i := int64(0); i < t.size; i += 8 {
			if parts, ok = a.int(off+i, 8, parts); !ok {
				return nil, false
			}
		}
		return parts, true
	}
	if t.size > 8 {
		return nil, false
	}
	return a.int(off, t.size, parts)
}

func (a *goArgs) int(off, size int64, parts []part) ([]part, bool) {
	if a.ints == len(host.Go.Args) {
		return nil, false
	}
	a.ints++
	return append(parts, part{off: off, size: size, reg: host.Go.Args[a.ints-1]}), true
}

func (a *goArgs) float(off, size int64, parts []part) ([]part, bool) {
	if a.floats == host.Go.Vectors {
		return nil, false
	}
	a.floats++
	return append(parts, part{off: off, size: size, reg: "xmm", n: a.floats - 1}), true
}
