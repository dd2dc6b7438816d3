package script

import (
	"errors"
	"fmt"
	"time"

	"go.starlark.net/starlark"
	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/symbols"
)

// hit is what a handler may ask of the thread that hit; a *kprobes.Regs is one.
type hit interface {
	arch.Regs
	arch.Memory
	TID() int
	PID() int
	Comm() string
	Symbols() *symbols.Table
	WriteMemory(at arch.Addr, p []byte) error
	ReadString(at arch.Addr, limit int) (string, error)
	StackArg(n int) (uint64, error)
	symbols.FloatRegs
	symbols.X87Regs
	Backtrace(limit int) []symbols.Frame
	CallFunc(c kprobes.FuncCall) (kprobes.FuncResult, error)
	ReturnNow(value uint64) error
	SetErrno(e unix.Errno) error
	Delay(d time.Duration)
	Signal(sig unix.Signal) error
}

// moment is which of a probe's handlers runs.
type moment uint8

const (
	atPre moment = iota
	atPost
	atEntry
	atReturn
)

var momentNames = [...]string{"pre", "post", "entry", "ret"}

// hitContext is ctx, the argument of handlers: one hit. It is of use until its handler
// has returned.
type hitContext struct {
	script *Script
	site   *site
	at     moment
	hit    hit // nil when the handler has returned
	tid    int
	time   time.Time
	values map[string]starlark.Value // by args
	call   *followed                 // nil but for kretprobes

	took     kprobes.Took // at a return
	returned bool         // ctx.fail or ctx.skip has ended the call
}

// session is that of the process of the hit.
func (c *hitContext) session() Session { return c.site.part.m.session }

var errLate = errors.New("ctx can't be used any more: its handler has returned")

func (c *hitContext) String() string        { return fmt.Sprintf("<hit of %s in %d>", c.site.Name, c.tid) }
func (c *hitContext) Type() string          { return "ctx" }
func (c *hitContext) Freeze()               {}
func (c *hitContext) Truth() starlark.Bool  { return true }
func (c *hitContext) Hash() (uint32, error) { return 0, errors.New("unhashable type: ctx") }

// fields are the values of ctx, methods its functions.
var (
	fields  map[string]func(*hitContext) (starlark.Value, error)
	methods map[string]func(*hitContext, *starlark.Builtin, starlark.Tuple, []starlark.Tuple) (starlark.Value, error)
)

func init() {
	fields = map[string]func(*hitContext) (starlark.Value, error){
		"pid":   func(c *hitContext) (starlark.Value, error) { return starlark.MakeInt(c.hit.PID()), nil },
		"tid":   func(c *hitContext) (starlark.Value, error) { return starlark.MakeInt(c.tid), nil },
		"comm":  func(c *hitContext) (starlark.Value, error) { return starlark.String(c.hit.Comm()), nil },
		"time":  func(c *hitContext) (starlark.Value, error) { return starlark.MakeInt64(c.time.UnixNano()), nil },
		"probe": func(c *hitContext) (starlark.Value, error) { return c.site.part.p, nil },
		"name":  func(c *hitContext) (starlark.Value, error) { return starlark.String(c.site.Name), nil },
		"addr": func(c *hitContext) (starlark.Value, error) {
			return starlark.MakeUint64(uint64(c.site.kp.Addr)), nil
		},
		"regs": func(c *hitContext) (starlark.Value, error) { return registers{c}, nil },
		"args": func(c *hitContext) (starlark.Value, error) { return arguments{c}, nil },
		"data": (*hitContext).data,
		"ret":  (*hitContext).result,
		"duration_ns": func(c *hitContext) (starlark.Value, error) {
			t, err := c.timed("duration_ns")
			return starlark.MakeInt64(t.Time.Nanoseconds()), err
		},
		"duration_min_ns": func(c *hitContext) (starlark.Value, error) {
			t, err := c.timed("duration_min_ns")
			return starlark.MakeInt64(t.Min.Nanoseconds()), err
		},
		"stops": func(c *hitContext) (starlark.Value, error) {
			t, err := c.timed("stops")
			return starlark.MakeInt(t.Stops), err
		},
	}
	methods = map[string]func(*hitContext, *starlark.Builtin, starlark.Tuple, []starlark.Tuple) (starlark.Value, error){
		"arg": (*hitContext).arg, "set_arg": (*hitContext).setArg,
		"read": (*hitContext).read, "write": (*hitContext).write, "string": (*hitContext).string,
		"int": (*hitContext).int, "set_int": (*hitContext).setInt,
		"fail": (*hitContext).fail, "skip": (*hitContext).skip, "set_errno": (*hitContext).setErrno,
		"delay": (*hitContext).delay, "signal": (*hitContext).signal,
		"call": (*hitContext).callFunction, "stack": (*hitContext).stack,
	}
}

