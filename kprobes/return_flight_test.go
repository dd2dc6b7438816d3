package kprobes_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
)

// journal is a Kretprobe that writes down what it sees.
type journal struct {
	kprobes.Kretprobe
	entered, returned []uint64 // arguments, results
	pids              map[int]int
}

func keepJournal(symbol string) *journal {
	j := &journal{pids: map[int]int{}}
	j.KP.SymbolName = symbol
	j.EntryHandler = func(_ *kprobes.KretprobeInstance, r *kprobes.Regs) int {
		arg, _ := r.Arg(0)
		j.entered = append(j.entered, arg)
		return 0
	}
	j.Handler = func(_ *kprobes.KretprobeInstance, r *kprobes.Regs) int {
		j.returned = append(j.returned, r.ReturnValue())
		j.pids[r.PID()]++
		return 0
	}
	return j
}

// wantFlights checks the counts of a Kretprobe while it is registered.
func wantFlights(t testing.TB, s *kprobes.Session, rp *kprobes.Kretprobe, entries, returns, missed uint64, active int) {
	t.Helper()
	st := s.Status(&rp.KP)
	if st.Hits != entries || st.Returns != returns || st.ReturnsMissed != missed || st.Active != active {
		t.Errorf("%s: %d entries, %d returns, %d missed, %d active; want %d, %d, %d, %d", rp.KP.SymbolName,
			st.Hits, st.Returns, st.ReturnsMissed, st.Active, entries, returns, missed, active)
	}
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestDisabledInFlight (A51, C19): a disabled Kretprobe follows no new calls, and runs the
// Handler of those that it follows.
func TestDisabledInFlight(t *testing.T) {
	prog := start(t, "kret")
	s := attach(t, prog.PID(), kprobes.Options{})
	j := keepJournal("held")
	registerReturns(t, s, &j.Kretprobe)
	prog.Do("hold 10", "held")
	ok(t, s.DisableKretprobe(&j.Kretprobe))
	ok(t, s.DisableKretprobe(&j.Kretprobe)) // A48
	prog.Do("hold 20", "held")
	wantFlights(t, s, &j.Kretprobe, 1, 0, 0, 1)
	if got := prog.Do("let", "let"); got != "let 32" {
		t.Errorf("got %q", got)
	}
	wantFlights(t, s, &j.Kretprobe, 1, 1, 0, 0)
	ok(t, s.EnableKretprobe(&j.Kretprobe))
	prog.Do("hold 30", "held")
	prog.Do("let", "let")
	wantFlights(t, s, &j.Kretprobe, 2, 2, 0, 0)
	if got := fmt.Sprint(j.entered, j.returned); got != "[10 30] [11 31]" {
		t.Errorf("entries and returns %s", got)
	}
	closeSession(t, s)
	prog.CheckClean()
	wantRight(t, prog)
}

// TestUnregisteredInFlight (C18, C44): the calls return as if they had never been followed,
// also when the same Kretprobe is registered again meanwhile, or the session ends.
func TestUnregisteredInFlight(t *testing.T) {
	prog := start(t, "kret")
	s := attach(t, prog.PID(), kprobes.Options{})
	j, other := keepJournal("held"), keepJournal("held")
	registerReturns(t, s, &j.Kretprobe, &other.Kretprobe)
	prog.Do("hold 10", "held")
	prog.Do("hold 20", "held")
	ok(t, s.UnregisterKretprobe(&j.Kretprobe))
	j.KP.Addr, j.KP.Flags = 0, 0
	registerReturns(t, s, &j.Kretprobe)
	prog.Do("hold 30", "held")
	wantFlights(t, s, &j.Kretprobe, 1, 0, 0, 1)
	wantFlights(t, s, &other.Kretprobe, 3, 0, 0, 3)
	prog.Do("let", "let")
	wantFlights(t, s, &j.Kretprobe, 1, 1, 0, 0)
	wantFlights(t, s, &other.Kretprobe, 3, 3, 0, 0)
	if got := fmt.Sprint(j.entered, j.returned); got != "[10 20 30] [31]" {
		t.Errorf("entries and returns %s", got)
	}
	prog.Do("hold 40", "held")
	closeSession(t, s)
	prog.CheckClean()
	if got := prog.Do("let", "let"); got != "let 41" || other.Hits() != 3 {
		t.Errorf("got %q, %d returns", got, other.Hits())
	}
	wantRight(t, prog)
}

// TestCallsThatDoNotReturn count as missed (C6, C22, C27, C43): their thread exits, with the
// C library's unwinding or without, or jumps over them. The instance is free again.
func TestCallsThatDoNotReturn(t *testing.T) {
	const rounds = 5
	for _, c := range []struct {
		symbol, command  string
		entries, maxMiss uint64
	}{
		{"leaving", "leave 3", 1, 1},
		{"vanishing", "raw 3", 1, 1},
		{"deep", "jump 10", 30, 30},
	} {
		t.Run(c.symbol, func(t *testing.T) {
			prog := start(t, "kret")
			s := attach(t, prog.PID(), kprobes.Options{})
			j := keepJournal(c.symbol)
			j.MaxActive = 3
			registerReturns(t, s, &j.Kretprobe)
			for range rounds {
				prog.Do(c.command, "left")
			}
			st := s.Status(&j.KP)
			if st.Hits != rounds*c.entries || st.Returns != 0 || st.ReturnsMissed+uint64(st.Active) != rounds*c.entries {
				t.Errorf("%d entries, %d returns, %d missed, %d active", st.Hits, st.Returns, st.ReturnsMissed, st.Active)
			}
			if len(j.entered) != int(st.Hits) {
				t.Errorf("%d of %d calls were followed", len(j.entered), st.Hits)
			}
			if c.symbol != "deep" {
				wantFlights(t, s, &j.Kretprobe, rounds, 0, rounds, 0)
			}
			closeSession(t, s)
			prog.CheckClean()
			wantRight(t, prog)
		})
	}
}

// TestForksInFollowedCalls (C28): the call returns in the child as well, followed there if the
// child is; so does that of a vfork's parent; and one that executes another program is missed.
func TestForksInFollowedCalls(t *testing.T) {
	for _, follow := range []bool{false, true} {
		t.Run(fmt.Sprintf("Follow=%v", follow), func(t *testing.T) {
			prog := start(t, "kret")
			s := attach(t, prog.PID(), kprobes.Options{Follow: follow})
			fork, vfork, exec := keepJournal("forking"), keepJournal("vforking"), keepJournal("executing")
			twice := keepJournal("vfork") // the C library's, which returns in the child first
			registerReturns(t, s, &fork.Kretprobe, &vfork.Kretprobe, &exec.Kretprobe, &twice.Kretprobe)
			if got := prog.Do("fork 9", "parent"); got != "parent 1 child 11" {
				t.Errorf("got %q", got)
			}
			if got := prog.Do("vfork 9", "parent"); got != "parent 3" {
				t.Errorf("got %q", got)
			}
			if twice.KP.Hits() != 1 || twice.pids[prog.PID()] != 1 || len(twice.pids) != 2 || twice.returned[0] != 0 {
				t.Errorf("vfork: %d entries, returns %v in processes %v", twice.KP.Hits(), twice.returned, twice.pids)
			}
			prog.Do("exec", "again")
			wantForked(t, prog.PID(), follow, fork, vfork)
			if exec.Hits() != 0 || exec.NMissed() != 1 || exec.KP.Hits() != 1 {
				t.Errorf("exec: %d entries, %d returns, %d missed", exec.KP.Hits(), exec.Hits(), exec.NMissed())
			}
			if got := prog.Do("fork 4", "parent"); got != "parent 1 child 6" {
				t.Errorf("after exec: %q", got)
			}
			if want := 1 + 3*b2i(follow); len(fork.returned) != want {
				t.Errorf("%d returns of both programs, want %d", len(fork.returned), want)
			}
			closeSession(t, s)
			prog.CheckClean()
			wantRight(t, prog)
		})
	}
}

// wantForked: one call each of fork and vfork was followed, and returned.
func wantForked(t *testing.T, pid int, follow bool, fork, vfork *journal) {
	t.Helper()
	if fork.pids[pid] != 1 || len(fork.pids) != 1+b2i(follow) || len(fork.returned) != 1+b2i(follow) {
		t.Errorf("fork: returns %v in processes %v", fork.returned, fork.pids)
	}
	if fork.NMissed() != 0 || fork.KP.Hits() != 1 {
		t.Errorf("fork: %d entries, %d missed", fork.KP.Hits(), fork.NMissed())
	}
	if got := fmt.Sprint(vfork.returned); got != "[3]" || vfork.pids[pid] != 1 || vfork.NMissed() != 0 {
		t.Errorf("vfork: returns %s in processes %v, %d missed", got, vfork.pids, vfork.NMissed())
	}
}

// TestUnfollowableReturns (C2, C38): code that is made at run time may change or move at any
// time, so no breakpoint is placed there. The call is missed, as if there were no instance,
// and the session says so once.
func TestUnfollowableReturns(t *testing.T) {
	prog := start(t, "kret")
	var warned []string
	s := attach(t, prog.PID(), kprobes.Options{Log: testprog.ButUprobes(func(m string) { warned = append(warned, m) })})
	third, err := s.Symbols().Resolve(t.Context(), "third")
	if err != nil {
		t.Fatal(err)
	}
	j := keepJournal("")
	j.KP.Addr = third[0].Addr // the warning has the name all the same
	registerReturns(t, s, &j.Kretprobe)
	for range 3 {
		if got := prog.Do("page 30", "ret"); got != "ret 10" {
			t.Errorf("got %q", got)
		}
	}
	wantFlights(t, s, &j.Kretprobe, 3, 0, 3, 0)
	if len(j.entered) != 0 {
		t.Errorf("%d EntryHandlers ran", len(j.entered))
	}
	if len(warned) != 1 || !strings.Contains(warned[0], "third") {
		t.Errorf("warnings: %q", warned)
	}
	closeSession(t, s)
	prog.CheckClean()
	wantRight(t, prog)
}
