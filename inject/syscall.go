package inject

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/escape"
	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/trace"
)

// A rule about system calls has a single place, a SyscallProbe. That sees the calls by probes at all instructions that make
// them or, if these can't all be known, by ptrace.

// newSyscallPlace is the place of a rule about system calls.
func (f *Fault) newSyscallPlace() (*place, error) {
	r := &f.rule
	numbers, err := ParseSyscalls(r.Syscall)
	if err != nil {
		return nil, err
	}
	p := &place{fault: f, Place: trace.Place{Name: callsName(r.Syscall, numbers)}, spot: atCall, abi: host.Kernel}
	p.sp = &kprobes.SyscallProbe{Numbers: numbers, By: r.SyscallBy, Flags: kprobes.FlagDisabled}
	if r.After {
		p.spot = atCallReturn
		p.sp.Exit = func(_ *kprobes.SyscallProbe, regs *kprobes.Regs) {
			c := &Call{Regs: regs, place: p}
			if p.values != nil {
				c.saved = p.values.Layout.Save(regs, regs) // which a call leaves as they were
			}
			p.decided(c)
		}
		return p, p.want()
	}
	p.sp.Enter = func(_ *kprobes.SyscallProbe, regs *kprobes.Regs) int {
		c := &Call{Regs: regs, place: p}
		if p.decided(c); c.ended {
			return 1
		}
		return 0
	}
	return p, p.want()
}

// callsName is the name of a set of system calls for the user.
func callsName(text string, numbers []int) string {
	const few = 4
	if len(numbers) > few {
		return text
	}
	var names []string
	for _, nr := range numbers {
		names = append(names, SyscallName(nr))
	}
	return strings.Join(names, ",")
}

// isCall reports whether the place is a system call's.
func (p *place) isCall() bool { return p.sp != nil }

// calledName is the name of the function, or of the system call, that c is a call of.
func (c *Call) calledName() string {
	if c.place.isCall() {
		return SyscallName(c.Syscall())
	}
	return c.place.Name
}

// at is the call's address for events.
func (c *Call) at() arch.Addr {
	if c.place.isCall() {
		return c.IP()
	}
	return c.place.kp.Addr
}

// callResult is the result that an action gives a system call: the kernel's errors are negative.
func callResult(value int64, errno unix.Errno, fails bool) (uint64, error) {
	switch {
	case errno == 0:
		return uint64(value), nil
	case fails || value == -1:
		failed := -int64(errno)
		return uint64(failed), nil
	}
	return 0, fmt.Errorf("a system call returns %d or an error, not both", value)
}

// errTyped is the error of typed results for a system call, which returns one number.
var errTyped = errors.New("a system call returns a number; use -retval or -errno")

// bindCall is Return.bind for system calls.
func (a Return) bindCall() (effect, error) {
	result, err := callResult(a.Value, a.Errno, a.Fails)
	if err != nil {
		return effect{}, err
	}
	what := fmt.Sprintf("return %d", int64(result))
	if a.Errno != 0 {
		what += " " + errnoName(a.Errno)
	}
	return effect{would: what, do: func(c *Call) (string, error) { return what, c.endCall(result) }}, nil
}

// bindCall is Results.bind for system calls.
func (r Results) bindCall() (effect, error) {
	result, err := r.callResult()
	if err != nil {
		return effect{}, err
	}
	return Return{Value: int64(result)}.bindCall()
}

// callResult is the number that r says.
func (r Results) callResult() (uint64, error) {
	if r.Error != "" || len(r.Named) > 0 {
		return 0, errTyped
	}
	value := int64(0)
	if r.Value != "" && r.Value != "NULL" {
		var err error
		if value, err = strconv.ParseInt(r.Value, 0, 64); err != nil {
			u, uerr := strconv.ParseUint(r.Value, 0, 64)
			if uerr != nil {
				return 0, errTyped
			}
			value = int64(u)
		}
	}
	return callResult(value, r.Errno, r.Value == "")
}

// endCall makes a system call return result.
func (c *Call) endCall(result uint64) error {
	c.SetReturnValue(result)
	c.ended = true
	return nil
}

// Errno sets the thread's errno; for a system call it is the result, which the C library makes the errno of.
func (c *Call) Errno(e unix.Errno) error {
	if c.place.isCall() {
		failed := -int64(e)
		return c.endCall(uint64(failed))
	}
	return c.SetErrno(e)
}

// callStats is place.stats for system calls.
func (p *place) callStats() PlaceStats {
	st := p.fault.in.session.SyscallStatus(p.sp)
	out := PlaceStats{
		Name: p.Name, Way: st.Way, Reason: st.Reason, Gone: st.Gone, Decides: "tracer",
	}
	p.count(&out)
	if st.Way == kprobes.SyscallBySites && !st.Gone {
		out.Reason = fmt.Sprintf("%s in the code, %d of them optimized", escape.Count(len(st.Places), "place"), st.Optimized)
		if st.Passing > 0 && p.decision.by == theTarget {
			out.Decides = "target"
		}
		if st.Passing > 0 && st.Passing < len(st.Places) {
			out.Reason += fmt.Sprintf("; at %d the tracer decides", len(st.Places)-st.Passing)
		}
	}
	return out
}

// callPlaces are the places of f that are system calls'.
func (f *Fault) callPlaces() []*place {
	if f.rule.Syscall == "" {
		return nil
	}
	return f.places.All()
}

// ParseSyscallWay reads how system calls are seen: auto, sites or ptrace.
func ParseSyscallWay(text string) (kprobes.SyscallWay, error) {
	for _, way := range []kprobes.SyscallWay{kprobes.SyscallAuto, kprobes.SyscallBySites, kprobes.SyscallByStops} {
		if way.String() == text {
			return way, nil
		}
	}
	return kprobes.SyscallAuto, fmt.Errorf("%q is unknown, choose auto, sites or ptrace", text)
}

// registerCalls registers the probes of system calls, disabled.
func (f *Fault) registerCalls(ctx context.Context) error {
	places := f.places.All()
	for i, p := range places {
		if err := f.in.session.RegisterSyscallProbe(ctx, p.sp); err != nil {
			for _, o := range places[:i] {
				err = errors.Join(err, f.in.session.UnregisterSyscallProbe(o.sp))
			}
			return err
		}
	}
	return nil
}

// enableCalls switches them.
func (f *Fault) enableCalls(on bool) error {
	s := f.in.session
	change := s.DisableSyscallProbe
	if on {
		change = s.EnableSyscallProbe
	}
	var errs []error
	for _, p := range f.callPlaces() {
		errs = append(errs, change(p.sp))
	}
	return errors.Join(errs...)
}

func (f *Fault) unregisterCalls() error {
	var errs []error
	for _, p := range f.callPlaces() {
		errs = append(errs, f.in.session.UnregisterSyscallProbe(p.sp))
	}
	return errors.Join(errs...)
}
