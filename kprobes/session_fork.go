package kprobes

import (
	"bytes"
	"errors"
	"maps"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/patch"
	"github.com/gokprobe/gokprobe/ptrace"
	"github.com/gokprobe/gokprobe/trampoline"
)

// Forked implements ptrace.Handler.
func (s hooks) Forked(parent *ptrace.Space, child *ptrace.Process) ptrace.Fate {
	fate := s.forked(parent, child)
	if fate == ptrace.LetGo {
		s.watchers.ended(child)
	}
	return fate
}

// forked looks after a new process. The child's copy of the memory has our
// breakpoints and our region, lest it dies of a breakpoint should we be killed before this; it
// gets its original code back, and under Follow probes of its own.
func (s hooks) forked(parent *ptrace.Space, child *ptrace.Process) ptrace.Fate {
	d := s.spaces.Of(parent)
	if d == nil {
		return ptrace.LetGo
	}
	if !s.opts.Follow || s.closed { // Close settles the forks that are under way
		_ = s.cleanChild(d, child)
		d.guard.cleanRegion(child)
		return ptrace.LetGo
	}
	fresh := s.newDomain(child)
	fresh.newborn = true
	defer func() { fresh.newborn = false }()
	defer fresh.look.anew()()
	if fresh.becomeCopy(d, child) {
		fresh.linker.inherit(d)
	} else {
		s.beginInChild(fresh, d, child)
	}
	fresh.followed.copyCalls(child)
	s.syscalls.followSyscalls(fresh)
	return ptrace.Keep
}

// cleanChild gives a forked child its original code back, and its return addresses. It tells what it could not, which is the error.
func (s hooks) cleanChild(parent *domain, child *ptrace.Process) error {
	uncleaned := parent.clean(child)
	if uncleaned != nil {
		s.warn("the forked child %d may keep breakpoints: %v", child.PID, uncleaned)
	}
	replaced := parent.followed.leaveChild(child)
	if replaced != nil {
		s.warn("the forked child %d: %v", child.PID, replaced)
	}
	return errors.Join(uncleaned, replaced)
}

// beginInChild has a forked child begin with its original code, and places its parent's probes there.
func (s hooks) beginInChild(d, parent *domain, child *ptrace.Process) {
	unclean := s.cleanChild(parent, child)
	if unclean != nil || !d.takeOver(parent, child) {
		parent.guard.cleanRegion(child)
	}
	d.optimizer.lazily()
	d.masks.inherit(&parent.masks)
	d.linker.inherit(parent)
	d.placeAll(parent.copies(), notInChild)
}

// mostInherited is how many arenas a child is given at once; each is a mapping here.
const mostInherited = 32

// takeOver has a forked child keep the parent's guard, and gives it memory of its own in the place of the parent's arenas: each the same bytes long at the same
// address, with a header, the guard, and no slot. Taking all away and putting it there again would be some two dozen system calls on its behalf, and this is nine
// with two arenas. The child stands in its fork. Were we killed, it would run on with its original code, and the guard with a table either of the parent's or of its own,
// which is empty; neither has a place that it comes to. If the answer is false the child has what it had, or private memory in its place, and the caller takes that
// away.
func (d *domain) takeOver(parent *domain, child *ptrace.Process) bool {
	g := &parent.guard
	if parent.memory.private || !g.whole || g.none || g.incomplete || !g.has(unix.SIGTRAP) {
		return false
	}
	return d.takeMemory(parent, child, func(stores func(trampoline.Extent) (data, code trampoline.Store)) error {
		return d.region.TakeOver(parent.region, g.state, stores)
	})
}

// takeMemory has the child keep the guard, and have memory of its own in the place of all of the parent's, in which fill has d's region begin.
func (d *domain) takeMemory(parent *domain, child *ptrace.Process, fill func(stores func(trampoline.Extent) (data, code trampoline.Store)) error) bool {
	if slices.ContainsFunc(parent.space.Processes(), (*ptrace.Process).GuardDoubted) {
		return false
	}
	arenas := parent.region.Mapped()
	extents := make([]ptrace.Extent, len(arenas))
	for i, e := range arenas {
		if parent.memory.shared[e.Data.Start] == nil {
			return false
		}
		extents[i] = ptrace.Extent{Data: e.Data, Code: e.Code, Offset: e.Offset}
	}
	if len(extents) == 0 || len(extents) > mostInherited {
		return false
	}
	state := parent.guard.state
	kept := ptrace.KeptGuard{Handler: state.Handler, Signals: ptrace.Sigset(state.Installed >> 1)}
	err := child.Space.ReplaceShared(parent.space, trampoline.MemfdName, extents, kept, func(own []*ptrace.Shared) error {
		for i, e := range arenas {
			d.memory.shared[e.Data.Start] = own[i]
		}
		return fill(func(e trampoline.Extent) (data, code trampoline.Store) {
			m := d.memory.shared[e.Data.Start]
			return trampoline.Bytes(m.Data), trampoline.Bytes(m.Code)
		})
	})
	if err != nil {
		for _, m := range d.memory.shared {
			m.Unmap()
		}
		clear(d.memory.shared)
		d.beginRegion()
		return false
	}
	d.memory.brk = parent.memory.brk
	d.guard.takeOver(&parent.guard)
	return true
}

