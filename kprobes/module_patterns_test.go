package kprobes_test

import (
	"context"
	"errors"
	"testing"

	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/symbols"
)

// pluggedOf registers probes of what libplug.so has, once, by name.
func pluggedOf(s *kprobes.Session, names ...string) (pt *kprobes.Pattern, kps []*kprobes.Kprobe, came *[]kprobes.Arrival) {
	for _, name := range names {
		kps = append(kps, boosted.probe("libplug.so:"+name))
	}
	came = new([]kprobes.Arrival)
	return &kprobes.Pattern{Spec: "libplug.so:*", Expand: func(ctx context.Context, in kprobes.Arrival) error {
		if *came = append(*came, in); len(*came) > 1 {
			return nil
		}
		return s.RegisterKprobes(ctx, kps)
	}}, kps, came
}

// TestAPatternRegistersItsProbes before constructors run, in glibc's and musl's processes. They come back alone.
func TestAPatternRegistersItsProbes(t *testing.T) {
	for _, c := range libcs {
		t.Run(c.name, func(t *testing.T) {
			c.requires(t)
			prog, s, warned := c.loading(t, kprobes.Options{})
			pt, kps, came := pluggedOf(s, "build", "plugged")
			ok(t, s.RegisterPattern(t.Context(), pt))
			warned.want(t, "probe libplug.so:* waits: libplug.so is not loaded yet")
			if st := s.PatternStatus(pt); !st.Waiting || st.Reason != "libplug.so is not loaded yet" {
				t.Errorf("status %+v", st)
			}
			if err := s.RegisterKprobe(boosted.probe("nonesuch")); err == nil { // the dynamic linker is watched all the same
				t.Error("nonesuch is registered")
			}
			for i := range uint64(3) {
				prog.Do("open 0 "+c.lib(t, "libplug.so"), "did")
				prog.Do("call 0 plugged 10", "did")
				wantHits(t, kps[1], 10*(i+1))
				if c.name == glibc.name {
					wantHits(t, kps[0], i+1)
				}
				prog.Do("close 0", "did")
			}
			if wantCalls := map[string]int{"glibc": 3, "musl": 1}[c.name]; len(*came) != wantCalls || !(*came)[0].Main || (*came)[0].Symbols != s.Symbols() {
				t.Errorf("called %d times, %+v", len(*came), *came)
			}
			if st := s.PatternStatus(pt); !st.Waiting || st.Reason != "" {
				t.Errorf("status %+v", st)
			}
			warned.want(t)
			closeSession(t, s)
			if st := s.PatternStatus(pt); st != (kprobes.PatternStatus{}) {
				t.Errorf("status %+v of a closed session", st)
			}
			prog.CheckClean()
			wantRight(t, prog)
		})
	}
}

// TestPatternsObey: they are registered once, and after they were unregistered nothing comes. One whose library is there, complete, has its probes at once.
func TestPatternsObey(t *testing.T) {
	prog, s, _ := glibc.loading(t, kprobes.Options{})
	lib := glibc.lib(t, "libplug.so")
	pt, kps, came := pluggedOf(s, "plugged")
	ok(t, s.RegisterPattern(t.Context(), pt))
	if err := s.RegisterPattern(t.Context(), pt); !errors.Is(err, kprobes.ErrRegistered) {
		t.Errorf("registered twice: %v", err)
	}
	if err := s.RegisterPattern(t.Context(), &kprobes.Pattern{Spec: "plug:*"}); !errors.Is(err, kprobes.ErrUnknownSymbol) {
		t.Errorf("no library: %v", err)
	}
	ok(t, s.UnregisterPattern(pt))
	if err := s.UnregisterPattern(pt); !errors.Is(err, kprobes.ErrNotRegistered) {
		t.Errorf("unregistered twice: %v", err)
	}
	prog.Do("open 0 "+lib, "did")
	if len(*came) != 0 {
		t.Errorf("it was called: %+v", *came)
	}
	ok(t, s.RegisterPattern(t.Context(), pt))
	prog.Do("call 0 plugged 10", "did")
	wantHits(t, kps[0], 10)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.RegisterPattern(over, &kprobes.Pattern{Spec: "libplug.so:*"}); !errors.Is(err, context.Canceled) {
		t.Errorf("a context that is done: %v", err)
	}
	closeSession(t, s)
	if err := s.RegisterPattern(t.Context(), pt); !errors.Is(err, kprobes.ErrClosed) {
		t.Errorf("a closed session: %v", err)
	}
	prog.CheckClean()
	wantRight(t, prog)
}

// TestACallOfExpandThatFailsIsToldOnce, but not of a library that only looks like it.
func TestACallOfExpandThatFailsIsToldOnce(t *testing.T) {
	prog, s, warned := glibc.loading(t, kprobes.Options{})
	fails := errors.New("there is none")
	pt := &kprobes.Pattern{Spec: "libplug.so:*", Expand: func(context.Context, kprobes.Arrival) error { return fails }}
	similar := &kprobes.Pattern{Spec: "libplug.so:*", Expand: func(context.Context, kprobes.Arrival) error { return symbols.ErrUnknownModule }}
	ok(t, errors.Join(s.RegisterPattern(t.Context(), pt), s.RegisterPattern(t.Context(), similar)))
	warned.want(t, "waits", "waits")
	for range 3 {
		prog.Do("open 0 "+glibc.lib(t, "libplug.so"), "did")
		prog.Do("close 0", "did")
	}
	warned.want(t, "probe libplug.so:* is not placed: there is none")
	if st := s.PatternStatus(pt); !st.Waiting || st.Reason != "there is none" {
		t.Errorf("status %+v", st)
	}
	if st := s.PatternStatus(similar); !st.Waiting || st.Reason != "libplug.so is not loaded yet" {
		t.Errorf("status %+v", st)
	}
	closeSession(t, s)
	prog.CheckClean()
	wantRight(t, prog)
}
