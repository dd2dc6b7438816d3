package kprobes

import (
	"bytes"
	"errors"
	"maps"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/program"
	"github.com/gokprobe/gokprobe/ptrace"
	"github.com/gokprobe/gokprobe/trampoline"
)

// A followed child is born with its parent's breakpoints and jumps, and with all that they lead to. So as a rule nothing of its code is written: it
// keeps all that, and the domain that we make for it is a copy of the parent's. Only the memory of ours is to be its own, since hits are counted there:
// it gets memory at the same addresses with the same content, but for counts and records.
//
// # What the child may see, and when we are killed
//
// It stands in its fork, with one thread, from before the first step until the last.
//
//   - Its code is compared with its parent's, all pages in which we have ever written: a fork copies memory at a moment of its own, and we may have changed
//     the parent's since. Where they differ, and where the parent is not in a state that is simple (copyable), the child gets its original code back and
//     probes anew, as long as that may take (session_forkclean.go).
//   - Until its memory is replaced its jumps lead to the parent's detours: they work there, and count for the parent. The guard answers its breakpoints
//     from the parent's table.
//   - The new memory is filled before the child has any of it. An arena is replaced by one system call for its data and one for its code, in between
//     the two belong to different files with the same content, but for what nothing leads to (dropRetired): either is right, and what the guard's table, the journal
//     and the records of detours say of the rest is true of both.
//   - The parent's memory is not changed meanwhile, but for counters and records, by its threads. They are zero in the child.
//   - If the child can't map the memory after all, it has private memory with the same content in the end; then its original code is put back, and that
//     memory is taken away.

// copyable tells whether a forked child's domain can be a copy of d: neither programs that decide, nor followed calls, nor handlers by upcalls are about, whose
// memory and books belong to threads, and nothing is half done. A program that records is no obstacle: the thread that forks is in none, so the child's
// rings begin empty.
func (d *domain) copyable() bool {
	nb, fo := &d.neighbours, &d.followed
	switch {
	case d.memory.private, !d.guard.whole, d.guard.none, d.guard.incomplete, !d.guard.has(unix.SIGTRAP), d.released:
	case len(d.recorder.states) > 0, d.recorder.keepsStates():
	case fo.table != nil, len(fo.relays.pages) > 0:
	case len(d.upcalls.boards) > 0, d.detours.callsOut > 0:
	case len(nb.ousted)+len(nb.beset)+len(nb.mended) > 0:
	case d.linker.updating, d.linker.starting, len(d.masks.unfinished) > 0, d.text.Torn(), !d.detours.settled():
	default:
		return !slices.ContainsFunc(slices.Collect(maps.Values(d.sites)), func(st *site) bool { return d.slots.at[st.slot.Addr] != st || !st.copyable() })
	}
	return false
}

func (st *site) copyable() bool {
	switch {
	case !st.calls.none(), st.next() != nil:
		return false
	case st.wanted() && !st.armed(): // it could not be armed, and may be in the child
		return false
	}
	det := st.jump()
	return det == nil || !det.decides() && len(det.returned) == 0 && det.upcall == nil && !det.beside && !det.beset
}

// keepsStates tells whether a program has a state, perhaps of a probe that is gone: its memory is that of several programs.
func (rc *recorder) keepsStates() bool {
	for _, rec := range rc.recordings {
		if slices.ContainsFunc(rec.maps, func(m mapMemory) bool { return m.state != nil }) {
			return true
		}
	}
	return false
}

// settled tells that each detour has its jump, or has none and will have none.
func (ds *detours) settled() bool {
	for _, det := range ds.at {
		if !det.retired && (ds.d.sites[det.site.addr] != det.site || det.site.jump() != det) {
			return false
		}
	}
	return true
}

// becomeCopy makes d, which is child's and has nothing yet, a copy of parent. If the answer is false the child has the code that it was born with, and memory of
// the parent's or private memory in its place.
func (d *domain) becomeCopy(parent *domain, child *ptrace.Process) bool {
	if !parent.copyable() || !d.bornAlike(parent, parent.space, child) || !d.takeMemory(parent, child, func(stores func(trampoline.Extent) (data, code trampoline.Store)) error {
		if err := d.region.CopyOf(parent.region, parent.counted(), stores); err != nil {
			return err
		}
		return d.dropRetired(parent)
	}) {
		return false
	}
	d.copyBooks(parent, nil)
	child.Space.Unblock(d.guard.noteUnblocked)
	d.detours.noteFaultsIf(slices.ContainsFunc(slices.Collect(maps.Values(d.sites)), func(st *site) bool { return st.jump() != nil && st.jump().raises() }))
	return true
}

