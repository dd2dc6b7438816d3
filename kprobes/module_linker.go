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
	symbols.Rendezvous
	watched    bool
	linkerSite *site
	blind      error // why there is no such site, until it is told

	busy     bool              // modules are coming or going
	updating bool              // the probes are being told
	modules  []*symbols.Module // as last seen
	came     []*symbols.Module // those of them that may not be complete yet

	// apart: the modules may be others than those of the session's main process. table is
	// read when somebody asks for it.
	apart   bool
	table   *symbols.Table
	foreign bool // a followed child runs another program
}

// watch makes the site, and finds the modules that were loaded before. It does nothing
// if that was done, and for a program without a dynamic linker.
func (d *domain) watch() {
	if d.watched || d.foreign {
		return
	}
	d.watched = true
	inherited := d.Brk != 0
	if !inherited {
		d.modules = d.symbols().Modules()
		d.Rendezvous, _ = d.symbols().Rendezvous()
	}
	if d.Brk != 0 {
		d.linkerSite, d.blind = d.placeLinkerSite()
		d.busy = d.Busy(d.space)
	}
	if !inherited {
		d.update()
	}
}

// unwatch takes back what watch did for a registration that has failed.
func (d *domain) unwatch() error {
	st := d.linkerSite
	if st == nil && d.blind == nil {
		return nil
	}
	d.linker = linker{apart: d.apart, table: d.table}
	if st == nil {
		return nil
	}
	st.linker = false
	return errors.Join(d.settle([]*site{st}), d.takeTailsBack())
}

// placeLinkerSite does not look at the blacklist: no handler of a user runs there.
func (d *domain) placeLinkerSite() (*site, error) {
	if _, err := d.codeMapping(d.Brk); err != nil {
		return nil, err
	}
	pad, err := d.landingPad(d.Brk)
	if err != nil {
		return nil, err
	}
	at := d.Brk + pad
	st := d.siteAt(at)
	if st == nil {
		if st, err = d.makeSite(at); err != nil {
			return nil, err
		}
		d.sites[at] = st
	}
	st.linker = true
	if err := d.refresh(st); err != nil {
		st.linker = false
		return nil, errors.Join(fmt.Errorf("placing the breakpoint at %s: %w", at, err), d.settle([]*site{st}))
	}
	return st, nil
}

// linkerCalled handles a hit of the site.
func (s *Session) linkerCalled(ts *threadState, d *domain) {
	ts.handling = true
	defer func() { ts.handling = false }()
	if d.busy = d.Busy(d.space); !d.busy {
		d.update()
		if len(d.queue) > 0 { // the optimizer has left it alone meanwhile
			s.kick()
		}
	}
}

// watch has every address space watched.
func (s *Session) watch() error {
	if s.watched.Load() {
		return nil
	}
	for d := range s.domains {
		d.survey = nil
		d.watch()
		d.survey = nil
	}
	s.watched.Store(true)
	for d := range s.domains {
		if s.patient && (errors.Is(d.blind, errInsideVfork) || errors.Is(d.blind, ptrace.ErrNoThread)) {
			return errors.Join(d.blind, s.unwatch())
		}
	}
	return nil
}

// unwatch comes after a registration that has failed, if there are no probes.
func (s *Session) unwatch() error {
	var errs []error
	for d := range s.domains {
		errs = append(errs, d.unwatch())
	}
	s.watched.Store(false)
	return errors.Join(errs...)
}

// tellBlind warns of what watch could not do.
func (s *Session) tellBlind() {
	for d := range s.domains {
		if d.unlessEnding(d.blind) != nil {
			s.warn("libraries that the process loads or unloads from now on are not noticed: %v", d.blind)
			d.blind = nil
		}
	}
}

// mainDomain is nil when the main process has ended.
func (s *Session) mainDomain() *domain {
	d, _ := s.main.Space.Local.(*domain)
	return d
}

// symbols is the symbol table of d's processes.
func (d *domain) symbols() *symbols.Table {
	if d.apart && d.table == nil {
		tid, err := d.space.TID()
		if err == nil {
			d.table, err = symbols.Open(tid, d.space.Peek(tid))
		}
		if err != nil {
			if !d.ending() {
				d.session.warn("reading the symbols of a followed child: %v", err)
			}
			d.apart = false
		}
	}
	if d.table != nil {
		return d.table
	}
	return d.session.table
}

// part gives d and every other address space tables of their own, since what d has mapped is
// about to differ. The session's table is the main process's.
func (d *domain) part() {
	main := d.session.mainDomain()
	if d != main {
		d.apart = true
		return
	}
	for other := range d.session.domains {
		other.apart = other != main
	}
}

// inherit gives a forked child the knowledge about its parent.
func (d *domain) inherit(parent *domain) {
	d.Rendezvous, d.modules = parent.Rendezvous, parent.modules
	d.apart, d.foreign = parent.apart || parent.updating, parent.foreign
	if d.Brk != 0 {
		d.watch()
	}
}

// closeTable is for the end.
func (d *domain) closeTable() {
	if d.table != nil {
		_ = d.table.Close()
		d.table = nil
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
