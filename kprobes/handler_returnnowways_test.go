package kprobes_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/gokprobe/gokprobe/kprobes"
)

// TestReturnNowByUpcalls: the threads do not stop, unless they are delayed; the program counts the calls that
// return something else.
func TestReturnNowByUpcalls(t *testing.T) {
	for _, d := range []time.Duration{0, 100 * time.Microsecond} {
		var n atomic.Uint64
		prog, s, kp := upcalled(t, 2, func(_ *kprobes.Session, _ *kprobes.Kprobe, r *kprobes.Regs) int {
			n.Add(1)
			if d > 0 && n.Load()%8 == 0 {
				r.Delay(d)
				if kprobes.InUpcall(r) {
					t.Error("a delayed thread spins")
				}
			}
			v, _ := r.Arg(0)
			ok(t, r.ReturnNow(3*v+1))
			return 1
		})
		calls := untilUpcall(t, prog, 2, &n, 1000)
		wantHits(t, kp, calls)
		wantOptimized(t, s, kp) // a thread that is stopped to be delayed is no reason against it
		closeSession(t, s)
		prog.CheckClean()
		wantRight(t, prog)
	}
}

// TestDelaysByUpcalls: threads that spin are stopped, and others' delays do not matter to them.
func TestDelaysByUpcalls(t *testing.T) {
	const threads = 4
	var n, delayed atomic.Uint64
	prog, s, kp := upcalled(t, threads, func(_ *kprobes.Session, _ *kprobes.Kprobe, r *kprobes.Regs) int {
		if n.Add(1)%16 == 0 {
			r.Delay(200 * time.Microsecond)
			delayed.Add(1)
		}
		return 0
	})
	calls := untilUpcall(t, prog, threads, &delayed, 200)
	wantHits(t, kp, calls)
	closeSession(t, s)
	prog.CheckClean()
	wantRight(t, prog)
}

// TestReturnNowAndKretprobes: a Kretprobe that has followed the call by then sees it return; one whose turn would come
// later sees nothing of it. Neither calls nor returns are lost or counted twice.
func TestReturnNowAndKretprobes(t *testing.T) {
	for _, handlers := range []bool{true, false} {
		prog := start(t, "effects")
		s := attach(t, prog.PID(), kprobes.Options{})
		var returned []uint64
		follow := func() *kprobes.Kretprobe {
			rp := &kprobes.Kretprobe{}
			if rp.KP.SymbolName = "probed"; handlers {
				rp.Handler = func(ri *kprobes.KretprobeInstance, r *kprobes.Regs) int {
					if r.IP() != ri.RetAddr {
						t.Errorf("it returns to %s, not to %s", r.IP(), ri.RetAddr)
					}
					returned = append(returned, r.ReturnValue())
					r.SetReturnValue(r.ReturnValue() + 1)
					return 0
				}
			}
			return rp
		}
		early, late := follow(), follow()
		over := 0
		kp := &kprobes.Kprobe{SymbolName: "probed", PreHandler: func(_ *kprobes.Kprobe, r *kprobes.Regs) int {
			if v, _ := r.Arg(0); v == 60 {
				over++
				ok(t, r.ReturnNow(100))
				return 1
			}
			return 0
		}}
		ok(t, s.RegisterKretprobe(late)) // what is registered last runs first (B16)
		register(t, s, kp)
		ok(t, s.RegisterKretprobe(early))
		s.WaitForOptimizer(t.Context())
		plain, skipped := "ret 12", "ret 101"
		if !handlers {
			plain, skipped = "ret 10", "ret 100"
		}
		for range 30 {
			wantSays(t, prog, "go 30", plain)
			wantSays(t, prog, "go 60", skipped)
		}
		for _, rp := range []*kprobes.Kretprobe{early, late} {
			if active := s.Status(&rp.KP).Active; active != 0 {
				t.Errorf("%d calls are in flight", active)
			}
		}
		closeSession(t, s)
		if early.Hits() != 60 || late.Hits() != 30 || early.NMissed()+late.NMissed() != 0 || over != 30 {
			t.Errorf("%d and %d returns, %d and %d missed, %d calls did not run", early.Hits(), late.Hits(), early.NMissed(), late.NMissed(), over)
		}
		if handlers && (len(returned) != 90 || returned[2] != 100) {
			t.Errorf("%d returns, of %v …", len(returned), returned[:3])
		}
		prog.CheckClean()
		wantRight(t, prog)
	}
}

