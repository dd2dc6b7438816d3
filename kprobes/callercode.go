package kprobes

import (
	"iter"
	"math"
	"slices"
	"sort"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/host"
)

// callerCode is the instructions of a function that makes system calls.
type callerCode struct {
	bounds    arch.Range
	insns     []arch.Insn
	calls     []int              // those of insns that do
	targets   map[arch.Addr]bool // of its branches, and of others that lead into it
	entrances map[arch.Addr]bool // of others
	indirect  bool               // it has jumps to anywhere
	end       arch.Addr          // of what was decoded
	err       error              // why no more was
}

func newCallerCode(bounds arch.Range, code []byte) *callerCode {
	f := &callerCode{bounds: bounds, targets: map[arch.Addr]bool{}, entrances: map[arch.Addr]bool{bounds.Start: true}, end: bounds.Start}
	for len(code) > 0 {
		insn, err := host.Arch.Decode(code, f.end)
		if err != nil {
			f.err = err
			break
		}
		f.insns = append(f.insns, insn)
		switch insn.Flow {
		case arch.FlowJump, arch.FlowCond, arch.FlowCall:
			f.targets[insn.Target] = true
		case arch.FlowIndirectJump:
			f.indirect = true
		}
		code, f.end = code[insn.Len():], insn.End()
	}
	return f
}

// index is which instruction begins at at.
func (f *callerCode) index(at arch.Addr) (int, bool) {
	i := sort.Search(len(f.insns), func(i int) bool { return f.insns[i].Addr >= at })
	return i, i < len(f.insns) && f.insns[i].Addr == at
}

// site looks at the instructions in front of number i, which makes system calls.
func (f *callerCode) site(i, number int) callSite {
	insn := f.insns[i].Addr
	site := callSite{insn: insn, at: insn, number: number}
	if f.indirect || f.err != nil {
		return site
	}
	for j := i - 1; j >= 0 && i-j <= maxLoads && !f.targets[f.insns[j].End()]; j-- {
		before := f.insns[j]
		if host.Arch.Load(before, host.Arch.NewRegs(), vague(0)) != nil {
			break
		}
		if insn-before.Addr >= arch.Addr(host.Detours.JumpLen()) {
			site.at, site.loads = before.Addr, slices.Clone(f.insns[j:i]) // not all of the function
			break
		}
	}
	return site
}

// Of an instruction that no way was found to, nothing is known of the register of the number either.
const (
	anyNumber = -1
	unreached = -2
)

// numbers is what the register of system calls' numbers holds in front of each instruction, anyNumber if that is not always the
// same. It follows all ways through the function from all that lead into it.
func (f *callerCode) numbers() []int {
	in := make([]int, len(f.insns))
	for i := range in {
		in[i] = unreached
	}
	var todo []int
	reach := func(at arch.Addr, number int) {
		i, ok := f.index(at)
		if !ok || in[i] == number || in[i] == anyNumber {
			return
		}
		if in[i] != unreached {
			number = anyNumber
		}
		in[i] = number
		todo = append(todo, i)
	}
	for at := range f.entrances {
		reach(at, anyNumber)
	}
	if f.indirect || f.err != nil {
		for _, insn := range f.insns {
			reach(insn.Addr, anyNumber)
		}
	}
	for len(todo) > 0 {
		insn, number := f.insns[todo[len(todo)-1]], in[todo[len(todo)-1]]
		todo = todo[:len(todo)-1]
		switch insn.Flow {
		case arch.FlowReturn, arch.FlowIndirectJump, arch.FlowFar, arch.FlowTrap:
		case arch.FlowJump:
			reach(insn.Target, number)
		case arch.FlowCond:
			reach(insn.Target, number)
			reach(insn.End(), number)
		default:
			reach(insn.End(), numberBehind(insn, number))
		}
	}
	return in
}

// numbered goes through those of insns that make system calls, with the number of each.
func (f *callerCode) numbered() iter.Seq2[int, int] {
	return func(yield func(i, number int) bool) {
		numbers := f.numbers()
		for _, i := range f.calls {
			if !yield(i, numbers[i]) {
				return
			}
		}
	}
}

