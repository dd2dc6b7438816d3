package kprobes

import (
	"context"
	"testing"

	"github.com/gokprobe/gokprobe/internal/testprog"
)

// TestCodeThatIsBeingUnloaded: the dynamic linker has unmapped a library, something else is
// there already, and it has not told yet that it is done. Whatever is done with the probes, the
// other memory is left alone, though it holds what looks like our breakpoint.
func TestCodeThatIsBeingUnloaded(t *testing.T) {
	for _, how := range []string{"unregister", "disable", "close"} {
		t.Run(how, func(t *testing.T) {
			prog := testprog.Start(t, testprog.Build(t, "modules", "-rdynamic"))
			prog.Do("open 0 "+testprog.Build(t, "libplug.so", "-shared", "-fPIC"), "did")
			s, err := Attach(context.Background(), prog.PID(), Options{Log: testprog.NoWarnings(t)})
			if err != nil {
				t.Fatal(err)
			}
			kp, second := &Kprobe{SymbolName: "plugged"}, &Kprobe{SymbolName: "plugged", Offset: 8}
			if err := s.RegisterKprobes(t.Context(), []*Kprobe{kp, second}); err != nil {
				t.Fatal(err)
			}
			_ = s.do(func() error { // as the linker tells before it unmaps
				s.mainDomain().linker.busy = true
				return nil
			})
			prog.Do("yank 0", "did")
			prog.Do("occupy 0", "did")
			switch how {
			case "unregister":
				err = s.UnregisterKprobe(kp)
			case "disable":
				err = s.DisableKprobe(kp)
			}
			if err != nil {
				t.Errorf("%s: %v", how, err)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			prog.Do("vacate", "did")
			prog.CheckClean()
			if got := prog.Quit(); got != "right" {
				t.Errorf("the program says %q", got)
			}
		})
	}
}
