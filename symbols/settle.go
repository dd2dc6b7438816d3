package symbols

// settle decides on the places of parameters. It takes those of the convention where it must hold, and those of debug information where the
// compiler may have changed them. All others are unknown.
func (c callee) settle(lang language, params []Param, locations []location) {
	if lang == langGo || !c.isNocall && !(c.isLLVM && c.optimized()) {
		return
	}
	free := c.isNocall || !c.isExternal // of the convention
	certain := !c.isNocall
	for i, l := range locations {
		certain = certain && l.knowledge == saidPlace && l.place.equals(params[i].place)
	}
	for i, l := range locations {
		switch {
		case l.knowledge == saidNothing && params[i].typ.size > 0:
			params[i].place = place{isUnknown: true}
		case !free:
		case l.knowledge == saidPlace:
			params[i].place = l.place
		case !certain:
			params[i].place = place{isUnknown: true}
		}
	}
}

func (p place) equals(q place) bool {
	if p.isIndirect != q.isIndirect || p.behind != q.behind || p.isUnknown != q.isUnknown || len(p.parts) != len(q.parts) {
		return false
	}
	for i := range p.parts {
		if p.parts[i] != q.parts[i] {
			return false
		}
	}
	return true
}

// returnsAsDeclared reports whether a function returns the result that the source declares. When LLVM optimizes, it removes the result
// of a function that only its own file calls if no caller uses it.
func (c callee) returnsAsDeclared() bool {
	return !c.isNocall && (c.isMarked || c.keepsConvention())
}

// keepsConvention reports whether a result is surely at the place that the convention gives it. In a function that only its own file calls,
// LLVM need not return the address of a result in memory.
func (c callee) keepsConvention() bool {
	return !c.isLLVM || c.isExternal || !c.optimized()
}
