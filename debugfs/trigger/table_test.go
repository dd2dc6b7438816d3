package trigger

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/gokprobe/gokprobe/expr/caret"
	"github.com/gokprobe/gokprobe/expr/fetch"
)

// host records what triggers ask of it.
type host struct {
	mu      sync.Mutex
	log     []string
	tracing bool
	enabled map[string]bool
	again   *Set   // the event that a synthetic one is
	refuse  string // the event that can't get into soft mode
}

var errRefused = errors.New("refused")

func (h *host) Exists(system, event string) bool { return system == "sys" }

func (h *host) Soft(system, event string, on bool) error {
	if event == h.refuse {
		return errRefused
	}
	h.note("soft %s %v", event, on)
	return nil
}

func (h *host) Enable(system, event string, on bool) bool {
	h.note("enable %s %v", event, on)
	h.mu.Lock()
	defer h.mu.Unlock()
	changed := h.enabled[event] != on
	h.enabled[event] = on
	return changed
}

func (h *host) Tracing(on bool) bool {
	h.note("tracing %v", on)
	h.mu.Lock()
	defer h.mu.Unlock()
	changed := h.tracing != on
	h.tracing = on
	return changed
}

func (h *host) Snapshot() { h.note("snapshot") }

func (h *host) Stack(hit *Hit) {
	if hit.Stack != nil {
		h.note("stack %#x", hit.Stack()[0])
	}
}

func (h *host) Synthetic(name string) ([]fetch.Field, bool) {
	return []fetch.Field{{Name: "lat", Type: u64}, {Name: "who", Type: text}}, name == "latency"
}

func (h *host) Synthesize(name string, values []fetch.Value, hit *Hit) {
	h.note("%s %d %s", name, values[0].U, values[1].S)
	if h.again != nil {
		again := *hit
		again.Depth++
		h.again.Hit(&again)
	}
}

func (h *host) note(format string, a ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.log = append(h.log, fmt.Sprintf(format, a...))
}

// told is what was asked since the last call.
func (h *host) told() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := strings.Join(h.log, ", ")
	h.log = nil
	return s
}

// world is two events, in and out, with the fields of alloc.
func world() (h *host, in, out *Set) {
	h = &host{tracing: true, enabled: map[string]bool{}}
	t := NewTable(h)
	return h, t.Add(Event{"sys", "in", alloc.Fields}), t.Add(Event{"sys", "out", alloc.Fields})
}

func write(t *testing.T, s *Set, commands ...string) {
	t.Helper()
	for _, c := range commands {
		if err := s.Write(c); err != nil {
			t.Fatalf("%s: %v", c, err)
		}
	}
}

func refused(t *testing.T, s *Set, command, id string, errno syscall.Errno) {
	t.Helper()
	err := s.Write(command)
	var e *caret.Error
	if !errors.As(err, &e) || e.ID != id || !errors.Is(err, errno) {
		t.Errorf("%s: %v, want %s, %v", command, err, id, errno)
	}
}

func hit(s *Set, h *Hit) {
	if after := s.Hit(h); after != nil {
		after()
	}
}

