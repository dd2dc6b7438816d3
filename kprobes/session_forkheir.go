package kprobes

import (
	"cmp"
	"errors"
	"maps"
	"slices"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/guardian"
	"github.com/gokprobe/gokprobe/ptrace"
	"github.com/gokprobe/gokprobe/trampoline"
)

// Most forked children end, or execute a program, before anybody wants to know more of them than their counts. So a child that could be a copy of its parent
// (session_forkcopy.go) is an heir at first: it has the code that it was born with, and memory of its own with all that belongs there, but no domain. The domain is
// made when it is wanted: it is a copy of the domain that the child is like, which has not changed since.
//
// Who may change a domain says so before: hooks by domainOf or at, passes of the optimizer by settledLike, the rest by settled, which the closures of do begin with. Then the heirs that are
// like it, or all, get their domains, and nothing is half done yet. What only looks asks alike, or the Kept itself. To make a domain of an heir is to make objects of ours: it changes nothing that the child
// sees but slots and detours that nobody comes to (dropRetired), asks no call of it, and can't fail. So it does not matter where the child's threads are.
//
// When we are killed the guardian finds in the child's memory what it finds in any other: the journal, the records, the guard's data, all of the child's birth, when its
// code was like that.

// heir is a forked child without a domain.
type heir struct {
	like   *domain
	space  *ptrace.Space
	shared map[arch.Addr]*ptrace.Shared
	file   *ptrace.Backing
	places []ptrace.Extent
	told   *guardian.Hold
	pid    int
	start  uint64 // its start time
	looks  int    // at all code, since it was born
}

// heirs is a session's.
type heirs struct {
	s       *Session
	of      ptrace.Kept[heir]
	all     []*heir // the oldest first
	depth   int     // of things that are being done: hooks, and closures on the tracer's thread
	changes uint64  // calls of settled
}

// mostHeirs is how many there are at a time: each has a descriptor, and they all get their domains at once.
const mostHeirs = 16

// mostLooks is how many looks at all code an heir outlives before it gets a domain, and is looked at as well. Tests have more.
var mostLooks = 1

// outlived is told that all code of domains is about to be looked at.
func (hs *heirs) outlived() {
	for _, h := range slices.Clone(hs.all) {
		if h.looks++; h.looks > mostLooks {
			hs.settle(h)
		}
	}
}

// within says that something is being done, in the course of which domains may change, until what it returns is called.
func (hs *heirs) within() (over func()) {
	hs.depth++
	return func() { hs.depth-- }
}

// settled gives all heirs their domains, and returns all domains, which may be changed then.
func (s *Session) settled() map[*domain]bool {
	s.heirs.changes++
	for len(s.heirs.all) > 0 {
		s.heirs.settle(s.heirs.all[0])
	}
	return s.domains
}

// alike is the domain of an address space, or the one that it is like as long as it has none. It is for who changes nothing.
func (s *Session) alike(space *ptrace.Space) *domain {
	if h := s.heirs.of.Of(space); h != nil {
		return h.like
	}
	return s.spaces.Of(space)
}

// heritable tells whether a child of d's can be an heir: what a domain has beside the copies of another's must be known without it.
func (d *domain) heritable() bool {
	s := d.session
	if s.heirs.depth > 1 || s.closing {
		return false // whatever is being done may have begun to change d
	}
	if d.still != s.heirs.changes {
		lk := &d.linker
		if !d.copyable() || len(d.recorder.rings)+len(d.recorder.recordings) > 0 || d.followed.all() != nil || len(s.syscalls.all) > 0 || !lk.watched || lk.linkerSite == nil && lk.Brk != 0 {
			return false
		}
		d.still = s.heirs.changes
	}
	return true
}

// inherit makes child, which was forked from the address space from, an heir that is like d, as from is. If the answer is false the child has what it was born with,
// or private memory in the place of its parent's.
func (hs *heirs) inherit(d *domain, from *ptrace.Space, child *ptrace.Process) bool {
	if !d.heritable() || !d.bornAlike(d, from, child) {
		return false
	}
	h := &heir{like: d, space: child.Space, pid: child.PID, start: child.StartTime()}
	h.told = guardian.NewHold(h.pid, h.start)
	shared, file, ok := d.memoryFor(from, child, func(_ []*ptrace.Shared, file *ptrace.Backing) error {
		counts := func(at arch.Addr) bool { return d.detours.counters[at] != nil }
		return d.region.CopyContent(counts, func(e trampoline.Extent) (data, code trampoline.Store) {
			return filed{file, e.Offset}, filed{file, e.Offset + e.Data.Len()}
		})
	})
	if !ok {
		h.told.Release()
		return false
	}
	h.shared, h.file, h.places = shared, file, d.memory.places()
	d.guard.protectCallsOf(child.Space)
	if len(d.detours.at) > 0 {
		_ = child.NoteFaultActions(false) // what is known of it is of this very stop
	}
	hs.s.forkedCalls.Keep(child.Space, nil)
	hs.of.Keep(child.Space, h)
	hs.all = append(hs.all, h)
	counting.Lock()
	d.heirs = append(d.heirs, h)
	counting.Unlock()
	child.Space.Unblock(func(set ptrace.Sigset) bool {
		if set.Full() { // as in most forks; it needs no note
			return true
		}
		own := hs.s.at(h.space)
		return own != nil && own.guard.noteUnblocked(set)
	})
	if len(hs.all) > mostHeirs {
		hs.settle(hs.all[0])
	}
	return true
}

