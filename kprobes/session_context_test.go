package kprobes_test

import (
	"context"
	"errors"
	"testing"

	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
)

// TestASessionEndsWithItsContext: it closes by itself, the program is as it was found, and Close tells how that went.
func TestASessionEndsWithItsContext(t *testing.T) {
	prog := start(t, "prey")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s, err := kprobes.Attach(ctx, prog.PID(), kprobes.Options{Log: testprog.NoWarnings(t)})
	if err != nil {
		t.Fatal(err)
	}
	kp := &kprobes.Kprobe{SymbolName: "foo"}
	register(t, s, kp)
	cancel()
	<-s.Done()
	if err := s.Close(); err != nil {
		t.Errorf("the session has closed with %v", err)
	}
	prog.CheckClean()
	for what, err := range map[string]error{
		"registering":               s.RegisterKprobe(&kprobes.Kprobe{SymbolName: "foo"}),
		"disabling":                 s.DisableKprobe(kp),
		"waiting for the optimizer": s.WaitForOptimizer(t.Context()),
	} {
		if !errors.Is(err, kprobes.ErrClosed) && !errors.Is(err, context.Canceled) {
			t.Errorf("%s says %v, want that the session is closed", what, err)
		}
	}
}

// TestPlacingEndsWithTheSession: what is under way when the session's context ends is given up, though its own goes on.
func TestPlacingEndsWithTheSession(t *testing.T) {
	prog := start(t, "prey")
	for _, left := range []int{2, 5, 10} {
		ctx, cancel := context.WithCancel(context.Background())
		s, err := kprobes.Attach(ctx, prog.PID(), kprobes.Options{Log: testprog.NoWarnings(t)})
		if err != nil {
			t.Fatal(err)
		}
		own := &asked{Context: context.Background(), cancel: cancel, left: left}
		err = s.RegisterKprobes(own, []*kprobes.Kprobe{{SymbolName: "libc.so.6:read"}, {SymbolName: "libc.so.6:write"}, {SymbolName: "main"}})
		if !errors.Is(err, context.Canceled) && !errors.Is(err, kprobes.ErrClosed) {
			t.Errorf("registering says %v when the session ends at look %d", err, left)
		}
		cancel()
		<-s.Done()
		if err := s.Close(); err != nil {
			t.Errorf("the session has closed with %v", err)
		}
		prog.CheckClean()
	}
}

// TestTheOptimizerIsWaitedForNoLongerThanAsked: the error is the context's.
func TestTheOptimizerIsWaitedForNoLongerThanAsked(t *testing.T) {
	prog := start(t, "prey")
	s := attach(t, prog.PID(), kprobes.Options{})
	over, cancel := context.WithCancelCause(context.Background())
	cause := errors.New("enough")
	cancel(cause)
	for { // until it is caught at work
		kp := &kprobes.Kprobe{SymbolName: "foo"}
		register(t, s, kp)
		err := s.WaitForOptimizer(over)
		if uerr := s.UnregisterKprobe(kp); uerr != nil {
			t.Fatal(uerr)
		}
		switch {
		case errors.Is(err, cause) && errors.Is(err, context.Canceled):
			return
		case err != nil:
			t.Fatalf("waiting says %v, want the context's cause", err)
		}
	}
}
