// Package logline makes probes of log points, and lines of their hits.
package logline

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/gokprobe/gokprobe/expr/logpoint"
	"github.com/gokprobe/gokprobe/trace"
)

// Line is a log point, and what its hits are asked for.
type Line struct {
	logpoint.Point
	args []string // the expressions that are fetched: a hit's arguments
}

// New is for a log point.
func New(p logpoint.Point) *Line {
	l := &Line{Point: p}
	for _, e := range p.Exprs() {
		if l.fact(e) == nil {
			l.args = append(l.args, e)
		}
	}
	return l
}

// AtReturn tells that the log point is at the returns of a function.
func (l *Line) AtReturn() bool { return strings.HasSuffix(l.Spec, trace.ReturnSuffix) }

// Wants are what is wanted of the log point's hits, for its line and by its condition.
func (l *Line) Wants() []trace.Want {
	wants := []trace.Want{trace.AsInSource(), trace.If(l.condition())}
	for i := range l.args {
		wants = append(wants, trace.Fetch(l.fetched(i)))
	}
	return wants
}

// hitFacts are expressions that every hit has the value of.
var hitFacts = map[string]func(*trace.Hit) string{
	"comm":   func(h *trace.Hit) string { return h.Comm },
	"pid":    func(h *trace.Hit) string { return fmt.Sprint(h.PID) },
	"tid":    func(h *trace.Hit) string { return fmt.Sprint(h.TID) },
	"symbol": func(h *trace.Hit) string { return h.Symbol },
}

// returnFacts are those of returns.
var returnFacts = map[string]func(*trace.Hit) string{
	"ret": func(h *trace.Hit) string {
		switch {
		case len(h.Results) == 1:
			return inLine(h.Results[0])
		case h.Results != nil:
			var all []string
			for _, r := range h.Results {
				all = append(all, inLine(r))
			}
			return "(" + strings.Join(all, ", ") + ")"
		case h.Ret != nil:
			return fmt.Sprint(*h.Ret)
		}
		return "?"
	},
	"duration": func(h *trace.Hit) string {
		if h.Duration == nil {
			return "?"
		}
		return h.DurationMark() + h.Duration.String()
	},
}

// fact is how a hit tells the value of an expression by itself; nil if that must be fetched.
func (l *Line) fact(expr string) func(*trace.Hit) string {
	if f := hitFacts[expr]; f != nil || !l.AtReturn() {
		return f
	}
	return returnFacts[expr]
}

// fetched is an expression as trace.Fetch takes it: number i.
func (l *Line) fetched(i int) string {
	if !l.AtReturn() || l.args[i] == "(ret)" { // a parameter of that name
		return l.args[i]
	}
	return theResult.ReplaceAllString(l.args[i], "${1}$$retval")
}

// theResult finds the name ret, which is no member's.
var theResult = regexp.MustCompile(`(^|[^\w.>$@\x{80}-\x{10ffff}])ret\b`)

// inResult finds what ret leads to, in a condition outside of texts.
var inResult = regexp.MustCompile(`"[^"]*"|'[^']*'|(^|[^\w.>$@*\x{80}-\x{10ffff}])(\*+ret\b|ret(\.|->|\[|\)|:))`)

// condition is l's as trace.If takes it: ret alone is there a number.
func (l *Line) condition() string {
	if !l.AtReturn() {
		return l.If
	}
	return inResult.ReplaceAllStringFunc(l.If, func(found string) string {
		if found[0] == '"' || found[0] == '\'' {
			return found
		}
		return theResult.ReplaceAllString(found, "${1}$$retval")
	})
}

// Says is the line of a hit. Values that it names are called in h as in its text from then on.
func (l *Line) Says(h *trace.Hit) string {
	values := map[string]string{}
	for i := range min(len(l.args), len(h.Args)) {
		h.Args[i].Name = l.args[i]
		values[l.args[i]] = inLine(h.Args[i])
	}
	var b strings.Builder
	for _, part := range l.Parts {
		switch fact := l.fact(part.Text); {
		case !part.IsExpr:
			b.WriteString(part.Text)
		case fact != nil:
			b.WriteString(fact(h))
		default:
			b.WriteString(values[part.Text])
		}
	}
	return b.String()
}

// inLine is a value as it stands in a line: a text without quotes.
func inLine(a trace.Arg) string {
	if text, ok := a.Value.(string); ok {
		return text
	}
	return a.String()
}
