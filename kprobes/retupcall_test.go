package kprobes_test

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/gokprobe/gokprobe/kprobes"
)

// TestReturnsByUpcalls: the handlers of a kretprobe are called from the target, at the entry
// and at the return, and each return belongs to its entry.
func TestReturnsByUpcalls(t *testing.T) {
	for _, threads := range []int{1, 4} {
		prog := start(t, "threads", fmt.Sprint(threads))
		s := attach(t, prog.PID(), kprobes.Options{})
		wrong := 0
		rp := &kprobes.Kretprobe{DataSize: 8}
		rp.KP.SymbolName = "foo"
		rp.EntryHandler = func(ri *kprobes.KretprobeInstance, regs *kprobes.Regs) int {
			n, _ := regs.Arg(0)
			binary.LittleEndian.PutUint64(ri.Data, n)
			return 0
		}
		rp.Handler = func(ri *kprobes.KretprobeInstance, regs *kprobes.Regs) int {
			if regs.ReturnValue() != 3*binary.LittleEndian.Uint64(ri.Data)+1 || regs.IP() != ri.RetAddr {
				wrong++
			}
			return 0
		}
		ok(t, s.RegisterKretprobe(rp))
		prog.Do("go 1", "went") // now it is known where it returns to
		s.WaitForOptimizer()
		wantOptimized(t, s, &rp.KP)
		s.PollAlways()
		was := s.Upcalls()
		for n := uint64(0); s.Upcalls() < was+1000 && n < 100; n++ {
			prog.Do("go 500", "went")
			if want := uint64(threads) * (500*(n+1) + 1); rp.Hits() != want || rp.KP.Hits() != want || rp.NMissed() != 0 {
				t.Fatalf("%d threads: %d entries, %d returns, %d missed, want %d", threads, rp.KP.Hits(), rp.Hits(), rp.NMissed(), want)
			}
		}
		if s.Upcalls() < was+1000 || wrong > 0 {
			t.Errorf("%d threads: %d upcalls, %d returns do not belong to their entries", threads, s.Upcalls()-was, wrong)
		}
		closeSession(t, s)
		prog.CheckClean()
		wantRight(t, prog)
	}
}
