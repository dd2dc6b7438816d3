package kprobes_test

import (
	"testing"

	"github.com/gokprobe/gokprobe/kprobes"
)

// TestWhoIsAskedMayLeave: sessions end while threads, and children inside vfork(2), stand at breakpoints of tails, which ask about signals' masks and
// SIGTRAP's action. The trap is ours: it must not come to the program as one that somebody has sent.
func TestWhoIsAskedMayLeave(t *testing.T) {
	for _, opts := range []kprobes.Options{{}, {Follow: true}, {NoOptimize: true}} {
		prog := start(t, "asks")
		for range 25 {
			s := attach(t, prog.PID(), opts)
			kp := &kprobes.Kprobe{SymbolName: "foo"}
			register(t, s, kp)
			closeSession(t, s)
		}
		prog.CheckClean()
		wantRight(t, prog)
	}
}
