package realprog

import (
	"testing"

	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
)

// TestRedisCountedReturns: calls that redis-server makes of the C library are counted in the
// target, under load. Most functions have a jump, and every call is a return, missed or in flight.
func TestRedisCountedReturns(t *testing.T) {
	r := startRedis(t)
	c := returns{pid: r.PID(), specs: imported(t, r.tools[0]), work: r.work, atMost: inVDSO, counted: true}
	want := c.work(t)
	before := testprog.TakeSnapshot(t, c.pid)
	s := attach(t, c.pid, kprobes.Options{})
	rps := c.register(t, s)
	for range 3 {
		s.WaitForOptimizer(t.Context())
		sameText(t, "with calls counted", want, c.work(t))
	}
	c.check(t, s, rps)
	optimized := 0
	reasons := map[string]int{}
	for _, rp := range rps {
		if st := s.Status(&rp.KP); st.Mechanism == kprobes.Optimized || testprog.NoJumpHere(st.Reason) {
			optimized++
		} else {
			reasons[st.Reason]++
		}
	}
	if t.Logf("%d of %d are optimized, the others: %v", optimized, len(rps), reasons); optimized < len(rps)/2 {
		t.Errorf("only %d of %d functions are followed in the target", optimized, len(rps))
	}
	if err := s.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	testprog.CheckClean(t, c.pid)
	before.Compare(t, c.pid)
	sameText(t, "after all", want, c.work(t))
}
