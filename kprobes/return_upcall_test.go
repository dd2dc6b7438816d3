package kprobes_test

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/gokprobe/gokprobe/internal/testprog"
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
		s.WaitForOptimizer(t.Context())
		wantOptimized(t, s, &rp.KP)
		s.PollAlways()
		was := s.Upcalls()
		for n := uint64(0); moreUpcalls(n, s.Upcalls()-was, 100); n++ {
			prog.Do("go 500", "went")
			if want := uint64(threads) * (500*(n+1) + 1); rp.Hits() != want || rp.KP.Hits() != want || rp.NMissed() != 0 {
				t.Fatalf("%d threads: %d entries, %d returns, %d missed, want %d", threads, rp.KP.Hits(), rp.Hits(), rp.NMissed(), want)
			}
		}
		if wantUpcalls(t, s.Upcalls()-was); wrong > 0 {
			t.Errorf("%d threads: %d returns do not belong to their entries", threads, wrong)
		}
		closeSession(t, s)
		prog.CheckClean()
		wantRight(t, prog)
	}
}

// TestReturnAddressesThatHandlersChange: a kretprobe sees the return address as the handlers before it have
// left it, also where the thread has noted it before.
func TestReturnAddressesThatHandlersChange(t *testing.T) {
	prog := start(t, "threads", "1")
	s := attach(t, prog.PID(), kprobes.Options{})
	var back uint64
	hits := 0
	var changed atomic.Uint64
	wrote := func(err error) {
		if err != nil {
			t.Error(err)
		}
	}
	rp := &kprobes.Kretprobe{Handler: func(*kprobes.KretprobeInstance, *kprobes.Regs) int { return 0 }}
	rp.KP.SymbolName = "foo"
	// Those that were registered last run first.
	register(t, s, &kprobes.Kprobe{SymbolName: "foo", PreHandler: func(_ *kprobes.Kprobe, r *kprobes.Regs) int {
		if back != 0 {
			wrote(r.WriteUint64(r.SP(), back))
		}
		return 0
	}})
	ok(t, s.RegisterKretprobe(rp))
	register(t, s, &kprobes.Kprobe{SymbolName: "foo", PreHandler: func(_ *kprobes.Kprobe, r *kprobes.Regs) int {
		hits++ // where all hits are stops, every second one is for the others; the last is
		if back = 0; kprobes.InUpcall(r) || !testprog.CallsTracer() && hits%2 == 1 {
			frames := r.Backtrace(3)
			back = uint64(frames[1].Addr)
			wrote(r.WriteUint64(r.SP(), uint64(frames[2].Addr)))
			changed.Add(1)
		}
		return 0
	}})
	prog.Do("go 1", "went")
	s.WaitForOptimizer(t.Context())
	wantOptimized(t, s, &rp.KP)
	s.PollAlways()
	calls := uint64(1) + untilUpcall(t, prog, 1, &changed, 100)
	prog.Do("go 1", "went") // in the same frame: what did not return there is missed
	calls++
	n := changed.Load()
	if rp.KP.Hits() != calls || rp.Hits()+rp.NMissed() != calls || rp.NMissed() > n || rp.NMissed()+1 < n {
		t.Errorf("%d calls, %d with another return address: %d entries, %d returns, %d missed", calls, n, rp.KP.Hits(), rp.Hits(), rp.NMissed())
	}
	closeSession(t, s)
	prog.CheckClean()
	wantRight(t, prog)
}
