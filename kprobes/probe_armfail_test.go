package kprobes

import (
	"context"
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/patch"
)

// readOnly is a target's code that can't be written at the moment.
type readOnly struct {
	arch.Memory
	refuse bool
	at     arch.Addr // refuse this one; 0 is none
	tear   int       // refuse from the middle of the first write of that many bytes on
}

func (m *readOnly) WriteMemory(at arch.Addr, p []byte) error {
	if n := len(p); n > 0 && n == m.tear {
		m.refuse = true
		_ = m.Memory.WriteMemory(at, p[:n/2+1])
	}
	if m.refuse || m.at != 0 && at == m.at {
		return &arch.FaultError{Addr: at, Write: true, Cause: unix.EIO}
	}
	return m.Memory.WriteMemory(at, p)
}

// TestAnArmingErrorIsReturned (A35 is not reproduced, A53): a probe that can't be armed is not
// registered; one that is enabled in vain stays disabled, and so do its siblings.
func TestAnArmingErrorIsReturned(t *testing.T) {
	prog := testprog.Start(t, testprog.Build(t, "prey"))
	s, err := Attach(context.Background(), prog.PID(), Options{Log: testprog.NoWarnings(t)})
	if err != nil {
		t.Fatal(err)
	}
	mem := &readOnly{refuse: true}
	_ = s.do(func() error {
		d := s.mainDomain()
		d.linker.watched = true // the dynamic linker is left alone
		mem.Memory = d.space.Text()
		d.text = patch.NewText(mem, journal{d})
		return nil
	})
	kp := &Kprobe{SymbolName: "target"}
	if err := s.RegisterKprobe(kp); !errors.Is(err, unix.EIO) {
		t.Errorf("got %v, want EIO", err)
	}
	if err := s.EnableKprobe(kp); !errors.Is(err, ErrNotRegistered) {
		t.Errorf("the probe is registered: %v", err)
	}
	kps := []*Kprobe{{SymbolName: "target", Flags: FlagDisabled}, {SymbolName: "target", Flags: FlagDisabled}}
	if err := s.RegisterKprobes(t.Context(), kps); err != nil {
		t.Fatal(err)
	}
	if err := s.EnableKprobe(kps[0]); !errors.Is(err, unix.EIO) {
		t.Errorf("got %v, want EIO", err)
	}
	for _, kp := range kps {
		if f := s.Status(kp).Flags; f != FlagDisabled {
			t.Errorf("flags are %d, want disabled", f)
		}
	}
	prog.Do("call target 30", "ret")
	mem.refuse = false
	if err := s.EnableKprobe(kps[0]); err != nil {
		t.Error(err)
	}
	prog.Do("call target 30", "ret")
	if kps[0].Hits() != 1 || kps[1].Hits() != 0 {
		t.Errorf("%d and %d hits, want 1 and 0", kps[0].Hits(), kps[1].Hits())
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	prog.CheckClean()
}

// What can't be armed with everything else (F14) is told, and keeps nothing else from being armed; the next
// attempt makes it good.
func TestArmingAllGoesOnAfterAnError(t *testing.T) {
	prog := testprog.Start(t, testprog.Build(t, "prey"))
	s, err := Attach(context.Background(), prog.PID(), Options{NoOptimize: true})
	if err != nil {
		t.Fatal(err)
	}
	mem := &readOnly{}
	_ = s.do(func() error {
		d := s.mainDomain()
		d.linker.watched = true // the dynamic linker is left alone
		mem.Memory = d.space.Text()
		d.text = patch.NewText(mem, journal{d})
		return nil
	})
	kps := []*Kprobe{{SymbolName: "foo"}, {SymbolName: "target"}, {SymbolName: "target2"}}
	if err := s.RegisterKprobes(t.Context(), kps); err != nil {
		t.Fatal(err)
	}
	if err := s.DisarmAll(); err != nil {
		t.Fatal(err)
	}
	mem.at = kps[1].Addr
	hits := func(want ...uint64) {
		t.Helper()
		for i, f := range []string{"foo", "target", "target2"} {
			prog.Do("call "+f+" 3", "ret")
			if n := kps[i].Hits(); n != want[i] {
				t.Errorf("%s has %d hits, want %d", f, n, want[i])
			}
		}
	}
	if err := s.ArmAll(); !errors.Is(err, unix.EIO) {
		t.Errorf("got %v, want EIO", err)
	}
	hits(1, 0, 1)
	mem.at = 0
	if err := errors.Join(s.DisarmAll(), s.ArmAll()); err != nil {
		t.Error(err)
	}
	hits(2, 1, 2)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	prog.CheckClean()
	prog.Quit()
}
