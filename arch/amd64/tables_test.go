package amd64_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/arch/amd64"
	"github.com/gokprobe/gokprobe/arch/amd64/code"
)

// rows reads a table of testdata: a row a line, fields apart by space, # comments.
func rows(t testing.TB, file string) (out [][]string) {
	t.Helper()
	b, err := os.ReadFile("testdata/" + file)
	if err != nil {
		t.Fatal(err)
	}
	for s := range strings.SplitSeq(string(b), "\n") {
		s, _, _ = strings.Cut(s, "#")
		if f := strings.Fields(s); len(f) > 0 {
			out = append(out, f)
		}
	}
	if len(out) == 0 {
		t.Fatalf("%s is empty", file)
	}
	return out
}

func hexBytes(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.Trim(s, `"`))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func number(t testing.TB, s string) uint64 {
	t.Helper()
	if s == "-" {
		return 0
	}
	n, err := strconv.ParseUint(s, 0, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

var flowNames = map[string]arch.Flow{
	"next": arch.FlowNext, "jump": arch.FlowJump, "cond": arch.FlowCond, "call": arch.FlowCall,
	"indirect-jump": arch.FlowIndirectJump, "indirect-call": arch.FlowIndirectCall, "return": arch.FlowReturn,
	"syscall": arch.FlowSyscall, "far": arch.FlowFar, "trap": arch.FlowTrap,
}

var refusalNames = map[string]error{
	"truncated": arch.ErrTruncated, "undecodable": arch.ErrUndecodable, "exception": arch.ErrBreakpoint,
	"enclave": arch.ErrEnclave, "operand-size": arch.ErrOperandSize,
}

const tableAt = 0x401000

func TestDecodeAnswersLengthFlowTargetAndOperand(t *testing.T) {
	for _, row := range rows(t, "decode.txt") {
		b := hexBytes(t, row[0])
		i, err := amd64.Arch{}.Decode(b, tableAt)
		if len(row) == 2 {
			if !errors.Is(err, refusalNames[row[1]]) {
				t.Errorf("%s: %v, want %s", row[0], err, row[1])
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", row[0], err)
			continue
		}
		flow, ok := flowNames[row[2]]
		if !ok {
			t.Fatalf("%s: no flow %q", row[0], row[2])
		}
		want := arch.Insn{Addr: tableAt, Bytes: b[:number(t, row[1])], Flow: flow, Target: arch.Addr(number(t, row[3])),
			PCRel: row[4] != "-", MemTarget: arch.Addr(number(t, row[4]))}
		if !bytes.Equal(i.Bytes, want.Bytes) || i.Flow != want.Flow || i.Target != want.Target || i.PCRel != want.PCRel || i.MemTarget != want.MemTarget {
			t.Errorf("%s: %+v, want %+v", row[0], i, want)
		}
	}
}

func TestEveryInstructionCutShortIsTruncated(t *testing.T) {
	for _, row := range rows(t, "decode.txt") {
		if len(row) == 2 {
			continue
		}
		b := hexBytes(t, row[0])[:number(t, row[1])]
		for n := range b {
			i, err := amd64.Arch{}.Decode(b[:n], tableAt)
			if !errors.Is(err, arch.ErrTruncated) {
				t.Errorf("% x: %+v, %v", b[:n], i, err)
			}
		}
	}
}

func TestDecodeNeedsNoBytesBehindTheInstruction(t *testing.T) {
	for _, row := range rows(t, "decode.txt") {
		if len(row) == 2 {
			continue
		}
		n := int(number(t, row[1]))
		b := append(hexBytes(t, row[0])[:n:n], 0xff, 0x66, 0x0f, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
		if i, err := (amd64.Arch{}).Decode(b, tableAt); err != nil || i.Len() != n || cap(i.Bytes) != n {
			t.Errorf("%s: %+v, %v", row[0], i, err)
		}
	}
}

func TestPlanChoosesAMethodOrNamesTheReason(t *testing.T) {
	for _, row := range rows(t, "plan.txt") {
		b := hexBytes(t, row[0])
		i := arch.Insn{Addr: tableAt, Bytes: b}
		p, err := amd64.Arch{}.Plan(i)
		if want := refusalNames[row[1]]; want != nil {
			if !errors.Is(err, want) {
				t.Errorf("%s: %s, %v, want %s", row[0], p.Method, err, row[1])
			}
			for name, other := range refusalNames {
				if errors.Is(err, other) && name != row[1] && name != "undecodable" {
					t.Errorf("%s: %v is also %s", row[0], err, name)
				}
			}
			continue
		}
		has := func(word string) bool { return slices.Contains(row[2:], word) }
		if err != nil || p.Method.String() != row[1] || (p.MustStep != "") != has("step") ||
			p.Leaves != has("leaves") || p.Recorded != has("recorded") {
			t.Errorf("%s: %s, step %q, leaves %t, recorded %t, %v", row[0], p.Method, p.MustStep, p.Leaves, p.Recorded, err)
		}
		if (p.Emulate != nil) != (p.Method == arch.Emulated) {
			t.Errorf("%s: %s, but Emulate is nil: %t", row[0], p.Method, p.Emulate == nil)
		}
		if !bytes.Equal(p.Insn.Bytes, b) || &p.Insn.Bytes[0] == &b[0] {
			t.Errorf("%s: the plan shares or changes the bytes", row[0])
		}
	}
}

func TestASlotHasACopyForEachEntrance(t *testing.T) {
	a := code.Arch{}
	for _, row := range rows(t, "slot.txt") {
		at, addr := arch.Addr(number(t, row[0])), arch.Addr(number(t, row[2]))
		p, err := a.Plan(arch.Insn{Addr: at, Bytes: hexBytes(t, row[1])})
		if err != nil {
			t.Fatal(err)
		}
		s, err := a.Assemble(p, addr)
		if row[3] == "error" {
			if !errors.Is(err, arch.ErrReach) {
				t.Errorf("%v: %+v, %v", row, s, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%v: %v", row, err)
			continue
		}
		want := bytes.Repeat([]byte{0xcc}, a.SlotSize())
		boost := addr
		if row[3] == "-" {
			boost = 0
			if alone, err := a.Alone(addr, p); s.Alone == addr && err == nil {
				copy(want, alone)
			} else if s.Alone != 0 && s.Alone != s.Step {
				t.Errorf("%v: alone at %s, %v", row, s.Alone, err)
			}
		} else {
			copy(want, hexBytes(t, row[3]))
		}
		copy(want[32:], hexBytes(t, row[4]))
		if !bytes.Equal(s.Code, want) || s.Addr != addr || s.Boost != boost || s.Step != addr+32 || s.Trap != s.Step+arch.Addr(p.Insn.Len()) {
			t.Errorf("%v: % x at %s, boost %s, step %s, trap %s", row, s.Code, s.Addr, s.Boost, s.Step, s.Trap)
		}
	}
}

func TestOnlyEndbr64AtAnEntryIsSkipped(t *testing.T) {
	for s, want := range map[string]int{"f30f1efa": 4, "f30f1efa55": 4, "f30f1efb": 0, "f30f1e": 0, "": 0, "55": 0, "662ef30f1efa": 0} {
		if got := (amd64.Arch{}).EntrySkip(hexBytes(t, s)); got != want {
			t.Errorf("%q: %d, want %d", s, got, want)
		}
	}
}
