package kprobes

import (
	"bytes"
	"errors"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/patch"
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

// clean puts the original code into a forked child's copy of the memory. The child
// has only one thread, and a forking thread is inside a system call, not in a slot.
func (d *domain) clean(child *ptrace.Process) error {
	c := d.copied(child.Space)
	return errors.Join(c.unread, patch.RestoreCopy(newborn{child}, c.space.Text(), d.neighbours.judge(), c.afterDrop()))
}

// copies is what a forked child's memory has of ours.
type copies struct {
	d      *domain
	space  *ptrace.Space // the child's
	found  []*found
	unread error            // what can't be read is unmapped since; else this says so
	drop   []arch.Range     // pages that need not be written, see session_forkpages.go
	maps   []procfs.Mapping // the child's, once they were needed
}

// found is what is in one run of pages, in the order in which it is taken back: page by page, in each of
// them the jumps before the breakpoints, which may look like a part of one.
//
// We may be killed at any moment, and the child then runs on with what is left, and the guard. So the jumps go last that
// keep threads from blocking the signal by which the guard answers breakpoints (guard_masksites.go).
type found struct {
	entries []patch.Entry
	tails   []patch.Entry // go last
	shared  bool          // others' breakpoints were left out
	shares  uint64        // patch.Text.Shares then
	patched int           // pages
	text    []byte        // in which all this was found, if it is kept
	clean   []byte        // text without entries and tails, of many pages
	unlike  []bool        // the pages of it that could not be made so
}

func (d *domain) copied(space *ptrace.Space) *copies {
	c := &copies{d: d, space: space}
	runs := d.past.byRuns(d.optimizer.jumps)
	for i := range runs {
		c.look(&runs[i])
	}
	return c
}

// look reads the pages of run at once, or one by one if some can't be read. What they have is as a rule what the last child had.
func (c *copies) look(run *pageRun) {
	text := slices.Grow(c.d.session.forkedPages[:0], int(run.Len()))[:run.Len()]
	c.d.session.forkedPages = text
	switch err := c.space.Text().ReadMemory(run.Start, text); {
	case err == nil:
		f := run.last
		if f == nil || f.shared || f.shares != c.d.text.Shares() || !bytes.Equal(f.text, text) {
			f = c.find(run, text)
			run.last = f
		}
		c.found = append(c.found, f)
		if f.clean != nil {
			c.likeTheFile(run, f)
		}
	case run.Len() > codePage:
		for _, page := range run.byPage() {
			c.look(&page)
		}
	default:
		c.note(err)
	}
}

func (c *copies) note(err error) {
	if errors.Is(err, ptrace.ErrNoAnswer) {
		c.unread = err
	}
}

// find finds what text, which is run's, has of ours.
func (c *copies) find(run *pageRun, text []byte) *found {
	f := &found{shares: c.d.text.Shares()}
	var breakpoints []patch.Entry
	inTail := arch.Range{}
	for _, page := range run.byPage() {
		before := len(f.tails) + len(f.entries)
		breakpoints = breakpoints[:0]
		for i := range page.insns {
			insn := &page.insns[i]
			if e, ok := c.jump(insn, run, text); ok && c.d.unblocks(e.At) {
				f.tails = append(f.tails, e)
				inTail = arch.Range{Start: e.At, End: insn.end()}
			} else if ok {
				f.entries = append(f.entries, e)
			}
			e, ok := c.breakpoint(insn, run, text)
			if !ok {
				continue
			}
			switch p, _ := c.d.text.Find(e.At); {
			case p != nil && p.Shared():
				f.shared = true
			case inTail.Contains(e.At):
				f.tails = append(f.tails, e)
			default:
				breakpoints = append(breakpoints, e)
			}
		}
		f.entries = append(f.entries, breakpoints...)
		if len(f.tails)+len(f.entries) > before {
			f.patched++
		}
	}
	if f.patched >= fewPages {
		f.takeOut(run, text, c.d.neighbours.judge())
	}
	if run.keeps {
		f.text = bytes.Clone(text)
	}
	return f
}

// jump is the one at insn that the child has.
func (c *copies) jump(insn *pastInsn, run *pageRun, text []byte) (e patch.Entry, ok bool) {
	if insn.jump == nil {
		return e, false
	}
	r := insn.jump.standing(c.bytes(insn.at, len(insn.jump.original), run, text))
	return patch.Entry{At: insn.at, Original: insn.jump.original, Replacement: r}, r != nil
}

// breakpoint is the one at insn that the child has.
func (c *copies) breakpoint(insn *pastInsn, run *pageRun, text []byte) (e patch.Entry, ok bool) {
	trap := host.Arch.Breakpoint()
	n, now := len(trap), c.bytes(insn.at, len(insn.original), run, text)
	if now == nil || !bytes.Equal(now[:n], trap) || !bytes.Equal(now[n:], insn.original[n:]) {
		return e, false
	}
	return patch.Entry{At: insn.at, Original: insn.original[:n], Replacement: trap}, true
}

// bytes is the n bytes at at, in text, which is run's, or partly behind that. It is nil if they can't be read.
func (c *copies) bytes(at arch.Addr, n int, run *pageRun, text []byte) []byte {
	if off := int(at - run.Start); off+n <= len(text) {
		return text[off : off+n]
	}
	p := make([]byte, n)
	if err := c.space.Text().ReadMemory(at, p); err != nil {
		c.note(err)
		return nil
	}
	return p
}

// newborn is patch.Frozen for a forked child: it stands in its fork, and has run nothing yet.
type newborn struct{ *ptrace.Process }

func (n newborn) Holds() bool {
	threads := n.Threads()
	return len(threads) == 1 && threads[0].Stopped()
}

const codePage = 4096
