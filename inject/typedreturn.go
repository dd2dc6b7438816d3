package inject

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/symbols"
)

// How a call ends with values of its function's types.

// String is what events say.
func (r Results) String() string {
	var all []string
	if r.Value != "" {
		all = append(all, "return "+r.Value)
	}
	if r.Error != "" {
		all = append(all, "error "+r.Error)
	}
	for name, value := range r.Named {
		all = append(all, "result "+name+"="+value)
	}
	slices.Sort(all)
	if r.Errno != 0 {
		all = append(all, "errno "+errnoName(r.Errno))
	}
	if len(all) == 0 {
		return "return"
	}
	return strings.Join(all, " ")
}

func (r Results) ends() bool { return true }

func (r Results) bind(b binding) (effect, error) {
	if b.isCall() {
		return r.bindCall()
	}
	would, make := r.String(), func() (*typedResults, error) { return b.typed(r) }
	if _, err := b.remembered(would, make); err != nil {
		return effect{}, err
	}
	return effect{would: would, do: func(c *Call) (string, error) { return would, c.finish(would, make, r.Errno) }}, nil
}

// now is where the place is at this moment; 0 while its library is not loaded.
func (p *place) now() arch.Addr {
	if p.kp != nil && p.kp.Addr != 0 {
		return p.kp.Addr
	}
	return p.addr
}

// typed finds out what results are at a place.
func (p *place) typed(r Results) (*typedResults, error) {
	table, at := p.fault.in.session.Symbols(), p.now()
	if at == 0 {
		return r.untyped(table, at, errors.New("its library is not loaded yet"))
	}
	if r.Errno != 0 && table.GoFunction(at) {
		return nil, errors.New("a Go function has no errno; say which error it returns")
	}
	return r.compile(table, at, p.spot == atReturn)
}

// number is how a call returns an integer. In C and the like a function whose results have no such value, or that
// has none, gets it in the register for integers: whoever asks for that knows why. In Go the caller would take for
// results whatever the other registers hold.
func (p *place) number(v int64) (*typedResults, error) {
	text := strconv.FormatInt(v, 10)
	if v > math.MaxInt32 {
		text = "0x" + strconv.FormatInt(v, 16)
	}
	tr, err := p.typed(Results{Value: text})
	switch {
	case p.now() != 0 && p.fault.in.session.Symbols().GoFunction(p.now()):
		return tr, err
	case err != nil, len(tr.makers) == 0:
		return &typedResults{makers: []maker{constant(words(uint64(v)))}, hidden: true}, nil
	}
	return tr, nil
}

// finish ends a call, or gives one that has returned other results: those that make finds out, if what is not yet
// remembered.
func (c *Call) finish(what string, make func() (*typedResults, error), errno unix.Errno) error {
	tr, err := c.place.remembered(what, make)
	if err != nil {
		return err
	}
	if errno != 0 {
		if err := c.SetErrno(errno); err != nil {
			return err
		}
	}
	end := tr.end
	if c.place.spot == atReturn {
		end = tr.change
	}
	if err := end(c.Regs, c.place.fault.in.keeperOf(c.PID())); err != nil {
		return err
	}
	c.ended = true
	return nil
}

// ReturnResults is Return for results of the function's own types.
func (c *Call) ReturnResults(r Results) error {
	if c.place.isCall() {
		result, err := r.callResult()
		if err != nil {
			return err
		}
		return c.endCall(result)
	}
	return c.finish(r.String(), func() (*typedResults, error) { return c.place.typed(r) }, r.Errno)
}

// returnNumber ends a call with an integer.
func (c *Call) returnNumber(v int64, errno unix.Errno) error {
	return c.finish(strconv.FormatInt(v, 10), func() (*typedResults, error) { return c.place.number(v) }, errno)
}

// mostRemembered bounds what a place remembers of results that handlers make up.
const mostRemembered = 64

