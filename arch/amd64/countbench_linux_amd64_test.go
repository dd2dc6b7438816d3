package amd64_test

import (
	"encoding/binary"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/arch/amd64"
)

// handWritten is the least that a detour's body can do that counts, with a red zone and no dead
// register.
type handWritten struct{ cell arch.Addr }

func (h handWritten) Assemble(at arch.Addr) (arch.BodyCode, error) {
	code := []byte{
		0x48, 0x8d, 0x64, 0x24, 0x80, // lea -128(%rsp),%rsp
		0x50, 0x9f, 0x0f, 0x90, 0xc0, // push %rax; lahf; seto %al
		0xf0, 0x48, 0xff, 0x05, 0, 0, 0, 0, // lock incq cell(%rip)
		0x04, 0x7f, 0x9e, 0x58, // add $0x7f,%al; sahf; pop %rax
		0x48, 0x8d, 0xa4, 0x24, 0x80, 0, 0, 0, // lea 128(%rsp),%rsp
	}
	binary.LittleEndian.PutUint32(code[14:], uint32(h.cell-at-18))
	return arch.BodyCode{Code: code}, nil
}

// native is memory in which this process can run machine code.
type native struct {
	mem []byte
	at  arch.Addr
}

const (
	loopOff   = 0
	probedOff = 0x100
	detourOff = 0x200
	cellsOff  = 0x1000
)

func newNative(b *testing.B) *native {
	mem, err := unix.Mmap(-1, 0, 1<<16, unix.PROT_READ|unix.PROT_WRITE|unix.PROT_EXEC, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		b.Skip(err)
	}
	b.Cleanup(func() { unix.Munmap(mem) })
	return &native{mem, arch.Addr(uintptr(unsafe.Pointer(&mem[0])))}
}

// run calls the probed function n times.
func (m *native) run(n int) {
	// 1: call probed; sub $1,%rax; jnz 1b; ret
	loop := []byte{0xe8, 0, 0, 0, 0, 0x48, 0x83, 0xe8, 1, 0x75, 0xf5, 0xc3}
	binary.LittleEndian.PutUint32(loop[1:], probedOff-5)
	copy(m.mem[loopOff:], loop)
	code := uintptr(m.at)
	closure := &code
	(*(*func(int))(unsafe.Pointer(&closure)))(n)
}

// BenchmarkCount compares a counting detour with a hand-written one.
func BenchmarkCount(b *testing.B) {
	a := amd64.Arch{}
	probed := []byte{0x48, 0x89, 0xc1, 0x48, 0x8d, 0x50, 1, 0xc3} // mov %rax,%rcx; lea 1(%rax),%rdx; ret
	for _, c := range []struct {
		name string
		body func(cells arch.Addr) arch.Body
	}{
		{"unprobed", nil},
		{"copies", func(arch.Addr) arch.Body { return nil }},
		{"hand", func(cells arch.Addr) arch.Body { return handWritten{cells} }},
		{"1", func(cells arch.Addr) arch.Body { return a.CountBody(cells, 1, arch.Dead{}, true) }},
		{"4", func(cells arch.Addr) arch.Body { return a.CountBody(cells, 4, arch.Dead{}, true) }},
		{"4go", func(cells arch.Addr) arch.Body { return a.CountBody(cells, 4, arch.Dead{}, false) }},
		{"1dead", func(cells arch.Addr) arch.Body { return a.CountBody(cells, 1, arch.Dead{Flags: true, Regs: 6}, true) }},
		{"4dead", func(cells arch.Addr) arch.Body { return a.CountBody(cells, 4, arch.Dead{Flags: true, Regs: 6}, true) }},
	} {
		b.Run(c.name, func(b *testing.B) {
			m := newNative(b)
			copy(m.mem[probedOff:], probed)
			if c.body != nil {
				insns := sequence(b, probed[:7], m.at+probedOff)
				d, err := a.AssembleDetour(m.at+detourOff, insns, c.body(m.at+cellsOff))
				if err != nil {
					b.Fatal(err)
				}
				copy(m.mem[detourOff:], d.Code)
				jump, err := a.Jump(m.at+probedOff, d.Addr)
				if err != nil {
					b.Fatal(err)
				}
				copy(m.mem[probedOff:], jump)
			}
			b.ResetTimer()
			m.run(b.N)
			var hits uint64
			for k := range 4 {
				hits += binary.LittleEndian.Uint64(m.mem[cellsOff+64*k:])
			}
			if counts := c.body != nil && c.name != "copies"; counts != (hits == uint64(b.N)) {
				b.Errorf("%d of %d counted", hits, b.N)
			}
		})
	}
}
