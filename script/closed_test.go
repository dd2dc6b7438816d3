package script

import (
	"context"
	"errors"
	"testing"

	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
)

// A scenario on a closed session says so, and can still be ended.
func TestAScenarioOnAClosedSessionSaysSo(t *testing.T) {
	s, err := kprobes.Launch(context.Background(), kprobes.Command{Path: testprog.MustBuild("shop"), Args: []string{"shop"}}, kprobes.Options{})
	if err != nil {
		t.Fatal(err)
	}
	sc, err := Load(write(t, "scenario.star", `kprobe("deliver")`), Options{Session: s})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := sc.Arm(); !errors.Is(err, kprobes.ErrClosed) {
		t.Errorf("arm: %v", err)
	}
	sc.Run(context.Background()) // returns
	if err := sc.Disarm(); err != nil {
		t.Errorf("disarm: %v", err)
	}
	if r := sc.Finish(Ending{}); r.Failed {
		t.Errorf("%+v", r)
	}
}
