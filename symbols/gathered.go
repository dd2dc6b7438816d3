package symbols

import "github.com/gokprobe/gokprobe/internal/budget"

// gathered is symbols in the form in which they are told to who asks, as long as they are being gathered. Their names may be much longer than
// what a file has of them: mangled ones repeat parts of themselves.
type gathered struct {
	acct *budget.Account
	part *budget.Part
	sum  uint64 // bytes
}

func gather() *gathered {
	acct := budget.Process().Open()
	return &gathered{acct: acct, part: acct.Part("the names of all that are meant")}
}

// add asks for the memory of one more.
func (g *gathered) add(sym Symbol) error {
	g.sum += sym.cost()
	return g.part.Set(g.sum)
}

func (g *gathered) close() { g.acct.Close() }

// cost is what s takes, in bytes.
func (s *Symbol) cost() uint64 {
	const own = 256 // with its place in lists and maps
	return own + uint64(len(s.Name)+len(s.Linkage))
}
