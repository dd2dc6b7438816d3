package kprobes_test

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/program"
)

// timing is a Kretprobe whose Program writes a record of each return and a histogram of durations.
type timing struct {
	kprobes.Kretprobe
	program *program.Program
	records int
	wrong   int
	longest uint64
}

const (
	durationsMap = 2 // behind the ring and its losses
	lossesMap    = 1
)

func newTiming(t *testing.T, symbol string, right func(ret uint64) bool) *timing {
	t.Helper()
	ring := program.Map{Kind: program.Ring, Size: 1 << 16}
	p, err := program.Build(symbol, 0, []string{"rax", "rip", "duration"}, program.Cond{},
		program.WriteRecord{Ring: ring, Items: []program.Item{
			{Name: "time", Value: program.Now()}, {Name: "thread", Value: program.CurrentThread()},
			{Name: "ret", Value: program.Reg("rax")}, {Name: "ip", Value: program.Reg("rip")}, {Name: "duration", Value: program.Reg("duration")},
		}},
		program.AddToHistogram{Map: program.Map{Kind: program.Log2}, Value: program.Reg("duration")})
	ok(t, err)
	w := &timing{program: p}
	w.MaxActive = 100
	w.KP.SymbolName, w.KP.Program = symbol, p
	w.KP.RecordHandler = func(_ *kprobes.Kprobe, r *kprobes.HitRecord) {
		word := func(i int) uint64 { return binary.LittleEndian.Uint64(r.Payload[p.Fields[i].Off:]) }
		w.records++
		w.longest = max(w.longest, word(4))
		if !right(word(2)) || word(3) == 0 || word(4) == 0 || word(4) > word(0) {
			w.wrong++
		}
	}
	return w
}

func (w *timing) check(t *testing.T, want uint64) {
	t.Helper()
	sum := uint64(0)
	for _, n := range w.KP.Values(durationsMap) {
		sum += n
	}
	lost := w.KP.Values(lossesMap)[0]
	if w.Hits() != want || sum != want || uint64(w.records)+lost != want || w.wrong > 0 || w.NMissed() > 0 {
		t.Errorf("%s: %d returns, %d in the histogram, %d records and %d lost, %d wrong, %d missed; want %d",
			w.KP.SymbolName, w.Hits(), sum, w.records, lost, w.wrong, w.NMissed(), want)
	}
}

// TestProgramsAtReturns: records and durations are exact, in the target and in the tracer.
func TestProgramsAtReturns(t *testing.T) {
	for _, opts := range []kprobes.Options{{}, {NoOptimize: true}} {
		for _, threads := range []int{1, 8} {
			t.Run(fmt.Sprint(!opts.NoOptimize, threads), func(t *testing.T) {
				prog := start(t, "threads", fmt.Sprint(threads))
				s := attach(t, prog.PID(), opts)
				w := newTiming(t, "foo", func(ret uint64) bool { return ret%3 == 1 })
				ok(t, s.RegisterKretprobe(&w.Kretprobe))
				prog.Do("go 10", "went")
				s.WaitForOptimizer(t.Context())
				for range 3 {
					prog.Do("go 1000", "went")
				}
				if !opts.NoOptimize {
					if _, n := kprobes.FollowedInTarget(&w.Kretprobe); n < uint64(2000*threads) {
						t.Errorf("only %d of %d returns were the target's", n, w.Hits())
					}
				}
				if w.longest > 0 && s.Elapsed(w.longest) <= 0 {
					t.Errorf("%d ticks take %v", w.longest, s.Elapsed(w.longest))
				}
				closeSession(t, s)
				w.check(t, uint64(3010*threads))
				prog.CheckClean()
				wantRight(t, prog)
			})
		}
	}
}

