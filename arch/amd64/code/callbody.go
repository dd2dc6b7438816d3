package code

import (
	"cmp"
	"errors"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/arch/amd64"
)

// The bodies that follow calls (arch.CallTable). They need four registers, which they
// push below the red zone, and the flags:
//
//	lea -128(%rsp),%rsp; push …; lahf; seto %al; push %rax
//	…                                                        jcc trap
//	jmp 1f
//	trap: pop %rax; add $0x7f,%al; sahf; pop …; lea 128(%rsp),%rsp; int3
//	1:    pop %rax; add $0x7f,%al; sahf; pop …; lea 128(%rsp),%rsp
//
// without what is dead. A push that faults ends at the breakpoint as well: the tracer does what
// the body would have.

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

// onStack is an instruction whose operand is n bytes above the stack pointer.
func (a *asm) onStack(op, reg byte, n int) {
	a.emit(0x48, op, 0x84|reg<<3, 0x24)
	a.imm32(uint32(n))
}

// callBody is work between saving and restoring.
type callBody struct {
	flags  bool   // are kept
	pushed []byte // registers
	work   func(a *asm, depth int, trap *spot)
	then   arch.Body // behind it, if it is not nil
}

func newCallBody(dead arch.Dead, work func(a *asm, depth int, trap *spot)) callBody {
	b := callBody{flags: !dead.Flags, work: work}
	for _, reg := range []byte{ax, cx, dx, si} {
		if dead.Regs>>reg&1 == 0 {
			b.pushed = append(b.pushed, reg)
		}
	}
	return b
}

// Assemble generates the body. If no code of ours follows it, it reaches everything
// from anywhere.
func (b callBody) Assemble(at arch.Addr) (out arch.BodyCode, err error) {
	a := &asm{at: at}
	var stores []arch.Addr // on the stack, and how many registers have been pushed before
	var before []int
	below := amd64.RedZone
	if b.then != nil {
		below = arch.ThenBelow
	}
	a.moveSP(int32(-below))
	if b.then != nil { // there will be room for that too, or nothing is done
		stores, before = append(stores, a.here()), append(before, 0)
		a.onStack(0x89, ax, -arch.ThenRoom)
	}
	for n, reg := range b.pushed {
		stores, before = append(stores, a.here()), append(before, n)
		a.push(reg)
	}
	pushed := len(b.pushed)
	if b.flags {
		a.emit(0x9f, 0x0f, 0x90, 0xc0) // lahf; seto %al
		stores, before = append(stores, a.here()), append(before, pushed)
		a.push(ax)
		pushed++
	}
	var trap spot
	b.work(a, below+8*pushed, &trap)
	over := a.short(0xeb)
	a.place(&trap)
	after := b.restore(a)
	a.moveSP(int32(below))
	out.Stops = arch.Stops{{At: a.here(), Why: arch.StopCall}}
	a.emit(0xcc, 0xcc) // only who has trapped stands behind the first
	a.land(over)
	b.restore(a)
	for k, at := range stores {
		out.Stops = append(out.Stops, arch.Stop{At: at, Why: arch.StopFault, To: after[before[k]]})
	}
	out.Stops = append(out.Stops, a.stops...)
	if b.then != nil {
		then, err := b.then.Assemble(a.here())
		if err != nil && (!errors.Is(err, arch.ErrReach) || then.Code == nil) {
			return arch.BodyCode{}, err
		}
		a.err = cmp.Or(a.err, err)
		a.emit(then.Code...)
		out.Stops = append(out.Stops, then.Stops...)
	}
	a.moveSP(int32(below))
	out.Code = a.code
	return out, a.err
}

