package ptrace

import (
	"bytes"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/internal/procfs"
)

// findSyscallInsn finds a system-call instruction that the process already maps:
// the vdso has one, else any executable mapping will do.
func (s *Space) findSyscallInsn() (arch.Addr, error) {
	if s.blind {
		return s.syscallInsn, nil
	}
	if s.syscallInsn != 0 && s.has(s.syscallInsn, host.Arch.SyscallInsn()) {
		return s.syscallInsn, nil
	}
	if s.programsInsn != 0 && s.has(s.programsInsn, host.Arch.SyscallInsn()) { // with thousands of threads, and so of stacks, to read the mappings takes long
		s.syscallInsn = s.programsInsn
		return s.syscallInsn, nil
	}
	if at, ok := s.findCode(host.Arch.SyscallInsn(), inVDSO, inFile); ok {
		s.syscallInsn, s.programsInsn = at, at
		return at, nil
	}
	if at, ok := s.findCode(host.Arch.SyscallInsn(), anywhere); ok {
		s.syscallInsn = at
		return at, nil
	}
	return 0, ErrNoSyscallInsn
}

// Where code is looked for. Code outside of the vdso and of files that are mapped
// privately may be ours. It may be unmapped by the very system call that it is to make.
var (
	inVDSO   = func(m procfs.Mapping) bool { return m.Path == "[vdso]" }
	inFile   = func(m procfs.Mapping) bool { return !m.Anonymous() && !m.Shared }
	anywhere = func(m procfs.Mapping) bool { return m.Path != "[vsyscall]" }
)

// findCode finds bytes in executable memory, at first where the first of the wheres says.
func (s *Space) findCode(pattern []byte, wheres ...func(procfs.Mapping) bool) (arch.Addr, bool) {
	maps, err := s.Maps()
	if err != nil {
		return 0, false
	}
	if at, ok := s.findAgain(maps, pattern, wheres); ok {
		return at, true
	}
	scanned, left := map[arch.Addr]bool{}, arch.Addr(mostScanned)
	for i, here := range wheres {
		for _, m := range maps {
			if !m.Exec || !m.Read || !here(m) || scanned[m.Range.Start] {
				continue
			}
			scanned[m.Range.Start] = true
			m.Range.End = min(m.Range.End, m.Range.Start+min(mostOfMapping, left))
			left -= arch.Addr(m.Range.Len())
			if at, ok := s.scan(m.Range, pattern); ok {
				s.tracer.noteFound(pattern, i, m, at)
				return at, true
			}
		}
	}
	return 0, false
}

// found is where the last search for a pattern found it: in which file, and how far down in the list of places to look. Most processes map the same files, and
// each program that is executed is searched.
type found struct {
	dev           string
	inode, offset uint64
	rank          int
}

func (t *Tracer) noteFound(pattern []byte, rank int, m procfs.Mapping, at arch.Addr) {
	if !inVDSO(m) && !inFile(m) { // it may be ours
		return
	}
	const most = 16
	if t.found == nil || len(t.found) >= most {
		t.found = map[string]found{}
	}
	t.found[string(pattern)] = found{m.Dev, m.Inode, m.Offset + uint64(at-m.Range.Start), rank}
}

// findAgain looks where the last search for pattern found it.
func (s *Space) findAgain(maps []procfs.Mapping, pattern []byte, wheres []func(procfs.Mapping) bool) (arch.Addr, bool) {
	f, ok := s.tracer.found[string(pattern)]
	if !ok || f.rank >= len(wheres) {
		return 0, false
	}
	for _, m := range maps {
		if m.Exec && m.Read && m.Dev == f.dev && m.Inode == f.inode && f.offset-m.Offset < m.Range.Len() && wheres[f.rank](m) {
			if at := m.Range.Start.Add(int64(f.offset - m.Offset)); s.has(at, pattern) {
				return at, true
			}
		}
	}
	return 0, false
}

// How much code is scanned for a pattern, in bytes: what a program maps has no end. Libraries have the patterns that are looked for at their beginnings.
const (
	mostOfMapping = 16 << 20
	mostScanned   = 64 << 20
)

// scan looks for pattern in r, a piece at a time.
func (s *Space) scan(r arch.Range, pattern []byte) (arch.Addr, bool) {
	const piece = 64 << 10
	buf := make([]byte, piece)
	for at := r.Start; at < r.End; at += piece - 16 {
		b := buf[:min(piece, int(r.End-at))]
		if s.ReadMemory(at, b) != nil {
			return 0, false
		}
		if i := bytes.Index(b, pattern); i >= 0 {
			return at + arch.Addr(i), true
		}
	}
	return 0, false
}
