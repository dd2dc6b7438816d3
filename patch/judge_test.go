package patch

import (
	"bytes"
	"testing"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/arch/amd64"
)

// TestWhatAProgramWritesOverAJumpIsItsOwn and nothing else that stands there is.
func TestWhatAProgramWritesOverAJumpIsItsOwn(t *testing.T) {
	original, jump := []byte{0x55, 0x48, 0x89, 0xe5, 0x53}, []byte{0xe9, 0x10, 0x20, 0x30, 0xcc}
	near := func(to arch.Addr) bool { return to < base+0x100 }
	for _, c := range []struct {
		name      string
		now, want []byte
	}{
		{"all", []byte{0xb8, 1, 2, 3, 4}, []byte{0xb8, 1, 2, 3, 4}},
		{"the first byte", []byte{0xc3, 0x10, 0x20, 0x30, 0xcc}, []byte{0xc3, 0x48, 0x89, 0xe5, 0x53}},
		{"the first two", []byte{0xeb, 0x11, 0x20, 0x30, 0xcc}, []byte{0xeb, 0x11, 0x89, 0xe5, 0x53}},
		{"whole instructions", []byte{0x48, 0x89, 0xc8, 0xc3, 0xcc}, []byte{0x48, 0x89, 0xc8, 0xc3, 0x53}},
		{"one whose last byte is as ours", []byte{0xb8, 1, 2, 3, 0xcc}, []byte{0xb8, 1, 2, 3, 0xcc}},
		{"one that is longer, with a byte as ours", []byte{0x48, 0xb8, 2, 3, 0xcc}, []byte{0x48, 0xb8, 2, 3, 0xcc}},
		{"one with a byte inside as ours", []byte{0xb8, 1, 0x20, 3, 4}, []byte{0xb8, 1, 0x20, 3, 4}},
		{"one byte inside", []byte{0xe9, 0x10, 0x7f, 0x30, 0xcc}, []byte{0x55, 0x48, 0x7f, 0xe5, 0x53}},
		{"the last byte", []byte{0xe9, 0x10, 0x20, 0x30, 0x7f}, []byte{0x55, 0x48, 0x89, 0xe5, 0x7f}},
		{"an operand", []byte{0xe9, 1, 2, 3, 4}, []byte{0x55, 1, 2, 3, 4}},
		{"a jump", []byte{0xe9, 0x40, 0, 0, 0}, []byte{0xe9, 0x40, 0, 0, 0}},
		{"a call that is being written", []byte{0xcc, 0x10, 0x21, 0, 0}, []byte{0xcc, 0x10, 0x21, 0, 0}},
		{"a breakpoint and a byte", []byte{0xe9, 0xcc, 0x20, 0x30, 0x7f}, []byte{0x55, 0xcc, 0x89, 0xe5, 0x7f}},
	} {
		m := newMemory(16)
		copy(m.b, c.now)
		e := Entry{base, original, jump}
		err := Restore(held(true), m, Judge{[]byte{0xcc}, amd64.Arch{}.Decode, near}, []Entry{e})
		if kept := bytes.Equal(c.now, c.want); kept != (err != nil) || !bytes.Equal(m.b[:5], c.want) {
			t.Errorf("%s: % x becomes % x, not % x (%v)", c.name, c.now, m.b[:5], c.want, err)
		}
	}
}