func hist(t *testing.T, s *Set) string {
	t.Helper()
	var b strings.Builder
	if err := s.Print(&b, nil); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestTriggerFile(t *testing.T) {
	h, in, _ := world()
	if got := in.String(); got != Available {
		t.Errorf("without triggers: %q", got)
	}
	write(t, in, "hist:keys=name", "traceoff:2", "enable_event:sys:out", "hist:keys=delta")
	const want = "enable_event:sys:out:unlimited\ntraceoff:count=2\n" +
		"hist:keys=name:vals=hitcount:sort=hitcount:size=2048 [active]\n" +
		"hist:keys=delta:vals=hitcount:sort=hitcount:size=2048 [active]\n"
	if got := in.String(); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	refused(t, in, "traceon", "EXISTS", syscall.EEXIST)
	refused(t, in, "disable_event:sys:out:4", "EXISTS", syscall.EEXIST)
	refused(t, in, "hist:keys=delta", "TRIGGER_EEXIST", syscall.EEXIST)
	refused(t, in, "enable_event:nogroup:noevent", "TARGET_NOT_FOUND", syscall.EINVAL)
	refused(t, in, "junk", "UNKNOWN_TRIGGER", syscall.EINVAL)
	write(t, in, "!traceon", "!stacktrace", "!hist:keys=name", "!hist:keys=bytes_req", "!enable_event:sys:out:3")
	if got := in.String(); got != "hist:keys=delta:vals=hitcount:sort=hitcount:size=2048 [active]\n" {
		t.Errorf("got\n%s", got)
	}
	in.Close()
	if got, want := h.told(), "soft in true, soft out true, soft out false, soft in false"; got != want {
		t.Errorf("asked %s, want %s", got, want)
	}
	if err := in.Write("traceon"); !errors.Is(err, syscall.ENODEV) {
		t.Errorf("an event that is gone: %v", err)
	}
}

// TestSoftMode: an event must happen while it has triggers or is the target of some.
func TestSoftMode(t *testing.T) {
	h, in, out := world()
	soft := func(event string) bool { return in.table.Soft("sys", event) }
	write(t, in, "enable_event:sys:out", "enable_hist:sys:out")
	write(t, out, "snapshot")
	if !soft("in") || !soft("out") {
		t.Error("not in soft mode")
	}
	write(t, out, "!snapshot")
	write(t, in, "!enable_event:sys:out")
	if !soft("in") || !soft("out") {
		t.Error("out of soft mode too early")
	}
	write(t, in, "!enable_hist:sys:out")
	if soft("in") || soft("out") {
		t.Error("still in soft mode")
	}
	h.refuse = "out"
	if err := in.Write("enable_event:sys:out"); !errors.Is(err, errRefused) {
		t.Errorf("got %v", err)
	}
	if in.Len() != 0 || soft("in") || soft("out") {
		t.Error("a trigger is there that was refused")
	}
}

func TestTriggersFire(t *testing.T) {
	for _, c := range []struct {
		commands []string
		hits     int
		want     string
		left     string
	}{
		{[]string{"traceoff"}, 2, "tracing false, tracing false", "traceoff:unlimited"},
		{[]string{"traceoff:3"}, 2, "tracing false, tracing false", "traceoff:count=2"},
		{[]string{"traceon:1"}, 2, "tracing true, tracing true", "traceon:count=1"},
		{[]string{"snapshot:2"}, 3, "snapshot, snapshot", "snapshot:count=0"},
		{[]string{"stacktrace:1"}, 3, "stack 0x1104", "stacktrace:count=0"},
		{[]string{"enable_event:sys:out:2"}, 3, "enable out true, enable out true, enable out true", "enable_event:sys:out:count=1"},
		{[]string{"disable_event:sys:out:2"}, 1, "enable out false", "disable_event:sys:out:count=2"},
		{[]string{"snapshot if bytes_req > 64"}, 3, "", "snapshot:unlimited if bytes_req > 64"},
		{[]string{`snapshot if bytes_req == 64 && name == "b"`}, 1, "snapshot", `snapshot:unlimited if bytes_req == 64 && name == "b"`},
		{[]string{"stacktrace", "snapshot"}, 1, "snapshot, stack 0x1104", "snapshot:unlimited\nstacktrace:unlimited"},
	} {
		h, in, _ := world()
		write(t, in, c.commands...)
		h.told()
		for range c.hits {
			hit(in, four()[0])
		}
		if got := h.told(); got != c.want {
			t.Errorf("%s: asked %q, want %q", c.commands, got, c.want)
		}
		if got := in.String(); got != c.left+"\n" {
			t.Errorf("%s: left %q", c.commands, got)
		}
	}
}

// TestWhatWaitsForTheEvent: a stack stands behind its event, and traceoff lets it be recorded.
func TestWhatWaitsForTheEvent(t *testing.T) {
	h, in, _ := world()
	write(t, in, "stacktrace", "traceoff", "snapshot")
	h.told()
	after := in.Hit(four()[0])
	if got := h.told(); got != "snapshot" {
		t.Errorf("before the event: %s", got)
	}
	after()
	if got := h.told(); got != "tracing false, stack 0x1104" {
		t.Errorf("behind the event: %s", got)
	}
	write(t, in, "!stacktrace", "!traceoff")
	if in.Hit(four()[0]) != nil {
		t.Error("nothing is to be done behind the event")
	}
}

func TestHistogramsArePausedContinuedAndCleared(t *testing.T) {
	h, in, out := world()
	write(t, in, "hist:keys=name")
	hits := func(want int) {
		t.Helper()
		for _, one := range four() {
			hit(in, one)
		}
		if got := hist(t, in); !strings.Contains(got, fmt.Sprintf("Hits: %d\n", want)) {
			t.Errorf("want %d hits:\n%s", want, got)
		}
	}
	hits(4)
	write(t, in, "hist:keys=name:pause")
	hits(4)
	if !strings.Contains(in.String(), "[paused]") || !strings.Contains(hist(t, in), "[paused]") {
		t.Error("not shown as paused")
	}
	write(t, in, "hist:keys=name:continue")
	hits(8)
	write(t, in, "hist:keys=name:clear")
	hits(4)
	refused(t, in, "hist:keys=delta:clear", "TRIGGER_ENOENT_CLEAR", syscall.ENOENT)
	refused(t, in, "hist:keys=delta:cont", "TRIGGER_ENOENT_CLEAR", syscall.ENOENT)

	write(t, out, "disable_hist:sys:in if bytes_req == 3000")
	for _, one := range four() {
		hit(out, one)
	}
	hits(4)
	write(t, out, "!disable_hist:sys:in", "enable_hist:sys:in:1")
	hit(out, four()[0])
	hits(8)
	if got := h.told(); strings.Contains(got, "snapshot") {
		t.Errorf("asked %s", got)
	}
}
