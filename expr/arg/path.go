package arg

import (
	"strings"

	"github.com/gokprobe/gokprobe/expr/caret"
	"github.com/gokprobe/gokprobe/expr/lex"
)

// How is what a step does.
type How uint8

// The kinds of steps.
const (
	Strict  How = iota // to a member, by an arrow from a pointer alone and by a dot from a structure alone, as the kernel has it
	Either             // to a member, by a dot or an arrow from either
	Element            // to an element
	Target             // to what a pointer leads to
	Address            // to the address
	Length             // to the number of elements
	Range              // to some elements
	Cast               // to a pointer of another type
	Key                // to the value of a map under a key
	Assert             // to what an interface holds, if that is of a type
)

// Member is one step of a path, most often to a member of a structure.
type Member struct {
	How   How
	Name  string // of a member, of the type that a Cast makes a pointer to, or of an Assert's type
	Arrow bool   // of a Strict one: ->, not a dot
	Index int64  // of an Element, or of the first one of a Range; of a Cast how many * there are but for one
	End   int64  // of a Range: the index of the one behind it
	Key   any    // of a Key: a string, bool, int64, uint64 or float64
	// IndexOf and EndOf, unless they are nil, stand in the place of Index and End.
	IndexOf, EndOf *Sum
}

// Sum is an index that each hit may have another one of: N, and Terms.
type Sum struct {
	N     int64
	Terms []Term
}

// Term is a variable that is added, or taken off.
type Term struct {
	Path  Path
	Minus bool
}

// Path is how a source's language names a value: NAME, then .MEMBER, ->MEMBER, [N], [N:M], [KEY] and .(TYPE); *X, &X, len(X), (X), (TYPE *)X.
type Path struct {
	Name  string
	Steps []Member
	// columns are where the steps stand in the text.
	columns []int
}

// IsPath tells whether a text looks like a Path, and not like one of the kernel's fetch arguments, but for $retval and for parameters.
func IsPath(text string) bool {
	return text != "" && (lex.IsLetter(text[0]) || text[0] >= 0x80 || strings.IndexByte("*&(", text[0]) >= 0 || strings.HasPrefix(text, "$retval"))
}

// ParsePath reads a Path. ok is false if the text is none.
func ParsePath(text string) (p Path, ok bool) {
	p, f := readPath(text, 0)
	return p, f == nil
}

// mostSteps is how many steps a path has, at most.
const mostSteps = 32

// pathReader reads a path from left to right.
type pathReader struct {
	Path
	text   string
	at     int
	column int // of the text
	depth  int
}

func readPath(text string, column int) (Path, *caret.Fault) {
	r := &pathReader{text: text, column: column}
	f := r.unary()
	switch {
	case f != nil || r.at == len(text):
	case text[r.at] == '-':
		f = r.fault("BAD_HYPHEN")
	default:
		f = r.fault("BAD_PATH")
	}
	if f == nil && len(r.Steps) > mostSteps {
		f = r.fault("TOO_MANY_OPS")
	}
	return r.Path, f
}

func (r *pathReader) fault(id string) *caret.Fault { return caret.At(id, r.column+r.at) }

func (r *pathReader) skip() {
	for r.at < len(r.text) && r.text[r.at] == ' ' {
		r.at++
	}
}

func (r *pathReader) accept(token string) bool {
	ok := strings.HasPrefix(r.text[r.at:], token)
	if ok {
		r.at += len(token)
	}
	return ok
}

// step adds a step. What leads to the address and back again is none.
func (r *pathReader) step(m Member, at int) {
	if last := len(r.Steps) - 1; m.How == Target && last >= 0 && r.Steps[last].How == Address {
		r.Steps, r.columns = r.Steps[:last], r.columns[:last]
		return
	}
	r.Steps, r.columns = append(r.Steps, m), append(r.columns, r.column+at)
}

// unary reads *X, &X, (TYPE *)X, and what has no such operator in front.
func (r *pathReader) unary() *caret.Fault {
	r.skip()
	at := r.at
	if r.depth++; r.depth > mostSteps {
		return r.fault("TOO_MANY_OPS")
	}
	defer func() { r.depth-- }()
	for _, op := range []struct {
		token string
		how   How
	}{{"*", Target}, {"&", Address}} {
		if r.accept(op.token) {
			if f := r.unary(); f != nil {
				return f
			}
			r.step(Member{How: op.how}, at)
			return nil
		}
	}
	if n := lex.Cast(r.text[r.at:]); n > 0 {
		name := strings.TrimSpace(r.text[r.at+1 : r.at+n-1])
		stars := strings.Count(name, "*")
		r.at += n
		if f := r.unary(); f != nil {
			return f
		}
		r.step(Member{How: Cast, Name: strings.TrimRight(name, "* "), Index: int64(stars) - 1}, at)
		return nil
	}
	return r.postfix()
}

