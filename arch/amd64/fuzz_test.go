package amd64_test

import (
	"bytes"
	"errors"
	"maps"
	"testing"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/arch/amd64"
	"github.com/gokprobe/gokprobe/arch/amd64/code"
)

func seed(f *testing.F, add func(b []byte)) {
	for _, row := range rows(f, "decode.txt") {
		add(hexBytes(f, row[0]))
	}
	for _, row := range rows(f, "plan.txt") {
		add(hexBytes(f, row[0]))
	}
}

// FuzzDecode: any bytes are refused with a named error or have a length that
// does not depend on what follows them.
func FuzzDecode(f *testing.F) {
	seed(f, func(b []byte) { f.Add(b, uint64(tableAt)) })
	f.Fuzz(func(t *testing.T, b []byte, at uint64) {
		a := code.Arch{}
		i, err := a.Decode(b, arch.Addr(at))
		if err != nil {
			if errors.Is(err, arch.ErrTruncated) == errors.Is(err, arch.ErrUndecodable) {
				t.Fatalf("% x: %v", b, err)
			}
			if errors.Is(err, arch.ErrTruncated) && len(b) >= 15 {
				t.Fatalf("% x: %v", b, err)
			}
			return
		}
		if i.Len() < 1 || i.Len() > 15 || !bytes.HasPrefix(b, i.Bytes) {
			t.Fatalf("% x: %d bytes", b, i.Len())
		}
		again, err := a.Decode(i.Bytes, arch.Addr(at))
		if err != nil || again.Len() != i.Len() || again.Flow != i.Flow || again.Target != i.Target || again.MemTarget != i.MemTarget {
			t.Fatalf("% x: %+v, then %+v, %v", b, i, again, err)
		}
		for n := range i.Bytes {
			if _, err := a.Decode(i.Bytes[:n], arch.Addr(at)); err == nil {
				t.Fatalf("% x: also an instruction of %d bytes", i.Bytes, n)
			}
		}
		if a.Disassemble(i) == "(bad)" {
			t.Fatalf("% x does not print", i.Bytes)
		}
	})
}

// FuzzAssemble: the copies in a slot name the same memory and come back to the
// successor.
func FuzzAssemble(f *testing.F) {
	seed(f, func(b []byte) { f.Add(b, uint64(tableAt), uint64(0x500000)) })
	f.Fuzz(func(t *testing.T, b []byte, at, addr uint64) {
		a := code.Arch{}
		i, err := a.Decode(b, arch.Addr(at))
		if err != nil {
			return
		}
		p, err := a.Plan(i)
		if err != nil {
			return
		}
		s, err := a.Assemble(p, arch.Addr(addr))
		if err != nil {
			if !errors.Is(err, arch.ErrReach) {
				t.Fatalf("% x: %v", i.Bytes, err)
			}
			return
		}
		checkCopy(t, p, s, s.Step)
		if s.Code[s.Trap-s.Addr] != 0xcc {
			t.Fatalf("% x: no breakpoint at %s", i.Bytes, s.Trap)
		}
		if s.Boost == 0 {
			return
		}
		end := checkCopy(t, p, s, s.Boost)
		back, err := a.Decode(s.Code[end-s.Addr:], end)
		if err != nil || back.Flow != arch.FlowJump || back.Target != i.End() {
			t.Fatalf("% x: back by %+v, %v", i.Bytes, back, err)
		}
	})
}

// checkCopy compares the copy at entrance with the original.
func checkCopy(t *testing.T, p arch.Plan, s *arch.Slot, entrance arch.Addr) arch.Addr {
	t.Helper()
	c, err := code.Arch{}.Decode(s.Code[entrance-s.Addr:], entrance)
	want := p.Insn.Target
	switch {
	case p.Method == arch.Emulated, p.Leaves: // a relative branch is as far away as it was
		want = want - p.Insn.Addr + entrance
	case want != 0 && entrance == s.Step: // a transaction aborts to the breakpoint
		want = s.Trap
	}
	if p.Insn.Target == 0 && p.Insn.Flow != arch.FlowCond {
		want = 0
	}
	if err != nil || c.Len() != p.Insn.Len() || c.PCRel != p.Insn.PCRel || c.MemTarget != p.Insn.MemTarget || c.Flow != p.Insn.Flow || c.Target != want {
		t.Fatalf("% x: copied as %+v, %v", p.Insn.Bytes, c, err)
	}
	if orig, executed, ok := s.Origin(entrance); !ok || executed || orig != p.Insn.Addr {
		t.Fatalf("% x: origin of %s is %s, %t, %t", p.Insn.Bytes, entrance, orig, executed, ok)
	}
	next := p.Insn.End()
	if entrance == s.Step {
		next = s.Next
	}
	if orig, executed, ok := s.Origin(c.End()); !ok || !executed || orig != next {
		t.Fatalf("% x: origin of %s is %s, %t, %t", p.Insn.Bytes, c.End(), orig, executed, ok)
	}
	return c.End()
}

