package ptrace

// alone is what was found out about a process by its only thread, where that stands, and that nobody changes meanwhile but we. No other thread could: it is the only one of
// the process, and none shares its memory. (One that it has made would have been told of before its stop. What shares the actions of signals shares
// the memory, see clone(2).) It itself can't until it is resumed to go on by itself, which is counted: system calls that it makes for us install no filter, and what they set of
// actions is forgotten (Remote.Syscall) unless it is known (Guard).
type alone struct {
	th  *Thread
	ran uint64

	filtersKnown, filters bool   // it has seccomp filters
	actions               Sigset // faultActions has what stands
}

// alone is empty if nothing is known, and of no use to anybody else if the thread is not alone.
func (th *Thread) alone() *alone {
	p := th.Proc
	if th.state != stopped || len(p.threads) != 1 || len(p.Space.procs) != 1 {
		return new(alone)
	}
	if p.alone.th != th || p.alone.ran != th.ran {
		p.alone = alone{th: th, ran: th.ran}
	}
	return &p.alone
}

// aloneOf is its only thread's.
func (p *Process) aloneOf() *alone {
	for _, th := range p.threads {
		return th.alone()
	}
	return new(alone)
}
