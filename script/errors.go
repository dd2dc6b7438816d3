package script

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"unicode"

	"go.starlark.net/resolve"
	"go.starlark.net/starlark"
	"go.starlark.net/syntax"
)

// Error is a mistake in a scenario, or what one of its functions has run into.
type Error struct {
	File      string
	Line, Col int // from 1; 0 if unknown. Col counts characters
	Message   string
	Where     string  // which function it was: "pre handler of kprobe malloc"; empty while the file is executed
	Source    string  // the line
	Frames    []Frame // of the scenario's functions, outermost first
	Syntax    bool    // the file can't be executed at all
	Failed    bool    // an expectation was not met, or fail() was called
	Err       error
}

// Frame is a function of a scenario that was running.
type Frame struct {
	File      string
	Line, Col int
	Func      string
}

// Error is one sentence that begins with FILE:LINE:COL.
func (e *Error) Error() string {
	text := e.Message
	if e.Where != "" {
		text += " (in the " + e.Where + ")"
	}
	if e.Line == 0 {
		return e.File + ": " + text
	}
	return fmt.Sprintf("%s:%d:%d: %s", e.File, e.Line, e.Col, text)
}

// Unwrap is what the package that was asked has said.
func (e *Error) Unwrap() error { return e.Err }

// Picture is the line with a caret below where it went wrong, and the calls that led there
// if there are several. It is empty if the line is unknown.
func (e *Error) Picture() string {
	var b strings.Builder
	if e.Source != "" && e.Line > 0 {
		b.WriteString("  " + printable(e.Source) + "\n  " + indent(e.Source, e.Col) + "^\n")
	}
	if len(e.Frames) > 1 {
		b.WriteString("  called from, the last one first:\n")
		for i := len(e.Frames) - 2; i >= 0; i-- {
			f := e.Frames[i]
			fmt.Fprintf(&b, "    %s:%d:%d: in %s\n", f.File, f.Line, f.Col, f.Func)
		}
	}
	return b.String()
}

// indent is white space as wide as what stands in front of column col.
func indent(line string, col int) string {
	var b strings.Builder
	for i, r := range []rune(line) {
		if i >= col-1 {
			break
		}
		if r != '\t' {
			r = ' '
		}
		b.WriteRune(r)
	}
	return b.String()
}

func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' && r != '\t' || r == 0x7f {
			return '?'
		}
		return r
	}, s)
}

// sources are the files of a scenario, for the lines that errors show.
type sources map[string]source

type source struct {
	lines []string
	// starts is where an expression begins that errors tell by a place within it.
	starts map[[2]int32]syntax.Position
	args   bool // it may look at ctx.args
}

// add remembers a file. f may be nil.
func (all sources) add(file string, src []byte, f *syntax.File) {
	one := source{lines: strings.Split(string(src), "\n"), starts: map[[2]int32]syntax.Position{}}
	if f != nil {
		syntax.Walk(f, func(n syntax.Node) bool {
			switch n := n.(type) {
			case *syntax.CallExpr:
				one.note(n.Lparen, n.Fn)
			case *syntax.DotExpr:
				one.starts[at(n.Dot)] = n.Name.NamePos
				one.args = one.args || n.Name.Name == "args"
			case *syntax.Ident:
				one.args = one.args || n.Name == "getattr"
			}
			return true
		})
	}
	all[file] = one
}

// useArgs tells whether the scenario may look at ctx.args.
func (all sources) useArgs() bool {
	for _, one := range all {
		if one.args {
			return true
		}
	}
	return false
}

// note gives a call the position of the called name.
func (one source) note(pos syntax.Position, fn syntax.Expr) {
	if dot, ok := fn.(*syntax.DotExpr); ok {
		one.starts[at(pos)] = dot.Name.NamePos
		return
	}
	one.starts[at(pos)] = syntax.Start(fn)
}

func at(p syntax.Position) [2]int32 { return [2]int32{p.Line, p.Col} }

