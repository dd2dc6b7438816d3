package amd64_test

import (
	"errors"
	"testing"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/arch/amd64"
)

func emulator(t *testing.T, s string) func(arch.Regs, arch.Memory) error {
	t.Helper()
	p, err := amd64.Arch{}.Plan(arch.Insn{Addr: tableAt, Bytes: hexBytes(t, s)})
	if err != nil || p.Method != arch.Emulated {
		t.Fatalf("%s: %s, %v", s, p.Method, err)
	}
	return p.Emulate
}

func TestAFaultOfAnEmulatedBranchChangesNothing(t *testing.T) {
	for _, row := range []struct {
		code  string
		m     tape
		cause error
		write bool
	}{
		{"c3", tape{failRead: true}, errTape, false},
		{"c21000", tape{failRead: true}, errTape, false},
		{"ff10", tape{failRead: true}, errTape, false},
		{"ff20", tape{failRead: true}, errTape, false},
		{"ff10", tape{failWrite: true}, errTape, true},
		{"ffd0", tape{failWrite: true}, errTape, true},
		{"e800000000", tape{failWrite: true}, errTape, true},
		{"c3", tape{data: hexBytes(t, "0000000000000080")}, amd64.ErrNonCanonical, false},
		{"ff20", tape{data: hexBytes(t, "4141414141414141")}, amd64.ErrNonCanonical, false},
		{"ff10", tape{data: hexBytes(t, "4141414141414141")}, amd64.ErrNonCanonical, false},
	} {
		r := amd64.Regs{Rip: tableAt, Rsp: 0x7000, Rax: 0x8000, Eflags: 0x246}
		before := r
		err := emulator(t, row.code)(&r, &row.m)
		var fault *arch.FaultError
		if !errors.As(err, &fault) || !errors.Is(err, row.cause) || fault.Write != row.write {
			t.Errorf("%s: %v", row.code, err)
		}
		if r != before || row.m.writes != 0 {
			t.Errorf("%s: %+v, %d writes", row.code, r, row.m.writes)
		}
	}
}

// otherRegs are registers that are not amd64's.
type otherRegs struct{ arch.Regs }

func TestEmulateRefusesRegistersOfAnotherArchitecture(t *testing.T) {
	if err := emulator(t, "c3")(otherRegs{}, &tape{}); err == nil {
		t.Error("accepted")
	}
}

func TestCallReadsItsOperandBeforeItPushes(t *testing.T) {
	r := amd64.Regs{Rip: tableAt, Rsp: 0x7000}
	m := &tape{data: hexBytes(t, "0010000000000000")}
	if err := emulator(t, "ff1424")(&r, m); err != nil || r.Rsp != 0x6ff8 || r.Rip != 0x1000 || m.writes != 1 {
		t.Errorf("%+v, %v", r, err)
	}
}
