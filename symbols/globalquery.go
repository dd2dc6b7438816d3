package symbols

import (
	"debug/dwarf"
	"hash/maphash"
	"slices"
	"strings"
)

// globalQuery is a search for a variable in one file.
type globalQuery struct {
	d         *dwarfData
	name      string
	scopes    []string // around the function
	here      *unit    // of the function; nil if that is in another file or unknown
	elsewhere bool     // the function is in another file, for which static variables are none
}

// mostAlike bounds the variables of one last name that are looked at: of more, none is found.
const mostAlike = 1 << 10

// find lists what the name may mean: what the source means, if that can be told.
func (q *globalQuery) find() []globalMatch {
	all := q.candidates()
	if q.here != nil && q.here.lang == langGo && !strings.Contains(q.name, ".") { // of the package
		return q.d.distinct(slices.DeleteFunc(all, func(g globalMatch) bool { return g.unit != q.here }))
	}
	if q.here != nil && q.here.lang == langGo { // packages may have the same last name
		return q.nearest(all)
	}
	for _, scope := range q.scopes {
		full := plainScope(inSpace(scope, q.name))
		var exact []globalMatch
		for _, g := range all {
			if plainScope(g.name) == full {
				exact = append(exact, g)
			}
		}
		if found := q.nearest(exact); len(found) > 0 {
			return found
		}
	}
	return q.nearest(all)
}

// nearest lists those of the function's unit, else those that it declares or that all units may use, else the static ones of others.
func (q *globalQuery) nearest(all []globalMatch) []globalMatch {
	var own, shared, declared, static []globalMatch
	for _, g := range all {
		switch {
		case g.isDeclared && g.unit == q.here:
			declared = append(declared, g)
		case g.isDeclared:
		case g.unit == q.here && q.here != nil:
			own = append(own, g)
		case g.external:
			shared = append(shared, g)
		default:
			static = append(static, g)
		}
	}
	order := [][]globalMatch{own, shared, declared, static}
	if q.elsewhere {
		order = [][]globalMatch{shared}
	}
	for _, found := range order {
		if found = q.d.distinct(found); len(found) > 0 {
			return found
		}
	}
	return nil
}

// candidates are the variables whose full names may be meant.
func (q *globalQuery) candidates() (all []globalMatch) {
	index := q.d.globalIndex()
	alike := index.byName[maphash.String(index.seed, lastName(q.name))]
	if len(alike) > mostAlike {
		return nil
	}
	for _, x := range alike {
		e := q.d.entryAt(x.off)
		if e == nil {
			continue
		}
		g := globalMatch{globalEntry: x}
		origins := q.d.origins(e)
		g.name, g.linkage = globalName(origins, x.space)
		g.external, _ = attr(origins, dwarf.AttrExternal).(bool)
		if means(q.name, g.name) || plainScope(g.name) == plainScope(q.name) || strings.HasSuffix(plainScope(g.name), "::"+plainScope(q.name)) {
			all = append(all, g)
		}
	}
	return all
}

// scopesOf lists the namespaces and classes around a function, the innermost first and at last none, by its name without parameters.
func scopesOf(function string) (scopes []string) {
	const most = 32
	name := plainScope(withoutParams(function))
	for range most {
		i := strings.LastIndex(name, "::")
		if i < 0 {
			break
		}
		name = name[:i]
		scopes = append(scopes, name)
	}
	return append(scopes, "")
}

// plainScope leaves out what a source does not write: namespaces without a name, arguments of templates.
func plainScope(name string) string {
	name = strings.ReplaceAll(name, "(anonymous namespace)::", "")
	var b strings.Builder
	depth := 0
	for i := range len(name) {
		switch c := name[i]; {
		case c == '<':
			depth++
		case c == '>':
			depth--
		case depth == 0:
			b.WriteByte(c)
		}
	}
	return b.String()
}
