package inject

import (
	"fmt"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/expr/fetch"
	"github.com/gokprobe/gokprobe/expr/values"
	"github.com/gokprobe/gokprobe/inject/fault"
	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/symbols"
)

// Call is an injected call, whose thread stands still. It is valid only during the handler that gets it.
type Call struct {
	*kprobes.Regs
	// Values are those of Args, in their order, once they are asked for.
	Values []fetch.Value
	// N is the number of this injection among those of the fault, from 1. It is settled when its actions are done: to a Handler it is the
	// next one.
	N uint64

	place   *place
	saved   []uint64 // arguments of the call, at its return
	fetched bool
	err     error // of fetching
	ended   bool  // the body does not run, or its result is settled
	verdict fault.Decision
	what    []string
}

// Fault is the fault that has chosen the call.
func (c *Call) Fault() *Fault { return c.place.fault }

// Place is the name of the function or instruction.
func (c *Call) Place() string { return c.place.Name }

// AtReturn reports whether the body has run.
func (c *Call) AtReturn() bool { return c.place.spot == atReturn || c.place.spot == atCallReturn }

// Decision says why the call was chosen, and how verbose its event is.
func (c *Call) Decision() fault.Decision { return c.verdict }

// Ended reports whether an action or the handler has made the call return without its body.
func (c *Call) Ended() bool { return c.ended }

// fetch reads the values.
func (c *Call) fetch() error {
	if c.fetched || c.place.values == nil {
		return c.err
	}
	c.fetched = true
	c.Values, c.err = c.place.values.Layout.Fetch(c.Regs, c.Regs, c.saved, values.Host(c.place.fault.in.session.Symbols(), c.Comm(), c.ReturnPlace))
	return c.err
}

// Value is the value of one of Rule.Args, by its name.
func (c *Call) Value(name string) (arg fetch.Arg, v fetch.Value, ok bool) {
	if c.place.values == nil || c.fetch() != nil {
		return arg, v, false
	}
	for i, a := range c.place.values.Args[:c.place.shown] {
		if a.Name == name {
			return a, c.Values[i], true
		}
	}
	return arg, v, false
}

// Arg returns the n-th argument, from 1, of a function's call, as $argN does. At a return it is no longer known.
func (c *Call) Arg(n int) (uint64, error) {
	reg, at, err := c.argument(n)
	if err != nil {
		return 0, err
	}
	if reg != "" {
		v, _ := c.Get(reg)
		return v, nil
	}
	return c.ReadUint64(at)
}

// SetArg changes the n-th argument, from 1, of a function's call.
func (c *Call) SetArg(n int, v uint64) error {
	reg, at, err := c.argument(n)
	if err != nil {
		return err
	}
	if reg != "" {
		c.Set(reg, v)
		return nil
	}
	return c.WriteUint64(at, v)
}

// argument is where an argument is: a register, or memory.
func (c *Call) argument(n int) (reg string, at arch.Addr, err error) {
	abi := c.place.abi
	switch {
	case n < 1:
		return "", 0, fmt.Errorf("arguments are counted from 1, not from %d", n)
	case c.place.isCall() && n > len(abi.Args):
		return "", 0, fmt.Errorf("a system call has %d arguments at most", len(abi.Args))
	case c.place.spot != atEntry && !c.place.isCall():
		return "", 0, fmt.Errorf("arguments are known at a function's entry only: %w", kprobes.ErrNotEntry)
	case n <= len(abi.Args):
		return abi.Args[n-1], 0, nil
	}
	const word = 8
	return "", c.SP() + arch.Addr(word*(n-len(abi.Args))), nil
}

// Return makes the call return value: at its entry without running its body, at its
// return in place of its own result. If the function's type is known, value is a
// number of that type, and other results of a Go function are zero. The error is that of
// kprobes.Regs.ReturnNow, or says that the function returns no such number. After an
// error nothing has changed.
func (c *Call) Return(value uint64) error {
	if c.place.isCall() {
		if c.ended && int64(value) == -1 && int64(c.ReturnValue()) < 0 {
			return nil // Errno has added this to the event
		}
		return c.endCall(value)
	}
	return c.finish(number(int64(value)))
}

// Note adds a text about a change to the event of this call.
func (c *Call) Note(format string, args ...any) {
	c.what = append(c.what, fmt.Sprintf(format, args...))
}

// Callers are the return addresses of the call, the innermost first: as many as stack filters may look at.
func (c *Call) Callers() []uint64 {
	frames := c.Backtrace(fault.MaxStackDepth + 1)
	if (c.place.spot == atEntry || c.place.spot == atInstruction) && len(frames) > 0 {
		frames = frames[1:] // the function itself
	}
	all := make([]uint64, len(frames))
	for i, f := range frames {
		all[i] = uint64(f.Addr)
	}
	return all
}

// stack is the backtrace for the call's event; nil if the verbosity is below 2.
func (c *Call) stack() []symbols.Frame {
	if c.verdict.Log < 2 {
		return nil
	}
	return c.Backtrace(max(c.place.fault.rule.Attr.StackDepth, 1))
}

// save stores words of a call's entry in the call's data; saved reads them at its return.
