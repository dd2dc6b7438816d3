package kprobes

import (
	"errors"
	"fmt"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/ptrace"
	"github.com/gokprobe/gokprobe/symbols"
)

// linker is what a domain knows of the target's dynamic linker, and of what that has loaded.
//
// The dynamic linker calls a function that does nothing, for debuggers to have a
// breakpoint there: before it maps or unmaps modules, and when it has done so
// (symbols.Rendezvous). A site is made there, as any other, but it needs no probes; a
// user may have some there as well. It is made with the first probe, so a session
// without probes patches nothing, and stays until the session ends. A program pays for
// it when it loads or unloads.
//
// glibc and musl call the function before a loaded module's constructors run, and after
// an unloaded module's destructors.
type linker struct {
	d *domain
	symbols.Rendezvous
	watched    bool
	linkerSite *site
	blind      error // why there is no such site, until it is told

	starting bool              // a program that was executed has loaded nothing yet, and has no probes
	busy     bool              // modules are coming or going
	updating bool              // the probes are being told
	modules  []*symbols.Module // as last seen
	came     []*symbols.Module // those of them that may not be complete yet

	// apart: the modules may be others than those of the session's main process. table is
	// read when somebody asks for it.
	apart     bool
	table     *symbols.Table
	unwatched bool // nobody tells what a followed child's program loads, and it has no probes but those that are registered later

	executed bool    // the program was executed while it was followed
	program  uint64  // which one it is: target.programs when it was executed
	errnoAt  errnoAt // of what is loaded now
}

// watch makes the site, and finds the modules that were loaded before. It does nothing
// if that was done, and for a program without a dynamic linker.
func (lk *linker) watch() {
	if began, inherited := lk.beginWatch(); began && !inherited {
		lk.update() // what came before there was the site
	}
}

// watchStanding is watch for a program of which nothing has run since its symbols were read: nothing came before there was the site.
func (lk *linker) watchStanding() { lk.beginWatch() }

// beginWatch is watch as far as the site. inherited tells that the modules are known from the parent.
func (lk *linker) beginWatch() (began, inherited bool) {
	if lk.watched || lk.unwatched {
		return false, false
	}
	lk.watched = true
	if inherited = lk.Brk != 0; !inherited {
		lk.modules = lk.symbols().Modules()
		lk.Rendezvous, _ = lk.symbols().Rendezvous()
	}
	if lk.Brk != 0 {
		lk.linkerSite, lk.blind = lk.placeLinkerSite()
		lk.busy = lk.Busy(lk.d.space)
	}
	return true, inherited
}

// unwatch takes back what watch did for a registration that has failed.
func (lk *linker) unwatch() error {
	st := lk.linkerSite
	if st == nil && lk.blind == nil {
		return nil
	}
	lk.d.followed.relays.asked = false // what is loaded meanwhile is not noticed
	*lk = linker{d: lk.d, apart: lk.apart, table: lk.table, executed: lk.executed, program: lk.program, errnoAt: lk.errnoAt}
	if st == nil {
		return nil
	}
	st.linker = false
	return errors.Join(lk.d.settle([]*site{st}), lk.d.masks.takeTailsBack())
}

// placeLinkerSite does not look at the blacklist: no handler of a user runs there.
func (lk *linker) placeLinkerSite() (*site, error) {
	if _, err := lk.d.look.codeMapping(lk.Brk); err != nil {
		return nil, err
	}
	pad, err := lk.d.look.landingPad(lk.Brk)
	if err != nil {
		return nil, err
	}
	at := lk.Brk + pad
	st := lk.d.siteAt(at)
	if st == nil {
		if st, err = lk.d.makeSite(at); err != nil {
			return nil, err
		}
		lk.d.sites[at] = st
	}
	st.linker = true
	if err := lk.d.refresh(st); err != nil {
		st.linker = false
		return nil, errors.Join(fmt.Errorf("placing the breakpoint at %s: %w", at, err), lk.d.settle([]*site{st}))
	}
	return st, nil
}

// linkerCalled handles a hit of the site.
func (hs *hits) linkerCalled(ts *threadState, d *domain) {
	ts.enter(atSite)
	defer ts.done()
	if d.linker.busy = d.linker.Busy(d.space); !d.linker.busy {
		d.linker.update()
		if len(d.optimizer.queue) > 0 { // the optimizer has left it alone meanwhile
			hs.s.passes.kick()
		}
	}
}

// watch watches every address space.
func (rg *registry) watch() error {
	if rg.watched.Load() {
		return nil
	}
	for d := range rg.s.settled() {
		end := d.look.anew()
		d.linker.watch()
		end()
	}
	rg.watched.Store(true)
	for d := range rg.s.settled() {
		if rg.s.heed.patient && (errors.Is(d.linker.blind, errInsideVfork) || errors.Is(d.linker.blind, ptrace.ErrNoThread)) {
			return errors.Join(d.linker.blind, rg.unwatch())
		}
	}
	return nil
}

// unwatch comes after a registration that has failed, if there are no probes.
func (rg *registry) unwatch() error {
	var errs []error
	for d := range rg.s.settled() {
		errs = append(errs, d.linker.unwatch())
	}
	rg.watched.Store(false)
	return errors.Join(errs...)
}

// tellBlind warns of what watch could not do.
func (rg *registry) tellBlind() {
	for d := range rg.s.settled() {
		if d.unlessEnding(d.linker.blind) != nil {
			rg.s.warn("libraries that the process loads or unloads from now on are not noticed: %v", d.linker.blind)
			d.linker.blind = nil
		}
	}
}

// mainDomain is nil when the main process has ended.
func (s *Session) mainDomain() *domain { return s.spaces.Of(s.main.Space) }

// symbols is the symbol table of d's processes.
func (lk *linker) symbols() *symbols.Table {
	if lk.apart && lk.table == nil {
		tid, err := lk.d.space.TID()
		if err == nil {
			lk.table, err = symbols.Open(tid, lk.d.space.Peek(tid))
		}
		if err != nil {
			if !lk.d.ending() {
				lk.d.session.warn("reading the symbols of a followed child: %v", err)
			}
			lk.apart = false
		}
	}
	if lk.table != nil {
		return lk.table
	}
	return lk.d.session.table
}

// part gives d and every other address space tables of their own, since what d has mapped is
// about to differ. The session's table is the main process's.
func (lk *linker) part() {
	main := lk.d.session.mainDomain()
	if lk.d != main {
		lk.apart = true
		return
	}
	for other := range lk.d.session.settled() {
		other.linker.apart = other != main
	}
}

// inherit gives a forked child the knowledge about its parent.
func (lk *linker) inherit(parent *domain) {
	lk.Rendezvous, lk.modules = parent.linker.Rendezvous, parent.linker.modules
	lk.apart, lk.unwatched = parent.linker.apart || parent.linker.updating, parent.linker.unwatched
	lk.executed, lk.program, lk.starting = parent.linker.executed, parent.linker.program, parent.linker.starting
	if lk.Brk != 0 {
		lk.watch()
	}
}

// foreign tells that d's program is another one than the main process's: either has executed it since they were one.
func (d *domain) foreign() bool { return d.linker.program != d.session.target.program }

// closeTable is for the end.
func (lk *linker) closeTable() {
	if lk.table != nil {
		_ = lk.table.Close()
		lk.table = nil
	}
}

// contains tells whether one of modules has code at a.
func contains(modules []*symbols.Module, a arch.Addr) *symbols.Module {
	for _, m := range modules {
		for _, r := range m.Text {
			if r.Contains(a) {
				return m
			}
		}
	}
	return nil
}
