package kprobes_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/kprobes"
)

// TestMasksOfHandlersComeBack: while there is a guard handlers do not block what breakpoints raise; after
// Close, and after a kill and Recover, they block what they blocked, also those whose signals the guard has taken. So do threads.
func TestMasksOfHandlersComeBack(t *testing.T) {
	prog := start(t, "masks")
	want, blocked := prog.Do("foo 1", "masks"), blockedBy(t, prog.PID())
	s := attach(t, prog.PID(), kprobes.Options{})
	w := newTiming(t, "foo", func(uint64) bool { return true }) // its code may fault: the guard takes SIGSEGV as well
	ok(t, s.RegisterKretprobe(&w.Kretprobe))
	prog.Do("foo 2", "masks")
	s.WaitForOptimizer(t.Context())
	if !jumps(s, &w.KP) {
		t.Errorf("%+v", s.Status(&w.KP))
	}
	if err := s.RegisterKprobe(&kprobes.Kprobe{SymbolName: "handler"}); err != nil {
		t.Fatal(err)
	}
	closeSession(t, s)
	prog.CheckClean()
	if got := prog.Do("foo 3", "masks"); got != want {
		t.Errorf("after Close: %s, before %s", got, want)
	}
	if got := blockedBy(t, prog.PID()); got != blocked {
		t.Errorf("threads block %s after Close, before %s", got, blocked)
	}

	t.Setenv("GOKPROBE_REMOTE", "guard") // it is armed when startTracer returns
	kill := startTracer(t, prog.PID(), nil)
	kill()
	if got := prog.Do("foo 4", "masks"); got == want {
		t.Errorf("with a guard: %s", got)
	}
	_, err := kprobes.Recover(context.Background(), prog.PID())
	ok(t, err)
	prog.CheckClean()
	if got := prog.Do("foo 5", "masks"); got != want {
		t.Errorf("recovered: %s, before %s", got, want)
	}
	if got := blockedBy(t, prog.PID()); got != blocked {
		t.Errorf("recovered, threads block %s, before %s", got, blocked)
	}
	wantRight(t, prog)
}

// blockedBy is what each thread blocks.
func blockedBy(t *testing.T, pid int) string {
	t.Helper()
	tids, err := procfs.Tasks(pid)
	ok(t, err)
	var masks []procfs.SigSet
	for _, tid := range tids {
		st, err := procfs.ReadStatus(pid, tid)
		ok(t, err)
		masks = append(masks, st.SigBlk)
	}
	return fmt.Sprintf("%x", masks)
}
