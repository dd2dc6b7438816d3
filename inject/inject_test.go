package inject_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/inject"
	"github.com/gokprobe/gokprobe/inject/fault"
	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
)

// bench is a target under injection.
type bench struct {
	*testprog.Prog
	t  *testing.T
	s  *kprobes.Session
	in *inject.Injector

	mu     sync.Mutex
	events []inject.Event
}

// on takes hold of the fixture.
func on(t *testing.T, opts kprobes.Options) *bench {
	t.Helper()
	return onProgram(t, testprog.Build(t, "fails"), opts)
}

// onProgram takes hold of a target.
func onProgram(t *testing.T, bin string, opts kprobes.Options) *bench {
	t.Helper()
	b := &bench{t: t, Prog: testprog.Start(t, bin)}
	opts.Log = testprog.NoWarnings(t)
	var err error
	if b.s, err = kprobes.Attach(context.Background(), b.PID(), opts); err != nil {
		t.Fatal(err)
	}
	b.in = inject.New(b.s, inject.Options{
		Log:      func(m string) { t.Errorf("injector warns: %s", m) },
		Injected: b.tell,
	})
	t.Cleanup(b.end)
	return b
}

func (b *bench) tell(e inject.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.events = append(b.events, e)
}

// told are the events up to now: those of all calls that have returned.
func (b *bench) told() []inject.Event {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.events)
}

// forget drops the events up to now.
func (b *bench) forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.events = nil
}

// end detaches and checks that nothing is left.
func (b *bench) end() {
	if err := b.in.Close(); err != nil {
		b.t.Errorf("closing the injector: %v", err)
	}
	if err := b.s.Close(); err != nil {
		b.t.Errorf("closing the session: %v", err)
	}
	b.CheckClean()
	if got := b.Quit(); got != "right" {
		b.t.Errorf("the program says %q", got)
	}
}

func (b *bench) add(r inject.Rule) *inject.Fault {
	b.t.Helper()
	f, err := b.in.Add(context.Background(), r)
	if err != nil {
		b.t.Fatal(err)
	}
	return f
}

// attr makes attributes of a text, beginning with those by which every call fails.
func attr(t *testing.T, words ...string) fault.Attr {
	t.Helper()
	a := fault.Always()
	for _, w := range words {
		name, value, _ := strings.Cut(w, "=")
		if err := a.Set(name, value); err != nil {
			t.Fatal(err)
		}
	}
	return a
}

var enoent = []inject.Action{inject.Return{Errno: unix.ENOENT, Fails: true}}

func TestEveryCallFailsWithErrno(t *testing.T) {
	b := on(t, kprobes.Options{})
	f := b.add(inject.Rule{Spec: "work", Attr: fault.Always(), Do: enoent})
	if got := b.Do("run 5", "failed"); got != "failed 5: 1 2 3 4 5" {
		t.Error(got)
	}
	if got := b.Do("run 0", "failed"); got != "failed 0:" {
		t.Error(got)
	}
	if s := f.Stats(); s.Calls != 5 || s.Eligible != 5 || s.Injected != 5 || s.Refused != 0 || len(b.told()) != 5 {
		t.Errorf("%+v, %d events", s, len(b.told()))
	}
	for i, e := range b.told() {
		if e.N != uint64(i+1) || e.Place != "work" || e.PID != b.PID() || e.TID != b.PID() || e.Symbol != "work+0x0" || !slices.Equal(e.What, []string{"return -1 errno ENOENT"}) {
			t.Errorf("%+v", e)
		}
	}
}
