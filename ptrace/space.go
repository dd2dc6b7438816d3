package ptrace

import (
	"fmt"

	"github.com/gokprobe/gokprobe/arch"
)

// Space is one address space: the threads that run the same bytes. It is the patch
// domain. Threads of several processes share it after vfork or clone(CLONE_VM).
type Space struct {
	tracer *Tracer
	procs  map[*Process]bool
	depth  int // of nested Freeze calls
	mem    memory

	syscallInsn arch.Addr

	// Local is for the Handler's own state of the address space.
	Local any
}

func newSpace(t *Tracer) *Space {
	return &Space{tracer: t, procs: map[*Process]bool{}, mem: memory{fd: -1}}
}

func (s *Space) adopt(p *Process) {
	p.Space = s
	s.procs[p] = true
}

func (s *Space) leave(p *Process) {
	delete(s.procs, p)
	if len(s.procs) == 0 {
		s.mem.close()
	}
}

// Processes is the processes that share the address space.
func (s *Space) Processes() []*Process {
	list := make([]*Process, 0, len(s.procs))
	for p := range s.procs {
		list = append(list, p)
	}
	return list
}

// Threads is the threads of all processes that share the address space.
func (s *Space) Threads() []*Thread {
	var list []*Thread
	for p := range s.procs {
		for _, th := range p.threads {
			list = append(list, th)
		}
	}
	return list
}

// TID is a thread that still has the address space: /proc files and
// process_vm_readv need one, and the leader may have exited before the others.
func (s *Space) TID() (int, error) {
	var found *Thread
	for p := range s.procs {
		if l := p.Leader(); l != nil && l.state != exiting {
			return l.TID, nil
		}
		for _, th := range p.threads {
			if th.state != exiting {
				found = th
			}
		}
	}
	if found == nil {
		return 0, fmt.Errorf("address space: %w", ErrExited)
	}
	return found.TID, nil
}
