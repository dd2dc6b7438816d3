package amd64_test

import (
	"debug/elf"
	"debug/gosym"
	"encoding/binary"
	"os"
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/arch/amd64"
)

func TestAGoFunctionIsEnteredBehindItsStackCheck(t *testing.T) {
	for s, want := range map[string]int{
		"493b6610 7620 55":                                 6,  // cmp 16(%r14),%rsp; jbe
		"493b6610 0f8620010000 55":                         10, // the same, far
		"493b6618 7620 55":                                 6,  // on a system stack
		"4c8d6424f0 4d3b6610 7620 55":                      11, // a large frame
		"4c8da42458ffffff 4d3b6610 0f860a0c0000 55":        18,
		"4989e4 4981ecb0001000 0f82a0000000 4d3b6610 7620": 22, // a huge one
		"4989e4 4981ecb0001000 72a0 4d3b6610 7620":         18,
		"644c8b3425f8ffffff 493b6610 7620":                 15, // ABI0
		"64488b0c25f8ffffff 483b6110 7620":                 15, // before Go 1.17
		"4c8b3500100000 644d8b36 493b6610 7620":            17, // position-independent
		"55 4889e5":                                        0,
		"493b6610":                                         0,
		"493b6610 7720":                                    0, // ja
		"493b6620 7620":                                    0, // not the guard
		"4c8d6424f0 c3":                                    0,
		"":                                                 0,
		"4c8d64":                                           0,
		"493b6610 0f8620":                                  0,
	} {
		if got := (amd64.Arch{}).StackCheck(hexBytes(t, strings.ReplaceAll(s, " ", ""))); got != want {
			t.Errorf("%q: %d, want %d", s, got, want)
		}
	}
}

// The linker has written which functions of this very program grow their stack.
func TestFunctionsWithAStackCheckAreThoseThatCallMorestack(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	f, err := elf.Open(self)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	section := f.Section(".text")
	text, err := section.Data()
	if err != nil {
		t.Fatal(err)
	}
	pcln, err := f.Section(".gopclntab").Data()
	if err != nil {
		t.Fatal(err)
	}
	table, err := gosym.NewTable(nil, gosym.NewLineTable(pcln, section.Addr))
	if err != nil {
		t.Fatal(err)
	}
	grows := map[uint64]bool{}
	for _, fn := range table.Funcs {
		if strings.HasPrefix(fn.Name, "runtime.morestack") {
			grows[fn.Entry] = true
		}
	}
	checked := 0
	for _, fn := range table.Funcs {
		if strings.HasPrefix(fn.Name, "runtime.morestack") || fn.Entry < section.Addr || fn.End > section.Addr+section.Size {
			continue
		}
		code := text[fn.Entry-section.Addr : fn.End-section.Addr]
		want := callsAny(code, fn.Entry, grows)
		if got := (amd64.Arch{}).StackCheck(code) > 0; got != want {
			t.Errorf("%s: %v, but it calls morestack: %v: % x", fn.Name, got, want, code[:min(32, len(code))])
		}
		if want {
			checked++
		}
	}
	if checked < 1000 {
		t.Errorf("only %d functions of this program have a stack check", checked)
	}
}

// callsAny tells whether fn, which stands at at, calls one of targets.
func callsAny(fn []byte, at uint64, targets map[uint64]bool) bool {
	for i := 0; i+5 <= len(fn); i++ {
		if fn[i] == 0xe8 && targets[at+uint64(i)+5+uint64(int64(int32(binary.LittleEndian.Uint32(fn[i+1:]))))] {
			return true
		}
	}
	return false
}

// What stands below the stack pointer at a return address, and in rbx, for a thread that has
// returned there, that has caught an exception, and that goes on after a panic in Go.
func TestAReturnIsToldFromAJump(t *testing.T) {
	const ret, sp = 0x401000, 0x7f0000
	tests := []struct {
		popped, rbx uint64
		code        string // at ret
		want        bool
	}{
		{ret, 1, "4889c3", true},
		{ret, ret, "4889c3", true},
		{ret, 1, "e800010000", true},
		{ret, ret, "e800010000", false},
		{ret + 5, 1, "4889c3", false},
	}
	for _, tt := range tests {
		insn, err := (amd64.Arch{}).Decode(hexBytes(t, tt.code), ret)
		if err != nil {
			t.Fatal(err)
		}
		r := (amd64.Arch{}).NewRegs()
		r.SetSP(sp)
		r.Set("rbx", tt.rbx)
		if got := (amd64.Arch{}).Returned(r, word{sp - 8, tt.popped}, insn); got != tt.want {
			t.Errorf("%+v: %v", tt, got)
		}
	}
	if (amd64.Arch{}).Returned((amd64.Arch{}).NewRegs(), word{sp - 8, ret}, arch.Insn{Addr: ret}) {
		t.Error("returned by a stack that can't be read")
	}
}

// word is one word of memory.
type word struct {
	at    arch.Addr
	value uint64
}

func (w word) ReadMemory(at arch.Addr, p []byte) error {
	if at != w.at || len(p) != 8 {
		return &arch.FaultError{Addr: at}
	}
	binary.LittleEndian.PutUint64(p, w.value)
	return nil
}

func (w word) WriteMemory(at arch.Addr, p []byte) error {
	return &arch.FaultError{Addr: at, Write: true}
}
