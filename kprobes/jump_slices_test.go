package kprobes

import (
	"context"
	"testing"

	"github.com/gokprobe/gokprobe/internal/testprog"
)

// inSlices has all work be done in the smallest slices.
func inSlices(t *testing.T) {
	t.Helper()
	before := sliceTime
	sliceTime = 0
	t.Cleanup(func() { sliceTime = before })
}

// jumpsOf is how many of the sites have jumps. It is called on the tracer's thread.
func jumpsOf(s *Session, kps []*Kprobe) (n int) {
	d := s.mainDomain()
	for _, kp := range kps {
		if st := d.placed(kp); st != nil && st.jump() != nil {
			n++
		}
	}
	return n
}

// TestHitsAreHandledBetweenTwoSlices: threads come to a breakpoint all the time, while hundreds of others become jumps. They wait for one
// slice, not for all.
func TestHitsAreHandledBetweenTwoSlices(t *testing.T) {
	inSlices(t)
	prog := testprog.Start(t, testprog.Build(t, "prey"))
	s, err := Attach(context.Background(), prog.PID(), Options{Log: func(text string) { t.Log(text) }})
	if err != nil {
		t.Fatal(err)
	}
	found, err := s.Symbols().Resolve(t.Context(), "libc.so.6:*")
	if err != nil {
		t.Fatal(err)
	}
	var kps []*Kprobe
	for _, loc := range found {
		kp := &Kprobe{Addr: loc.Addr, Flags: FlagDisabled}
		if s.RegisterKprobe(kp) == nil {
			kps = append(kps, kp)
		}
		if len(kps) == 20*leastInSlice {
			break
		}
	}
	hit, seen := make(chan struct{}, 1), map[int]bool{}
	foo := &Kprobe{SymbolName: "foo", PostHandler: func(*Kprobe, *Regs, uint64) {
		seen[jumpsOf(s, kps)] = true
		select {
		case hit <- struct{}{}:
		default:
		}
	}}
	if err := s.RegisterKprobe(foo); err != nil {
		t.Fatal(err)
	}
	prog.Send("threads 4 4000 foo")
	<-hit
	if err := s.EnableKprobes(t.Context(), kps); err != nil {
		t.Error(err)
	}
	if err := s.WaitForOptimizer(t.Context()); err != nil {
		t.Error(err)
	}
	prog.Expect("sum")
	between := 0
	_ = s.do(func() error {
		all := jumpsOf(s, kps)
		for n := range seen {
			if n > 0 && n < all {
				between++
			}
		}
		if all < len(kps)/2 {
			t.Errorf("%d of %d sites have jumps", all, len(kps))
		}
		return nil
	})
	if between < 5 {
		t.Errorf("hits came between the slices %d times: %v", between, seen)
	}
	if foo.Hits() != 16000 {
		t.Errorf("%d hits", foo.Hits())
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	prog.CheckClean()
	prog.Quit()
}
