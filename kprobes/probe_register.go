package kprobes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/gokprobe/gokprobe/arch"
)

// RegisterKprobe places kp and, unless FlagDisabled is set, arms it. The checks and
// their errors are register_kprobe's: they match, by errors.Is, the package's Err…
// values and the kernel's errno. After an error nothing is armed. kp.Addr holds the
// address where the probe is.
//
// A symbol of a library that is not loaded, such as libplug.so:foo, is no error: the session
// warns, Addr stays 0, and the probe is placed before the library's constructors run. When a
// library is unloaded its probes are GONE; those by symbol are placed again, and keep their
// counts, when it is loaded again. Status tells what a probe waits for.
func (s *Session) RegisterKprobe(kp *Kprobe) error {
	return s.RegisterKprobes(s.life, []*Kprobe{kp})
}

// RegisterKprobes registers all of kps or, after an error, none (A45). It is much
// faster than one by one. If ctx or the session's own context is done before the first probe is armed, none is: the error matches
// that context's error and cause. A file of symbols that is being read then is left to another goroutine, which drops it.
func (s *Session) RegisterKprobes(ctx context.Context, kps []*Kprobe) error {
	return s.registry.registerAll(ctx, kps, func(int) {})
}

// registry is a session's probes.
type registry struct {
	s         *Session
	probes    []*Kprobe
	patterns  []*Pattern
	expanding *Pattern // whose probes are being registered; nil for others
	expandsIn *domain  // to which they have come
	blacklist []BlacklistEntry
	disarmed  bool // all probes, by DisarmAll

	watched atomic.Bool   // the dynamic linker is
	changes atomic.Uint64 // of the main process's modules, as far as they are noticed
}

// registerAll is RegisterKprobes for probes of any kind: adopt makes number i of kps known
// as what it is.
func (rg *registry) registerAll(ctx context.Context, kps []*Kprobe, adopt func(i int)) error {
	if len(kps) == 0 {
		return fmt.Errorf("no probes given: %w", ErrNoAddrOrSymbol)
	}
	ctx, forget := rg.s.within(ctx)
	defer forget()
	if !rg.watched.Load() {
		if err := rg.s.heed.outsideVfork(ctx, rg.watch); err != nil {
			return err
		}
	}
	known := rg.changes.Load()
	at := rg.locateAll(ctx, kps) // reads symbols: not on the tracer's thread
	return rg.s.heed.outsideVfork(ctx, func() error {
		if err := rg.watch(); err != nil { // another registration that has failed may have taken that back
			return err
		}
		rg.catchUp()
		if rg.moved(known) {
			at = rg.locateAll(ctx, kps)
		}
		known = rg.changes.Load()
		asked := wishesOf(kps)
		err := rg.attempt(kps, at, adopt)
		for wentAway(err) && rg.movedNow(known) {
			known = rg.changes.Load()
			askAgain(kps, asked)
			err = rg.attempt(kps, rg.locateAll(ctx, kps), adopt)
		}
		if err != nil && len(rg.probes)+len(rg.patterns) == 0 {
			if undo := rg.unwatch(); undo != nil {
				err = errors.Join(err, undo)
			}
		}
		rg.tellBlind()
		return err
	})
}

// wentAway tells of an error that the code may have been unmapped: nobody holds the thread that does so before the linker's site is seen.
func wentAway(err error) bool {
	var fault *arch.FaultError
	return errors.Is(err, ErrNotMapped) || errors.As(err, &fault)
}

// attempt registers kps where they were located.
func (rg *registry) attempt(kps []*Kprobe, at located, adopt func(i int)) error {
	if at.err != nil {
		return probeError(at.failed, at.err)
	}
	defer rg.looking()()
	for i, kp := range kps {
		if kp.session == nil {
			adopt(i)
		}
	}
	err := rg.register(kps, at)
	for _, kp := range kps {
		if kp.session == nil {
			kp.ret, kp.jprobe = nil, nil
		}
	}
	return err
}

// looking begins a survey of every address space; what it returns ends them.
func (rg *registry) looking() (end func()) {
	var ends []func()
	for d := range rg.s.settled() {
		ends = append(ends, d.look.anew())
	}
	return func() {
		for _, end := range ends {
			end()
		}
	}
}

