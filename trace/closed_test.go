package trace_test

import (
	"context"
	"errors"
	"testing"

	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/trace"
)

// Whatever is asked of a closed session, and can fail, says that it is closed; counts stay.
func TestAClosedSessionSaysSo(t *testing.T) {
	for name, closes := range map[string]func(*trace.Session) error{
		"it":         (*trace.Session).Close,
		"underneath": func(s *trace.Session) error { return s.Kprobes().Close() },
	} {
		s, err := trace.Launch(context.Background(), shop())
		if err != nil {
			t.Fatal(err)
		}
		p, err := s.Probe("deliver", trace.Count())
		if err != nil {
			t.Fatal(err)
		}
		if err := closes(s); err != nil {
			t.Fatal(err)
		}
		for call, err := range map[string]error{
			"Start": s.Start(),
			"Probe": second(s.Probe("price")), "Probe unknown": second(s.Probe("nosuch")),
			"ProbeContext": second(s.ProbeContext(context.Background(), []string{"price"})),
		} {
			if !errors.Is(err, trace.ErrClosed) || !errors.Is(err, kprobes.ErrClosed) {
				t.Errorf("%s closed: %s: %v", name, call, err)
			}
		}
		if err := errors.Join(p.Close(), s.Close(), s.Close()); err != nil {
			t.Error(err)
		}
		if st := p.Stats(); st.Hits != 0 || len(st.Places) != 1 || len(s.Counts()) != 1 || len(s.Probes()) != 1 {
			t.Errorf("%+v", st)
		}
		for range p.Hits() {
			t.Error("a hit")
		}
	}
}

// What is said of a probe whose process has ended by itself is how it stood last, whenever it was looked at before.
func TestAProbeOfAProcessThatHasEndedStandsAsItDidLast(t *testing.T) {
	s, err := trace.Launch(context.Background(), shop())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ks := s.Kprobes()
	if err := ks.SetOptimization(false); err != nil {
		t.Fatal(err)
	}
	p, err := s.Probe("deliver", trace.Count())
	if err != nil {
		t.Fatal(err)
	}
	if at := p.Stats().Places[0]; at.Mechanism != kprobes.Boosted {
		t.Errorf("with optimization turned off it is %s", at.Mechanism)
	}
	if err := errors.Join(ks.SetOptimization(true), ks.WaitForOptimizer(t.Context())); err != nil {
		t.Fatal(err)
	}
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	<-ks.Done()
	if at := p.Stats().Places[0]; at.Mechanism != kprobes.Optimized || at.Reason != "" {
		t.Errorf("it was optimized, and is said to be %s (%s)", at.Mechanism, at.Reason)
	}
}

func second(_ *trace.Probe, err error) error { return err }
