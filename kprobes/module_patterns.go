package kprobes

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/escape"
	"github.com/gokprobe/gokprobe/symbols"
)

// Pattern stands for probes that are known when a library or, under Options.AwaitPrograms, a program has come, as a Kprobe by symbol stands
// for one. It has no place itself. Its probes are placed once at an address, whatever their names.
type Pattern struct {
	// Spec says which library that is, as libplug.so:pl* does. If programs are awaited it may name none.
	Spec string
	// Has are its probes in the session's present program, which are registered, and Program is that program, as Session.Program has told before they were
	// looked up. It then waits for what other programs have. What this one loads later is not searched for it.
	Has     []*Kprobe
	Program uint64
	// Missing is why it has none, if that is known. It is told with the warning that the pattern waits.
	Missing error
	// Expand registers the probes that Spec stands for in what has come. It is called on the tracer's thread, in every process that
	// comes to have the library, before the library's constructors run: they are hit from there on. Probes by symbol are placed in
	// other processes too, and when the library is loaded again; Expand is called then as well, and is to register only those that are new.
	// If there is no place it says so by its error, which the session tells once, unless another program is awaited that has one.
	Expand func(ctx context.Context, in Arrival) error

	session *Session // nil if it is not registered
	reason  string   // why it has no probes
	told    bool     // a library came and had no place, which was told
	ended   bool     // by an exec
	left    leftOut
	awaited bool   // it names no library: a program is awaited
	program uint64 // that Has is about: linker.program
}

// Arrival is a process that has come to have a Pattern's library.
type Arrival struct {
	Symbols *symbols.Table // of the process
	Code    arch.Memory    // its memory, without patches; it can't be written
	Main    bool           // it is the session's own process, no followed child
}

// PatternStatus is what has become of a Pattern.
type PatternStatus struct {
	Waiting bool   // probes are registered when its library comes, for the first time or again
	Reason  string // why there are none
}

// leftOut is a pattern's probes for which what came had no place.
type leftOut struct {
	count int
	first error
	told  int // the most of them that were told at once
}

// Program is which program the session's main process runs: a number that is another one after each exec, 0 if that can't be told any more.
func (s *Session) Program() (n uint64) {
	_ = s.do(func() error {
		n = s.target.program
		return nil
	})
	return n
}

// RegisterPattern makes pt wait for its library; if that is there, its probes are registered at once. ctx is as for RegisterKprobes.
func (s *Session) RegisterPattern(ctx context.Context, pt *Pattern) error {
	if symbols.Library(pt.Spec) == "" && !s.AwaitsPrograms() {
		return fmt.Errorf("%w: %s names no library to wait for", ErrUnknownSymbol, escape.Quote(pt.Spec))
	}
	ctx, forget := s.within(ctx)
	defer forget()
	return s.heed.outsideVfork(ctx, func() error { return s.registry.admitPattern(pt) })
}

// UnregisterPattern ends the waiting. When it returns, Expand does not run and will not run; the probes that it has registered stay.
func (s *Session) UnregisterPattern(pt *Pattern) error {
	return s.do(func() error {
		if pt.session != s {
			return ErrNotRegistered
		}
		pt.session = nil
		for _, kp := range s.registry.probes {
			if kp.pattern == pt {
				kp.pattern = nil // it is told of by itself
			}
		}
		s.registry.patterns = slices.DeleteFunc(slices.Clone(s.registry.patterns), func(o *Pattern) bool { return o == pt })
		return nil
	})
}

// PatternStatus is what has become of pt; the zero value if it is not registered.
func (s *Session) PatternStatus(pt *Pattern) (st PatternStatus) {
	_ = s.tracer.Do(func() {
		if pt.session == s {
			st = PatternStatus{Waiting: !pt.ended, Reason: pt.reason}
		}
	})
	return st
}

// admitPattern runs on the tracer's thread.
func (rg *registry) admitPattern(pt *Pattern) error {
	main := rg.s.mainDomain()
	switch {
	case pt.session != nil:
		return ErrRegistered
	case main == nil:
		return ErrExited
	}
	if err := rg.watch(); err != nil {
		return err
	}
	rg.catchUp()
	pt.session, pt.awaited, pt.program = rg.s, symbols.Library(pt.Spec) == "", pt.Program
	pt.reason, pt.told, pt.ended, pt.left = pt.missing(), false, false, leftOut{}
	rg.patterns = append(rg.patterns, pt)
	for _, kp := range pt.Has {
		kp.pattern = pt
	}
	switch {
	case len(pt.Has) > 0:
		pt.reason = ""
	case pt.awaited && pt.Missing != nil:
		rg.tellWaits(pt.Spec, pt.reason, pt.Missing)
	case pt.awaited:
		rg.s.warn("probe %s waits: %s", escape.Short(pt.Spec), pt.reason)
	case !slices.ContainsFunc(main.linker.modules, pt.isIn):
		rg.s.warn("probe %s waits: %s%s", escape.Short(pt.Spec), pt.reason, rg.meant(symbols.Library(pt.Spec)))
	}
	for d := range rg.s.settled() {
		if d.linker.starting {
			continue // which ends with an arrival of all
		}
		d.linker.expandIf(pt, without(d.linker.present(), d.linker.came)) // what is not complete will arrive
	}
	rg.tellLeftOut()
	rg.tellBlind()
	return nil
}

