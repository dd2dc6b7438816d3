package amd64

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"testing"

	"github.com/gokprobe/gokprobe/arch"
)

// stackMem is 512 bytes of stack, filled with 0xee.
type stackMem struct {
	base  arch.Addr
	bytes [512]byte
}

func (m *stackMem) ReadMemory(at arch.Addr, p []byte) error {
	copy(p, m.bytes[at-m.base:])
	return nil
}

func (m *stackMem) WriteMemory(at arch.Addr, p []byte) error {
	if at < m.base || at.Add(int64(len(p))) > m.base+arch.Addr(len(m.bytes)) {
		return &arch.FaultError{Addr: at, Write: true}
	}
	copy(m.bytes[at-m.base:], p)
	return nil
}

// TestSetCallFollowsTheABI: for every alignment of rsp and number of arguments the stack pointer
// is 8 above a multiple of 16 at the entry, the red zone and what is above it stays, and the
// arguments are where the function looks for them.
func TestSetCallFollowsTheABI(t *testing.T) {
	const fn, ret, base = 0x401000, 0x7000_0000_0001, 0x10000
	for sp := uint64(base + 400); sp < base+432; sp++ {
		for n := range 12 {
			m := &stackMem{base: base}
			for i := range m.bytes {
				m.bytes[i] = 0xee
			}
			args := make([]uint64, n)
			for i := range args {
				args[i] = uint64(0x1111111111111111 * (i + 1))
			}
			r := &Regs{Rsp: sp, Rip: 5, Rax: 0xff, Rbx: 77, Rbp: 88, R10: 99, Orig_rax: 3, Eflags: 0x202 | flagDF | FlagTF | flagCF}
			if err := (Arch{}).SetCall(r, m, fn, ret, args); err != nil {
				t.Fatal(err)
			}
			if r.Rip != fn || r.Rax != 0 || r.Orig_rax != ^uint64(0) || r.Eflags != 0x202|flagCF || r.Rbx != 77 || r.Rbp != 88 || r.R10 != 99 {
				t.Fatalf("registers %+v", *r)
			}
			if (r.Rsp+8)%16 != 0 {
				t.Fatalf("rsp %#x at the entry", r.Rsp)
			}
			got := []uint64{r.Rdi, r.Rsi, r.Rdx, r.Rcx, r.R8, r.R9}[:min(n, 6)]
			frame := m.bytes[r.Rsp-base:]
			if at := binary.LittleEndian.Uint64(frame); at != ret {
				t.Fatalf("return address %#x", at)
			}
			for i := range max(n-6, 0) {
				got = append(got, binary.LittleEndian.Uint64(frame[8+8*i:]))
			}
			if !slices.Equal(got, args) {
				t.Fatalf("arguments %x, want %x", got, args)
			}
			above := m.bytes[sp-RedZone-base:]
			if !bytes.Equal(above, bytes.Repeat([]byte{0xee}, len(above))) {
				t.Fatalf("rsp %#x, %d arguments: the red zone is not as it was", sp, n)
			}
		}
	}
}

// TestSetCallNeedsAStack: without one nothing is changed.
func TestSetCallNeedsAStack(t *testing.T) {
	r := &Regs{Rsp: 64, Rip: 5, Rdi: 7}
	before := *r
	var fault *arch.FaultError
	if err := (Arch{}).SetCall(r, &stackMem{base: 0x10000}, 1, 2, []uint64{3}); !errors.As(err, &fault) || *r != before {
		t.Errorf("%v, registers %+v", err, *r)
	}
}
