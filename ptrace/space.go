package ptrace

import (
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/gokprobe/gokprobe/arch"
)

// Space is one address space: the threads that run the same bytes. It is the patch
// domain. Threads of several processes share it after vfork or clone(CLONE_VM).
type Space struct {
	tracer *Tracer
	procs  []*Process // the oldest first
	depth  int        // of nested Freeze calls
	// waiting: FreezeAwake has left threads in their system calls
	waiting bool
	mem     memory
	entry   *entry
	blind   bool // nothing of it can be read
	silent  struct {
		at  time.Time // of MayNotAnswer's answer
		may bool
	}

	syscallInsn   arch.Addr
	held          bool              // threads that were stopped by StopIdle stand until LetIdle gives them back
	letting       bool              // LetIdle has begun
	programsInsn  arch.Addr         // one that is not ours, and is there whatever we unmap; 0: not looked for yet
	saveAt        arch.Addr         // see Protect
	noteUnblocked func(Sigset) bool // see Unblock
	refuge        refuge

	syscalls map[uint64]bool // that the Handler is told of; nil if it is of none

	kept []keeping
	way  []onWay // see RunTo

	writes uint64 // calls of Text's WriteMemory, and one
}

func newSpace(t *Tracer) *Space {
	return &Space{tracer: t, entry: &entry{}, writes: 1}
}

func (s *Space) adopt(p *Process) {
	p.Space = s
	if !slices.Contains(s.procs, p) {
		s.procs = append(s.procs, p)
	}
}

func (s *Space) leave(p *Process) {
	s.procs = slices.DeleteFunc(s.procs, func(q *Process) bool { return q == p })
	if len(s.procs) == 0 {
		s.entry.mu.Lock()
		s.entry.close()
		s.entry.mu.Unlock()
	}
}

// Processes is the processes that share the address space.
func (s *Space) Processes() []*Process { return slices.Clone(s.procs) }

// Threads is the threads of all processes that share the address space.
func (s *Space) Threads() []*Thread {
	var list []*Thread
	for _, p := range s.procs {
		for _, th := range p.threads {
			list = append(list, th)
		}
	}
	return list
}

// all is Threads for who only looks: nobody may come or go meanwhile. It makes no list, which of thousands takes longer than to find one.
func (s *Space) all() iter.Seq[*Thread] {
	return func(yield func(*Thread) bool) {
		for _, p := range s.procs {
			for _, th := range p.threads {
				if !yield(th) {
					return
				}
			}
		}
	}
}

// Ending tells whether no thread will run user code in the address space any more, as far as is
// known: some may be on their way to exec or to their end.
func (s *Space) Ending() bool {
	for th := range s.all() {
		switch {
		case th.state == exiting, th.Proc.leaving:
		case th.state == stopped && (th.at.stop.Reason == Exiting || th.at.stop.Ended() || th.at.stop.Reason == Exec):
		default:
			return false
		}
	}
	return true
}

// TID is a thread that still has the address space: /proc files and
// process_vm_readv need one, and the leader may have exited before the others. A vfork
// child would not do while there is its parent: it runs exec at any moment, and its TID then
// leads to other memory.
func (s *Space) TID() (int, error) {
	for _, p := range s.procs {
		if l := p.Leader(); l != nil && l.state != exiting {
			return l.TID, nil
		}
		for _, th := range p.threads {
			if th.state != exiting {
				return th.TID, nil
			}
		}
	}
	return 0, fmt.Errorf("address space: %w", ErrExited)
}
