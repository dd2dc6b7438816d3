// Package arg parses fetch arguments, [NAME=]FETCHARG[:TYPE]: the kernel's language for
// the values that a hit records (Documentation/trace/kprobetrace.rst;
// kernel/trace/trace_probe.c). Package fetch fetches them.
//
// The package is pure: no system call, no build tag.
package arg

import (
	"slices"
	"strings"

	"github.com/gokprobe/gokprobe/expr/caret"
	"github.com/gokprobe/gokprobe/expr/fetch"
	"github.com/gokprobe/gokprobe/expr/lex"
	"github.com/gokprobe/gokprobe/internal/host"
)

// Limits of the kernel.
const (
	MaxArgs = 128 // arguments of an event (MAX_TRACE_ARGS)
	MaxName = 32  // bytes of an argument's name
	MaxText = 63  // bytes of its expression and type, without symbols' names (MAX_ARGSTR_LEN)
)

// reserved are the fields that records have by themselves.
var reserved = []string{
	"common_type", "common_flags", "common_preempt_count", "common_pid", "common_tgid",
	"__probe_ip", "__probe_ret_ip", "__probe_func",
}

// Scope is what a probe is, as far as its arguments are concerned, and what there is to ask about it. The functions are called while
// arguments are read; all may be nil.
type Scope struct {
	Uprobe bool // at an offset of a file, not at a symbol or address: there are no symbols, and no parameters
	Return bool // a function has returned: there is $retval, and $argN are those of its entry
	// Register finds a register by the name behind %, and tells how package arch calls it. nil: AMD64.
	Register func(name string) (canonical string, ok bool)
	// AtEntry tells whether the probe is at the first instruction of a function, where $argN are. nil: it is.
	AtEntry func() bool
	// Inside tells that the probe is inside of a function, and that names are those of the variables there.
	Inside bool
	// AsInSource tells that variables are named by a Path, and that expressions may be long; else they are the kernel's.
	AsInSource bool
	// Data tells whether there is a variable or function that @SYM may be about, [MOD:]SYM. nil: believed.
	Data func(symbol string) bool
	// Function finds the function that is probed, or whose calls are followed, in debug information.
	// nil: NOSUP_BTFARG; an error: NO_BTF_ENTRY.
	Function func() (Function, error)
	// Elsewhere has the variables that are known whatever function it is, by names that the function does not have. nil: none.
	Elsewhere Function
}

func (s Scope) register(name string) (string, bool) {
	if s.Register != nil {
		return s.Register(name)
	}
	return host.RegisterName(name)
}

func (s Scope) atEntry() bool { return s.AtEntry == nil || s.AtEntry() }

// system is who complains of arguments, in error_log.
func (s Scope) system() string {
	if s.Uprobe {
		return "trace_uprobe"
	}
	return "trace_kprobe"
}

// parser reads the arguments of one probe.
type parser struct {
	s    Scope
	args []fetch.Arg // those that were read

	asked    bool // the function was looked for
	function Function
	err      error

	// Of the argument that is being read:
	ops   int       // the kernel's instructions, less one
	found *Variable // what it is, if it is a variable as it stands
}

// Parse reads one argument, [NAME=]FETCHARG[:TYPE], of a probe that has others already. Its error is a *caret.Error whose command is text
// alone.
func Parse(text string, others []fetch.Arg, s Scope) (fetch.Arg, error) {
	p := &parser{s: s, args: others}
	arg, f := p.arg(text, len(others))
	if f != nil {
		return fetch.Arg{}, f.In(s.system(), []string{text}, 0)
	}
	return arg, nil
}

// ParseAll reads all arguments of a probe; from tells of each of which word it is, since $arg* stands for several. What is wrong is f, in
// word number at.
func ParseAll(words []string, s Scope) (args []fetch.Arg, from []int, f *caret.Fault, at int) {
	p := &parser{s: s}
	numbered := make([]word, len(words))
	for i, w := range words {
		numbered[i] = word{w, i}
	}
	numbered, f, at = p.expand(numbered)
	if f != nil {
		return nil, nil, f, at
	}
	if len(numbered) > MaxArgs {
		return nil, nil, caret.At("TOO_MANY_ARGS", 0), 0
	}
	for i, w := range numbered {
		arg, f := p.arg(w.text, i)
		if f != nil {
			return nil, nil, f, w.n
		}
		p.args, from = append(p.args, arg), append(from, w.n)
	}
	return p.args, from, nil, 0
}

// ParseExpr reads FETCHARG[:TYPE]. It is called as it is written.
func ParseExpr(text string, s Scope) (fetch.Arg, error) {
	p := &parser{s: s}
	a, f := p.body(text, 0)
	if f != nil {
		return fetch.Arg{}, f.In(s.system(), []string{text}, 0)
	}
	a.Name = text
	return a, nil
}