// nearlyNumbered is numbered for calls whose number is loaded right in front of them, as compilers do it: then nothing else of the function matters,
// and it costs a hundredth. The others have anyNumber.
func (f *callerCode) nearlyNumbered() iter.Seq2[int, int] {
	return func(yield func(i, number int) bool) {
		for _, i := range f.calls {
			first := i
			for first > 0 && i-first < 2*maxLoads && f.insns[first-1].Flow == arch.FlowNext && !f.targets[f.insns[first].Addr] {
				first--
			}
			number := anyNumber
			for _, before := range f.insns[first:i] {
				number = numberBehind(before, number)
			}
			if !yield(i, number) {
				return
			}
		}
	}
}

// numberBehind is what the register holds behind an instruction that leads to the following one.
func numberBehind(insn arch.Insn, number int) int {
	if insn.Flow == arch.FlowNext && host.Arch.Load(insn, host.Arch.NewRegs(), vague(0)) == nil {
		return constantNumber(insn, number)
	}
	if host.Arch.KeepsNumber(insn) {
		return number
	}
	return anyNumber
}

// vague is memory of which nothing is known.
type vague byte

func (v vague) ReadMemory(_ arch.Addr, p []byte) error {
	for i := range p {
		p[i] = byte(v)
	}
	return nil
}

func (v vague) WriteMemory(arch.Addr, []byte) error { return nil }

// constantNumber is what load leaves in the register of the number, where number was, or anyNumber if that depends on anything.
func constantNumber(load arch.Insn, number int) int {
	var results [2]uint64
	for k, fill := range []byte{0x11, 0x22} {
		regs := host.Arch.NewRegs()
		for i, name := range regs.Names() {
			regs.Set(name, uint64(fill)*0x0101010101010101+uint64(i))
		}
		if number >= 0 {
			regs.SetReturnValue(uint64(number))
		}
		if host.Arch.Load(load, regs, vague(fill)) != nil {
			return anyNumber
		}
		results[k] = regs.ReturnValue()
	}
	if results[0] != results[1] || results[0] > math.MaxInt32 {
		return anyNumber
	}
	return int(results[0])
}

// sigreturnNumber is the number of the call that handlers of signals return to.
func sigreturnNumber() int {
	insn, err := host.Arch.Decode(host.Arch.SigreturnLoads()[0], 0)
	if err != nil {
		return anyNumber
	}
	return constantNumber(insn, anyNumber)
}

// entranceMap is where the functions lie that branches may lead into.
type entranceMap struct {
	list []*callerCode // by address
	r    arch.Range
	has  []bool // by block: most branches lead to one that no caller has a part in
}

const entranceBlock = 256 // bytes

func newEntranceMap(list []*callerCode, r arch.Range) *entranceMap {
	sort.Slice(list, func(i, k int) bool { return list[i].bounds.Start < list[k].bounds.Start })
	e := &entranceMap{list, r, make([]bool, r.Len()/entranceBlock+1)}
	for _, f := range list {
		for b := max(f.bounds.Start, r.Start) - r.Start; b <= f.bounds.End-r.Start && int(b/entranceBlock) < len(e.has); b += entranceBlock {
			e.has[b/entranceBlock] = true
		}
		e.has[min(int((f.bounds.End-r.Start)/entranceBlock), len(e.has)-1)] = true
	}
	return e
}

// note finds branches with a 32-bit displacement in own, of which code, which begins at start, has the bytes, that lead into one of the functions from outside of it. All
// bytes are looked at, so some are taken for a branch for no reason.
func (e *entranceMap) note(own arch.Range, start arch.Addr, code []byte) {
	host.Arch.EachBranch(code[own.Start-start:], own.Start, func(at, to arch.Addr) {
		if block := (to - e.r.Start) / entranceBlock; to < e.r.Start || block >= arch.Addr(len(e.has)) || !e.has[block] || at >= own.End {
			return
		}
		k := sort.Search(len(e.list), func(k int) bool { return e.list[k].bounds.End > to })
		if k < len(e.list) && e.list[k].bounds.Contains(to) && !e.list[k].bounds.Contains(at) {
			e.list[k].targets[to], e.list[k].entrances[to] = true, true
		}
	})
}
