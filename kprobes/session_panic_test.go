package kprobes

import (
	"context"
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/internal/testprog"
)

// TestPanicOfOursLetsTheTargetGo: a bug on the tracer's thread ends the session, not the
// program, and leaves nothing in the target.
func TestPanicOfOursLetsTheTargetGo(t *testing.T) {
	prog := testprog.Start(t, testprog.Build(t, "prey"))
	var log []string
	s, err := Attach(context.Background(), prog.PID(), Options{Log: testprog.ButUprobes(func(m string) { log = append(log, m) })})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.RegisterKprobe(&Kprobe{SymbolName: "target"}); err != nil {
		t.Fatal(err)
	}
	_ = s.do(func() error { panic("a bug") })
	<-s.Done()
	if got := prog.Do("call target 30", "ret"); got != "ret 10" {
		t.Errorf("got %q", got)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	prog.CheckClean()
	if len(log) != 1 || !strings.Contains(log[0], "a bug") {
		t.Errorf("the log says %q", log)
	}
}
