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
	trace.Place               // of one that has come for a pattern, Waits: what a call there needs is as with a name that has waited
	also        []trace.Place // other patterns' names for it
	fault       *Fault
	spot        spot
	abi         fetch.ABI

	kp *kprobes.Kprobe       // of a Kretprobe, its KP
	rp *kprobes.Kretprobe    // with Rule.After
	sp *kprobes.SyscallProbe // in place of those

	values  *values.Values  // nil if nothing of a call is wanted
	shown   int             // how many of them events tell
	size    int             // which is the call's size; negative if none is
	effects []effect        // of Rule.Do
	results []symbols.Param // of a function that is followed, if they are known

	decision decision
	foreign  atomic.Uint64              // calls in processes for which values are wrong
	late     atomic.Uint64              // calls that were chosen in the target, and came when the fault had ended
	last     atomic.Pointer[PlaceStats] // from when the probe was about to be unregistered; nil before
}

// resolve finds the places of a rule. A function with several names is one place.
func (f *Fault) resolve(ctx context.Context) ([]*place, error) {
	if f.rule.Syscall != "" {
		p, err := f.newSyscallPlace()
		return []*place{p}, err
	}
	s := f.in.session
	f.waits.Session, f.waits.Program, f.waits.Place = s, s.Program(), f.come
	f.waits.Warn = func(format string, args ...any) { f.in.log("%s: "+format, append([]any{f.Name()}, args...)...) }
	r := trace.Resolver{Table: s.Symbols(), Programs: s.AwaitsPrograms()}
	found, err := r.Resolve(ctx, f.rule.specs()...)
	var refused *trace.PlaceError
	if errors.As(err, &refused) {
		return nil, refused.Err // the rule is named by who asks
	}
	var all []*place
	seen := map[arch.Addr]*place{}
	for _, at := range found {
		switch p := (&place{fault: f, Place: at}); {
		case at.Return:
			return nil, errReturnSpec
		case at.Waits:
			p.spot, p.abi = atEntry, host.C
			all = append(all, p)
		case seen[at.Addr] == nil:
			seen[at.Addr] = p
			all = append(all, p)
		default:
			seen[at.Addr].also = append(seen[at.Addr].also, at)
		}
	}
	return all, err
}

var errReturnSpec = errors.New(trace.ReturnSuffix + " can't be used here; a rule acts after the body if it has After (-after)")

// prepare makes a probe for each place, not registered yet. A place of a pattern for which there can be none is left out. A pattern that waits is tried as a place
// that does: so it is known what those that come are to do, and that they can.
func (f *Fault) prepare(all []*place) error {
	if f.rule.Syscall != "" {
		f.places.Set(all)
		return f.decideInTarget(all)
	}
	var kept, now []*place
	for _, p := range all {
		err := p.prepare()
		switch {
		case err == nil:
			kept = append(kept, p)
		case p.Optional && trace.Skippable(err):
			f.skipped.Add(err)
		case p.Name == f.rule.name():
			return err // which names it
		default:
			return fmt.Errorf("%s: %w", p.Name, err)
		}
	}
	for _, p := range kept {
		if p.Pattern {
			f.later = append(f.later, p.Place)
		} else {
			now = append(now, p)
		}
	}
	if f.places.Set(now); len(kept) == 0 {
		return f.nowhere()
	}
	return f.decideInTarget(kept)
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
	if len(p.fault.rule.specs()) > 1 {
		p.kp.Unless = p.fault.does
	}
	p.kp.Flags = kprobes.FlagDisabled
	if p.kp.Addr = p.Addr; p.Symbol != "" {
		p.kp.Addr, p.kp.SymbolName = 0, p.Symbol
	}
	if p.spot != atReturn {
		p.kp.Offset = uint64(at - p.Addr)
	}
	return nil
}

// findSpot finds the kind of the place, and the instruction that is executed once in each call.
func (p *place) findSpot() (at arch.Addr, err error) {
	r := &p.fault.rule
	table := p.fault.in.session.Symbols()
	if at = p.Addr; !p.Waits {
		p.abi = values.ABIOf(table, p.Addr)
		at, err = p.fault.in.session.Entry(p.Addr)
	}
	switch {
	case err == nil && r.After:
		p.spot = atReturn
		return p.Addr, nil
	case err == nil:
		p.spot = atEntry
		return at, nil
	case errors.Is(err, kprobes.ErrNotEntry) && !r.After && !r.ends():
		p.spot = atInstruction
		return p.Addr, nil
	case errors.Is(err, kprobes.ErrNotEntry) && r.After:
		return 0, fmt.Errorf("only a call of a function can be followed to its end: %w", err)
	case errors.Is(err, kprobes.ErrNotEntry):
		return 0, fmt.Errorf("only a function can return at once, and only at its entry: %w", err)
	}
	return 0, err
}

// Skipped lists the places of patterns that are not probed, by reason; empty if there are none.
func (f *Fault) Skipped() string {
	all := f.waits.Skipped()
	all.AddAll(f.skipped)
	return all.String()
}