// TestReturnNowInAnEntryHandler, of a Kretprobe, which then sees the return; calls from many frames.
func TestReturnNowInAnEntryHandler(t *testing.T) {
	prog := start(t, "effects")
	s := attach(t, prog.PID(), kprobes.Options{})
	rp := &kprobes.Kretprobe{
		EntryHandler: func(_ *kprobes.KretprobeInstance, r *kprobes.Regs) int {
			if v, _ := r.Arg(0); v == 3 {
				ok(t, r.ReturnNow(1000))
			}
			return 0
		},
		Handler: func(_ *kprobes.KretprobeInstance, r *kprobes.Regs) int {
			r.SetReturnValue(r.ReturnValue() + 1)
			r.Delay(100 * time.Microsecond)
			return 0
		},
	}
	rp.KP.SymbolName = "deep"
	ok(t, s.RegisterKretprobe(rp))
	for range 20 {
		wantSays(t, prog, "deep 2", "ret 14")   // 10, and 1 by each of two calls, and 1 by us of each
		wantSays(t, prog, "deep 5", "ret 1005") // 1000 and 1 of deep(3), 2 more of deep(4) and deep(5)
	}
	if want := uint64(20 * (2 + 3)); rp.Hits() != want || rp.NMissed() != 0 {
		t.Errorf("%d returns, %d missed, want %d", rp.Hits(), rp.NMissed(), want)
	}
	closeSession(t, s)
	prog.CheckClean()
	wantRight(t, prog)
}

// TestReturnNowBehindALandingPad: of a function that begins with endbr64.
func TestReturnNowBehindALandingPad(t *testing.T) {
	prog := start(t, "effects")
	s := attach(t, prog.PID(), kprobes.Options{})
	kp := &kprobes.Kprobe{SymbolName: "entered", PreHandler: func(_ *kprobes.Kprobe, r *kprobes.Regs) int { ok(t, r.ReturnNow(5)); return 1 }}
	register(t, s, kp)
	wantSays(t, prog, "enter 30", "ret 5")
	if kp.Addr != symbol(t, s, "entered")+4 {
		t.Errorf("the probe is at %s", kp.Addr)
	}
	closeSession(t, s)
	prog.CheckClean()
	wantRight(t, prog)
}

// TestReturnNowAndThen the handler panics, calls a function, disables its probe, or ends the session: the call has returned.
func TestReturnNowAndThen(t *testing.T) {
	for name, then := range map[string]func(s *kprobes.Session, kp *kprobes.Kprobe, r *kprobes.Regs){
		"panic":   func(*kprobes.Session, *kprobes.Kprobe, *kprobes.Regs) { panic("on purpose") },
		"disable": func(s *kprobes.Session, kp *kprobes.Kprobe, _ *kprobes.Regs) { ok(t, s.DisableKprobe(kp)) },
		"close":   func(s *kprobes.Session, _ *kprobes.Kprobe, _ *kprobes.Regs) { closeSession(t, s) },
		"unregister": func(s *kprobes.Session, kp *kprobes.Kprobe, _ *kprobes.Regs) {
			ok(t, s.UnregisterKprobe(kp))
		},
		"call": func(s *kprobes.Session, kp *kprobes.Kprobe, r *kprobes.Regs) {
			wantCall(t, r, 14, symbol(t, s, "entered"), 13)
			ok(t, s.DisableKprobe(kp))
		},
	} {
		for _, d := range []time.Duration{0, time.Millisecond} {
			t.Run(name+" "+d.String(), func(t *testing.T) {
				prog := start(t, "effects")
				s := attach(t, prog.PID(), kprobes.Options{Log: func(string) {}})
				register(t, s, &kprobes.Kprobe{SymbolName: "probed", PreHandler: func(kp *kprobes.Kprobe, r *kprobes.Regs) int {
					r.Delay(d)
					ok(t, r.ReturnNow(77))
					then(s, kp, r)
					return 1
				}})
				wantSays(t, prog, "go 30", "ret 77")
				wantSays(t, prog, "go 30", "ret 10")
				closeSession(t, s)
				prog.CheckClean()
				wantRight(t, prog)
			})
		}
	}
}

// TestReturnNowInGo: at the first instruction, and behind the check of the stack.
func TestReturnNowInGo(t *testing.T) {
	for _, behind := range []bool{false, true} {
		prog := start(t, "gosrv")
		s := attach(t, prog.PID(), kprobes.Options{})
		kp := &kprobes.Kprobe{SymbolName: "main.target"}
		if behind {
			rp := &kprobes.Kretprobe{}
			rp.KP.SymbolName = "main.target"
			ok(t, s.RegisterKretprobe(rp))
			ok(t, s.UnregisterKretprobe(rp))
			kp.SymbolName, kp.Addr = "", rp.KP.Addr
		}
		n := 0
		kp.PreHandler = func(_ *kprobes.Kprobe, r *kprobes.Regs) int {
			n++
			v, _ := r.Arg(0)
			_ = v
			r.Delay(time.Duration(n%2) * 50 * time.Microsecond)
			ok(t, r.ReturnNow(1234))
			return 1
		}
		register(t, s, kp)
		wantSays(t, prog, "call 9", "ret 1234")
		closeSession(t, s)
		wantSays(t, prog, "call 9", "ret 3")
		prog.CheckClean()
		wantRight(t, prog)
	}
}