// restore undoes the pushes. It returns where a thread goes on that has pushed k registers.
func (b callBody) restore(a *asm) (after []arch.Addr) {
	after = make([]arch.Addr, len(b.pushed)+1)
	if b.flags {
		a.pop(ax)
		a.emit(0x04, 0x7f, 0x9e) // add $0x7f,%al; sahf
	}
	for k := len(b.pushed) - 1; k >= 0; k-- {
		after[k+1] = a.here()
		a.pop(b.pushed[k])
	}
	after[0] = a.here()
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

// inBucket looks through the bucket at rdx: found[k] is jumped to if the frame in rcx has slot k.
func inBucket(a *asm, found *[8]spot) {
	for k := range found {
		a.emit(0x48, 0x39, 0x4a, byte(8*k)) // cmp %rcx,…(%rdx)
		a.to(amd64.CondE, &found[k])
	}
}

// slotOf makes rdx the slot for which a jump of inBucket was taken.
func slotOf(a *asm, found *[8]spot, then *spot) {
	for k := range found {
		a.place(&found[k])
		a.emit(0x48, 0x83, 0xc2, byte(8*k)) // add $…,%rdx
		if k < len(found)-1 {
			a.goTo(then)
		}
	}
	a.place(then)
}

// FollowBody follows a call unless it is unusual. It uses at most 40 bytes of stack and the red zone.
func (Arch) FollowBody(w arch.FollowWork) arch.Body {
	return newCallBody(w.Dead, func(a *asm, depth int, trap *spot) { follow(a, w, depth, trap) })
}

// follow: rcx is the CFA, rdx a slot, rsi the key.
func follow(a *asm, w arch.FollowWork, depth int, trap *spot) {
	t := w.Table.(*callTable)
	var undo, done spot
	t.known(a, w, depth, trap, &done)
	a.abs(dx, uint64(t.lineAt(w.Line)))
	a.emit(0xb8, 1, 0, 0, 0)             // mov $1,%eax
	a.emit(0xf0, 0x48, 0x0f, 0xc1, 0x02) // lock xadd %rax,(%rdx)
	a.emit(0x0f, 0xb7, 0xc0)             // movzwl %ax,%eax
	a.emit(0x3b, 0x42, 8)                // cmp 8(%rdx),%eax
	a.to(amd64.CondAE, &undo)
	scan := a.here()
	a.onStack(0x8d, cx, depth+8) // lea …(%rsp),%rcx
	t.findBucket(a)
	var found [8]spot
	inBucket(a, &found)
	claim(a, w, depth, scan, 0, &undo)
	a.goTo(&done)
	var same spot
	slotOf(a, &found, &same)
	if !w.Timed {
		tailCall(a, w, depth, &undo, &done)
		claim(a, w, depth, scan, infoShared, &undo)
		a.goTo(&done)
	}
	a.place(&undo)
	a.abs(dx, uint64(t.lineAt(w.Line)))
	a.emit(0xf0, 0x48, 0xff, 0x0a) // lock decq (%rdx)
	a.goTo(trap)
	a.place(&done)
}

func (t *callTable) lineAt(n uint16) arch.Addr { return t.base + linesOff + callLineLen*arch.Addr(n) }

// known puts the key into rsi, and traps unless it is known and the table open. If the return address is to be replaced the key is the relay's,
// and orphan is where a call goes on if the tracer has died.
func (t *callTable) known(a *asm, w arch.FollowWork, depth int, trap, orphan *spot) {
	a.onStack(0x8b, si, depth) // mov …(%rsp),%rsi
	a.emit(0x89, 0xf1)         // mov %esi,%ecx
	t.bucketOfKey(a)
	a.emit(0x48, 0x83, 0x7a, 0xc0, 0) // cmpq $0,-64(%rdx)
	a.to(amd64.CondNE, trap)
	a.emit(0x48, 0x01, 0xca)    // add %rcx,%rdx
	a.emit(0x48, 0x83, 0x3a, 0) // cmpq $0,(%rdx)
	a.to(amd64.CondNE, trap)
	a.abs(ax, knownKey(0, w.Line))
	a.emit(0x48, 0x09, 0xc6) // or %rax,%rsi
	var found spot
	for k := byte(1); k < 8; k++ {
		a.emit(0x48, 0x39, 0x72, 8*k) // cmp %rsi,…(%rdx)
		if k < 7 || w.Replaces {
			a.to(amd64.CondE, &found)
		}
	}
	if w.Replaces {
		t.relayOf(a, w, depth, trap, orphan)
	} else {
		a.to(amd64.CondNE, trap)
	}
	a.place(&found)
}

// bucketOfKey makes rcx the offset of the bucket of the address in ecx, and rdx the table.
func (t *callTable) bucketOfKey(a *asm) {
	a.emit(0x69, 0xc9) // imul $golden,%ecx,%ecx
	a.imm32(golden)
	a.emit(0xc1, 0xe9, 32-knownBits) // shr …,%ecx
	a.emit(0xc1, 0xe1, 6)            // shl $6,%ecx
	a.abs(dx, uint64(t.base))
}

// claim fills a free slot of the bucket at rdx. Another thread may be faster: then all is looked
// at again.
func claim(a *asm, w arch.FollowWork, depth int, scan arch.Addr, info uint32, undo *spot) {
	if info |= 1 << infoShift; w.Jumps {
		info |= infoJumps
	}

	a.emit(0x31, 0xc0) // xor %eax,%eax
	var found spot
	for k := range 8 {
		a.emit(0x48, 0x39, 0x02) // cmp %rax,(%rdx)
		a.to(amd64.CondE, &found)
		if k < 7 {
			a.emit(0x48, 0x83, 0xc2, 8) // add $8,%rdx
		}
	}
	a.goTo(undo)
	a.place(&found)
	a.emit(0xb9, 1, 0, 0, 0)             // mov $1,%ecx
	a.emit(0xf0, 0x48, 0x0f, 0xb1, 0x0a) // lock cmpxchg %rcx,(%rdx)
	a.jcc(amd64.CondNE, scan)
	if w.Timed {
		a.emit(0x48, 0x89, 0xd1) // mov %rdx,%rcx
		a.ticks()
		a.emit(0x48, 0x89, 0x81) // mov %rax,192(%rcx)
		a.imm32(3 * slotWords)
		a.emit(0x48, 0x89, 0xca) // mov %rcx,%rdx
	}
	a.emit(0x48, 0x89, 0x72, slotWords) // mov %rsi,64(%rdx)
	a.emit(0x48, 0xc7, 0x82)            // movq $…,128(%rdx)
	a.imm32(2 * slotWords)
	a.imm32(info)
	if w.Replaces {
		// The tracer may look whether the return address of a call in the table is where it was. So it is there before. It can be written: the caller has
		// just done so. If it can't any more the call returns where it would have, and is not found at the relay.
		addressOf(a)
		at := a.here()
		a.onStack(0x89, ax, depth) // mov %rax,…(%rsp)
		a.fixup(at)
	}
	a.onStack(0x8d, cx, depth+8) // lea …(%rsp),%rcx
	a.emit(0x48, 0x89, 0x0a)     // mov %rcx,(%rdx)
}

// tailCall deals with a call that is in the frame already, at rdx. A thread comes here from that
// by a jump, if its function jumps; else that has ended in another way, and the tracer is to know. So it has if its return address was replaced, and this call's is not.
// If all that are there are other functions' it goes on behind, with rdx at the bucket.
func tailCall(a *asm, w arch.FollowWork, depth int, undo, done *spot) {
	if w.Replaces {
		addressOf(a)
		a.onStack(0x39, ax, depth) // cmp %rax,…(%rsp)
		a.to(amd64.CondNE, undo)
	}
	same := a.here()
	a.emit(0xf6, 0x82) // testb $infoJumps,128(%rdx)
	a.imm32(2 * slotWords)
	a.emit(infoJumps)
	a.to(amd64.CondE, undo)
	a.emit(0x48, 0x89, 0xf0)            // mov %rsi,%rax
	a.emit(0x48, 0x33, 0x42, slotWords) // xor 64(%rdx),%rax
	other := a.short(0x75)              // jne
	a.emit(0x48, 0x83, 0x82)            // addq $4,128(%rdx)
	a.imm32(2 * slotWords)
	a.emit(1 << infoShift)
	a.goTo(done)
	a.land(other)
	a.emit(0x48, 0xc1, 0xe0, 16) // shl $16,%rax
	a.to(amd64.CondNE, undo)     // returns elsewhere
	a.emit(0x80, 0x8a)           // orb $infoShared,128(%rdx)
	a.imm32(2 * slotWords)
	a.emit(infoShared)
	next := a.here()
	a.emit(0x48, 0x83, 0xc2, 8)     // add $8,%rdx
	a.emit(0xf6, 0xc2, slotWords-8) // test $56,%dl
	end := a.short(0x74)            // je
	a.emit(0x48, 0x39, 0x0a)        // cmp %rcx,(%rdx)
	a.jcc(amd64.CondE, same)
	a.jmp(next)
	a.land(end)
	a.emit(0x48, 0x83, 0xea, slotWords) // sub $64,%rdx
}

// ReturnBody ends the calls of the frame that a thread has returned from to ret. It
// uses at most 40 bytes of stack and the red zone, where it reads the word that ret has
// popped.
func (Arch) ReturnBody(w arch.ReturnWork) arch.Body {
	b := newCallBody(w.Dead, func(a *asm, depth int, trap *spot) { returned(a, w, depth, trap) })
	b.then = w.Then
	return b
}

// ticks reads the time-stamp counter into rax, 0 if prctl(PR_SET_TSC) forbids it; rdx is lost.
func (a *asm) ticks() {
	a.emit(0x31, 0xc0, 0x31, 0xd2) // xor %eax,%eax; xor %edx,%edx
	at := a.here()
	a.emit(0x0f, 0x31) // rdtsc
	a.fixup(at)
	a.emit(0x48, 0xc1, 0xe2, 0x20) // shl $32,%rdx
	a.emit(0x48, 0x09, 0xd0)       // or %rdx,%rax
}

// returned: rcx is the CFA, rdx a slot.
func returned(a *asm, w arch.ReturnWork, depth int, trap *spot) {
	t, ret := w.Table.(*callTable), w.Ret
	duration := depth - arch.ThenBelow // where words for what comes behind are
	line := duration + 8
	var done, match spot
	if w.Then != nil {
		a.emit(0x48, 0xc7, 0x84, 0x24) // movq $0,line(%rsp)
		a.imm32(uint32(line))
		a.imm32(0)
	}
	a.emit(0x31, 0xf6) // xor %esi,%esi: no call is found yet
	scan := a.here()
	a.onStack(0x8d, cx, depth) // lea …(%rsp),%rcx
	t.findBucket(a)
	var found [8]spot
	inBucket(a, &found)
	a.emit(0x85, 0xf6) // test %esi,%esi
	a.to(amd64.CondNE, &done)
	if w.Relay {
		a.goTo(trap)
	} else {
		a.abs(dx, uint64(t.base+arch.Addr(knownOff(ret))))
		a.emit(0x48, 0x83, 0x3a, 0) // cmpq $0,(%rdx)
		a.to(amd64.CondNE, trap)
		a.goTo(&done)
	}
	slotOf(a, &found, &match)
	a.emit(0x48, 0x8b, 0x72, slotWords) // mov 64(%rdx),%rsi
	a.emit(0x48, 0x89, 0xf1)            // mov %rsi,%rcx
	a.emit(0x48, 0xc1, 0xe1, 16)        // shl $16,%rcx
	a.abs(ax, uint64(ret)<<16)
	a.emit(0x48, 0x39, 0xc1) // cmp %rax,%rcx
	a.to(amd64.CondNE, trap)
	a.emit(0x48, 0xc1, 0xe8, 16) // shr $16,%rax
	a.onStack(0x39, ax, depth-8) // cmp %rax,…(%rsp)
	a.to(amd64.CondNE, trap)
	a.emit(0x48, 0x8b, 0x8a) // mov 128(%rdx),%rcx
	a.imm32(2 * slotWords)
	if w.Then != nil {
		a.emit(0x89, 0xc8, 0x83, 0xe0, 0xff&^infoJumps) // mov %ecx,%eax; and $~infoJumps,%eax
		a.emit(0x83, 0xf8, 1<<infoShift)                // cmp $(1<<infoShift),%eax: one call, in a frame of its own
		a.to(amd64.CondNE, trap)
		a.emit(0x48, 0x8b, 0x82) // mov 192(%rdx),%rax
		a.imm32(3 * slotWords)
		a.onStack(0x89, ax, duration)
	}
	a.emit(0x48, 0xc1, 0xe9, infoShift) // shr $2,%rcx
	a.emit(0x48, 0x69, 0xc9)            // imul $…,%rcx,%rcx: so many more have returned, and fewer are in flight
	a.imm32(1<<lineShift - 1)
	a.emit(0x48, 0xc1, 0xee, keyShift) // shr $48,%rsi
	if w.Then != nil {
		a.onStack(0x89, si, line)
	}
	a.emit(0xc1, 0xe6, 6) // shl $6,%esi
	a.abs(ax, uint64(t.base+linesOff))
	a.emit(0x48, 0xc7, 0x02, 0, 0, 0, 0) // movq $0,(%rdx)
	a.emit(0xf0, 0x48, 0x01, 0x0c, 0x06) // lock add %rcx,(%rsi,%rax)
	if w.Then == nil {
		a.jmp(scan)
	} else {
		a.ticks()
		a.onStack(0x2b, ax, duration) // sub duration(%rsp),%rax
		a.onStack(0x89, ax, duration)
	}
	a.place(&done)
}
