package ptrace

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/internal/testprog"
)

// hold runs f on the tracer's thread with a fixture attached, and checks afterwards that
// the fixture was left as it was found.
func hold(t *testing.T, fixture string, f func(*Process)) {
	t.Helper()
	prog := testprog.Start(t, testprog.Build(t, fixture))
	tr, err := New()
	if err != nil {
		t.Fatal(err)
	}
	tr.SetHandler(Nop{})
	defer tr.Close()
	if err := tr.Do(func() {
		p, err := tr.Attach(prog.PID())
		if err != nil {
			t.Error(err)
			return
		}
		f(p)
		if err := tr.Detach(p); err != nil {
			t.Error(err)
		}
	}); err != nil {
		t.Fatal(err)
	}
	prog.CheckClean()
}

// mappings of the fixture's own file, and the end of one that nothing follows.
type places struct {
	text, rodata, data arch.Range
	edge               arch.Addr
}

func findPlaces(pid int) (at places) {
	maps, err := procfs.Maps(pid)
	must(err)
	exe, err := procfs.Exe(pid)
	must(err)
	for i, m := range maps {
		if m.Read && (i+1 == len(maps) || maps[i+1].Range.Start != m.Range.End) && at.edge == 0 {
			at.edge = m.Range.End
		}
		switch {
		case m.Path != exe:
		case m.Exec:
			at.text = m.Range
		case m.Write:
			at.data = m.Range
		case at.text.Start != 0 && at.rodata.Start == 0:
			at.rodata = m.Range
		}
	}
	if at.text.Start == 0 || at.rodata.Start == 0 || at.data.Start == 0 || at.edge == 0 {
		must(fmt.Errorf("mappings not found: %+v", at))
	}
	return at
}

var allWays = map[string]MemoryWays{
	"process_vm": {VM: true, File: true}, "proc file": {File: true}, "ptrace words": {},
}

// TestMemory: every way into memory reads the same and refuses what the target itself
// could not do. The oracle is /proc/PID/mem as this test opens it.
func TestMemory(t *testing.T) {
	for _, old := range []bool{false, true} {
		for name, ways := range allWays {
			t.Run(fmt.Sprintf("%s, old %v", name, old), func(t *testing.T) {
				defer noQuery.Store(noQuery.Load())
				if old {
					noQuery.Store(true) // as a kernel before Linux 6.11
				}
				hold(t, "prey", func(p *Process) {
					p.Space.LimitMemory(ways)
					at := findPlaces(p.PID)
					checkReads(t, p, at)
					checkFaults(t, p, at)
					checkWrites(t, p, at)
				})
			})
		}
	}
}

// TestProtections: of memory without a file, whose content /proc/PID/mem tells whatever they are, the target's own are obeyed; also by who does not trace it.
func TestProtections(t *testing.T) {
	for _, old := range []bool{false, true} {
		for name, ways := range allWays {
			t.Run(fmt.Sprintf("%s, old %v", name, old), func(t *testing.T) {
				defer noQuery.Store(noQuery.Load())
				if old {
					noQuery.Store(true)
				}
				hold(t, "prey", func(p *Process) {
					p.Space.LimitMemory(ways)
					checkProtections(t, p)
				})
			})
		}
	}
}

func checkProtections(t *testing.T, p *Process) {
	page := uint64(os.Getpagesize())
	var at arch.Addr
	must(p.Space.Freeze(func(*Frozen) error {
		return p.Space.Remote(func(r *Remote) error {
			v, err := r.Syscall(unix.SYS_MMAP, 0, 3*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS, ^uint64(0), 0)
			must(err)
			at = arch.Addr(v)
			must(p.Space.WriteMemory(at, bytes.Repeat([]byte{7}, int(3*page))))
			_, err = r.Syscall(unix.SYS_MPROTECT, v+page, page, unix.PROT_NONE)
			must(err)
			_, err = r.Syscall(unix.SYS_MPROTECT, v+2*page, page, unix.PROT_READ)
			return err
		})
	}))
	peek := p.Space.Peek(p.PID)
	for i, c := range []struct{ read, write bool }{{true, true}, {false, false}, {true, false}} {
		b := []byte{9}
		page := at + arch.Addr(i)*arch.Addr(page)
		if err := p.Space.ReadMemory(page, b); (err == nil) != c.read || err == nil && b[0] != 7 {
			t.Errorf("page %d: read % x, %v", i, b, err)
		}
		for _, m := range []arch.Memory{peek, PeekMemory{PID: p.PID}} {
			if err := m.ReadMemory(page, b); (err == nil) != c.read || err == nil && b[0] != 7 {
				t.Errorf("page %d: %T read % x, %v", i, m, b, err)
			}
		}
		if err := p.Space.WriteMemory(page, []byte{7}); (err == nil) != c.write {
			t.Errorf("page %d: written: %v", i, err)
		}
		if err := p.Space.Text().ReadMemory(page, b); err != nil || b[0] != 7 {
			t.Errorf("page %d: read as text: % x, %v", i, b, err)
		}
	}
	if err := p.Space.ReadMemory(at+arch.Addr(page)-1, make([]byte, 2)); err == nil {
		t.Error("a read into a page that may not be read has been done")
	}
	must(p.Space.Freeze(func(*Frozen) error {
		return p.Space.Remote(func(r *Remote) error {
			_, err := r.Syscall(unix.SYS_MUNMAP, uint64(at), 3*page)
			return err
		})
	}))
}

