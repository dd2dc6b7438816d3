package trace_test

import (
	"fmt"
	"testing"

	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/trace"
)

// timed is a session with the fixture that measures its calls itself.
func timed(t *testing.T, opts ...trace.Option) (*testprog.Prog, *trace.Session) {
	t.Helper()
	p := testprog.Start(t, testprog.Build(t, "timed"))
	return p, attach(t, p, opts...)
}

// call calls a function of the fixture, and reads the hit of its return.
func call(t *testing.T, p *testprog.Prog, pr *trace.Probe, name string) (h *trace.Hit, around, inside int64) {
	t.Helper()
	var line string
	if name == "waits" {
		p.Do("waits 7", "waiting")
		line = p.Do("now", "ret")
	} else {
		line = p.Do(name+" 7", "ret")
	}
	var ret int64
	if _, err := fmt.Sscanf(line, "ret %d around %d inside %d", &ret, &around, &inside); err != nil {
		t.Fatal(err)
	}
	for h = range pr.Hits() {
		break
	}
	if h == nil || h.Ret == nil || *h.Ret != ret {
		t.Fatalf("hit %v, want %d", h, ret)
	}
	return h, around, inside
}

// wantWithin: a duration is not longer than the call with all its stops, and not shorter than what the function has seen of itself. Two clocks are
// compared, one of which is set by a few milliseconds of the other: hence the factors.
func wantWithin(t *testing.T, h *trace.Hit, around, inside int64) {
	t.Helper()
	d := int64(*h.Duration)
	if d < 0 || d > 2*around || 2*d < inside || h.DurationMin < 0 || h.DurationMin > *h.Duration || h.Stops == 0 && h.DurationMin != *h.Duration {
		t.Errorf("%v, at least %v, with %d stops; the function saw %d of %d ns", *h.Duration, h.DurationMin, h.Stops, inside, around)
	}
}

func ends(t *testing.T, p *testprog.Prog, s *trace.Session) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	p.CheckClean()
	p.Quit()
}

// TestADurationBySomeStopsSaysSo: those at both ends and those of another probe in between are counted, and the cost of all is taken off.
func TestADurationBySomeStopsSaysSo(t *testing.T) {
	for _, c := range []struct {
		name  string
		inner string // probed as well
		stops int
	}{
		{"quick", "", 2},
		{"waits", "", 2},
		{"nested", "", 2},
		{"nested", "inner", 7},
		{"nested", "inner%return", 12},
	} {
		p, s := timed(t, stops)
		pr := probe(t, s, c.name, trace.Returns())
		if c.inner != "" {
			probe(t, s, c.inner, trace.Count(), trace.If("common_pid > 0"))
		}
		exact := 0
		for range 20 {
			h, around, inside := call(t, p, pr, c.name)
			wantWithin(t, h, around, inside)
			if h.Stops < c.stops {
				t.Errorf("%s with %q: %d stops, want %d", c.name, c.inner, h.Stops, c.stops)
			}
			if h.Stops == c.stops {
				exact++
			}
			if mark := h.DurationMark(); mark != "~" && mark != "~<" || (mark == "~") != (h.DurationMin > 0) {
				t.Errorf("%v has the mark %q", h, mark)
			}
		}
		if exact == 0 { // what else the session stops threads for is rare
			t.Errorf("%s with %q: never %d stops", c.name, c.inner, c.stops)
		}
		ends(t, p, s)
	}
}

// inTarget has a function's return, and where it returns to, optimized.
func inTarget(t *testing.T, p *testprog.Prog, s *trace.Session, pr *trace.Probe, name string) {
	t.Helper()
	for range 2 { // where it returns to is learnt at the first call
		if err := s.Kprobes().WaitForOptimizer(t.Context()); err != nil {
			t.Fatal(err)
		}
		call(t, p, pr, name)
	}
	if err := s.Kprobes().WaitForOptimizer(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestADurationThatTheTargetMeasuresHasNoMark, unless the call's thread was stopped for another probe.
func TestADurationThatTheTargetMeasuresHasNoMark(t *testing.T) {
	for _, name := range []string{"quick", "waits", "nested"} {
		p, s := timed(t)
		pr := probe(t, s, name, trace.Returns())
		inTarget(t, p, s, pr, name)
		bare := 0
		for range 20 {
			h, around, inside := call(t, p, pr, name)
			wantWithin(t, h, around, inside)
			if h.Stops == 0 {
				bare++
			}
			if (h.DurationMark() == "") != (h.Stops == 0) {
				t.Errorf("%v has the mark %q and %d stops", h, h.DurationMark(), h.Stops)
			}
		}
		if bare == 0 {
			t.Errorf("%s was never measured in the target", name)
		}
		ends(t, p, s)
	}
}

func TestStopsInACallThatTheTargetMeasuresAreCounted(t *testing.T) {
	p, s := timed(t)
	pr := probe(t, s, "nested", trace.Returns())
	inner := probe(t, s, "inner", trace.Stack(2))
	inTarget(t, p, s, pr, "nested")
	exact := 0
	for range 20 {
		h, around, inside := call(t, p, pr, "nested")
		wantWithin(t, h, around, inside)
		if h.Stops < 5 || h.DurationMark() == "" {
			t.Errorf("%v with %d stops", h, h.Stops)
		}
		if h.Stops == 5 {
			exact++
		}
	}
	if exact == 0 {
		t.Error("never 5 stops")
	}
	if got := len(take(inner, 22*5)); got != 22*5 {
		t.Errorf("%d hits", got)
	}
	ends(t, p, s)
}
