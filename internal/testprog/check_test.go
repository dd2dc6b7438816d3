//go:build linux

package testprog

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// recorder takes the failures that a check reports.
type recorder struct {
	testing.TB
	errors []string
}

func (r *recorder) Errorf(format string, args ...any) {
	r.errors = append(r.errors, fmt.Sprintf(format, args...))
}
func (r *recorder) Helper() {}

// poke changes a byte of an executable mapping of pid and returns what undoes it.
func poke(t *testing.T, pid int, path string, b byte) func() {
	t.Helper()
	for r := range TakeSnapshot(t, pid).Text {
		if !strings.Contains(r, path) {
			continue
		}
		var at int64
		fmt.Sscanf(r, "%x-", &at)
		mem, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", liveTask(pid)), os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		old := make([]byte, 1)
		if _, err := mem.ReadAt(old, at); err != nil {
			t.Fatal(err)
		}
		if _, err := mem.WriteAt([]byte{b}, at); err != nil {
			t.Fatal(err)
		}
		return func() {
			if _, err := mem.WriteAt(old, at); err != nil {
				t.Error(err)
			}
			mem.Close()
		}
	}
	t.Fatalf("no text of %s", path)
	return nil
}

func TestChangedTextIsFound(t *testing.T) {
	for _, path := range []string{"/prey", "/libc.so.6", "[vdso]"} {
		p := Start(t, Build(t, "prey"))
		before := TakeSnapshot(t, p.PID())
		undo := poke(t, p.PID(), path, 0xcc)
		check, compare := recorder{TB: t}, recorder{TB: t}
		CheckClean(&check, p.PID())
		before.Compare(&compare, p.PID())
		if len(check.errors) != 1 || !strings.Contains(check.errors[0], "is 0xcc") {
			t.Errorf("%s: CheckClean found %q", path, check.errors)
		}
		if len(compare.errors) != 1 || !strings.Contains(compare.errors[0], "executable mapping") {
			t.Errorf("%s: Compare found %q", path, compare.errors)
		}
		undo()
		p.CheckClean()
		before.Compare(t, p.PID())
	}
}

// This process stands for one that a tracer left without cleaning up.
func TestALeftRegionIsFound(t *testing.T) {
	pid := os.Getpid()
	before := TakeSnapshot(t, pid)
	if d, err := dirtOf(pid, uprobesGo()); err != nil || len(d) != 0 {
		t.Fatalf("dirty before: %q, %v", d, err)
	}
	unmap := leaveRegion(t)
	dirt, err := dirtOf(pid, uprobesGo())
	if err != nil || len(dirt) != 2 || !strings.Contains(dirt[0], regionName) || !strings.Contains(dirt[1], regionName) {
		t.Errorf("found %q, %v; want two mappings", dirt, err)
	}
	d := strings.Join(before.diff(TakeSnapshot(t, pid)), "\n")
	for _, want := range []string{"is new: 4096 bytes", "mapped files were", "file descriptor"} {
		if !strings.Contains(d, want) {
			t.Errorf("no %q in:\n%s", want, d)
		}
	}
	unmap()
	if d, err := dirtOf(pid, uprobesGo()); err != nil || len(d) != 0 {
		t.Errorf("still dirty: %q, %v", d, err)
	}
	before.Compare(t, pid)
}

func TestChangedTextOfADeletedProgramIsFound(t *testing.T) {
	program, err := os.ReadFile(Build(t, "prey"))
	if err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(t.TempDir(), "prey")
	if err := os.WriteFile(bin, program, 0o755); err != nil {
		t.Fatal(err)
	}
	p := Start(t, bin)
	if err := os.Remove(bin); err != nil {
		t.Fatal(err)
	}
	p.CheckClean()
	defer poke(t, p.PID(), "/prey", 0xcc)()
	if dirt, err := dirtOf(p.PID(), uprobesGo()); err != nil || len(dirt) != 1 {
		t.Errorf("found %q, %v", dirt, err)
	}
}

// Everything is checked through a living thread: an ended leader shows nothing.
func TestALeaderThatEndedHidesNothing(t *testing.T) {
	p := Start(t, Build(t, "leader"))
	defer poke(t, p.PID(), "/leader", 0xcc)()
	if dirt, err := dirtOf(p.PID(), uprobesGo()); err != nil || len(dirt) != 1 {
		t.Errorf("found %q, %v", dirt, err)
	}
	if s := TakeSnapshot(t, p.PID()); len(s.Signals) != 3 || len(s.FDs) < 3 || s.Private == 0 {
		t.Errorf("%d threads, %d files, %d bytes; want 3 threads", len(s.Signals), len(s.FDs), s.Private)
	}
}

func TestAPendingTrapIsSeen(t *testing.T) {
	p := Start(t, Build(t, "signals"), "blocked")
	before := TakeSnapshot(t, p.PID())
	if err := p.Signal(syscall.SIGTRAP); err != nil {
		t.Fatal(err)
	}
	if d := before.diff(TakeSnapshot(t, p.PID())); len(d) != 1 || !strings.Contains(d[0], "SIGTRAP pending true") {
		t.Errorf("found %q", d)
	}
}

func TestATracerIsFound(t *testing.T) {
	p := Start(t, Build(t, "threads"))
	traced(t, p.PID(), func(tracer int) {
		dirt, err := dirtOf(p.PID(), uprobesGo())
		if err != nil || len(dirt) != 1 || !strings.Contains(dirt[0], fmt.Sprintf("traced by %d", tracer)) {
			t.Errorf("found %q, %v", dirt, err)
		}
	})
	p.CheckClean()
}

func TestASnapshotSeesFilesAndMappingsComeAndGo(t *testing.T) {
	a := Snapshot{Text: map[string][]byte{"1-2 /x": {1}}, Mapped: []string{"/x"}, FDs: map[int]string{0: "a", 1: "b"}, Signals: map[int]string{5: "s", 6: "t"}}
	b := Snapshot{Text: map[string][]byte{"1-2 /x": {1}, "3-4 /memfd:gokprobe": {2}}, Mapped: []string{"/memfd:gokprobe", "/x"}, FDs: map[int]string{0: "z", 2: "c"}, Signals: map[int]string{5: "other"}}
	if d := a.diff(b); len(d) != 6 {
		t.Errorf("%d differences, want 6: %q", len(d), d)
	}
	if d := a.diff(a); len(d) != 0 {
		t.Errorf("differs from itself: %q", d)
	}
}
