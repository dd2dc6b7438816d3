package kprobes

import (
	"context"
	"errors"
	"maps"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/escape"
	"github.com/gokprobe/gokprobe/ptrace"
	"github.com/gokprobe/gokprobe/symbols"
)

// Modules that come and go, as kprobes_module_callback in kernel/kprobes.c.
//
// A probe whose code is unmapped is GONE: its breakpoint went with the code, and memory is not
// touched, since something else may be there by now (F19). A probe by symbol is placed again
// when its module is back, and one whose library was never there waits for it (G13).
// What stands for several probes is a Pattern.
//
// Code that a program maps and unmaps without the dynamic linker is not followed.

// update finds out which modules have come and gone, and adapts the probes and patterns. Those that
// come while the dynamic linker is busy are not complete, and no place for probes that
// wait.
func (lk *linker) update() { lk.expand(lk.adapt()) }

// adapt is update for the probes that there are. It returns the modules that have come and are complete.
func (lk *linker) adapt() (complete []*symbols.Module) {
	lk.updating = true
	defer lk.d.look.anew()()
	defer func() { lk.updating = false; lk.d.look.changed() }()
	lk.part()
	if err := lk.symbols().Refresh(); err != nil {
		gone := errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) // the process: its end is about to be reported
		if !gone && lk.d.unlessEnding(err) != nil {
			lk.d.session.warn("finding out what the process has loaded: %v", err)
		}
		return nil
	}
	now := lk.symbols().Modules()
	went, came := without(lk.modules, now), without(now, lk.modules)
	lk.came = append(without(lk.came, went), came...)
	if len(went)+len(came) > 0 {
		lk.d.look.changed()
		clear(lk.d.followed.unreturnable)
		lk.errnoAt = nil
		lk.lose(went)
		if len(went) > 0 {
			lk.d.masks.anew() // what comes in their place is looked at
			lk.d.neighbours.closeUnmapped()
		}
		lk.modules = now
		if lk.d == lk.d.session.mainDomain() {
			lk.d.session.registry.changes.Add(1)
			lk.d.session.registry.renewBlacklist(true)
		}
	}
	if lk.busy {
		return nil
	}
	if len(lk.came) > 0 {
		lk.d.followed.relays.modulesChanged()
	}
	if complete, lk.came = lk.came, nil; lk.starting {
		complete = now
	}
	if lk.starting || lk.d.foreign() && len(complete) > 0 { // an auditor's libraries come first (rtld-audit(7))
		began := lk.starting
		lk.starting = false
		if lk.d.placeAll(lk.aimsOf(lk.d.session.registry.probes), notInChild); began {
			lk.d.optimizer.atOnce()
		}
	} else {
		lk.seek(complete)
	}
	if len(complete) > 0 && lk.d == lk.d.session.mainDomain() && !lk.executed {
		lk.d.session.syscalls.callsCame(complete)
	}
	return complete
}

// catchUp keeps what is done next from code that was unmapped while the dynamic linker is not
// done yet: something else may be there already.
func (rg *registry) catchUp() {
	for d := range rg.s.settled() {
		if d.linker.busy {
			d.linker.update()
		}
	}
}

// whileMapped is catchUp before f, with nothing unmapped until f is done.
func (rg *registry) whileMapped(f func() error) error {
	for d := range rg.s.settled() {
		if inner := f; d.linker.busy {
			f = func() error {
				return d.space.Freeze(func(*ptrace.Frozen) error {
					d.linker.update()
					return inner()
				})
			}
		}
	}
	return f()
}

// moved reports whether the main process's modules have changed since changes was
// known.
func (rg *registry) moved(known uint64) bool { return rg.changes.Load() != known }

// movedNow is moved, by what the process has mapped now.
func (rg *registry) movedNow(known uint64) bool {
	if d := rg.s.mainDomain(); d != nil {
		d.linker.update()
	}
	return rg.moved(known)
}

// without is those of modules that are not among others.
func without(modules, others []*symbols.Module) []*symbols.Module {
	return slices.DeleteFunc(slices.Clone(modules), func(m *symbols.Module) bool {
		return slices.ContainsFunc(others, m.Same)
	})
}

