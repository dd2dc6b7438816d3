package trampoline

import (
	"errors"
	"testing"

	"github.com/gokprobe/gokprobe/arch"
)

// fakeArch has the few properties that the room asks for.
type fakeArch struct {
	arch.Code
	slot       int
	breakpoint []byte
}

var fake = fakeArch{slot: 64, breakpoint: []byte{0xcc}}

func (fakeArch) Name() string         { return "fake" }
func (f fakeArch) Breakpoint() []byte { return f.breakpoint }
func (fakeArch) SyscallInsn() []byte  { return []byte{0x0f, 0x05} }
func (f fakeArch) SlotSize() int      { return f.slot }
func (fakeArch) Reach() uint64        { return 1<<31 - 1<<16 }

// jumps is a fakeArch that has detours.
type jumps struct {
	fakeArch
	arch.Detours
}

func (jumps) JumpLen() int { return 5 }

func (jumps) TrapsBehind(arch.Insn) (set arch.ByteSet, ok bool) { return set, false }

func (jumps) TrapBytes(breakpointOnly bool) arch.ByteSet {
	if breakpointOnly {
		return arch.Bytes(0xcc)
	}
	return trapBytes
}

var trapBytes = arch.Bytes(0xcc, 0x06, 0x07, 0x0e, 0x16, 0x17, 0x1e, 0x1f, 0x27, 0x2f, 0x37, 0x3f, 0x60, 0x61)

var (
	text   = arch.Range{Start: 0x5555_5555_4000, End: 0x5555_5560_0000}
	limits = arch.Range{Start: 0x1000, End: 0x7fff_ffff_f000}
	owner  = Owner{PID: 4711, StartTime: 123456789, PIDNamespace: 4026531836}
)

// target is a fake address space: what ptrace would have mapped.
type target struct {
	t    *testing.T
	used []Mapping
	maps map[arch.Range][]byte
}

func newTarget(t *testing.T) *target {
	return &target{t: t, used: []Mapping{{Range: text}}, maps: map[arch.Range][]byte{}}
}

// adopt does what the caller of Place has to do.
func (g *target) adopt(r *Region, need *NeedArena) *Arena {
	g.t.Helper()
	e, err := r.Place(need, g.used, limits)
	if err != nil {
		g.t.Fatal(err)
	}
	b := make([]byte, e.Range().Len()) // one file in parts that never move
	g.maps[e.Range()] = b
	g.used = append(g.used, Mapping{Range: e.Data}, Mapping{Range: e.Code})
	a, err := r.Adopt(e, Bytes(b[:e.Data.Len()]), Bytes(b[e.Data.Len():]))
	if err != nil {
		g.t.Fatal(err)
	}
	return a
}

func (g *target) alloc(r *Region, near arch.Range) arch.Addr {
	g.t.Helper()
	for {
		at, err := r.Alloc(near)
		var need *NeedArena
		if !errors.As(err, &need) {
			if err != nil {
				g.t.Fatal(err)
			}
			return at
		}
		g.adopt(r, need)
	}
}

func (g *target) bytes(at arch.Addr, n int) ([]byte, error) {
	for r, b := range g.maps {
		if r.Contains(at) && r.End-at >= arch.Addr(n) {
			return b[at-r.Start:][:n], nil
		}
	}
	return nil, &arch.FaultError{Addr: at, Cause: errors.New("unmapped")}
}

func (g *target) ReadMemory(at arch.Addr, p []byte) error {
	b, err := g.bytes(at, len(p))
	copy(p, b)
	return err
}

func (g *target) WriteMemory(at arch.Addr, p []byte) error {
	b, err := g.bytes(at, len(p))
	copy(b, p)
	return err
}

// base is where the region's header lies.
func (g *target) base(r *Region) arch.Addr {
	for _, a := range r.Arenas() {
		if !a.Cave() && a.Extent().Offset == 0 {
			return a.Extent().Data.Start
		}
	}
	g.t.Fatal("no first arena")
	return 0
}
