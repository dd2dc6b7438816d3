package arg

import (
	"errors"
	"slices"
	"strings"
	"syscall"

	"github.com/gokprobe/gokprobe/expr/caret"
	"github.com/gokprobe/gokprobe/expr/fetch"
	"github.com/gokprobe/gokprobe/expr/lex"
)

// Function is what debug information says of a probed function: what BTF is to the kernel.
type Function interface {
	// Params lists the parameters' names, as $arg* stands for them; those without a name are empty.
	Params() []string
	// Variable finds a parameter by its name, or the result by "$retval", or what path leads to from there; the
	// first step of a path is an arrow. Errors match ErrNoVariable, ErrNoResult, or are a *MemberError.
	Variable(name string, path []Member) (Variable, error)
}

// Variable is where a value is and what it is.
type Variable struct {
	Source fetch.Source
	Type   fetch.Type // without a Name: a word, hexadecimal
	// Untyped tells that no type has its value: it can be fetched as a type that is named, and not without one.
	Untyped bool
	Text    Text
	Len     fetch.Source // of TextCounted
	// Target is what a reference refers to, which stands for it in the source; nil if it is none.
	Target *Variable
	// Enum is the names of an enumeration's values; nil if it is none.
	Enum map[int64]string
}

// Text is whether a variable may be recorded as a string.
type Text uint8

// The texts.
const (
	NoText      Text = iota
	TextPointer      // a pointer to characters
	TextArray        // memory that holds them: Source's last word of memory
	TextCounted      // a pointer to characters whose number is at Len: strings of Go, C++ and Rust
)

// What a Function says of a variable that it has not.
var (
	ErrNoVariable = errors.New("no such parameter")
	ErrNoResult   = errors.New("the function returns nothing")
	ErrNoMember   = errors.New("no such member")
	ErrNoPointer  = errors.New("not a pointer to a structure")
	ErrNoElement  = errors.New("no such element")
	ErrNoLength   = errors.New("it has no length")
	ErrNoAddress  = errors.New("it has no address")
	ErrNoIndex    = errors.New("the index is not known here, or no whole number")
	ErrKey        = errors.New("the map has keys of another kind")
	ErrNoAssert   = errors.New("it is no Go interface")
	ErrNoType     = errors.New("debug information has no such type, or several")
)

// UnsureError tells that there is a variable of that name which can't be had, and why. It matches ErrNoVariable.
type UnsureError struct{ Note string }

// Error implements error.
func (e *UnsureError) Error() string { return e.Note }

// Unwrap makes the error match ErrNoVariable.
func (e *UnsureError) Unwrap() error { return ErrNoVariable }

// MemberError tells that a step of a path leads nowhere: Err matches one of ErrNoMember to ErrNoType.
type MemberError struct {
	Step  int // from 0
	Err   error
	Known []string // the members that there are, of ErrNoMember
}

// Error implements error.
func (e *MemberError) Error() string { return e.Err.Error() }

// Unwrap makes the error match Err.
func (e *MemberError) Unwrap() error { return e.Err }

// lookUp asks for the function once.
func (p *parser) lookUp() (Function, error) {
	if !p.asked {
		p.asked, p.err = true, errNoInformation
		if p.s.Function != nil {
			p.function, p.err = p.s.Function()
		}
	}
	return p.function, p.err
}

var errNoInformation = errors.New("no debug information is looked at")

// variable reads NAME[->MEMBER[->MEMBER|.MEMBER…]], or a Path.
func (p *parser) variable(s string, column int) (fetch.Source, *caret.Fault) {
	name, path, columns, f := p.path(s, column)
	if f != nil {
		return fetch.Source{}, f
	}
	if len(path) > 0 && path[0].How == Strict && !path[0].Arrow {
		return fetch.Source{}, caret.At("NOSUP_DAT_ARG", columns[0])
	}
	v, f := p.named(name, path, column, columns)
	if f != nil {
		return fetch.Source{}, f
	}
	for range v.Source.Derefs {
		if f := p.step(column); f != nil {
			return fetch.Source{}, f
		}
	}
	p.found = &v
	return v.Source, nil
}

