package inject

import (
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/expr/arg"
	"github.com/gokprobe/gokprobe/internal/host"
)

// Action is a change to an injected call. Its String is the text that ParseAction reads as it, with its kind in front.
type Action interface {
	fmt.Stringer
	// ends says that the body does not run then.
	ends() bool
	// bind finds out what the action is at a place.
	bind(b binding) (effect, error)
}

// binding is the place at which an action shall be taken.
type binding struct {
	*place
	// hide adds an operand to the call's fetched values, and returns its number among
	// them.
	hide func(Operand) int
}

// effect is an action at one place.
type effect struct {
	do    func(c *Call) (what string, err error)
	would string // the text of the event in a dry run
}

// Operand is a number, such as "-1" or "0x10", or one of the kernel's fetch arguments, such as "$arg2" or "+8(%di):u32". A fetch
// argument stands for its value at the call.
type Operand string

// value returns a function that evaluates an operand at a call.
func (b binding) value(o Operand) func(c *Call) (uint64, error) {
	if n, err := strconv.ParseInt(string(o), 0, 64); err == nil {
		return func(*Call) (uint64, error) { return uint64(n), nil }
	}
	if n, err := strconv.ParseUint(string(o), 0, 64); err == nil {
		return func(*Call) (uint64, error) { return n, nil }
	}
	i := b.hide(o)
	return func(c *Call) (uint64, error) {
		if err := c.fetch(); err != nil {
			return 0, err
		}
		if c.Values[i].Fault {
			return 0, fmt.Errorf("%s can't be read", o)
		}
		return c.Values[i].U, nil
	}
}

// errNoRegister is the error of an unknown register.
var errNoRegister = errors.New("there is no such register")

// SetRegister changes a register before the body runs, or with Rule.After before the caller goes on.
type SetRegister struct {
	Name  string // of package arch or the kernel's, "rdi" or "di"
	Value Operand
}

func (a SetRegister) String() string { return fmt.Sprintf("set %%%s=%s", a.Name, a.Value) }
func (a SetRegister) ends() bool     { return false }

func (a SetRegister) bind(b binding) (effect, error) {
	name, ok := host.RegisterName(a.Name)
	if !ok {
		return effect{}, fmt.Errorf("%%%s: %w", a.Name, errNoRegister)
	}
	if name == host.Roles.IP || name == host.Roles.SP {
		return effect{}, fmt.Errorf("%%%s says where the thread goes on; use a return value to leave the function", a.Name)
	}
	value := b.value(a.Value)
	return effect{would: a.String(), do: func(c *Call) (string, error) {
		v, err := value(c)
		if err == nil && !c.Set(name, v) {
			err = fmt.Errorf("%%%s can't be changed", a.Name)
		}
		return fmt.Sprintf("set %%%s=%#x", a.Name, v), err
	}}, nil
}

// SetArgument changes an argument before the body runs.
type SetArgument struct {
	N     int // from 1, as $arg1
	Value Operand
}

func (a SetArgument) String() string { return fmt.Sprintf("set $arg%d=%s", a.N, a.Value) }
func (a SetArgument) ends() bool     { return false }

func (a SetArgument) bind(b binding) (effect, error) {
	if b.spot != atEntry && b.spot != atCall {
		return effect{}, errors.New("arguments can only be changed at the entry of a function, before its body runs")
	}
	if err := a.there(b); err != nil {
		return effect{}, err
	}
	value := b.value(a.Value)
	return effect{would: a.String(), do: func(c *Call) (string, error) {
		v, err := value(c)
		if err == nil {
			err = c.SetArg(a.N, v)
		}
		return fmt.Sprintf("set $arg%d=%#x", a.N, v), err
	}}, nil
}

// there returns an error if the function has no such argument: changing it on the stack would change the caller's frame. An argument in a register is
// always accepted, since a variadic function takes more than its declaration says.
func (a SetArgument) there(b binding) error {
	if a.N <= len(b.abi.Args) {
		return nil
	}
	params, err := b.fault.in.session.Symbols().Params(b.Addr)
	if b.spot == atCall || a.N > arg.MaxArgs || err == nil && a.N > len(params) {
		return fmt.Errorf("%s has no argument %d", b.Name, a.N)
	}
	return nil
}

// SetMemory writes to the target's memory.
type SetMemory struct {
	At    Operand
	Bytes []byte
}

func (a SetMemory) String() string {
	return fmt.Sprintf("poke %s=0x%s", a.At, hex.EncodeToString(a.Bytes))
}
func (a SetMemory) ends() bool { return false }

func (a SetMemory) bind(b binding) (effect, error) {
	if len(a.Bytes) == 0 {
		return effect{}, errors.New("there are no bytes to write")
	}
	value := b.value(a.At)
	return effect{would: a.String(), do: func(c *Call) (string, error) {
		at, err := value(c)
		if err == nil {
			err = c.WriteMemory(arch.Addr(at), a.Bytes)
		}
		return fmt.Sprintf("poke %#x=0x%s", at, hex.EncodeToString(a.Bytes)), err
	}}, nil
}

// Corrupt changes bits of one byte of the target's memory.
type Corrupt struct {
	At  Operand
	Off uint64 // of the byte, from At
	XOR byte   // the bits; 0 stands for all
}

func (a Corrupt) String() string { return fmt.Sprintf("corrupt %s@%d^%#x", a.At, a.Off, a.mask()) }
func (a Corrupt) ends() bool     { return false }

func (a Corrupt) mask() byte {
	if a.XOR == 0 {
		return 0xff
	}
	return a.XOR
}

func (a Corrupt) bind(b binding) (effect, error) {
	value := b.value(a.At)
	return effect{would: a.String(), do: func(c *Call) (string, error) {
		v, err := value(c)
		at := arch.Addr(v + a.Off)
		was := make([]byte, 1)
		if err == nil {
			err = c.ReadMemory(at, was)
		}
		now := was[0] ^ a.mask()
		if err == nil {
			err = c.WriteMemory(at, []byte{now})
		}
		return fmt.Sprintf("corrupt %v: %#02x -> %#02x", at, was[0], now), err
	}}, nil
}

// delaySeed makes the random numbers of delays differ from those of decisions.
const delaySeed = 0x64656c6179

// Signal raises a signal in the thread, which gets it when it goes on.
type Signal struct{ Signal unix.Signal }

func (a Signal) String() string { return "signal " + signalName(a.Signal) }
func (a Signal) ends() bool     { return false }

func (a Signal) bind(binding) (effect, error) {
	const last = 64
	if a.Signal < 1 || a.Signal > last {
		return effect{}, fmt.Errorf("there is no signal %d", int(a.Signal))
	}
	return effect{would: a.String(), do: func(c *Call) (string, error) { return a.String(), c.Regs.Signal(a.Signal) }}, nil
}

func signalName(s unix.Signal) string {
	if name := unix.SignalName(s); name != "" {
		return name
	}
	return strconv.Itoa(int(s))
}

// kindsOf lists the kinds of actions that ParseAction knows.
func kindsOf() []string {
	var all []string
	for kind := range parsers {
		all = append(all, kind)
	}
	slices.Sort(all)
	return all
}
