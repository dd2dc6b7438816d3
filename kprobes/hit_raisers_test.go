package kprobes_test

import (
	"testing"

	"github.com/gokprobe/gokprobe/kprobes"
)

// TestAttachAmongSignals: more threads stop without pause than the tracer can resume, and the
// oldest has its turn all the same.
func TestAttachAmongSignals(t *testing.T) {
	prog := start(t, "raisers")
	for range 2 {
		closeSession(t, attach(t, prog.PID(), kprobes.Options{}))
	}
	prog.CheckClean()
	wantRight(t, prog)
}
