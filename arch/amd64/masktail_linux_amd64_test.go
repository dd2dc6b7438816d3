package amd64_test

import (
	"encoding/binary"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/arch/amd64/code"
)

// emptyBody is the body of a detour that has only a tail.
type emptyBody struct {
	tail arch.TailCode
}

func (emptyBody) Assemble(arch.Addr) (arch.BodyCode, error) { return arch.BodyCode{}, nil }

func (b emptyBody) Tail() arch.TailCode { return b.tail }

// TestATailChangesOnlyThePointerOfACallThatItIsFor: a processor executes tails with all kinds of arguments. Whatever they are, no other register has changed
// in front of the call but those that the call itself changes, and no flag; and at each instruction on the way a thread may be
// taken to the call.
func TestATailChangesOnlyThePointerOfACallThatItIsFor(t *testing.T) {
	const nothing, table, known = 0, arch.MaskTable(dataAt + 0x400), dataAt + 0x210
	const setA, setB, setC, other, harmless = ^uint64(0), ^uint64(3 << 31), uint64(0xffff_ffff_0000_0010), uint64(1 << 4), uint64(1 << 9)
	cellA, cellB, cellC := table.Cell(0), table.Cell(1), table.Cell(2)
	c := newCPU(t)
	a := code.Arch{}
	set := func(at arch.Addr, v uint64) { c.put(at, binary.LittleEndian.AppendUint64(nil, v)) }
	for low := range 256 {
		c.put(table.Looked()+arch.Addr(low), []byte{byte(low >> 4 & 1)})
		c.put(table.Less()+arch.Addr(low), []byte{byte(low &^ 0x18)})
	}
	sets := []uint64{0, setA, setB, setC}
	for i := range arch.MaskEntries {
		set(table.Difference(i), 0)
		if i+1 < len(sets) {
			set(table.Difference(i), sets[i]-sets[i+1])
		}
	}
	masks := a.MaskTail(arch.MaskWork{Table: table})
	constant := a.MaskTail(arch.MaskWork{Known: known})
	action := a.ActionTail(int(unix.SIGTRAP))
	for _, q := range []struct {
		name    string
		tail    arch.TailCode
		rdi     uint64
		pointer arch.Addr
		set     uint64 // what lies there
		want    arch.Addr
		asks    bool // if the table is open
	}{
		{"block all", masks, unix.SIG_BLOCK, dataAt, setA, cellA, false},
		{"set all", masks, unix.SIG_SETMASK, dataAt, setA, cellA, false},
		{"set all of libc's", masks, unix.SIG_SETMASK, dataAt, setB, cellB, false},
		{"unblock all", masks, unix.SIG_UNBLOCK, dataAt, setA, dataAt, false},
		{"one signal that the table knows nothing of", masks, unix.SIG_BLOCK, dataAt, other, dataAt, true},
		{"another signal than a breakpoint's", masks, unix.SIG_BLOCK, dataAt, harmless, dataAt, false},
		{"a set in the third entry", masks, unix.SIG_SETMASK, dataAt, setC, cellC, false},
		{"nearly that", masks, unix.SIG_SETMASK, dataAt, setC + 1<<20, dataAt, true},
		{"none", masks, unix.SIG_SETMASK, dataAt, 0, dataAt, false},
		{"a question", masks, unix.SIG_BLOCK, nothing, 0, nothing, false},
		{"the upper half of the first argument is not looked at", masks, 0xdead_beef_0000_0001, dataAt, setA, dataAt, false},
		{"a constant", constant, unix.SIG_BLOCK, dataAt, setA, known, false},
		{"a constant, unblocked", constant, unix.SIG_UNBLOCK, dataAt, setA, dataAt, false},
		{"the default", action, uint64(unix.SIGTRAP), dataAt, 0, 0, true},
		{"a handler", action, uint64(unix.SIGTRAP), dataAt, 0x1234, dataAt, true},
		{"ignoring", action, uint64(unix.SIGTRAP), dataAt, 1, dataAt, true},
		{"another signal", action, uint64(unix.SIGILL), dataAt, 0, dataAt, false},
		{"a question", action, uint64(unix.SIGTRAP), nothing, 0, nothing, true},
	} {
		load := []byte{0xb8, 14, 0, 0, 0} // mov $14,%eax
		d, err := a.AssembleDetour(codeAt, sequence(t, load, slotAt), emptyBody{q.tail})
		if err != nil {
			t.Fatal(err)
		}
		c.put(codeAt, d.Code)
		set(dataAt, q.set)
		for k, flags := range []uint64{0x202, 0x202 | 0x8d5, 0x202} {
			closed := k == 2
			set(table.Closed(), uint64(k/2))
			before, asked := c.regs(), false
			before.Rdi, before.Rsi, before.Rip, before.Eflags = q.rdi, uint64(q.pointer), uint64(d.Start()), flags
			before.R8, before.R9, before.R10, before.R11, before.Rcx, before.Rdx = 8, 9, 10, 11, 12, 13
			r := before
			for r.Rip != uint64(d.End) {
				if orig, pop, ok := d.Original(arch.Addr(r.Rip)); r.Rip != uint64(d.Start()) && (!ok || orig != d.End || pop != 0) {
					t.Fatalf("%s: at +%#x a thread is to go on at %s, %d, %v", q.name, r.Rip-codeAt, orig, pop, ok)
				}
				if now := arch.Addr(r.Rsi); now != q.pointer && now != q.want {
					t.Errorf("%s: at +%#x the pointer is %s", q.name, r.Rip-codeAt, now)
				}
				stop, ok := d.StopAt(arch.Addr(r.Rip))
				asked = asked || ok && stop.Why == arch.StopAsked
				var sig unix.Signal
				if r, sig = c.step(r); sig != unix.SIGTRAP {
					t.Fatalf("%s: %v at +%#x", q.name, sig, r.Rip-codeAt)
				}
			}
			left := q.set
			if q.asks && !closed && q.rdi != uint64(unix.SIGTRAP) && q.set>>56 == 0xff { // nobody has answered
				left &^= 0x18
			}
			if got := binary.LittleEndian.Uint64(c.get(dataAt, 8)); got != left {
				t.Errorf("%s: the set is %x, want %x", q.name, got, left)
			}
			set(dataAt, q.set)
			if want := q.asks && (!closed || q.rdi == uint64(unix.SIGTRAP)); asked != want {
				t.Errorf("%s: asks: %v, want %v", q.name, asked, want)
			}
			passed, kept := a.MaskPointers(&r)
			if passed != q.want || passed != q.pointer && kept != q.pointer {
				t.Errorf("%s: passes %s, kept %s, want %s", q.name, passed, kept, q.want)
			}
			r.Rsi, r.Rcx, r.R11, r.Rip, r.Rax = before.Rsi, before.Rcx, before.R11, before.Rip, before.Rax
			if r != before {
				t.Errorf("%s: registers are\n%+v, were\n%+v", q.name, r, before)
			}
		}
	}
}

