package kprobes

import (
	"bytes"
	"slices"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/patch"
	"github.com/gokprobe/gokprobe/ptrace"
	"github.com/gokprobe/gokprobe/trampoline"
)

// tailsLast puts jumps to code that keeps threads from blocking the guard's signal behind the others: see domain.unblocks.
func (l *leftover) tailsLast(entries []patch.Entry) {
	var tails []patch.Entry
	rest := slices.DeleteFunc(slices.Clone(entries), func(e patch.Entry) bool {
		tail := l.beforeCall(e) && l.stands(e)
		if tail {
			tails = append(tails, e)
		}
		return tail
	})
	copy(entries, append(rest, tails...))
}

// beforeCall tells of a jump that it stands in front of a system call, with some instructions in between at most.
func (l *leftover) beforeCall(e patch.Entry) bool {
	const insns, longest = 4, 15
	code := make([]byte, insns*longest)
	if len(e.Original) <= len(ptrace.Host.Breakpoint()) || l.mem.ReadMemory(e.At, code) != nil {
		return false
	}
	copy(code, e.Original)
	for at := e.At; len(code) > longest; {
		insn, err := ptrace.Host.Decode(code, at)
		if err != nil {
			return false
		}
		if bytes.Equal(insn.Bytes, ptrace.Host.SyscallInsn()) {
			return true
		}
		at, code = insn.End(), code[insn.Len():]
	}
	return false
}

// stands tells whether no other record is about the same bytes: else what was put there last has to be taken away first.
func (l *leftover) stands(e patch.Entry) bool {
	end, n := e.At.Add(int64(len(e.Original))), 0
	for _, r := range l.original.records {
		if r.At < end && e.At < r.At.Add(int64(len(r.Original))) {
			n++
		}
	}
	return n == 1
}

// unmap has all processes that run in the memory give up the guard, and takes the region away. A thread inside vfork(2) can't tell
// where it stands either: then all stays for the next time.
func (r *recovery) unmap(l *leftover) error {
	if l.guard.Code.Len() > 0 {
		r.space.Unblocked()
	}
	r.space.Part()
	g := guard{state: l.guard}
	done, err := unguard(r.space, &g)
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

// mapped is what is there of l's memory. What l's header tells may not be: a forked child shares the header with its parent, and what
// the parent has had mapped since it was forked is other memory in the child.
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
	for _, m := range maps {
		if m.Range.Contains(l.Arenas[0].Data.Start) {
			file = m
		}
	}
	for _, e := range l.Arenas {
		for _, m := range maps {
			part := arch.Range{Start: max(m.Range.Start, e.Range().Start), End: min(m.Range.End, e.Range().End)}
			if part.Start < part.End && m.Path == file.Path && m.Inode == file.Inode {
				ranges = append(ranges, part)
			}
		}
	}
	return ranges
}

// patchedMemory shows memory as it was before it was patched.
type patchedMemory struct {
	mem     arch.Memory
	records []trampoline.Record // the newest first
}

func (m patchedMemory) ReadMemory(at arch.Addr, p []byte) error {
	if err := m.mem.ReadMemory(at, p); err != nil {
		return err
	}
	for _, rec := range m.records {
		for i, b := range rec.Original {
			if k := rec.At + arch.Addr(i) - at; k < arch.Addr(len(p)) {
				p[k] = b
			}
		}
	}
	return nil
}

// insn decodes the original instruction at at.
func (m patchedMemory) insn(at arch.Addr) (arch.Insn, error) {
	b := make([]byte, ptrace.Host.MaxInsnLen())
	for len(b) > 0 {
		if err := m.ReadMemory(at, b); err == nil {
			break
		}
		b = b[:len(b)-1] // the mapping ends before
	}
	return ptrace.Host.Decode(b, at)
}