// copyBooks makes d, which has memory and the guard, a copy of parent in all else; h is the heir that it was, if any.
func (d *domain) copyBooks(parent *domain, h *heir) {
	d.past = pastCode{insns: maps.Clone(parent.past.insns)}
	d.text.CopyOf(parent.text)
	d.optimizer.lazily()
	for at, p := range parent.optimizer.jumps {
		d.optimizer.jumps[at] = &pastJump{p.original, slices.Clip(p.replacements)}
	}
	d.masks.becomeCopy(&parent.masks)
	d.recorder.copyRings(&parent.recorder)
	d.copySites(parent, h)
	if len(d.recorder.rings) > 0 {
		d.recorder.noteAll()
	}
	d.linker.watched = parent.linker.watched && (parent.linker.linkerSite != nil || parent.linker.Brk == 0) // else it is tried again
	if st := parent.linker.linkerSite; st != nil {
		d.linker.linkerSite = d.sites[st.addr]
		d.linker.busy = parent.linker.Busy(d.space)
	}
	d.guard.unlooked = false
}

// dropRetired gives back what the parent keeps only until no thread of its is inside: slots and detours to which nothing leads, and what their programs and
// counters have. The child's thread is in none, and none of its memory is there yet.
func (d *domain) dropRetired(parent *domain) error {
	_, err1 := d.region.Collect(func(slot arch.Range) bool {
		if st := parent.slots.at[slot.Start]; st != nil {
			_ = d.region.ClearResume(st.slot.Trap)
		}
		return false
	})
	if parent.detours.retired == 0 {
		return err1
	}
	for _, det := range parent.detours.at {
		if det.retired {
			det.forgottenBy(d.region)
		}
	}
	_, err2 := d.region.CollectDetours(func(arch.Range) bool { return false })
	unused := maps.Clone(parent.detours.counters)
	programs := maps.Clone(parent.recorder.recordings)
	for _, st := range parent.sites {
		det := st.jump()
		if det != nil && det.count != nil {
			delete(unused, det.count.at)
		}
		if det != nil && det.record != nil {
			delete(programs, det.record.id)
		}
	}
	errs := []error{err1, err2}
	for at := range unused {
		errs = append(errs, d.region.FreeCells(at))
	}
	for _, rec := range programs {
		for _, m := range rec.maps {
			if m.own() {
				errs = append(errs, d.region.FreeCells(m.at))
			}
		}
	}
	return errors.Join(errs...)
}

// bornAlike tells whether the child's code is what the parent's is now, wherever we have ever written. from is the address space that it was forked from: the parent's, or
// that of an heir, which has the parent's code.
func (d *domain) bornAlike(parent *domain, from *ptrace.Space, child *ptrace.Process) bool {
	return child.BornAsNow(from) || d.hasCodeOf(parent, child)
}

// hasCodeOf compares.
func (d *domain) hasCodeOf(parent *domain, child *ptrace.Process) bool {
	var theirs, own []byte
	differs := func(run pageRun) bool {
		n := int(run.Len())
		theirs, own = slices.Grow(theirs[:0], n)[:n], slices.Grow(own[:0], n)[:n]
		return parent.space.Text().ReadMemory(run.Start, theirs) != nil || child.Space.Text().ReadMemory(run.Start, own) != nil || !bytes.Equal(theirs, own)
	}
	runs, changes := parent.past.byRuns(parent.optimizer.jumps), parent.session.heirs.changes
	for i := range runs {
		run := &runs[i]
		n := int(run.Len())
		own = slices.Grow(own[:0], n)[:n]
		if run.whole != nil && run.wholeAt == changes && child.Space.Text().ReadMemory(run.Start, own) == nil && bytes.Equal(own, run.whole) {
			continue // we have not written there since
		}
		if !differs(*run) {
			if run.keeps && parent.session.heirs.depth <= 1 { // else what is being done may write yet
				run.whole, run.wholeAt = append(run.whole[:0], theirs...), changes
			}
			continue
		}
		if run.Len() == codePage || slices.ContainsFunc(run.byPage(), differs) { // what lies between its pages is not of interest
			return false
		}
	}
	return true
}

