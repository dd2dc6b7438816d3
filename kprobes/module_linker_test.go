package kprobes_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
)

// TestUsersProbeAtTheRendezvous: a probe where the dynamic linker's site is, which does without
// the instruction. The libraries are noticed all the same, and both come and go alone.
func TestUsersProbeAtTheRendezvous(t *testing.T) {
	prog, s, _ := glibc.loading(t, kprobes.Options{})
	kp := boosted.probe("libplug.so:plugged")
	register(t, s, kp)
	user := boosted.probe("_dl_debug_state")
	user.PreHandler = func(_ *kprobes.Kprobe, regs *kprobes.Regs) int {
		ret, err := regs.ReadUint64(regs.SP())
		if err != nil {
			t.Error(err)
		}
		regs.SetIP(arch.Addr(ret))
		regs.SetSP(regs.SP() + 8)
		return 1
	}
	register(t, s, user)
	lib := glibc.lib(t, "libplug.so")
	for i := range 3 {
		prog.Do("open 0 "+lib, "did")
		prog.Do("call 0 plugged 10", "did")
		wantHits(t, kp, uint64(10*(i+1)))
		prog.Do("close 0", "did")
		if i == 1 {
			wantHits(t, user, 8)
			if err := s.UnregisterKprobe(user); err != nil {
				t.Error(err)
			}
		}
	}
	wantHits(t, user, 8)
	closeSession(t, s)
	prog.CheckClean()
	wantRight(t, prog)
}

// TestNamespacesOfDlmopen have their own list of modules.
func TestNamespacesOfDlmopen(t *testing.T) {
	prog, s, _ := glibc.loading(t, kprobes.Options{})
	kp := boosted.probe("libplug.so:build")
	register(t, s, kp)
	for i := range 3 {
		if got := prog.Do("space 0 "+glibc.lib(t, "libplug.so"), "did"); got == "did (nil)" {
			t.Fatal("dlmopen failed")
		}
		wantHits(t, kp, uint64(i+1))
		prog.Do("close 0", "did")
		wantGone(t, s, kp, true)
	}
	closeSession(t, s)
	prog.CheckClean()
	wantRight(t, prog)
}

// TestFollowedChildrenLoadLibraries that their parent does not have, and has.
func TestFollowedChildrenLoadLibraries(t *testing.T) {
	lib := glibc.lib(t, "libplug.so")
	for _, loaded := range []bool{false, true} {
		t.Run(fmt.Sprintf("loaded=%v", loaded), func(t *testing.T) {
			prog, s, _ := glibc.loading(t, kprobes.Options{Follow: true})
			if loaded {
				prog.Do("open 0 "+lib, "did")
			}
			kp := boosted.probe("libplug.so:plugged")
			register(t, s, kp)
			at := kp.Addr
			prog.Do("fork "+lib, "did")
			wantHits(t, kp, 200)
			if kp.Addr != at || s.Status(kp).Waiting == loaded {
				t.Errorf("the parent's probe: %+v, it was at %v", s.Status(kp), at)
			}
			prog.Do("open 1 "+lib, "did")
			prog.Do("call 1 plugged 10", "did")
			wantHits(t, kp, 210)
			closeSession(t, s)
			prog.CheckClean()
			wantRight(t, prog)
		})
	}
}

