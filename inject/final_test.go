package inject_test

import (
	"sync"
	"testing"

	"github.com/gokprobe/gokprobe/inject"
	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
)

// TestCountsAreFinal: faults end amid calls of many threads, while others ask for their counts. Then as many calls have been injected as were told.
func TestCountsAreFinal(t *testing.T) {
	b := onProgram(t, testprog.Build(t, "prey"), kprobes.Options{})
	for range 10 {
		b.forget()
		f := b.add(inject.Rule{Spec: "foo", Attr: attr(t, "interval=2"), Do: []inject.Action{inject.Return{Value: 7}}})
		b.Send("threads 8 300 foo")
		for f.Stats().Injected < 20 {
			continue
		}
		stop := make(chan struct{})
		var asks sync.WaitGroup
		asks.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					f.Stats()
				}
			}
		})
		if err := f.Remove(); err != nil {
			t.Error(err)
		}
		st := f.Stats()
		close(stop)
		asks.Wait()
		if int(st.Injected) != len(b.told()) || st.Eligible > st.Calls || st.Injected > st.Eligible {
			t.Errorf("%d calls were told; %+v", len(b.told()), st)
		}
		b.Expect("sum")
	}
}
