package kprobes_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
)

// TestReloadedLibraryGetsItsProbesBack, at another address, with the counts that they had.
// Those by address stay gone.
func TestReloadedLibraryGetsItsProbesBack(t *testing.T) {
	prog, s, warned := glibc.loading(t, kprobes.Options{})
	lib := glibc.lib(t, "libplug.so")
	prog.Do("open 0 "+lib, "did")
	plain, named, off := boosted.probe("plugged"), stepped.probe("libplug.so:plugged"), boosted.probe("libplug.so:plugged")
	register(t, s, plain, named, off)
	first := plain.Addr
	byAddr := &kprobes.Kprobe{Addr: first}
	bySpec := &kprobes.Kprobe{SymbolName: first.String()}
	register(t, s, byAddr, bySpec)
	prog.Do("call 0 plugged 10", "did")
	prog.Do("close 0", "did")
	if err := s.DisableKprobe(off); err != nil {
		t.Error(err)
	}
	wantGone(t, s, bySpec, false)
	prog.Do("occupy 0", "did")
	prog.Do("open 1 "+lib, "did")
	if plain.Addr == first || plain.Addr != named.Addr {
		t.Errorf("the probes are at %v and %v, and were at %v", plain.Addr, named.Addr, first)
	}
	prog.Do("call 1 plugged 10", "did")
	wantPlaced(t, s, plain)
	wantHits(t, plain, 20)
	wantHits(t, named, 20)
	wantHits(t, off, 10)
	if st := s.Status(off); st.Flags != kprobes.FlagDisabled || st.Addr != plain.Addr {
		t.Errorf("the probe that was disabled while it was gone: %+v", st)
	}
	prog.Do("vacate", "did")
	prog.Do("close 1", "did")
	prog.Do("open 2 "+lib, "did") // perhaps where the first was
	prog.Do("call 2 plugged 10", "did")
	wantHits(t, plain, 30)
	wantHits(t, byAddr, 10)
	wantHits(t, bySpec, 10)
	wantGone(t, s, byAddr, false)
	warned.want(t)
	closeSession(t, s)
	prog.CheckClean()
	wantRight(t, prog)
}

// TestAnotherLibraryInItsPlace: it is loaded where the probed one was. Its code stays as it is,
// also where it has the same bytes.
func TestAnotherLibraryInItsPlace(t *testing.T) {
	prog, s, _ := glibc.loading(t, kprobes.Options{})
	lib := glibc.lib(t, "libplug.so")
	text, err := os.ReadFile(lib)
	if err != nil {
		t.Fatal(err)
	}
	twin := filepath.Join(t.TempDir(), "libtwin.so")
	if err := os.WriteFile(twin, text, 0o644); err != nil {
		t.Fatal(err)
	}
	where := prog.Do("open 0 "+lib, "did")
	code := textOf(t, prog, lib)
	kp := boosted.probe("plugged")
	register(t, s, kp)
	at := kp.Addr
	prog.Do("close 0", "did")
	if got := prog.Do("open 1 "+twin, "did"); got != where {
		t.Fatalf("the twin is loaded at %s, the other was at %s", got, where)
	}
	prog.Do("call 1 plugged 10", "did")
	wantGone(t, s, kp, true)
	wantHits(t, kp, 0)
	if !bytes.Equal(textOf(t, prog, twin), code) {
		t.Error("the code of the other library has changed")
	}
	again := &kprobes.Kprobe{Addr: at}
	register(t, s, again)
	prog.Do("call 1 plugged 10", "did")
	wantHits(t, again, 10)
	if err := s.UnregisterKprobe(kp); err != nil {
		t.Error(err)
	}
	prog.Do("call 1 plugged 10", "did")
	wantHits(t, again, 20)
	closeSession(t, s)
	prog.CheckClean()
	wantRight(t, prog)
}

