package kprobes

import (
	"bytes"
	"context"
	"fmt"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/internal/recovery"
	"github.com/gokprobe/gokprobe/patch"
	"github.com/gokprobe/gokprobe/ptrace"
)

// Upcalls is how many hits s has handled without a stop.
func (s *Session) Upcalls() uint64 { return s.answering.answers.Load() }

// RetiredSlots is how many slots wait to be recycled, since a thread may be inside.
func (s *Session) RetiredSlots() (n int) {
	_ = s.do(func() error {
		for d := range s.settled() {
			n += d.slots.retired()
		}
		return nil
	})
	return n
}

// InUpcall tells whether the thread of r spins while the handler runs.
func InUpcall(r *Regs) bool {
	ts := r.top()
	return ts != nil && ts.box != nil
}

// PollAlways has the tracer look for upcalls after each hit, whether that pays or not.
func (s *Session) PollAlways() { _ = s.do(func() error { s.tracer.PollAlways(); return nil }) }

// FollowedInTarget is how many calls of rp that the target follows are in flight, and have returned.
func FollowedInTarget(rp *Kretprobe) (active, returns uint64) {
	entries, returns := rp.KP.followedInTarget()
	return entries - returns, returns
}

// Handled is how many hits the tracer has dealt with.
func (s *Session) Handled() (n uint64) {
	_ = s.tracer.Do(func() { n = s.hits.count })
	return n
}

// BreakResume has the instruction of kp executed by its copy, and what follows that fail.
func (s *Session) BreakResume(kp *Kprobe, with error) {
	_ = s.do(func() error {
		plan := &kp.placements[0].site.plan
		plan.Emulate = func(arch.Regs, arch.Memory) error { return &arch.FaultError{Cause: with} }
		plan.Resume = func(arch.Regs, arch.Memory, arch.Addr) error { return with }
		return nil
	})
}

// AtEvents has f called at each event of the attaches that follow at which one may be given up. made is given their tracers.
func AtEvents(f func(), made func(*ptrace.Tracer)) (end func()) {
	newTracer = func() (*ptrace.Tracer, error) {
		t, err := ptrace.New()
		if err == nil {
			t.OnEvent(f)
			made(t)
		}
		return t, err
	}
	return func() { newTracer = ptrace.New }
}

// MaskSites tells of the code in front of calls of rt_sigprocmask and rt_sigaction that has a tail: what it is, by its address.
func MaskSites(s *Session) map[arch.Addr]string {
	sites := map[arch.Addr]string{}
	_ = s.do(func() error {
		for d := range s.domains {
			for at, st := range d.sites {
				if st.mask != nil {
					sites[at] = fmt.Sprintf("%+v", *st.mask)
				}
			}
		}
		return nil
	})
	return sites
}

// ForgetSearches has what code was found to hold searched for again. It tells how many pieces that were.
func ForgetSearches() int {
	searchedCode.Lock()
	defer searchedCode.Unlock()
	n := len(searchedCode.found)
	clear(searchedCode.found)
	return n
}

// RecoverCounted is Recover, and tells in units of work what of the process's own was looked at.
func RecoverCounted(pid int) (r *Recovered, work int, err error) {
	p := recovery.NewPurse()
	done, err := recovery.Recover(context.Background(), pid, recovery.Options{Purse: p})
	return (*Recovered)(done), p.Spent(), err
}

// MostHeirs is how many a guardian recovers.
const MostHeirs = recovery.MostHeirs

// WithoutJump is what code gets back, where one of some jumps stood in the place of original, when a forked child's copy is cleaned.
func WithoutJump(original, now []byte, jumps ...[]byte) ([]byte, error) {
	past := &pastJump{original: original, replacements: jumps}
	mem := codeBytes(bytes.Clone(now))
	r := past.standing(now)
	if r == nil {
		return mem, nil
	}
	err := patch.Restore(still{}, mem, patch.Judge{Trap: host.Arch.Breakpoint()}, []patch.Entry{{Original: original, Replacement: r}})
	return mem, err
}

// still is patch.Frozen where nobody ever runs.
type still struct{}

func (still) Holds() bool { return true }

// codeBytes is memory that begins at 0.
type codeBytes []byte

func (c codeBytes) ReadMemory(at arch.Addr, p []byte) error  { copy(p, c[at:]); return nil }
func (c codeBytes) WriteMemory(at arch.Addr, p []byte) error { copy(c[at:], p); return nil }

// Remembered is how often an analysis of a function was asked for, and how often it was known.
func Remembered() (asked, known uint64) { return remembered.Used() }

// MappedFiles is how many files the main process's domain has open, to compare its code with.
func (s *Session) MappedFiles() (n int) {
	_ = s.do(func() error { n = len(s.mainDomain().neighbours.files); return nil })
	return n
}