// TestProgramsSeeRegistersThatNobodyUses: a result that the caller drops, and an argument that the function does not
// read, are dead to the code that follows, and not to those who ask for them.
func TestProgramsSeeRegistersThatNobodyUses(t *testing.T) {
	for _, both := range []bool{false, true} {
		t.Run(fmt.Sprint(both), func(t *testing.T) {
			prog := start(t, "unused")
			s := attach(t, prog.PID(), kprobes.Options{})
			w := newTiming(t, "give", func(ret uint64) bool { return ret%3 == 2 && ret < 3000 })
			ok(t, s.RegisterKretprobe(&w.Kretprobe))
			entry, right := recordSecond(t)
			if both {
				register(t, s, entry)
			}
			prog.Do("go 10", "went")
			s.WaitForOptimizer(t.Context())
			prog.Do("go 900", "went")
			if _, n := kprobes.FollowedInTarget(&w.Kretprobe); n < 800 {
				t.Errorf("only %d of %d returns were the target's", n, w.Hits())
			}
			closeSession(t, s)
			w.check(t, 910)
			if both && uint64(*right)+entry.Values(lossesMap)[0] != 910 {
				t.Errorf("%d arguments are right, %d lost", *right, entry.Values(lossesMap)[0])
			}
			prog.CheckClean()
			wantRight(t, prog)
		})
	}
}

// recordSecond is a Kprobe that records give's second argument. It counts those that can be.
func recordSecond(t *testing.T) (kp *kprobes.Kprobe, right *int) {
	t.Helper()
	ring := program.Map{Kind: program.Ring, Size: 1 << 16}
	p, err := program.Build("second", 0, []string{"rsi"}, program.Cond{}, program.WriteRecord{Ring: ring, Items: []program.Item{
		{Name: "time", Value: program.Now()}, {Name: "thread", Value: program.CurrentThread()}, {Name: "second", Value: program.Reg("rsi")},
	}})
	ok(t, err)
	right = new(int)
	return &kprobes.Kprobe{SymbolName: "give", Program: p, RecordHandler: func(_ *kprobes.Kprobe, r *kprobes.HitRecord) {
		if v := binary.LittleEndian.Uint64(r.Payload[p.Fields[2].Off:]); v%3 == 1 && v < 3000 {
			*right++
		}
	}}, right
}

// TestTimedCallsWithoutAClock: a thread that may not read the time-stamp counter (prctl(2), PR_SET_TSC) goes on,
// and its calls take no time.
func TestTimedCallsWithoutAClock(t *testing.T) {
	const setTSC, sigsegv = 26, 2
	prog := start(t, "threads", "1")
	s := attach(t, prog.PID(), kprobes.Options{})
	prctl, err := s.Symbols().Resolve(t.Context(), "libc.so.6:prctl")
	ok(t, err)
	forbid := &kprobes.Kprobe{SymbolName: "foo", PreHandler: func(_ *kprobes.Kprobe, regs *kprobes.Regs) int {
		if ret, err := callWithin(regs, within, prctl[0].Addr, setTSC, sigsegv, 0, 0, 0); ret != 0 || err != nil {
			t.Errorf("prctl: %d, %v", ret, err)
		}
		return 0
	}}
	register(t, s, forbid)
	prog.Do("go 1", "went")
	ok(t, s.UnregisterKprobe(forbid))
	w := newTiming(t, "foo", func(uint64) bool { return true })
	w.KP.RecordHandler = nil
	ok(t, s.RegisterKretprobe(&w.Kretprobe))
	prog.Do("go 10", "went")
	s.WaitForOptimizer(t.Context())
	prog.Do("go 200", "went")
	if _, n := kprobes.FollowedInTarget(&w.Kretprobe); n < 150 {
		t.Errorf("only %d of %d returns were the target's", n, w.Hits())
	}
	if w.Hits() != 210 || w.NMissed() != 0 {
		t.Errorf("%d returns, %d missed", w.Hits(), w.NMissed())
	}
	closeSession(t, s)
	prog.CheckClean()
	wantRight(t, prog)
}