// tape is a memory that lends the given bytes and fails when told to.
type tape struct {
	data      []byte
	failRead  bool
	failWrite bool
	writes    int
}

var errTape = errors.New("no such page")

func (m *tape) ReadMemory(at arch.Addr, p []byte) error {
	if m.failRead {
		return &arch.FaultError{Addr: at, Cause: errTape}
	}
	copy(p, m.data)
	return nil
}

func (m *tape) WriteMemory(at arch.Addr, p []byte) error {
	if m.failWrite {
		return &arch.FaultError{Addr: at, Write: true, Cause: errTape}
	}
	m.writes++
	return nil
}

// FuzzEmulate: a fault leaves registers and memory alone, a success moves ip to
// the successor or the target.
func FuzzEmulate(f *testing.F) {
	seed(f, func(b []byte) { f.Add(b, uint64(3), uint64(0x246), uint64(0x7fff0000), uint8(0)) })
	f.Fuzz(func(t *testing.T, b []byte, rcx, flags, rsp uint64, fail uint8) {
		a := code.Arch{}
		i, err := a.Decode(b, tableAt)
		if err != nil {
			return
		}
		p, err := a.Plan(i)
		if err != nil || p.Method != arch.Emulated {
			return
		}
		r := amd64.Regs{Rcx: rcx, Eflags: flags, Rsp: rsp, Rip: tableAt, Rax: flags, Rbx: rsp}
		before := r
		m := &tape{data: b, failRead: fail&1 != 0, failWrite: fail&2 != 0}
		err = p.Emulate(&r, m)
		var fault *arch.FaultError
		switch {
		case err != nil && (!errors.As(err, &fault) || r != before || m.writes != 0):
			t.Fatalf("% x: %v, %+v, %d writes", i.Bytes, err, r, m.writes)
		case err != nil:
			return
		case r.Eflags != before.Eflags || r.Rax != before.Rax || r.Rbx != before.Rbx:
			t.Fatalf("% x: %+v", i.Bytes, r)
		}
		switch i.Flow {
		case arch.FlowJump, arch.FlowCall:
			if r.IP() != i.Target {
				t.Fatalf("% x: to %s, not %s", i.Bytes, r.IP(), i.Target)
			}
		case arch.FlowCond:
			if r.IP() != i.Target && r.IP() != i.End() {
				t.Fatalf("% x: to %s", i.Bytes, r.IP())
			}
		}
	})
}

// pages is a memory in which every byte that was not written is made from its address.
type pages map[arch.Addr]byte

func (m pages) ReadMemory(at arch.Addr, p []byte) error {
	for i := range p {
		b, ok := m[at+arch.Addr(i)]
		if !ok {
			b = byte((uint64(at)+uint64(i))*0x9e3779b97f4a7c15>>59) & 3
		}
		p[i] = b
	}
	return nil
}

func (m pages) WriteMemory(at arch.Addr, p []byte) error {
	for i, b := range p {
		m[at+arch.Addr(i)] = b
	}
	return nil
}

// FuzzResume: a branch that is executed in its slot and resumed leaves what it leaves at
// its own place.
func FuzzResume(f *testing.F) {
	seed(f, func(b []byte) {
		f.Add(b, uint64(3), uint64(0x246), uint64(0x7fff0000), uint64(tableAt), uint64(0x500000))
	})
	f.Fuzz(func(t *testing.T, b []byte, rcx, flags, rsp, at, addr uint64) {
		a := code.Arch{}
		i, err := a.Decode(b, arch.Addr(at))
		if err != nil {
			return
		}
		p, err := a.Plan(i)
		if err != nil || p.Method != arch.Emulated {
			return
		}
		s, err := a.Assemble(p, arch.Addr(addr))
		if err != nil {
			return
		}
		c, err := a.Decode(s.Code[s.Step-s.Addr:], s.Step)
		if err != nil {
			t.Fatalf("% x: its copy is refused: %v", i.Bytes, err)
		}
		elsewhere, err := a.Plan(c)
		if err != nil {
			t.Fatalf("% x: its copy is refused: %v", i.Bytes, err)
		}
		r := amd64.Regs{Rcx: rcx, Eflags: flags, Rsp: rsp, Rip: at, Rax: flags, Rbx: rsp}
		here, there := r, r
		there.SetIP(s.Step)
		m, n := pages{}, pages{}
		err, errThere := p.Emulate(&here, m), elsewhere.Emulate(&there, n)
		if err != nil || errThere != nil {
			return // not every target is canonical from both places
		}
		if err := p.Resume(&there, n, s.Step); err != nil {
			t.Fatalf("% x: %v", i.Bytes, err)
		}
		if here != there || !maps.Equal(m, n) {
			t.Fatalf("% x at %s: %+v, %v; by its copy at %s: %+v, %v", i.Bytes, i.Addr, here, m, s.Step, there, n)
		}
	})
}
