package symbols

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/arch"
)

// fakeHit has registers with the numbers of their names' letters added up, and words at addresses that are the addresses' doubles.
type fakeHit struct{}

func (fakeHit) register(name string) (cell, error) {
	if name == "none" {
		return cell{}, errForgotten
	}
	v := uint64(0)
	for _, c := range []byte(name) {
		v += uint64(c)
	}
	return cell{v: v}, nil
}
func (fakeHit) vector(n int) (uint64, error)           { return math.Float64bits(float64(n) + 0.75), nil }
func (fakeHit) load(at cell, size int64) (cell, error) { return cell{v: 2 * at.v}, nil }
func (fakeHit) entry(reg uint64) (cell, error)         { return cell{v: 100 + reg}, nil }
func lit(n int64) []byte                               { return binary.LittleEndian.AppendUint64([]byte{opConst8u}, uint64(n)) }
func convert(to byte) []byte                           { return []byte{opConvert, to} }
func joined(all ...[]byte) []byte                      { return bytes.Join(all, nil) }
func ops(b ...byte) []byte                             { return b }
func typedConst(to byte, b ...byte) []byte {
	return append([]byte{opConstType, to, byte(len(b))}, b...)
}
func vectorAs(n, to byte) []byte { return ops(opRegvalType, 17+n, to) }

// The base types that expressions of TestTheMachine name.
const (
	s8, u8, s16, u16, s32, u32, s64, u64, f32, f64, aStructure = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11
)

var baseTypes = map[uint64]number{
	s8: {size: 1}, u8: {size: 1, isUnsigned: true}, s16: {size: 2}, u16: {size: 2, isUnsigned: true}, s32: {size: 4}, u32: {size: 4, isUnsigned: true},
	s64: {size: 8}, u64: {size: 8, isUnsigned: true}, f32: {size: 4, isFloat: true}, f64: {size: 8, isFloat: true},
}

const rax = 'r' + 'a' + 'x'