// timed is how long the call has taken, for a field of ctx.
func (c *hitContext) timed(field string) (kprobes.Took, error) {
	if c.at != atReturn || c.site.part.p.fault != nil {
		return kprobes.Took{}, fmt.Errorf("ctx.%s is for the ret handler of a kretprobe", field)
	}
	return c.took, nil
}

// Attr implements starlark.HasAttrs.
func (c *hitContext) Attr(name string) (starlark.Value, error) {
	if field, ok := fields[name]; ok {
		if c.hit == nil {
			return nil, errLate
		}
		return field(c)
	}
	method, ok := methods[name]
	if !ok {
		return nil, nil
	}
	return starlark.NewBuiltin("ctx."+name, func(_ *starlark.Thread, b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
		if c.hit == nil {
			return nil, errLate
		}
		v, err := method(c, b, args, kwargs)
		if err != nil {
			return nil, named(b, err)
		}
		return v, nil
	}), nil
}

// named puts the name of a builtin in front of an error that does not begin with it.
func named(b *starlark.Builtin, err error) error {
	if text := err.Error(); len(text) > len(b.Name()) && text[:len(b.Name())] == b.Name() {
		return err
	}
	return fmt.Errorf("%s: %w", b.Name(), err)
}

// AttrNames implements starlark.HasAttrs.
func (c *hitContext) AttrNames() []string {
	var names []string
	for name := range fields {
		names = append(names, name)
	}
	for name := range methods {
		names = append(names, name)
	}
	return names
}

// SetField implements starlark.HasSetField.
func (c *hitContext) SetField(name string, v starlark.Value) error {
	switch {
	case c.hit == nil:
		return errLate
	case name != "ret":
		return starlark.NoSuchAttrError(fmt.Sprintf("ctx.%s can't be set; ctx.ret, ctx.regs.NAME and ctx.data[…] can", name))
	case c.at != atReturn:
		return errors.New("ctx.ret is for the ret handler of a kretprobe; ctx.fail(value) returns at once")
	}
	var w word
	if err := w.Unpack(v); err != nil {
		return fmt.Errorf("ctx.ret: %w", err)
	}
	c.hit.SetReturnValue(uint64(w))
	return nil
}

// data is what the handlers of one call share.
func (c *hitContext) data() (starlark.Value, error) {
	if c.call == nil {
		return nil, errors.New("ctx.data goes from a kretprobe's entry handler to its ret handler; use state in others")
	}
	if c.call.data == nil {
		c.call.data = starlark.NewDict(4)
	}
	return c.call.data, nil
}

// result is what the function has returned: by its type if debug information tells it,
// else the register as a number with a sign.
func (c *hitContext) result() (starlark.Value, error) {
	if c.at != atReturn {
		return nil, errors.New("ctx.ret is for the ret handler of a kretprobe")
	}
	results, err := c.session().Symbols().Results(c.site.kp.Addr)
	if err == nil && len(results) == 1 {
		return typed(results[0], c.hit)
	}
	return starlark.MakeInt64(int64(c.hit.ReturnValue())), nil
}
