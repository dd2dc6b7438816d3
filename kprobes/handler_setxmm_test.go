package kprobes_test

import (
	"fmt"
	"testing"

	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
)

// The program has never used a vector register: the processor's state of them is the initial one, which is a case
// of its own in what ptrace reads and writes. What is set is kept until the next hit, and nothing else changes.
func TestVectorRegistersAreSet(t *testing.T) {
	prog := testprog.Start(t, testprog.Build(t, "nolibc", "-static", "-nostdlib"))
	s := attach(t, prog.PID(), kprobes.Options{})
	hits := uint64(0)
	var wrong []string
	check := func(r *kprobes.Regs, hit uint64) {
		for n := range 16 {
			lo, hi, err := r.XMM(n)
			wantLo, wantHi := uint64(0), uint64(0)
			if hit > 0 && n%3 == 0 {
				wantLo, wantHi = hit, uint64(n)<<60
			}
			if err != nil || lo != wantLo || hi != wantHi {
				wrong = append(wrong, fmt.Sprintf("hit %d: xmm%d is %#x %#x, %v", hit, n, lo, hi, err))
			}
		}
	}
	register(t, s, &kprobes.Kprobe{SymbolName: "answer", PreHandler: func(_ *kprobes.Kprobe, r *kprobes.Regs) int {
		check(r, hits)
		hits++
		for n := 0; n < 16; n += 3 {
			if err := r.SetXMM(n, hits, uint64(n)<<60); err != nil {
				wrong = append(wrong, err.Error())
			}
		}
		check(r, hits)
		if r.SetXMM(16, 0, 0) == nil || r.SetXMM(-1, 0, 0) == nil {
			wrong = append(wrong, "there are more than 16 registers")
		}
		return 0
	}})
	for range 100 { // by a breakpoint first, then by a jump
		prog.Do("x", "ret 42")
	}
	closeSession(t, s)
	if hits != 100 || len(wrong) > 0 {
		t.Errorf("%d hits; %q", hits, wrong)
	}
	if got := prog.Quit(); got != "right" {
		t.Error(got)
	}
}
