package kprobes

import "github.com/gokprobe/gokprobe/symbols"

// absence is why a registered probe is in no address space, what may bring it a place, and what was told of that. It is kept while the probe has places,
// and means nothing then but for awaited and last. Only the methods below change it; a registration begins with a new one.
//
//	            waiting                  placed
//	(nothing) ──────────> waits, why <───────────> in some place
//	                        │    ^ unloaded, left     │
//	                  lost, │    │ (by a name)        │ unloaded, left
//	                endAll  v    │                    v (by no name)
//	                      why alone: nothing brings it back by itself
//
// refused and passedBy change only the reason: a later module or program may have a place.
type absence struct {
	waits   bool   // it is placed when a module comes
	why     string // it has no place
	ended   bool   // by an exec of its process: modules that come are not for it
	awaited bool   // by a name that nothing had when it was looked up: any module that comes may have it
	home    string // path of the module that was unmapped with it
	last    stand  // when the last of its places ended

	toldRefused bool // a module came and had no place for it
	toldApart   bool // other programs have no place for it
}

// placed: it has a place.
func (a *absence) placed() { a.waits, a.why, a.toldRefused = false, "", false }

// waiting: nothing has its name yet. If awaited is set, whatever comes may have it; else it is its library that is not there.
func (a *absence) waiting(why string, awaited bool) { a.waits, a.why, a.awaited = true, why, awaited }

// refused: a module came, and why it has no place for it. The answer says that this was not told before.
func (a *absence) refused(why string) (first bool) {
	first = !a.toldRefused
	a.why, a.toldRefused = why, true
	return first
}

// passedBy: a program of a child's came, and why it has no place for it. A later one may have a better place.
func (a *absence) passedBy(why string) {
	if a.waits {
		a.why = why
	}
}

// lost: the new program can't have it.
func (a *absence) lost(why string) { a.waits, a.why = false, why }

// unloaded: m is gone with its last place. If it has a name it may come again, with m.
func (a *absence) unloaded(m *symbols.Module, byName bool) {
	a.waits, a.why, a.home = byName, m.Name+" was unloaded", m.Path
}

// left: the address space of its last place has ended.
func (a *absence) left(mayCome bool) {
	a.waits, a.why = mayCome, "the process that had it has ended"
}

// endedBy: an exec has ended it.
func (a *absence) endedBy(why string) { a.waits, a.ended, a.why = false, true, why }

// anotherProgram: what was found in modules of the last one means nothing any more.
func (a *absence) anotherProgram() { a.home, a.toldRefused = "", false }

// tellApart tells, once, that other programs have no place for it.
func (a *absence) tellApart() (first bool) {
	first = !a.toldApart
	a.toldApart = true
	return first
}

// comesWith tells whether a module at path may have it, which does not say so in its name.
func (a *absence) comesWith(path string) bool { return a.awaited || path == a.home }
