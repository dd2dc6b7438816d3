package syscallsites

import (
	"iter"
	"math"
	"slices"
	"sort"

	"github.com/gokprobe/gokprobe/arch"
)

// Function is the instructions of a function that makes system calls.
type Function struct {
	host      Host
	jumpLen   int // of a jump that a site is to have
	bounds    arch.Range
	Insns     []arch.Insn
	calls     []int              // those of Insns that do
	targets   map[arch.Addr]bool // of its branches, and of others that lead into it
	entrances map[arch.Addr]bool // of others
	indirect  bool               // it has jumps to anywhere
	end       arch.Addr          // of what was decoded
	err       error              // why no more was
}

// maxLoads is how many instructions in front of a system call are looked at.
const maxLoads = 16

func newFunction(host Host, jumpLen int, bounds arch.Range, code []byte) *Function {
	f := &Function{host: host, jumpLen: jumpLen, bounds: bounds, targets: map[arch.Addr]bool{}, entrances: map[arch.Addr]bool{bounds.Start: true}, end: bounds.Start}
	for len(code) > 0 {
		insn, err := host.Decode(code, f.end)
		if err != nil {
			f.err = err
			break
		}
		f.Insns = append(f.Insns, insn)
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

// Index is which instruction begins at at.
func (f *Function) Index(at arch.Addr) (int, bool) {
	i := sort.Search(len(f.Insns), func(i int) bool { return f.Insns[i].Addr >= at })
	return i, i < len(f.Insns) && f.Insns[i].Addr == at
}

// Site looks at the instructions in front of number i, which makes system calls.
func (f *Function) Site(i, number int) Site {
	insn := f.Insns[i].Addr
	site := Site{Insn: insn, At: insn, Number: number}
	if f.indirect || f.err != nil {
		return site
	}
	for j := i - 1; j >= 0 && i-j <= maxLoads && !f.targets[f.Insns[j].End()]; j-- {
		before := f.Insns[j]
		if f.host.Load(before, f.host.NewRegs(), Vague(0)) != nil {
			break
		}
		if insn-before.Addr >= arch.Addr(f.jumpLen) {
			site.At, site.Loads = before.Addr, slices.Clone(f.Insns[j:i]) // not all of the function
			break
		}
	}
	return site
}

// Numbers that are none.
const (
	AnyNumber = -1 // it depends
	unreached = -2 // of an instruction that no way was found to, nothing is known either
)

// numbers is what the register of system calls' numbers holds in front of each instruction, AnyNumber if that is not always the
// same. It follows all ways through the function from all that lead into it.
func (f *Function) numbers() []int {
	in := make([]int, len(f.Insns))
	for i := range in {
		in[i] = unreached
	}
	var todo []int
	reach := func(at arch.Addr, number int) {
		i, ok := f.Index(at)
		if !ok || in[i] == number || in[i] == AnyNumber {
			return
		}
		if in[i] != unreached {
			number = AnyNumber
		}
		in[i] = number
		todo = append(todo, i)
	}
	for at := range f.entrances {
		reach(at, AnyNumber)
	}
	if f.indirect || f.err != nil {
		for _, insn := range f.Insns {
			reach(insn.Addr, AnyNumber)
		}
	}
	for len(todo) > 0 {
		insn, number := f.Insns[todo[len(todo)-1]], in[todo[len(todo)-1]]
		todo = todo[:len(todo)-1]
		switch insn.Flow {
		case arch.FlowReturn, arch.FlowIndirectJump, arch.FlowFar, arch.FlowTrap:
		case arch.FlowJump:
			reach(insn.Target, number)
		case arch.FlowCond:
			reach(insn.Target, number)
			reach(insn.End(), number)
		default:
			reach(insn.End(), numberBehind(f.host, insn, number))
		}
	}
	return in
}

// Numbered goes through those of Insns that make system calls, with the number of each.
func (f *Function) Numbered() iter.Seq2[int, int] {
	return func(yield func(i, number int) bool) {
		numbers := f.numbers()
		for _, i := range f.calls {
			if !yield(i, numbers[i]) {
				return
			}
		}
	}
}

// NearlyNumbered is Numbered for calls whose number is loaded right in front of them, as compilers do it: then nothing else of the function matters,
// and it costs a hundredth. The others have AnyNumber.
func (f *Function) NearlyNumbered() iter.Seq2[int, int] {
	return func(yield func(i, number int) bool) {
		for _, i := range f.calls {
			first := i
			for first > 0 && i-first < 2*maxLoads && f.Insns[first-1].Flow == arch.FlowNext && !f.targets[f.Insns[first].Addr] {
				first--
			}
			number := AnyNumber
			for _, before := range f.Insns[first:i] {
				number = numberBehind(f.host, before, number)
			}
			if !yield(i, number) {
				return
			}
		}
	}
}

// numberBehind is what the register holds behind an instruction that leads to the following one.
func numberBehind(host Host, insn arch.Insn, number int) int {
	if insn.Flow == arch.FlowNext && host.Load(insn, host.NewRegs(), Vague(0)) == nil {
		return constantNumber(host, insn, number)
	}
	if host.KeepsNumber(insn) {
		return number
	}
	return AnyNumber
}

// constantNumber is what load leaves in the register of the number, where number was, or AnyNumber if that depends on anything.
func constantNumber(host Host, load arch.Insn, number int) int {
	var results [2]uint64
	for k, fill := range fills {
		regs := filled(host, fill)
		if number >= 0 {
			regs.SetReturnValue(uint64(number))
		}
		if host.Load(load, regs, Vague(fill)) != nil {
			return AnyNumber
		}
		results[k] = regs.ReturnValue()
	}
	if results[0] != results[1] || results[0] > math.MaxInt32 {
		return AnyNumber
	}
	return int(results[0])
}

// SigreturnNumber is the number of the call that handlers of signals return to.
func SigreturnNumber(host Host) int {
	insn, err := host.Decode(host.SigreturnLoads()[0], 0)
	if err != nil {
		return AnyNumber
	}
	return constantNumber(host, insn, AnyNumber)
}

// ArgumentEnds tells whether nothing behind number i of f's instructions, a system call, needs the register of one of the call's
// arguments, on any way, before it gets another value. Functions that are called, and other system calls, do not get it: a compiler would
// have to pass them, as their own argument, what it has put there for this call. use tells of an
// instruction whether it needs that register, and whether it gives it another value.
func (f *Function) ArgumentEnds(i int, use func(arch.Insn) (needs, sets bool)) bool {
	seen := map[int]bool{}
	todo := []arch.Addr{f.Insns[i].End()}
	for len(todo) > 0 {
		j, ok := f.Index(todo[len(todo)-1])
		if todo = todo[:len(todo)-1]; !ok {
			return false
		}
		if seen[j] {
			continue
		}
		if seen[j] = true; len(seen) > mostSearched {
			return false
		}
		insn := f.Insns[j]
		switch insn.Flow {
		case arch.FlowReturn, arch.FlowTrap, arch.FlowCall, arch.FlowIndirectCall:
			continue
		case arch.FlowIndirectJump, arch.FlowFar:
			return false
		case arch.FlowJump:
			todo = append(todo, insn.Target)
			continue
		case arch.FlowCond:
			todo = append(todo, insn.Target)
		default:
			needs, sets := use(insn)
			if needs {
				return false
			}
			if sets {
				continue
			}
		}
		todo = append(todo, insn.End())
	}
	return true
}
