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

// Which calls have their Enter, by SyscallProbe.Choose. It is looked at wherever the call is: at a place in the code by the Program
// of the Kprobe there, so that calls which pass do not stop if that is optimized; else by the tracer, which has every call: by
// ptrace, in programs that are executed, where Exit needs all calls to stop, where a register's value at the call comes
// from anywhere. All of them count in one state in an address space, so the same calls are chosen whoever looks.
//
// A place is in front of moves that make the registers those of the call, so its Program looks at what they make them of.
//
// A cell of the state behind those of Choose is how many calls there have been.

// choices is the state of a SyscallProbe's Choose.
type choices struct {
	SharedState
	calls int // the cell that counts them
}

// fewNumbers is how many numbers a Program compares a call's with.
const fewNumbers = 8

// choice is the Program that counts the calls that meet numbered, and has those stop that Choose chooses, whose registers are what is
// says.
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

// chooseAt gives kp, the probe of sp at site, the Program that tells which of its hits are calls that Enter is to see, if
// there can be one.
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

// origin is what a register holds in front of the call at site, told by what registers hold at its place: a constant, or a register's
// value plus a constant, or its low half. For that the moves are performed twice, each time with other values in all registers and in memory.
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

// counts has what is missed by those of kps that have Programs be missed by sp.
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

// chooses tells whether the call that a thread stands in front of, which no Program has decided, is to have the Enter of sp.
func (sc *syscallProbes) chooses(ts *threadState, sp *SyscallProbe) bool {
	if sp.own.checked == nil {
		sp.hits.Add(1)
		return true
	}
	ts.regs.domain.recorder.keepState(&sp.own)
	return sc.s.records.interpret(ts, &sp.own, &ts.regs)
}