// copySites makes the sites that the child has where its parent has some, with their own detours and counters. There may be thousands, and a process that
// forks all the time; so each kind is made in one piece.
func (d *domain) copySites(parent *domain, h *heir) {
	n, jumps := len(parent.sites), 0
	for _, st := range parent.sites {
		if st.jump() != nil {
			jumps++
		}
	}
	sites, dets, counters := make([]site, 0, n), make([]detour, 0, jumps), make([]counter, 0, jumps) // which never move
	d.sites, d.slots.at = make(map[arch.Addr]*site, n), make(map[arch.Addr]*site, n)
	d.detours.at = make(map[arch.Addr]*detour, len(parent.detours.at))
	d.detours.heads, d.detours.counters = make(map[arch.Addr]*detour, len(parent.detours.heads)), make(map[arch.Addr]*counter, len(parent.detours.counters))
	d.neighbours.torn, d.neighbours.strays = make(map[arch.Addr]arch.Addr, len(parent.neighbours.torn)), make(map[arch.Addr]*detour, len(parent.neighbours.strays))
	counting.Lock()
	defer counting.Unlock()
	parent.heirs = slices.DeleteFunc(parent.heirs, func(o *heir) bool { return o == h }) // its counts are its counters' from now on
	for _, st := range parent.sites {
		sites = append(sites, *st)
		own := &sites[len(sites)-1]
		own.domain = d
		d.sites[own.addr], d.slots.at[own.slot.Addr] = own, own
		p, _ := d.text.Find(own.addr)
		switch st.stands.(type) {
		case breakpoint:
			own.stands = breakpoint{p}
		case jumping:
			dets = append(dets, *st.jump())
			det := &dets[len(dets)-1]
			det.site, det.atHeads, det.inUpcall = own, headHits{}, upcallHits{}
			own.stands = jumping{p, det}
			if det.count != nil {
				counters = append(counters, counter{at: det.count.at, cells: d.copiedCells(det.count.at, len(det.count.cells)), of: d})
				det.count = &counters[len(counters)-1]
			}
			if det.record != nil {
				det.record = d.recorder.copyRecording(det.record)
			}
			d.detours.enterCopy(det)
		}
		for _, kp := range own.probes {
			kp.placements = append(kp.placements, placement{d, own})
		}
		switch opt := &parent.optimizer; {
		case !opt.queue[st] && !opt.unhit[st]:
		case own.jump() != nil, own.mask != nil: // to be taken back, or whole at once: no hit tells
			d.optimizer.enqueue(own)
		default:
			d.optimizer.unhit[own] = true
		}
	}
}

// copiedCells is the child's memory of n bytes that the parent has for counts or records at at, zero.
func (d *domain) copiedCells(at arch.Addr, n int) []byte {
	cells, err := d.region.Cell(at, n)
	if err != nil {
		return nil // it is not of the region that was copied
	}
	return cells
}

// counted is the cells that hold what the target has counted or recorded: counters, rings, and maps that only one program uses.
func (d *domain) counted() map[arch.Addr]bool {
	all := make(map[arch.Addr]bool, len(d.detours.counters)+len(d.recorder.recordings))
	for at := range d.detours.counters {
		all[at] = true
	}
	for _, r := range d.recorder.rings {
		all[r.at] = true
	}
	for _, rec := range d.recorder.recordings {
		for _, m := range rec.maps {
			if m.own() {
				all[m.at] = true
			}
		}
	}
	return all
}

// copyRings has rings where the parent has some.
func (rc *recorder) copyRings(parent *recorder) {
	for _, r := range parent.rings {
		own := &ring{at: r.at, size: r.size, words: wordsOf(rc.d.copiedCells(r.at, 8*len(r.words)))}
		own.reader, _ = program.NewRingReader(program.Map{Kind: program.Ring, Size: r.size}, own.words) // as the parent's
		rc.rings = append(rc.rings, own)
	}
}

// copyRecording enters the program of a detour that is a copy: its code names the recording by its number, and its maps by their addresses.
// counting is held.
func (rc *recorder) copyRecording(of *recording) *recording {
	own := &recording{kp: of.kp, id: of.id, checked: of.checked, values: of.values, maps: slices.Clone(of.maps)}
	for i := range own.maps {
		m := &own.maps[i]
		if m.own() {
			m.words = wordsOf(rc.d.copiedCells(m.at, 8*len(m.words)))
			continue
		}
		m.ring = rc.rings[slices.IndexFunc(rc.rings, func(r *ring) bool { return r.at == m.at })]
		m.words = m.ring.words
	}
	if slices.Contains(own.kp.recordings, of) { // else it is of a former registration
		own.kp.recordings = append(own.kp.recordings, own)
	}
	rc.recordings[own.id] = own
	return own
}

// enterCopy enters det, whose code is the parent's and at the same place. counting is held.
func (ds *detours) enterCopy(det *detour) {
	ds.at[det.Addr], ds.at[det.landing.Entry] = det, det
	for _, h := range det.heads {
		ds.heads[h] = det
	}
	ds.d.neighbours.noteTorn(det)
	ds.d.neighbours.noteStrays(det)
	if det.count != nil {
		ds.counters[det.count.at] = det.count
		det.count.enter(det.site.counted()) // nobody has counted in it, and it is not looked at lest it costs memory
	}
}

// becomeCopy takes over the tails, which are in the memory that was copied.
func (mk *masks) becomeCopy(parent *masks) {
	mk.searched, mk.keys = maps.Clone(parent.searched), maps.Clone(parent.keys)
	if parent.mem == nil {
		return
	}
	mk.maskCells, mk.setTable, mk.sets, mk.constant = parent.maskCells, parent.setTable, slices.Clone(parent.sets), maps.Clone(parent.constant)
	mk.mem, _ = mk.d.region.Cell(arch.Addr(mk.setTable), len(parent.mem))
}
