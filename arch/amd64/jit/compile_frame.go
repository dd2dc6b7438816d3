package jit

import (
	"fmt"
	"slices"

	bpf "github.com/cilium/ebpf/asm"

	"github.com/gokprobe/gokprobe/arch/amd64"
	"github.com/gokprobe/gokprobe/program"
)

// frame is what a body keeps on the target's stack, from its stack pointer upwards: the
// registers that it changes, the flags, and the program's own stack.
type frame struct {
	slot   [16]int32 // of saved registers; -1 of others
	flags  int32     // of lahf and seto; -1 if they are dead
	eflags int32     // of the whole register; -1 if nobody asks
	top    int32     // where r10 points
	size   int32
	own    int32 // what the body takes: size, and the red zone
	skip   int32 // from its end to the thread's stack pointer at the site
}

// at is the slot at off.
func (f *frame) at(off int32) place { return inMem(sp, off) }

// layout decides on the frame. seen are the registers that the program reads.
func (c *compiler) layout(seen uint16) frame {
	f := frame{flags: -1, eflags: -1}
	take := func(want bool) int32 {
		if !want {
			return -1
		}
		f.size += 8
		return f.size - 8
	}
	for x := range f.slot {
		f.slot[x] = take(c.clobbered>>x&1 != 0 && (c.dead>>x&1 == 0 || seen>>x&1 != 0 || c.Decides))
	}
	f.flags = take(!c.env.Dead.Flags || c.Decides)
	f.eflags = take(c.reads("eflags"))
	f.size += int32(c.stackUsed())
	f.top = f.size
	f.own, f.skip = f.size, int32(c.env.Below)
	if f.size > 0 && c.env.RedZone && c.env.Below == 0 {
		f.own, f.skip = f.size+amd64.RedZone, amd64.RedZone
	}
	return f
}

// stackUsed is how many bytes below r10 the program uses, a multiple of 8.
func (c *compiler) stackUsed() int {
	low := 0
	for _, i := range c.Code {
		if i.Mem == program.InStack {
			low = min(low, i.Off)
		}
		if i.Call != nil && i.Call.Dst == program.InStack {
			low = min(low, i.Call.Off)
		}
	}
	return (-low + 7) &^ 7
}

// prologue makes the frame.
func (c *compiler) prologue() {
	f := &c.frame
	if f.size == 0 {
		return
	}
	c.lea(sp, inMem(sp, -f.own))
	c.probe()
	for x, slot := range f.slot {
		if slot >= 0 {
			c.store(8, f.at(slot), xreg(x))
		}
	}
	if f.eflags >= 0 { // pushf only reads; that the program steps itself shows, as it does in the program
		c.bytes(0x9c)
		c.ins(8, 0x8f, 0, f.at(f.eflags))
	}
	if f.flags >= 0 {
		c.bytes(0x9f, 0x0f, 0x90, 0xc0) // lahf; seto al
		c.store(2, f.at(f.flags), ax)
	}
}

// probe makes sure that the lowest word of the frame can be written, before anything
// else is. The first register that is saved is stored there, if that is possible.
func (c *compiler) probe() {
	c.mayFault(c.bail)
	c.later(c.giveUp)
	switch f := &c.frame; {
	case f.eflags >= 0:
		c.store(8, f.at(-8), sp) // where pushf writes
	case slices.Max(f.slot[:]) < 0:
		c.store(8, f.at(0), sp)
	}
}

// giveUp generates the way out for a thread whose stack has no room for the body: a
// trap, where the tracer runs the program. If other code of ours comes first, it has
// already made sure of the stack.
func (c *compiler) giveUp() {
	c.mark(c.bail)
	c.lea(sp, inMem(sp, c.frame.own))
	if c.env.Below > 0 {
		c.jump(c.end)
		return
	}
	c.traps = append(c.traps, len(c.code))
	c.bytes(amd64.Arch{}.Breakpoint()...)
}

// restore puts back the registers that are not dead, or all.
func (c *compiler) restore(all bool) {
	f := &c.frame
	if f.flags >= 0 && (all || !c.env.Dead.Flags) {
		c.load(2, ax, f.at(f.flags))
		c.bytes(0x04, 0x7f, 0x9e) // add $0x7f, %al: overflows if al is 1; sahf
	}
	for x, slot := range f.slot {
		if slot >= 0 && (all || c.dead>>x&1 == 0) {
			c.load(8, xreg(x), f.at(slot))
		}
	}
	if f.size > 0 {
		c.lea(sp, inMem(sp, f.own))
	}
}

// The context.

var gprNumber = map[string]xreg{
	"rax": ax, "rcx": cx, "rdx": dx, "rbx": bx, "rsp": sp, "rbp": bp, "rsi": si, "rdi": di,
	"r8": 8, "r9": 9, "r10": 10, "r11": 11, "r12": 12, "r13": 13, "r14": 14, "r15": 15,
}

