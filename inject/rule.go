package inject

import (
	"errors"
	"fmt"
	"strings"

	"github.com/gokprobe/gokprobe/inject/fault"
	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/symbols"
)

// Rule says which calls are injected, and what.
type Rule struct {
	// Name is what events and counts call it; empty: the specifications.
	Name string
	// Spec is a function, by a specification of symbols.Table.Resolve; what stands for several functions makes a probe of each.
	// Without a Return it may be any instruction.
	Spec string
	// Specs are further ones. All of them, and all places of one, count together.
	Specs []string
	// Syscall is system calls in place of Spec, as ParseSyscalls reads them. $argN are their arguments then, and what the call
	// returns is the kernel's: an error is negative.
	Syscall string
	// SyscallBy is how they are seen.
	SyscallBy kprobes.SyscallWay

	// Attr says which of the calls are injected.
	Attr fault.Attr
	// Decider decides in place of Attr, if it is not nil: the calls of all rules that share it are one sequence. Such a rule is about
	// all calls of its functions: it has no If, no Size, no After, and no Syscall (ErrShared).
	Decider *Decider
	// Task tells whether a thread may fail, for Attr.TaskFilter; nil: all may. It is called on the tracer's thread.
	Task func(pid, tid int) bool
	// Size is what a call takes of Attr.Space, a fetch argument such as "$arg3"; empty: 1.
	Size string

	// Args are values of a call that events tell, as fetch arguments: NAME=EXPR.
	Args []string
	// If is the condition that calls have to meet, a filter over Args, the function's parameters, comm and common_pid. Calls that do not are not counted.
	If string

	// Do is what happens to an injected call, in this order. Only one of them can end the call.
	Do []Action
	// After lets the body run first: the Args and If may look at $retval, and a Return changes the result.
	After bool
	// Handler is asked about calls that are chosen, before Do: it may do anything to the call, and returning false lets it go.
	// It runs on the tracer's thread while the call's thread stands still.
	Handler func(c *Call) bool
	// Stopped leaves the probes disarmed until Fault.Start.
	Stopped bool
	// DryRun has everything decided and counted and told, and nothing done.
	DryRun bool

	// MaxActive is how many calls are followed to their returns at once, with After; 0: 4096.
	MaxActive int
}

// name is what the user sees.
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
	ErrShared  = errors.New("a rule that has a Decider is about all calls of functions, at their entry")
)

// check finds what is wrong with a rule by itself.
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

// ends tells whether an injected call's body does not run.
func (r *Rule) ends() bool {
	for _, a := range r.Do {
		if a.ends() {
			return true
		}
	}
	return false
}
