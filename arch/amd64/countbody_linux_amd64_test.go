package amd64_test

import (
	"encoding/binary"
	"sync"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/arch/amd64/code"
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

func newNative(t testing.TB) *native {
	t.Helper()
	mem, err := unix.Mmap(-1, 0, 1<<16, unix.PROT_READ|unix.PROT_WRITE|unix.PROT_EXEC, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(mem) })
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

// probed is a function: mov %rax,%rcx; lea 1(%rax),%rdx; ret.
var probed = []byte{0x48, 0x89, 0xc1, 0x48, 0x8d, 0x50, 1, 0xc3}

// probe makes the probed function begin with a jump to a detour that runs body, if there is one.
func (m *native) probe(t testing.TB, body func(cells arch.Addr) arch.Body) {
	t.Helper()
	copy(m.mem[probedOff:], probed)
	if body == nil {
		return
	}
	a := code.Arch{}
	d, err := a.AssembleDetour(m.at+detourOff, sequence(t, probed[:7], m.at+probedOff), body(m.at+cellsOff))
	if err != nil {
		t.Fatal(err)
	}
	copy(m.mem[detourOff:], d.Code)
	jump, err := a.Jump(m.at+probedOff, d.Addr)
	if err != nil {
		t.Fatal(err)
	}
	copy(m.mem[probedOff:], jump)
}

// hits is the sum of n counters.
func (m *native) hits(n int) (sum uint64) {
	for k := range n {
		sum += binary.LittleEndian.Uint64(m.mem[cellsOff+64*k:])
	}
	return sum
}

func TestCountsAreExactUnderThreads(t *testing.T) {
	for _, n := range []int{1, 2, 16} {
		m := newNative(t)
		m.probe(t, func(cells arch.Addr) arch.Body { return code.Arch{}.CountBody(cells, n, arch.Dead{}, true) })
		const threads, each = 8, 1_000_000
		var all sync.WaitGroup
		begin := make(chan bool)
		for range threads {
			all.Go(func() {
				<-begin
				m.run(each)
			})
		}
		close(begin)
		all.Wait()
		if got := m.hits(n); got != threads*each {
			t.Errorf("%d counters: %d of %d hits", n, got, threads*each)
		}
	}
}

// TestStacksHaveTheirCounters: threads whose stacks lie as C libraries and Go put them use
// all counters.
func TestStacksHaveTheirCounters(t *testing.T) {
	c := newCPU(t)
	const n = nCells
	d, err := code.Arch{}.AssembleDetour(detourAt, sequence(t, []byte{0x90}, codeAt), code.Arch{}.CountBody(cellsAt, n, arch.Dead{Flags: true, Regs: 0xffff}, true))
	if err != nil {
		t.Fatal(err)
	}
	c.put(d.Addr, d.Code)
	start := c.regs()
	for _, apart := range []uint64{0x801000, 0x800000, 0xa00000, 0x101000, 0x2000, 0x8000000} {
		c.put(cellsAt, make([]byte, 64*n))
		for k := range uint64(16) {
			r := start
			r.Rsp = 0x7f56_7890_1238 - k*apart
			if _, sig, err := c.through(d, r, arch.Dead{Flags: true, Regs: 0xffff}); err != nil || sig != unix.SIGTRAP {
				t.Fatal(sig, err)
			}
		}
		for k := range n {
			if got := binary.LittleEndian.Uint64(c.get(cellsAt+arch.Addr(64*k), 8)); got < 16/n/2 {
				t.Errorf("%#x apart: counter %d has %d of 16", apart, k, got)
			}
		}
	}
}

// BenchmarkCount compares a counting detour with a hand-written one.
func BenchmarkCount(b *testing.B) {
	a := code.Arch{}
	for _, c := range []struct {
		name string
		body func(cells arch.Addr) arch.Body
	}{
		{"unprobed", nil},
		{"copies", func(arch.Addr) arch.Body { return nil }},
		{"hand", func(cells arch.Addr) arch.Body { return handWritten{cells} }},
		{"one", func(cells arch.Addr) arch.Body { return a.CountBody(cells, 1, arch.Dead{}, true) }},
		{"four", func(cells arch.Addr) arch.Body { return a.CountBody(cells, 4, arch.Dead{}, true) }},
		{"fourGo", func(cells arch.Addr) arch.Body { return a.CountBody(cells, 4, arch.Dead{}, false) }},
		{"oneDead", func(cells arch.Addr) arch.Body { return a.CountBody(cells, 1, arch.Dead{Flags: true, Regs: 6}, true) }},
		{"fourDead", func(cells arch.Addr) arch.Body { return a.CountBody(cells, 4, arch.Dead{Flags: true, Regs: 6}, true) }},
	} {
		b.Run(c.name, func(b *testing.B) {
			m := newNative(b)
			m.probe(b, c.body)
			b.ResetTimer()
			m.run(b.N)
			if counts := c.body != nil && c.name != "copies"; counts != (m.hits(4) == uint64(b.N)) {
				b.Errorf("%d of %d counted", m.hits(4), b.N)
			}
		})
	}
}