// place is where an error that was raised at p is shown.
func (all sources) place(p syntax.Position) (line, col int, text string) {
	one := all[p.Filename()]
	if start, ok := one.starts[at(p)]; ok {
		p = start
	}
	if n := int(p.Line); n > 0 && n <= len(one.lines) {
		text = strings.TrimRight(one.lines[n-1], "\r")
	}
	return int(p.Line), int(p.Col), text
}

// errorAt is a mistake at a place.
func (s *Script) errorAt(p syntax.Position, err error) *Error {
	e := &Error{File: s.file, Message: err.Error(), Err: err}
	if p.IsValid() {
		e.File = p.Filename()
		e.Line, e.Col, e.Source = s.source.place(p)
	}
	return e
}

// syntaxError is the first mistake that the parser or the resolver found.
func (s *Script) syntaxError(err error) *Error {
	var parse syntax.Error
	var names resolve.ErrorList
	var e *Error
	switch {
	case errors.As(err, &parse):
		e = s.errorAt(parse.Pos, errors.New(parse.Msg))
		e.Col = tokenStart(e.Source, e.Col, parse.Msg)
	case errors.As(err, &names) && len(names) > 0:
		e = s.errorAt(names[0].Pos, errors.New(names[0].Msg))
		if len(names) > 1 {
			e.Message += fmt.Sprintf(" (and %d more)", len(names)-1)
		}
	default:
		e = &Error{File: s.file, Message: err.Error(), Err: err}
	}
	e.Syntax = true
	return e
}

// tokenStart is where the token begins that the parser, which stands behind it, did not
// expect: it says "got …".
func tokenStart(line string, col int, message string) int {
	r := []rune(line)
	if !strings.HasPrefix(message, "got ") || col < 2 || col-1 > len(r) {
		return col
	}
	if token, _, ok := strings.Cut(strings.TrimPrefix(message, "got '"), "'"); ok && strings.HasSuffix(string(r[:col-1]), token) {
		return col - len([]rune(token))
	}
	for col > 1 && (r[col-2] == '_' || unicode.IsLetter(r[col-2]) || unicode.IsDigit(r[col-2])) {
		col--
	}
	return col
}

// raised is what a function of the scenario has run into.
func (s *Script) raised(err error, where string) *Error {
	var inner *Error
	if errors.As(err, &inner) && (inner.Syntax || inner.Where == "") && inner.Line > 0 {
		return inner // of a file that this one loads
	}
	var eval *starlark.EvalError
	if !errors.As(err, &eval) {
		return &Error{File: s.file, Message: err.Error(), Where: where, Err: err}
	}
	frames := s.frames(eval.CallStack)
	e := &Error{File: s.file, Message: message(eval), Where: where, Frames: frames, Err: eval.Unwrap()}
	if i := innermost(eval.CallStack); i >= 0 {
		pos := eval.CallStack[i].Pos
		e.File = pos.Filename()
		e.Line, e.Col, e.Source = s.source.place(pos)
	}
	return e
}

// message is what an error says, without the words of the interpreter around it.
func message(eval *starlark.EvalError) string {
	return strings.TrimPrefix(eval.Msg, "Starlark computation cancelled: ")
}

// frames are those of the scenario's own functions.
func (s *Script) frames(stack starlark.CallStack) []Frame {
	var frames []Frame
	for _, fr := range stack {
		if !fr.Pos.IsValid() || fr.Pos.Filename() == "<builtin>" {
			continue
		}
		line, col, _ := s.source.place(fr.Pos)
		name := fr.Name
		if name == "<toplevel>" {
			name = filepath.Base(fr.Pos.Filename())
		}
		frames = append(frames, Frame{fr.Pos.Filename(), line, col, name})
	}
	return frames
}

// innermost is the last frame with a place in a file; -1 if there is none.
func innermost(stack starlark.CallStack) int {
	for i := len(stack) - 1; i >= 0; i-- {
		if p := stack[i].Pos; p.IsValid() && p.Filename() != "<builtin>" {
			return i
		}
	}
	return -1
}

// caller is where the builtin that runs was called.
func caller(thread *starlark.Thread) syntax.Position {
	stack := thread.CallStack()
	if i := innermost(stack); i >= 0 {
		return stack[i].Pos
	}
	return syntax.Position{}
}
