package kprobes

import (
	"context"
	"testing"
	"time"

	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/program"
)

// TestRecordsOfAForgedTimeAreHandedOn: the target has written a time into its records that has not come yet, or that was before all. They
// do not wait for it, nor does anything behind them, and they are told with a time between the session's beginning and now.
func TestRecordsOfAForgedTimeAreHandedOn(t *testing.T) {
	prog := testprog.Start(t, testprog.Build(t, "prey"))
	s, err := Attach(context.Background(), prog.PID(), Options{Log: testprog.NoWarnings(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	p, err := program.Build("target", 0, []string{"rdi"}, program.Cond{}, program.WriteRecord{
		Ring:  program.Map{Kind: program.Ring, Size: program.MinRingSize},
		Items: []program.Item{{Value: program.Now()}, {Value: program.CurrentThread()}, {Value: program.Reg("rdi")}},
	})
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan time.Time, 100)
	kp := &Kprobe{SymbolName: "target", Program: p, RecordHandler: func(_ *Kprobe, r *HitRecord) { got <- r.Time }}
	began := time.Now()
	if err := s.RegisterKprobe(kp); err != nil {
		t.Fatal(err)
	}
	s.WaitForOptimizer(t.Context())
	if st := s.Status(kp); testprog.NoJumpHere(st.Reason) {
		t.Skipf("no jump: %s", st.Reason)
	}
	if kp.Flags&FlagOptimized == 0 {
		t.Fatalf("not optimized: %+v", s.Status(kp))
	}
	for _, forged := range []uint64{host.Ticks() + 1<<50, 1<<63 + host.Ticks() - 1, ^uint64(0), 0, 1} {
		if err := s.do(func() error { // nothing is read meanwhile
			ring := s.mainDomain().recorder.rings[0]
			at := ring.words[program.RingHead/8] % uint64(ring.size)
			prog.Do("call target 30", "ret 10")
			ring.words[(program.RingData+at+program.RecordHeader)/8] = forged
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		prog.Do("call target 30", "ret 10")
		for range 2 {
			if at := <-got; at.Before(began.Add(-time.Minute)) || at.After(time.Now().Add(time.Minute)) {
				t.Errorf("time %#x: a record of %v", forged, at)
			}
		}
	}
	if n := s.records.taken.Len(); n != 0 {
		t.Errorf("%d records wait", n)
	}
}