func checkReads(t *testing.T, p *Process, at places) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/mem", p.PID))
	must(err)
	defer f.Close()
	page := arch.Addr(os.Getpagesize())
	for _, r := range []arch.Range{
		{Start: at.text.Start, End: at.text.End}, // several pages
		{Start: at.text.Start + 1, End: at.text.Start + 2},
		{Start: at.text.Start + page - 3, End: at.text.Start + page}, // to the end of a page
		{Start: at.rodata.Start - 5, End: at.rodata.Start + 7},       // across two mappings
		{Start: at.edge - 9, End: at.edge},
	} {
		want, got := make([]byte, r.Len()), make([]byte, r.Len())
		_, err := f.ReadAt(want, int64(r.Start))
		must(err)
		if err := p.Space.ReadMemory(r.Start, got); err != nil || !bytes.Equal(got, want) {
			t.Errorf("read of %s: %v, equal %v", r, err, bytes.Equal(got, want))
		}
		clear(got)
		if err := p.Space.Text().ReadMemory(r.Start, got); err != nil || !bytes.Equal(got, want) {
			t.Errorf("read of %s as text: %v, equal %v", r, err, bytes.Equal(got, want))
		}
	}
	if err := p.Space.ReadMemory(0, nil); err != nil {
		t.Errorf("read of nothing: %v", err)
	}
}

func checkFaults(t *testing.T, p *Process, at places) {
	for _, c := range []struct {
		name  string
		at    arch.Addr
		n     int
		write bool
	}{
		{"read of address 0", 0, 8, false},
		{"read that ends behind the mapping", at.edge - 4, 8, false},
		{"read behind the mapping", at.edge, 1, false},
		{"read of a kernel address", 0xffff_8000_0000_0000, 8, false},
		{"write of read-only data", at.rodata.Start, 8, true},
		{"write of text", at.text.Start, 1, true},
		{"write of address 0", 0, 1, true},
	} {
		b := make([]byte, c.n)
		err := p.Space.ReadMemory(c.at, b)
		if c.write {
			err = p.Space.WriteMemory(c.at, b)
		}
		var fault *arch.FaultError
		if !errors.As(err, &fault) || fault.Addr != c.at || fault.Write != c.write {
			t.Errorf("%s: %v, want a fault at %s", c.name, err, c.at)
		}
	}
}

func checkWrites(t *testing.T, p *Process, at places) {
	for _, c := range []struct {
		name string
		mem  arch.Memory
		at   arch.Addr
		n    int
	}{
		{"data", p.Space, at.data.End - 32, 13},
		{"one byte of text", p.Space.Text(), at.text.Start + 71, 1},
		{"text across a word", p.Space.Text(), at.text.Start + 69, 9},
		{"read-only data as text", p.Space.Text(), at.rodata.Start + 67, 3},
	} {
		around, after := make([]byte, c.n+16), make([]byte, c.n+16)
		must(p.Space.ReadMemory(c.at-8, around))
		old, now := around[8:8+c.n], make([]byte, c.n)
		want := bytes.Repeat([]byte{0xa5}, c.n)
		if err := c.mem.WriteMemory(c.at, want); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if err := c.mem.ReadMemory(c.at, now); err != nil || !bytes.Equal(now, want) {
			t.Errorf("%s: reads back as % x, %v", c.name, now, err)
		}
		if err := c.mem.WriteMemory(c.at, old); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		must(p.Space.ReadMemory(c.at-8, after))
		if !bytes.Equal(after, around) {
			t.Errorf("%s: there was % x, now % x", c.name, around, after)
		}
	}
}

// must is for the tracer's thread, where t.Fatal would end the goroutine.
func must(err error) {
	if err != nil {
		panic(err)
	}
}
