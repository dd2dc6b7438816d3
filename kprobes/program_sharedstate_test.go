package kprobes_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/program"
)

// TestProbesThatShareAStateCountAsOne: in the target and in the tracer, in the program and in a library far away that comes and goes, over
// registrations.
func TestProbesThatShareAStateCountAsOne(t *testing.T) {
	const n, seed, rounds = 3, 41, 6
	prog, s, warned := glibc.loading(t, kprobes.Options{})
	lib := glibc.lib(t, "libplug.so")
	shared := &kprobes.SharedState{}
	var got []uint64
	var hits uint64
	var kps []*kprobes.Kprobe
	for _, name := range []string{"measure", "libplug.so:plugged"} {
		kp := deciding(t, name, oneOf(n, seed), func(kp *kprobes.Kprobe, _ *kprobes.Regs) int {
			got = append(got, kp.State(0)-1)
			return 0
		})
		kp.SharedState = shared
		kps = append(kps, kp)
	}
	register(t, s, kps...)
	for i := range uint64(rounds) {
		prog.Do(fmt.Sprintf("open %d %s", i, lib), "did")
		ok(t, s.SetOptimization(i%3 != 2))
		s.WaitForOptimizer(t.Context())
		prog.Do(fmt.Sprintf("call %d plugged 10", i), "did")
		if own := kps[0]; i%2 == 0 {
			hits += own.Hits()
			ok(t, s.UnregisterKprobe(own))
			own.Addr, own.Flags = 0, 0
			register(t, s, own)
		}
		prog.Do(fmt.Sprintf("close %d", i), "did")
	}
	hits += kps[0].Hits() + kps[1].Hits()
	all := shared.Cell(0)
	if want := chosenOf(all, n, seed); !slices.Equal(got, want) {
		t.Errorf("chosen %v, want %v", got, want)
	}
	if kps[1].Hits() != 10*rounds || hits != 15*rounds || all != hits || shared.Cell(1) != 0 {
		t.Errorf("%d hits, %d of them in the library, %d counted", hits, kps[1].Hits(), all)
	}
	*warned = nil // that one waits
	closeSession(t, s)
	if shared.Cell(0) != all {
		t.Errorf("%d counted, before the end %d", shared.Cell(0), all)
	}
	prog.CheckClean()
	wantRight(t, prog)
}

// TestAStateHasTheCellsOfTheFirstProgram: one that uses more is refused.
func TestAStateHasTheCellsOfTheFirstProgram(t *testing.T) {
	prog := start(t, "threads", "1")
	s := attach(t, prog.PID(), kprobes.Options{})
	shared := &kprobes.SharedState{}
	never := program.Compare(program.Sequence(2), program.Equal, program.Const(-1))
	first := deciding(t, "foo", oneOf(3, 1), counted(new(uint64)))
	second := deciding(t, "foo", never, counted(new(uint64)))
	first.SharedState, second.SharedState = shared, shared
	register(t, s, first)
	if err := s.RegisterKprobe(second); err == nil || !strings.Contains(err.Error(), "as many cells as that of the first of them: 1, not 3") {
		t.Error(err)
	}
	closeSession(t, s)
	prog.CheckClean()
}