// lose forgets the sites in modules that were unmapped. Forked children that have not been
// seen yet may still have the modules, with our breakpoints.
func (lk *linker) lose(went []*symbols.Module) {
	var lost []*site
	for _, st := range lk.d.sites {
		if contains(went, st.addr) != nil {
			lost = append(lost, st)
		}
	}
	var past []arch.Addr
	for at := range lk.d.past.insns {
		if contains(went, at) != nil {
			past = append(past, at)
		}
	}
	if len(lost)+len(past) == 0 {
		return
	}
	err := lk.d.space.FreezeAwake(nowhere, func() error { // whoever waits has no child that is not seen
		lk.d.session.tracer.SettleForks(lk.d.space)
		return nil
	})
	lk.d.former = map[arch.Addr][]byte{}
	for _, at := range past {
		lk.d.former[at] = lk.d.past.insns[at]
		lk.d.past.drop(at)
	}
	lk.d.past.runs = nil
	maps.DeleteFunc(lk.d.optimizer.jumps, func(at arch.Addr, _ *pastJump) bool { return contains(went, at) != nil })
	for _, st := range lost {
		err = errors.Join(err, lk.abandon(st, contains(went, st.addr)))
	}
	if err != nil {
		lk.d.session.warn("forgetting probes in an unloaded library: %v", err)
	}
}

func nowhere(arch.Addr) bool { return false }

// abandon ends a site whose code is gone with m.
func (lk *linker) abandon(st *site, m *symbols.Module) error {
	delete(lk.d.sites, st.addr)
	lk.d.optimizer.leave(st)
	for _, kp := range st.probes {
		kp.placements = slices.DeleteFunc(slices.Clone(kp.placements), func(pl placement) bool { return pl.site == st })
		if len(kp.placements) > 0 {
			continue
		}
		kp.Flags = kp.Flags&^FlagOptimized | FlagGone
		kp.absence.unloaded(m, kp.byName())
	}
	lk.d.followed.endReturns(st)
	st.probes, st.linker, st.calls.unwinds = nil, false, false
	defer func() { _ = lk.d.region.ClearResume(st.addr) }()
	if st.patch() == nil {
		lk.d.slots.give(st)
		return nil
	}
	err := lk.d.text.Drop(st.patch())
	if det := st.taken(); det != nil {
		lk.d.optimizer.abandonJump(det)
	}
	lk.d.slots.give(st)
	return err
}

// endReturns: nothing will return to st.
func (fo *followed) endReturns(st *site) {
	if !st.calls.any() {
		return
	}
	for _, f := range fo.calls.Frames() {
		if top := fo.calls.Top(f); top != nil && top.RetAddr == st.addr {
			fo.end(f, true)
		}
	}
	for _, kp := range fo.d.session.registry.probes {
		if kp.ret != nil && kp.ret.returns[st] {
			delete(kp.ret.returns, st)
			st.calls.end(kp.ret)
			if line := fo.d.followed.lineOf[kp.ret]; line != nil {
				fo.d.followed.table.Forget(line.id)
			}
		}
	}
}

// byName tells whether kp can be found again when its module is elsewhere.
func (kp *Kprobe) byName() bool {
	name := kp.SymbolName
	return name != "" && !(len(name) > 1 && name[0] == '0' && (name[1] == 'x' || name[1] == 'X'))
}

// unknown tells of the error that looking up a name has brought that there is none.
func unknown(err error) bool {
	return slices.ContainsFunc([]error{symbols.ErrUnknownModule, symbols.ErrUnknownSymbol, symbols.ErrNoLine, symbols.ErrNoLines},
		func(none error) bool { return errors.Is(err, none) })
}

// comes tells of the error that looking up kp's name has brought whether kp is to wait: its
// library is not there, or a program is awaited that has the name.
func (rg *registry) comes(kp *Kprobe, err error) bool {
	if !unknown(err) {
		return false
	}
	if rg.s.AwaitsPrograms() {
		return true
	}
	return symbols.Library(kp.SymbolName) != "" && errors.Is(err, symbols.ErrUnknownModule) && !slices.ContainsFunc(rg.s.table.Modules(), kp.isIn)
}