// What DWARF expressions compute. Where it is false there is no value: also where debuggers would not agree on one.
func TestTheMachine(t *testing.T) {
	none := errors.New("none")
	for _, c := range []struct {
		what string
		expr []byte
		want any // none, or a number
	}{
		{"a register and a distance", ops(opBreg0, 0x7f), rax - 1},
		{"a register by a long number", ops(opBregx, 0, 5), rax + 5},
		{"the instruction pointer", ops(opBregx, 16, 0), none},
		{"a register that is none", ops(opBregx, 17, 0), none},
		{"the frame", ops(opFbreg, 0x70), 'r' + 'b' + 'p' + 16 - 16},
		{"the frame address", ops(opCFA), 'r' + 'b' + 'p' + 16},
		{"sum", joined(lit(5), lit(-7), ops(opPlus)), -2},
		{"difference", joined(lit(5), lit(7), ops(opMinus)), -2},
		{"product", joined(lit(5), lit(-7), ops(opMul)), -35},
		{"quotient", joined(lit(-7), lit(2), ops(opDiv)), -3},
		{"remainder without a sign", joined(lit(-7), lit(4), ops(opMod)), 1},
		{"remainder with one", joined(lit(-7), convert(s64), lit(4), convert(s64), ops(opMod)), -3},
		{"quotient without a sign", joined(lit(-7), convert(u64), lit(2), convert(u64), ops(opDiv)), int64(math.MaxInt64 - 3)},
		{"division by zero", joined(lit(5), lit(0), ops(opDiv)), none},
		{"remainder of zero", joined(lit(5), lit(0), ops(opMod)), none},
		{"the quotient that is too great", joined(lit(math.MinInt64), lit(-1), ops(opDiv)), none},
		{"and", joined(lit(12), lit(10), ops(opAnd)), 8},
		{"or", joined(lit(12), lit(10), ops(opOr)), 14},
		{"exclusive or", joined(lit(12), lit(10), ops(opXor)), 6},
		{"not", joined(lit(12), ops(opNot)), -13},
		{"negation", joined(lit(12), ops(opNeg)), -12},
		{"absolute value", joined(lit(-12), ops(opAbs)), 12},
		{"absolute value without a sign", joined(lit(-12), convert(u8), ops(opAbs)), 244},
		{"shift to the left", joined(lit(3), lit(4), ops(opShl)), 48},
		{"shift to the right without a sign", joined(lit(-1), lit(60), ops(opShr)), 15},
		{"shift to the right with the sign", joined(lit(-64), lit(4), ops(opShra)), -4},
		{"shift of a small number with the sign", joined(lit(0x80), convert(u8), lit(4), convert(u8), ops(opShra)), 0xf8},
		{"shift too far", joined(lit(3), lit(64), ops(opShl)), none},
		{"shift of a small number too far", joined(lit(3), convert(u8), lit(8), convert(u8), ops(opShl)), none},
		{"shift by another type", joined(lit(3), convert(u8), lit(1), ops(opShl)), none},
		{"constant added", joined(lit(3), ops(opPlusUconst, 0x81, 1)), 132},
		{"constant added to a small number", joined(lit(250), convert(u8), ops(opPlusUconst, 5)), 255},
		{"and more than it holds", joined(lit(250), convert(u8), ops(opPlusUconst, 7)), none},
		{"of which the low bytes are wanted", joined(lit(250), convert(u8), ops(opPlusUconst, 7), convert(u8)), 1},
		{"and that is computed with", joined(lit(250), convert(u8), ops(opPlusUconst, 7, opNeg)), none},
		{"equal", joined(lit(3), lit(3), ops(opEq)), 1},
		{"not equal", joined(lit(3), lit(3), ops(opNe)), 0},
		{"less", joined(lit(-3), lit(3), ops(opLt)), 1},
		{"less without a sign", joined(lit(-3), convert(u32), lit(3), convert(u32), ops(opLt)), 0},
		{"less or equal", joined(lit(3), lit(3), ops(opLe)), 1},
		{"greater", joined(lit(3), lit(-3), ops(opGt)), 1},
		{"greater or equal", joined(lit(-3), lit(3), ops(opGe)), 0},
		{"two of one", joined(lit(3), ops(opDup, opMul)), 9},
		{"the one below", joined(lit(3), lit(4), ops(opOver, opMinus, opPlus)), 4},
		{"one from far below", joined(lit(3), lit(4), lit(5), ops(opPick, 2)), 3},
		{"one from too far below", joined(lit(3), ops(opPick, 1)), none},
		{"dropped", joined(lit(3), lit(4), ops(opDrop)), 3},
		{"changed in order", joined(lit(3), lit(5), ops(opSwap, opMinus)), 2},
		{"turned", joined(lit(3), lit(4), lit(5), ops(opRot, opMinus)), -1},
		{"turned, what is below", joined(lit(3), lit(4), lit(5), ops(opRot, opDrop, opDrop)), 5},
		{"two that are turned", joined(lit(3), lit(4), ops(opRot)), none},
		{"nothing done", joined(lit(3), ops(opNop)), 3},
		{"an empty stack", ops(opNop), none},
		{"too few on it", joined(lit(3), ops(opPlus)), none},
		{"memory", joined(lit(3), ops(opDeref)), 6},
		{"a byte of it", joined(lit(100), ops(opDerefSize, 1)), 200},
		{"bytes that are no number", joined(lit(100), ops(opDerefSize, 3)), none},
		{"memory with a type", joined(lit(100), ops(opDerefType, 1, s8)), 200},
		{"memory with a type of another size", joined(lit(100), ops(opDerefType, 2, s8)), none},
		{"a small number's memory", joined(lit(100), convert(u8), ops(opDeref)), none},
		{"made smaller", joined(lit(0x1234), convert(u8)), 0x34},
		{"made greater with the sign", joined(lit(0x80), convert(s8), convert(s32)), int64(0xffffff80)},
		{"made greater without a sign", joined(lit(0x80), convert(u8), convert(s32)), 0x80},
		{"made generic", joined(lit(0xffff), convert(s16), convert(0)), -1},
		{"the same bytes", joined(lit(-1), convert(s32), ops(opReinterpret, u32), convert(0)), 0xffffffff},
		{"the same bytes of another size", joined(lit(-1), convert(s32), ops(opReinterpret, u16)), none},
		{"types that do not fit", joined(lit(1), convert(s32), lit(1), ops(opPlus)), none},
		{"types with and without a sign", joined(lit(1), convert(s32), lit(1), convert(u32), ops(opPlus)), none},
		{"a sum that is too great for its type", joined(lit(200), convert(u8), lit(100), convert(u8), ops(opPlus)), 44},
		{"a type that is none", joined(lit(1), convert(aStructure)), none},
		{"a constant with a type", joined(typedConst(u16, 0x34, 0x12), convert(0)), 0x1234},
		{"a constant of another size", typedConst(u16, 0x34), none},
		{"a floating-point number's integer", joined(vectorAs(3, f64), convert(s32)), 3},
		{"an integer as a floating-point number", joined(lit(-2), convert(f64)), int64(math.Float64bits(-2)-1<<63) + math.MinInt64},
		{"a smaller one", joined(lit(3), convert(f32)), int64(math.Float32bits(3))},
		{"one that is too great", joined(lit(70000), convert(f64), convert(s16)), none},
		{"computing with them", joined(vectorAs(3, f64), vectorAs(2, f64), ops(opPlus)), none},
		{"bytes in the expression", ops(opImplicit, 2, 0x34, 0x12), 0x1234},
		{"bytes that are no number", ops(opImplicit, 3, 1, 2, 3), none},
		{"a register at the entry", ops(opEntryValue, 1, opReg0+5), 105},
		{"as GCC has said it", ops(opGNUEntry, 1, opReg0+5), 105},
		{"with a type, whose bits alone the caller would have to tell", ops(opEntryValue, 3, opRegvalType, 4, s32), none},
		{"computing with it", joined(ops(opEntryValue, 1, opReg0+5), lit(5), ops(opMinus)), 100},
		{"memory at the entry", ops(opEntryValue, 2, opBreg0+5, 0), none},
		{"what it leads to", ops(opEntryValue, 1, opReg0+5, opDeref), none},
		{"a jump", joined(lit(1), ops(0x2f, 0, 0)), none},
		{"a jump over nothing", joined(lit(1), lit(1), ops(0x28, 0, 0)), none},
		{"a call", joined(lit(1), ops(0x99, 0, 0, 0, 0)), none},
		{"thread-local storage", joined(lit(1), ops(0x9b)), none},
		{"a number that is cut", ops(opConst8u, 1, 2), none},
		{"an expression of many steps", joined(lit(1), bytes.Repeat(ops(opNeg), mostSteps-1)), -1},
		{"one of too many", joined(lit(1), bytes.Repeat(ops(opNeg), mostSteps)), none},
		{"a high stack", joined(lit(1), bytes.Repeat(ops(opDup), mostStored-1)), 1},
		{"one that is too high", joined(lit(1), bytes.Repeat(ops(opDup), mostStored)), none},
	} {
		at := callee{isInside: true, caller: &callerPlace{row: &unwindRow{}, reenters: func() bool { return false }}, frame: frameBase{known: true, isCFA: true, reg: "rbp", off: 16},
			numbers: func(off uint64) (number, bool) { n, ok := baseTypes[off]; return n, ok }}
		var got any = none
		x := &lineCursor{b: append(slices.Clone(c.expr), opStackValue)}
		if made, isAddress, ok := at.computation(x); ok && !isAddress {
			if v, err := execute(fakeHit{}, made.steps, false); err == nil && v.sure == 0 {
				got = int64(v.v)
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%s: %x is %v, want %v", c.what, c.expr, got, c.want)
		}
	}
}

// Where values are that an expression computes, and which of them lead to others in the target.
func TestComputedPlaces(t *testing.T) {
	at := callee{isInside: true, isSettled: true, caller: &callerPlace{row: &unwindRow{}, reenters: func() bool { return false }}}
	word, small := &dtype{size: 8}, &dtype{size: 4}
	for _, c := range []struct {
		what string
		expr []byte
		t    *dtype
		want string
	}{
		{"a register and a distance is an address", ops(opBreg0+5, 8), word, "[rdi+8]"},
		{"and more", ops(opBreg0+5, 8, opPlusUconst, 8), word, "[rdi+16]"},
		{"the stack pointer and a distance", ops(opBreg0+7, 8, opLit0+16, opPlus), word, "stack+24"},
		{"a value of two pieces on the stack", ops(opBreg0+7, 8, opLit0+16, opPlus, opPiece, 8, opReg0+5, opPiece, 8), &dtype{size: 16}, "stack+24 rdi"},
		{"and a value", ops(opBreg0+5, 8, opStackValue), word, "rdi+8"},
		{"of which some is wanted", ops(opBreg0+5, 8, opStackValue), small, "rdi+8"},
		{"what a pointer leads to", ops(opBreg0+5, 8, opDeref, opPlusUconst, 4), word, "[0@0+4]"},
		{"a sum of registers", ops(opBreg0+5, 0, opBreg0+4, 0, opPlus, opStackValue), word, "computed"},
		{"a sum of registers is an address", ops(opBreg0+5, 0, opBreg0+4, 0, opPlus), word, "[computed]"},
		{"a constant", ops(opLit0+5, opLit0+2, opPlus, opStackValue), word, "7"},
		{"of the function's entry", ops(opEntryValue, 1, opReg0+5, opStackValue), word, "computed"},
		{"an address that was known at the entry", ops(opEntryValue, 1, opReg0+5), word, "none"},
		{"too much of a value", ops(opBreg0+5, 8, opConvert, 0, opStackValue), &dtype{size: 16}, "none"},
		{"two pieces", ops(opReg0+5, opPiece, 8, opBreg0+4, 1, opStackValue, opPiece, 8), &dtype{size: 16}, "rdi rsi+1"},
		{"a value with an end behind it", ops(opBreg0+5, 8, opStackValue, opNop), word, "none"},
	} {
		got := "none"
		if l := at.evaluate(c.expr, c.t, true); l.knowledge == saidPlace {
			var all []string
			for _, x := range l.place.parts {
				all = append(all, where(x))
			}
			if got = strings.Join(all, " "); l.place.isIndirect {
				got = "[" + got
				if l.place.behind != 0 {
					got += fmt.Sprintf("+%d", l.place.behind)
				}
				got += "]"
			}
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.what, got, c.want)
		}
	}
}

