package kprobes_test

import (
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/kprobes"
)

// ownRegions is where this process has mapped what its targets share.
func ownRegions(t *testing.T) (all []arch.Range) {
	t.Helper()
	maps, err := procfs.Maps(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range maps {
		if m.Path == "/memfd:gokprobe" {
			all = append(all, m.Range)
		}
	}
	return all
}

// TestASessionWhoseSharedMemoryFailsEndsAndHarmsNobody: no access to the memory works any more, as when the kernel has no page for
// it. Whoever comes to it first, on whichever goroutine: the target is as it was, and another session counts on.
func TestASessionWhoseSharedMemoryFailsEndsAndHarmsNobody(t *testing.T) {
	handled := func() *kprobes.Kprobe {
		return &kprobes.Kprobe{SymbolName: "foo", PreHandler: func(*kprobes.Kprobe, *kprobes.Regs) int { return 0 }}
	}
	for name, touch := range map[string]func(*kprobes.Session, *kprobes.Kprobe){
		"a count is read":       func(_ *kprobes.Session, kp *kprobes.Kprobe) { kp.Hits() },
		"a probe is registered": func(s *kprobes.Session, _ *kprobes.Kprobe) { _ = s.RegisterKprobe(handled()) },
		"a probe is disabled":   func(s *kprobes.Session, kp *kprobes.Kprobe) { _ = s.DisableKprobe(kp) },
		"the session ends":      func(s *kprobes.Session, _ *kprobes.Kprobe) { _ = s.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			var log []string
			failing, honest := start(t, "prey"), start(t, "prey")
			s := attach(t, failing.PID(), kprobes.Options{Log: func(m string) {
				mu.Lock()
				defer mu.Unlock()
				log = append(log, m)
			}})
			before := ownRegions(t)
			kp := &kprobes.Kprobe{SymbolName: "target"}
			register(t, s, kp)
			s.WaitForOptimizer(t.Context())
			failing.Do("call target 30", "ret")
			wantHits(t, kp, 1)
			own := slices.DeleteFunc(ownRegions(t), func(r arch.Range) bool { return slices.Contains(before, r) })
			other := attach(t, honest.PID(), kprobes.Options{})
			counts := &kprobes.Kprobe{SymbolName: "target"}
			register(t, other, counts)
			other.WaitForOptimizer(t.Context())

			for _, r := range own {
				if _, _, err := unix.Syscall(unix.SYS_MPROTECT, uintptr(r.Start), uintptr(r.Len()), unix.PROT_NONE); err != 0 {
					t.Fatal(err)
				}
			}
			touch(s, kp)
			<-s.Done()
			if got := failing.Do("call target 30", "ret"); got != "ret 10" {
				t.Errorf("got %q", got)
			}
			_ = s.Close()
			failing.CheckClean()
			if n := kp.Hits(); n > 2 {
				t.Errorf("%d hits, of 2 at most", n)
			}
			mu.Lock()
			if len(log) > 0 && (len(log) > 1 || !strings.Contains(log[0], "has failed")) {
				t.Errorf("the log says %q", log)
			}
			mu.Unlock()
			honest.Do("call target 30", "ret")
			wantHits(t, counts, 1)
		})
	}
}
