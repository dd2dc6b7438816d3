package realprog

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/inject"
	"github.com/gokprobe/gokprobe/inject/fault"
	"github.com/gokprobe/gokprobe/kprobes"
)

// failing has calls fail as r says until stop is called, which tells how many have.
func failing(t testing.TB, s *kprobes.Session, r inject.Rule) (stop func() inject.Stats) {
	t.Helper()
	in := inject.New(s, inject.Options{Log: func(m string) { t.Logf("inject warns: %s", m) }})
	f, err := in.Add(t.Context(), r)
	if err != nil {
		t.Fatalf("inject: %v", err)
	}
	return func() inject.Stats {
		t.Helper()
		if err := in.Close(); err != nil {
			t.Errorf("inject: %v", err)
		}
		st := f.Stats()
		t.Logf("%+v", st)
		return st
	}
}

// sometimes is the share p of all calls, the same each time.
func sometimes(p float64) fault.Attr {
	a := fault.Always()
	a.Probability, a.Seed = p, 7
	return a
}

// every is each nth call.
func every(n uint64) fault.Attr {
	a := fault.Always()
	a.Interval = n
	return a
}

// failsWith has a call fail as its type says, -1 for a number, with errno, and without its body.
func failsWith(errno unix.Errno) []inject.Action {
	return []inject.Action{inject.Return{Errno: errno, Fails: true}}
}

// delays has a call take d more.
func delays(d time.Duration) []inject.Action { return []inject.Action{inject.Delay{D: d}} }

// closeSession ends s, before the test does.
func closeSession(t testing.TB, s *kprobes.Session) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
}
