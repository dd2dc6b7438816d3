package trampoline

import (
	"errors"
	"fmt"
	"os"
	"slices"
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

// target is a fake address space, and a Mapper of it.
type target struct {
	t    *testing.T
	used []Mapping
	maps map[arch.Range][]byte

	refuses error        // what Map answers
	within  func()       // what happens from inside the next Map
	private bool         // the tracer has not what the target has mapped
	padding arch.Addr    // where Cave says that the segment ends; 0 if there is none
	mapped  []Extent     // all that Map was asked for
	taken   []arch.Range // by Unmap
}

func newTarget(t *testing.T) *target {
	return &target{t: t, used: []Mapping{{Range: text}}, maps: map[arch.Range][]byte{}}
}

func newRegion(t *testing.T, a arch.Code) (*target, *Region) {
	g := newTarget(t)
	return g, New(a, owner, g)
}

func (g *target) Mappings() ([]Mapping, arch.Range, error) { return g.used, limits, nil }

func (g *target) Map(e Extent) (data, code Store, err error) {
	g.mapped = append(g.mapped, e)
	if f := g.within; f != nil {
		g.within = nil
		f()
	}
	if g.refuses != nil {
		return nil, nil, g.refuses
	}
	for _, m := range g.used {
		if m.Range.Overlaps(e.Range()) {
			return nil, nil, fmt.Errorf("mapping %s: %w", e.Range(), os.ErrExist)
		}
	}
	b := make([]byte, e.Range().Len()) // one file in parts that never move
	g.maps[e.Range()] = b
	g.used = append(g.used, Mapping{Range: e.Data}, Mapping{Range: e.Code})
	if g.private {
		return Remote(g, e.Data), Remote(g, e.Code), nil
	}
	return Bytes(b[:e.Data.Len()]), Bytes(b[e.Data.Len():]), nil
}

func (g *target) Unmap(e Extent) error {
	g.taken = append(g.taken, e.Range())
	delete(g.maps, e.Range())
	g.used = slices.DeleteFunc(g.used, func(m Mapping) bool { return m.Range.Overlaps(e.Range()) })
	return nil
}

func (g *target) Cave(near arch.Range) (arch.Addr, arch.Memory, error) {
	if g.padding == 0 {
		return 0, nil, fmt.Errorf("no padding at %s", near.Start)
	}
	return g.padding, g, nil
}

// grow adds the arena that need asks for.
func (g *target) grow(r *Region, need *needArena) {
	g.t.Helper()
	if err := r.grow(need); err != nil {
		g.t.Fatal(err)
	}
}

func (g *target) alloc(r *Region, near arch.Range) arch.Addr {
	g.t.Helper()
	at, err := r.Alloc(near)
	if err != nil {
		g.t.Fatal(err)
	}
	return at
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
