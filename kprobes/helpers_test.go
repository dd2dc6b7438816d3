package kprobes_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
)

// attach takes hold of a fixture until the test ends, and has every warning of the
// session fail the test.
func attach(t testing.TB, pid int, opts kprobes.Options) *kprobes.Session {
	t.Helper()
	if opts.Log == nil {
		opts.Log = testprog.NoWarnings(t)
	}
	s, err := kprobes.Attach(context.Background(), pid, opts)
	if err != nil {
		t.Fatalf("attach: %v", err)
	}
	t.Cleanup(func() { closeSession(t, s) })
	return s
}

// sessionWith probes a function of a fixture. Warnings are the session's own matter.
func sessionWith(t testing.TB, prog *testprog.Prog, function string, opts kprobes.Options) (*kprobes.Session, *kprobes.Kprobe) {
	t.Helper()
	if opts.Log == nil {
		opts.Log = func(m string) { t.Logf("session warns: %s", m) }
	}
	s := attach(t, prog.PID(), opts)
	kp := &kprobes.Kprobe{SymbolName: function}
	register(t, s, kp)
	s.WaitForOptimizer(t.Context())
	return s, kp
}

func closeSession(t testing.TB, s *kprobes.Session) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
}

// mode is how a copied instruction is run.
type mode string

const (
	boosted mode = "boosted"
	stepped mode = "stepped"
)

var modes = []mode{boosted, stepped}

// probe makes a counting probe; a PostHandler forces stepping.
func (m mode) probe(symbol string) *kprobes.Kprobe {
	kp := &kprobes.Kprobe{SymbolName: symbol, PreHandler: func(*kprobes.Kprobe, *kprobes.Regs) int { return 0 }}
	if m == stepped {
		kp.PostHandler = func(*kprobes.Kprobe, *kprobes.Regs, uint64) {}
	}
	return kp
}

func register(t testing.TB, s *kprobes.Session, kps ...*kprobes.Kprobe) {
	t.Helper()
	if err := s.RegisterKprobes(t.Context(), kps); err != nil {
		t.Fatalf("register: %v", err)
	}
}

func wantHits(t testing.TB, kp *kprobes.Kprobe, want uint64) {
	t.Helper()
	if got := kp.Hits(); got != want {
		t.Errorf("%s: %d hits, want %d", kp.SymbolName, got, want)
	}
}

// wantHitsAgain has a fixture do what comes to kp until a hit is seen.
func wantHitsAgain(t testing.TB, prog *testprog.Prog, kp *kprobes.Kprobe, command, answer string) {
	t.Helper()
	for before := kp.Hits(); kp.Hits() == before; {
		prog.Do(command, answer)
	}
}

// number reads the word after name in a line of "name value" pairs.
func number(t testing.TB, line, name string) uint64 {
	t.Helper()
	words := strings.Fields(line)
	for i := 0; i+1 < len(words); i++ {
		if words[i] == name {
			var v uint64
			if _, err := fmt.Sscan(words[i+1], &v); err == nil {
				return v
			}
		}
	}
	t.Fatalf("no number after %q in %q", name, line)
	return 0
}

func start(t testing.TB, name string, args ...string) *testprog.Prog {
	t.Helper()
	return testprog.Start(t, testprog.Build(t, name), args...)
}

func wantRight(t testing.TB, p *testprog.Prog) {
	t.Helper()
	if got := p.Quit(); got != "right" {
		t.Errorf("the program says %q, want right", got)
	}
}