func (pt *Pattern) missing() string {
	if pt.awaited {
		return noProgramYet
	}
	return symbols.Library(pt.Spec) + " is not loaded yet"
}

// isIn tells whether m may be the library, or of a program that is awaited.
func (pt *Pattern) isIn(m *symbols.Module) bool {
	return pt.awaited || m.IsCalled(symbols.Library(pt.Spec))
}

// knows tells that d's program is the one in which pt was resolved before it was registered.
func (pt *Pattern) knows(d *domain) bool { return len(pt.Has) > 0 && d.linker.program == pt.program }

// present is the modules that are complete.
func (lk *linker) present() []*symbols.Module {
	if lk.unwatched && lk.symbols().Refresh() == nil { // nobody tells what it loads
		return lk.symbols().Modules()
	}
	return lk.modules
}

// expand makes the patterns of modules that came register their probes.
func (lk *linker) expand(came []*symbols.Module) {
	rg := &lk.d.session.registry
	for _, pt := range rg.patterns { // which is never changed in place
		lk.expandIf(pt, came)
	}
	rg.tellLeftOut()
}

func (lk *linker) expandIf(pt *Pattern, came []*symbols.Module) {
	rg := &lk.d.session.registry
	if pt.session == nil || pt.ended || pt.knows(lk.d) || !slices.ContainsFunc(came, pt.isIn) {
		return
	}
	defer func(before *Pattern, in *domain) { rg.expanding, rg.expandsIn = before, in }(rg.expanding, rg.expandsIn)
	rg.expanding, rg.expandsIn = pt, lk.d
	pt.note(lk.d, pt.Expand(rg.s.life, Arrival{lk.symbols(), unpatched{lk.d}, lk.d == rg.s.mainDomain()}))
}

// expandsElsewhere tells that probes are being registered for what has come to a followed child: the main process need not have a place for them.
func (rg *registry) expandsElsewhere() bool {
	return rg.expandsIn != nil && rg.expandsIn != rg.s.mainDomain()
}

// note keeps what came of an arrival, and tells it once.
func (pt *Pattern) note(d *domain, err error) {
	switch {
	case err == nil:
		pt.reason = ""
	case errors.Is(err, symbols.ErrUnknownModule): // of a similar name
	case d.session.AwaitsPrograms() && errors.Is(err, symbols.ErrUnknownSymbol): // another program may have it
	case errors.Is(err, ErrClosed), errors.Is(err, ErrExited), d.ending():
	default:
		if pt.reason = err.Error(); !pt.told {
			pt.told = true
			d.session.warn("probe %s is not placed: %v", escape.Short(pt.Spec), err)
		}
	}
}

// leave counts a probe of pt for which what came has no place.
func (pt *Pattern) leave(err error) {
	if pt.left.count++; pt.left.first == nil {
		pt.left.first = err
	}
}

// tellLeftOut says of many probes what would be said of each. Programs that are executed one after the other have no place for the same ones, as a rule: it
// is told again when there are more.
func (rg *registry) tellLeftOut() {
	for _, pt := range rg.patterns {
		n := pt.left.count
		if n > pt.left.told {
			rg.s.warn("probe %s is not placed at %d of its places: %v", escape.Short(pt.Spec), n, pt.left.first)
		}
		pt.left = leftOut{told: max(n, pt.left.told)}
	}
}

// tell warns of a probe: a sentence for itself, unless it is one of a pattern's many.
func (rg *registry) tell(kp *Kprobe, format string, err error) {
	if kp.pattern != nil {
		kp.pattern.leave(err)
		return
	}
	rg.s.warn(format, kp.name(), err)
}

// endPatterns ends all of them, after an exec.
func (rg *registry) endPatterns() {
	for _, pt := range rg.patterns {
		pt.ended, pt.reason = true, executesAnother
	}
}

// renewPatterns makes them wait for what a new program loads.
func (rg *registry) renewPatterns(d *domain) {
	for _, pt := range rg.patterns {
		pt.told, pt.reason = false, pt.missing()
	}
	d.linker.expand(d.linker.modules)
}

// unpatched is d's memory as it would be without us.
type unpatched struct{ d *domain }

// ReadMemory implements arch.Memory.
func (u unpatched) ReadMemory(at arch.Addr, p []byte) error { return u.d.text.Original(at, p) }

// WriteMemory implements arch.Memory.
func (u unpatched) WriteMemory(at arch.Addr, _ []byte) error {
	return &arch.FaultError{Addr: at, Write: true}
}
