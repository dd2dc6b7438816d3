package symbols

import "github.com/gokprobe/gokprobe/internal/budget"

// gathered is the memory of symbols that are being collected for an answer. Their demangled names may be much longer than the file's:
// a mangled name can refer to its own parts again and again.
type gathered struct {
	acct *budget.Account
	part *budget.Part
	sum  uint64 // bytes
}

// gather begins a list, which whoever calls it closes when it returns.
func gather() *gathered {
	acct := budget.Process().Brief()
	return &gathered{acct: acct, part: acct.Part("the names of all matching symbols")}
}

// add asks the budget for the memory of one more symbol.
func (g *gathered) add(sym Symbol) error {
	g.sum += sym.cost()
	return g.part.Set(g.sum)
}

func (g *gathered) close() { g.acct.Close() }

// cost is how many bytes s takes.
func (s *Symbol) cost() uint64 {
	const own = 256 // with its place in lists and maps
	return own + uint64(len(s.Name)+len(s.Linkage))
}
