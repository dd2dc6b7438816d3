package dynevent

import (
	"slices"
	"strings"

	"github.com/gokprobe/gokprobe/expr/caret"
	"github.com/gokprobe/gokprobe/expr/fetch"
)

// Limits of an argument.
const (
	MaxArgName = 32 // bytes of its name
	MaxArgText = 63 // bytes of its expression and type, without symbols' names (MAX_ARGSTR_LEN)
)

// reserved are the fields that records have by themselves.
var reserved = []string{
	"common_type", "common_flags", "common_preempt_count", "common_pid", "common_tgid",
	"__probe_ip", "__probe_ret_ip", "__probe_func",
}

// argParser reads the arguments of one definition.
type argParser struct {
	d *Definition
	c Context

	asked    bool // the function was looked for
	function Function
	err      error

	// Of the argument that is being read:
	ops   int       // the kernel's instructions, less one
	found *Variable // what it is, if it is a variable as it stands
}

// ParseArg reads argument number i, from 0, of d, which has i arguments already: [NAME=]FETCHARG[:TYPE]. The
// command of its error is text alone.
func ParseArg(text string, i int, d *Definition, c Context) (fetch.Arg, error) {
	p := &argParser{d: d, c: c}
	arg, f := p.arg(text, i)
	if f != nil {
		return fetch.Arg{}, f.log(d.Family.System(), []string{text}, 0)
	}
	return arg, nil
}

// parseArgs reads all words behind the place.
func (d *Definition) parseArgs(c Context) error {
	p := &argParser{d: d, c: c}
	var words []word
	for i, w := range d.words[2:] {
		words = append(words, word{w, i + 2})
	}
	words, f, n := p.expand(words)
	if f != nil {
		return p.log(f, n)
	}
	if len(words) > MaxArgs {
		return p.log(bad("TOO_MANY_ARGS", 0), 2)
	}
	for i, w := range words {
		arg, f := p.arg(w.text, i)
		if f != nil {
			return p.log(f, w.n)
		}
		d.Args, d.argWords = append(d.Args, arg), append(d.argWords, w.n)
	}
	return nil
}

func (p *argParser) log(f *fault, word int) *caret.Error {
	return f.log(p.d.Family.System(), p.d.words, word)
}

func (p *argParser) arg(text string, i int) (a fetch.Arg, f *fault) {
	name, body, ok := strings.Cut(text, "=")
	if strings.HasPrefix(text, `\`) { // a text may have an equals sign
		ok = false
	}
	switch {
	case !ok:
		name, body = generatedName(text, i), text
	case len(name) > MaxArgName:
		return a, bad("ARG_NAME_TOO_LONG", 0)
	case name == "":
		return a, bad("NO_ARG_NAME", 0)
	case !isIdentifier(name, ""):
		return a, bad("BAD_ARG_NAME", 0)
	}
	if slices.Contains(reserved, name) || slices.ContainsFunc(p.d.Args, func(a fetch.Arg) bool { return a.Name == name }) {
		return a, bad("USED_ARG_NAME", 0)
	}
	a, f = p.body(body, len(text)-len(body))
	a.Name = name
	return a, f
}

// generatedName is the name of an argument without one: that of the variable, or argN.
func generatedName(text string, i int) string {
	variable, _, _ := strings.Cut(text, ":")
	if isIdentifier(variable, "") {
		return variable
	}
	return "arg" + decimal(i+1)
}

// body reads FETCHARG[:TYPE], which begins at a column of the word.
func (p *argParser) body(s string, column int) (a fetch.Arg, f *fault) {
	if len(s) > MaxArgText && !p.hasSymbol(s) {
		return a, bad("ARG_TOO_LONG", column)
	}
	if s == "" {
		return a, bad("NO_ARG_BODY", column)
	}
	p.ops, p.found = 0, nil
	expr, typeName, typeColumn := s, "", column
	n := p.typeColon(s)
	if n >= 0 {
		expr, typeName, typeColumn = s[:n], s[n+1:], column+n+1
	}
	t, f := p.typeOf(expr, typeName, n >= 0)
	if f != nil {
		f.column += typeColumn
		return a, f
	}
	source, f := p.source(expr, column)
	if f != nil {
		return a, f
	}
	if t.Kind == fetch.String || t.Kind == fetch.UString {
		if f := p.textVariable(&source, t, column); f != nil {
			return a, f
		}
	} else if p.found != nil && n < 0 && p.found.Type.Name != "" {
		t = p.found.Type
	}
	return fetch.Arg{Text: s, Source: source, Type: t}, p.store(source, t, column, typeColumn)
}

// typeOf reads the type of an expression.
func (p *argParser) typeOf(expr, typeName string, given bool) (fetch.Type, *fault) {
	isText := expr == "$comm" || expr == "$COMM" || strings.HasPrefix(expr, `\"`)
	switch {
	case isText && given && typeName != "string":
		_, f := p.parseType(typeName)
		if f == nil || f.id == "BAD_TYPE" {
			f = bad("NEED_STRING_TYPE", 0)
		}
		return fetch.Type{}, f
	case isText:
		return p.parseType("string")
	case given:
		return p.parseType(typeName)
	}
	return p.parseType(defaultType)
}

// textVariable makes a variable's source that of its characters.
func (p *argParser) textVariable(s *fetch.Source, t fetch.Type, column int) *fault {
	if p.found == nil {
		return nil
	}
	switch p.found.Text {
	case TextPointer, TextCounted:
		if f := p.step(column); f != nil {
			return f
		}
		s.Derefs = append(slices.Clip(s.Derefs), fetch.Deref{User: t.Kind == fetch.UString})
		if p.found.Text == TextCounted {
			s.Len = &p.found.Len
		}
	case NoText:
		return bad("BAD_TYPE4STR", column)
	}
	return nil
}

// store checks that a value of a source can be kept as the type.
func (p *argParser) store(s fetch.Source, t fetch.Type, column, typeColumn int) *fault {
	memory := inMemory(s)
	more := 0 // instructions
	switch {
	case t.Kind == fetch.SymStr:
		if !memory && !isWord(s.Base) || memory && len(s.Derefs) > 0 && s.Derefs[len(s.Derefs)-1].User {
			return bad("BAD_SYMSTRING", typeColumn)
		}
		more++
	case t.Kind == fetch.String || t.Kind == fetch.UString:
		if !memory && s.Base != fetch.Immediate && s.Base != fetch.Comm && s.Base != fetch.Text {
			return bad("BAD_STRING", typeColumn)
		}
		if !memory || t.Count > 0 {
			more++
		}
	case !memory:
		more++
	}
	if t.Kind == fetch.BitField {
		if t.Width == 0 {
			return bad("BAD_BITFIELD", typeColumn)
		}
		more++
	}
	if t.Count > 0 {
		if t.Kind == fetch.SymStr || !memory && t.Kind != fetch.String && t.Kind != fetch.UString {
			return bad("BAD_STRING", typeColumn)
		}
		more++
	}
	if p.ops+more >= maxOps {
		return bad("TOO_MANY_OPS", column)
	}
	return nil
}

// inMemory tells whether a source's value is read from memory last.
func inMemory(s fetch.Source) bool {
	return len(s.Derefs) > 0 || s.Base == fetch.Memory || s.Base == fetch.Symbol || s.Base == fetch.FileOffset
}

// isWord tells whether a base is a word that code may be told of.
func isWord(b fetch.Base) bool {
	return b == fetch.Register || b == fetch.StackWord || b == fetch.Retval || b == fetch.Argument
}
