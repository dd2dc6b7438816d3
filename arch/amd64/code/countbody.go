package code

import (
	"fmt"
	"math/bits"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/arch/amd64"
)

type trapBody struct{}

// TrapBody is an int3.
func (Arch) TrapBody() arch.Body { return trapBody{} }

// Assemble generates the breakpoint.
func (trapBody) Assemble(at arch.Addr) (arch.BodyCode, error) {
	return arch.BodyCode{Code: []byte{0xcc}, Stops: arch.Stops{{At: at, Why: arch.StopUntaken}}}, nil
}

// countBody adds one to a counter. What lock inc and the choice of the counter change is kept
// in registers that are dead, else on the stack:
//
//	lea -128(%rsp),%rsp     if something is pushed and there may be a red zone
//	push …
//	lahf; seto %al          unless the flags are dead; this is much faster than pushf, popf
//	…                       one of several counters, by the stack pointer
//	lock incq counter
//	add $0x7f,%al; sahf     overflow first, then the others
//	pop …
//	lea 128(%rsp),%rsp
type countBody struct {
	cells   arch.Addr
	n       int
	flags   bool // are kept
	redZone bool
	saveIn  int // register that keeps rax, or noReg
	scratch [2]byte
	pushed  []byte
}

// CountBody adds one to one of n counters (64 bits, 64 bytes apart, n a power of two) at
// cells. Threads whose stacks are in different places use different ones, most of the time.
// It uses at most 24 bytes of stack and the red zone. If these can't be written (a guard page) the
// hit is not counted: arch.StopUncounted.
func (Arch) CountBody(cells arch.Addr, n int, dead arch.Dead, redZone bool) arch.Body {
	b := countBody{cells: cells, n: n, flags: !dead.Flags, redZone: redZone, saveIn: noReg}
	free := deadRegs(dead, b.flags)
	if n > 1 {
		for _, reg := range []byte{cx, dx} {
			if len(free) < len(b.scratch) && dead.Regs>>reg&1 == 0 {
				free = append(free, reg)
				b.pushed = append(b.pushed, reg)
			}
		}
		b.scratch, free = [2]byte(free), free[len(b.scratch):]
	}
	switch {
	case !b.flags, dead.Regs&(1<<ax) != 0:
	case len(free) > 0:
		b.saveIn = int(free[0])
	default:
		b.pushed = append(b.pushed, ax)
	}
	return b
}

// deadRegs lists the dead registers that may be changed, without rax if that is for the flags.
func deadRegs(dead arch.Dead, flags bool) (regs []byte) {
	for reg := byte(0); reg < 16; reg++ {
		if dead.Regs>>reg&1 != 0 && reg != sp && (reg != ax || !flags) {
			regs = append(regs, reg)
		}
	}
	return regs
}

// Assemble generates the body. The error wraps arch.ErrReach if the counters are too far away.
func (b countBody) Assemble(at arch.Addr) (arch.BodyCode, error) {
	const usual = 64 // bytes
	a := &asm{at: at, code: make([]byte, 0, usual)}
	faults := b.save(a)
	if b.flags {
		a.emit(0x9f, 0x0f, 0x90, 0xc0) // lahf; seto %al
	}
	b.count(a)
	if b.flags {
		a.emit(0x04, 0x7f, 0x9e) // add $0x7f,%al; sahf
	}
	out := arch.BodyCode{Stops: b.restore(a, faults)}
	if out.Code = a.code; a.err != nil {
		return out, fmt.Errorf("counter at %s: %w", b.cells, a.err)
	}
	return out, nil
}

// save returns the addresses of the pushes.
func (b countBody) save(a *asm) (pushes []arch.Addr) {
	pushes = make([]arch.Addr, 0, len(b.pushed))
	if b.redZone && len(b.pushed) > 0 {
		a.moveSP(-amd64.RedZone)
	}
	for _, reg := range b.pushed {
		pushes = append(pushes, a.here())
		a.push(reg)
	}
	if b.saveIn != noReg {
		a.mov(byte(b.saveIn), ax)
	}
	return pushes
}

// restore undoes save. After a push that faulted, the words that were pushed before are
// popped.
func (b countBody) restore(a *asm, pushes []arch.Addr) (faults arch.Stops) {
	if b.saveIn != noReg {
		a.mov(ax, byte(b.saveIn))
	}
	faults = make(arch.Stops, 0, len(b.pushed))
	for k := len(b.pushed) - 1; k >= 0; k-- {
		a.pop(b.pushed[k])
		faults = append(faults, arch.Stop{At: pushes[k], Why: arch.StopUncounted, To: a.here()})
	}
	if b.redZone && len(b.pushed) > 0 {
		a.moveSP(amd64.RedZone)
	}
	return faults
}

// count adds one.
func (b countBody) count(a *asm) {
	if b.n <= 1 {
		a.emit(0xf0, 0x48, 0xff, 0x05) // lock incq cells(%rip)
		a.rel32(b.cells, 0)
		return
	}
	hash, base := b.scratch[0], b.scratch[1]
	b.choose(a, hash)
	a.lea(base, b.cells)
	// lock incq (base,hash), with a displacement of 0 since rbp and r13 need one
	a.emit(0xf0, 0x48|hash>>3<<1|base>>3, 0xff, 0x44, hash&7<<3|base&7, 0)
}

// choose puts the offset of one of n counters into reg. Stacks of threads lie a power of two,
// or that and a page, apart from each other, and goroutines' anyhow: the page's number times
// 2³² by the golden ratio spreads all of them over the uppermost bits.
func (b countBody) choose(a *asm, reg byte) {
	const page, line, golden = 12, 6, 0x9e3779b1
	width := bits.Len(uint(b.n)) - 1
	ext, low := reg>>3, reg&7
	a.mov(reg, sp)
	a.emit(0x48|ext, 0xc1, 0xe8|low, page)         // shr $12,reg
	a.emit(0x40|ext<<2|ext, 0x69, 0xc0|low<<3|low) // imul $golden,reg32,reg32
	a.imm32(golden)
	a.emit(0x40|ext, 0xc1, 0xe8|low, byte(32-line-width)) // shr …,reg32
	a.emit(0x40|ext, 0x81, 0xe0|low)                      // and $(n-1)*64,reg32
	a.imm32(uint32(1)<<(line+width) - 1<<line)
}
