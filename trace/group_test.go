package trace_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/symbols"
	"github.com/gokprobe/gokprobe/trace"
)

// herd is processes of one program, and a group that the first of them are in.
type herd struct {
	t     *testing.T
	progs []*testprog.Prog
	group trace.Group
}

func newHerd(t *testing.T, all, members int) *herd {
	h := &herd{t: t}
	for i := range all {
		h.progs = append(h.progs, prey(t))
		if i < members {
			h.join(i)
		}
	}
	return h
}

func (h *herd) join(i int) {
	h.t.Helper()
	if err := h.add(i); err != nil {
		h.t.Fatal(err)
	}
}

func (h *herd) add(i int) error {
	s, err := trace.Attach(context.Background(), h.progs[i].PID())
	if err != nil {
		h.t.Fatal(err)
	}
	if err = h.group.Add(context.Background(), s); err != nil {
		err = errors.Join(err, s.Close())
	}
	return err
}

func (h *herd) probe(spec string, wants ...trace.Want) *trace.GroupProbe {
	h.t.Helper()
	p, err := h.group.Probe(context.Background(), []string{spec}, wants...)
	if err != nil {
		h.t.Fatal(err)
	}
	return p
}

func (h *herd) call(i int, what string) {
	h.t.Helper()
	h.progs[i].Do("call "+what, "ret")
}

// end closes the group. All programs that run are as they were.
func (h *herd) end() {
	h.t.Helper()
	if err := h.group.Close(); err != nil {
		h.t.Error(err)
	}
	for _, p := range h.progs {
		p.CheckClean()
		p.Do("call foo 4", "ret 9")
	}
}

// TestProcessesAreProbedAlike, those that join later as well, and are counted together and by process.
func TestProcessesAreProbedAlike(t *testing.T) {
	h := newHerd(t, 3, 2)
	p := h.probe("foo", trace.Args())
	counted := h.probe("foo", trace.Count())
	want := map[int][]string{}
	for i := range 3 {
		if i == 2 {
			h.call(i, "foo 99") // nobody sees that
			h.join(i)
		}
		for n := range i + 1 {
			h.call(i, fmt.Sprintf("foo %d", n))
			pid := h.progs[i].PID()
			want[pid] = append(want[pid], fmt.Sprintf("foo(v=%d)", n))
		}
	}
	if got := h.group.Sessions(); len(got) != 3 {
		t.Errorf("%d sessions, want 3", len(got))
	}
	h.end()
	got, n := map[int][]string{}, 0
	for hit := range p.Hits() {
		got[hit.PID] = append(got[hit.PID], hit.String())
		n++
	}
	for pid, hits := range want {
		if !slices.Equal(got[pid], hits) {
			t.Errorf("process %d: %q, want %q", pid, got[pid], hits)
		}
	}
	if n != 6 {
		t.Errorf("%d hits, want 6", n)
	}
	for _, p := range []*trace.GroupProbe{p, counted} {
		if st := p.Stats(); st.Hits != 6 || len(st.Places) != 1 || st.Places[0].Hits != 6 || st.Lost+st.Missed != 0 {
			t.Errorf("stats %+v, want 6 hits of one place", st)
		}
		for i, ps := range p.ByProcess() {
			if ps.PID != h.progs[i].PID() || ps.Comm != "prey" || ps.Hits != uint64(i+1) {
				t.Errorf("process %d: %+v, want %d hits", i, ps, i+1)
			}
		}
	}
	if err := h.group.Add(context.Background(), nil); err == nil {
		t.Error("a closed group takes a process in")
	}
}

// TestALimitIsForAllProcessesTogether, and is exact.
func TestALimitIsForAllProcessesTogether(t *testing.T) {
	h := newHerd(t, 2, 2)
	p := h.probe("foo%return", trace.Limit(5))
	for range 4 {
		h.call(0, "foo 1")
		h.call(1, "foo 2")
	}
	<-p.Full()
	var n int
	for range p.Hits() { // ends by itself
		n++
	}
	if st := p.Stats(); n != 5 || st.Hits != 5 {
		t.Errorf("%d hits and %+v, want 5", n, st)
	}
	h.end()
}

// TestAGroupProbesInAllProcessesOrInNone: one that has no such place leaves the others as they were, and does not join.
func TestAGroupProbesInAllProcessesOrInNone(t *testing.T) {
	h := newHerd(t, 1, 1)
	h.progs = append(h.progs, testprog.Start(t, testprog.Build(t, "threads"), "1"))
	if _, err := h.group.Probe(context.Background(), []string{"sum6", "nothing"}); !errors.Is(err, symbols.ErrUnknownSymbol) {
		t.Errorf("an unknown place gives %v", err)
	}
	h.probe("sum6")
	if err := h.add(1); !errors.Is(err, symbols.ErrUnknownSymbol) {
		t.Errorf("a process without the place gives %v", err)
	}
	if n := len(h.group.Sessions()); n != 1 {
		t.Errorf("%d processes are in the group, want 1", n)
	}
	h.progs[1].CheckClean()
	h.progs = h.progs[:1]
	h.end()
}

// TestWhatHasEndedIsCounted: its hits, and its places that nobody came to.
func TestWhatHasEndedIsCounted(t *testing.T) {
	h := newHerd(t, 2, 2)
	p := h.probe("foo", trace.Also("sum6"), trace.Count())
	h.call(0, "foo 1")
	h.call(0, "foo 1")
	h.call(1, "foo 1")
	h.progs[0].Quit()
	h.progs = h.progs[1:]
	testprog.Await(t, "one process", func() bool { return len(h.group.Sessions()) == 1 })
	all := p.ByProcess()
	if len(all) != 2 || all[0].Hits != 2 || len(all[0].Places) != 1 || all[1].Hits != 1 || len(all[1].Places) != 2 {
		t.Errorf("by process: %+v", all)
	}
	st := p.Stats()
	if st.Hits != 3 || len(st.Places) != 2 || st.Places[0].Hits != 3 || st.Places[1].Hits != 0 {
		t.Errorf("together: %+v", st)
	}
	h.end()
}

// TestCallsThatEndWithTheirProcessAreMissed: they are not in flight any more, whenever they were seen last.
func TestCallsThatEndWithTheirProcessAreMissed(t *testing.T) {
	prog := testprog.Start(t, testprog.Build(t, "kret"))
	s, err := trace.Attach(context.Background(), prog.PID())
	if err != nil {
		t.Fatal(err)
	}
	p, err := s.Probe("held%return", trace.Count())
	if err != nil {
		t.Fatal(err)
	}
	for n := range 3 {
		prog.Do(fmt.Sprint("hold ", n), "held")
	}
	if at := p.Stats().Places[0]; at.Active != 3 || at.Missed != 0 {
		t.Errorf("in flight: %+v", at)
	}
	prog.Kill()
	<-s.Done()
	for range 2 { // also of a session that is closed
		if at := p.Stats().Places[0]; at.Active != 0 || at.Missed != 3 {
			t.Errorf("at the end: %+v", at)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}