// TestLibraryLoadedAgainAndAgain, by one thread while others are hit, with a return probe that
// makes return breakpoints in the library.
func TestLibraryLoadedAgainAndAgain(t *testing.T) {
	for _, m := range modes {
		t.Run(string(m), func(t *testing.T) {
			prog, s, warned := glibc.loading(t, kprobes.Options{})
			foo, built, plugged, wreck := m.probe("foo"), m.probe("libplug.so:build"), m.probe("libplug.so:plugged"), m.probe("libplug.so:wreck")
			register(t, s, foo, built, plugged, wreck)
			ret := &kprobes.Kretprobe{KP: kprobes.Kprobe{SymbolName: "libplug.so:plugged"}}
			if err := s.RegisterKretprobe(ret); err != nil {
				t.Fatal(err)
			}
			warned.want(t, "waits", "waits", "waits", "waits")
			prog.Do("start", "did")
			const cycles = 200
			prog.Do(fmt.Sprintf("cycle %d %s", cycles, glibc.lib(t, "libplug.so")), "did")
			prog.Do("stop", "did")
			wantHits(t, built, cycles)
			wantHits(t, wreck, cycles)
			wantHits(t, plugged, 4*cycles)
			if ret.KP.Hits() != 4*cycles || ret.Hits() != 4*cycles || ret.NMissed() != 0 {
				t.Errorf("%d entries, %d returns, %d missed; want %d of the first two", ret.KP.Hits(), ret.Hits(), ret.NMissed(), 4*cycles)
			}
			wantGone(t, s, plugged, true)
			warned.want(t)
			closeSession(t, s)
			prog.CheckClean()
			wantRight(t, prog)
		})
	}
}

// TestSessionsDuringLoads attach, wait for the library and detach while a program loads and
// unloads it.
func TestSessionsDuringLoads(t *testing.T) {
	prog := testprog.Start(t, glibc.prog(t))
	prog.Send(fmt.Sprintf("cycle 300 %s", glibc.lib(t, "libplug.so")))
	for range 30 {
		s := attach(t, prog.PID(), kprobes.Options{Log: func(string) {}})
		kp := boosted.probe("libplug.so:plugged")
		register(t, s, kp, boosted.probe("libplug.so:wreck"))
		if err := s.UnregisterKprobe(kp); err != nil {
			t.Errorf("unregister: %v", err)
		}
		closeSession(t, s)
	}
	prog.Expect("did")
	prog.CheckClean()
	wantRight(t, prog)
}

// TestDecisionsOfAReloadedLibrary go on where they were, wherever it is loaded.
func TestDecisionsOfAReloadedLibrary(t *testing.T) {
	const n, seed = 3, 37
	prog, s, warned := glibc.loading(t, kprobes.Options{})
	lib := glibc.lib(t, "libplug.so")
	var got []uint64
	kp := deciding(t, "libplug.so:plugged", oneOf(n, seed), func(kp *kprobes.Kprobe, _ *kprobes.Regs) int {
		got = append(got, kp.State(0)-1)
		return 0
	})
	register(t, s, kp)
	for i := range uint64(6) {
		prog.Do(fmt.Sprintf("open %d %s", i, lib), "did")
		if s.WaitForOptimizer(t.Context()); i%2 == 0 {
			ok(t, s.SetOptimization(i%4 == 0))
			s.WaitForOptimizer(t.Context())
		}
		prog.Do(fmt.Sprintf("call %d plugged 10", i), "did")
		wantHits(t, kp, 10*(i+1))
		prog.Do(fmt.Sprintf("close %d", i), "did")
	}
	if want := chosenOf(60, n, seed); !slices.Equal(got, want) {
		t.Errorf("chosen %v, want %v", got, want)
	}
	*warned = nil // that it waits
	closeSession(t, s)
	prog.CheckClean()
	wantRight(t, prog)
}

// TestFilesOfUnloadedLibrariesAreClosed: a program may make libraries, load and remove them, for as long as it runs.
func TestFilesOfUnloadedLibrariesAreClosed(t *testing.T) {
	prog, s, _ := glibc.loading(t, kprobes.Options{})
	plugged := boosted.probe("libplug.so:plugged")
	register(t, s, plugged)
	code, err := os.ReadFile(glibc.lib(t, "libplug.so"))
	if err != nil {
		t.Fatal(err)
	}
	before, most := s.MappedFiles(), 0
	const loads = 8
	for range loads {
		path := filepath.Join(t.TempDir(), "libplug.so")
		if err := os.WriteFile(path, code, 0o755); err != nil {
			t.Fatal(err)
		}
		prog.Do("open 0 "+path, "did")
		prog.Do("call 0 plugged 10", "did")
		s.WaitForOptimizer(t.Context())
		most = max(most, s.MappedFiles())
		prog.Do("close 0", "did")
	}
	if now := s.MappedFiles(); most == 0 || now > max(before, most-1) {
		t.Errorf("%d files were open, at most %d, now %d", before, most, now)
	}
	wantHits(t, plugged, loads*10)
	closeSession(t, s)
	prog.CheckClean()
}
