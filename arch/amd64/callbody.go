package amd64

import (
	"github.com/gokprobe/gokprobe/arch"
)

// The bodies that follow calls (arch.CallTable). What they need is five registers, which are
// pushed below the red zone, and the flags:
//
//	lea -128(%rsp),%rsp; push …; lahf; seto %al; push %rax
//	…                                                        jcc trap
//	jmp 1f
//	trap: pop %rax; add $0x7f,%al; sahf; pop …; lea 128(%rsp),%rsp; int3
//	1:    pop %rax; add $0x7f,%al; sahf; pop …; lea 128(%rsp),%rsp
//
// A push that faults ends at the breakpoint as well: the tracer does what the body would have.
const (
	callPushes = 6
	callFrame  = redZoneLen + 8*callPushes // bytes that the stack pointer is lower inside
)

var callSaved = [callPushes - 1]byte{ax, cx, dx, si, di}

// spot is a place that jumps lead to before it is known.
type spot struct{ jumps []int }

// to is a conditional jump to l.
func (a *asm) to(cc byte, l *spot) {
	a.emit(0x0f, 0x80|cc, 0, 0, 0, 0)
	l.jumps = append(l.jumps, len(a.code))
}

// goTo is a jump to l.
func (a *asm) goTo(l *spot) {
	a.emit(0xe9, 0, 0, 0, 0)
	l.jumps = append(l.jumps, len(a.code))
}

// place makes the jumps to l lead here.
func (a *asm) place(l *spot) {
	for _, from := range l.jumps {
		d := len(a.code) - from
		for k := range 4 {
			a.code[from-4+k] = byte(d >> (8 * k))
		}
	}
}

// abs loads a constant.
func (a *asm) abs(reg byte, v uint64) {
	a.emit(0x48, 0xb8|reg)
	a.imm32(uint32(v))
	a.imm32(uint32(v >> 32))
}

// callBody generates work between saving and restoring.
type callBody struct{ work func(a *asm, trap *spot) }

// Assemble generates the body; it reaches everything from anywhere.
func (b callBody) Assemble(at arch.Addr) (out arch.BodyCode, err error) {
	a := &asm{at: at}
	var trap spot
	var pushes []arch.Addr
	a.moveSP(-redZoneLen)
	for _, reg := range callSaved {
		pushes = append(pushes, a.here())
		a.push(reg)
	}
	a.emit(0x9f, 0x0f, 0x90, 0xc0) // lahf; seto %al
	pushes = append(pushes, a.here())
	a.push(ax)
	b.work(a, &trap)
	over := a.short(0xeb)
	a.place(&trap)
	afterPops := restoreCall(a)
	out.Traps = []arch.Addr{a.here()}
	a.emit(0xcc)
	a.land(over)
	restoreCall(a)
	for k, at := range pushes {
		out.Fixups = append(out.Fixups, arch.Fixup{At: at, To: afterPops[k]})
	}
	out.Code = a.code
	return out, a.err
}

// restoreCall undoes the pushes. It returns where a thread goes on that has pushed k registers.
func restoreCall(a *asm) (after [callPushes]arch.Addr) {
	a.pop(ax)
	after[callPushes-1] = a.here()
	a.emit(0x04, 0x7f, 0x9e) // add $0x7f,%al; sahf
	for k := len(callSaved) - 1; k >= 0; k-- {
		a.pop(callSaved[k])
		after[k] = a.here()
	}
	a.moveSP(redZoneLen)
	return after
}

// findBucket puts the address of the bucket of the frame in rcx into rdx; rax is lost.
func (t *callTable) findBucket(a *asm) {
	a.mov(ax, cx)
	a.emit(0x48, 0xc1, 0xe8, 4) // shr $4,%rax
	a.emit(0x69, 0xc0)          // imul $golden,%eax,%eax
	a.imm32(golden)
	a.emit(0xc1, 0xe8, 32-slotBits) // shr …,%eax
	a.emit(0xc1, 0xe0, 8)           // shl $8,%eax
	a.abs(dx, uint64(t.base+slotsOff))
	a.emit(0x48, 0x01, 0xc2) // add %rax,%rdx
}

