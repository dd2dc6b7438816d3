package ptrace

import "github.com/gokprobe/gokprobe/arch"

// MaxSteps is more than any body and copy has instructions to execute.
const MaxSteps = 50_000

// Steps is how often threads may still be stepped to lead them out of code that we have
// added. That is always enough, unless the target has changed the code, or its data:
// then a thread may go round there for ever, and there may be many.
type Steps int

// StepsFor returns enough steps for so many threads, even if one of them is in the
// longest of all bodies.
func StepsFor(threads int) *Steps {
	s := Steps(MaxSteps + 1000*threads)
	return &s
}

// Step has th, which stands at ip, execute an instruction. It tells whether that got it anywhere: it may fault there.
func (s *Steps) Step(space *Space, th *Thread, ip arch.Addr) bool {
	if *s--; *s < 0 || space.Step(th) != nil {
		return false
	}
	regs, err := th.Regs()
	return err == nil && (th.Stop().Reason != Signal || regs.IP() != ip)
}
