package ptrace

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/procfs"
)

// A tracer without CAP_SYS_PTRACE has rights over a process only while that is dumpable
// (__ptrace_may_access in kernel/ptrace.c). A process can end that at any moment: by
// prctl(PR_SET_DUMPABLE), by a change of its user or group. Registers, stops and
// signals go on as before; process_vm_readv(2), PTRACE_PEEKTEXT and every open(2) in
// its directory of /proc are refused from then on. Of a file that is open already the
// kernel asks no more. So everything is opened when the process is seized, while it is
// dumpable, or else the attach is refused; and once more for a new program, before its
// first instruction.
//
// A forked child is born with its parent's dumpability. Where that keeps us out it makes itself dumpable, for us, for as long
// as it takes to open its files: two system calls on its behalf, before its first instruction. Another process of its user may
// open them just then.

// entry holds the open files of an address space. Its methods are safe for concurrent
// use.
type entry struct {
	mu    sync.Mutex
	files files    // written by the tracer's thread only, which may read it without mu
	root  *os.File // the root directory, by O_PATH
	auxv  map[uint64]uint64
}

// enter opens the files of the memory that thread tid has. The error matches
// os.ErrPermission if the process is not dumpable, or was not for a part of it; then
// nothing is kept. Without a part that can't be had for another reason we do as well as
// can be.
func (s *Space) enter(tid int) error {
	dir := fmt.Sprintf("/proc/%d/", tid)
	e := s.entry
	e.mu.Lock()
	defer e.mu.Unlock()
	e.close()
	var errs [3]error
	e.files, errs[0] = openFiles(tid, os.O_RDWR)
	if root, err := unix.Open(dir+"root", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err == nil {
		e.root = os.NewFile(uintptr(root), dir+"root")
	} else {
		errs[1] = err
	}
	e.auxv, errs[2] = procfs.Auxv(tid)
	for _, err := range errs {
		if errors.Is(err, os.ErrPermission) {
			e.close()
			return err
		}
	}
	return nil
}

func dup(f *os.File) (int, error) { return unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0) }

func (e *entry) close() {
	e.files.close()
	if e.root != nil {
		_ = e.root.Close()
	}
	e.root, e.auxv = nil, nil
}

// Maps is /proc/PID/maps of the address space.
func (s *Space) Maps() ([]procfs.Mapping, error) {
	if maps, err := s.entry.readMaps(); err == nil && len(maps) > 0 {
		return maps, nil
	}
	tid, err := s.TID() // the thread that it was opened by has gone
	if err != nil {
		return nil, err
	}
	return procfs.Maps(tid)
}

func (e *entry) readMaps() ([]procfs.Mapping, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return parseMaps(e.files.maps)
}

// mapAt is the mapping at at, nil if there is none. Of a program with very many mappings it is had much sooner than all are.
func (s *Space) mapAt(at arch.Addr) (*procfs.Mapping, error) {
	if m, found, err := s.entry.readMapAt(at); err == nil {
		if !found {
			return nil, nil
		}
		return &m, nil
	}
	maps, err := s.Maps()
	if i := slices.IndexFunc(maps, func(m procfs.Mapping) bool { return m.Range.Contains(at) }); i >= 0 {
		return &maps[i], nil
	}
	return nil, err
}

// stack is the mapping of the initial stack, nil if it has none any more. The name of the executed file lies at its end (AT_EXECFN).
func (s *Space) stack() (*procfs.Mapping, error) {
	const atExecFn = 31
	auxv, err := s.Auxv()
	if err == nil {
		if m, err := s.mapAt(arch.Addr(auxv[atExecFn])); err == nil && m != nil && m.Path == "[stack]" {
			return m, nil
		}
	}
	maps, err := s.Maps() // the program may have said something else of it, or have moved it
	if i := slices.IndexFunc(maps, func(m procfs.Mapping) bool { return m.Path == "[stack]" }); i >= 0 {
		return &maps[i], nil
	}
	return nil, err
}

func (e *entry) readMapAt(at arch.Addr) (m procfs.Mapping, found bool, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.files.maps == nil {
		return m, false, unix.EBADF
	}
	return procfs.MapAt(e.files.maps, at)
}