// TestAnAddressMeansNothingWhereAChildHasLoadedSomethingElse: a probe by address stays in the process that has its code.
func TestAnAddressMeansNothingWhereAChildHasLoadedSomethingElse(t *testing.T) {
	for _, c := range []struct{ lib, hits string }{{"libother.so", "0"}, {"libplug.so", "7"}} {
		prog, s, _ := glibc.loading(t, kprobes.Options{Follow: true})
		register(t, s, boosted.probe("foo")) // so that loads are seen
		prog.Do("spawn -", "ready")
		there := prog.Do("tell open 0 "+glibc.lib(t, c.lib), "did")
		here := prog.Do("open 0 "+glibc.lib(t, "libplug.so"), "did")
		if here != there {
			t.Fatalf("the libraries are at %s and %s, which has to be one address", here, there)
		}
		found, err := s.Symbols().Resolve(t.Context(), "libplug.so:plugged")
		ok(t, err)
		children, err := procfs.Children(prog.PID(), prog.PID())
		ok(t, err)
		if len(children) != 1 {
			t.Fatalf("children %v", children)
		}
		mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", children[0]))
		ok(t, err)
		defer mem.Close()
		var before, after [16]byte
		_, err = mem.ReadAt(before[:], int64(found[0].Addr))
		ok(t, err)
		kp := &kprobes.Kprobe{Addr: found[0].Addr}
		register(t, s, kp)
		_, err = mem.ReadAt(after[:], int64(found[0].Addr))
		ok(t, err)
		if changed := before != after; changed != (c.hits != "0") {
			t.Errorf("the child's %s was changed: %v", c.lib, changed)
		}
		if c.lib == "libplug.so" {
			prog.Do("tell call 0 plugged 7", "did")
		}
		if got := fmt.Sprint(kp.Hits()); got != c.hits {
			t.Errorf("%s hits in a child that has %s, want %s", got, c.lib, c.hits)
		}
		closeSession(t, s)
		prog.CheckClean()
		wantRight(t, prog)
	}
}

// TestForkedChildWithoutFollowKeepsNoBreakpoint, neither of the library nor of the rendezvous:
// it would die of one.
func TestForkedChildWithoutFollowKeepsNoBreakpoint(t *testing.T) {
	prog, s, _ := glibc.loading(t, kprobes.Options{})
	lib := glibc.lib(t, "libplug.so")
	kp := boosted.probe("libplug.so:plugged")
	register(t, s, kp)
	for range 5 {
		prog.Do("fork "+lib, "did")
		prog.Do("open 0 "+lib, "did")
		prog.Do("fork "+lib, "did")
		prog.Do("close 0", "did")
	}
	wantHits(t, kp, 0)
	closeSession(t, s)
	wantRight(t, prog)
}

// TestProgramsOfFollowedChildren: a child that runs another program has what it asks for by
// name elsewhere. What the parent has at an address is not there.
func TestProgramsOfFollowedChildren(t *testing.T) {
	prog, s, warned := glibc.loading(t, kprobes.Options{Follow: true})
	lib := glibc.lib(t, "libplug.so")
	prog.Do("spawn "+glibc.prog(t), "ready")
	prog.Do("tell open 0 "+lib, "did")
	prog.Do("open 0 "+lib, "did")
	kp := boosted.probe("libplug.so:plugged")
	register(t, s, kp)
	byAddr := &kprobes.Kprobe{Addr: kp.Addr}
	register(t, s, byAddr)
	prog.Do("call 0 plugged 10", "did")
	prog.Do("tell call 0 plugged 5", "did")
	wantHits(t, kp, 15)
	wantHits(t, byAddr, 10)
	warned.want(t)
	closeSession(t, s)
	prog.CheckClean()
	wantRight(t, prog)
}

// TestExecAndLibraries: under Follow a probe waits on in the new program, also one that was
// placed in the old one. Otherwise an exec ends also those that wait.
func TestExecAndLibraries(t *testing.T) {
	lib := glibc.lib(t, "libplug.so")
	for _, follow := range []bool{false, true} {
		t.Run(fmt.Sprintf("follow=%v", follow), func(t *testing.T) {
			prog, s, _ := glibc.loading(t, kprobes.Options{Follow: follow})
			placed, waits := boosted.probe("libplug.so:plugged"), boosted.probe("libother.so:other")
			prog.Do("open 0 "+lib, "did")
			register(t, s, placed, waits)
			prog.Do("exec "+glibc.prog(t), "ready")
			late := boosted.probe("libplug.so:plugged")
			register(t, s, late)
			prog.Do("open 0 "+lib, "did")
			prog.Do("open 1 "+glibc.lib(t, "libother.so"), "did")
			prog.Do("call 0 plugged 10", "did")
			prog.Do("call 1 other 10", "did")
			want := uint64(0)
			if follow {
				want = 10
			} else {
				wantGone(t, s, placed, false)
				wantGone(t, s, waits, false)
			}
			wantHits(t, placed, want)
			wantHits(t, waits, want)
			wantHits(t, late, 10)
			closeSession(t, s)
			prog.CheckClean()
			wantRight(t, prog)
		})
	}
}

