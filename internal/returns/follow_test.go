package returns

import (
	"context"
	"encoding/binary"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
)

// follower follows all calls of a case's functions. Its handlers run on one thread.
type follower struct {
	t      *testing.T
	pid    int
	probes []*kprobes.Kretprobe
	strict bool
	inside []uint64 // numbers of the calls in flight, if they must nest
	calls  uint64
	faults int

	mu    sync.Mutex
	left  uint64 // calls that are waited for
	there chan struct{}
}

// newFollower makes return probes for the functions of c. The case's limit is on the calls
// in flight over all functions together, so it will do for each.
func newFollower(t *testing.T, pid int, p program, c playing) *follower {
	t.Helper()
	f := &follower{t: t, pid: pid, strict: c.strict}
	limit := c.maxActive
	if limit == 0 {
		limit = 100
	}
	for _, n := range p.counts(t, c) {
		rp := &kprobes.Kretprobe{MaxActive: limit, DataSize: 24, EntryHandler: f.entered, Handler: f.returned}
		rp.KP.SymbolName = n.function
		f.probes = append(f.probes, rp)
	}
	return f
}

func (f *follower) errorf(format string, args ...any) {
	if f.faults++; f.faults <= 10 {
		f.t.Errorf(format, args...)
	}
}

// entered notes what the return must agree with: the return address, where it is on the
// stack, and which call this is.
func (f *follower) entered(ri *kprobes.KretprobeInstance, regs *kprobes.Regs) int {
	f.calls++
	f.arrived()
	if ri.RetAddr != 0 {
		f.errorf("a return address of %v at the entry", ri.RetAddr)
	}
	frames := f.backtrace(ri, regs)
	if len(frames) > 1 {
		binary.LittleEndian.PutUint64(ri.Data, uint64(frames[1]))
	} else {
		binary.LittleEndian.PutUint64(ri.Data, 0)
	}
	binary.LittleEndian.PutUint64(ri.Data[8:], uint64(regs.SP()))
	binary.LittleEndian.PutUint64(ri.Data[16:], f.calls)
	if f.strict {
		f.inside = append(f.inside, f.calls)
	}
	return 0
}

// await waits for n more calls.
func (f *follower) await(n uint64) {
	there := make(chan struct{})
	f.mu.Lock()
	f.left, f.there = n, there
	f.mu.Unlock()
	<-there
}

func (f *follower) arrived() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.left == 0 {
		return
	}
	if f.left--; f.left == 0 {
		close(f.there)
	}
}

func (f *follower) returned(ri *kprobes.KretprobeInstance, regs *kprobes.Regs) int {
	want := arch.Addr(binary.LittleEndian.Uint64(ri.Data))
	if ri.RetAddr != regs.IP() || want != 0 && ri.RetAddr != want {
		f.errorf("%s returns to %v, IP is %v, the unwinder said %v", ri.Kretprobe().KP.SymbolName, ri.RetAddr, regs.IP(), want)
	}
	f.backtrace(ri, regs)
	number := binary.LittleEndian.Uint64(ri.Data[16:])
	if f.strict {
		if n := len(f.inside); n == 0 || f.inside[n-1] != number {
			f.errorf("call %d returns, in flight are %v", number, f.inside)
		} else {
			f.inside = f.inside[:n-1]
		}
	}
	return 0
}

// backtrace unwinds the stack, which must not lead through our memory, and returns the
// addresses. It takes long, so only some calls are looked at.
func (f *follower) backtrace(ri *kprobes.KretprobeInstance, regs *kprobes.Regs) []arch.Addr {
	if f.calls > 20 && f.calls%97 != 0 {
		return nil
	}
	maps, err := procfs.Maps(f.pid)
	if err != nil {
		f.errorf("%v", err)
	}
	var at []arch.Addr
	for _, frame := range regs.Backtrace(8) {
		at = append(at, frame.Addr)
		i := slices.IndexFunc(maps, func(m procfs.Mapping) bool { return m.Range.Contains(frame.Addr) })
		if i >= 0 && maps[i].Path == "/memfd:gokprobe" {
			f.errorf("%v is in a backtrace at %s", frame.Addr, ri.Kretprobe().KP.SymbolName)
		}
	}
	return at
}

// attach takes hold of a process until the test ends. A warning fails the test unless the
// case may have it.
func attach(t *testing.T, pid int, c playing, opts kprobes.Options) *kprobes.Session {
	t.Helper()
	opts.Log = func(m string) {
		if c.warns == "" || !strings.Contains(m, c.warns) {
			t.Errorf("session warns: %s", m)
		}
	}
	s, err := kprobes.Attach(context.Background(), pid, opts)
	if err != nil {
		t.Fatalf("attach: %v", err)
	}
	t.Cleanup(func() { closeSession(t, s) })
	return s
}

func closeSession(t testing.TB, s *kprobes.Session) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
}

