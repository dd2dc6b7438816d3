//go:build linux && amd64

package oracle_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/arch/amd64"
	"github.com/gokprobe/gokprobe/internal/testprog"
)

const (
	trapPageFault = 14
	sigILL        = 4
	sigTRAP       = 5
	trapBreak     = 3
)

// differences lists what is not in got as it is in want.
func differences(h *shared, want, got *output) []string {
	var d []string
	note := func(name string, got, want uint64) {
		if got != want {
			d = append(d, fmt.Sprintf("%s %#x want %#x", name, got, want))
		}
	}
	note("signal", got.Signo, want.Signo)
	note("si_code", got.Code, want.Code)
	note("si_addr", got.Addr, want.Addr)
	note("rip", got.RIP, want.RIP)
	for i, name := range regNames {
		note(name, got.Reg[i], want.Reg[i])
	}
	note("rflags", got.RFlags, want.RFlags)
	note("cs,ss,fs,gs", got.Selectors, want.Selectors)
	note("trapno", got.TrapNo, want.TrapNo)
	note("err", got.Err, want.Err)
	note("oldmask", got.OldMask, want.OldMask)
	if want.TrapNo == trapPageFault { // else it is left over from an earlier fault
		note("cr2", got.CR2, want.CR2)
	}
	for i, name := range []string{"ds", "es", "fs", "gs"} {
		note(name, null(got.Seg[i]), null(want.Seg[i]))
	}
	note("fsbase", got.Base[0], want.Base[0])
	note("gsbase", got.Base[1], want.Base[1])
	for i := range want.Before {
		w, g := want.Before[i], got.Before[i]
		if w != g {
			d = append(d, fmt.Sprintf("signal-%d %x want %x", i, g, w))
		}
	}
	d = append(d, xsaveDifferences(h, want.XSave[:], got.XSave[:])...)
	return append(d, memoryDifferences(want, got)...)
}

// null makes all null selectors one, as the kernel does at a context switch.
func null(selector uint64) uint64 {
	if selector <= 3 {
		return 0
	}
	return selector
}

// memoryDifferences compares what was written where.
func memoryDifferences(want, got *output) []string {
	if want.Hash == got.Hash && want.NDiffs == got.NDiffs {
		return nil
	}
	var d []string
	a, b := written(want), written(got)
	for _, at := range slices.Sorted(maps.Keys(b)) {
		w, ok := a[at]
		if ok && w != b[at] || !ok && want.NDiffs <= nDiffs {
			d = append(d, fmt.Sprintf("[%#x] %#x want %s", at, b[at], wording(w, ok)))
		}
	}
	for _, at := range slices.Sorted(maps.Keys(a)) {
		if _, ok := b[at]; !ok && got.NDiffs <= nDiffs {
			d = append(d, fmt.Sprintf("[%#x] unwritten want %#x", at, a[at]))
		}
	}
	if len(d) == 0 {
		d = append(d, fmt.Sprintf("memory: %d words with hash %#x want %d with %#x", got.NDiffs, got.Hash, want.NDiffs, want.Hash))
	}
	return d
}

func wording(v uint64, written bool) string {
	if !written {
		return "unwritten"
	}
	return fmt.Sprintf("%#x", v)
}

func written(o *output) map[uint64]uint64 {
	m := map[uint64]uint64{}
	for _, w := range o.Diff[:min(o.NDiffs, nDiffs)] {
		m[w.At] = w.Value
	}
	return m
}

// xsaveDifferences names the fields of the XSAVE image that differ.
func xsaveDifferences(h *shared, want, got []byte) []string {
	if bytes.Equal(want, got) {
		return nil
	}
	var d []string
	field := func(name string, at, n uint64) {
		if !bytes.Equal(want[at:at+n], got[at:at+n]) {
			d = append(d, fmt.Sprintf("%s %x want %x", name, got[at:at+n], want[at:at+n]))
		}
	}
	for _, f := range []struct {
		name  string
		at, n uint64
	}{{"fcw", 0, 2}, {"fsw", 2, 2}, {"ftw", 4, 2}, {"fop", 6, 2}, {"fip", 8, 8}, {"fdp", 16, 8}, {"mxcsr", 24, 8}} {
		field(f.name, f.at, f.n)
	}
	for i := range uint64(8) {
		field(fmt.Sprintf("st%d", i), 32+16*i, 16)
	}
	for i := range uint64(16) {
		field(fmt.Sprintf("xmm%d", i), 160+16*i, 16)
	}
	parts := [8]struct {
		name string
		size uint64
	}{2: {"ymmh", 16}, 5: {"k", 8}, 6: {"zmmh", 32}, 7: {"hizmm", 64}}
	for i, f := range h.Feature {
		if p := parts[i]; p.size > 0 {
			for n := range f.Size / p.size {
				field(fmt.Sprintf("%s%d", p.name, n), f.Offset+n*p.size, p.size)
			}
		}
	}
	return d
}