// pastCode is every instruction that ever had a breakpoint in an address space, alone or in a jump. A fork copies memory at a
// moment of its own, and a thread may have trapped on a breakpoint that has been removed since.
type pastCode struct {
	insns map[arch.Addr][]byte
	order []arch.Addr // of them, for the forks; nil after a change
}

func (p *pastCode) add(at arch.Addr, insn []byte) {
	if _, known := p.insns[at]; !known {
		p.order = nil
	}
	p.insns[at] = insn
}

func (p *pastCode) drop(at arch.Addr) {
	delete(p.insns, at)
	p.order = nil
}

func (p *pastCode) sorted() []arch.Addr {
	if p.order == nil {
		p.order = slices.Sorted(maps.Keys(p.insns))
	}
	return p.order
}

// clean puts the original code into a forked child's copy of the memory. The child
// has only one thread, and a forking thread is inside a system call, not in a slot.
func (d *domain) clean(child *ptrace.Process) error {
	mem := child.Space.Text()
	entries, unread := d.copied(mem)
	entries = d.dropCopies(child, entries)
	return errors.Join(unread, patch.RestoreCopy(newborn{child}, mem, d.neighbours.judge(), entries))
}

// copied is what a forked child's memory has of ours, in the order in which it is taken back: page by page, in each of
// them the jumps before the breakpoints, which may look like a part of one.
//
// We may be killed at any moment, and the child then runs on with what is left, and the guard. So the jumps go last that
// keep threads from blocking the signal by which the guard answers breakpoints (guard_masksites.go).
//
// What can't be read is unmapped since; else unread says so.
func (d *domain) copied(mem arch.Memory) (entries []patch.Entry, unread error) {
	var all, breakpoints, tails []patch.Entry
	pages := pageReader{mem: mem}
	trap := host.Arch.Breakpoint()
	inTail := arch.Range{}
	for _, at := range d.past.sorted() {
		if !pages.holds(at) {
			all, breakpoints = append(all, breakpoints...), breakpoints[:0]
		}
		if e, ok := d.optimizer.copiedJump(&pages, at); ok && d.unblocks(at) {
			tails = append(tails, e)
			inTail = arch.Range{Start: at, End: at.Add(int64(len(e.Original)))}
		} else if ok {
			all = append(all, e)
		}
		original := d.past.insns[at]
		now, err := pages.bytes(at, len(original))
		if err != nil {
			if errors.Is(err, ptrace.ErrNoAnswer) {
				unread = err
			}
			continue
		}
		n := len(trap)
		if !bytes.Equal(now[:n], trap) || !bytes.Equal(now[n:], original[n:]) {
			continue
		}
		if p, ok := d.text.Find(at); ok && p.Shared() {
			continue
		}
		e := patch.Entry{At: at, Original: original[:n], Replacement: trap}
		if inTail.Contains(at) {
			tails = append(tails, e)
		} else {
			breakpoints = append(breakpoints, e)
		}
	}
	return append(append(all, breakpoints...), tails...), unread
}

// copiedJump is the jump at at that a forked child's memory has.
func (opt *optimizer) copiedJump(mem *pageReader, at arch.Addr) (patch.Entry, bool) {
	past := opt.jumps[at]
	if past == nil {
		return patch.Entry{}, false
	}
	now, err := mem.bytes(at, len(past.original))
	if err != nil {
		return patch.Entry{}, false // unmapped since
	}
	r := past.standing(now)
	return patch.Entry{At: at, Original: past.original, Replacement: r}, r != nil
}

// newborn is patch.Frozen for a forked child: it stands in its fork, and has run nothing yet.
type newborn struct{ *ptrace.Process }

func (n newborn) Holds() bool {
	threads := n.Threads()
	return len(threads) == 1 && threads[0].Stopped()
}

// pageReader reads a page at a time: a forked child may have thousands of breakpoints.
type pageReader struct {
	mem  arch.Memory
	page arch.Addr // that was read last
	text []byte    // of it
	read bool
}

const codePage = 4096

// holds tells whether at is in the page that was read last.
func (r *pageReader) holds(at arch.Addr) bool { return r.read && at&^(codePage-1) == r.page }

// bytes is the n bytes at at. They are the reader's, until the next call.
func (r *pageReader) bytes(at arch.Addr, n int) ([]byte, error) {
	if !r.holds(at) {
		if r.text == nil {
			r.text = make([]byte, codePage)
		}
		r.page = at &^ (codePage - 1)
		err := r.mem.ReadMemory(r.page, r.text)
		if r.read = err == nil; err != nil {
			return nil, err
		}
	}
	if off := int(at - r.page); off+n <= codePage {
		return r.text[off : off+n], nil
	}
	p := make([]byte, n)
	return p, r.mem.ReadMemory(at, p)
}
