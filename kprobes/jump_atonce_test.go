package kprobes

import (
	"context"
	"os"
	"testing"

	"github.com/gokprobe/gokprobe/internal/testprog"
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

// TestMemoryOfOursIsNoModule of the program's: to find that out would take several tries to open it, each time that the modules are read.
func TestMemoryOfOursIsNoModule(t *testing.T) {
	prog := testprog.Start(t, testprog.Build(t, "optstorm"))
	s, err := Attach(context.Background(), prog.PID(), Options{Log: func(string) {}})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.RegisterKprobe(&Kprobe{SymbolName: "s_push"}); err != nil {
		t.Fatal(err)
	}
	_ = s.do(func() error {
		d := s.mainDomain()
		if err := d.linker.symbols().Refresh(); err != nil {
			t.Error(err)
		}
		for _, m := range d.linker.symbols().Modules() {
			for _, ours := range d.memory.mapped() {
				if m.Text[0].Start >= ours.Start && m.Text[0].Start < ours.End {
					t.Errorf("module %s is memory of ours", m.Path)
				}
			}
		}
		if len(d.memory.mapped()) == 0 {
			t.Error("we have no memory there")
		}
		return nil
	})
	wantClosed(t, prog, s)
}
