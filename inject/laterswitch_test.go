package inject

import (
	"errors"
	"testing"

	"github.com/gokprobe/gokprobe/inject/fault"
	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
)

// TestAFaultIsSwitchedWhilePlacesOfItComeIn: a place that is being made when the fault is switched, which sees the other places only, follows.
func TestAFaultIsSwitchedWhilePlacesOfItComeIn(t *testing.T) {
	lib := testprog.Build(t, "libplug.so", "-shared", "-fPIC")
	for _, on := range []bool{true, false} {
		p := testprog.Start(t, testprog.Build(t, "modules"))
		s, err := kprobes.Attach(t.Context(), p.PID(), kprobes.Options{Log: func(string) {}})
		if err != nil {
			t.Fatal(err)
		}
		in := New(s, Options{Log: func(m string) { t.Errorf("the injector warns: %s", m) }})
		var f *Fault
		change := meanwhile{Return{Value: 77}, func() {
			switch {
			case f == nil: // it is tried before anything has come
			case on:
				err = errors.Join(err, f.Start())
			default:
				err = errors.Join(err, f.Stop())
			}
		}}
		if f, err = in.Add(t.Context(), Rule{Spec: "libplug.so:pl*", Attr: fault.Always(), Do: []Action{change}, Stopped: on}); err != nil {
			t.Fatal(err)
		}
		want := "did 31"
		if on {
			want = "did 154"
		}
		p.Do("open 0 "+lib, "did")
		if got := p.Do("call 0 plugged 2", "did"); got != want || f.Armed() != on {
			t.Errorf("on=%v: %s, want %s; armed: %v", on, got, want, f.Armed())
		}
		if err := errors.Join(err, in.Close(), s.Close()); err != nil {
			t.Error(err)
		}
		p.CheckClean()
		p.Quit()
	}
}
