package kprobes

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/gokprobe/gokprobe/program"
	"github.com/gokprobe/gokprobe/ptrace"
)

// Which calls have their Enter, by SyscallProbe.Choose. At a place whose calls have a known number, or where a register
// holds it that the moves in front of the instruction take it from, the condition is the Program of the Kprobe there: calls that
// pass do not stop if that is optimized. Elsewhere the tracer has every call, and evaluates the condition of place 0: at all places by
// ptrace, in programs that are executed, where Exit needs all calls to stop, where the number comes from anywhere.
//
// Cell 0 of a Program's state is how many calls it has looked at, so that is how often they were hit.

// errUncounted refuses a Choose of which calls can't be counted.
var errUncounted = errors.New("SyscallProbe.Choose must look at the call's number")

// fewNumbers is how many numbers a Program compares a call's with.
const fewNumbers = 8

// choice is the Program of place n of sp; numbered, unless always met, tells the calls of other numbers at that place.
func (sp *SyscallProbe) choice(n int, regs []string, numbered program.Cond) (*program.Program, error) {
	p, err := program.Decision(fmt.Sprintf("%s, place %d", sp.name(), n), regs, program.All(numbered, sp.Choose(n, program.Sequence(0))))
	if err == nil && p.State() < 0 {
		err = errUncounted
	}
	return p, err
}

// prepareChoice makes the Program of place 0.
func (sp *SyscallProbe) prepareChoice() (err error) {
	sp.choosing.Store(nil)
	if sp.places = 0; sp.Choose == nil {
		return nil
	}
	if sp.own.Program, err = sp.choice(0, nil, program.Cond{}); err != nil {
		return err
	}
	return sp.own.checkProgram()
}

// chooseAt gives kp, the probe of sp at site, the Program that tells which of its hits are calls that Enter is to see, if
// there can be one.
func (sp *SyscallProbe) chooseAt(kp *Kprobe, site *callSite) error {
	if sp.Choose == nil || sp.Exit != nil {
		return nil
	}
	var regs []string
	var numbered program.Cond
	if site.number < 0 {
		reg, size, ok := site.numberFrom()
		if !ok || len(sp.Numbers) > fewNumbers {
			return nil
		}
		regs = []string{reg}
		var each []program.Cond
		for _, nr := range sp.Numbers {
			each = append(each, program.Compare(program.Reg(reg).As(size), program.Equal, program.Const(int64(nr))))
		}
		numbered = program.Any(each...)
	}
	var err error
	sp.places++
	kp.Program, err = sp.choice(sp.places, regs, numbered)
	return err
}

// numberFrom is the register that holds the number of the call at site's place, and as which part of it.
func (site *callSite) numberFrom() (reg string, size program.Type, ok bool) {
	const mark = 0x5a17_c0de_3b29_8f61
	names := ptrace.Host.NewRegs().Names()
	for _, name := range names {
		regs := ptrace.Host.NewRegs()
		if !regs.Set(name, mark) {
			continue
		}
		for _, load := range site.loads {
			if ptrace.Host.Load(load, regs, vague(0)) != nil {
				return "", size, false
			}
		}
		switch regs.ReturnValue() {
		case mark:
			return name, program.U64, true
		case mark & math.MaxUint32:
			return name, program.U32, true
		}
	}
	return "", size, false
}

// counts has the hits of sp be also those that the Programs of kps have looked at.
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

// looked is how many calls Programs of places have looked at, and how many of those ran no handler.
func (sp *SyscallProbe) looked() (calls, missed uint64) {
	if all := sp.choosing.Load(); all != nil {
		for _, kp := range *all {
			calls += kp.State(0)
			missed += kp.NMissed()
		}
	}
	return calls, missed
}

// chooses tells whether the call that a thread stands in front of is to have the Enter of sp, which no Program has decided.
func (s *Session) chooses(ts *threadState, sp *SyscallProbe) bool {
	if sp.own.checked == nil {
		return true
	}
	ts.regs.domain.keepState(&sp.own)
	return s.interpret(ts, &sp.own, &ts.regs)
}

// keepState makes sure of memory for the state of a kp that stands nowhere: the tracer's own.
func (d *domain) keepState(kp *Kprobe) {
	if d.states[kp] == nil {
		d.hasState(kp, mapMemory{words: make([]uint64, kp.checked.Maps[kp.checked.State()].Len()/8)}, nil)
	}
}
