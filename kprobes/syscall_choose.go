package kprobes

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/internal/syscallsites"
	"github.com/gokprobe/gokprobe/program"
)

// Which calls have their Enter, by SyscallProbe.Choose. Where a Kprobe stands at the
// call, its Program tests the condition, so that calls which pass do not stop if the
// site is optimized. Otherwise the tracer tests every call: when calls stop by ptrace,
// in programs that are executed, if Exit needs all calls to stop, and if a register's
// value at the call is not known beforehand. All of them count in one state in an
// address space, so the same calls are chosen, whoever tests them.
//
// A place is in front of moves that load the call's registers. So its Program tests the
// sources of these moves.
//
// A cell of the state behind those of Choose is how many calls there have been.

// choices is the state of a SyscallProbe's Choose.
type choices struct {
	SharedState
	calls int // the cell that counts them
}

// fewNumbers is how many numbers a Program compares a call's with.
const fewNumbers = 8

// choice builds the Program of a place: it counts the calls for which numbered holds
// and stops those that Choose selects; is maps each register to the source of its
// value.
func (sp *SyscallProbe) choice(numbered program.Cond, is func(reg string) program.Expr) (*program.Program, error) {
	counted := program.Compare(program.Sequence(sp.Choose.Cells()), program.BelowEqual, program.Const(-1))
	c := program.All(numbered, counted, sp.Choose.With(is))
	return program.Decision(sp.name(), c.Registers(), c)
}

// prepareChoice makes the Program by which the tracer chooses.
func (sp *SyscallProbe) prepareChoice() (err error) {
	sp.choosing.Store(nil)
	st := &choices{calls: sp.Choose.Cells()}
	sp.own.SharedState = &st.SharedState
	if sp.state.Store(st); sp.Choose.Always() {
		return sp.own.checkProgram()
	}
	names := host.Arch.NewRegs().Names()
	for _, reg := range sp.Choose.Registers() {
		if !slices.Contains(names, reg) {
			return fmt.Errorf("SyscallProbe.Choose: no register %s", reg)
		}
	}
	if sp.own.Program, err = sp.choice(program.Cond{}, program.Reg); err != nil {
		return err
	}
	return sp.own.checkProgram()
}

// chooseAt gives kp, the probe of sp at site, its Program, if there can be one. The
// Program chooses the hits that are calls for Enter.
func (sp *SyscallProbe) chooseAt(kp *Kprobe, site *syscallsites.Site) (err error) {
	if sp.Choose.Always() || sp.Exit != nil {
		return nil
	}
	var numbered program.Cond
	if site.Number < 0 {
		number, ok := origin(site, arch.Regs.ReturnValue)
		if !ok || len(sp.Numbers) > fewNumbers {
			return nil
		}
		var each []program.Cond
		for _, nr := range sp.Numbers {
			each = append(each, program.Compare(number, program.Equal, program.Const(int64(nr))))
		}
		numbered = program.Any(each...)
	}
	from := map[string]program.Expr{}
	for _, reg := range sp.Choose.Registers() {
		var ok bool
		if from[reg], ok = origin(site, func(r arch.Regs) uint64 { v, _ := r.Get(reg); return v }); !ok {
			return nil
		}
	}
	kp.SharedState = sp.own.SharedState
	kp.Program, err = sp.choice(numbered, func(reg string) program.Expr { return from[reg] })
	return err
}

// origin is the value of a register in front of the call at site, in terms of the
// registers at the probe's place: a constant, or a register's value plus a constant, or
// its low half. For that the moves are performed twice, each time with other values in
// all registers and in memory.
func origin(site *syscallsites.Site, value func(arch.Regs) uint64) (is program.Expr, ok bool) {
	before, after := perform(site, 1)
	otherBefore, otherAfter := perform(site, 2)
	if after == nil || otherAfter == nil {
		return is, false
	}
	first, second := value(after), value(otherAfter)
	if first == second {
		return program.Const(int64(first)), true
	}
	for _, name := range before.Names() {
		v, _ := before.Get(name)
		w, _ := otherBefore.Get(name)
		switch {
		case first-v == second-w:
			return program.Reg(name).Plus(int64(first - v)), true
		case first == v&math.MaxUint32 && second == w&math.MaxUint32:
			return program.Reg(name).As(program.U32), true
		}
	}
	return is, false
}

// perform has registers of random values, all of them addresses, go through the moves at site; after is nil if they can't.
func perform(site *syscallsites.Site, seed uint64) (before, after arch.Regs) {
	const addresses = 0xfff_0000_ffff // sums of which are such; and no flag is set that keeps some from being read
	random := rand.New(rand.NewPCG(seed, 0))
	before = host.Arch.NewRegs()
	for _, name := range before.Names() {
		before.Set(name, random.Uint64()&addresses)
	}
	after = before.Clone()
	if !site.Load(host.Arch, after, syscallsites.Vague(seed)) {
		return before, nil
	}
	after.SetIP(site.Insn)
	return before, after
}

// counts makes sp.NMissed include the misses of those of kps that have a Program.
func (sp *SyscallProbe) counts(kps []*Kprobe) {
	var all []*Kprobe
	if old := sp.choosing.Load(); old != nil {
		all = slices.Clone(*old)
	}
	for _, kp := range kps {
		if kp.Program != nil {
			all = append(all, kp)
		}
	}
	sp.choosing.Store(&all)
}

// counted is how many calls Choose has been asked about.
func (sp *SyscallProbe) counted() uint64 {
	if st := sp.state.Load(); st != nil {
		return st.Cell(st.calls)
	}
	return 0
}

// State is what a cell of Choose's state holds, summed over all processes; 0 if there is no such cell. It is reset by registration.
// Safe for concurrent use.
func (sp *SyscallProbe) State(cell int) uint64 {
	if st := sp.state.Load(); st != nil {
		return st.Cell(cell)
	}
	return 0
}

// chooses reports whether a call gets the Enter of sp. A thread stands in front of the
// call, and no Program has decided it.
func (sc *syscallProbes) chooses(ts *threadState, sp *SyscallProbe) bool {
	if sp.own.checked == nil {
		sp.hits.Add(1)
		return true
	}
	ts.regs.domain.recorder.keepState(&sp.own)
	return sc.s.records.interpret(ts, &sp.own, &ts.regs)
}
