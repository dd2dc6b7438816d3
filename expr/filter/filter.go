// Package filter is the language of an event's filter file: which hits are kept, by their
// values (Documentation/trace/events.rst §5; kernel/trace/trace_events_filter.c).
//
//	field op value, && || ! ( )
//	numbers: == != < <= > >= &; strings, in quotes: == != ~ (a glob: * ? [ ] \, with ! in front: not)
//	field.function == NAME; field & CPUS{0,2-4}
//
// A number is compared as one of its field's size and sign. One that could not be read is 0, a
// string then is empty. Of several strings the first counts; an array of char is a string.
// Where there are expressions, what compares a value that is not known is neither true nor false, nor is its
// opposite (Kleene), and no such hit is kept.
// Parse tells what differs from the kernel.
//
// The package is pure: no system call, no build tag.
package filter

import (
	"slices"
	"strings"

	"github.com/gokprobe/gokprobe/expr/caret"
	"github.com/gokprobe/gokprobe/expr/fetch"
)

// MaxLen is what a filter's text is shorter than, in bytes (the kernel: PAGE_SIZE).
const MaxLen = 4096

// Filter is a condition on the values of an event. It is not changed after it was made; any number of goroutines may
// use it.
type Filter struct {
	text   string
	fields []fetch.Field
	root   *node
}

// Parser makes filters.
type Parser struct {
	Fields []fetch.Field
	// Function finds the function that has a name, or that an address like 0x401136 lies in: the address of its first byte, and
	// that behind its last. nil knows none.
	Function func(name string) (start, end uint64, ok bool)
	// Callers are the return addresses of the calls that functions of a name make. nil knows none.
	Callers func(name string) []Span
	// Exprs lets fields have names that are no identifiers, but expressions, and be compared with each other, by Rules; nil are C's.
	Exprs bool
	Rules func() Rules
}

// Parse makes a filter over fields. The error is an *caret.Error and matches EINVAL.
//
// What differs from the kernel (6.18): an operator with nothing behind it is an error,
// as is a number compared with an array, whereas an array of char is a string; errors
// that the kernel has no words for are INVALID_FILTER; every error is EINVAL; a glob
// may begin with a digit. In the kernel, the value of a string that could not be read
// is the bytes behind it in the record.
func Parse(text string, fields []fetch.Field) (*Filter, error) {
	return Parser{Fields: fields}.Parse(text)
}

// Parse makes a filter. The error is an *caret.Error and matches EINVAL.
func (p Parser) Parse(text string) (*Filter, error) {
	text = strings.TrimRight(text, space)
	root, err := p.parse(text)
	if err != nil {
		return nil, err
	}
	return &Filter{text, p.Fields, root}, nil
}

// Clears tells that text, written to a filter file, takes the filter away.
func Clears(text string) bool { return strings.Trim(text, space) == "0" }

// String is the text that the filter was made of.
func (f *Filter) String() string { return f.text }

// Match tells whether a hit with these values, one for each field, is kept.
func (f *Filter) Match(values []fetch.Value) bool {
	return f.MatchBy(func(field int) (v fetch.Value) {
		if field < len(values) {
			v = values[field]
		}
		return v
	})
}

// MatchBy is Match where values are looked for when they are needed.
func (f *Filter) MatchBy(read Reader) bool { return f.root.match(f.fields, read) == yes }

// Shown is what the filter file shows, without the last newline, after a filter was refused with err.
func Shown(err *caret.Error) string {
	return err.Command + "\n" + strings.Repeat(" ", min(err.Column, len(err.Command))) + "^\nparse_error: " + err.Text + "\n"
}

// Fields are the indices of the fields that the filter looks at, each once.
func (f *Filter) Fields() []int {
	return slices.Compact(slices.Sorted(slices.Values(f.root.fields(nil))))
}

func (n *node) fields(all []int) []int {
	if n.pred != nil {
		return n.pred.fields(all)
	}
	for _, sub := range n.list {
		all = sub.fields(all)
	}
	return all
}

func (p *pred) fields(all []int) []int {
	if p.left == nil {
		return append(all, p.field)
	}
	return p.right.fields(p.left.fields(all))
}

func (x *sum) fields(all []int) []int {
	switch {
	case x.op != "":
		return x.b.fields(x.a.fields(all))
	case x.field >= 0:
		return append(all, x.field)
	}
	return all
}
