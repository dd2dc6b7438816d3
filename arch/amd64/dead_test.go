package amd64_test

import (
	"testing"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/arch/amd64"
)

func TestDead(t *testing.T) {
	const ax, cx, dx, bx, bp, si, di, r8 = 1 << 0, 1 << 1, 1 << 2, 1 << 3, 1 << 5, 1 << 6, 1 << 7, 1 << 8
	for _, c := range []struct {
		asm, code string
		want      arch.Dead
	}{
		{"nothing", "", arch.Dead{}},
		{"xor %eax,%eax", "31 c0", arch.Dead{Flags: true, Regs: ax}},
		{"xor %r8,%r8", "4d 31 c0", arch.Dead{Flags: true, Regs: r8}},
		{"xor %r8,%rax", "4c 31 c0", arch.Dead{Flags: true}},
		{"xor %al,%al", "30 c0", arch.Dead{Flags: true}},
		{"xor %ax,%ax", "66 31 c0", arch.Dead{Flags: true}},
		{"sub %rcx,%rcx", "48 29 c9", arch.Dead{Flags: true, Regs: cx}},
		{"sbb %ecx,%ecx", "19 c9", arch.Dead{}},
		{"adc $1,%eax; xor %ecx,%ecx", "83 d0 01 31 c9", arch.Dead{Regs: cx}},
		{"add $1,%eax", "83 c0 01", arch.Dead{Flags: true}},
		{"cmp $1,%eax; mov $1,%eax", "3d 01 00 00 00 b8 01 00 00 00", arch.Dead{Flags: true}},
		{"mov $1,%eax; cmp $1,%eax", "b8 01 00 00 00 3d 01 00 00 00", arch.Dead{Flags: true, Regs: ax}},
		{"mov $1,%al", "b0 01", arch.Dead{}},
		{"mov $1,%ah; mov $1,%eax", "b4 01 b8 01 00 00 00", arch.Dead{}},
		{"mov $1,%ax", "66 b8 01 00", arch.Dead{}},
		{"mov %rsp,%rbp", "48 89 e5", arch.Dead{Regs: bp}},
		{"push %rbp; mov %rsp,%rbp; sub $16,%rsp", "55 48 89 e5 48 83 ec 10", arch.Dead{Flags: true}},
		{"endbr64; mov %rdi,%rax", "f3 0f 1e fa 48 89 f8", arch.Dead{Regs: ax}},
		{"mov (%rdi),%rax; mov $1,%ecx", "48 8b 07 b9 01 00 00 00", arch.Dead{}}, // may fault
		{"mov 8(%rsp),%rax", "48 8b 44 24 08", arch.Dead{Regs: ax}},
		{"mov 8(%rsp,%rcx),%rax", "48 8b 44 0c 08", arch.Dead{}},
		{"mov 16(%rip),%rax", "48 8b 05 10 00 00 00", arch.Dead{}}, // may fault: data can be protected, or a file cut
		{"mov %rax,16(%rip); mov $1,%ecx", "48 89 05 10 00 00 00 b9 01 00 00 00", arch.Dead{}},
		{"mov $1,%ecx; mov 16(%rip),%rax", "b9 01 00 00 00 48 8b 05 10 00 00 00", arch.Dead{Regs: cx}},
		{"lea 16(%rip),%rax", "48 8d 05 10 00 00 00", arch.Dead{Regs: ax}},
		{"cmpl $0,16(%rip); mov $1,%ecx", "83 3d 10 00 00 00 00 b9 01 00 00 00", arch.Dead{Flags: true}},
		{"mov %fs:40,%rax; xor %eax,%eax", "64 48 8b 04 25 28 00 00 00 31 c0", arch.Dead{Flags: true, Regs: ax}},
		{"mov %fs:(%rcx),%rax", "64 48 8b 01", arch.Dead{}},
		{"mov 0x10000000,%eax", "8b 04 25 00 00 00 10", arch.Dead{}},
		{"lea (%rdi,%rsi),%rdx; mov $0,%esi", "48 8d 14 37 be 00 00 00 00", arch.Dead{Regs: dx}},
		{"pop %rbx", "5b", arch.Dead{Regs: bx}},
		{"pop %bx", "66 5b", arch.Dead{}},
		{"pop %rsp", "5c", arch.Dead{}},
		{"movzbl %ah,%ecx; mov $1,%eax", "0f b6 cc b8 01 00 00 00", arch.Dead{Regs: cx}},
		{"movzbl %sil,%ecx", "40 0f b6 ce", arch.Dead{Regs: cx}},
		{"movslq %edi,%rdi", "48 63 ff", arch.Dead{}},
		{"inc %eax", "ff c0", arch.Dead{}},
		{"inc %eax; test %eax,%eax", "ff c0 85 c0", arch.Dead{Flags: true}},
		{"imul $3,%edi,%eax; inc %edi", "6b c7 03 ff c7", arch.Dead{Flags: true, Regs: ax}},
		{"neg %eax", "f7 d8", arch.Dead{Flags: true}},
		{"not %eax", "f7 d0", arch.Dead{}},
		{"sete %al; xor %eax,%eax", "0f 94 c0 31 c0", arch.Dead{}},
		{"cmove %ecx,%eax; test %eax,%eax", "0f 44 c1 85 c0", arch.Dead{}},
		{"test $1,%al", "a8 01", arch.Dead{Flags: true}},
		{"shl %eax; test %eax,%eax", "d1 e0 85 c0", arch.Dead{}}, // not known
		{"nop; xor %edi,%edi", "90 31 ff", arch.Dead{Flags: true, Regs: di}},
		{"xchg %rax,%r8; xor %eax,%eax", "49 90 31 c0", arch.Dead{}},
		{"nopw (%rax); mov $1,%eax", "66 0f 1f 00 b8 01 00 00 00", arch.Dead{}},
		{"nopw (%rax); mov $1,%ecx", "66 0f 1f 00 b9 01 00 00 00", arch.Dead{Regs: cx}},
		{"pxor %xmm0,%xmm0; mov $1,%eax", "66 0f ef c0 b8 01 00 00 00", arch.Dead{Regs: ax}},
		{"movups %xmm0,8(%rsp); mov %rsi,%rdi", "0f 11 44 24 08 48 89 f7", arch.Dead{Regs: di}},
		{"movups %xmm0,(%rdi); mov $1,%esi; test %eax,%eax", "0f 11 07 be 01 00 00 00 85 c0", arch.Dead{Flags: true}},
		{"jmp; xor %eax,%eax", "eb 00 31 c0", arch.Dead{}},
		{"call; xor %eax,%eax", "e8 00 00 00 00 31 c0", arch.Dead{}},
		{"ret; xor %eax,%eax", "c3 31 c0", arch.Dead{}},
		{"pushf; xor %eax,%eax", "9c 31 c0", arch.Dead{}},
		{"syscall; xor %eax,%eax", "0f 05 31 c0", arch.Dead{}},
		{"mov $1,%eax; jmp; mov $1,%ecx", "b8 01 00 00 00 eb 00 b9 01 00 00 00", arch.Dead{Regs: ax}},
	} {
		if got := (amd64.Arch{}).Dead(sequence(t, unhex(t, c.code), tableAt)); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.asm, got, c.want)
		}
	}
}