// UnregisterKprobe removes kp. When it returns, none of its handlers runs or will run.
// A probe that is not registered gets its Addr cleared, nothing else (A38). The error
// lists code that could not be put back.
func (s *Session) UnregisterKprobe(kp *Kprobe) error {
	return s.UnregisterKprobes([]*Kprobe{kp})
}

// UnregisterKprobes removes all of kps that are registered (A46).
func (s *Session) UnregisterKprobes(kps []*Kprobe) error {
	err := s.do(func() error { return s.registry.unregister(kps) })
	if s.tracer.Own() {
		return err // a handler would wait for itself
	}
	s.handlers.waitFor(kps)
	if errors.Is(err, ErrClosed) {
		select { // Close may have begun, and not have put back the code yet
		case <-s.over:
		case <-s.tracer.Ended():
		}
		s.tracer.Close()
	}
	return err
}

// waitFor waits until no handler of kps runs.
func (hd *handlers) waitFor(kps []*Kprobe) {
	for {
		var busy chan struct{}
		if hd.s.tracer.Do(func() { busy = hd.busyWith(kps) }) != nil || busy == nil {
			return
		}
		<-busy
	}
}

// register runs on the tracer's thread. All probes get their sites before the first
// breakpoint is shown, so most errors come before anything of the target's has changed.
func (rg *registry) register(kps []*Kprobe, at located) error {
	addrs := at.addrs
	d := rg.s.mainDomain()
	if d != nil {
		d.slots.reserve(addrs)
	}
	was := wishesOf(kps)
	sites := make([]*site, 0, len(kps))
	for i, kp := range kps {
		st, err := rg.admit(kp, d, addrs[i])
		if err != nil {
			return errors.Join(probeError(kp, err), rg.unregister(kps[:i]))
		}
		if sites = append(sites, st); st == nil {
			addrs[i] = notYet
		}
	}
	if d == nil { // it has ended: what its followed children have is all there is
		sites = nil
	}
	if failed, err := d.refreshAll(sites); err != nil {
		i := slices.Index(sites, failed)
		err = probeError(kps[i], fmt.Errorf("placing the breakpoint at %s: %w", failed.addr, err))
		err = errors.Join(err, rg.unregister(kps))
		askAgain(kps[i:], was[i:])
		return err
	}
	rg.probes = append(rg.probes, kps...)
	for i, kp := range kps {
		if addrs[i] == notYet {
			rg.wait(kp, noProgramYet, at.waits[kp])
		}
	}
	for other := range rg.s.settled() {
		if other != d {
			other.placeAll(other.linker.aimsOf(kps), notInChild)
		}
	}
	return nil
}

// wish is what a probe says before its registration.
type wish struct {
	addr  arch.Addr
	flags Flags
}

func wishesOf(kps []*Kprobe) []wish {
	wishes := make([]wish, len(kps))
	for i, kp := range kps {
		wishes[i] = wish{kp.Addr, kp.Flags}
	}
	return wishes
}

// askAgain makes those of kps that are not registered say what they said: an attempt writes addresses
// and flags into them.
func askAgain(kps []*Kprobe, wishes []wish) {
	for i, kp := range kps {
		if kp.session == nil {
			kp.Addr, kp.Flags = wishes[i].addr, wishes[i].flags
		}
	}
}

// admit makes the checks and gives kp a site in d that is not armed for it yet.
func (rg *registry) admit(kp *Kprobe, d *domain, addr arch.Addr) (*site, error) {
	switch {
	case kp.session != nil:
		return nil, ErrRegistered
	case d == nil && !rg.expandsElsewhere():
		return nil, ErrExited
	case d == nil:
		addr = notYet
	}
	kp.Flags &= FlagDisabled
	kp.hits.Store(0)
	kp.registered++
	kp.missed.reset()
	kp.torn.Store(0)
	kp.absence = absence{}
	kp.pattern = rg.expanding
	var st *site
	err := kp.checkProgram()
	if jp := kp.jprobe; err == nil && jp != nil && jp.body.proto == nil && addr != notYet {
		err = jp.rebind(rg.s.table, addr) // its library was loaded meanwhile
	}
	if err == nil && addr != notYet {
		err = d.readSymbols(addr)
	}
	if err == nil && addr != notYet {
		if st, err = d.attach(kp, addr); rg.expandsElsewhere() {
			err = nil
		}
	}
	if err == nil && st == nil && kp.ret != nil {
		err = kp.ret.prepare(rg.s.opts.Returns)
	}
	if err == nil {
		kp.session = rg.s
	}
	return st, err
}

