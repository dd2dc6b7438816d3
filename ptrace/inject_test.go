package ptrace

import (
	"errors"
	"maps"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/internal/testprog"
)

// room is where the programs here have nothing.
const room = arch.Addr(0x200000000000)

// TestWhatCannotBeMappedLeavesNothing: neither a mapping nor a descriptor, whichever of the two mappings has no room.
func TestWhatCannotBeMappedLeavesNothing(t *testing.T) {
	prog := testprog.Start(t, testprog.Build(t, "siblings"))
	before := testprog.TakeSnapshot(t, prog.PID())
	withTarget(t, prog, func(p *Process) {
		taken := must2(p.Space.Maps())[0].Range
		free := func(n uint64) arch.Range { return arch.Range{Start: taken.Start - arch.Addr(n), End: taken.Start} }
		for name, e := range map[string]Extent{
			"data": {Data: stretch(taken.Start, pageSize), Code: stretch(taken.Start+pageSize, pageSize)},
			"code": {Data: free(pageSize), Code: stretch(taken.Start, pageSize)},
			"none": {Data: stretch(1<<62, pageSize), Code: stretch(1<<62+pageSize, pageSize)},
		} {
			m, err := p.Space.MapShared("gokprobe", e)
			if private := p.Space.MapPrivate(e); m != nil || err == nil || private == nil {
				t.Errorf("%s: shared %v, %v; private %v", name, m, err, private)
			}
			if name != "none" && !errors.Is(err, unix.EEXIST) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
	before.Compare(t, prog.PID())
	if got := prog.Quit(); got != "right" {
		t.Errorf("the program says %q, want right", got)
	}
}

// TestMappingsAreAsTheyWereAskedFor: data can't be executed, code can't be written, both sides of shared memory see the same at each offset, and unmapping
// leaves nothing; what can't be unmapped is named.
func TestMappingsAreAsTheyWereAskedFor(t *testing.T) {
	prog := testprog.Start(t, testprog.Build(t, "siblings"))
	before := testprog.TakeSnapshot(t, prog.PID())
	e := Extent{Data: stretch(room, 2*pageSize), Code: stretch(room+2*pageSize, 3*pageSize), Offset: 4 * pageSize}
	withTarget(t, prog, func(p *Process) {
		for _, shared := range []bool{false, true} {
			var m *Shared
			if shared {
				m = must2(p.Space.MapShared("gokprobe", e))
			} else {
				must(p.Space.MapPrivate(e))
			}
			for _, part := range []struct {
				arch.Range
				write bool
			}{{e.Data, true}, {e.Code, false}} {
				got := must2(p.Space.mapAt(part.Start))
				if got == nil || got.Range != part.Range || !got.Read || got.Write != part.write || got.Exec == part.write || got.Shared != shared {
					t.Errorf("shared %v: %s is %+v", shared, part.Range, got)
				}
			}
			if err := p.Space.WriteMemory(e.Code.Start, []byte{1}); err == nil {
				t.Error("code can be written")
			}
			if !shared {
				must(p.Space.Text().WriteMemory(e.Code.End-1, []byte{7}))
			}
			must(p.Space.WriteMemory(e.Data.Start, []byte{5}))
			if shared && m.Data[0] != 5 {
				t.Errorf("the tracer sees %d", m.Data[0])
			}
			if shared {
				m.Code[0] = 9
				b := []byte{0}
				if must(p.Space.ReadMemory(e.Code.Start, b)); b[0] != 9 {
					t.Errorf("the target sees %d", b[0])
				}
				m.Unmap()
			}
			must(p.Space.Unmap())
			if err := p.Space.Unmap(e.Data, arch.Range{Start: 1, End: 2}, e.Code); !errors.Is(err, unix.EINVAL) {
				t.Errorf("an address that is none: %v", err)
			}
			must(p.Remote(func(r *Remote) error { return r.Munmap(e.Data) })) // there is nothing any more, which is no error
		}
		if err := p.Remote(func(r *Remote) error { return r.Munmap(arch.Range{Start: 1, End: 2}) }); !errors.Is(err, unix.EINVAL) {
			t.Errorf("an address that is none: %v", err)
		}
	})
	before.Compare(t, prog.PID())
	if got := prog.Quit(); got != "right" {
		t.Errorf("the program says %q, want right", got)
	}
}

// TestCodeIsFoundWhereverItLies, also across the pieces that are read at once, and in what is looked at first.
func TestCodeIsFoundWhereverItLies(t *testing.T) {
	const piece = 64 << 10
	th := threadOfOurs(t)
	s := th.Proc.Space
	mem := must2(unix.Mmap(-1, 0, 3*piece, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS))
	defer func() { must(unix.Munmap(mem)) }()
	start := arch.Addr(uintptr(unsafe.Pointer(&mem[0])))
	pattern := []byte{0xf1, 0x0e, 0xf2, 0x0d, 0xf3, 0x0c, 0xf4}
	for _, at := range []int{0, 1, piece - 17, piece - 16, piece - 3, piece, 2*piece - 40, 2*piece - 20, len(mem) - len(pattern)} {
		copy(mem[at:], pattern)
		if got, ok := s.scan(stretch(start, uint64(len(mem))), pattern); !ok || got != start+arch.Addr(at) {
			t.Errorf("at %d it is found: %v, at %d", at, ok, got-start)
		}
		if got, ok := s.scan(stretch(start, uint64(at+len(pattern)-1)), pattern); ok {
			t.Errorf("a part of it is found at %d", got-start)
		}
		clear(mem[at : at+len(pattern)])
	}
	if got, ok := s.scan(stretch(start, uint64(len(mem))), pattern); ok {
		t.Errorf("what is not there is found at %d", got-start)
	}
	hold(t, "siblings", func(p *Process) {
		text := findPlaces(p.PID).text
		first := make([]byte, 16)
		must(p.Space.ReadMemory(text.Start, first))
		if at, ok := p.Space.findCode(first, inFile); !ok {
			t.Error("the program's code is not found")
		} else if m := must2(p.Space.mapAt(at)); m == nil || !m.Exec || m.Anonymous() {
			t.Errorf("it is found in %+v", m)
		}
		if at, ok := p.Space.findCode(first, inVDSO); ok {
			t.Errorf("it is found in the vdso, at %s", at)
		}
	})
}

// TestCodeIsSoughtFirstWhereItWasFoundLast: and it is looked at again, since that may be other code by now.
func TestCodeIsSoughtFirstWhereItWasFoundLast(t *testing.T) {
	hold(t, "siblings", func(p *Process) {
		s, pattern := p.Space, make([]byte, 2)
		text := findPlaces(p.PID).text
		must(s.ReadMemory(text.Start, pattern))
		m := must2(s.mapAt(text.Start))
		later := arch.Addr(0)
		for at := text.Start + 1; later == 0 && at < text.End-1; at++ {
			if s.has(at, pattern) {
				later = at
			}
		}
		if later == 0 {
			t.Fatal("the program has no code twice")
		}
		both, files := []func(procfs.Mapping) bool{inVDSO, inFile}, []func(procfs.Mapping) bool{inFile}
		for _, c := range []struct {
			name   string
			rank   int
			noted  arch.Addr
			wheres []func(procfs.Mapping) bool
			again  bool
		}{
			{"there", 1, later, both, true},
			{"a place of another kind", 0, later, both, false},
			{"further down than is looked", 1, later, files, false},
			{"something else there", 0, text.Start + 1, files, s.has(text.Start+1, pattern)},
		} {
			s.tracer.found = nil
			want, ok := s.findCode(pattern, c.wheres...)
			s.tracer.noteFound(pattern, c.rank, *m, c.noted)
			if want == c.noted || !ok {
				t.Fatalf("%s: it is found at %s", c.name, want)
			}
			if c.again {
				want = c.noted
			}
			if at, ok := s.findCode(pattern, c.wheres...); !ok || at != want {
				t.Errorf("%s: it is found at %s, want %s", c.name, at, want)
			}
		}
		for i := range byte(40) {
			s.tracer.noteFound([]byte{i}, 0, *m, later)
		}
		if n := len(s.tracer.found); n > 16 {
			t.Errorf("%d places are noted", n)
		}
	})
}

// TestManyMappingsLeaveNoDescriptors: those of the target are the same when memory was mapped many times.
func TestManyMappingsLeaveNoDescriptors(t *testing.T) {
	prog := testprog.Start(t, testprog.Build(t, "siblings"))
	before := testprog.TakeSnapshot(t, prog.PID())
	ours := descriptors()
	withTarget(t, prog, func(p *Process) {
		for range 50 {
			must(mapOnce(p))
		}
	})
	before.Compare(t, prog.PID())
	if now := descriptors(); !maps.Equal(now, ours) {
		t.Errorf("descriptors are %v, were %v", now, ours)
	}
}

// TestMemoryTakesThePlaceOfOther: at once, with what is in it; or, after a failure in the middle, private memory with the same content; or nothing has changed, where there is
// something else than is believed.
func TestMemoryTakesThePlaceOfOther(t *testing.T) {
	prog := testprog.Start(t, testprog.Build(t, "siblings"))
	before := testprog.TakeSnapshot(t, prog.PID())
	e := Extent{Data: stretch(room, 2*pageSize), Code: stretch(room+2*pageSize, pageSize)}
	withTarget(t, prog, func(p *Process) {
		old := must2(p.Space.MapShared("gokprobe", e))
		defer old.Unmap()
		was := must2(p.Space.mapAt(e.Data.Start))
		at := func(at arch.Addr) byte {
			b := []byte{0}
			must(p.Space.ReadMemory(at, b))
			return b[0]
		}
		var own []*Shared
		fill := func(m []*Shared, f *Backing) error {
			t.Cleanup(f.Close)
			own = m
			m[0].Data[5], m[0].Code[6] = 50, 60
			return nil
		}
		none := KeptGuard{Handler: 1, Signals: sigbit(unix.SIGUSR1)}
		apart := Extent{Data: stretch(room+16*pageSize, pageSize), Code: stretch(room+17*pageSize, pageSize)}
		for _, err := range []error{
			p.Space.ReplaceShared(p.Space, "gokprobe", []Extent{e}, none, fill),
			p.Space.ReplaceShared(p.Space, "gokprobe", []Extent{e, apart}, KeptGuard{}, fill),
		} {
			if now := must2(p.Space.mapAt(e.Data.Start)); !errors.Is(err, ErrNotKept) || own != nil || *now != *was {
				t.Errorf("%v; filled %v; mapped %+v, was %+v", err, own != nil, now, was)
			}
		}
		must(p.Space.ReplaceShared(p.Space, "gokprobe", []Extent{e}, KeptGuard{}, fill))
		if now := must2(p.Space.mapAt(e.Data.Start)); now.Inode == was.Inode || !now.Shared || at(e.Data.Start+5) != 50 || at(e.Code.Start+6) != 60 || old.Data[5] != 0 {
			t.Errorf("replaced, it is %+v, was %+v", now, was)
		}
		own[0].Unmap()
		torn := e
		torn.Code = stretch(e.Code.Start+1, pageSize)
		err := p.Space.ReplaceShared(p.Space, "gokprobe", []Extent{torn}, KeptGuard{}, fill)
		if now := must2(p.Space.mapAt(e.Data.Start)); !errors.Is(err, unix.EINVAL) || now.Shared || at(e.Data.Start+5) != 50 {
			t.Errorf("%v; after it %+v", err, now)
		}
		own[0].Unmap()
		must(p.Space.Unmap(e.Data, e.Code))
	})
	before.Compare(t, prog.PID())
	if got := prog.Quit(); got != "right" {
		t.Errorf("the program says %q, want right", got)
	}
}