// where is how the target finds a part.
func where(x part) string {
	switch {
	case x.reg == "":
		return fmt.Sprintf("stack+%d", x.stack)
	case x.made == nil:
		return x.reg
	}
	r := &reader{bounds: Bounds{}.made()}
	w, known := r.computed(x.made)(0)
	switch {
	case !known || r.hasFailed:
		return computedPart
	case w.IsConst:
		return fmt.Sprint(w.Plus)
	case w.Reg != "":
		return fmt.Sprintf("%s+%d", w.Reg, w.Plus)
	}
	return fmt.Sprintf("%d@%d+%d", w.Read, w.At, w.Plus)
}

// What optimized code does not keep is computed, and what Reads tells is enough for it. Where a function was entered by a jump, nothing is known of its entry.
func TestOptimizedValuesAreComputed(t *testing.T) {
	x := trace(t, build(t, "computed.c", "-g", "-O2", "-fno-ipa-ra"), "main") // else callers keep what they know in registers that only their own callees leave alone
	for i, c := range []struct{ line, want string }{
		{"computed.c:16", "a=20 b=4 text=? sum=28"},
		{"computed.c:26", "a=1 b=1000 twice=9 small=1003 at=of 3 4"},
		{"computed.c:16", "a=? b=? text=? sum=?"},
		{"computed.c:16", "a=21 b=4 text=? sum=29"},
		{"computed.c:26", "a=2 b=1000 twice=11 small=1003 at=of 5 6"},
	} {
		if i == 3 {
			x.runTo(one(t, x.tab, "forgets").Addr) // from where it is
		}
		x.runTo(one(t, x.tab, c.line).Addr)
		r := x.vectorRegs()
		seen, err := x.tab.Variables(r.IP())
		if err != nil {
			t.Fatal(err)
		}
		var all []string
		for _, p := range slices.Concat(seen.Params, seen.Locals) {
			v := p.Value(r, x.mem)
			regs, reads, ok := p.Reads("rsp")
			if !ok {
				t.Errorf("%d: a thread has to stop for %s", i, p.Name)
			}
			told := &capture{t: t, name: p.Name, regs: map[string]uint64{}}
			told.take(r, x.mem, regs, reads)
			if again := p.Value(told, told); again.Text != v.Text {
				t.Errorf("%d: by a record %s is %s, else %s", i, p.Name, again.Text, v.Text)
			}
			if p.Name == "at" {
				var pair [8]byte
				at, _ := strconv.ParseUint(v.Text, 0, 64)
				if err := x.mem.ReadMemory(arch.Addr(at), pair[:]); err != nil {
					t.Error(err)
				}
				v.Text = fmt.Sprint("of ", pair[0], pair[4])
			}
			all = append(all, p.Name+"="+v.Text)
		}
		if got := strings.Join(all, " "); got != c.want {
			t.Errorf("%d: at %s: %s, want %s", i, c.line, got, c.want)
		}
	}
}