// TestWhoNeedsTheRegisterOfAPointer: against what the instructions say.
func TestWhoNeedsTheRegisterOfAPointer(t *testing.T) {
	for _, c := range []struct {
		code        []byte
		needs, sets bool
	}{
		{[]byte{0x48, 0x89, 0xf0}, true, false},          // mov %rsi,%rax
		{[]byte{0x48, 0x89, 0xc6}, false, true},          // mov %rax,%rsi
		{[]byte{0x66, 0x89, 0xc6}, true, false},          // mov %ax,%si
		{[]byte{0x31, 0xf6}, false, true},                // xor %esi,%esi
		{[]byte{0x48, 0x31, 0xc6}, true, false},          // xor %rax,%rsi
		{[]byte{0x48, 0x8b, 0x36}, true, false},          // mov (%rsi),%rsi
		{[]byte{0x48, 0x8d, 0x74, 0x24, 8}, false, true}, // lea 8(%rsp),%rsi
		{[]byte{0x48, 0x89, 0x04, 0x37}, true, false},    // mov %rax,(%rdi,%rsi)
		{[]byte{0xa4}, true, false},                      // movsb
		{[]byte{0xf7, 0xd8}, false, false},               // neg %eax
		{[]byte{0x5e}, false, true},                      // pop %rsi
		{[]byte{0x40, 0xb6, 1}, true, false},             // mov $1,%sil
		{[]byte{0x0f, 0x05}, false, false},               // syscall
		{[]byte{0x06}, true, false},                      // no instruction
	} {
		needs, sets := code.Arch{}.MaskPointerUse(arch.Insn{Bytes: c.code})
		if needs != c.needs || sets != c.sets {
			t.Errorf("% x: needs %v, sets %v", c.code, needs, sets)
		}
	}
}