func register(t testing.TB, s *kprobes.Session, f *follower) {
	t.Helper()
	if err := s.RegisterKretprobes(t.Context(), f.probes); err != nil {
		t.Fatalf("register: %v", err)
	}
}

// TestFollowedCalls: with every call followed the results are those of an unprobed run, and
// every call is a return or missed, as many as there must be.
func TestFollowedCalls(t *testing.T) { followedCalls(t, kprobes.Options{}) }

// TestRewrittenCalls: the same where return addresses are replaced.
func TestRewrittenCalls(t *testing.T) {
	followedCalls(t, kprobes.Options{Returns: kprobes.ReturnRewrite})
}

// TestChosenCalls: the same where each call is followed as it can be.
func TestChosenCalls(t *testing.T) { followedCalls(t, kprobes.Options{Returns: kprobes.ReturnAuto}) }

func followedCalls(t *testing.T, opts kprobes.Options) {
	t.Helper()
	const rounds = 3
	eachCase(t, func(t *testing.T, p program, c playing) {
		prog := p.start(t)
		want := play(prog, c, rounds)
		s := attach(t, prog.PID(), c, opts)
		f := newFollower(t, prog.PID(), p, c)
		register(t, s, f)
		for range 2 {
			if got := play(prog, c, rounds); got != want {
				t.Errorf("followed it says %q, unprobed %q", got, want)
			}
		}
		if last := prog.Quit(); last != "right" && !strings.HasPrefix(last, "last") {
			t.Errorf("it ends with %q", last)
		}
		closeSession(t, s)
		f.wantCounts(p, c, 2*rounds)
	})
}

// wantCounts checks what has become of the calls of so many rounds.
func (f *follower) wantCounts(p program, c playing, rounds uint64) {
	f.t.Helper()
	for i, n := range p.counts(f.t, c) {
		rp := f.probes[i]
		calls, missing := rounds*n.calls, rounds*n.missing
		if rp.KP.Hits() != calls || rp.Hits() != calls-missing || rp.NMissed() != missing || rp.KP.NMissed() != 0 {
			f.t.Errorf("%s: %d entries, %d returns, %d missed, %d unseen; want %d, %d, %d, 0",
				n.function, rp.KP.Hits(), rp.Hits(), rp.NMissed(), rp.KP.NMissed(), calls, calls-missing, missing)
		}
	}
}

// endings are programs that end inside followed calls.
var endings = []struct {
	program program
	playing
	says string // before the end
	exit testprog.Exit
}{
	{program{fixture: "ends"}, playing{name: "exit", calls: "xi_outer 1 1, xi_inner 1 1, xi_last 1"}, "last 2", testprog.Exit{Status: 7}},
	{program{fixture: "ends"}, playing{name: "abort", calls: "xi_outer 1 1, xi_inner 1 1"}, "", testprog.Exit{Signal: unix.SIGABRT}},
	{program{fixture: "throws"}, playing{name: "uncaught", calls: "te_outer 1 1, te_inner 1 1"}, "terminate", testprog.Exit{Status: 6}},
	{program{fixture: "gounwind", prefix: "main."}, playing{name: "exitdefer", calls: "exOuter 1 1, exInner 1 1"}, "", testprog.Exit{Status: 7}},
	{program{fixture: "gounwind", prefix: "main."}, playing{name: "crash", calls: "crOuter 1 1, crInner 1 1"}, "panic: runtime error: index", testprog.Exit{Status: 2}},
}

// TestEndInsideCalls: the program ends as it does unprobed, the calls that it was in are
// missed, and a traceback names the functions.
func TestEndInsideCalls(t *testing.T) { endInsideCalls(t, kprobes.Options{}) }

// TestEndInsideRewrittenCalls: the same where return addresses are replaced.
func TestEndInsideRewrittenCalls(t *testing.T) {
	endInsideCalls(t, kprobes.Options{Returns: kprobes.ReturnRewrite})
}

func endInsideCalls(t *testing.T, opts kprobes.Options) {
	t.Helper()
	for _, e := range endings {
		t.Run(e.program.fixture+"/"+e.name, func(t *testing.T) {
			prog := e.program.start(t)
			s := attach(t, prog.PID(), e.playing, opts)
			f := newFollower(t, prog.PID(), e.program, e.playing)
			register(t, s, f)
			prog.Send("run " + e.name + " 1")
			if e.says != "" {
				prog.Expect(e.says)
			}
			if e.name == "crash" {
				for _, function := range []string{"main.crInner(", "main.crOuter(", "main.crashRound(", "main.main("} {
					prog.Expect(function)
				}
			}
			if got := prog.Wait(); got != e.exit {
				t.Errorf("it ended with %+v, want %+v", got, e.exit)
			}
			closeSession(t, s)
			f.wantCounts(e.program, e.playing, 1)
		})
	}
}
