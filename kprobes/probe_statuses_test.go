package kprobes

import "testing"

// TestStatusesAreTheStatusOfEach, in their order, also of those that are not registered.
func TestStatusesAreTheStatusOfEach(t *testing.T) {
	prog, s, kps := thousandProbes(t, Options{NoOptimize: true})
	kps = append(kps, &Kprobe{SymbolName: "fn_000"})
	all := s.Statuses(kps)
	if len(all) != len(kps) || len(kps) <= 3*statusBatch {
		t.Fatalf("%d of %d", len(all), len(kps))
	}
	for i, kp := range kps {
		if one := s.Status(kp); all[i] != one {
			t.Fatalf("number %d is %+v, and %+v alone", i, all[i], one)
		}
	}
	fork(t, prog)
	endsRight(t, prog, s)
}