// named finds what a path leads to from a name: in the function, else elsewhere.
func (p *parser) named(name string, path []Member, column int, columns []int) (Variable, *caret.Fault) {
	v, f := p.inFunction(name, path, column, columns)
	if f == nil || p.s.Elsewhere == nil || !slices.Contains([]string{"NOSUP_BTFARG", "NO_BTF_ENTRY", "NO_BTFARG"}, f.ID) {
		return v, f
	}
	v, err := p.s.Elsewhere.Variable(name, path)
	var m *MemberError
	switch {
	case err == nil:
		return v, nil
	case errors.As(err, &m):
		return v, variableFault(err, column, columns)
	}
	var unsure *UnsureError
	if errors.As(err, &unsure) {
		f.Note = unsure.Note
	}
	return v, f
}

func (p *parser) inFunction(name string, path []Member, column int, columns []int) (v Variable, f *caret.Fault) {
	if !p.argsAtHand() && !p.s.Inside {
		return v, &caret.Fault{ID: "NOSUP_BTFARG", Column: column, Errno: syscall.EINVAL}
	}
	function, err := p.lookUp()
	switch {
	case name == "$retval" && !p.s.Return:
		return v, caret.At("RETVAL_ON_PROBE", column)
	case errors.Is(err, errNoInformation):
		return v, caret.At("NOSUP_BTFARG", column)
	case err != nil || name != "$retval" && len(function.Params()) == 0 && !p.s.Inside:
		return v, caret.At("NO_BTF_ENTRY", column)
	}
	v, err = function.Variable(name, path)
	if err == nil {
		return v, nil
	}
	f = variableFault(err, column, columns)
	if f.ID == "NO_BTFARG" && !slices.Contains(function.Params(), name) {
		f.Known = function.Params()
	}
	return v, f
}

func (p *parser) path(s string, column int) (name string, path []Member, columns []int, f *caret.Fault) {
	if !p.s.AsInSource {
		return splitPath(s, column)
	}
	read, f := readPath(s, column)
	return read.Name, read.Steps, read.columns, f
}

// splitPath reads the names of a path and tells where its steps begin.
func splitPath(s string, column int) (name string, path []Member, columns []int, f *caret.Fault) {
	var next Member
	for begin := 0; ; {
		n := strings.IndexAny(s[begin:], ".-")
		end := begin + n
		if n < 0 {
			end = len(s)
		}
		if begin == 0 {
			name = s[:end]
		} else {
			next.Name = s[begin:end]
			path, columns = append(path, next), append(columns, column+begin)
		}
		switch {
		case n < 0:
			return name, path, columns, nil
		case s[end] == '.':
			next.Arrow, begin = false, end+1
		case strings.HasPrefix(s[end:], "->"):
			next.Arrow, begin = true, end+2
		default:
			return name, nil, nil, caret.At("BAD_HYPHEN", column+end)
		}
	}
}

func variableFault(err error, column int, columns []int) *caret.Fault {
	var m *MemberError
	if errors.As(err, &m) && m.Step < len(columns) {
		column = columns[m.Step]
	}
	switch {
	case errors.Is(err, ErrNoResult):
		return caret.At("NO_RETVAL", column)
	case errors.Is(err, ErrNoMember):
		return &caret.Fault{ID: "NO_BTF_FIELD", Column: column, Known: m.Known}
	case errors.Is(err, ErrNoPointer):
		return caret.At("NO_PTR_STRCT", column)
	case errors.Is(err, ErrNoElement):
		return caret.At("NO_ELEMENT", column)
	case errors.Is(err, ErrNoLength):
		return caret.At("NO_LENGTH", column)
	case errors.Is(err, ErrKey):
		return caret.At("BAD_KEY", column)
	case errors.Is(err, ErrNoAssert):
		return caret.At("NO_INTERFACE", column)
	case errors.Is(err, ErrNoAddress):
		return caret.At("NO_ADDRESS", column)
	case errors.Is(err, ErrNoIndex):
		return caret.At("NO_INDEX", column)
	case errors.Is(err, ErrNoType):
		return caret.At("NO_TYPE", column)
	case errors.Is(err, ErrNoVariable):
		return caret.At("NO_BTFARG", column)
	}
	return caret.At("BAD_BTF_TID", column)
}

