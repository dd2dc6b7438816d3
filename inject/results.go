package inject

import (
	"encoding/binary"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/symbols"
)

// Results are the results of a call in place of those of its function's body. They are values of
// the function's own types, which debug information tells. Results that are not named are zero.
type Results struct {
	// Value is the result of a function with one result. In Go it is the first result that is
	// not an error. It is a number, NULL or nil, true or false, an enumerator, or "text" for
	// a Go string.
	Value string
	// Error is the error that a Go function returns: an errno (ENOENT), a variable (io.EOF),
	// the text of an error, or a Go expression, which may name the function's parameters:
	// &fs.PathError{Op: "open", Path: name, Err: ENOENT}.
	Error string
	// Named are other results' values, by the results' names or their numbers from 0.
	Named map[string]string
	// Errno is what the thread's errno is set to; 0 leaves it.
	Errno unix.Errno
}

// ResultName splits NAME=VALUE or N=VALUE, an element of Results.Named.
func ResultName(text string) (name, value string, err error) {
	name, value, ok := strings.Cut(text, "=")
	if name = strings.TrimSpace(name); !ok || name == "" {
		return "", "", fmt.Errorf("%q is no result: write NAME=VALUE, or 0=VALUE for the first", text)
	}
	return name, strings.TrimSpace(value), nil
}

// typedResults are Results for one function. make and put are for one thread at a time.
type typedResults struct {
	results []symbols.Param
	makers  []maker
	isPlain bool // the value is a word for the result register: no debug information describes the function
}

// compile translates r for the function that contains at. after says that the body has run, so
// that r can't name parameters.
func (r Results) compile(t *symbols.Table, at arch.Addr, after bool) (*typedResults, error) {
	results, err := t.Results(at)
	if err != nil {
		return r.untyped(t, at, err)
	}
	c := &typing{table: t, at: at}
	if params, err := t.Params(at); err == nil && !after {
		c.params = params
	}
	tr := &typedResults{results: results, makers: make([]maker, len(results))}
	if err := r.fill(c, tr); err != nil {
		return nil, err
	}
	for i, p := range results {
		if err := p.Storable(); err != nil {
			return nil, fmt.Errorf("%s can't be made to return a value: %w", nameOf(t, at), err)
		}
		if tr.makers[i] == nil {
			tr.makers[i] = constant(make([]byte, p.TypeOf().Size()))
		}
	}
	return tr, nil
}

func nameOf(t *symbols.Table, at arch.Addr) string {
	loc, _ := t.Lookup(at)
	if loc.Symbol.Name == "" {
		return at.String()
	}
	return loc.Symbol.Name
}

// fill compiles the values that are given.
func (r Results) fill(c *typing, tr *typedResults) error {
	if r.Error != "" {
		i := errorResult(tr.results)
		if i < 0 {
			return fmt.Errorf("it returns %s, which is no error: give a value instead", signature(tr.results))
		}
		x, err := errorExpression(r.Error)
		if err != nil {
			return err
		}
		if err := c.put(tr, i, x); err != nil {
			return err
		}
	}
	if r.Value != "" {
		if err := r.fillValue(c, tr); err != nil {
			return err
		}
	}
	for name, text := range r.Named {
		i := resultNamed(tr.results, name)
		if i < 0 {
			return fmt.Errorf("it has no result %s: it returns %s", name, signature(tr.results))
		}
		if err := c.put(tr, i, valueExpression(text)); err != nil {
			return err
		}
	}
	return nil
}

// fillValue compiles Value. If a function has no result, its value can only be 0: its body does
// not run, and it returns nothing.
func (r Results) fillValue(c *typing, tr *typedResults) error {
	i := slices.IndexFunc(tr.results, func(p symbols.Param) bool { return !isError(p) })
	if i < 0 && len(tr.results) > 0 {
		i = 0
	}
	x := valueExpression(r.Value)
	if n, _ := x.number(); i < 0 && n == "0" {
		return nil
	}
	if i < 0 {
		return fmt.Errorf("it returns nothing: the value can only be 0, which leaves its body out")
	}
	return c.put(tr, i, x)
}

func (c *typing) put(tr *typedResults, i int, x expression) error {
	if tr.makers[i] != nil {
		return fmt.Errorf("the result %s has been given two values", tr.results[i].Name)
	}
	m, err := c.value(x, tr.results[i].TypeOf())
	if err != nil {
		return fmt.Errorf("the result %s: %w", tr.results[i].Name, err)
	}
	tr.makers[i] = m
	return nil
}

