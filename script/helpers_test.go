package script

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/gokprobe/gokprobe/inject"
	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/symbols"
)

// write stores a scenario and returns its file. Lines of the text may be indented alike.
func write(t testing.TB, name, src string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(outdent(src)), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// outdent takes away the white space that all lines but the first begin with.
func outdent(src string) string {
	src = strings.TrimPrefix(src, "\n")
	indent := src[:len(src)-len(strings.TrimLeft(src, "\t"))]
	lines := strings.Split(src, "\n")
	for i, l := range lines {
		lines[i] = strings.ReplaceAll(strings.TrimPrefix(l, indent), "\t", "    ")
	}
	return strings.Join(lines, "\n")
}

// said is what a scenario has told. It is read when the scenario is over, or by get.
type said struct {
	mu       sync.Mutex
	printed  []string
	logged   []string
	entries  []Entry
	problems []*Error
	injected []inject.Event
}

func (s *said) options() Options {
	return Options{
		Print:    func(text string) { s.mu.Lock(); defer s.mu.Unlock(); s.printed = append(s.printed, text) },
		Log:      func(text string) { s.mu.Lock(); defer s.mu.Unlock(); s.logged = append(s.logged, text) },
		Report:   func(e Entry) { s.mu.Lock(); defer s.mu.Unlock(); s.entries = append(s.entries, e) },
		Problem:  func(e *Error) { s.mu.Lock(); defer s.mu.Unlock(); s.problems = append(s.problems, e) },
		Injected: func(e inject.Event) { s.mu.Lock(); defer s.mu.Unlock(); s.injected = append(s.injected, e) },
	}
}

func (s *said) prints() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.printed...)
}

// live is a fixture under a scenario.
type live struct {
	*testprog.Prog
	said
	t    *testing.T
	s    *kprobes.Session
	sc   *Script
	done chan struct{} // closed when Run has returned
	end  context.CancelFunc
}

// attach takes hold of a fixture.
func attach(t *testing.T, fixture string, o kprobes.Options) *live {
	t.Helper()
	l := &live{t: t, Prog: testprog.Start(t, testprog.Build(t, fixture))}
	o.Log = func(m string) { t.Errorf("the session warns: %s", m) }
	var err error
	if l.s, err = kprobes.Attach(context.Background(), l.PID(), o); err != nil {
		t.Fatal(err)
	}
	return l
}

// run begins a scenario. Its end is that of the test, at the latest.
func (l *live) run(src string, change ...func(*Options)) *live {
	l.t.Helper()
	o := l.options()
	o.Session, o.Seed = l.s, 1
	for _, c := range change {
		c(&o)
	}
	var err error
	if l.sc, err = Load(write(l.t, "scenario.star", src), o); err != nil {
		l.t.Fatal(err)
	}
	if err := l.sc.Arm(); err != nil {
		l.t.Fatal(err)
	}
	ctx, end := context.WithCancel(context.Background())
	l.done, l.end = make(chan struct{}), end
	go func() {
		defer close(l.done)
		l.sc.Run(ctx)
	}()
	return l
}

// finish ends the scenario and checks that the program was left as it was found.
func (l *live) finish() Result {
	l.t.Helper()
	l.end()
	<-l.done
	l.close()
	r := l.sc.Finish(Ending{})
	if got := l.Quit(); got != "right" {
		l.t.Errorf("the program says %q", got)
	}
	return r
}

func (l *live) close() {
	l.t.Helper()
	if l.sc != nil {
		if err := l.sc.Disarm(); err != nil {
			l.t.Error(err)
		}
	}
	if err := l.s.Close(); err != nil {
		l.t.Error(err)
	}
	l.CheckClean()
}

// passes is finish for a scenario that is its own judge.
func (l *live) passes() Result {
	l.t.Helper()
	r := l.finish()
	for _, p := range l.problems {
		l.t.Errorf("%v\n%s", p, p.Picture())
	}
	if r.Failed != (len(l.problems) > 0) {
		l.t.Errorf("failed is %v with %d problems", r.Failed, len(l.problems))
	}
	return r
}

// stand is a session without a process. Probes of it are never hit.
type stand struct {
	table *symbols.Table
	done  chan struct{}
	on    map[*kprobes.Kprobe]bool
}

func newStand(t testing.TB) *stand {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	table, err := symbols.OpenFile(exe)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = table.Close() })
	return &stand{table: table, done: make(chan struct{}), on: map[*kprobes.Kprobe]bool{}}
}

func (s *stand) PID() int                { return os.Getpid() }
func (s *stand) Symbols() *symbols.Table { return s.table }
func (s *stand) Done() <-chan struct{}   { return s.done }
func (s *stand) Do(f func()) error       { f(); return nil }

func (s *stand) RegisterKprobes(_ context.Context, kps []*kprobes.Kprobe) error {
	for _, kp := range kps {
		s.on[kp] = false
	}
	return nil
}

func (s *stand) RegisterKretprobes(_ context.Context, rps []*kprobes.Kretprobe) error {
	for _, rp := range rps {
		s.on[&rp.KP] = false
	}
	return nil
}

func (s *stand) AwaitsPrograms() bool { return false }

func (s *stand) Program() uint64 { return 1 }

func (s *stand) RegisterPattern(context.Context, *kprobes.Pattern) error { return nil }

func (s *stand) UnregisterPattern(*kprobes.Pattern) error { return nil }

func (s *stand) PatternStatus(*kprobes.Pattern) (st kprobes.PatternStatus) { return st }

func (s *stand) UnregisterKprobes(kps []*kprobes.Kprobe) error {
	for _, kp := range kps {
		delete(s.on, kp)
	}
	return nil
}

func (s *stand) EnableWhenThere(_ context.Context, kps []*kprobes.Kprobe) error {
	for _, kp := range kps {
		if _, known := s.on[kp]; !known {
			return kprobes.ErrNotRegistered
		}
		s.on[kp] = true
	}
	return nil
}

func (s *stand) DisableKprobe(kp *kprobes.Kprobe) error { s.on[kp] = false; return nil }

func (s *stand) Status(*kprobes.Kprobe) kprobes.Status {
	return kprobes.Status{Mechanism: kprobes.Boosted}
}

// loaded is a scenario without a process; err is what its file has run into.
func loaded(t testing.TB, src string, change ...func(*Options)) (*Script, *said, *Error) {
	t.Helper()
	var heard said
	o := heard.options()
	o.Session, o.Seed = newStand(t), 1
	for _, c := range change {
		c(&o)
	}
	sc, err := load("x.star", []byte(outdent(src)), o)
	var e *Error
	if err != nil && !errors.As(err, &e) {
		t.Fatalf("%v is no *Error", err)
	}
	return sc, &heard, e
}