// exception is a difference that is none.
type exception struct {
	mnemonic string // beginning of it; empty for every instruction
	fields   string // what may differ, as differences names it; a final * stands for anything
	reason   string
	when     func(h *shared, c *testCase, want, got *output) bool // nil for always
}

var exceptions = []exception{
	{"rdtsc", "rax rdx", "time", nil},
	{"rdpru", "rax rdx", "a counter", nil},
	{"sysenter", "*", "it returns into the vdso, which lies elsewhere in each process", notRefused},
	{"xsave", "*", "the processor may find that a component is in its initial state at any context switch", partlyUsed},
	{"xrstor", "ymmh*", "it may leave the upper parts of zmm registers in use and those of ymm not; an EPYC 9004 brings back old ones then, probed or not", nil},
	{"", "ymmh*", "where the case begins with them unused, an EPYC 9004 may bring back old ones with the first instruction that uses one", partlyUsed},
	{"xgetbv", "rax", "the same", nil},
	{"sgdt", "rflags signal-0 signal-1", performed, nil},
	{"sidt", "rflags signal-0 signal-1", performed, nil},
	{"sldt", "rflags signal-0 signal-1", performed, nil},
	{"smsw", "rflags signal-0 signal-1", performed, nil},
	{"str", "rflags signal-0 signal-1", performed, nil},
	{"rdrand", "*", "random", nil},
	{"rdseed", "*", "random", nil},
	{"", "fip fdp fop", "the processor forgets x87 pointers at any context switch", pointersLost},
	{"", "fdp", "the same, and then an exception came", pointersForgotten},
	{"", "fip fdp", "a hypervisor that emulates part of the processor may keep their lower halves only", pointersHalved},
	{"fldcw", "fip fop", "the same, and then it unmasked an exception", pointersForgotten},
	{"fnstenv", "*", "it stores what was forgotten", pointersForgotten},
	{"fnsave", "*", "the same", pointersForgotten},
}

// partlyUsed tells that the case starts with a component in its initial state.
func partlyUsed(h *shared, c *testCase, _, _ *output) bool {
	return binary.LittleEndian.Uint64(c.in.XSave[512:]) != h.XFeatures
}

// notRefused tells that the processor has the instruction: AMD's have no sysenter here.
func notRefused(_ *shared, _ *testCase, want, _ *output) bool { return want.Signo != sigILL }

// names tells that the exception is about an instruction in text.
func (e *exception) names(text string) bool {
	return slices.ContainsFunc(strings.Fields(text), func(s string) bool { return strings.HasPrefix(s, e.mnemonic) })
}

func (e *exception) allows(field string) bool {
	return slices.ContainsFunc(strings.Fields(e.fields), func(f string) bool {
		beginning, open := strings.CutSuffix(f, "*")
		return f == field || open && strings.HasPrefix(field, beginning)
	})
}

// unsteady tells of an instruction that something may be excepted of; what it leaves is
// no state to begin with.
func unsteady(insn arch.Insn) bool {
	text := amd64.Arch{}.Disassemble(insn)
	for _, e := range exceptions {
		if e.mnemonic != "" && e.names(text) {
			return true
		}
	}
	return false
}

const performed = "the kernel performs it and leaves RF set for the next instruction"

// x87Pending tells that the image has an x87 exception pending (ES).
func x87Pending(xsave *[xsaveMax]byte) bool { return xsave[2]&0x80 != 0 }

// pointersForgotten tells that the case starts without one, and that this processor
// keeps the addresses of the last x87 instruction and its operand only if one is.
func pointersForgotten(h *shared, c *testCase, _, _ *output) bool {
	return h.KeepsPointers == 0 && !(x87Pending(&c.in.XSave) && c.in.XSave[512]&1 != 0)
}

// pointersLost tells that it ends without one.
func pointersLost(h *shared, _ *testCase, want, got *output) bool {
	return h.KeepsPointers == 0 && !(x87Pending(&want.XSave) && x87Pending(&got.XSave))
}

// pointersHalved tells that there may be such a hypervisor, and that the lower halves are right.
func pointersHalved(_ *shared, _ *testCase, want, got *output) bool {
	return !testprog.StepsEveryInstruction() && bytes.Equal(want.XSave[8:12], got.XSave[8:12]) && bytes.Equal(want.XSave[16:20], got.XSave[16:20])
}

// unexplained lists the differences that no exception allows.
func (c *testCase) unexplained(h *shared, want, got *output) []string {
	text := c.text()
	var rest []string
	for _, d := range differences(h, want, got) {
		name, _, _ := strings.Cut(d, " ")
		if !excepted(h, c, text, name, want, got) {
			rest = append(rest, d)
		}
	}
	return rest
}

func excepted(h *shared, c *testCase, text, field string, want, got *output) bool {
	for _, e := range exceptions {
		if e.names(text) && (e.when == nil || e.when(h, c, want, got)) && e.allows(field) {
			return true
		}
	}
	return false
}