// remembered is what make finds out, which is not done twice for the same results. It is forgotten when the function
// is another one: the process has executed a program, or loaded the library again.
func (p *place) remembered(what string, make func() (*typedResults, error)) (*typedResults, error) {
	loc, _ := p.fault.in.session.Symbols().Lookup(p.now())
	if p.made == nil || len(p.made) >= mostRemembered || p.madeIn != loc.Symbol.Module {
		p.made, p.madeIn = map[string]*typedResults{}, loc.Symbol.Module
	}
	if tr, ok := p.made[what]; ok {
		return tr, nil
	}
	tr, err := make()
	if err == nil {
		p.made[what] = tr
	}
	return tr, err
}

// keeperOf is what keeps our values' bytes in a process. It is for the tracer's thread.
func (in *Injector) keeperOf(pid int) *keeper {
	if in.keepers == nil {
		in.keepers = map[int]*keeper{}
	}
	k := in.keepers[pid]
	if k == nil {
		k = &keeper{}
		in.keepers[pid] = k
	}
	return k
}

// Combine makes one action of those that together say what a call returns: a value and an errno, an error and other
// results. The others stay as they are. The error is of two that contradict each other.
func Combine(do []Action) ([]Action, error) {
	var out []Action
	at := -1
	for _, a := range do {
		if a == nil || !a.ends() {
			out = append(out, a)
			continue
		}
		if at < 0 {
			at = len(out)
			out = append(out, a)
			continue
		}
		both, err := together(out[at], a)
		if err != nil {
			return nil, err
		}
		out[at] = both
	}
	return out, nil
}

// together is what two actions say that both end the call.
func together(a, b Action) (Action, error) {
	x, ok := resultsOf(a)
	y, yok := resultsOf(b)
	if !ok || !yok {
		return nil, ErrReturns
	}
	for _, twice := range []bool{x.Value != "" && y.Value != "", x.Error != "" && y.Error != "", x.Errno != 0 && y.Errno != 0} {
		if twice {
			return nil, fmt.Errorf("%w: %s, and %s", ErrReturns, a, b)
		}
	}
	x.Value, x.Error, x.Errno = x.Value+y.Value, x.Error+y.Error, max(x.Errno, y.Errno)
	named := map[string]string{}
	for _, from := range []map[string]string{x.Named, y.Named} {
		for name, value := range from {
			if _, twice := named[name]; twice {
				return nil, fmt.Errorf("the result %s is given twice", name)
			}
			named[name] = value
		}
	}
	x.Named = named
	if x.Errno != 0 && x.Error != "" {
		return nil, errors.New("an error is what Go functions return, an errno what C functions set: give one of them")
	}
	return x, nil
}

// resultsOf is an action as Results. A Return that Fails leaves its value to the other one.
func resultsOf(a Action) (Results, bool) {
	switch a := a.(type) {
	case Results:
		return a, true
	case Return:
		if a.Fails {
			return Results{Errno: a.Errno}, true
		}
		return Results{Value: strconv.FormatInt(a.Value, 10), Errno: a.Errno}, true
	}
	return Results{}, false
}

func parseValue(text string) (Action, error) {
	if text == "" {
		return nil, errors.New("write a value, such as -1, NULL, true or 2.5")
	}
	return Results{Value: text}, nil
}

func parseError(text string) (Action, error) {
	_, err := errorExpression(text)
	return Results{Error: text}, err
}

func parseResult(text string) (Action, error) {
	name, value, err := ResultName(text)
	return Results{Named: map[string]string{name: value}}, err
}

// mostEntries is how much debug information is read to find inlined calls: about a second's worth.
const mostEntries = 1 << 20

// warnInlined tells of calls that a rule does not see, since the compiler has put the function's body in their place.
func (p *place) warnInlined(table *symbols.Table) {
	if p.waits || p.optional || p.spot == atInstruction {
		return
	}
	switch n, _ := table.Inlined(p.addr, mostEntries); n {
	case 0:
	case 1:
		p.fault.in.log("%s: the compiler has inlined 1 call of it, which is not seen", p.name)
	default:
		p.fault.in.log("%s: the compiler has inlined %d calls of it, which are not seen", p.name, n)
	}
}

var _ keptMemory = (*kprobes.Regs)(nil)
