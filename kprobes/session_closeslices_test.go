package kprobes

import (
	"testing"

	"github.com/gokprobe/gokprobe/internal/testprog"
)

// TestManyJumpsAreTakenBackInSlices: when a session ends, most of its code is given back before all threads stand for the rest. Between two slices the
// target runs, and forks, with some of its probes.
func TestManyJumpsAreTakenBackInSlices(t *testing.T) {
	for name, o := range map[string]Options{"alone": {}, "followed": {Follow: true}} {
		t.Run(name, func(t *testing.T) {
			prog, s, kps := thousandProbes(t, o)
			prog.Send("mine")
			prog.Expect("mine 1499500")
			jumps := func() (n int) {
				for _, kp := range kps {
					if st := s.mainDomain().placed(kp); st.jump() != nil && st.patch().Armed() {
						n++
					}
				}
				return n
			}
			_ = s.do(func() error {
				before := jumps()
				if before <= batchSize {
					t.Fatalf("%d jumps are too few", before)
				}
				if !s.takeBackSome() {
					t.Error("thousand jumps are few")
				}
				if n := jumps(); n != before-batchSize {
					t.Errorf("%d of %d jumps are left", n, before)
				}
				if s.takeBackSome() {
					t.Error("the last ones are taken back in a slice of their own")
				}
				return nil
			})
			prog.Send("mine")
			prog.Expect("mine 1499500")
			once, twice := 0, 0
			for _, kp := range kps {
				switch kp.Hits() {
				case 1:
					once++
				case 2:
					twice++
				}
			}
			if once != batchSize || twice != len(kps)-batchSize {
				t.Errorf("%d functions were hit once, %d twice", once, twice)
			}
			child := fork(t, prog)
			if !o.Follow {
				testprog.CheckClean(t, child)
			}
			prog.Send("call")
			prog.Expect("sum 1499500")
			endsRight(t, prog, s)
		})
	}
}
