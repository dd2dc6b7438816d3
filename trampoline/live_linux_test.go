package trampoline

import (
	"bufio"
	"errors"
	"fmt"
	"math/rand"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
)

// ownMaps returns this process's mappings and the ranges whose path is path.
func ownMaps(t *testing.T, path string) (used []Mapping, found []arch.Range) {
	t.Helper()
	f, err := os.Open("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		var m Mapping
		if _, err := fmt.Sscanf(s.Text(), "%x-%x", &m.Range.Start, &m.Range.End); err != nil {
			t.Fatal(err)
		}
		switch {
		case strings.HasSuffix(s.Text(), "[heap]"):
			m.Grows = GrowsUp
		case strings.HasSuffix(s.Text(), "[stack]"):
			m.Grows = GrowsDown
		case strings.HasSuffix(s.Text(), path):
			found = append(found, m.Range)
		}
		used = append(used, m)
	}
	return used, found
}

// selfMemory reads and writes this process through the kernel.
type selfMemory struct{ f *os.File }

func (m selfMemory) ReadMemory(at arch.Addr, p []byte) error {
	_, err := m.f.ReadAt(p, int64(at))
	return err
}

func (m selfMemory) WriteMemory(at arch.Addr, p []byte) error {
	_, err := m.f.WriteAt(p, int64(at))
	return err
}

func mapAt(t *testing.T, r arch.Range, prot int, fd int, off uint64) {
	t.Helper()
	// Not unix.MmapPtr: the address is a number, never a Go pointer.
	got, _, errno := unix.Syscall6(unix.SYS_MMAP, uintptr(r.Start), uintptr(r.Len()), uintptr(prot),
		unix.MAP_SHARED|unix.MAP_FIXED_NOREPLACE, uintptr(fd), uintptr(off))
	if errno != 0 || arch.Addr(got) != r.Start {
		t.Fatalf("mapping %s: %#x, %v", r, got, errno)
	}
	t.Cleanup(func() {
		if _, _, errno := unix.Syscall(unix.SYS_MUNMAP, got, uintptr(r.Len()), 0); errno != 0 {
			t.Error(errno)
		}
	})
}

