package kprobes

import (
	"context"
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/patch"
	"github.com/gokprobe/gokprobe/ptrace"
)

// exchanging starts fixture optstorm with a memory of code whose writes can be refused, and a probe of a
// function whose last displaced instruction is longer than the jump.
func exchanging(t *testing.T) (prog *testprog.Prog, s *Session, d *domain, mem *readOnly, kp *Kprobe) {
	t.Helper()
	prog = testprog.Start(t, testprog.Build(t, "optstorm"))
	s, err := Attach(context.Background(), prog.PID(), Options{Log: func(string) {}})
	if err != nil {
		t.Fatal(err)
	}
	mem = &readOnly{}
	_ = s.do(func() error {
		d = s.mainDomain()
		d.linker.watched = true // the dynamic linker is left alone
		mem.Memory = d.space.Text()
		d.text = patch.NewText(mem, journal{d})
		return nil
	})
	return prog, s, d, mem, &Kprobe{SymbolName: "s_push"}
}

// registered registers kp, and keeps its site from the optimizer.
func registered(t *testing.T, d *domain, kp *Kprobe) (st *site) {
	t.Helper()
	if err := d.session.RegisterKprobe(kp); err != nil {
		t.Fatal(err)
	}
	st = d.sites[kp.Addr]
	delete(d.optimizer.queue, st)
	return st
}

func wantClosed(t *testing.T, prog *testprog.Prog, s *Session) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	prog.CheckClean()
	if last := prog.Quit(); last != "right" {
		t.Errorf("the program says %q", last)
	}
}

// TestCodeThatChangesBeforeItsJump: the copy would do what stood there before.
func TestCodeThatChangesBeforeItsJump(t *testing.T) {
	prog, s, d, mem, kp := exchanging(t)
	_ = s.do(func() error {
		st := registered(t, d, kp)
		operand, one := st.addr+7, []byte{1} // of lea 1(%rbx),%rax
		if refusal, _ := d.optimizer.prepare(st); refusal != "" {
			t.Fatal(refusal)
		}
		if err := mem.WriteMemory(operand, []byte{2}); err != nil {
			t.Fatal(err)
		}
		if err := d.space.Freeze(func(frozen *ptrace.Frozen) error { return d.optimizer.optimize(frozen, []*site{st}) }); err != nil {
			t.Error(err)
		}
		if info := s.Status(kp); info.Mechanism == Optimized || !strings.Contains(info.Reason, "instead of") {
			t.Errorf("%s, %s", info.Mechanism, info.Reason)
		}
		if err := mem.WriteMemory(operand, one); err != nil {
			t.Fatal(err)
		}
		d.optimizer.consider(st)
		return nil
	})
	s.WaitForOptimizer(t.Context())
	if info := s.Status(kp); info.Mechanism != Optimized && !testprog.NoJumpHere(info.Reason) {
		t.Errorf("%s, %s", info.Mechanism, info.Reason)
	}
	wantClosed(t, prog, s)
}

// TestJumpsThatStay: where the code can't be written, a jump stays and goes on leading to its detour,
// with or without a probe; it goes when that is possible again.
func TestJumpsThatStay(t *testing.T) {
	prog, s, d, mem, kp := exchanging(t)
	if err := s.RegisterKprobe(kp); err != nil {
		t.Fatal(err)
	}
	s.WaitForOptimizer(t.Context())
	call := func(want uint64) {
		t.Helper()
		_ = s.do(func() error {
			d.detours.retired = manyRetired
			d.detours.collect()
			return nil
		})
		prog.Do("storm 20", "did")
		if n := kp.Hits(); want == 0 && n < 80 || want != 0 && n != want {
			t.Errorf("%d hits, want %d", n, want)
		}
	}
	call(0)
	mem.refuse = true
	post := &Kprobe{SymbolName: "s_push", PostHandler: func(*Kprobe, *Regs, uint64) {}}
	if err := s.RegisterKprobe(post); !errors.Is(err, unix.EIO) {
		t.Errorf("a probe that needs a breakpoint: %v, want EIO", err)
	}
	call(0)
	if err := s.SetOptimization(false); !errors.Is(err, unix.EIO) {
		t.Errorf("SetOptimization: %v, want EIO", err)
	}
	call(0)
	if err := s.UnregisterKprobe(kp); err != nil {
		t.Error(err)
	}
	s.WaitForOptimizer(t.Context())
	hits := kp.Hits()
	call(hits)
	mem.refuse = false
	if err := s.SetOptimization(false); err != nil {
		t.Error(err)
	}
	call(hits)
	wantClosed(t, prog, s)
}

// TestSessionsThatLeaveAJump: what it leads to stays too, and the program goes on.
func TestSessionsThatLeaveAJump(t *testing.T) {
	prog, s, _, mem, kp := exchanging(t)
	if err := s.RegisterKprobe(kp); err != nil {
		t.Fatal(err)
	}
	s.WaitForOptimizer(t.Context())
	mem.refuse = true
	if err := s.Close(); !errors.Is(err, unix.EIO) {
		t.Errorf("Close: %v, want EIO", err)
	}
	hits := kp.Hits()
	prog.Do("storm 20", "did")
	if kp.Hits() != hits {
		t.Error("hits are counted")
	}
	if last := prog.Quit(); last != "right" {
		t.Errorf("the program says %q", last)
	}
}

// TestHalfWrittenJumps, which can't be taken back, keep their detours.
func TestHalfWrittenJumps(t *testing.T) {
	prog, s, d, mem, kp := exchanging(t)
	_ = s.do(func() error {
		st := registered(t, d, kp)
		if refusal, _ := d.optimizer.prepare(st); refusal != "" {
			t.Fatal(refusal)
		}
		mem.tear = len(st.next().jump)
		if err := d.space.Freeze(func(frozen *ptrace.Frozen) error { return d.optimizer.optimize(frozen, []*site{st}) }); !errors.Is(err, patch.ErrTorn) {
			t.Errorf("got %v, want ErrTorn", err)
		}
		if st.jump() == nil || d.detours.holding(st.jump().Addr) != st.jump() {
			t.Error("the detour is given up")
		}
		mem.refuse, mem.tear = false, 0
		return s.SetOptimization(false)
	})
	prog.Do("storm 20", "did")
	wantClosed(t, prog, s)
}
