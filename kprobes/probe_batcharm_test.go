package kprobes

import (
	"context"
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/patch"
)

// readOnlyAt is a target's code in which one address can't be written.
type readOnlyAt struct {
	arch.Memory
	at arch.Addr
}

func (m *readOnlyAt) WriteMemory(at arch.Addr, p []byte) error {
	if at <= m.at && m.at < at+arch.Addr(len(p)) {
		return &arch.FaultError{Addr: at, Write: true, Cause: unix.EIO}
	}
	return m.Memory.WriteMemory(at, p)
}

// TestABatchOfWhichOneCannotBeArmed (A45): the breakpoints before it are taken back, it is
// named, and what comes behind it is untouched.
func TestABatchOfWhichOneCannotBeArmed(t *testing.T) {
	prog := testprog.Start(t, testprog.Build(t, "prey"))
	s, err := Attach(context.Background(), prog.PID(), Options{Log: testprog.NoWarnings(t)})
	if err != nil {
		t.Fatal(err)
	}
	mem := &readOnlyAt{}
	var d *domain
	_ = s.do(func() error {
		d = s.mainDomain()
		d.linker.watched = true // the dynamic linker is left alone
		mem.Memory = d.space.Text()
		d.text = patch.NewText(mem, journal{d})
		return nil
	})
	old := &Kprobe{SymbolName: "foo"}
	if err := s.RegisterKprobe(old); err != nil {
		t.Fatal(err)
	}
	if mem.at, err = s.registry.locate(context.Background(), &Kprobe{SymbolName: "target2"}); err != nil {
		t.Fatal(err)
	}
	names := []string{"recurse", "foo", "target", "target2", "length", "string"}
	kps := make([]*Kprobe, len(names))
	for i, name := range names {
		kps[i] = &Kprobe{SymbolName: name}
	}
	err = s.RegisterKprobes(t.Context(), kps)
	if !errors.Is(err, unix.EIO) || errors.Is(err, patch.ErrTorn) || !strings.Contains(err.Error(), "target2") {
		t.Errorf("got %v, want EIO at target2", err)
	}
	for i, kp := range kps {
		if kp.session != nil || len(kp.placements) != 0 || (kp.Addr == 0) != (i >= 3) || (kp.Flags == 0) != (i >= 3) {
			t.Errorf("%s is left with address %s, flags %d", kp.SymbolName, kp.Addr, kp.Flags)
		}
	}
	_ = s.do(func() error {
		tails := 0 // which are there for the guard
		for _, st := range d.sites {
			if st.mask != nil {
				tails++
			}
		}
		if len(d.sites)-tails != 1 || len(s.registry.probes) != 1 || len(d.text.Patches())-tails != 1 {
			t.Errorf("%d sites, %d probes and %d patches are left, %d of them tails", len(d.sites), len(s.registry.probes), len(d.text.Patches()), tails)
		}
		return nil
	})
	prog.Do("call foo 1", "ret 3")
	prog.Do("call string 0", "ret 4")
	if old.Hits() != 1 || kps[1].Hits() != 0 || kps[5].Hits() != 0 {
		t.Errorf("%d, %d and %d hits, want 1, 0 and 0", old.Hits(), kps[1].Hits(), kps[5].Hits())
	}
	mem.at = 0
	if err := s.RegisterKprobes(t.Context(), kps[3:]); err != nil {
		t.Error(err)
	}
	prog.Do("call string 0", "ret 4")
	if kps[5].Hits() != 1 {
		t.Errorf("%d hits, want 1", kps[5].Hits())
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	prog.CheckClean()
}

// unmappedOnce is a target's code of which one address can't be written the first time, as when
// another thread unmaps the code meanwhile: then calls meanwhile.
type unmappedOnce struct {
	readOnlyAt
	meanwhile func()
}

func (m *unmappedOnce) WriteMemory(at arch.Addr, p []byte) error {
	err := m.readOnlyAt.WriteMemory(at, p)
	if err != nil {
		m.at = 0
		m.meanwhile()
	}
	return err
}

// TestABatchIsTriedAgainAsItWasAsked: code went away while breakpoints were written, so the batch
// is located again. By then the first try has written addresses and flags into its probes.
func TestABatchIsTriedAgainAsItWasAsked(t *testing.T) {
	prog := testprog.Start(t, testprog.Build(t, "prey"))
	s, err := Attach(context.Background(), prog.PID(), Options{Log: testprog.NoWarnings(t)})
	if err != nil {
		t.Fatal(err)
	}
	tries := 0
	mem := &unmappedOnce{meanwhile: func() { tries++; s.registry.changes.Add(1) }}
	var at arch.Addr
	_ = s.do(func() error {
		d := s.mainDomain()
		mem.Memory = d.space.Text()
		d.text = patch.NewText(mem, journal{d}) // before anything is written
		return nil
	})
	first := &Kprobe{SymbolName: "target"}
	if err := s.RegisterKprobe(first); err != nil {
		t.Fatal(err)
	}
	if mem.at, err = s.registry.locate(t.Context(), &Kprobe{SymbolName: "target2"}); err != nil {
		t.Fatal(err)
	}
	if at, err = s.registry.locate(t.Context(), &Kprobe{SymbolName: "string"}); err != nil {
		t.Fatal(err)
	}
	off := &Kprobe{SymbolName: "recurse", Flags: FlagDisabled}
	kps := []*Kprobe{{SymbolName: "foo"}, off, {SymbolName: "target2"}, {Addr: at}}
	if err := s.RegisterKprobes(t.Context(), kps); err != nil || tries != 1 {
		t.Fatalf("%d of the writes failed, registered: %v", tries, err)
	}
	for _, kp := range kps {
		if (kp.Flags&FlagDisabled != 0) != (kp == off) || kp.session != s || len(kp.placements) != 1 {
			t.Errorf("%s is left with flags %d, %d places", kp.name(), kp.Flags, len(kp.placements))
		}
	}
	prog.Do("call foo 1", "ret 3")
	prog.Do("call string 0", "ret 4")
	if kps[0].Hits() != 1 || kps[3].Hits() != 1 {
		t.Errorf("%d and %d hits, want 1 and 1", kps[0].Hits(), kps[3].Hits())
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	prog.CheckClean()
}
