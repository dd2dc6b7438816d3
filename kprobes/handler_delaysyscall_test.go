package kprobes_test

import (
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/kprobes"
)

// TestDelaysOfSystemCalls: in front of a call that is made, of one that is not, and behind one; by either way of
// a SyscallProbe. Each is one hit and has its result, also of those that Close lets go.
func TestDelaysOfSystemCalls(t *testing.T) {
	for _, way := range []kprobes.SyscallWay{kprobes.SyscallByStops, kprobes.SyscallBySites} {
		for _, at := range []string{"made", "skipped", "exit"} {
			for _, d := range []time.Duration{2 * time.Millisecond, forever} {
				t.Run(fmt.Sprint(way, " ", at, " ", d), func(t *testing.T) { delayedCall(t, way, at, d) })
			}
		}
	}
}

func delayedCall(t *testing.T, way kprobes.SyscallWay, at string, d time.Duration) {
	prog := start(t, "callsites")
	s := attach(t, prog.PID(), kprobes.Options{})
	hit, exits := make(chan bool, 10), 0
	sp := &kprobes.SyscallProbe{Numbers: []int{unix.SYS_GETPID}, By: way}
	if at == "exit" {
		sp.Exit = func(_ *kprobes.SyscallProbe, r *kprobes.Regs) { exits++; r.Delay(d); r.SetReturnValue(99); hit <- true }
	} else {
		sp.Enter = func(_ *kprobes.SyscallProbe, r *kprobes.Regs) int {
			r.Delay(d)
			hit <- true
			if at == "made" {
				return 0
			}
			r.SetReturnValue(99)
			return 1
		}
		sp.Exit = func(*kprobes.SyscallProbe, *kprobes.Regs) { exits++ }
	}
	registerSyscall(t, s, sp)
	prog.Send(fmt.Sprintf("one %d", unix.SYS_GETPID))
	<-hit
	mem, err := s.Alloc(4096) // by the one thread that there is
	ok(t, err)
	ok(t, s.Free(mem, 4096))
	toggle(t, s, boosted.probe("main"), 3)
	if d == forever {
		closeSession(t, s)
	}
	want := uint64(99)
	if at == "made" {
		want = uint64(prog.PID())
	}
	if got := number(t, prog.Expect("result"), "result"); got != want {
		t.Errorf("the result is %d, want %d", int64(got), want)
	}
	prog.Expect("did")
	if d != forever {
		if wantExits := map[string]int{"made": 1, "skipped": 0, "exit": 1}[at]; exits != wantExits || sp.Hits() != 1 {
			t.Errorf("%d hits, %d exits, want 1 and %d", sp.Hits(), exits, wantExits)
		}
	}
	closeSession(t, s)
	prog.CheckClean()
	wantRight(t, prog)
}
