package arm64

import (
	"errors"
	"testing"

	"github.com/gokprobe/gokprobe/arch"
)

// TestWhatIsNotThereSaysSo: nothing pretends to know an instruction.
func TestWhatIsNotThereSaysSo(t *testing.T) {
	a := Arch{}
	_, decode := a.Decode(a.Breakpoint(), 0x1000)
	_, plan := a.Plan(arch.Insn{})
	_, _, caller := a.Caller(a.NewRegs(), nil)
	for name, err := range map[string]error{"Decode": decode, "Plan": plan, "Caller": caller,
		"Load": a.Load(arch.Insn{}, a.NewRegs(), nil), "SetCall": a.SetCall(a.NewRegs(), nil, 0, 0, nil)} {
		if !errors.Is(err, arch.ErrUnsupported) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestRegistersByName(t *testing.T) {
	r := new(Regs)
	for n, name := range r.Names() {
		if !r.Set(name, uint64(n)<<32|7) {
			t.Errorf("%s can't be set", name)
		}
	}
	for n, name := range r.Names() {
		if v, ok := r.Get(name); !ok || v != uint64(n)<<32|7 {
			t.Errorf("%s is %#x", name, v)
		}
	}
	if v, ok := r.Get("w30"); !ok || v != 7 {
		t.Errorf("w30 is %#x, %v", v, ok)
	}
	for _, name := range []string{"x31", "w", "rax", "wsp"} {
		if _, ok := r.Get(name); ok {
			t.Errorf("there is no %s", name)
		}
	}
	if c := r.Clone(); !r.Same(c) || c.IP() != arch.Addr(r.Pc) {
		t.Error("a clone is not the same")
	}
}

// TestACallThatIsPutOff: a call goes back in front of its instruction, and into it again.
func TestACallThatIsPutOff(t *testing.T) {
	r := new(Regs)
	r.SetSyscall(64, [6]uint64{1, 2, 3}, 0x1000)
	if before := *r; r.InCall() || r.CallArg(2) != 3 {
		t.Errorf("%+v", before)
	}
	r.IntoCall()
	if !r.InCall() || r.CallNumber() != 64 || r.IP() != 0x1004 {
		t.Errorf("in the call: %+v", r)
	}
	if r.BeforeCall(); r.InCall() || r.IP() != 0x1000 {
		t.Errorf("in front of it: %+v", r)
	}
}
