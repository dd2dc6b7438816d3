package script

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"go.starlark.net/starlark"
	"go.starlark.net/starlarkstruct"
	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/inject"
	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/symbols"
)

// What a handler can do to the thread that hit.

// fail is ctx.fail(ret=None, errno=None, error=None): the function returns ret at once, without
// having run; at its return, it has returned ret instead. Without ret it is what C functions
// return with errno set: -1, or NULL where debug information says that the function returns a
// pointer. error is for Go functions.
func (c *hitContext) fail(b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	var ret, code, goError starlark.Value = starlark.None, starlark.None, starlark.None
	if err := starlark.UnpackArgs(b.Name(), args, kwargs, "ret?", &ret, "errno?", &code, "error?", &goError); err != nil {
		return nil, err
	}
	var e unix.Errno
	switch {
	case ret == starlark.None && code == starlark.None && goError == starlark.None:
		return nil, errors.New("give ret, errno, or both; or error for a Go function")
	case code != starlark.None:
		var err error
		if e, err = errnoOf(code); err != nil {
			return nil, err
		}
	}
	if _, plain := ret.(starlark.Int); goError == starlark.None && !c.goes() && (plain || ret == starlark.None) {
		return starlark.None, c.failPlainly(ret, e)
	}
	r := inject.Results{Errno: e}
	if ret != starlark.None {
		if r.Value = text(ret); ret.Type() == "bool" {
			r.Value = strings.ToLower(r.Value)
		}
	}
	if goError != starlark.None {
		r.Error = text(goError)
	}
	return starlark.None, c.end(r)
}

// goes tells of a Go function, whose callers look at more than one register.
func (c *hitContext) goes() bool { return c.session().Symbols().GoFunction(c.site.kp.Addr) }

// failPlainly makes a function of C or the like return a number or pointer.
func (c *hitContext) failPlainly(ret starlark.Value, e unix.Errno) error {
	value := word(c.failure())
	if ret != starlark.None {
		if err := value.Unpack(ret); err != nil {
			return fmt.Errorf("for parameter ret: %w", err)
		}
	}
	if e != 0 {
		if err := c.hit.SetErrno(e); err != nil {
			return err
		}
	}
	return c.leave(uint64(value))
}

// end makes the function return results of its own types.
func (c *hitContext) end(r inject.Results) error {
	if c.at == atPost {
		return errPost
	}
	if f, ok := c.hit.(injected); ok {
		return f.call.ReturnResults(r)
	}
	regs, ok := c.hit.(*kprobes.Regs)
	returner := c.site.part.m.returner
	if !ok || returner == nil {
		return errors.New("there is no process")
	}
	if c.at == atReturn {
		return returner.Change(regs, c.site.kp.Addr, r)
	}
	if err := returner.Return(regs, c.site.kp.Addr, r); err != nil {
		return err
	}
	c.returned = true
	return nil
}

var errPost = errors.New("the first instruction has run already; do it in pre")

// skip is ctx.skip(ret=0): the function returns at once.
func (c *hitContext) skip(b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	var ret word
	if err := starlark.UnpackArgs(b.Name(), args, kwargs, "ret?", &ret); err != nil {
		return nil, err
	}
	if c.at == atReturn {
		return nil, errors.New("the function has run already; set ctx.ret to change what it returns")
	}
	if c.goes() {
		return starlark.None, c.end(inject.Results{Value: strconv.FormatInt(int64(ret), 10)})
	}
	return starlark.None, c.leave(uint64(ret))
}

// leave makes the function return value.
func (c *hitContext) leave(value uint64) error {
	switch c.at {
	case atPost:
		return errPost
	case atReturn:
		c.hit.SetReturnValue(value)
		return nil
	}
	if err := c.hit.ReturnNow(value); err != nil {
		return err
	}
	c.returned = true
	return nil
}

// failure is what the function returns if it fails.
func (c *hitContext) failure() uint64 {
	results, err := c.session().Symbols().Results(c.site.kp.Addr)
	if err == nil && len(results) == 1 {
		if d, err := results[0].Datum(); err == nil && (d.Shape == symbols.ShapePointer || d.Shape == symbols.ShapeTextPointer) {
			return 0
		}
	}
	return ^uint64(0)
}

// setErrno is ctx.set_errno(code).
func (c *hitContext) setErrno(b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	var code starlark.Value
	if err := starlark.UnpackArgs(b.Name(), args, kwargs, "errno", &code); err != nil {
		return nil, err
	}
	e, err := errnoOf(code)
	if err != nil {
		return nil, err
	}
	return starlark.None, c.hit.SetErrno(e)
}

