package kprobes_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"slices"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/ptrace"
)

// asked is a context that is done when it has been asked so often whether it is.
type asked struct {
	context.Context
	cancel context.CancelFunc
	mu     sync.Mutex
	left   int
	looks  int
}

func askedContext(left int) *asked {
	ctx, cancel := context.WithCancel(context.Background())
	return &asked{Context: ctx, cancel: cancel, left: left}
}

// Err counts.
func (c *asked) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.looks++
	if c.left--; c.left == 0 {
		c.cancel()
	}
	return c.Context.Err()
}

// armed tells whether a probe is, or has something written for it.
func armed(t *testing.T, s *kprobes.Session, sp *kprobes.SyscallProbe, kps []*kprobes.Kprobe) bool {
	t.Helper()
	if sp != nil {
		return len(s.SyscallStatus(sp).Places) > 0
	}
	for _, name := range []string{"libc.so.6:read", "libc.so.6:write", "main"} {
		found, err := s.Symbols().Resolve(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		m := found[0].Symbol.Module
		file, err := os.ReadFile(m.Path)
		b := make([]byte, 4)
		if err != nil || (ptrace.PeekMemory{PID: s.PID()}).ReadMemory(found[0].Addr, b) != nil {
			t.Fatalf("%s can't be read: %v", m.Path, err)
		}
		if !bytes.Contains(file, b) || b[0] == 0xcc {
			return true
		}
	}
	for _, kp := range kps {
		if s.Status(kp).Mechanism != kprobes.NoMechanism {
			return true
		}
	}
	return false
}

// TestPlacingHeedsItsContextAtAllTimes: it ends wherever it is, and nothing is armed, nor left.
func TestPlacingHeedsItsContextAtAllTimes(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "syscalls"), "4")
	before := testprog.TakeSnapshot(t, p.PID())
	var s *kprobes.Session
	quiet := func(sp *kprobes.SyscallProbe, _ *kprobes.Regs) int { return 0 }
	var sp *kprobes.SyscallProbe
	var kps []*kprobes.Kprobe
	kinds := []struct {
		name  string
		place func(ctx context.Context) error
		least int // how often it asks, at least
	}{
		{"by sites", func(ctx context.Context) error {
			sp = &kprobes.SyscallProbe{Numbers: []int{unix.SYS_READ, unix.SYS_FUTEX}, By: kprobes.SyscallBySites, Enter: quiet}
			return s.RegisterSyscallProbe(ctx, sp)
		}, 100},
		{"either way", func(ctx context.Context) error {
			sp = &kprobes.SyscallProbe{Numbers: []int{unix.SYS_READ, unix.SYS_FUTEX}, Enter: quiet}
			return s.RegisterSyscallProbe(ctx, sp)
		}, 100},
		{"by name", func(ctx context.Context) error {
			kps = []*kprobes.Kprobe{{SymbolName: "libc.so.6:read"}, {SymbolName: "libc.so.6:write"}, {SymbolName: "main"}}
			return s.RegisterKprobes(ctx, kps)
		}, 10},
		{"enabling", func(ctx context.Context) error {
			kps = []*kprobes.Kprobe{{SymbolName: "libc.so.6:read", Flags: kprobes.FlagDisabled}, {SymbolName: "main", Flags: kprobes.FlagDisabled}}
			if err := s.RegisterKprobes(t.Context(), kps); err != nil {
				t.Fatal(err)
			}
			err := s.EnableKprobes(ctx, kps)
			if err != nil {
				if got := s.Status(kps[0]); got.Flags&kprobes.FlagDisabled == 0 {
					t.Errorf("after %v the probe is enabled", err)
				}
				if err := s.UnregisterKprobes(kps); err != nil {
					t.Error(err)
				}
			}
			return err
		}, 1},
	}
	for _, k := range kinds {
		sp, kps = nil, nil
		s = attach(t, p.PID(), kprobes.Options{})
		ctx := askedContext(-1)
		if err := k.place(ctx); err != nil {
			t.Fatalf("%s: %v", k.name, err)
		}
		closeSession(t, s)
		total := ctx.looks
		if total < k.least {
			t.Errorf("%s: the context is looked at %d times", k.name, total)
		}
		at := []int{1, 2, 3, total / 4, total / 2, total - 1}
		slices.Sort(at)
		for _, n := range slices.Compact(at) {
			s = attach(t, p.PID(), kprobes.Options{})
			ctx := askedContext(max(n, 1))
			err := k.place(ctx)
			switch {
			case err == nil && ctx.Context.Err() == nil: // there was less to be done, this time
			case err == nil:
				t.Errorf("%s is done, though it was given up at the %d. of %d times", k.name, n, total)
			case !errors.Is(err, context.Canceled):
				t.Errorf("%s, given up at the %d. of %d times: %v", k.name, n, total, err)
			}
			if err != nil && armed(t, s, sp, kps) {
				t.Errorf("%s, given up at the %d. of %d times: something is armed", k.name, n, total)
			}
			closeSession(t, s)
		}
	}
	before.Compare(t, p.PID())
	p.CheckClean()
}