// readMemory reads what the program itself could. id is one of its threads.
func (e *entry) readMemory(id int, at arch.Addr, p []byte) error {
	parse := func() ([]procfs.Mapping, error) { return parseMaps(e.files.maps) }
	e.mu.Lock()
	g, err := e.files.look(at, len(p), false, &region{}, parse)
	mem := e.files.mem
	e.mu.Unlock()
	switch {
	case err != nil:
		return err
	case !g.allowed:
		return unix.EFAULT
	}
	return readPatiently(id, mem, at, p, g)
}

// Auxv is the auxiliary vector of the program.
func (s *Space) Auxv() (map[uint64]uint64, error) {
	tid, err := s.TID()
	if err != nil {
		return nil, err
	}
	return s.entry.auxvOr(tid)
}

func (e *entry) auxvOr(tid int) (map[uint64]uint64, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.auxv != nil {
		return e.auxv, nil
	}
	return procfs.Auxv(tid)
}

// Peek is PeekMemory for a process that is traced, whose files are open: it reads on when the process is not dumpable any more.
type Peek struct {
	PeekMemory
	entry atomic.Pointer[entry]
}

// Peek gives a reader of the address space, in which thread tid runs, for any goroutine. It must be called on the tracer's thread.
func (s *Space) Peek(tid int) *Peek {
	p := &Peek{PeekMemory: PeekMemory{PID: tid}}
	p.entry.Store(s.entry)
	return p
}

// Follow is called when the process executes a program: s is its memory now.
func (p *Peek) Follow(s *Space) { p.entry.Store(s.entry) }

// ReadMemory fills b from at. A failure is an *arch.FaultError.
func (p *Peek) ReadMemory(at arch.Addr, b []byte) error {
	err := p.entry.Load().readMemory(p.PID, at, b)
	if err == nil || len(b) == 0 {
		return nil
	}
	if errors.Is(err, ErrNoAnswer) {
		return fault(at, false, err)
	}
	return p.PeekMemory.ReadMemory(at, b) // of a program that was executed since
}

// Maps is /proc/PID/maps.
func (p *Peek) Maps() ([]procfs.Mapping, error) {
	if maps, err := p.entry.Load().readMaps(); err == nil && len(maps) > 0 {
		return maps, nil
	}
	return procfs.Maps(p.PID)
}

// Auxv is the auxiliary vector of the program.
func (p *Peek) Auxv() (map[uint64]uint64, error) { return p.entry.Load().auxvOr(p.PID) }

// Root is a descriptor of the root directory that the process had when it was seized, or executed its program, opened with O_PATH;
// it is the caller's.
func (p *Peek) Root() (int, error) {
	e := p.entry.Load()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.root == nil {
		return -1, unix.EBADF
	}
	return dup(e.root)
}

// enterAll is enter for a process that has just been seized.
func (t *Tracer) enterAll(p *Process) error {
	tid, err := p.Space.TID()
	if err != nil {
		return err
	}
	if err := p.Space.enter(tid); errors.Is(err, os.ErrPermission) {
		return &AttachError{PID: p.PID, Cause: CauseNotDumpable, Err: unix.EPERM}
	}
	return nil
}

// enterChild is enter for a new process, th, with a copy of the memory of parent.
func (t *Tracer) enterChild(th *Thread, parent *Space) {
	s := th.Proc.Space
	defer s.inherit(parent)
	if s == parent || !errors.Is(s.enter(th.TID), os.ErrPermission) {
		return
	}
	insn, err := parent.findSyscallInsn() // it has the same
	if err != nil {
		return
	}
	_ = th.whileDumpable(insn, func() error { return s.enter(th.TID) })
}

// whileDumpable runs f while the stopped thread's memory, which we can't read, is dumpable. insn is a system-call instruction. A value that can't be
// set again (2, fs.suid_dumpable) becomes 0, which lets nobody in either.
func (th *Thread) whileDumpable(insn arch.Addr, f func() error) error {
	s := th.Proc.Space
	s.blind, s.syscallInsn = true, insn
	defer func() { s.blind, s.syscallInsn = false, 0 }()
	return th.remote(func(r *Remote) error {
		was, err := r.Syscall(unix.SYS_PRCTL, unix.PR_GET_DUMPABLE)
		if err != nil {
			return err
		}
		if _, err := r.Syscall(unix.SYS_PRCTL, unix.PR_SET_DUMPABLE, 1); err != nil {
			return err
		}
		failed := f()
		_, err = r.Syscall(unix.SYS_PRCTL, unix.PR_SET_DUMPABLE, was&1)
		return errors.Join(failed, err)
	})
}
