package fault_test

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/gokprobe/gokprobe/inject/fault"
)

// A kernel is should_fail_ex of lib/fault-inject.c once more, statement by statement as
// that is written, with the numbers and types of the kernel: a second opinion.
type kernel struct {
	probability, interval uint64
	times, space          int64
	taskFilter            bool
	depth                 int
	requireStart, requireEnd,
	rejectStart, rejectEnd uint64

	count   uint64
	failNth uint64 // current's
	seed    uint64
	used    uint64 // random numbers
}

func (k *kernel) failStacktrace(frames []uint64) bool {
	found := k.requireStart == 0 && k.requireEnd == math.MaxUint64
	if k.depth == 0 || (found && k.rejectStart == 0 && k.rejectEnd == 0) {
		return found
	}
	n := len(frames)
	if n > k.depth {
		n = k.depth
	}
	for i := 0; i < n; i++ {
		if k.rejectStart <= frames[i] && frames[i] < k.rejectEnd {
			return false
		}
		if k.requireStart <= frames[i] && frames[i] < k.requireEnd {
			found = true
		}
	}
	return found
}

func (k *kernel) shouldFail(size int64, makeItFail bool, frames []uint64) bool {
	stackChecked := false
	if k.failNth != 0 {
		if !k.failStacktrace(frames) {
			return false
		}
		stackChecked = true
		k.failNth--
		if k.failNth == 0 {
			goto fail
		}
		return false
	}
	if k.probability == 0 {
		return false
	}
	if k.taskFilter && !makeItFail {
		return false
	}
	if k.times == 0 {
		return false
	}
	if !stackChecked && !k.failStacktrace(frames) {
		return false
	}
	if k.space > size {
		k.space -= size
		return false
	}
	if k.interval > 1 {
		k.count++
		if k.count%k.interval != 0 {
			return false
		}
	}
	if !k.random() {
		return false
	}
fail:
	if k.times != -1 && k.times != 0 {
		k.times--
	}
	return true
}

// random stands for probability <= get_random_u32_below(100), with this project's
// numbers: exactly, by fractions.
func (k *kernel) random() bool {
	if k.probability >= 100 {
		return true
	}
	var n, limit big.Float
	n.SetUint64(fault.Mix(k.seed, k.used))
	k.used++
	limit.SetMantExp(big.NewFloat(float64(k.probability)/100), 64)
	return n.Cmp(&limit) < 0
}

func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

func TestDecisionsAreThoseOfASecondModelOfTheKernel(t *testing.T) {
	failed := 0
	for round := range 4000 {
		r := rand.New(rand.NewPCG(1, uint64(round)))
		k := &kernel{
			probability: pick[uint64](r, 0, 1, 7, 50, 99, 100, 100), interval: pick[uint64](r, 0, 1, 2, 3, 10),
			times: pick[int64](r, -1, -1, 0, 1, 5), space: pick[int64](r, 0, 0, 1, 2, 20),
			taskFilter: r.IntN(3) == 0, depth: pick(r, 0, 1, 2, 32, 32),
			requireEnd: math.MaxUint64, seed: r.Uint64(),
		}
		if r.IntN(3) == 0 {
			k.requireStart, k.requireEnd = r.Uint64N(8), 1+r.Uint64N(8)
		}
		if r.IntN(3) == 0 {
			k.rejectStart, k.rejectEnd = r.Uint64N(8), r.Uint64N(8)
		}
		if r.IntN(4) == 0 {
			k.failNth = 1 + r.Uint64N(9)
		}
		d, err := fault.New(fault.Attr{
			Probability: float64(k.probability) / 100, Interval: k.interval, Times: k.times, Space: k.space, TaskFilter: k.taskFilter,
			StackDepth: k.depth, Require: fault.Range{Start: k.requireStart, End: k.requireEnd}, Reject: fault.Range{Start: k.rejectStart, End: k.rejectEnd},
			FailNth: k.failNth, Seed: k.seed,
		})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 60 {
			frames := make([]uint64, r.IntN(5))
			for j := range frames {
				frames[j] = r.Uint64N(10)
			}
			size, task := 1+r.Int64N(3), r.IntN(2) == 0
			if i == 30 && r.IntN(3) == 0 { // somebody writes the file of a task
				k.failNth = r.Uint64N(4)
				d.SetFailNth(3, k.failNth)
				a := d.Attr()
				a.FailNth = 0
				if err := d.Update(a); err != nil {
					t.Fatal(err)
				}
			}
			want := k.shouldFail(size, task, frames)
			got := d.Decide(fault.Call{Process: 1, Thread: 3, Size: size, Now: epoch, Task: task, Stack: func() []uint64 { return frames }})
			if got.Fail != want || d.Attr().Times != k.times {
				t.Fatalf("round %d, call %d: %+v with %d times left, want %v with %d; %v", round, i+1, got, d.Attr().Times, want, k.times, d.Attr())
			}
			if want {
				failed++
			}
		}
	}
	if failed < 10000 {
		t.Errorf("only %d calls failed: the attributes are not random enough", failed)
	}
}