// postfix reads a name, len(X) or (X), and what follows it.
func (r *pathReader) postfix() *caret.Fault {
	at := r.at
	isLength := r.accept("len(")
	switch {
	case isLength || r.accept("("):
		if f := r.unary(); f != nil {
			return f
		}
		if r.skip(); !r.accept(")") {
			return r.fault("PATH_NO_CLOSE")
		}
		if isLength {
			r.step(Member{How: Length}, at)
		}
	default:
		r.accept("$") // of $retval
		if r.Name = r.text[at:r.at] + r.name(); r.Name == "" || r.Name == "$" {
			return r.fault("BAD_PATH")
		}
	}
	for {
		at := r.at
		switch {
		case r.accept(".("):
			if f := r.assertion(at); f != nil {
				return f
			}
		case r.accept("."), r.accept("->"):
			name := r.name()
			if name == "" {
				return r.fault("BAD_PATH")
			}
			r.step(Member{How: Either, Name: name}, at)
		case r.accept("["):
			if f := r.element(at); f != nil {
				return f
			}
		default:
			return nil
		}
	}
}

// name reads letters and digits, also those of other scripts, which Go and Rust have in names, and namespaces in front: ns::x.
func (r *pathReader) name() string {
	from := r.at
	for r.at < len(r.text) {
		if n := lex.Namespace(r.text[from:r.at], r.text[r.at:]); n > 0 {
			r.at += n
			continue
		}
		if c := r.text[r.at]; !lex.IsLetter(c) && c < 0x80 && (r.at == from || !lex.IsDigit(c)) && !(lex.IsDigit(c) && r.isTuple(from)) {
			break
		}
		r.at++
	}
	return r.text[from:r.at]
}

// isTuple tells whether a name that begins at from may be a number: that of a member of a tuple.
func (r *pathReader) isTuple(from int) bool { return from > 0 && r.text[from-1] == '.' }

// assertion reads TYPE), which may have braces of its own.
func (r *pathReader) assertion(at int) *caret.Fault {
	from := r.at
	for depth := 1; r.at < len(r.text); r.at++ {
		switch r.text[r.at] {
		case '(':
			depth++
		case ')':
			depth--
		}
		if depth == 0 {
			break
		}
	}
	name := strings.TrimSpace(r.text[from:r.at])
	switch {
	case r.at == len(r.text):
		return r.fault("PATH_NO_CLOSE")
	case name == "":
		return r.fault("BAD_PATH")
	}
	r.at++
	r.step(Member{How: Assert, Name: name}, at)
	return nil
}

// element reads [N] or [N:M], with a 0 for an N that is left out, or [KEY].
func (r *pathReader) element(at int) *caret.Fault {
	m := Member{How: Element}
	r.skip()
	if key, n := readKey(r.text[r.at:]); n > 0 {
		r.at += n
		r.step(Member{How: Key, Key: key}, at)
		return nil
	}
	isRange := r.at < len(r.text) && r.text[r.at] == ':'
	if !isRange {
		var f *caret.Fault
		if m.Index, m.IndexOf, f = r.index(); f != nil {
			return f
		}
		r.skip()
	}
	if r.accept(":") {
		r.skip()
		from := r.at
		m.How = Range
		var f *caret.Fault
		if m.End, m.EndOf, f = r.index(); f != nil {
			return f
		}
		if m.End <= m.Index && m.IndexOf == nil && m.EndOf == nil {
			r.at = from
			return r.fault("BAD_RANGE")
		}
	}
	if r.skip(); !r.accept("]") {
		return r.fault("PATH_NO_CLOSE")
	}
	r.step(m, at)
	return nil
}

// index reads a number, a variable, or a sum of these.
func (r *pathReader) index() (int64, *Sum, *caret.Fault) {
	const most, mostTerms = 1 << 31, 8
	from, sum := r.at, &Sum{}
	for minus := r.accept("-"); ; {
		if r.skip(); r.at < len(r.text) && lex.IsDigit(r.text[r.at]) {
			n, f := r.number()
			if minus {
				n = -n
			}
			if sum.N += n; f != nil || sum.N >= most || sum.N <= -most {
				r.at = from
				return 0, nil, r.fault("BAD_INDEX")
			}
		} else {
			inner := &pathReader{text: r.text, at: r.at, column: r.column, depth: r.depth}
			if r.at == len(r.text) || strings.IndexByte(":]", r.text[r.at]) >= 0 || len(sum.Terms) == mostTerms {
				return 0, nil, r.fault("BAD_INDEX")
			}
			if f := inner.unary(); f != nil {
				return 0, nil, f
			}
			r.at = inner.at
			sum.Terms = append(sum.Terms, Term{inner.Path, minus})
		}
		switch r.skip(); {
		case r.accept("+"):
			minus = false
		case r.accept("-"):
			minus = true
		case len(sum.Terms) == 0:
			return sum.N, nil, nil
		default:
			return 0, sum, nil
		}
	}
}

// number reads digits, also hexadecimal ones.
func (r *pathReader) number() (int64, *caret.Fault) {
	from := r.at
	for r.at < len(r.text) && (lex.IsDigit(r.text[r.at]) || lex.IsLetter(r.text[r.at])) {
		r.at++
	}
	n, ok := lex.Signed(r.text[from:r.at])
	if !ok || !isIndex(n) {
		r.at = from
		return 0, r.fault("BAD_INDEX")
	}
	return n, nil
}
