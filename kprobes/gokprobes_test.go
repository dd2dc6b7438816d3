package kprobes_test

import (
	"context"
	"errors"
	"testing"

	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
)

// TestAGokprobeIsProbed while it probes. What it shares with its target, which it has mapped itself, is no leftover: it goes on, and is as it was. A second
// one is refused, and Recover, of the target and of itself, does nothing.
func TestAGokprobeIsProbed(t *testing.T) {
	prog := start(t, "prey")
	g := startGuarded(t, prog.PID(), "GOKPROBE_SYMBOLS=foo")
	if n := g.ask("armed"); n == "" || n == "0" {
		t.Fatalf("it has %q probes", n)
	}
	tracer := g.cmd.Process.Pid
	if s, err := kprobes.Attach(context.Background(), prog.PID(), kprobes.Options{}); err == nil {
		t.Error("two have attached")
		s.Close()
	}
	if _, err := kprobes.Recover(context.Background(), prog.PID()); !errors.Is(err, kprobes.ErrOwnerAlive) {
		t.Errorf("recovering what is probed: %v", err)
	}
	for range 3 {
		if r, err := kprobes.Recover(context.Background(), tracer); err != nil || *r != (kprobes.Recovered{}) {
			t.Errorf("recovering who probes: %+v, %v", r, err)
		}
		s := attach(t, tracer, kprobes.Options{})
		hits := make(chan struct{})
		ended := make(chan struct{})
		register(t, s, &kprobes.Kprobe{
			SymbolName: "github.com/gokprobe/gokprobe/kprobes.(*besideWatch).look",
			PreHandler: func(*kprobes.Kprobe, *kprobes.Regs) int {
				select {
				case hits <- struct{}{}:
				case <-ended:
				}
				return 0
			},
		})
		for range 5 {
			select {
			case <-hits:
			case <-s.Done():
				t.Fatal("the session with who probes has ended")
			}
		}
		close(ended)
		prog.Do("call foo 1", "ret 3")
		closeSession(t, s)
	}
	prog.Do("call foo 1", "ret 3")
	g.kill()
	for !untouched(prog.PID()) {
		prog.Do("call foo 1", "ret 3")
	}
	prog.CheckClean()
	wantRight(t, prog)
}

// TestTwoProcessesOfOneProgramAreProbed, each by a session of its own: neither sees the other.
func TestTwoProcessesOfOneProgramAreProbed(t *testing.T) {
	var progs [2]*testprog.Prog
	var sessions [2]*kprobes.Session
	var kps [2]*kprobes.Kprobe
	for i := range progs {
		progs[i] = start(t, "prey")
		sessions[i], kps[i] = sessionWith(t, progs[i], "foo", kprobes.Options{})
	}
	for i := range progs {
		for range i + 1 {
			progs[i].Do("call foo 1", "ret 3")
		}
		wantHits(t, kps[i], uint64(i+1))
	}
	for i := range progs {
		closeSession(t, sessions[i])
		progs[i].CheckClean()
		wantRight(t, progs[i])
	}
}
