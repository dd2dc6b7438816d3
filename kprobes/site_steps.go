package kprobes

import (
	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/ptrace"
)

// maxSteps is more than any body and copy has instructions to execute.
const maxSteps = 50_000

// steps is how often threads may still be stepped to lead them out of code that we have added. That is always enough, unless the
// target has changed the code, or what it reads: then a thread may go round there for ever, and there may be many.
type steps int

// stepsFor is enough for so many threads, of which one may be in the longest of all bodies.
func stepsFor(threads int) *steps {
	s := steps(maxSteps + 1000*threads)
	return &s
}

// step has th, which stands at ip, execute an instruction. It tells whether that got it anywhere: it may fault there.
func (s *steps) step(space *ptrace.Space, th *ptrace.Thread, ip arch.Addr) bool {
	if *s--; *s < 0 || space.Step(th) != nil {
		return false
	}
	regs, err := th.Regs()
	return err == nil && (th.Stop().Reason != ptrace.Signal || regs.IP() != ip)
}

// stepped is the steps that are left for d's threads while it is given up, and many outside of that.
func (d *domain) stepped() *steps {
	if d.steps != nil {
		return d.steps
	}
	return stepsFor(1)
}