// nextSlot goes back to loop until rdx has been at all slots of its bucket.
func nextSlot(a *asm, loop arch.Addr) {
	a.emit(0x48, 0x83, 0xc2, callSlot) // add $32,%rdx
	a.emit(0xf6, 0xc2, slotBucket-1)   // test $255,%dl
	a.jcc(ccNE, loop)
}

// FollowBody follows a call unless it is unusual. It uses 48 bytes of stack and the red zone.
func (Arch) FollowBody(w arch.FollowWork) arch.Body {
	return callBody{func(a *asm, trap *spot) { follow(a, w, trap) }}
}

// follow: rcx is the CFA, rdx a slot, rsi the return address, rdi the line, rax a free slot.
func follow(a *asm, w arch.FollowWork, trap *spot) {
	t := w.Table.(*callTable)
	t.known(a, w.ID, trap)
	var undo, done spot
	a.abs(di, uint64(w.Line))
	a.emit(0xb8, 1, 0, 0, 0)             // mov $1,%eax
	a.emit(0xf0, 0x48, 0x0f, 0xc1, 0x07) // lock xadd %rax,(%rdi)
	a.emit(0x0f, 0xb7, 0xc0)             // movzwl %ax,%eax
	a.emit(0x3b, 0x47, 8)                // cmp 8(%rdi),%eax
	a.to(ccAE, &undo)
	scan := a.here()
	a.emit(0x48, 0x8d, 0x8c, 0x24) // lea …(%rsp),%rcx
	a.imm32(callFrame + 8)
	t.findBucket(a)
	a.emit(0x31, 0xc0) // xor %eax,%eax
	loop := a.here()
	var same spot
	a.emit(0x48, 0x39, 0x0a) // cmp %rcx,(%rdx)
	a.to(ccE, &same)
	a.emit(0x48, 0x83, 0x3a, 0)    // cmpq $0,(%rdx)
	a.emit(0x48, 0x0f, 0x44, 0xc2) // cmove %rdx,%rax
	next := a.here()
	nextSlot(a, loop)
	claim(a, w, scan, &undo)
	a.goTo(&done)
	a.place(&same)
	tailCall(a, next, &undo, &done)
	a.place(&undo)
	a.emit(0xf0, 0x48, 0xff, 0x0f) // lock decq (%rdi)
	a.goTo(trap)
	a.place(&done)
}

// known traps unless the return address, which it puts into rsi, is known for calls of id and
// the table is open.
func (t *callTable) known(a *asm, id uint16, trap *spot) {
	a.emit(0x48, 0x8b, 0xb4, 0x24) // mov …(%rsp),%rsi
	a.imm32(callFrame)
	a.emit(0x89, 0xf1) // mov %esi,%ecx
	a.emit(0x69, 0xc9) // imul $golden,%ecx,%ecx
	a.imm32(golden)
	a.emit(0xc1, 0xe9, 32-knownBits) // shr …,%ecx
	a.emit(0xc1, 0xe1, 6)            // shl $6,%ecx
	a.abs(dx, uint64(t.base))
	a.emit(0x48, 0x83, 0x7a, 0xc0, 0) // cmpq $0,-64(%rdx)
	a.to(ccNE, trap)
	a.emit(0x48, 0x01, 0xca)    // add %rcx,%rdx
	a.emit(0x48, 0x83, 0x3a, 0) // cmpq $0,(%rdx)
	a.to(ccNE, trap)
	a.abs(ax, uint64(id)<<48)
	a.emit(0x48, 0x09, 0xf0) // or %rsi,%rax
	var found spot
	for k := byte(1); k < 8; k++ {
		a.emit(0x48, 0x39, 0x42, 8*k) // cmp %rax,…(%rdx)
		if k < 7 {
			a.to(ccE, &found)
		}
	}
	a.to(ccNE, trap)
	a.place(&found)
}