// settle gives h its domain.
func (hs *heirs) settle(h *heir) {
	hs.leave(h)
	d := hs.s.newDomainOf(h.space, h.pid, h.start)
	h.told.Release() // now that its domain has told the same
	defer d.look.anew()()
	d.memory.shared, d.memory.brk = h.shared, h.like.memory.brk
	d.guard.takeOver(&h.like.guard)
	err := d.region.CopyBooks(h.like.region, d.memory.stores)
	if err == nil {
		err = d.dropRetired(h.like)
	}
	if err != nil {
		panic(err) // it was copied before, and has not changed; the session ends (hooks.Panicked)
	}
	d.copyBooks(h.like, h)
	h.file.Close()
	d.linker.inherit(h.like)
}

// leave: h is none any more.
func (hs *heirs) leave(h *heir) {
	hs.of.Keep(h.space, nil)
	hs.all = slices.DeleteFunc(hs.all, func(o *heir) bool { return o == h })
}

// settleLike gives those heirs their domains that are like d.
func (hs *heirs) settleLike(d *domain) {
	for len(d.heirs) > 0 {
		hs.settle(d.heirs[0])
	}
}

// settledLike is the domains that change, as which tells. The heirs that are like them have their own by then, and others need none: who is like a domain that does not change stays so.
func (hs *heirs) settledLike(which func(*domain) bool) (list []*domain) {
	hs.changes++
	for more := true; more; {
		more, list = false, list[:0]
		for d := range hs.s.domains {
			if which(d) {
				more = more || len(d.heirs) > 0
				list = append(list, d)
			}
		}
		for _, d := range list {
			hs.settleLike(d)
		}
	}
	return list
}

// left is told that all processes but so many have left an address space. The answer tells that it was an heir's, and that nothing is left of that but its counts. Children
// that it has made, and that have not stopped yet, begin as any domain's: then it gets one, though it has ended.
func (hs *heirs) left(space *ptrace.Space, others int) bool {
	h := hs.of.Of(space)
	switch {
	case h == nil:
		return false
	case others > 0 || hs.s.tracer.Awaits(space):
		hs.settle(h)
		return false
	}
	hs.leave(h)
	counts := h.counts()
	counting.Lock()
	h.like.heirs = slices.DeleteFunc(h.like.heirs, func(o *heir) bool { return o == h })
	for c, n := range counts {
		for _, kp := range c.owners {
			kp.hits.Add(n)
		}
	}
	counting.Unlock()
	go h.release()
	h.told.Release()
	return true
}

// release gives back the memory of an heir that has ended. The kernel frees thousands of pages for whoever lets go of them last: that need not be the tracer's thread.
func (h *heir) release() {
	h.file.Close()
	for _, m := range h.shared {
		m.Unmap()
	}
}

// counts is what an heir has counted that has ended, by the counters of the domain that it is like, whose places are its own counters'.
func (h *heir) counts() map[*counter]uint64 {
	counts, all := map[*counter]uint64{}, h.like.inOrder()
	var stretch []byte
	for e, cells := range h.like.region.CellRanges() {
		from := e.Offset + uint64(cells.Start-e.Data.Start)
		var unread error
		err := h.file.Written(from, from+cells.Len(), func(start, end uint64) {
			first, behind := cells.Start+arch.Addr(start-from), cells.Start+arch.Addr(end-from)
			i, _ := slices.BinarySearchFunc(all, first, func(c *counter, at arch.Addr) int { return cmp.Compare(c.memory().End, at+1) })
			j, _ := slices.BinarySearchFunc(all, behind, func(c *counter, at arch.Addr) int { return cmp.Compare(c.at, at) })
			if i >= j {
				return // what is there is no counter's
			}
			first, behind = max(first, all[i].at), min(behind, all[j-1].memory().End)
			stretch = slices.Grow(stretch[:0], int(behind-first))[:behind-first]
			if err := h.file.ReadAt(from+uint64(first-cells.Start), stretch); err != nil {
				unread = errors.Join(unread, err)
				return
			}
			for _, c := range all[i:j] {
				if c.at < first || c.memory().End > behind {
					counts[c] = h.count(c) // a part of it is in a hole
				} else if n := sumOf(stretch[c.at-first:][:len(c.cells)]); n > 0 {
					counts[c] = n
				}
			}
		})
		err = errors.Join(err, unread)
		if err != nil {
			h.like.session.warn("hits that a followed child has counted are lost: %v", err)
		}
	}
	return counts
}

// inOrder is d's counters in the order of their addresses. d has an heir.
func (d *domain) inOrder() []*counter {
	if ds := &d.detours; ds.sortedAt != d.still {
		ds.sorted = slices.SortedFunc(maps.Values(ds.counters), func(a, b *counter) int { return cmp.Compare(a.at, b.at) })
		ds.sortedAt = d.still
	}
	return d.detours.sorted
}

// count is what h has counted so far at the place of c; who is not on the tracer's thread holds counting.
func (h *heir) count(c *counter) uint64 {
	p := make([]byte, len(c.cells))
	for _, e := range h.places {
		if e.Data.Contains(c.at) && h.file.ReadAt(e.Offset+uint64(c.at-e.Data.Start), p) == nil {
			return sumOf(p)
		}
	}
	return 0
}

// filed is a store of a part of an heir's memory, before it is anybody's.
type filed struct {
	file *ptrace.Backing
	off  uint64
}

func (s filed) Read(off uint64, p []byte) error  { return s.file.ReadAt(s.off+off, p) }
func (s filed) Write(off uint64, p []byte) error { return s.file.WriteAt(s.off+off, p) }