// valueExpression parses a value. A text that is no expression is taken as a string.
func valueExpression(text string) expression {
	x, err := parseExpression(text)
	if err != nil {
		x.node = quoted(text)
	}
	return x
}

func isError(p symbols.Param) bool {
	return p.TypeOf().Go() && p.TypeOf().Kind() == reflect.Interface && p.Type == "error"
}

// errorResult is the number of the result that is an error: the last one of type error, or
// else the last one if its type may be that of an error.
func errorResult(results []symbols.Param) int {
	for i := len(results) - 1; i >= 0; i-- {
		if isError(results[i]) {
			return i
		}
	}
	if last := len(results) - 1; last >= 0 && results[last].TypeOf().Go() {
		switch t := results[last].TypeOf(); t.Kind() {
		case reflect.Interface, reflect.Pointer:
			return last
		case reflect.Uint:
			if t.Name() == "syscall.Errno" {
				return last
			}
		}
	}
	return -1
}

func resultNamed(results []symbols.Param, name string) int {
	if n, err := strconv.Atoi(name); err == nil && n >= 0 && n < len(results) {
		return n
	}
	return slices.IndexFunc(results, func(p symbols.Param) bool { return p.Name == name })
}

// signature prints results as Go does.
func signature(results []symbols.Param) string {
	if len(results) == 0 {
		return "nothing"
	}
	var types []string
	for _, p := range results {
		types = append(types, p.Type)
	}
	if len(types) == 1 {
		return types[0]
	}
	return "(" + strings.Join(types, ", ") + ")"
}

// untyped is compile for a function without debug information: its result is a number or a
// pointer, in the register for those.
func (r Results) untyped(t *symbols.Table, at arch.Addr, why error) (*typedResults, error) {
	if t.GoFunction(at) {
		return nil, fmt.Errorf("the results of %s are not known (%w): build the target with debug information (without -ldflags=-w or -s), or set registers yourself: Go's integer results are in rax, rbx, rcx, rdi, rsi, r8 to r11", nameOf(t, at), why)
	}
	if r.Error != "" || len(r.Named) > 0 {
		return nil, fmt.Errorf("%s is not known to be a Go function (%w): give a value, and an errno if it sets one", nameOf(t, at), why)
	}
	x := valueExpression(r.Value)
	text, ok := x.number()
	switch strings.ToLower(x.name()) {
	case "null", "nil", "nullptr", "false":
		text, ok = "0", true
	case "true":
		text, ok = "1", true
	}
	v, err := wholeNumber(text, 64, false)
	if !ok || err != nil {
		return nil, fmt.Errorf("%s can't be returned from %s: without debug information the value is a whole number, or NULL (%w)", r.Value, nameOf(t, at), why)
	}
	return &typedResults{makers: []maker{constant(words(v))}, isPlain: true}, nil
}

// make makes the values for one call. m has the registers at its entry.
func (tr *typedResults) make(m *making) ([][]byte, error) {
	values := make([][]byte, len(tr.makers))
	for i, mk := range tr.makers {
		var err error
		if values[i], err = mk(m); err != nil {
			return nil, err
		}
	}
	return values, nil
}

// put stores values where the caller looks for them: r's stack pointer is as after the return.
func (tr *typedResults) put(values [][]byte, r arch.Regs, m arch.Memory) error {
	if tr.isPlain {
		r.SetReturnValue(binary.LittleEndian.Uint64(values[0]))
		return nil
	}
	for i, p := range tr.results {
		if err := p.Store(values[i], r, m); err != nil {
			return err
		}
	}
	return nil
}

// end ends the call whose first instruction a thread is about to run: the caller gets the
// results. The PreHandler must then return non-zero. After an error the call has not been
// ended, or its results can't be written, since the thread is being killed.
func (tr *typedResults) end(r *kprobes.Regs, k *keeper) error {
	values, err := tr.make(&making{keeper: k, memory: r, regs: r})
	if err != nil {
		return err
	}
	if err := r.ReturnNow(0); err != nil {
		return err
	}
	return tr.put(values, r, r)
}

// change gives a call that has returned other results.
func (tr *typedResults) change(r *kprobes.Regs, k *keeper) error {
	values, err := tr.make(&making{keeper: k, memory: r, regs: r})
	if err != nil {
		return err
	}
	return tr.put(values, r, r)
}
