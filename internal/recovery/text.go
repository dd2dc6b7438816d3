package recovery

import (
	"bytes"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/patch"
	"github.com/gokprobe/gokprobe/ptrace"
)

// tailsLast returns the records, the newest first. Jumps to code that keeps threads
// from blocking the guard's signal come last, since we may be killed in between.
func (l *leftover) tailsLast() []patch.Entry {
	var tails []patch.Entry
	code := patch.NewPages(l.mem)
	rest := make([]patch.Entry, 0, len(l.original.records.records))
	for _, e := range l.original.records.records {
		if l.original.records.alone(e) && beforeCall(code, e) {
			tails = append(tails, e)
		} else {
			rest = append(rest, e)
		}
	}
	return append(rest, tails...)
}

// beforeCall tells of a jump that it stands in front of a system call, with some instructions in between at most.
func beforeCall(mem *patch.Pages, e patch.Entry) bool {
	const insns, longest = 4, 15
	code := make([]byte, insns*longest)
	if len(e.Original) <= len(host.Arch.Breakpoint()) || !mem.Read(e.At, code) {
		return false
	}
	copy(code, e.Original)
	for at := e.At; len(code) > longest; {
		insn, err := host.Arch.Decode(code, at)
		if err != nil {
			return false
		}
		if bytes.Equal(insn.Bytes, host.Arch.SyscallInsn()) {
			return true
		}
		at, code = insn.End(), code[insn.Len():]
	}
	return false
}

// unblocked are the sets of signals that threads believe to block.
func (l *leftover) unblocked() (sets []ptrace.Sigset) {
	noted, err := l.Unblocked(l.mem)
	if err != nil {
		return nil
	}
	for _, set := range noted {
		if _, ok := ptrace.Sigset(set).Unforced(); ok { // it may be forged
			sets = append(sets, ptrace.Sigset(set))
		}
	}
	return sets
}

// unmap makes all processes that run in the memory give up the guard, and unmaps the
// region. A thread inside vfork(2) can't tell where it stands either: then all stays
// for the next time.
func (r *recovery) unmap(frozen *ptrace.Frozen, l *leftover) error {
	if l.guard.Code.Len() > 0 {
		r.space.Unblocked(frozen, l.unblocked()...)
	}
	r.space.Part(frozen)
	done, err := Unguard(r.space, &l.guard)
	for _, p := range r.space.Processes() {
		if p.InsideVfork() {
			r.Kept++
			return nil
		}
	}
	if err == nil && !done {
		err = ptrace.ErrNoThread
	}
	if err != nil {
		return err
	}
	return r.space.Unmap(r.mapped(l)...)
}

// mapped returns the parts of l's memory that are still mapped. What l's header tells
// may not be: a forked child shares the header with its parent, and what the parent has
// had mapped since it was forked is other memory in the child.
func (r *recovery) mapped(l *leftover) (ranges []arch.Range) {
	tid, err := r.space.TID()
	if err != nil {
		return nil
	}
	maps, err := procfs.Maps(tid)
	if err != nil || len(l.Arenas) == 0 {
		return nil
	}
	var file procfs.Mapping
	if i := endsBehind(maps, l.Arenas[0].Data.Start, rangeOf); i < len(maps) && maps[i].Range.Contains(l.Arenas[0].Data.Start) {
		file = maps[i]
	}
	var arenas []arch.Range
	for _, e := range l.Arenas {
		arenas = append(arenas, e.Range())
	}
	for _, a := range joined(arenas) {
		i := endsBehind(maps, a.Start, rangeOf)
		for ; i < len(maps) && maps[i].Range.Start < a.End; i++ {
			m := maps[i]
			if m.Path == file.Path && m.Inode == file.Inode {
				ranges = append(ranges, arch.Range{Start: max(m.Range.Start, a.Start), End: min(m.Range.End, a.End)})
			}
		}
	}
	return joined(ranges)
}

// judge tells the program's code from ours, as far as one can who knows no symbols.
func (l *leftover) judge(maps []procfs.Mapping) patch.Judge {
	leads := func(to arch.Addr) bool {
		i := endsBehind(maps, to, rangeOf)
		return i < len(maps) && maps[i].Range.Contains(to) && maps[i].Exec && !l.contains(to)
	}
	return patch.Judge{Trap: host.Arch.Breakpoint(), Decode: host.Arch.Decode, Leads: leads}
}