// Segment registers by their number in the encoding (SDM vol. 2A table 3-1).
var segmentNumber = map[string]xreg{"es": 0, "cs": 1, "ss": 2, "ds": 3, "fs": 4, "gs": 5}

// name is the register that i loads from the context.
func (c *compiler) name(i program.Insn) string { return c.Regs[i.Off/8] }

// reads tells that the program reads a register.
func (c *compiler) reads(name string) bool {
	for _, i := range c.Code {
		if i.Mem == program.InContext && c.name(i) == name {
			return true
		}
	}
	return false
}

// seen are the general registers that the program reads.
func (c *compiler) seen() (set uint16) {
	for _, i := range c.Code {
		if i.Mem == program.InContext {
			if x, ok := gprNumber[c.name(i)]; ok {
				set |= 1 << x
			}
		}
	}
	return set
}

// contextValue is what a load from the context gives.
func (c *compiler) contextValue(i program.Insn) value {
	name := c.name(i)
	if n, ok := c.contextConst(name); ok {
		return constValue(narrow(n, i))
	}
	x, ok := gprNumber[name]
	if ok && x != sp && c.clobbered>>x&1 == 0 && i.OpCode.Size() == bpf.DWord {
		return value{kind: valueIn, x: x}
	}
	return anyValue
}

// contextConst is the value of a register that is always the same at the site.
func (c *compiler) contextConst(name string) (int64, bool) {
	switch name {
	case "rip":
		return int64(c.env.Site) + 1, true
	case "orig_rax":
		return -1, true
	}
	return 0, false
}

// narrow is what the load i takes out of a register's value n.
func narrow(n int64, i program.Insn) int64 {
	n = int64(uint64(n) >> (8 * (i.Off & 7)))
	unused := 64 - 8*i.OpCode.Size().Sizeof()
	if i.OpCode.Mode() == bpf.MemSXMode {
		return n << unused >> unused
	}
	return int64(uint64(n) << unused >> unused)
}

// loadMem generates a load from a region.
func (c *compiler) loadMem(n int, i program.Insn) {
	dst := c.phys[i.Dst]
	if i.Mem == program.InContext {
		c.loadContext(dst, i)
		return
	}
	c.loadPart(i, dst, c.region(i.Mem, i.Off))
}

// loadPart loads what i asks for.
func (c *compiler) loadPart(i program.Insn, dst xreg, from place) {
	size := i.OpCode.Size().Sizeof()
	if i.OpCode.Mode() == bpf.MemSXMode {
		c.loadSigned(size, 8, dst, from)
		return
	}
	c.load(size, dst, from)
}

func (c *compiler) loadContext(dst xreg, i program.Insn) {
	name := c.name(i)
	if v, ok := c.contextConst(name); ok {
		c.constant(dst, narrow(v, i))
		return
	}
	slot := int32(-1)
	x, general := gprNumber[name]
	if general {
		slot = c.frame.slot[x]
	} else if name == "eflags" {
		slot = c.frame.eflags
	}
	if slot >= 0 {
		c.loadPart(i, dst, c.frame.at(slot+int32(i.Off&7)))
		return
	}
	if word := slices.Index(c.env.Words, name); word >= 0 {
		c.loadPart(i, dst, c.frame.at(c.frame.size+int32(8*word+i.Off&7)))
		return
	}
	switch {
	case x == sp && general:
		c.lea(dst, inMem(sp, c.frame.size+c.frame.skip))
		x = dst
	case !general:
		c.loadSystem(dst, name)
		x = dst
	}
	if shift := i.Off & 7 * 8; shift != 0 {
		c.move(dst, x)
		c.ins(8, 0xc1, extShr, inReg(dst), byte(shift))
		x = dst
	}
	if i.OpCode.Size() == bpf.DWord {
		c.move(dst, x)
		return
	}
	c.loadPart(i, dst, inReg(x))
}

// loadSystem loads a register that is no general one.
func (c *compiler) loadSystem(dst xreg, name string) {
	if s, ok := segmentNumber[name]; ok {
		c.ins(4, 0x8c, s, inReg(dst))
		return
	}
	base, ok := map[string]xreg{"fs_base": 0, "gs_base": 1}[name]
	if !ok || !c.fsgsbase() {
		c.err = fmt.Errorf("%w: %s", errRegister, name)
		return
	}
	c.readBase(dst, base)
}

// fsgsbase tells that the instructions that read the bases of fs and gs may be used.
func (c *compiler) fsgsbase() bool { return c.env.HWCAP2&hwcap2FSGSBase != 0 }

// readBase is rdfsbase (0) or rdgsbase (1).
func (c *compiler) readBase(dst, which xreg) {
	c.bytes(0xf3)
	c.ins(8, 0x0fae, which, inReg(dst))
}

// region is the place at off in memory that a program may access.
func (c *compiler) region(mem program.Region, off int) place {
	if mem == program.InRecord {
		return inMem(c.record, int32(off))
	}
	return inMem(sp, c.frame.top+int32(off))
}
