package amd64_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/arch/amd64"
)

// plain is text without objdump's comment and spacing, and without the parts of
// a memory operand that mean nothing.
func plain(text string) string {
	text, _, _ = strings.Cut(text, " #")
	text = strings.NewReplacer(",1)", ")", ",%riz)", ")").Replace(text)
	return strings.Join(strings.Fields(text), " ")
}

func TestCorrectedInstructionsPrintAsObjdumpPrintsThem(t *testing.T) {
	requires(t, "gcc", "objdump")
	obj := filepath.Join(t.TempDir(), "corrected.o")
	assemble(t, "-c", "-o", obj, "testdata/corrected.S")
	a := amd64.Arch{}
	var lines []line
	objdump(t, obj, func(l line) { lines = append(lines, l) })
	operands := true
	for _, l := range lines {
		want := plain(l.text)
		if strings.HasPrefix(want, "vmload") {
			operands = false
		}
		if !operands {
			want, _, _ = strings.Cut(want, " ")
		}
		i, err := a.Decode(l.bytes, l.addr)
		if err != nil || i.Len() != len(l.bytes) {
			t.Errorf("% x  %s: %d bytes, %v", l.bytes, l.text, i.Len(), err)
			continue
		}
		if got := plain(a.Disassemble(i)); got != want {
			t.Errorf("% x prints as %q, objdump prints %q", l.bytes, got, want)
		}
	}
	if operands {
		t.Error("the mark is missing")
	}
}

func TestDisassembleResolvesBranchTargets(t *testing.T) {
	for s, want := range map[string]string{
		"e8fb0f0000":         "callq 0x402000",
		"7410":               "je 0x401012",
		"488b0500000000":     "mov (%rip),%rax",
		"64488b042528000000": "mov %fs:0x28,%rax",
		"64c5f81000":         "vmovups (%rax),%xmm0",
		"48662601c8":         "es add %cx,%ax",
		"06":                 "(bad)",
		"9090":               "(bad)",
		"f3c3":               "rep retq",
	} {
		got := plain(amd64.Arch{}.Disassemble(arch.Insn{Addr: tableAt, Bytes: hexBytes(t, s)}))
		if got != want {
			t.Errorf("%s prints as %q, want %q", s, got, want)
		}
	}
}
