package kprobes_test

import (
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/kprobes"
)

// TestFaultHandlersOfOneSite: they are asked in the order of all handlers, until one has mended
// the cause. One that is disabled is not asked.
func TestFaultHandlersOfOneSite(t *testing.T) {
	prog := start(t, "faults")
	s := attach(t, prog.PID(), kprobes.Options{})
	var order string
	probe := func(name string, mended int) *kprobes.Kprobe {
		return &kprobes.Kprobe{SymbolName: "f_ud2", FaultHandler: func(_ *kprobes.Kprobe, r *kprobes.Regs, _ int) int {
			order += name
			r.SetIP(r.IP().Add(int64(2 * mended)))
			return mended
		}}
	}
	silent := probe("d", 1)
	register(t, s, probe("c", 1), probe("b", 1), probe("a", 0), silent)
	if err := s.DisableKprobe(silent); err != nil {
		t.Fatal(err)
	}
	runs := len(endsOf(record(prog, "ud2")))
	want := ""
	for range runs {
		want += "ab"
	}
	if runs == 0 || order != want {
		t.Errorf("%d runs, asked %q, want %q", runs, order, want)
	}
}

// TestFaultHandlersThatFail: one that panics, unregisters its probe, or ends the session leaves
// the program with the fault that it would have without.
func TestFaultHandlersThatFail(t *testing.T) {
	for _, how := range []string{"panic", "unregister", "unregister, as if mended", "close", "close, as if mended", "close after a call"} {
		for _, name := range []string{"load_gap", "div_zero", "call_stack_gap", "ret_nc"} {
			for _, m := range modes {
				t.Run(how+"/"+name+"/"+string(m), func(t *testing.T) {
					prog := start(t, "faults")
					want := record(prog, name)
					s := attach(t, prog.PID(), kprobes.Options{Log: func(string) {}})
					end := sync.OnceFunc(func() { closeSession(t, s) })
					kp := m.probe("f_" + name)
					kp.FaultHandler = func(kp *kprobes.Kprobe, r *kprobes.Regs, _ int) int {
						switch how {
						case "panic":
							panic("oops")
						case "close after a call":
							allocateAndFree(t, r)
							end()
						case "close", "close, as if mended":
							end()
						default:
							if err := s.UnregisterKprobe(kp); err != nil {
								t.Error(err)
							}
						}
						if how == "unregister, as if mended" || how == "close, as if mended" {
							return 1
						}
						return 0
					}
					register(t, s, kp)
					compareRecords(t, record(prog, name), want)
					wantHits(t, kp, 1)
					compareRecords(t, record(prog, name), want)
					end()
					prog.CheckClean()
					wantRight(t, prog)
				})
			}
		}
	}
}

// TestFaultsMendedUnderSignals: a signal waits for the copy whose fault is mended, or comes while
// it is. None is lost, and each hit is one.
func TestFaultsMendedUnderSignals(t *testing.T) {
	const n = 100
	for _, when := range []string{"before", "meanwhile"} {
		for _, m := range modes {
			t.Run(when+"/"+string(m), func(t *testing.T) {
				prog := start(t, "corner")
				s := attach(t, prog.PID(), kprobes.Options{})
				good, err := s.Alloc(8)
				if err != nil {
					t.Fatal(err)
				}
				signal := func(r *kprobes.Regs, now string) {
					if now != when {
						return
					}
					if err := unix.Tgkill(r.PID(), r.TID(), unix.SIGUSR1); err != nil {
						t.Error(err)
					}
				}
				kp := m.probe("fault_at")
				kp.Offset = 1
				kp.PreHandler = func(_ *kprobes.Kprobe, r *kprobes.Regs) int {
					signal(r, "before")
					return 0
				}
				kp.FaultHandler = func(_ *kprobes.Kprobe, r *kprobes.Regs, trapnr int) int {
					signal(r, "meanwhile")
					r.Set("rdi", uint64(good))
					if err := r.WriteUint64(good, 42); err != nil {
						t.Error(err)
					}
					return 1
				}
				register(t, s, kp)
				did := prog.Do("fault 100", "did")
				if f, u := number(t, did, "faults"), number(t, did, "users"); f != 0 || u != n {
					t.Errorf("%s, want no fault and %d users", did, n)
				}
				wantHits(t, kp, n)
				closeSession(t, s)
				wantRight(t, prog)
			})
		}
	}
}
