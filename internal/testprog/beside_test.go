//go:build linux

package testprog

import (
	"debug/elf"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// found is what both checks say of a process.
func found(t *testing.T, pid int, before Snapshot) (check, compare []string) {
	t.Helper()
	a, b := recorder{TB: t}, recorder{TB: t}
	CheckClean(&a, pid)
	before.Compare(&b, pid)
	return a.errors, b.errors
}

// TestBreakpointsThatGoAreNobodys where there are uprobes: neither is one that has come nor one that has gone a change.
func TestBreakpointsThatGoAreNobodys(t *testing.T) {
	p := Start(t, Build(t, "prey"))
	for _, path := range []string{"/prey", "/libc.so.6"} {
		undo := poke(t, p.PID(), path, breakpoint())
		if dirt, err := dirtOf(p.PID(), uprobesGo()); err != nil || len(dirt) != 1 {
			t.Errorf("without uprobes: %q, %v", dirt, err)
		}
		t.Setenv("GOKPROBE_BESIDE_UPROBES", "1")
		time.AfterFunc(50*time.Millisecond, undo)
		before := TakeSnapshot(t, p.PID())
		goes := time.AfterFunc(50*time.Millisecond, poke(t, p.PID(), path, breakpoint()))
		check, compare := found(t, p.PID(), before)
		if goes.Stop() {
			t.Errorf("%s: nobody has waited for it to go: %q, %q", path, check, compare)
		}
		if len(check)+len(compare) > 0 {
			t.Errorf("%s: CheckClean found %q, Compare %q", path, check, compare)
		}
		os.Unsetenv("GOKPROBE_BESIDE_UPROBES")
	}
}

// TestWhatStaysIsFoundBesideUprobes: a breakpoint that nobody takes away, and whatever else a tracer leaves, though it should go.
func TestWhatStaysIsFoundBesideUprobes(t *testing.T) {
	t.Setenv("GOKPROBE_BESIDE_UPROBES", "1")
	p := Start(t, Build(t, "prey"))
	for _, left := range []byte{breakpoint(), 0xe9, 0x90} {
		patience := besidePatience
		besidePatience = 2 * Patience // longer than what is left stays: if it were waited for, nothing would be found
		if left == breakpoint() {
			besidePatience = 50 * time.Millisecond
		}
		before := TakeSnapshot(t, p.PID())
		goes := time.AfterFunc(Patience, poke(t, p.PID(), "/libc.so.6", left))
		check, compare := found(t, p.PID(), before)
		if len(check) != 1 || !strings.Contains(check[0], "text at") {
			t.Errorf("%#x: CheckClean found %q", left, check)
		}
		if len(compare) != 1 || !strings.Contains(compare[0], "executable mapping") {
			t.Errorf("%#x: Compare found %q", left, compare)
		}
		if !goes.Reset(0) {
			t.Errorf("%#x was waited for", left)
		}
		for range 1000 {
			if check, _ = found(t, p.PID(), before); len(check) == 0 {
				break
			}
		}
		besidePatience = patience
	}
}

// ownPrey starts a fixture from a file of its own, and tells where functions of it begin.
func ownPrey(t *testing.T, functions ...string) (*Prog, []Place) {
	t.Helper()
	program, err := os.ReadFile(Build(t, "prey"))
	if err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(t.TempDir(), "prey")
	if err := os.WriteFile(bin, program, 0o755); err != nil {
		t.Fatal(err)
	}
	var places []Place
	for _, name := range functions {
		places = append(places, Place{bin, offsetOf(t, bin, name)})
	}
	return Start(t, bin), places
}

// TestWhatTheKernelMapsForUprobesIsNoChange: a uprobe that was hit leaves a mapping of the kernel's own.
func TestWhatTheKernelMapsForUprobesIsNoChange(t *testing.T) {
	NeedUprobes(t)
	t.Setenv("GOKPROBE_BESIDE_UPROBES", "1")
	p, places := ownPrey(t, "target")
	before := TakeSnapshot(t, p.PID())
	u, err := OpenUprobe(p.PID(), places[0].File, places[0].Offset, false)
	if err != nil {
		t.Fatal(err)
	}
	p.Do("call target 30", "ret")
	if u.Hits() == 0 {
		t.Error("the uprobe was not hit")
	}
	u.Close()
	p.CheckClean()
	before.Compare(t, p.PID())
}

// TestUprobesThatComeAndGoAreNoChange: neither in one snapshot nor from one to another, at any time.
func TestUprobesThatComeAndGoAreNoChange(t *testing.T) {
	NeedUprobes(t)
	t.Setenv("GOKPROBE_BESIDE_UPROBES", "1")
	p, places := ownPrey(t, "target", "main")
	first := TakeSnapshot(t, p.PID())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for n := range 10 {
			at := places[n%len(places)]
			u, err := OpenUprobe(p.PID(), at.File, at.Offset, false)
			if err != nil {
				t.Error(err)
				return
			}
			<-time.After(time.Duration(n) * time.Millisecond)
			u.Close()
		}
	}()
	for going := true; going; {
		select {
		case <-ended:
			going = false
		default:
		}
		p.Do("call target 30", "ret")
		now := TakeSnapshot(t, p.PID())
		p.CheckClean()
		if d := first.diff(now); len(d) > 0 {
			t.Errorf("changed: %q", d)
		}
	}
	first.Compare(t, p.PID())
	p.CheckClean()
}

// offsetOf is where a function begins in its file.
func offsetOf(t *testing.T, file, function string) uint64 {
	t.Helper()
	f, err := elf.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	symbols, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range symbols {
		if s.Name == function && int(s.Section) < len(f.Sections) {
			in := f.Sections[s.Section]
			return s.Value - in.Addr + in.Offset
		}
	}
	t.Fatalf("%s has no %s", file, function)
	return 0
}

// TestOnlyUprobesAreNotWarnedOf, and only where they are.
func TestOnlyUprobesAreNotWarnedOf(t *testing.T) {
	warnings := []string{
		"others write into the code of /x: probes there have breakpoints, not jumps, from now on",
		"somebody else has a breakpoint at 0x1",
		"somebody else writes into the code at 0x1",
		"the probe at 0x1 is lost for now, since somebody has changed the code",
	}
	for env, want := range map[string]int{"": len(warnings), "1": 1} {
		t.Setenv("GOKPROBE_BESIDE_UPROBES", env)
		r := recorder{TB: t}
		log := NoWarnings(&r)
		for _, w := range warnings {
			log(w)
		}
		if len(r.errors) != want {
			t.Errorf("%q: the test fails by %q", env, r.errors)
		}
		if got := NoJumpHere("a kernel uprobe or another debugger's breakpoint was seen in the same file"); got != (env != "") || NoJumpHere("another probe lies in the optimized region") {
			t.Errorf("%q: %v", env, got)
		}
	}
}
