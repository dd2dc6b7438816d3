package kprobes

import (
	"context"
	"os"
	"testing"
)

// TestAProgramThatIsExecutedHasItsJumpsFromTheBeginning where probes are few: most end before a pass of the optimizer, and would stop at each hit. One whose hits are the tracer's
// waits for its first.
func TestAProgramThatIsExecutedHasItsJumpsFromTheBeginning(t *testing.T) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	s, err := Launch(context.Background(), Command{
		Path: "/bin/sh", Args: []string{"sh", "-c", "/bin/true; /bin/true; exit 0"}, Env: os.Environ(), Files: []*os.File{null, null, os.Stderr},
	}, Options{Follow: true, Log: func(m string) { t.Log(m) }})
	if err != nil {
		t.Fatal(err)
	}
	counted := &Kprobe{SymbolName: "libc.so.6:malloc"}
	programs := 0
	begin := &Kprobe{SymbolName: "libc.so.6:__libc_start_main"}
	begin.PreHandler = func(_ *Kprobe, r *Regs) int {
		if !r.domain.foreign() {
			return 0
		}
		programs++
		if st := r.domain.placed(counted); st == nil || st.jump() == nil || !st.jump().work.counts {
			t.Errorf("program %d begins without a jump at what is counted", programs)
		}
		if st := r.domain.placed(begin); st == nil || st.jump() != nil {
			t.Errorf("program %d begins with a jump where the tracer sees the hits", programs)
		}
		return 0
	}
	for _, kp := range []*Kprobe{counted, begin} {
		if err := s.RegisterKprobe(kp); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	<-s.Done()
	if exit := s.Exit(); exit == nil || exit.Code != 0 || programs != 2 {
		t.Errorf("%d programs began, the shell ended with %+v", programs, exit)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
