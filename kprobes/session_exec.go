package kprobes

import (
	"errors"
	"slices"

	"github.com/gokprobe/gokprobe/internal/escape"
	"github.com/gokprobe/gokprobe/ptrace"
	"github.com/gokprobe/gokprobe/symbols"
)

// Execed implements ptrace.Handler. Everything that was mapped is gone. A vfork child
// leaves its parent's address space here. Under Follow the probes that have a symbol
// are placed in the new program, if it has the symbol.
func (s hooks) Execed(p *ptrace.Process, old *ptrace.Space) ptrace.Fate {
	defer s.heirs.within()()
	s.Left(p, old)
	for _, th := range p.Threads() {
		s.hits.states.Keep(th, nil) // the hit that brought it into exec has no end
	}
	if p != s.main && !s.opts.Follow {
		s.watchers.ended(p)
		return ptrace.LetGo
	}
	if p == s.main {
		s.settled() // all its probes change
	}
	d := s.newDomain(p)
	d.optimizer.lazily()
	s.target.programs++
	d.linker.program = s.target.programs
	if p == s.main {
		s.target.program = d.linker.program
	}
	if d.linker.executed = true; s.opts.Follow {
		s.syscalls.followSyscalls(d)
	}
	if p != s.main {
		d.linker.apart = true
		s.registry.armExecuted(p, d)
		return ptrace.Keep
	}
	watched := s.registry.watched.Swap(false)
	if s.target.peek != nil {
		s.target.peek.Follow(p.Space)
	}
	if s.target.images++; s.table == nil {
		return ptrace.Keep // loadSymbols will see that it is to begin anew
	}
	if err := s.table.Refresh(); err != nil {
		s.warn("reading the symbols of the new program: %v", err)
	}
	s.registry.renewBlacklist(false)
	if s.opts.Follow {
		s.registry.rearm(p, d, watched)
	} else {
		s.registry.endAll()
	}
	return ptrace.Keep
}

// Left implements ptrace.Handler: a process has left an address space by exec.
func (s hooks) Left(p *ptrace.Process, old *ptrace.Space) {
	defer s.heirs.within()()
	if s.heirs.left(old, len(old.Processes())) {
	} else if d := s.spaces.Of(old); d != nil {
		d.recorder.noteExec(p)
		d.followed.endOfProcess(p.PID)
		d.guard.holdOther(old, p)
		if len(old.Processes()) == 0 {
			s.forget(d)
		}
	}
}

// rearm resolves symbol probes again in a new program, when its libraries are there and
// nothing of them has run. watched is what rg.watched was before.
func (rg *registry) rearm(p *ptrace.Process, d *domain, watched bool) {
	rg.watched.Store(watched) // whatever becomes of this program: else those that its children execute would have no probes
	if err := rg.s.target.runToEntry(p); err != nil {
		rg.s.warn("following the new program: %v", err)
		if d.unlessEnding(err) != nil {
			defer d.look.anew()()
			d.linker.watch() // for probes that are registered later
		}
		return
	}
	if err := rg.s.table.Refresh(); err != nil {
		rg.s.warn("reading the symbols of the new program: %v", err)
	}
	rg.renewBlacklist(false)
	defer d.look.anew()()
	d.linker.watch()
	refused := func(kp *Kprobe, err error) {
		kp.Flags |= FlagGone
		kp.absence.lost(err.Error())
		rg.tell(kp, "probe %s is not placed in the new program: %v", err)
	}
	var aims []aim
	for _, kp := range rg.probes {
		if kp.SymbolName == "" || d.placed(kp) != nil {
			continue
		}
		kp.absence.anotherProgram()
		if !kp.byName() {
			refused(kp, errBareAddress)
			continue
		}
		switch at, err := d.linker.find(kp, d.linker.explained(kp)); {
		case rg.comes(kp, err):
			rg.wait(kp, "the new program does not have it", err)
		case err != nil:
			refused(kp, err)
		default:
			aims = append(aims, aim{kp: kp, at: at})
		}
	}
	d.placeAll(aims, refused)
	rg.renewPatterns(d)
}

// armExecuted sees to it that the symbol probes are placed in the program that a followed child executes, those that it has a place for, before anything of
// the program or its libraries runs: when the dynamic linker, of which nothing is mapped yet but itself, tells that it is done for the first time (glibc's and
// musl's do so when all is relocated, and before constructors run). It is not waited for: it may take its time, other threads would stand still
// meanwhile, and it may even wait for one of these. Without probes nobody watches what is loaded; whoever registers one looks then.
func (rg *registry) armExecuted(p *ptrace.Process, d *domain) {
	if !rg.watched.Load() {
		d.linker.unwatched = true
		return
	}
	defer d.look.anew()()
	for _, kp := range rg.probes {
		if kp.SymbolName != "" && !kp.byName() && kp.absence.tellApart() {
			rg.tell(kp, "probe %s is not placed in programs that followed children execute: %v", errBareAddress)
		}
	}
	table := d.linker.symbols()
	if !d.linker.apart { // they can't be read, which was told
		d.linker.unwatched = true
		return
	}
	rg.s.tellOtherProgram(p, table)
	if slices.ContainsFunc(table.Modules(), func(m *symbols.Module) bool { return m.Kind == symbols.KindInterpreter }) {
		if d.linker.watchStanding(); d.linker.linkerSite != nil {
			d.linker.starting = true
			return
		}
		if err := rg.s.target.runToEntry(p); err != nil {
			d.linker.unwatched = true
			if d.unlessEnding(err) != nil {
				rg.s.warn("following the program that process %d executes: %v", p.PID, err)
			}
			return
		}
		d.linker.watched = false
	}
	d.linker.watch()
	d.placeAll(d.linker.aimsOf(rg.probes), notInChild)
	d.linker.expand(d.linker.modules)
}

// tellOtherProgram says of the first program that a followed child executes and that is for another processor, that it is not probed.
func (s *Session) tellOtherProgram(p *ptrace.Process, table *symbols.Table) {
	for _, m := range table.Modules() {
		if errors.Is(m.Err, symbols.ErrNotELF) && s.target.other.CompareAndSwap(false, true) {
			s.warn("process %d executes %s, which is for another kind of processor and not probed; of others like it there is no word", p.PID, escape.Line(m.Path))
		}
	}
}

// errBareAddress is why an address that names no module is not probed in other programs.
var errBareAddress = errors.New("an address that names no module means nothing in another program")

// executesAnother is why probes have ended.
const executesAnother = "the process executes another program now"

// endAll ends all probes after an exec, waiting ones included.
func (rg *registry) endAll() {
	rg.endPatterns()
	for _, kp := range rg.probes {
		if len(kp.placements) == 0 {
			kp.Flags |= FlagGone
			kp.absence.endedBy(executesAnother)
		}
	}
}