// randomAttr returns random attributes of all kinds.
func randomAttr(r *rand.Rand) fault.Attr {
	a := fault.Default()
	a.Probability = pick(r, 0, 1e-3, 0.3, 0.999, 1, 1, r.Float64())
	a.Interval = pick(r, 0, 1, 2, 7, r.Uint64N(20))
	a.Times = pick(r, -1, -1, 0, 1, 5, r.Int64N(100))
	a.Space = pick(r, 0, 0, 1, 2, r.Int64N(40)-3)
	if r.IntN(2) == 0 {
		a.When = fault.When{First: 1 + r.Uint64N(9), Step: r.Uint64N(4)}
		if r.IntN(2) == 0 {
			a.When.Last = a.When.First + r.Uint64N(50)
		}
	}
	if r.IntN(4) == 0 {
		a.Rate = fault.Rate{N: 1 + r.Uint64N(5), Per: time.Duration(1+r.Int64N(100)) * time.Millisecond}
	}
	if r.IntN(4) == 0 {
		a.For = time.Duration(1+r.Int64N(300)) * time.Millisecond
	}
	if r.IntN(6) == 0 {
		a.FailNth, a.Probability = 1+r.Uint64N(20), pick(r, 0, a.Probability)
	}
	a.TaskFilter, a.PerThread = r.IntN(10) == 0, r.IntN(10) == 0
	a.Seed = r.Uint64()
	return a
}

// A target counts as a program in a target would: a word for each step.
type target struct {
	part  fault.StaticPart
	cells []uint64
}

func (s *target) chooses() bool {
	if s.part.Never {
		return false
	}
	for i, step := range s.part.Steps {
		n := s.cells[i]
		s.cells[i]++
		if !step.Met(n) {
			return false
		}
	}
	return true
}

func TestStaticAndConfirmDecideAsDecide(t *testing.T) {
	static, failed := 0, 0
	for round := range 4000 {
		r := rand.New(rand.NewPCG(2, uint64(round)))
		a := randomAttr(r)
		part, err := a.Static()
		if err != nil {
			continue
		}
		static++
		whole, err := fault.New(a)
		if err != nil {
			t.Fatal(a, err)
		}
		rest, _ := fault.New(a)
		whole.Start(epoch)
		rest.Start(epoch)
		processes := map[int]*target{}
		c := call()
		for i := range 200 {
			c.Process, c.Now = r.IntN(2), c.Now.Add(time.Duration(r.IntN(5))*time.Millisecond)
			if processes[c.Process] == nil {
				processes[c.Process] = &target{part, make([]uint64, len(part.Steps))}
			}
			want := whole.Decide(c)
			got := fault.Decision{}
			if processes[c.Process].chooses() {
				got = rest.Confirm(c)
			}
			if got.Fail != want.Fail || got.Log != want.Log || whole.Attr().Times != rest.Attr().Times {
				t.Fatalf("round %d, call %d: %+v, want %+v; %v %+v", round, i+1, got, want, a, part)
			}
			if got.Fail {
				failed++
			}
		}
	}
	if static < 2000 || failed < 20000 {
		t.Errorf("%d attributes are static, %d calls failed: not random enough", static, failed)
	}
}

func TestStaticNamesWhatNeedsTheTracer(t *testing.T) {
	for _, tt := range []struct{ attr, want string }{
		{"probability=100 per-thread=Y", "calls are counted for each thread"},
		{"probability=100 require-start=1", "the stack filter needs every call's stack"},
		{"fail-nth=2 reject-end=1", "the stack filter needs every call's stack"},
		{"fail-nth=2 probability=100", "fail-nth comes before the other attributes"},
		{"probability=100 task-filter=Y", "the task filter needs to know every call's thread"},
		{"probability=100", ""},
		{"fail-nth=2 task-filter=Y", ""},
		{"", ""},
	} {
		_, err := attr(t, tt.attr).Static()
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || err.Error() != tt.want) {
			t.Errorf("%s: %v, want %q", tt.attr, err, tt.want)
		}
	}
	for _, tt := range []struct {
		attr  string
		steps int
	}{{"probability=100", 0}, {"probability=100 when=1+", 0}, {"attr=2,50,9,1", 3}, {"probability=1 when=1..9+2", 3}} {
		if part, err := attr(t, tt.attr).Static(); err != nil || part.Never || len(part.Steps) != tt.steps {
			t.Errorf("%s: %+v, %v; want %d steps", tt.attr, part, err, tt.steps)
		}
	}
}