// claim fills the free slot at rax. Another thread may be faster: then all is looked at again.
func claim(a *asm, w arch.FollowWork, scan arch.Addr, undo *spot) {
	a.emit(0x48, 0x85, 0xc0) // test %rax,%rax
	a.to(ccE, undo)
	a.mov(dx, ax)
	a.emit(0x31, 0xc0)                   // xor %eax,%eax
	a.emit(0xb9, 1, 0, 0, 0)             // mov $1,%ecx
	a.emit(0xf0, 0x48, 0x0f, 0xb1, 0x0a) // lock cmpxchg %rcx,(%rdx)
	a.jcc(ccNE, scan)
	a.emit(0x48, 0x89, 0x72, 8)        // mov %rsi,8(%rdx)
	a.emit(0x48, 0x89, 0x7a, 16)       // mov %rdi,16(%rdx)
	a.emit(0x48, 0xc7, 0x42, 24)       // movq $…,24(%rdx)
	a.imm32(2 | uint32(flag(w.Jumps))) // one call
	a.emit(0x48, 0x8d, 0x8c, 0x24)     // lea …(%rsp),%rcx
	a.imm32(callFrame + 8)
	a.emit(0x48, 0x89, 0x0a) // mov %rcx,(%rdx)
}

func flag(on bool) byte {
	if on {
		return 1
	}
	return 0
}

// tailCall deals with a call that is in the frame already, at rdx. A thread comes here from there by a jump, if
// the function jumps; or that call has ended otherwise, which is for the tracer.
func tailCall(a *asm, next arch.Addr, undo, done *spot) {
	a.emit(0x48, 0x39, 0x72, 8) // cmp %rsi,8(%rdx)
	a.to(ccNE, undo)
	a.emit(0xf6, 0x42, 24, 1) // testb $1,24(%rdx)
	a.to(ccE, undo)
	a.emit(0x48, 0x39, 0x7a, 16) // cmp %rdi,16(%rdx)
	other := a.short(0x75)
	a.emit(0x48, 0x83, 0x42, 24, 2) // addq $2,24(%rdx)
	a.goTo(done)
	a.land(other)
	a.jmp(next)
}

// ReturnBody ends the calls of the frame that a thread has returned from to ret. It uses 48 bytes of
// stack and the red zone, of which it reads what ret has popped.
func (Arch) ReturnBody(table arch.CallTable, ret arch.Addr) arch.Body {
	t := table.(*callTable)
	return callBody{func(a *asm, trap *spot) { t.returned(a, ret, trap) }}
}

// returned: rcx is the CFA, rdx a slot.
func (t *callTable) returned(a *asm, ret arch.Addr, trap *spot) {
	a.emit(0x48, 0x8d, 0x8c, 0x24) // lea …(%rsp),%rcx
	a.imm32(callFrame)
	t.findBucket(a)
	loop := a.here()
	var match spot
	a.emit(0x48, 0x39, 0x0a) // cmp %rcx,(%rdx)
	a.to(ccE, &match)
	nextSlot(a, loop)
	held := a.here()
	a.abs(dx, uint64(t.base+arch.Addr(knownOff(ret))))
	a.emit(0x48, 0x83, 0x3a, 0) // cmpq $0,(%rdx)
	a.to(ccNE, trap)
	over := a.short(0xeb)
	a.place(&match)
	a.abs(ax, uint64(ret))
	a.emit(0x48, 0x39, 0x42, 8) // cmp %rax,8(%rdx)
	a.to(ccNE, trap)
	a.emit(0x48, 0x39, 0x84, 0x24) // cmp %rax,…(%rsp)
	a.imm32(callFrame - 8)
	a.to(ccNE, trap)
	a.emit(0x48, 0x8b, 0x7a, 16) // mov 16(%rdx),%rdi
	a.emit(0x48, 0x8b, 0x72, 24) // mov 24(%rdx),%rsi
	a.emit(0x48, 0xd1, 0xee)     // shr %rsi
	a.emit(0x48, 0x69, 0xf6)     // imul $…,%rsi,%rsi: so many more have returned, and fewer are in flight
	a.imm32(1<<lineShift - 1)
	a.mov(ax, cx)
	a.emit(0x31, 0xc9)                   // xor %ecx,%ecx
	a.emit(0xf0, 0x48, 0x0f, 0xb1, 0x0a) // lock cmpxchg %rcx,(%rdx)
	a.to(ccNE, trap)
	a.mov(cx, ax)
	a.emit(0xf0, 0x48, 0x01, 0x37) // lock add %rsi,(%rdi)
	nextSlot(a, loop)
	a.jmp(held)
	a.land(over)
}