// result reads $retval[->MEMBER…].
func (p *parser) result(s string, column int) (fetch.Source, *caret.Fault) {
	rest := strings.TrimPrefix(s, "$retval")
	switch {
	case !p.s.Return:
		return fetch.Source{}, caret.At("RETVAL_ON_PROBE", column)
	case rest != "" && (p.s.Uprobe || rest[0] != '-' && rest[0] != '.' && (rest[0] != '[' || !p.s.AsInSource)):
		return fetch.Source{}, caret.At("BAD_VAR", column)
	}
	_, err := p.lookUp()
	switch {
	case err == nil && !p.s.Uprobe:
		return p.variable(s, column)
	case rest != "" && errors.Is(err, errNoInformation):
		return fetch.Source{}, caret.At("NOSUP_BTFARG", column)
	case rest != "":
		return fetch.Source{}, caret.At("NO_BTF_ENTRY", column+len(s)-len(strings.TrimLeft(rest, "->.")))
	}
	return fetch.Source{Base: fetch.Retval}, nil
}

// word is an argument, and the number of the command's word that it comes from.
type word struct {
	text string
	n    int
}

// expand replaces $arg* by all parameters' names, and $argN by the name of that one, where they are known.
func (p *parser) expand(words []word) ([]word, *caret.Fault, int) {
	if p.s.Uprobe { // arguments are not at hand there, which is told one by one
		return words, nil, 0
	}
	all := -1
	some := false
	for i, w := range words {
		rest, ok := strings.CutPrefix(w.text, "$arg")
		if !ok {
			continue
		}
		some = true
		switch {
		case !p.argsAtHand():
			return nil, caret.At("NOFENTRY_ARGS", 0), w.n
		case rest != "" && lex.IsDigit(rest[0]):
		case rest != "*":
			return nil, caret.At("BAD_VAR", 0), w.n
		case all >= 0:
			return nil, caret.At("DOUBLE_ARGS", 0), w.n
		default:
			all = i
		}
	}
	if !some {
		return words, nil, 0
	}
	function, err := p.lookUp()
	if err == nil && len(function.Params()) > 0 {
		return name(words, function.Params())
	}
	if all >= 0 {
		return nil, &caret.Fault{ID: "NOSUP_BTFARG", Column: 0, Errno: syscall.EINVAL}, words[all].n
	}
	return words, nil, 0
}

// nameOf is what parameter i, from 0, is called.
func nameOf(params []string, i int) string {
	if name := params[i]; lex.IsIdentifier(name, "") && name != "_" {
		return name
	}
	return "$arg" + decimal(i+1)
}

func name(words []word, params []string) ([]word, *caret.Fault, int) {
	var named []word
	for _, w := range words {
		rest, ok := strings.CutPrefix(w.text, "$arg")
		switch {
		case !ok:
			named = append(named, w)
			continue
		case rest == "*":
			for i := range params {
				named = append(named, word{nameOf(params, i), w.n})
			}
			continue
		}
		digits, typeName, hasType := strings.Cut(rest, ":")
		n, ok := lex.Number(digits, 10)
		switch {
		case !ok:
			return nil, caret.At("BAD_VAR", 0), w.n
		case n == 0:
			return nil, caret.At("BAD_ARG_NUM", 0), w.n
		case n > uint64(len(params)):
			return nil, caret.At("NO_BTFARG", 0), w.n
		}
		text := nameOf(params, int(n-1))
		if hasType {
			text += ":" + typeName
		}
		named = append(named, word{text, w.n})
	}
	return named, nil, 0
}
