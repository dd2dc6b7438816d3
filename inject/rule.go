package inject

import (
	"errors"
	"fmt"
	"strings"

	"github.com/gokprobe/gokprobe/inject/fault"
	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/symbols"
)

// Rule says which calls are made to fail, and how.
type Rule struct {
	// Name is the rule's name in events and counts. If it is empty, the specifications are.
	Name string
	// Spec names a function, as symbols.Table.Resolve reads it. If it means several functions, each gets a probe. Without a
	// Return it may be any instruction.
	Spec string
	// Specs are further ones. The calls of all of them count together.
	Specs []string
	// Syscall names system calls in place of functions, as ParseSyscalls reads them. Then $argN are the arguments of the system
	// call, and its result is the kernel's: a negative one is an error.
	Syscall string
	// SyscallBy is how they are seen.
	SyscallBy kprobes.SyscallWay

	// Attr chooses among the calls.
	Attr fault.Attr
	// Decider decides in place of Attr, if it is not nil. The calls of all rules that share it are one sequence. Such a rule must be
	// about all calls of its functions: it has no If, no Size, no After, and no Syscall (ErrShared).
	Decider *Decider
	// Task reports whether calls of a thread may fail, for Attr.TaskFilter. It is called on the tracer's thread. If it is nil, all may.
	Task func(pid, tid int) bool
	// Size is how much of Attr.Space a call uses up: a fetch argument such as "$arg3". If it is empty, a call uses up 1.
	Size string

	// Args are fetch arguments, NAME=EXPR. Events hold their values.
	Args []string
	// If is a condition over Args, the function's parameters, comm and common_pid. Calls that do not meet it are not counted.
	If string

	// Do are the actions on an injected call, in this order. At most one of them may end the call.
	Do []Action
	// After lets the body run first: the Args and If may look at $retval, and a Return changes the result.
	After bool
	// Handler is called for each chosen call, before the actions of Do. It may change the call itself; if it returns false, the
	// call passes. It runs on the tracer's thread while the call's thread stands still.
	Handler func(c *Call) bool
	// Stopped leaves the probes disarmed until Fault.Start.
	Stopped bool
	// DryRun means that calls are chosen and counted and make events, but are not changed.
	DryRun bool

	// MaxActive is how many calls are followed to their returns at once, with After. 0 means 4096.
	MaxActive int
}

// name is the rule's name for the user.
func (r *Rule) name() string {
	switch {
	case r.Name != "":
		return r.Name
	case r.Syscall != "":
		return r.Syscall
	}
	return strings.Join(r.specs(), ", ")
}

func (r *Rule) specs() []string {
	if r.Spec == "" {
		return r.Specs
	}
	return append([]string{r.Spec}, r.Specs...)
}

// Errors of rules that make no sense.
var (
	ErrNoPlace = errors.New("the rule names neither a function nor a system call")
	ErrPlaces  = errors.New("a rule is about functions or a system call, not both")
	ErrNothing = errors.New("the rule does nothing to a call")
	ErrReturns = errors.New("a call can return only once")
	ErrShared  = errors.New("a rule with a Decider must be about all calls of its functions, at their entry")
)

// check returns an error if the rule makes no sense, whatever the process.
func (r *Rule) check() error {
	switch specs := len(r.specs()); {
	case specs == 0 && r.Syscall == "":
		return ErrNoPlace
	case specs > 0 && r.Syscall != "":
		return ErrPlaces
	case len(r.Do) == 0 && r.Handler == nil:
		return ErrNothing
	case r.Decider != nil && (r.If != "" || r.Size != "" || r.After || r.Syscall != ""):
		return ErrShared
	case r.MaxActive < 0:
		return fmt.Errorf("%d calls can't be followed at once", r.MaxActive)
	}
	returns := 0
	for _, a := range r.Do {
		if a == nil {
			return ErrNothing
		}
		if a.ends() {
			returns++
		}
	}
	if returns > 1 {
		return ErrReturns
	}
	for _, spec := range r.specs() {
		if strings.HasSuffix(spec, "+*") {
			return fmt.Errorf("%s is every instruction of a function; name the function or one instruction: %w", spec, symbols.ErrBadSpec)
		}
	}
	return nil
}

// ends reports whether an action ends the call, so that its body does not run.
func (r *Rule) ends() bool {
	for _, a := range r.Do {
		if a.ends() {
			return true
		}
	}
	return false
}
