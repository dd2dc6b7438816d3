package jit

import (
	"slices"

	bpf "github.com/cilium/ebpf/asm"

	"github.com/gokprobe/gokprobe/program"
)

// The kinds of knowledge about a program's register in front of an instruction. The
// machine's register that it has got is needed only where the value is unknown before
// the program runs.
type valueKind uint8

const (
	valueNone    valueKind = iota // not set
	valueAny                      // in the register that it has got
	valueConst                    // n
	valueIn                       // in the register x all the time
	valueAddress                  // said again by the checker wherever it is used
)

type value struct {
	kind valueKind
	n    int64
	x    xreg
}

var anyValue = value{kind: valueAny}

func constValue(n int64) value { return value{kind: valueConst, n: n} }

// bpfRegs is how many registers programs can write: r0 to r9.
const bpfRegs = 10

// state is the knowledge about all registers.
type state struct {
	reached bool
	r       [bpfRegs + 1]value
}

// join returns the knowledge at a place that is reached with either s or o.
func (s state) join(o state) state {
	if !s.reached {
		return o
	}
	for i := range s.r {
		switch {
		case s.r[i] == o.r[i]:
		case s.r[i].kind == valueNone || o.r[i].kind == valueNone:
			s.r[i] = value{}
		default:
			s.r[i] = anyValue
		}
	}
	return s
}

// mask is a set of a program's registers.
type mask uint16

func (m mask) has(r bpf.Register) bool { return m>>r&1 != 0 }
func bit(r bpf.Register) mask          { return 1 << r }

// flow is the knowledge at each instruction: the values in front of it, and the
// registers with an unknown value that are read behind it.
type flow struct {
	prog    []program.Insn
	decides bool
	in      []state
	out     []mask
}

// analyze follows the program, which has no loops, once forwards and once backwards. load
// says what a load from the context gives.
func analyze(p *program.Checked, load func(i program.Insn) value, record xreg) flow {
	code := p.Code
	f := flow{code, p.Decides, make([]state, len(code)+1), make([]mask, len(code))}
	f.in[0].reached = true
	f.in[0].r[1] = value{kind: valueAddress}
	f.in[0].r[10] = value{kind: valueAddress}
	for n, i := range code {
		if !f.in[n].reached {
			continue
		}
		after := f.in[n]
		apply(&after, i, load, record)
		for _, to := range successors(n, i) {
			f.in[to] = f.in[to].join(after)
		}
	}
	for n, i := range slices.Backward(code) {
		for _, to := range successors(n, i) {
			if to < len(code) {
				f.out[n] |= f.before(to)
			}
		}
	}
	return f
}

// successors are the indices of the instructions that may come after the n-th.
func successors(n int, i program.Insn) []int {
	switch op := i.OpCode.JumpOp(); {
	case op == bpf.Exit:
		return nil
	case i.Target < 0:
		return []int{n + 1}
	case op == bpf.Ja:
		return []int{i.Target}
	}
	return []int{n + 1, i.Target}
}

// before is the registers with an unknown value that are read from instruction n on.
func (f *flow) before(n int) mask {
	if !f.in[n].reached {
		return 0
	}
	live := f.out[n] &^ defs(f.prog[n])
	if f.skipped(n) {
		return live
	}
	needs := uses(f.prog[n])
	if f.decides && f.prog[n].OpCode.JumpOp() == bpf.Exit {
		needs = bit(bpf.R0)
	}
	for r := range bpf.Register(bpfRegs) {
		if needs.has(r) && f.in[n].r[r].kind == valueAny {
			live |= bit(r)
		}
	}
	return live
}

// skipped tells that the n-th instruction only sets a register that nobody reads.
func (f *flow) skipped(n int) bool {
	i := f.prog[n]
	switch i.OpCode.Class() {
	case bpf.ALUClass, bpf.ALU64Class, bpf.LdClass, bpf.LdXClass:
		return !f.out[n].has(i.Dst)
	}
	return false
}

// apply is what i does to the values.
func apply(s *state, i program.Insn, load func(i program.Insn) value, record xreg) {
	switch i.OpCode.Class() {
	case bpf.ALUClass, bpf.ALU64Class:
		s.r[i.Dst] = result(s, i)
	case bpf.LdClass:
		s.r[i.Dst] = constValue(i.Constant)
		if i.Src != 0 {
			s.r[i.Dst] = value{kind: valueAddress}
		}
	case bpf.LdXClass:
		s.r[i.Dst] = anyValue
		if i.Mem == program.InContext {
			s.r[i.Dst] = load(i)
		}
	case bpf.StXClass:
		for r := range bpf.Register(bpfRegs) {
			if defs(i).has(r) {
				s.r[r] = anyValue
			}
		}
	}
	if i.Call == nil {
		return
	}
	for r := range 6 {
		s.r[r] = value{}
	}
	switch {
	case i.Call.Func == program.RingReserve:
		for r, v := range s.r {
			if v.kind == valueIn && v.x == record {
				s.r[r] = constValue(0) // who asks for a record has none: this one was refused
			}
		}
		s.r[0] = value{kind: valueIn, x: record}
	case i.Call.Result:
		s.r[0] = anyValue
	}
}

// result is the value of an arithmetic instruction. Only moves are followed; who
// builds programs has no need for more.
func result(s *state, i program.Insn) value {
	wide := i.OpCode.Class() == bpf.ALU64Class
	if i.OpCode.ALUOp() == bpf.Mov {
		v := constValue(i.Constant)
		if i.OpCode.Source() == bpf.RegSource {
			v = s.r[i.Src]
		}
		switch {
		case wide:
			return v
		case v.kind == valueConst:
			return constValue(int64(uint32(v.n)))
		}
		return anyValue
	}
	if i.Ptr {
		return value{kind: valueAddress}
	}
	return anyValue
}

// uses are the registers whose value i needs. Addresses are not among them, but the
// record's.
func uses(i program.Insn) (m mask) {
	op := i.OpCode
	switch op.Class() {
	case bpf.ALUClass, bpf.ALU64Class:
		if mov := op.ALUOp(); mov&0xff != bpf.Mov {
			m = bit(i.Dst)
		}
		if op.Source() == bpf.RegSource {
			m |= bit(i.Src)
		}
	case bpf.StXClass:
		m = bit(i.Src)
		if op.AtomicOp() == bpf.CmpXchg {
			m |= bit(bpf.R0)
		}
	case bpf.JumpClass, bpf.Jump32Class:
		if i.Call != nil {
			return callUses(i.Call)
		}
		if jump := op.JumpOp(); jump != bpf.Exit && jump != bpf.Ja {
			m = bit(i.Dst)
			if op.Source() == bpf.RegSource {
				m |= bit(i.Src)
			}
		}
	}
	return m
}

func callUses(c *program.HelperCall) (m mask) {
	for n, arg := range c.Args {
		if arg == program.ArgValue {
			m |= bit(bpf.R1 + bpf.Register(n))
		}
	}
	return m
}

// defs are the registers that i sets or loses.
func defs(i program.Insn) mask {
	switch i.OpCode.Class() {
	case bpf.ALUClass, bpf.ALU64Class, bpf.LdClass, bpf.LdXClass:
		return bit(i.Dst)
	case bpf.StXClass:
		switch i.OpCode.AtomicOp() {
		case bpf.CmpXchg:
			return bit(bpf.R0)
		case bpf.FetchAdd, bpf.FetchAnd, bpf.FetchOr, bpf.FetchXor, bpf.Xchg:
			return bit(i.Src)
		}
	}
	if i.Call != nil {
		return 0x3f
	}
	return 0
}
