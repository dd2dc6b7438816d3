package inject_test

import (
	"reflect"
	"testing"

	"github.com/gokprobe/gokprobe/inject"
	"github.com/gokprobe/gokprobe/inject/fault"
	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
)

// Each thread's counters begin anew, also where it has the ID of one that has ended.
func TestThreadsThatHaveEndedAreForgotten(t *testing.T) {
	b := onProgram(t, testprog.Build(t, "prey"), kprobes.Options{})
	f := b.add(inject.Rule{Spec: "foo", Attr: attr(t, "per-thread=Y", "space=3"), Do: []inject.Action{inject.Return{Value: 7}}})
	for range 3 {
		b.forget()
		b.Do("threads 20 5 foo", "sum")
		if len(b.told()) != 20*3 {
			t.Errorf("%d calls were injected, want the last 3 of each of 20 threads", len(b.told()))
		}
		f.Decide(func(d *fault.Decider) {
			for _, e := range b.told() {
				if left := d.Space(e.TID); left != 3 {
					t.Errorf("thread %d has ended, and %d is left of its space", e.TID, left)
				}
			}
		})
	}
	if s := f.Stats(); s.Eligible != 300 || s.Injected != 180 {
		t.Errorf("%d calls were eligible, %d injected; want 300, 180", s.Eligible, s.Injected)
	}
}

// Nothing is kept of processes that have ended, however many they are.
func TestProcessesThatHaveEndedAreForgotten(t *testing.T) {
	for _, follow := range []bool{true, false} {
		b := onProgram(t, testprog.Build(t, "forker"), kprobes.Options{Follow: follow})
		f := b.add(inject.Rule{Spec: "foo", Attr: attr(t, "space=1000"), After: true, Do: []inject.Action{inject.Return{Value: 7}}})
		b.Do("run 25", "ran 100")
		var known int
		f.Decide(func(d *fault.Decider) { known = reflect.ValueOf(d).Elem().FieldByName("units").Len() })
		if s := f.Stats(); known > 5 || s.Eligible < 50 {
			t.Errorf("follow %v: %d of 100 processes are remembered; %+v", follow, known, s)
		}
	}
}