// delay is ctx.delay("50ms"): the thread goes on so much later.
func (c *hitContext) delay(b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	var d duration
	if err := starlark.UnpackArgs(b.Name(), args, kwargs, "duration", &d); err != nil {
		return nil, err
	}
	c.hit.Delay(time.Duration(d))
	return starlark.None, nil
}

// signal is ctx.signal("SIGTERM"): to the thread.
func (c *hitContext) signal(b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	var which starlark.Value
	if err := starlark.UnpackArgs(b.Name(), args, kwargs, "signal", &which); err != nil {
		return nil, err
	}
	sig, err := signalOf(which)
	if err != nil {
		return nil, err
	}
	return starlark.None, c.hit.Signal(sig)
}

// callFunction is ctx.call(fn, …, timeout="1s"): fn is a name or an address, the others are numbers.
func (c *hitContext) callFunction(b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	timeout := duration(kprobes.CallTimeout)
	if err := starlark.UnpackArgs(b.Name(), nil, kwargs, "timeout?", &timeout); err != nil {
		return nil, err
	}
	switch {
	case len(args) == 0:
		return nil, errors.New("give the function and its arguments, by position")
	case timeout == 0:
		return nil, errors.New("timeout must be more than 0")
	}
	fn, err := c.script.address(args[0])
	if err != nil {
		return nil, err
	}
	words := make([]uint64, len(args)-1)
	for i, v := range args[1:] {
		var w word
		if err := w.Unpack(v); err != nil {
			return nil, fmt.Errorf("argument %d: %w", i, err)
		}
		words[i] = uint64(w)
	}
	var ret kprobes.FuncResult
	c.script.wait(c.site.part.m, func() {
		ret, err = c.hit.CallFunc(kprobes.FuncCall{Fn: fn, Args: words, Timeout: time.Duration(timeout)})
	})
	if err != nil {
		return nil, err
	}
	return starlark.MakeInt64(int64(ret.Int)), nil
}

// stack is ctx.stack(n=16): the innermost frame first.
func (c *hitContext) stack(b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	n := 16
	if err := starlark.UnpackArgs(b.Name(), args, kwargs, "n?", &n); err != nil {
		return nil, err
	}
	if n < 1 || n > 1024 {
		return nil, fmt.Errorf("n must be from 1 to 1024, not %d", n)
	}
	var all []starlark.Value
	for _, f := range c.hit.Backtrace(n) {
		all = append(all, starlarkstruct.FromStringDict(starlarkstruct.Default, starlark.StringDict{
			"addr": starlark.MakeUint64(uint64(f.Addr)), "name": starlark.String(f.Symbol.Name),
			"offset": starlark.MakeUint64(f.Offset), "module": starlark.String(f.Symbol.ModuleName()),
			"file": starlark.String(f.File), "line": starlark.MakeInt(f.Line),
		}))
	}
	return starlark.NewList(all), c.charge(uint64(len(all)))
}

// address is that of a function or variable, by its name or as a number.
func (s *Script) address(v starlark.Value) (arch.Addr, error) {
	name, ok := starlark.AsString(v)
	if !ok {
		var w word
		if err := w.Unpack(v); err != nil {
			return 0, fmt.Errorf("got %s, want a name or an address", v.Type())
		}
		return w.addr(), nil
	}
	m := s.present()
	if m == nil {
		return 0, errNoProcess
	}
	table := m.session.Symbols()
	found, err := table.Resolve(s.heeded(), name)
	switch {
	case err == nil && len(found) == 1:
		return found[0].Addr, nil
	case err == nil:
		return 0, fmt.Errorf("%s stands for %d addresses, name one", name, len(found))
	}
	if v, oerr := table.Object(name); oerr == nil {
		return v.Addr, nil
	}
	return 0, err
}

// errNoProcess is what has no meaning outside of handlers, where there is more than one process.
var errNoProcess = errors.New("addresses differ between processes; ask for it in a handler, where it is that of the process of the hit")

// errnoOf is an error number by name or as a number.
func errnoOf(v starlark.Value) (unix.Errno, error) { return inject.ParseErrno(text(v)) }

// signalOf is a signal by name or as a number.
func signalOf(v starlark.Value) (unix.Signal, error) { return inject.ParseSignal(text(v)) }
