package returns

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/internal/testsize"
	"github.com/gokprobe/gokprobe/kprobes"
)

// moments is how many operations hit a program at work.
func moments() int { return testsize.Rounds(5, 25, 100) }

// siege is a program at work, and what is done to it.
type siege struct {
	t       *testing.T
	pid     int
	program program
	playing playing
	rng     *rand.Rand
	session *kprobes.Session
	opts    kprobes.Options
	returns kprobes.Returns
	make    func(*testing.T, int, program, playing) *follower
	f       *follower
	on      []bool // by probe: registered and enabled
}

// TestAnyMoment: probes are disabled, unregistered and registered again, and the session is
// closed and attached again, at any moment of calls that come and go. The results stay, and
// so does the text.
func TestAnyMoment(t *testing.T) { anyMoment(t, kprobes.ReturnSites, newFollower) }

// TestAnyMomentRewritten: the same where return addresses are replaced.
func TestAnyMomentRewritten(t *testing.T) { anyMoment(t, kprobes.ReturnRewrite, newFollower) }

func anyMoment(t *testing.T, returns kprobes.Returns, make func(*testing.T, int, program, playing) *follower) {
	t.Helper()
	eachCase(t, func(t *testing.T, p program, c playing) {
		prog := p.start(t)
		prog.Do("loop "+c.name, "looping")
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		s := &siege{t: t, pid: prog.PID(), program: p, playing: c, rng: rand.New(rand.NewPCG(seed, 0)), returns: returns, make: make}
		s.begin(kprobes.Options{})
		for range moments() {
			s.operate()
		}
		s.end()
		prog.CheckClean()

		s.begin(kprobes.Options{})
		for range 5 {
			s.toggle()
		}
		prog.Do("stop", "looped")
		if last := prog.Quit(); last != "right" && !strings.HasPrefix(last, "last") {
			t.Errorf("it ends with %q", last)
		}
		closeSession(t, s.session)
		s.f.wantDurations()
		for _, rp := range s.f.probes {
			if rp.KP.Hits() != rp.Hits()+rp.NMissed() || rp.KP.NMissed() != 0 {
				t.Errorf("%s: %d entries are not %d returns and %d missed (%d unseen)",
					rp.KP.SymbolName, rp.KP.Hits(), rp.Hits(), rp.NMissed(), rp.KP.NMissed())
			}
		}
	})
}

// begin attaches and follows all functions.
func (s *siege) begin(opts kprobes.Options) {
	s.t.Helper()
	opts.Returns = s.returns
	s.opts = opts
	s.session = attach(s.t, s.pid, s.playing, opts)
	s.f = s.make(s.t, s.pid, s.program, s.playing)
	s.f.strict = false // calls are in flight already
	register(s.t, s.session, s.f)
	s.on = make([]bool, len(s.f.probes))
	for i := range s.on {
		s.on[i] = true
	}
}

// end lets the program go. Calls in flight are nobody's then; those that a followed child was
// forked in return twice.
func (s *siege) end() {
	s.t.Helper()
	closeSession(s.t, s.session)
	for _, rp := range s.f.probes {
		if !s.opts.Follow && rp.KP.Hits() < rp.Hits()+rp.NMissed() {
			s.t.Errorf("%s: %d entries, but %d returns and %d missed", rp.KP.SymbolName, rp.KP.Hits(), rp.Hits(), rp.NMissed())
		}
	}
}

func (s *siege) operate() {
	s.t.Helper()
	switch s.rng.IntN(7) {
	case 0:
		s.end()
		s.begin(kprobes.Options{Follow: s.rng.IntN(2) == 0, NoBoost: s.rng.IntN(4) == 0})
	case 1, 2:
		s.renew()
	case 3, 4:
		s.toggle()
	case 5:
		s.follow(1 + s.rng.Uint64N(50))
	case 6:
		s.session.WaitForOptimizer(context.Background())
	}
}

// renew unregisters and registers some probes.
func (s *siege) renew() {
	s.t.Helper()
	var some []*kprobes.Kretprobe
	for i, rp := range s.f.probes {
		if s.rng.IntN(2) == 0 {
			some = append(some, rp)
			s.on[i] = true
		}
	}
	err := s.session.UnregisterKretprobes(some)
	for _, rp := range some {
		rp.KP.Addr, rp.KP.Flags = 0, 0
	}
	if len(some) > 0 {
		err = errors.Join(err, s.session.RegisterKretprobes(context.Background(), some))
	}
	if err != nil {
		s.t.Errorf("renewing: %v", err)
	}
}

// toggle disables or enables one probe.
func (s *siege) toggle() {
	s.t.Helper()
	i := s.rng.IntN(len(s.on))
	change := s.session.EnableKretprobe
	if s.on[i] {
		change = s.session.DisableKretprobe
	}
	s.on[i] = !s.on[i]
	if err := change(s.f.probes[i]); err != nil {
		s.t.Errorf("toggling: %v", err)
	}
}

// follow waits for some more calls. Not all functions have their EntryHandlers run.
func (s *siege) follow(n uint64) {
	switch {
	case slices.ContainsFunc(s.f.probes, func(rp *kprobes.Kretprobe) bool { return rp.EntryHandler == nil }):
		s.session.WaitForOptimizer(context.Background())
	case !slices.Contains(s.on, false):
		s.f.await(n)
	}
}
