package inject

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/expr/fetch"
	"github.com/gokprobe/gokprobe/expr/values"
	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/symbols"
	"github.com/gokprobe/gokprobe/trace"
)

// spot is what a place is in the course of a call.
type spot uint8

const (
	atInstruction spot = iota // somewhere in a function
	atEntry                   // a function's first instruction
	atReturn                  // where a function has returned to
	atCall                    // in front of a system call
	atCallReturn              // behind it
)

// place is one probe of a fault.
type place struct {
	fault    *Fault
	name     string
	addr     arch.Addr // where the function or the instruction is; 0 while its library is not loaded
	symbol   string    // a specification that stands for it alone; empty if there is none
	waits    bool
	optional bool // it comes from a pattern
	spot     spot
	abi      fetch.ABI

	kp *kprobes.Kprobe       // of a Kretprobe, its KP
	rp *kprobes.Kretprobe    // with Rule.After
	sp *kprobes.SyscallProbe // in place of those

	values  *values.Values  // nil if nothing of a call is wanted
	shown   int             // how many of them events tell
	size    int             // which is the call's size; negative if none is
	effects []effect        // of Rule.Do
	results []symbols.Param // of a function that is followed, if they are known

	decision decision
	last     atomic.Pointer[PlaceStats] // from when the probe was about to be unregistered; nil before
}

// resolve finds the places of a rule. A function with several names is one place.
func (f *Fault) resolve(ctx context.Context) ([]*place, error) {
	if f.rule.Syscall != "" {
		p, err := f.newSyscallPlace()
		return []*place{p}, err
	}
	r := trace.Resolver{Table: f.in.session.Symbols(), Programs: f.in.session.AwaitsPrograms()}
	found, err := r.Resolve(ctx, f.rule.specs()...)
	var refused *trace.PlaceError
	if errors.As(err, &refused) {
		return nil, refused.Err // the rule is named by who asks
	}
	var all []*place
	seen := map[arch.Addr]bool{}
	for _, at := range found {
		switch p := (&place{fault: f, name: at.Name, addr: at.Addr, symbol: at.Symbol, optional: at.Optional}); {
		case at.Return:
			return nil, errReturnSpec
		case at.Waits:
			p.waits, p.spot, p.abi = true, atEntry, host.C
			all = append(all, p)
		case !seen[at.Addr]:
			seen[at.Addr] = true
			all = append(all, p)
		}
	}
	return all, err
}

var errReturnSpec = errors.New(trace.ReturnSuffix + " can't be used here; a rule acts after the body if it has After (-after)")

// prepare makes a probe for each place, not registered yet. A place of a pattern for which there can be none is left out.
func (f *Fault) prepare() error {
	if f.rule.Syscall != "" {
		return f.decideInTarget()
	}
	var kept []*place
	for _, p := range f.places {
		err := p.prepare()
		switch {
		case err == nil:
			kept = append(kept, p)
		case p.optional && trace.Skippable(err):
			f.skipped.Add(err)
		case p.name == f.rule.name():
			return err // which names it
		default:
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	if f.places = kept; len(kept) == 0 {
		return f.nowhere()
	}
	return f.decideInTarget()
}

// nowhere is the error of a rule without a place that can be probed.
func (f *Fault) nowhere() error {
	return fmt.Errorf("%w: no place of %s can be probed: %s", kprobes.ErrUnsupported, f.rule.name(), f.Skipped())
}

// prepare makes the probe of a place.
func (p *place) prepare() error {
	at, err := p.findSpot()
	if err != nil {
		return err
	}
	if err := p.want(); err != nil {
		return err
	}
	p.warnInlined(p.fault.in.session.Symbols())
	p.kp = &kprobes.Kprobe{}
	if p.spot == atReturn {
		p.follow()
	} else {
		p.kp.PreHandler = p.hit
	}
	p.kp.Flags = kprobes.FlagDisabled
	if p.kp.Addr = p.addr; p.symbol != "" {
		p.kp.Addr, p.kp.SymbolName = 0, p.symbol
	}
	if p.spot != atReturn {
		p.kp.Offset = uint64(at - p.addr)
	}
	return nil
}

// findSpot finds the kind of the place, and the instruction that is executed once in each call.
func (p *place) findSpot() (at arch.Addr, err error) {
	r := &p.fault.rule
	table := p.fault.in.session.Symbols()
	if !p.waits {
		p.abi = values.ABIOf(table, p.addr)
		at, err = p.fault.in.session.Entry(p.addr)
	}
	switch {
	case err == nil && r.After:
		p.spot = atReturn
		return p.addr, nil
	case err == nil:
		p.spot = atEntry
		return at, nil
	case errors.Is(err, kprobes.ErrNotEntry) && !r.After && !r.ends():
		p.spot = atInstruction
		return p.addr, nil
	case errors.Is(err, kprobes.ErrNotEntry) && r.After:
		return 0, fmt.Errorf("only a call of a function can be followed to its end: %w", err)
	case errors.Is(err, kprobes.ErrNotEntry):
		return 0, fmt.Errorf("only a function can return at once, and only at its entry: %w", err)
	}
	return 0, err
}

// Skipped lists the places of patterns that are not probed, by reason; empty if there are none.
func (f *Fault) Skipped() string { return f.skipped.String() }
