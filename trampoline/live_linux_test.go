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

// adoptMapped does what kprobes does with need, in this process.
func adoptMapped(t *testing.T, r *Region, fd int, need *NeedArena) {
	t.Helper()
	used, _ := ownMaps(t, "")
	e, err := r.Place(need, used, rng(1<<16, 0x7fff_ffff_f000))
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Ftruncate(fd, int64(e.FileEnd())); err != nil {
		t.Fatal(err)
	}
	mapAt(t, e.Data, unix.PROT_READ|unix.PROT_WRITE, fd, e.Offset)
	mapAt(t, e.Code, unix.PROT_READ|unix.PROT_EXEC, fd, e.Offset+e.Data.Len())
	b, err := unix.Mmap(fd, int64(e.Offset), int(e.Range().Len()), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(b) })
	if _, err := r.Adopt(e, Bytes(b[:e.Data.Len():e.Data.Len()]), Bytes(b[e.Data.Len():])); err != nil {
		t.Fatal(err)
	}
}

// TestTheKernelMapsWhatPlaceDecides lets the kernel judge the addresses of two
// arenas, and a finder read through the target's mapping what was written
// through the tracer's.
func TestTheKernelMapsWhatPlaceDecides(t *testing.T) {
	fd, mem, module := self(t)

	r := New(fake, owner)
	for range 2 {
		adoptMapped(t, r, fd, r.need(module, 1))
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

func landMapped(t *testing.T, r *Region, fd int, module arch.Range, options []arch.Pattern) (Landing, bool) {
	t.Helper()
	for {
		l, err := r.Land(module, options, 64)
		var need *NeedArena
		if err == nil {
			return l, true
		}
		if !errors.As(err, &need) {
			t.Fatal(err)
		}
		used, _ := ownMaps(t, "")
		if _, err := r.Place(need, used, rng(1<<16, 0x7fff_ffff_f000)); errors.Is(err, ErrNoLanding) {
			return Landing{}, false
		}
		adoptMapped(t, r, fd, need)
	}
}

// TestTheKernelMapsWhereJumpsMayLead lets the kernel judge the places of arenas for all kinds of
// jumps, and count the memory that they take.
func TestTheKernelMapsWhereJumpsMayLead(t *testing.T) {
	fd, mem, module := self(t)
	r, rnd := New(optimized, owner), rand.New(rand.NewSource(1))
	found := map[arch.Addr]Landing{}
	for i := range 200 {
		site := module.Start + arch.Addr(i*100)
		options := patterns(rnd, site+5)
		l, ok := landMapped(t, r, fd, module, options[i%2*(len(options)-1):])
		if !ok {
			continue
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