func (p *parser) arg(text string, i int) (a fetch.Arg, f *caret.Fault) {
	name, body, ok := lex.CutName(text)
	if strings.HasPrefix(text, `\`) { // a text may have an equals sign
		ok = false
	}
	switch {
	case !ok:
		name, body = p.generatedName(text, i), text
		if p.s.AsInSource && slices.ContainsFunc(p.args, func(a fetch.Arg) bool { return a.Name == name }) {
			name = text // it has another type there
		}
	case len(name) > MaxName:
		return a, caret.At("ARG_NAME_TOO_LONG", 0)
	case name == "":
		return a, caret.At("NO_ARG_NAME", 0)
	case !lex.IsIdentifier(name, ""):
		return a, caret.At("BAD_ARG_NAME", 0)
	}
	if slices.Contains(reserved, name) || slices.ContainsFunc(p.args, func(a fetch.Arg) bool { return a.Name == name }) {
		return a, caret.At("USED_ARG_NAME", 0)
	}
	a, f = p.body(body, len(text)-len(body))
	a.Name = name
	return a, f
}

// generatedName is the name of an argument without one: that of the variable, or argN.
func (p *parser) generatedName(text string, i int) string {
	variable := text
	if n := lex.TypeColon(text); n >= 0 {
		variable = text[:n]
	}
	if _, ok := ParsePath(variable); ok && p.s.AsInSource && text[0] != '$' {
		return variable
	}
	if lex.IsIdentifier(variable, "") {
		return variable
	}
	return "arg" + decimal(i+1)
}

// body reads FETCHARG[:TYPE], which begins at a column of the word.
func (p *parser) body(s string, column int) (a fetch.Arg, f *caret.Fault) {
	if len(s) > MaxText && !p.hasSymbol(s) && !p.s.AsInSource {
		return a, caret.At("ARG_TOO_LONG", column)
	}
	if s == "" {
		return a, caret.At("NO_ARG_BODY", column)
	}
	p.ops, p.found = 0, nil
	expr, typeName, typeColumn := s, "", column
	n := p.typeColon(s)
	if n >= 0 {
		expr, typeName, typeColumn = s[:n], s[n+1:], column+n+1
	}
	if path, ok := ParsePath(expr); n >= 0 && ok && p.s.AsInSource && len(path.Steps) > 0 && path.Steps[len(path.Steps)-1].How == Range {
		return a, caret.At("RANGE_TYPE", typeColumn)
	}
	t, f := p.typeOf(expr, typeName, n >= 0)
	if f != nil {
		f.Column += typeColumn
		return a, f
	}
	source, f := p.source(expr, column)
	if f != nil {
		return a, f
	}
	if p.found != nil && n >= 0 && p.found.Type.IsBits() && !inMemory(source) {
		return a, caret.At("SOME_BITS", typeColumn) // the type would mean other bits of the register
	}
	if p.found != nil && n < 0 && p.s.AsInSource && p.found.Target != nil && !(p.found.Target.Untyped && expr == "$retval") {
		p.found = p.found.Target
		source = p.found.Source
	}
	if t.Kind == fetch.String || t.Kind == fetch.UString {
		if f := p.textVariable(&source, t, column); f != nil {
			return a, f
		}
	} else if p.found != nil && n < 0 {
		switch {
		case p.found.Untyped && expr == "$retval":
			// The register, as the kernel reads it where it knows no type: of a structure it has a part.
		case p.found.Untyped:
			return a, caret.At("NOSUP_DAT_ARG", column)
		case p.found.Text == TextCounted && p.s.AsInSource: // the kernel has no such texts
			t, _ = p.parseType("string")
			if f := p.textVariable(&source, t, column); f != nil {
				return a, f
			}
		case p.found.Text == TextArray:
			t, _ = p.parseType("string")
		case p.found.Type.Name != "":
			t = p.found.Type
		}
	}
	a = fetch.Arg{Text: s, Source: source, Type: t}
	if p.found != nil && n < 0 {
		a.Enum = p.found.Enum
	}
	return a, p.store(source, t, column, typeColumn)
}

// typeOf reads the type of an expression.
func (p *parser) typeOf(expr, typeName string, given bool) (fetch.Type, *caret.Fault) {
	isText := expr == "$comm" || expr == "$COMM" || strings.HasPrefix(expr, `\"`)
	switch {
	case isText && given && typeName != "string":
		_, f := p.parseType(typeName)
		if f == nil || f.ID == "BAD_TYPE" {
			f = caret.At("NEED_STRING_TYPE", 0)
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
func (p *parser) textVariable(s *fetch.Source, t fetch.Type, column int) *caret.Fault {
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
		return caret.At("BAD_TYPE4STR", column)
	}
	return nil
}

// store checks that a value of a source can be kept as the type.
func (p *parser) store(s fetch.Source, t fetch.Type, column, typeColumn int) *caret.Fault {
	memory := inMemory(s)
	more := 0 // instructions
	switch {
	case t.Kind == fetch.SymStr:
		if !memory && !isWord(s.Base) || memory && len(s.Derefs) > 0 && s.Derefs[len(s.Derefs)-1].User {
			return caret.At("BAD_SYMSTRING", typeColumn)
		}
		more++
	case t.Kind == fetch.String || t.Kind == fetch.UString:
		if !memory && s.Base != fetch.Immediate && s.Base != fetch.Comm && s.Base != fetch.Text {
			return caret.At("BAD_STRING", typeColumn)
		}
		if !memory || t.Count > 0 {
			more++
		}
	case !memory:
		more++
	}
	if t.IsBits() {
		if t.Width == 0 {
			return caret.At("BAD_BITFIELD", typeColumn)
		}
		more++
	}
	if t.Count > 0 {
		if t.Kind == fetch.SymStr || !memory && t.Kind != fetch.String && t.Kind != fetch.UString {
			return caret.At("BAD_STRING", typeColumn)
		}
		more++
	}
	if p.ops+more >= maxOps {
		return caret.At("TOO_MANY_OPS", column)
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
