package code

import (
	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/arch/amd64"
)

// What bodies at functions' entries do to replace a return address (arch.FollowWork.Replaces).

// relayOf makes the key in rsi, whose bucket is at rdx, that of the relay which is to be put into the place of its return address.
func (t *callTable) relayOf(a *asm, w arch.FollowWork, depth int, trap, orphan *spot) {
	a.emit(0x48, 0x0f, 0xba, 0xee, 63) // bts $63,%rsi: relayLine
	var found spot
	for k := range 7 {
		a.emit(0x48, 0x83, 0xc2, 8) // add $8,%rdx
		a.emit(0x48, 0x39, 0x32)    // cmp %rsi,(%rdx)
		if k < 6 {
			a.to(amd64.CondE, &found)
		}
	}
	a.to(amd64.CondNE, trap)
	a.place(&found)
	a.emit(0x48, 0x8b, 0xb2) // mov leadsOff(%rdx),%rsi
	a.imm32(leadsOff)
	a.onStack(0x8b, ax, depth)                     // mov …(%rsp),%rax
	a.emit(0x48, 0x39, 0x46, byte(len(relayHead))) // cmp %rax,8(%rsi): does it lead there?
	a.to(amd64.CondNE, trap)
	a.emit(0x89, 0xf1) // mov %esi,%ecx
	t.bucketOfKey(a)
	a.emit(0xf7, 0x42, 0x100+markOff) // testl $MarkDied,mark(%rdx)
	a.imm32(arch.MarkDied)
	a.to(amd64.CondNE, orphan)
	a.emit(0x48, 0x83, 0x3c, 0x0a, 0) // cmpq $0,(%rdx,%rcx)
	a.to(amd64.CondNE, trap)
	a.abs(ax, knownKey(0, w.Line))
	a.emit(0x48, 0x09, 0xc6) // or %rax,%rsi
}

// addressOf makes rax the return address in the key in rsi.
func addressOf(a *asm) {
	a.mov(ax, si)
	a.emit(0x48, 0xc1, 0xe0, keyLine) // shl $16,%rax
	a.emit(0x48, 0xc1, 0xe8, keyLine) // shr $16,%rax
}