// What a record does not hold of the caller makes a value unknown.
func TestEntryValuesNeedTheCaller(t *testing.T) {
	x := trace(t, build(t, "computed.c", "-g", "-O2", "-fno-ipa-ra"), "main")
	x.runTo(one(t, x.tab, "computed.c:16").Addr)
	r := x.vectorRegs()
	seen, err := x.tab.Variables(r.IP())
	if err != nil || len(seen.Params) == 0 {
		t.Fatal(seen, err)
	}
	a := seen.Params[0]
	_, reads, _ := a.Reads("rsp")
	if len(reads) == 0 || !reads[0].IsSpare {
		t.Fatalf("%s is told by %+v", a.Name, reads)
	}
	if v := a.Value(r, noMemory{}); v.Err == nil {
		t.Errorf("without memory it is %s", v.Text)
	}
	c := a.place.parts[0].made.caller
	name, off := c.base()
	base, _ := r.Get(name)
	back := arch.Addr(base) + arch.Addr(off) - 8
	for what, word := range map[string]uint64{"nowhere": 0, "at the function": uint64(a.mod.addr(c.start)), "behind another call": uint64(one(t, x.tab, "main").Addr) + 1} {
		if v := a.Value(r, replaced{x.mem, back, word}); v.Err == nil {
			t.Errorf("with a return address %s it is %s", what, v.Text)
		}
	}
}

// replaced is memory with another word at an address.
type replaced struct {
	arch.Memory
	at   arch.Addr
	word uint64
}

func (m replaced) ReadMemory(at arch.Addr, p []byte) error {
	if at == m.at && len(p) == 8 {
		binary.LittleEndian.PutUint64(p, m.word)
		return nil
	}
	return m.Memory.ReadMemory(at, p)
}
