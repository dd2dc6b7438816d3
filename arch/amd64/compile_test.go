package amd64_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	bpf "github.com/cilium/ebpf/asm"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/arch/amd64"
	"github.com/gokprobe/gokprobe/arch/amd64/jit"
	"github.com/gokprobe/gokprobe/program"
)

var registerNames = (*amd64.Regs)(nil).Names()

// built is a program of the actions, checked.
func built(t testing.TB, filter program.Cond, actions ...program.Action) *program.Checked {
	t.Helper()
	p, err := program.Build("test", 7, registerNames, filter, actions...)
	if err != nil {
		t.Fatal(err)
	}
	c, err := program.Check(p)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// placed is a target with maps one behind the other.
func placed(p *program.Program) (t program.Target) {
	at := arch.Addr(0x10000000)
	for _, m := range p.Maps {
		t.Maps = append(t.Maps, at)
		at += arch.Addr(m.Len())
	}
	return t
}

// FuzzCompile: no program that Check accepts makes Compile panic; the length of the code
// does not depend on where it stands, all of it can be decoded, and what refers to it is
// inside of it, in front of an instruction.
func FuzzCompile(f *testing.F) {
	ring := program.Map{Kind: program.Ring, Size: program.MinRingSize}
	maps := []program.Map{ring, {Kind: program.Counter}, {Kind: program.Counter, Shards: 4}, {Kind: program.Log2},
		{Kind: program.Linear, Min: -5, Step: 3, Buckets: 7}}
	items := []program.Item{{Name: "time", Value: program.Now()}, {Name: "text", Kind: program.String, Max: 16, Value: program.Reg("rdi")}}
	for _, p := range []*program.Checked{
		built(f, program.Cond{}, program.WriteRecord{Ring: ring, Items: items}, program.CountHit{}),
		built(f, program.Compare(program.Reg("rax"), program.Less, program.Const(5)), program.CountHit{}),
	} {
		var raw bytes.Buffer
		if err := p.Insns.Marshal(&raw, binary.LittleEndian); err != nil {
			f.Fatal(err)
		}
		f.Add(raw.Bytes(), uint32(0))
	}
	f.Fuzz(func(t *testing.T, raw []byte, how uint32) {
		insns, err := bpf.AppendInstructions(nil, bytes.NewReader(raw), binary.LittleEndian, "linux")
		if err != nil {
			return
		}
		p := &program.Program{Name: "fuzz", Regs: registerNames, Insns: insns, Maps: maps}
		checked, err := program.Check(p)
		if err != nil {
			return
		}
		target := placed(p)
		target.Dead = arch.Dead{Flags: how&1 != 0, Regs: uint16(how >> 16)}
		target.RedZone, target.HWCAP2, target.ThreadPointer = how&2 != 0, 2, how&4 != 0
		checkBody(t, checked, target)
	})
}

func checkBody(t *testing.T, p *program.Checked, target program.Target) {
	a := jit.Compiler{}
	body, err := a.Compile(p, target)
	if err != nil {
		t.Fatal(err)
	}
	near, err := body.Assemble(0x10000003)
	if err != nil {
		t.Fatal(err)
	}
	if far, err := body.Assemble(0x20000000); err != nil || len(far.Code) != len(near.Code) {
		t.Fatalf("%d bytes and %d, %v", len(near.Code), len(far.Code), err)
	}
	starts := map[arch.Addr]bool{}
	at, code := arch.Addr(0x10000003), near.Code
	for len(code) > 0 {
		i, err := amd64.Arch{}.Decode(code, at)
		if err != nil {
			t.Fatalf("% x: %v", code[:min(len(code), 15)], err)
		}
		starts[at] = true
		at, code = i.End(), code[i.Len():]
	}
	starts[at] = true
	for _, stop := range near.Stops {
		if !starts[stop.At] || stop.Why.Faults() && !starts[stop.To] {
			t.Errorf("stop %v is not in front of instructions", stop)
		}
		if !stop.Why.Faults() && near.Code[stop.At-0x10000003] != 0xcc {
			t.Errorf("no breakpoint at %v", stop)
		}
	}
}

// stopFor is the first stop for a reason, the zero value if there is none.
func stopFor(stops arch.Stops, why arch.StopReason) arch.Stop {
	for _, stop := range stops {
		if stop.Why == why {
			return stop
		}
	}
	return arch.Stop{}
}

func TestCompileRefusesWhatTheTargetDoesNotOffer(t *testing.T) {
	a := jit.Compiler{}
	record := program.WriteRecord{Ring: program.Map{Kind: program.Ring, Size: 1 << 12}, Items: []program.Item{{Name: "fs", Value: program.Reg("fs_base")}}}
	p := built(t, program.Cond{}, record)
	target := placed(p.Program)
	if _, err := a.Compile(p, target); err == nil {
		t.Error("fs_base is read without rdfsbase")
	}
	target.HWCAP2 = 2
	if _, err := a.Compile(p, target); err != nil {
		t.Error(err)
	}
	target.Maps = target.Maps[1:]
	if _, err := a.Compile(p, target); err == nil {
		t.Error("a map is not placed")
	}
	target = placed(p.Program)
	target.HWCAP2 = 2
	body, err := a.Compile(p, target)
	if err != nil {
		t.Fatal(err)
	}
	near, err := body.Assemble(target.Maps[0])
	if err != nil {
		t.Fatal(err)
	}
	if far, err := body.Assemble(target.Maps[0] + 1<<32); !errors.Is(err, arch.ErrReach) || len(far.Code) != len(near.Code) {
		t.Errorf("maps 4 GiB away: %d bytes of %d, %v", len(far.Code), len(near.Code), err)
	}
}

func TestCompiledProgramsSaveOnlyWhatTheyUse(t *testing.T) {
	ring := program.Map{Kind: program.Ring, Size: 1 << 12}
	item := func(r string) program.Item { return program.Item{Name: r, Value: program.Reg(r)} }
	for _, c := range []struct {
		name   string
		action program.Action
		dead   arch.Dead
		bytes  int  // of code, at most
		stack  bool // is used
	}{
		{"count, flags dead", program.CountHit{}, arch.Dead{Flags: true}, 8, false},
		{"count", program.CountHit{}, arch.Dead{}, 64, true},
		{"record of two registers", program.WriteRecord{Ring: ring, Items: []program.Item{item("rdi"), item("rsi")}}, arch.Dead{}, 300, true},
		{"record, all dead", program.WriteRecord{Ring: ring, Items: []program.Item{item("rdi")}}, arch.Dead{Flags: true, Regs: 1<<0 | 1<<1 | 1<<2 | 1<<8}, 200, false},
	} {
		p := built(t, program.Cond{}, c.action)
		target := placed(p.Program)
		target.Dead, target.RedZone = c.dead, true
		body, err := jit.Compiler{}.Compile(p, target)
		if err != nil {
			t.Fatal(err)
		}
		code, err := body.Assemble(0x10000000)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %d bytes", c.name, len(code.Code))
		if len(code.Code) > c.bytes {
			t.Errorf("%s: %d bytes of code, want %d at most", c.name, len(code.Code), c.bytes)
		}
		// lea n(%rsp),%rsp
		if stack := bytes.Contains(code.Code, []byte{0x8d, 0x64, 0x24}) || bytes.Contains(code.Code, []byte{0x8d, 0xa4, 0x24}); stack != c.stack {
			t.Errorf("%s: uses the stack: %v, want %v", c.name, stack, c.stack)
		}
	}
}
