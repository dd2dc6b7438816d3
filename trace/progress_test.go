package trace_test

import (
	"log/slog"
	"testing"

	"github.com/gokprobe/gokprobe/trace"
)

// TestProgressIsToldWhileManyPlacesAreArmed: those of the whole C library take several steps.
func TestProgressIsToldWhileManyPlacesAreArmed(t *testing.T) {
	p := prey(t)
	var told []trace.Progress
	s := attach(t, p, trace.Log(slog.New(new(logged))), trace.OnProgress(func(at trace.Progress) { told = append(told, at) }))
	probe(t, s, "libc.so.6:*", trace.Count())
	placed := len(s.Probes()[0].Stats().Places)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	p.CheckClean()
	steps := map[bool]int{}
	last := trace.Progress{}
	for _, at := range told {
		steps[at.Arming]++
		if at.Arming == last.Arming && at.Done < last.Done || last.Arming && !at.Arming || at.Done > at.Of {
			t.Errorf("after %+v comes %+v", last, at)
		}
		last = at
	}
	if want := (trace.Progress{Arming: true, Done: placed, Of: placed}); last != want {
		t.Errorf("it ends with %+v, want %+v", last, want)
	}
	if steps[false] < 2 || steps[true] < 3 {
		t.Errorf("it is told of %d steps of checking and %d of arming: %+v", steps[false], steps[true], told)
	}
}