// self returns a memfd, this process's memory and where its program lies.
func self(t *testing.T) (fd int, mem arch.Memory, module arch.Range) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	fd, err = unix.MemfdCreate(MemfdName, unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	f, err := os.OpenFile("/proc/self/mem", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	_, own := ownMaps(t, exe)
	return fd, selfMemory{f}, rng(own[0].Start, own[len(own)-1].End)
}

// selfMapper maps in this process what kprobes maps in a target.
type selfMapper struct {
	t  *testing.T
	fd int
}

func (m selfMapper) Mappings() ([]Mapping, arch.Range, error) {
	used, _ := ownMaps(m.t, "")
	return used, rng(1<<16, 0x7fff_ffff_f000), nil
}

func (m selfMapper) Map(e Extent) (data, code Store, err error) {
	if err := unix.Ftruncate(m.fd, int64(e.FileEnd())); err != nil {
		return nil, nil, err
	}
	mapAt(m.t, e.Data, unix.PROT_READ|unix.PROT_WRITE, m.fd, e.Offset)
	mapAt(m.t, e.Code, unix.PROT_READ|unix.PROT_EXEC, m.fd, e.Offset+e.Data.Len())
	b, err := unix.Mmap(m.fd, int64(e.Offset), int(e.Range().Len()), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, nil, err
	}
	m.t.Cleanup(func() { unix.Munmap(b) })
	return Bytes(b[:e.Data.Len():e.Data.Len()]), Bytes(b[e.Data.Len():]), nil
}

func (selfMapper) Unmap(e Extent) error {
	return fmt.Errorf("the arena at %s was of no use", e.Data.Start)
}

func (selfMapper) Cave(arch.Range) (arch.Addr, arch.Memory, error) { return 0, nil, ErrCaveSize }

// TestTheKernelMapsWhatTheRegionDecides lets the kernel judge the addresses of two
// arenas, and a finder read through the target's mapping what was written
// through the tracer's.
func TestTheKernelMapsWhatTheRegionDecides(t *testing.T) {
	fd, mem, module := self(t)

	r := New(fake, owner, selfMapper{t, fd})
	for range 2 {
		if err := r.grow(r.need(module, 1)); err != nil {
			t.Fatal(err)
		}
	}
	slot, err := r.Alloc(module)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Put(&arch.Slot{Addr: slot, Insn: arch.Insn{Addr: module.Start}, Code: []byte{1, 2, 3}}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Journal().Record(module.Start, []byte{4}, []byte{0xcc}); err != nil {
		t.Fatal(err)
	}
	checkFound(t, mem, r, slot, module.Start)
}

// checkFound plays the finder, who knows only the maps.
func checkFound(t *testing.T, mem arch.Memory, r *Region, slot, site arch.Addr) {
	t.Helper()
	_, maps := ownMaps(t, "/memfd:"+MemfdName+" (deleted)")
	var h *Header
	for _, m := range maps {
		if g, err := Inspect(mem, m.Start); err == nil {
			h = g
			break
		}
	}
	if h == nil || len(h.Arenas) != 2 || h.Owner != owner {
		t.Fatalf("found %+v in %v", h, maps)
	}
	rs, err := h.Records(mem, NewAllowance(mostRecords))
	if err != nil || len(rs) != 1 || rs[0].At != site || rs[0].Original[0] != 4 {
		t.Errorf("records %v, %v", rs, err)
	}
	if s, at, ok, err := h.Site(mem, slot+1); s != slot || at != site || !ok || err != nil {
		t.Errorf("site of %s: %s, %s, %v, %v", slot, s, at, ok, err)
	}
	b := make([]byte, 4)
	if err := mem.ReadMemory(slot, b); err != nil || b[0] != 1 || b[2] != 3 || b[3] != 0xcc {
		t.Errorf("the slot shows % x, %v", b, err)
	}
	stub, _ := r.Stub()
	if err := mem.ReadMemory(stub, b[:3]); err != nil || b[0] != 0x0f || b[1] != 0x05 || b[2] != 0xcc {
		t.Errorf("the stub shows % x, %v", b[:3], err)
	}
}

// TestTheKernelMapsWhereJumpsMayLead lets the kernel judge the places of arenas for all kinds of
// jumps, and count the memory that they take.
func TestTheKernelMapsWhereJumpsMayLead(t *testing.T) {
	fd, mem, module := self(t)
	r, rnd := New(optimized, owner, selfMapper{t, fd}), rand.New(rand.NewSource(1))
	found := map[arch.Addr]Landing{}
	for i := range 200 {
		site := module.Start + arch.Addr(i*100)
		options := patterns(rnd, site+5)
		l, err := r.Land(module, options[i%2*(len(options)-1):], 64)
		if errors.Is(err, ErrNoLanding) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Describe(l, detourAt(l, site, 2)); err != nil {
			t.Fatal(err)
		}
		found[site] = l
	}
	base, _ := r.base()
	h, err := Inspect(mem, base)
	if err != nil {
		t.Fatal(err)
	}
	x, err := h.Detours(mem, NewAllowance(mostRecords))
	ds := all(t, mem, x)
	if err != nil || len(ds) != len(found) || len(found) < 100 {
		t.Fatalf("%d detours of %d, %v", len(ds), len(found), err)
	}
	for _, d := range ds {
		if l := found[d.Displaced.Start]; l.Detour != d.Detour.Addr || l.Size != len(d.Detour.Code) {
			t.Errorf("%+v, want %+v", d, l)
		}
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d detours, %d arenas, %d KiB of %d KiB", len(found), len(r.Arenas()), st.Blocks/2, st.Size/1024)
	if st.Blocks/2 > 4*int64(3*len(found)+len(r.Arenas())) {
		t.Errorf("%d KiB", st.Blocks/2)
	}
}
