package inject

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gokprobe/gokprobe/symbols"
)

// How a call ends with values of its function's types.

// String is the text of the action in events.
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
	return b.returning(r, r.String())
}

// returning is the effect of returning w.
func (p *place) returning(w wanted, would string) (effect, error) {
	if _, err := p.fault.in.returner.look(p.point(), w); err != nil {
		return effect{}, err
	}
	return effect{would: would, do: func(c *Call) (string, error) { return would, c.finish(w) }}, nil
}

// point is the address at which the place's calls are ended now: a library may have been loaded again.
func (p *place) point() returnPoint {
	at := p.Addr
	if p.kp != nil && p.kp.Addr != 0 {
		at = p.kp.Addr
	}
	return returnPoint{at, p.spot == atReturn}
}

// finish ends the call with w.
func (c *Call) finish(w wanted) error {
	if err := c.place.fault.in.returner.finish(c.Regs, c.place.point(), w); err != nil {
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
	return c.finish(r)
}

// Combine merges actions that end a call into one: a value and an errno, or an error and other results. It leaves all
// other actions alone. The error names two actions that contradict each other.
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

// together merges two actions that both end the call.
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

// warnInlined warns of calls that a rule does not see: the compiler has put the function's body in their place.
func (p *place) warnInlined(table *symbols.Table) {
	if p.Waits || p.Optional || p.spot == atInstruction {
		return
	}
	switch n, _ := table.Inlined(p.Addr); n {
	case 0:
	case 1:
		p.fault.in.log("%s: the compiler has inlined 1 call of it, which is not seen", p.Name)
	default:
		p.fault.in.log("%s: the compiler has inlined %d calls of it, which are not seen", p.Name, n)
	}
}
