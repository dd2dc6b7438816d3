package amd64_test

import (
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/arch/amd64/code"
)

func TestCountBody(t *testing.T) {
	const at, cells = 0x500000, 0x510000
	for _, c := range []struct {
		name    string
		n       int
		dead    arch.Dead
		redZone bool
		want    string
	}{
		{"nothing to keep", 1, arch.Dead{Flags: true}, true,
			"lock incq 0xfff8(%rip)"},
		{"flags", 1, arch.Dead{}, true,
			"lea -0x80(%rsp),%rsp; push %rax; lahf; seto %al; lock incq 0xffee(%rip); add $0x7f,%al; sahf; pop %rax; lea 0x80(%rsp),%rsp"},
		{"flags in Go", 1, arch.Dead{}, false,
			"push %rax; lahf; seto %al; lock incq 0xfff3(%rip); add $0x7f,%al; sahf; pop %rax"},
		{"flags, rax dead", 1, arch.Dead{Regs: 1}, true,
			"lahf; seto %al; lock incq 0xfff4(%rip); add $0x7f,%al; sahf"},
		{"flags, r9 dead", 1, arch.Dead{Regs: 1 << 9}, true,
			"mov %rax,%r9; lahf; seto %al; lock incq 0xfff1(%rip); add $0x7f,%al; sahf; mov %r9,%rax"},
		{"all of many", 16, arch.Dead{}, true,
			"lea -0x80(%rsp),%rsp; push %rcx; push %rdx; push %rax; lahf; seto %al; mov %rsp,%rcx; shr $0xc,%rcx; rex imul $-0x61c8864f,%ecx,%ecx; rex shr $0x16,%ecx; rex and $0x3c0,%ecx; lea 0xffd4(%rip),%rdx; lock incq (%rdx,%rcx); add $0x7f,%al; sahf; pop %rax; pop %rdx; pop %rcx; lea 0x80(%rsp),%rsp"},
		{"many, nothing dead but flags", 4, arch.Dead{Flags: true}, false,
			"push %rcx; push %rdx; mov %rsp,%rcx; shr $0xc,%rcx; rex imul $-0x61c8864f,%ecx,%ecx; rex shr $0x18,%ecx; rex and $0xc0,%ecx; lea 0xffde(%rip),%rdx; lock incq (%rdx,%rcx); pop %rdx; pop %rcx"},
		{"many, rdx dead", 4, arch.Dead{Flags: true, Regs: 1 << 2}, false,
			"push %rcx; mov %rsp,%rdx; shr $0xc,%rdx; rex imul $-0x61c8864f,%edx,%edx; rex shr $0x18,%edx; rex and $0xc0,%edx; lea 0xffdf(%rip),%rcx; lock incq (%rcx,%rdx); pop %rcx"},
		{"many, r12 r13 r15 dead", 4, arch.Dead{Regs: 0xb000}, true,
			"mov %rax,%r15; lahf; seto %al; mov %rsp,%r12; shr $0xc,%r12; imul $-0x61c8864f,%r12d,%r12d; shr $0x18,%r12d; and $0xc0,%r12d; lea 0xffd9(%rip),%r13; lock incq (%r13,%r12); add $0x7f,%al; sahf; mov %r15,%rax"},
	} {
		body, err := code.Arch{}.CountBody(cells, c.n, c.dead, c.redZone).Assemble(at)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, i := range sequence(t, body.Code, at) {
			got = append(got, code.Arch{}.Disassemble(i))
		}
		if got := strings.Join(got, "; "); got != c.want {
			t.Errorf("%s: %s", c.name, got)
		}
	}
}