// wait makes kp wait for its library, or for a program that has its name: why says so, err is what looking it up has brought.
func (rg *registry) wait(kp *Kprobe, why string, err error) {
	kp.Flags &^= FlagGone
	lib := symbols.Library(kp.SymbolName)
	if lib == "" || !errors.Is(err, symbols.ErrUnknownModule) {
		if kp.absence.waiting(why, true); kp.pattern == nil {
			rg.tellWaits(kp.name(), why, err)
		}
		return
	}
	why = lib + " is not loaded yet"
	if kp.absence.waiting(why, false); kp.pattern == nil {
		rg.s.warn("probe %s waits: %s%s", escape.Short(kp.name()), why, rg.meant(lib))
	}
}

// meant asks whether a library that is not there was misspelt, if one of a similar name is.
func (rg *registry) meant(lib string) string {
	near := rg.s.table.NearModules(lib)
	if len(near) == 0 {
		return ""
	}
	return "; did you mean " + strings.Join(near, " or ") + "?"
}

// noProgramYet is why a probe waits.
const noProgramYet = "no program has it yet"

func (rg *registry) tellWaits(name, why string, err error) {
	rg.s.warn("probe %s waits, %s: %s", escape.Short(name), why, strings.TrimPrefix(err.Error(), ErrUnknownSymbol.Error()+": "))
}

// AwaitsPrograms tells that names and patterns wait for programs that have them (Options.AwaitPrograms, with Follow).
func (s *Session) AwaitsPrograms() bool { return s.opts.Follow && s.opts.AwaitPrograms }

// isIn tells whether m may be the module that kp was in, or asks for.
func (kp *Kprobe) isIn(m *symbols.Module) bool {
	if lib := symbols.Library(kp.SymbolName); lib != "" {
		return m.IsCalled(lib)
	}
	return kp.absence.comesWith(m.Path)
}

// seek places the probes that modules which came bring a place for.
func (lk *linker) seek(came []*symbols.Module) {
	var kps []*Kprobe
	for _, kp := range lk.d.session.registry.probes {
		if kp.byName() && !kp.absence.ended && lk.d.placed(kp) == nil && slices.ContainsFunc(came, kp.isIn) {
			kps = append(kps, kp)
		}
	}
	lk.expect(len(kps))
	var aims []aim
	for _, kp := range kps {
		at, err := lk.find(kp, lk.explained(kp))
		switch {
		case errors.Is(err, symbols.ErrUnknownModule): // of a similar name
		case kp.absence.awaited && unknown(err): // a later one may have it
		case err != nil:
			kp.refused(err)
		case contains(came, at) != nil:
			aims = append(aims, aim{kp: kp, at: at})
		}
	}
	lk.d.placeAll(aims, (*Kprobe).refused)
}

// expect prepares for looking up many names.
func (lk *linker) expect(names int) {
	if names >= manyNames {
		_ = lk.symbols().IndexNames(context.Background()) // which does not end
	}
}

// explained is how kp is looked up if an error is told: once, and not of each of a pattern's probes.
func (lk *linker) explained(kp *Kprobe) func(context.Context, string) ([]symbols.Location, error) {
	if kp.absence.toldRefused || kp.pattern != nil || kp.absence.awaited {
		return lk.symbols().Find
	}
	return lk.symbols().Resolve
}

// find is where d has what kp asks for by name, by lk's symbols.
func (lk *linker) find(kp *Kprobe, resolve func(context.Context, string) ([]symbols.Location, error)) (arch.Addr, error) {
	at, ok := lk.symbols().PlaceAgain(kp.SymbolName, &kp.mark)
	var err error
	if !ok {
		at, err = resolveOne(context.Background(), resolve, kp.SymbolName)
	}
	at = at.Add(int64(kp.Offset))
	if err == nil && kp.jprobe != nil {
		err = kp.jprobe.rebind(lk.symbols(), at)
	}
	return at, err
}

// refused notes why kp was not placed when its module came, and tells so once.
func (kp *Kprobe) refused(err error) {
	if kp.absence.refused(err.Error()) {
		kp.session.registry.tell(kp, "probe %s is not placed: %v", err)
	}
}
