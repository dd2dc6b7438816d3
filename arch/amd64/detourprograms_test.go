package amd64_test

import (
	"errors"
	"testing"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/arch/amd64"
	"github.com/gokprobe/gokprobe/arch/amd64/code"
)

// reasons are those of Displaceable.
var reasons = []error{amd64.ErrSystemCall, amd64.ErrX87, amd64.ErrSetsFlags, amd64.ErrLoadsSS, amd64.ErrPerformed, amd64.ErrFar,
	amd64.ErrTransaction, amd64.ErrCallByStack, arch.ErrBreakpoint, arch.ErrEnclave, arch.ErrOperandSize, arch.ErrUndecodable}

// TestDetoursOfPrograms makes a detour for every instruction of real programs and those behind it that
// a jump covers.
func TestDetoursOfPrograms(t *testing.T) {
	const lib = "/lib/x86_64-linux-gnu/"
	for _, file := range []string{lib + "libc.so.6", lib + "libm.so.6", "/proc/self/exe"} {
		at, code := text(t, file)
		code = code[:min(len(code), 1<<18)]
		var insns []arch.Insn // at the end, those of the last few bytes
		detours, instructions, dead := 0, 0, 0
		refused := map[error]int{}
		for len(code) > 0 {
			i, err := amd64.Arch{}.Decode(code, at)
			if err != nil { // data
				code, at, insns = code[1:], at+1, nil
				continue
			}
			code, at = code[i.Len():], i.End()
			instructions++
			if err := (amd64.Arch{}).Displaceable(i); err != nil {
				refused[reasonOf(t, err)]++
				insns = nil
				continue
			}
			insns = append(insns, i)
			for len(insns) > 0 && at-insns[0].Addr >= 5 {
				if (amd64.Arch{}).Dead(insns).Flags {
					dead++
				}
				detours++
				checkOneDetour(t, insns)
				insns = insns[1:]
			}
		}
		t.Logf("%s: %d instructions, %d detours, flags dead at %d; not displaced: %v", file, instructions, detours, dead, refused)
		if detours < instructions/2 || dead < detours/10 {
			t.Errorf("%s: %d detours for %d instructions", file, detours, instructions)
		}
	}
}

func reasonOf(t *testing.T, err error) error {
	t.Helper()
	for _, r := range reasons {
		if errors.Is(err, r) {
			return r
		}
	}
	t.Fatalf("%v has no reason", err)
	return nil
}

func checkOneDetour(t *testing.T, insns []arch.Insn) {
	t.Helper()
	a := code.Arch{}
	at := insns[0].Addr + 0x10000000
	n, err := a.DetourLen(insns, a.TrapBody())
	if err != nil {
		t.Fatal(err)
	}
	d, err := a.AssembleDetour(at, insns, a.TrapBody())
	if err != nil || len(d.Code) != n {
		t.Fatalf("%s: %d bytes, %v", insns[0].Addr, n, err)
	}
	checkDetour(t, d, insns)
	for k, p := range d.Pieces { // what a copy names and where it goes is what the original does
		last, target, mem := lastOf(t, d, p), insns[k].Target, insns[k].MemTarget
		if last.Target != target || insns[k].PCRel && last.MemTarget != mem {
			t.Fatalf("%s: % x copied as % x", insns[k].Addr, insns[k].Bytes, d.Code[p.At-d.Addr:][:p.Len])
		}
	}
}

// lastOf is the last instruction of a copy.
func lastOf(t *testing.T, d *arch.Detour, p arch.Piece) (last arch.Insn) {
	t.Helper()
	for at := p.At; at < p.At+arch.Addr(p.Len); at = last.End() {
		var err error
		if last, err = (code.Arch{}).Decode(d.Code[at-d.Addr:], at); err != nil {
			t.Fatal(err)
		}
	}
	return last
}
