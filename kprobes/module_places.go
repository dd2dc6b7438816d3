package kprobes

import (
	"errors"
	"slices"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/symbols"
)

// placed is the site of kp in d, nil if there is none.
func (d *domain) placed(kp *Kprobe) *site {
	for _, pl := range kp.placements {
		if pl.domain == d {
			return pl.site
		}
	}
	return nil
}

// aim is a place for a registered probe.
type aim struct {
	kp   *Kprobe
	at   arch.Addr
	gone Flags // what kp was before
}

// placeAll puts registered probes into d. Probes that it refuses are left out and
// passed to refused.
func (d *domain) placeAll(aims []aim, refused func(*Kprobe, error)) {
	var placed []aim
	var sites []*site
	fail := func(a aim, err error) {
		if len(a.kp.placements) == 0 {
			a.kp.Flags |= a.gone
		}
		if !d.ending() && !errors.Is(err, ErrPlaced) {
			refused(a.kp, err)
		}
	}
	for _, a := range aims {
		a.gone = a.kp.Flags & FlagGone
		a.kp.Flags &^= FlagGone
		st, err := d.attach(a.kp, a.at)
		if err != nil {
			fail(a, err)
			continue
		}
		placed, sites = append(placed, a), append(sites, st)
	}
	if _, err := d.refreshAll(sites); err == nil {
		return
	}
	for i, a := range placed {
		if err := d.refresh(sites[i]); err != nil {
			fail(a, errors.Join(err, d.withdraw(a.kp, sites[i])))
		}
	}
}

// aimsOf returns the places in a followed child for kps, which are registered now.
func (lk *linker) aimsOf(kps []*Kprobe) []aim {
	if lk.unwatched {
		if err := lk.symbols().Refresh(); err != nil { // nobody tells what it loads
			return nil
		}
	}
	libs := map[string]bool{}
	sought := func(kp *Kprobe) bool {
		return lk.apart && kp.byName() && lk.d.placed(kp) == nil && lk.hasLibrary(kp, libs)
	}
	names, isSought := 0, make([]bool, len(kps))
	for i, kp := range kps {
		if isSought[i] = sought(kp); isSought[i] {
			names++
		}
	}
	lk.expect(names)
	var aims []aim
	for i, kp := range kps {
		at := kp.Addr
		switch {
		case lk.d.placed(kp) != nil: // it was registered while the program started
			continue
		case lk.apart && kp.byName():
			var err error
			if !isSought[i] {
				continue
			}
			if at, err = lk.find(kp, lk.symbols().Find); err != nil {
				if kp.absence.awaited && !unknown(err) { // nobody was told of it by its registration
					kp.refused(err)
				}
				continue
			}
		case lk.unwatched, lk.d.foreign(), at == notYet: // another program has something else at an address
			continue
		case lk.apart && !lk.hasMains(at): // it has loaded something else there
			continue
		}
		aims = append(aims, aim{kp: kp, at: at})
	}
	return aims
}

// hasLibrary tells that the library is mapped that kp asks for by name, if it asks for one; libs keeps the answers. To look through all other
// modules' symbols for such names takes long while the dynamic linker has mapped nothing yet.
func (lk *linker) hasLibrary(kp *Kprobe, libs map[string]bool) bool {
	lib := kp.mark.Library(kp.SymbolName)
	has, known := libs[lib]
	if !known {
		has = lib == "" || slices.ContainsFunc(lk.symbols().Modules(), func(m *symbols.Module) bool { return m.IsCalled(lib) })
		libs[lib] = has
	}
	return has
}

// hasMains tells that what is mapped at an address is the same file as in the session's main process, or no file in both.
func (lk *linker) hasMains(at arch.Addr) bool {
	main := lk.d.session.mainDomain()
	if main == nil {
		return false
	}
	here, there := contains(lk.modules, at), contains(main.linker.modules, at)
	return here == nil && there == nil || here != nil && there != nil && here.Same(there)
}

// copies returns the places of d's probes in a child that was just forked from d.
// Probes of one site come in the order in which they were placed.
func (d *domain) copies() []aim {
	var aims []aim
	for _, st := range d.sites {
		for _, kp := range slices.Backward(st.probes) {
			aims = append(aims, aim{kp: kp, at: st.addr})
		}
	}
	return aims
}

func notInChild(kp *Kprobe, err error) {
	if len(kp.placements) == 0 {
		kp.absence.passedBy(err.Error())
	}
	kp.session.registry.tell(kp, "probe %s is not placed in a followed child: %v", err)
}
