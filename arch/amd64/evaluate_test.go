package amd64_test

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/arch/amd64"
)

// image is memory with a function at tableAt and words elsewhere. What is not there can't be read.
type image struct {
	code  []byte
	words map[arch.Addr]uint64
}

func (m image) ReadMemory(at arch.Addr, p []byte) error {
	if from := at - tableAt; at >= tableAt && uint64(from)+uint64(len(p)) <= uint64(len(m.code)) {
		copy(p, m.code[at-tableAt:])
		return nil
	}
	if v, ok := m.words[at]; ok && len(p) == 8 {
		binary.LittleEndian.PutUint64(p, v)
		return nil
	}
	return &arch.FaultError{Addr: at, Cause: errTape}
}

func (m image) WriteMemory(at arch.Addr, _ []byte) error {
	return &arch.FaultError{Addr: at, Write: true, Cause: errTape}
}

const (
	threadAt = 0x7f0000001000
	gotAt    = tableAt + 0x107 // what the first load of glibc's names, with displacement 0x100
)

func imageOf(t testing.TB, hex string) image {
	return image{append(hexBytes(t, hex), make([]byte, 16)...), map[arch.Addr]uint64{
		threadAt: threadAt, threadAt + 8: 0x1234, gotAt: ^uint64(0x7f), gotAt + 4: ^uint64(0x7f), 0x7000: tableAt + 6,
	}}
}

func evaluated(m image) (uint64, error) {
	r := &amd64.Regs{Rip: 0x1000, Rsp: 0x8000, Rdi: 3, R9: 5, Rbp: 0x9000, Fs_base: threadAt, Eflags: 0x246}
	return amd64.Arch{}.Evaluate(r, m, tableAt)
}

// TestEvaluateComputesWhatSmallFunctionsReturn: those of the C libraries, and the instructions that others might have.
func TestEvaluateComputesWhatSmallFunctionsReturn(t *testing.T) {
	const add = "644803042500000000" // add %fs:0,%rax
	for _, c := range []struct {
		what, code string
		want       uint64
	}{
		{"glibc", "488b0500010000" + add + "c3", threadAt - 0x80},
		{"glibc behind endbr64", "f30f1efa488b0500010000" + add + "c3", threadAt - 0x80},
		{"glibc, static", "48c7c0c0ffffff" + add + "c3", threadAt - 0x40},
		{"musl", "64488b0425000000004883c034c3", threadAt + 0x34},
		{"with a frame", "554889e564488b0425000000004805200000005dc3", threadAt + 0x20},
		{"lea", "64488b042500000000488d40e0c3", threadAt - 0x20},
		{"bases and indexes", "64488b0425000000004a8d44c801c3", threadAt + 5*8 + 1},
		{"sub", "64488b0425000000004883e810c3", threadAt - 0x10},
		{"moves between registers", "4989f84c89c04c01c8c3", 8},
		{"a word of 32 bits", "b8ffffffff83c001c3", 0},
		{"a large number", "48b8efcdab8967452301c3", 0x0123456789abcdef},
		{"pushes of r8 to r15", "415141584c89c0c3", 5},
		{"a jump", "eb02cccc48c7c007000000c3", 7},
		{"a jump by the linkage table", "ff242500700000c3", 0},
	} {
		m := imageOf(t, c.code)
		if c.what == "glibc behind endbr64" {
			m.words[gotAt+4] = ^uint64(0x7f)
		}
		if c.what == "a jump by the linkage table" {
			m = imageOf(t, "ff242500700000b809000000c3")
			m.words[0x7000], c.want = tableAt+7, 9
		}
		if got, err := evaluated(m); err != nil || got != c.want {
			t.Errorf("%s: %#x, %v, want %#x", c.what, got, err, c.want)
		}
	}
}

// TestEvaluateRefusesOtherFunctions: what does more than to compute, and what can't be read.
func TestEvaluateRefusesOtherFunctions(t *testing.T) {
	for _, c := range []struct {
		what, code string
		want       error
	}{
		{"a call", "e800000000c3", arch.ErrNotPlain},
		{"a store", "488907c3", arch.ErrNotPlain},
		{"a condition", "7500c3", arch.ErrNotPlain},
		{"a system call", "0f05c3", arch.ErrNotPlain},
		{"an endless loop", "ebfe", arch.ErrNotPlain},
		{"a frame that is left", "55c3", arch.ErrNotPlain},
		{"a pop of the caller's", "58c3", arch.ErrNotPlain},
		{"a stack pointer of its own", "4889fcc3", arch.ErrNotPlain},
		{"what it has pushed", "55488b0424c3", arch.ErrNotPlain},
		{"16 bits", "66b80100c3", arch.ErrNotPlain},
		{"ret that pops", "c20800", arch.ErrNotPlain},
		{"a bad address", "488b042500000000c3", errTape},
		{"no instruction", "06", arch.ErrUndecodable},
	} {
		if _, err := evaluated(imageOf(t, c.code)); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.what, err, c.want)
		}
	}
	end := image{code: hexBytes(t, "b801000000c3")} // the page ends behind it, and nothing can be read there
	if got, err := evaluated(end); err == nil {
		t.Errorf("behind the end of what is mapped: %d", got)
	}
}

// FuzzEvaluate: any code is refused or computed, from the thread's registers, which stay what they are.
func FuzzEvaluate(f *testing.F) {
	seed(f, func(b []byte) { f.Add(b) })
	f.Add(hexBytes(f, "488b0500010000644803042500000000c3"))
	f.Fuzz(func(t *testing.T, b []byte) {
		m := image{append(b, 0xc3), map[arch.Addr]uint64{threadAt: threadAt}}
		r := &amd64.Regs{Rip: 0x1000, Rsp: 0x8000, Fs_base: threadAt, Eflags: 0x246}
		before := *r
		_, err := amd64.Arch{}.Evaluate(r, m, tableAt)
		var fault *arch.FaultError
		if err != nil && !errors.Is(err, arch.ErrNotPlain) && !errors.As(err, &fault) && !errors.Is(err, arch.ErrUndecodable) &&
			!errors.Is(err, arch.ErrTruncated) && !errors.Is(err, amd64.ErrNonCanonical) {
			t.Errorf("% x: %v", b, err)
		}
		if *r != before {
			t.Errorf("% x: the registers have changed", b)
		}
	})
}
