package kprobes

import (
	"bytes"
	"errors"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/ptrace"
	"github.com/gokprobe/gokprobe/trampoline"
)

// Forked implements ptrace.Handler.
func (s hooks) Forked(parent *ptrace.Space, child *ptrace.Process) ptrace.Fate {
	defer s.heirs.within()()
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
	d := s.alike(parent)
	if d == nil {
		return ptrace.LetGo
	}
	if s.opts.Follow && !s.closed && s.heirs.inherit(d, parent, child) {
		return ptrace.Keep
	}
	d = s.at(parent)
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

// beginInChild makes a forked child begin with its original code, and places its parent's probes there.
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

// takeOver makes a forked child keep the parent's guard, and gives it memory of its own in the place of the parent's arenas: each the same bytes long at the same
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

// takeMemory leaves the child the guard, and gives it memory of its own in the place of all of the parent's. fill makes d's region in it.
func (d *domain) takeMemory(parent *domain, child *ptrace.Process, fill func(stores func(trampoline.Extent) (data, code trampoline.Store)) error) bool {
	arenas := parent.region.Mapped()
	_, file, ok := parent.memoryFor(parent.space, child, func(own []*ptrace.Shared, _ *ptrace.Backing) error {
		for i, e := range arenas {
			d.memory.shared[e.Data.Start] = own[i]
		}
		return fill(d.memory.stores)
	})
	file.Close()
	if !ok {
		clear(d.memory.shared)
		d.beginRegion()
		return false
	}
	d.memory.brk = parent.memory.brk
	d.guard.takeOver(&parent.guard)
	d.guard.protectCalls()
	return true
}

// stores is the two parts of an arena, as the tracer has them.
func (m *memory) stores(e trampoline.Extent) (data, code trampoline.Store) {
	own := m.shared[e.Data.Start]
	return trampoline.Bytes(own.Data), trampoline.Bytes(own.Code)
}

// places is where the arenas lie, in the order of Mapped; nil if that is nowhere, or if one of them is not shared.
func (m *memory) places() (list []ptrace.Extent) {
	for _, e := range m.d.region.Mapped() {
		if m.shared[e.Data.Start] == nil {
			return nil
		}
		list = append(list, ptrace.Extent{Data: e.Data, Code: e.Code, Offset: e.Offset})
	}
	return list
}

// memoryFor gives a forked child memory of its own in the place of all of d's, which its parent from has, or memory like that at the same places. The child keeps the
// guard. fill writes what belongs there.
func (d *domain) memoryFor(from *ptrace.Space, child *ptrace.Process, fill func([]*ptrace.Shared, *ptrace.Backing) error) (shared map[arch.Addr]*ptrace.Shared, file *ptrace.Backing, ok bool) {
	places := d.memory.places()
	if len(places) == 0 || len(places) > mostInherited || slices.ContainsFunc(from.Processes(), (*ptrace.Process).GuardDoubted) {
		return nil, nil, false
	}
	state := d.guard.state
	kept := ptrace.KeptGuard{Handler: state.Handler, Signals: ptrace.Sigset(state.Installed >> 1)}
	shared = map[arch.Addr]*ptrace.Shared{}
	err := child.Space.ReplaceShared(from, trampoline.MemfdName, places, kept, func(own []*ptrace.Shared, f *ptrace.Backing) error {
		file = f
		for i, e := range places {
			shared[e.Data.Start] = own[i]
		}
		return fill(own, f)
	})
	if err != nil {
		file.Close()
		for _, m := range shared {
			m.Unmap()
		}
		return nil, nil, false
	}
	return shared, file, true
}

// pastCode is every instruction that ever had a breakpoint in an address space, alone or in a jump. A fork copies memory at a
// moment of its own, and a thread may have trapped on a breakpoint that has been removed since.
type pastCode struct {
	insns map[arch.Addr][]byte
	runs  []pageRun // of them, for the forks; nil after a change of them, of the jumps, or of what unblocks
}

func (p *pastCode) add(at arch.Addr, insn []byte) {
	if !bytes.Equal(p.insns[at], insn) {
		p.runs = nil
	}
	p.insns[at] = insn
}

func (p *pastCode) drop(at arch.Addr) {
	delete(p.insns, at)
	p.runs = nil
}