// TestExitWhileProbesWait.
func TestExitWhileProbesWait(t *testing.T) {
	prog, s, _ := glibc.loading(t, kprobes.Options{})
	kp := boosted.probe("libplug.so:plugged")
	register(t, s, kp)
	wantRight(t, prog)
	<-s.Done()
	if err := s.UnregisterKprobe(kp); err != nil {
		t.Errorf("unregister: %v", err)
	}
	closeSession(t, s)
}

// TestLaunchedProgramLoadsLibraries: the probe is registered before the program has run.
func TestLaunchedProgramLoadsLibraries(t *testing.T) {
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	prog := glibc.prog(t)
	s, err := kprobes.Launch(context.Background(), kprobes.Command{Path: prog, Args: []string{prog}, Files: []*os.File{in, null, os.Stderr}}, kprobes.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer closeSession(t, s)
	in.Close()
	kp := boosted.probe("libplug.so:plugged")
	register(t, s, kp)
	fmt.Fprintf(out, "cycle 10 %s\n", glibc.lib(t, "libplug.so"))
	out.Close()
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	<-s.Done()
	if exit := s.Exit(); exit == nil || exit.Code != 0 {
		t.Errorf("it ended with %+v", exit)
	}
	wantHits(t, kp, 40)
}

// TestBlacklistInALibraryThatComes: a name stays refused wherever its library is loaded, a range
// where it is.
func TestBlacklistInALibraryThatComes(t *testing.T) {
	prog, s, warned := glibc.loading(t, kprobes.Options{})
	lib := glibc.lib(t, "libplug.so")
	prog.Do("open 0 "+lib, "did")
	kp := boosted.probe("plugged")
	register(t, s, kp) // the table is read before
	if err := errors.Join(s.Blacklist("libplug.so:plugged"), s.BlacklistRange(arch.Range{Start: 0x1000, End: 0x2000})); err != nil {
		t.Fatal(err)
	}
	prog.Do("close 0", "did")
	prog.Do("occupy 0", "did")
	prog.Do("open 1 "+lib, "did")
	warned.want(t, "on the session's blacklist")
	prog.Do("call 1 plugged 10", "did")
	wantHits(t, kp, 0)
	if list := s.BlacklistEntries(); len(list) != 2 || list[0].Range.Start != 0x1000 {
		t.Errorf("the blacklist is %v", list)
	}
	prog.Do("vacate", "did")
	closeSession(t, s)
	prog.CheckClean()
	wantRight(t, prog)
}

// TestForksWhileALibraryComesAndGoes: no child has a breakpoint in its copy of the library,
// whenever it was forked and however long the tracer took to see it.
func TestForksWhileALibraryComesAndGoes(t *testing.T) {
	prog := testprog.Start(t, testprog.Build(t, "loadfork"))
	s := attach(t, prog.PID(), kprobes.Options{Log: func(string) {}})
	kp := boosted.probe("libplug.so:build")
	register(t, s, kp, boosted.probe("libplug.so:plugged"), boosted.probe("libplug.so:wreck"))
	ran := prog.Do("run 300 "+glibc.lib(t, "libplug.so"), "ran")
	if seen := number(t, ran, "ran"); seen == 0 || kp.Hits() == 0 {
		t.Errorf("%d children had the library, it was loaded %d times", seen, kp.Hits())
	}
	closeSession(t, s)
	prog.CheckClean()
	wantRight(t, prog)
}