// attach adds kp to the site at addr and writes the address back into it.
func (d *domain) attach(kp *Kprobe, addr arch.Addr) (*site, error) {
	at, entry, err := d.look.checkAddress(addr)
	inGo := false
	if err == nil && kp.ret != nil {
		at, inGo, err = d.look.checkEntry(at, entry)
	}
	if err == nil && kp.jprobe != nil {
		at, err = d.look.checkJprobe(at, entry)
	}
	st := d.siteAt(at)
	if err == nil && st != nil && slices.ContainsFunc(st.probes, kp.standsFor) {
		err = ErrPlaced
	}
	if err == nil && kp.ret != nil && kp.session == nil {
		err = kp.ret.prepare(d.session.opts.Returns)
	}
	if err != nil {
		return nil, err
	}
	if st == nil {
		if st, err = d.makeSite(at); err != nil {
			return nil, err
		}
		d.sites[at] = st
	}
	st.add(kp)
	st.calls.inGo = st.calls.inGo || inGo
	kp.entry = entry
	if d == d.session.mainDomain() && kp.Addr != at { // others may read it, so it is not touched for a followed child
		kp.Addr = at
	}
	d.recorder.newState(kp, at)
	kp.absence.placed()
	kp.placements = append(kp.placements, placement{d, st})
	return st, nil
}

// standsFor tells that o does at its place what kp would do there.
func (kp *Kprobe) standsFor(o *Kprobe) bool {
	return kp.pattern != nil && o.pattern == kp.pattern || kp.Unless != nil && kp.Unless(o)
}

// withdraw is the opposite of attach.
func (d *domain) withdraw(kp *Kprobe, st *site) error {
	kp.placements = slices.DeleteFunc(slices.Clone(kp.placements), func(pl placement) bool { return pl.site == st })
	st.probes = slices.DeleteFunc(slices.Clone(st.probes), func(o *Kprobe) bool { return o == kp })
	d.recorder.endState(kp)
	return d.settle([]*site{st})
}

// unregister runs on the tracer's thread. Sites without probes go.
func (rg *registry) unregister(kps []*Kprobe) error {
	rg.catchUp()
	rg.s.records.lastRecords(kps)
	rg.straightenThose(kps)
	gone := make(map[*Kprobe]bool, len(kps))
	isGone := func(kp *Kprobe) bool { return gone[kp] }
	left := siteList{}
	for _, kp := range kps {
		if kp.session != rg.s {
			kp.Addr = 0
			continue
		}
		for _, pl := range kp.placements {
			left.add(pl.site)
		}
		if kp.ret != nil {
			for _, st := range kp.ret.end() {
				left.add(st)
			}
			kp.PreHandler = nil // it belongs to the Kretprobe
		}
		kp.keepCount()
		rg.endStates(kp)
		kp.placements, kp.session, kp.ret, kp.jprobe = nil, nil, nil, nil
		kp.Flags = kp.Flags&^FlagOptimized | FlagDisabled // as the kernel leaves it (A39)
		gone[kp] = true
	}
	rg.probes = slices.DeleteFunc(rg.probes, isGone)
	var errs []error
	for d, sites := range left.byDomain() {
		for _, st := range sites {
			st.probes = slices.DeleteFunc(slices.Clone(st.probes), isGone)
		}
		errs = append(errs, d.settle(sites))
	}
	return errors.Join(errs...)
}

// siteList is sites, each once.
type siteList map[*site]bool

func (l siteList) add(st *site) { l[st] = true }

func (l siteList) byDomain() map[*domain][]*site {
	out := map[*domain][]*site{}
	for st := range l {
		out[st.domain] = append(out[st.domain], st)
	}
	return out
}
