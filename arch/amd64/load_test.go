package amd64_test

import (
	"errors"
	"testing"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/arch/amd64"
)

// wordMem has the byte n at each address that ends in n.
type wordMem struct{ fails error }

func (m wordMem) ReadMemory(at arch.Addr, p []byte) error {
	for i := range p {
		p[i] = byte(at) + byte(i)
	}
	return m.fails
}

func (m wordMem) WriteMemory(arch.Addr, []byte) error { return errors.New("written") }

// TestLoadsSetOneRegister: SDM vol. 2A and 2B, MOV, LEA, XOR, NOP.
func TestLoadsSetOneRegister(t *testing.T) {
	for _, c := range []struct {
		name string
		code []byte
		reg  string // that changes; empty: none
		want uint64
	}{
		{"mov $257,%eax", []byte{0xb8, 1, 1, 0, 0}, "rax", 257},
		{"mov $-1,%eax", []byte{0xb8, 0xff, 0xff, 0xff, 0xff}, "rax", 0xffffffff},
		{"mov $-1,%r10d", []byte{0x41, 0xba, 0xff, 0xff, 0xff, 0xff}, "r10", 0xffffffff},
		{"movabs $1<<40,%rdx", []byte{0x48, 0xba, 0, 0, 0, 0, 0, 1, 0, 0}, "rdx", 1 << 40},
		{"mov $15,%rax", []byte{0x48, 0xc7, 0xc0, 15, 0, 0, 0}, "rax", 15},
		{"mov $-2,%rax", []byte{0x48, 0xc7, 0xc0, 0xfe, 0xff, 0xff, 0xff}, "rax", ^uint64(1)},
		{"mov %rcx,%r10", []byte{0x49, 0x89, 0xca}, "r10", 0x1111_0000_0000_0002},
		{"mov %r9,%r8, the other way", []byte{0x4d, 0x8b, 0xc1}, "r8", 0x1111_0000_0000_000a},
		{"mov %edi,%eax", []byte{0x89, 0xf8}, "rax", 8},
		{"xor %eax,%eax", []byte{0x31, 0xc0}, "rax", 0},
		{"xor %r10d,%r10d", []byte{0x45, 0x33, 0xd2}, "r10", 0},
		{"lea 8(%rsp),%rsi", []byte{0x48, 0x8d, 0x74, 0x24, 8}, "rsi", 0x7008},
		{"mov 8(%rsp),%r9", []byte{0x4c, 0x8b, 0x4c, 0x24, 8}, "r9", 0x0f0e0d0c0b0a0908},
		{"mov 8(%rsp),%edi", []byte{0x8b, 0x7c, 0x24, 8}, "rdi", 0x0b0a0908},
		{"nop", []byte{0x90}, "", 0},
		{"nopl 0(%rax)", []byte{0x0f, 0x1f, 0x40, 0}, "", 0},
	} {
		regs := loadRegs()
		want := regs.Clone()
		if c.reg != "" {
			want.Set(c.reg, c.want)
		}
		if err := (amd64.Arch{}).Load(insnOf(t, c.code), regs, wordMem{}); err != nil || !regs.Same(want) {
			t.Errorf("%s: %v\n%+v, want\n%+v", c.name, err, regs, want)
		}
	}
}

// TestWhatIsNoLoadChangesNothing, nor does one that faults.
func TestWhatIsNoLoadChangesNothing(t *testing.T) {
	fault := errors.New("fault")
	for _, c := range []struct {
		name string
		code []byte
		want error
	}{
		{"mov $1,%al", []byte{0xb0, 1}, arch.ErrNoLoad},
		{"mov %cx,%ax", []byte{0x66, 0x89, 0xc8}, arch.ErrNoLoad},
		{"mov %rax,(%rdi)", []byte{0x48, 0x89, 0x07}, arch.ErrNoLoad},
		{"xor %ecx,%eax", []byte{0x31, 0xc8}, arch.ErrNoLoad},
		{"xor (%rax),%eax", []byte{0x33, 0x00}, arch.ErrNoLoad},
		{"add $1,%eax", []byte{0x83, 0xc0, 1}, arch.ErrNoLoad},
		{"xchg %rax,%r8", []byte{0x49, 0x90}, arch.ErrNoLoad},
		{"pause", []byte{0xf3, 0x90}, arch.ErrNoLoad},
		{"push %rax", []byte{0x50}, arch.ErrNoLoad},
		{"syscall", []byte{0x0f, 0x05}, arch.ErrNoLoad},
		{"movl $1,(%rax)", []byte{0xc7, 0x00, 1, 0, 0, 0}, arch.ErrNoLoad},
		{"mov 8(%rsp),%r9, which faults", []byte{0x4c, 0x8b, 0x4c, 0x24, 8}, fault},
	} {
		regs := loadRegs()
		before := regs.Clone()
		if err := (amd64.Arch{}).Load(insnOf(t, c.code), regs, wordMem{fault}); !errors.Is(err, c.want) || !regs.Same(before) {
			t.Errorf("%s: %v, %+v", c.name, err, regs)
		}
	}
}

// TestWhatKeepsTheNumber: nothing that may write rax, or leave.
func TestWhatKeepsTheNumber(t *testing.T) {
	for _, c := range []struct {
		name  string
		code  []byte
		keeps bool
	}{
		{"mov %rcx,%r10", []byte{0x49, 0x89, 0xca}, true},
		{"xor $0x81,%sil", []byte{0x40, 0x80, 0xf6, 0x81}, true},
		{"shl $7,%esi", []byte{0xc1, 0xe6, 7}, true},
		{"and $0x80,%esi", []byte{0x81, 0xe6, 0x80, 0, 0, 0}, true},
		{"je", []byte{0x74, 5}, true},
		{"shl $7,%eax", []byte{0xc1, 0xe0, 7}, false},
		{"mov $1,%al", []byte{0xb0, 1}, false},
		{"mov $1,%ah", []byte{0xb4, 1}, false},
		{"sete %al", []byte{0x0f, 0x94, 0xc0}, false},
		{"or $2,%eax", []byte{0x83, 0xc8, 2}, false},
		{"xchg %rax,%r8", []byte{0x49, 0x90}, false},
		{"pop %rax", []byte{0x58}, false},
		{"cmpxchg %ecx,(%rdx)", []byte{0x0f, 0xb1, 0x0a}, false},
		{"div %ecx", []byte{0xf7, 0xf1}, false},
		{"cpuid", []byte{0x0f, 0xa2}, false},
		{"rdtsc", []byte{0x0f, 0x31}, false},
		{"call", []byte{0xe8, 0, 0, 0, 0}, false},
		{"jmp", []byte{0xeb, 0}, false},
		{"ret", []byte{0xc3}, false},
		{"syscall", []byte{0x0f, 0x05}, false},
	} {
		if got := (amd64.Arch{}).KeepsNumber(insnOf(t, c.code)); got != c.keeps {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

func loadRegs() arch.Regs {
	regs := amd64.Arch{}.NewRegs()
	for i, name := range []string{"rax", "rcx", "rdx", "rbx", "rbp", "rsi", "rsp", "rdi", "r8", "r9"} {
		regs.Set(name, 0x1111_0000_0000_0001+uint64(i))
	}
	regs.Set("rsp", 0x7000)
	return regs
}

func insnOf(t *testing.T, code []byte) arch.Insn {
	t.Helper()
	insn, err := amd64.Arch{}.Decode(code, 0x1000)
	if err != nil {
		t.Fatalf("% x: %v", code, err)
	}
	return insn
}
