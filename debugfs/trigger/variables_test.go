package trigger

import (
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

func TestHistogramsOfOneName(t *testing.T) {
	_, in, out := world()
	write(t, in, "hist:name=both:keys=common_pid:vals=bytes_req")
	write(t, out, "hist:name=both:keys=common_pid:vals=bytes_req if delta > 0")
	refused(t, out, "hist:name=both:keys=name", "NAMED_MISMATCH", syscall.EINVAL)
	for _, one := range four() {
		hit(in, one)
		hit(out, one)
	}
	const want = "{ common_pid:         11 } hitcount:          2  bytes_req:        128\n" +
		"{ common_pid:         10 } hitcount:          4  bytes_req:       3264\n" +
		"\nTotals:\n    Hits: 6\n    Entries: 2\n    Dropped: 0\n"
	for _, s := range []*Set{in, out} {
		if got := hist(t, s); !strings.HasSuffix(got, want) {
			t.Errorf("got\n%swant\n%s", got, want)
		}
	}
	write(t, in, "!hist:name=both:keys=common_pid:vals=bytes_req")
	hit(out, four()[1])
	if got := hist(t, out); !strings.Contains(got, "Hits: 7\n") {
		t.Errorf("the shared histogram went with one of its triggers:\n%s", got)
	}
}

func TestSeveralHistograms(t *testing.T) {
	_, in, _ := world()
	write(t, in, "hist:keys=name", "hist:keys=delta")
	got := hist(t, in)
	if strings.Count(got, "# event histogram\n") != 2 || strings.Count(got, "Dropped: 0\n\n\n# event histogram\n") != 1 {
		t.Errorf("got\n%s", got)
	}
}

// TestLatency: a time that one event keeps is subtracted by another, once.
func TestLatency(t *testing.T) {
	_, in, out := world()
	write(t, in, "hist:keys=common_pid:ts=common_timestamp.usecs")
	write(t, out, "hist:keys=common_pid:lat=common_timestamp.usecs-$ts:vals=$lat:onmax($lat).save(name) if bytes_req > 0")
	at := func(s *Set, pid int, us int, name string) {
		one := request(pid, "", 0, 1, 0, name)
		one.Time = time.Duration(us) * time.Microsecond
		hit(s, one)
	}
	at(out, 1, 5, "") // no entry yet
	at(in, 1, 10, "")
	at(in, 2, 11, "")
	at(out, 1, 30, "slow")
	at(out, 1, 31, "") // not entered again
	at(out, 2, 12, "")
	at(in, 1, 40, "")
	at(out, 1, 42, "fast")
	want := fmt.Sprintf("{ common_pid:          2 } hitcount:          1  lat:          1\n\tmax:          1  name: %-32s\n"+
		"{ common_pid:          1 } hitcount:          2  lat:         22\n\tmax:         20  name: %-32s\n", "", "slow")
	if got := hist(t, out); !strings.Contains(got, want) {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	refused(t, in, "!hist:keys=common_pid:ts=common_timestamp.usecs", "VAR_IN_USE", syscall.EBUSY)
	in.Truncate()
	if in.Len() != 1 {
		t.Error("a histogram went whose variables are in use")
	}
	refused(t, in, "hist:keys=name:ts=delta", "DUPLICATE_VAR", syscall.EINVAL)
	write(t, out, "hist:keys=name:ts=delta")
	refused(t, in, "hist:keys=name:x=$ts+1", "VAR_NOT_UNIQUE", syscall.EINVAL)
	write(t, in, "hist:keys=name:x=sys.out.$ts+1")
	if got := in.String(); !strings.Contains(got, ":x=$sys.out.ts+1:") {
		t.Errorf("got\n%s", got)
	}
}

func TestVariablesThatAreNotUsedUp(t *testing.T) {
	_, in, out := world()
	write(t, in, "hist:keys=common_pid:who=name")
	write(t, out, "hist:keys=common_pid:x=$who:n=delta:onchange($n).save(bytes_req)")
	refused(t, out, "hist:keys=name:y=$x+1", "INVALID_STR_OPERAND", syscall.EINVAL)
	hit(in, four()[0])
	hit(out, four()[0])
	hit(out, four()[0])
	if got := hist(t, out); !strings.Contains(got, "Hits: 2\n") {
		t.Errorf("got\n%s", got)
	}
}

// TestSyntheticEvents are made of variables and fields, when two events match and when a value grows.
func TestSyntheticEvents(t *testing.T) {
	h, in, out := world()
	write(t, in, "hist:keys=common_pid:ts=common_timestamp.usecs:caller=name")
	const match = "hist:keys=common_pid:lat=common_timestamp.usecs-$ts:onmatch(sys.in).latency($lat,$caller)"
	const most = "hist:keys=common_pid:most=bytes_req:onmax($most).trace(latency,$most,name)"
	write(t, out, match, most)
	if got := out.String(); !strings.Contains(got, ":onmatch(sys.in).latency($lat,$caller) [active]\n") ||
		!strings.Contains(got, ":onmax($most).trace(latency,$most,name) [active]\n") || !in.table.Makes("latency") {
		t.Errorf("listed as\n%s", got)
	}
	h.told()
	at := func(s *Set, us int, bytes uint64, name string) {
		one := request(1, "", 0, bytes, 0, name)
		one.Time = time.Duration(us) * time.Microsecond
		hit(s, one)
	}
	at(out, 5, 10, "a")
	at(in, 10, 10, "who")
	at(out, 25, 10, "b")
	at(out, 26, 30, "c")
	if got, want := h.told(), "latency 10 a, latency 15 who, latency 30 c"; got != want {
		t.Errorf("made %s, want %s", got, want)
	}
	if got := hist(t, out); strings.Count(got, "\tmax:") != 1 {
		t.Errorf("got\n%s", got)
	}
	write(t, out, "!"+match, "!"+most)
	if in.table.Makes("latency") {
		t.Error("nothing makes it any more")
	}
}

func TestErrorsOfSyntheticEvents(t *testing.T) {
	_, in, out := world()
	write(t, in, "hist:keys=common_pid:ts=common_timestamp")
	for command, id := range map[string]string{
		"hist:keys=common_pid:onmatch(sys.in).other($ts,name)":         "SYNTH_EVENT_NOT_FOUND",
		"hist:keys=common_pid:onmatch(sys.in).latency($no,name)":       "PARAM_NOT_FOUND",
		"hist:keys=common_pid:onmatch(sys.in).latency(no,name)":        "FIELD_NOT_FOUND",
		"hist:keys=common_pid:onmatch(sys.in).latency(name,name)":      "SYNTH_TYPE_MISMATCH",
		"hist:keys=common_pid:onmatch(sys.in).latency($ts)":            "SYNTH_COUNT_MISMATCH",
		"hist:keys=common_pid:onmatch(sys.in).latency($ts,name,delta)": "SYNTH_COUNT_MISMATCH",
		"hist:keys=common_pid:onmatch(none.in).latency($ts,name)":      "INVALID_SUBSYS_EVENT",
	} {
		refused(t, out, command, id, syscall.EINVAL)
	}
	if out.Len() != 0 {
		t.Errorf("there is\n%s", out)
	}
}

func TestEventsThatMakeEachOtherEnd(t *testing.T) {
	h, in, _ := world()
	h.again = in
	write(t, in, "hist:keys=common_pid:x=bytes_req:onmatch(sys.in).latency($x,name)")
	h.told()
	hit(in, four()[0])
	if n := strings.Count(h.told(), "latency"); n != maxDepth {
		t.Errorf("made %d times, want %d", n, maxDepth)
	}
}

func TestTruncation(t *testing.T) {
	_, in, _ := world()
	write(t, in, "hist:keys=name", "snapshot", "enable_hist:sys:out", "enable_event:sys:out")
	in.Truncate()
	if got := in.String(); got != "enable_event:sys:out:unlimited\nsnapshot:unlimited\n" {
		t.Errorf("got\n%s", got)
	}
}

// TestHitsWhileTriggersChange is for the race detector.
func TestHitsWhileTriggersChange(t *testing.T) {
	_, in, out := world()
	write(t, in, "hist:keys=common_pid:ts=common_timestamp")
	var all sync.WaitGroup
	done := make(chan struct{})
	for i := range 3 {
		all.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					hit([]*Set{in, out}[i%2], request(i, "", 1, uint64(i), 0, "x"))
				}
			}
		})
	}
	for range 200 {
		write(t, out, "hist:keys=common_pid:d=common_timestamp-$ts:vals=$d", "traceoff:5", "enable_hist:sys:in")
		hist(t, out)
		write(t, out, "hist:keys=common_pid:d=common_timestamp-$ts:vals=$d:clear", "!traceoff", "!enable_hist:sys:in",
			"!hist:keys=common_pid:d=common_timestamp-$ts:vals=$d")
	}
	close(done)
	all.Wait()
	if got := in.String(); strings.Count(got, "\n") != 1 || out.String() != Available {
		t.Errorf("in %s out %s", got, out)
	}
}
