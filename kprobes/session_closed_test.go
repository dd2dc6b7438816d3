package kprobes_test

import (
	"context"
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/kprobes"
)

// Whatever is asked of a closed session, and can fail, says that it is closed.
func TestAClosedSessionSaysSo(t *testing.T) {
	s := launchShop()
	kp := &kprobes.Kprobe{SymbolName: "deliver"}
	rp := &kprobes.Kretprobe{KP: kprobes.Kprobe{SymbolName: "deliver"}}
	jp := &kprobes.Jprobe{KP: kprobes.Kprobe{SymbolName: "price"}, Entry: func(_ kprobes.Ptr, _ float64) {}}
	sp := &kprobes.SyscallProbe{Numbers: []int{unix.SYS_WRITE}}
	ctx := context.Background()
	for _, err := range []error{s.RegisterKprobe(kp), s.RegisterKretprobe(rp), s.RegisterJprobe(jp), s.RegisterSyscallProbe(ctx, sp)} {
		ok(t, err)
	}
	var at arch.Addr
	ok(t, s.Do(func() { at = kp.Addr }))
	ok(t, s.Close())
	ok(t, s.Close())
	<-s.Done()
	newKp := func() *kprobes.Kprobe { return &kprobes.Kprobe{SymbolName: "deliver"} }
	newRp := func() *kprobes.Kretprobe { return &kprobes.Kretprobe{KP: *newKp()} }
	newJp := func() *kprobes.Jprobe { return &kprobes.Jprobe{KP: *newKp(), Entry: func(int32) {}} }
	for name, call := range map[string]func() error{
		"Alloc":                  func() error { _, err := s.Alloc(8); return err },
		"ArmAll":                 s.ArmAll,
		"Blacklist":              func() error { return s.Blacklist("deliver") },
		"BlacklistRange":         func() error { return s.BlacklistRange(arch.Range{Start: at, End: at + 1}) },
		"DisableJprobe":          func() error { return s.DisableJprobe(jp) },
		"DisableKprobe":          func() error { return s.DisableKprobe(kp) },
		"DisableKretprobe":       func() error { return s.DisableKretprobe(rp) },
		"DisableSyscallProbe":    func() error { return s.DisableSyscallProbe(sp) },
		"DisarmAll":              s.DisarmAll,
		"Do":                     func() error { return s.Do(func() { t.Error("it ran") }) },
		"EnableJprobe":           func() error { return s.EnableJprobe(jp) },
		"EnableKprobe":           func() error { return s.EnableKprobe(kp) },
		"EnableKprobes":          func() error { return s.EnableKprobes(ctx, []*kprobes.Kprobe{kp}) },
		"EnableKretprobe":        func() error { return s.EnableKretprobe(rp) },
		"EnableSyscallProbe":     func() error { return s.EnableSyscallProbe(sp) },
		"Entry":                  func() error { _, err := s.Entry(at); return err },
		"ExchangeKprobes":        func() error { return s.ExchangeKprobes(kp, newKp()) },
		"Free":                   func() error { return s.Free(at, 8) },
		"Peek":                   func() error { return s.Peek(at, make([]byte, 1)) },
		"Poke":                   func() error { return s.Poke(at, make([]byte, 1)) },
		"RegisterJprobe":         func() error { return s.RegisterJprobe(newJp()) },
		"RegisterJprobes":        func() error { return s.RegisterJprobes(ctx, []*kprobes.Jprobe{newJp()}) },
		"RegisterKprobe":         func() error { return s.RegisterKprobe(newKp()) },
		"RegisterKprobes":        func() error { return s.RegisterKprobes(ctx, []*kprobes.Kprobe{newKp()}) },
		"RegisterKprobe unknown": func() error { return s.RegisterKprobe(&kprobes.Kprobe{SymbolName: "nosuch"}) },
		"RegisterKretprobe":      func() error { return s.RegisterKretprobe(newRp()) },
		"RegisterKretprobes":     func() error { return s.RegisterKretprobes(ctx, []*kprobes.Kretprobe{newRp()}) },
		"RegisterSyscallProbe": func() error {
			return s.RegisterSyscallProbe(ctx, &kprobes.SyscallProbe{Numbers: []int{unix.SYS_READ}})
		},
		"SetOptimization":        func() error { return s.SetOptimization(false) },
		"Signal":                 func() error { return s.Signal(unix.SIGCONT) },
		"Start":                  s.Start,
		"UnregisterJprobe":       func() error { return s.UnregisterJprobe(jp) },
		"UnregisterJprobes":      func() error { return s.UnregisterJprobes([]*kprobes.Jprobe{jp}) },
		"UnregisterKprobe":       func() error { return s.UnregisterKprobe(kp) },
		"UnregisterKprobes":      func() error { return s.UnregisterKprobes([]*kprobes.Kprobe{kp}) },
		"UnregisterKretprobe":    func() error { return s.UnregisterKretprobe(rp) },
		"UnregisterKretprobes":   func() error { return s.UnregisterKretprobes([]*kprobes.Kretprobe{rp}) },
		"UnregisterSyscallProbe": func() error { return s.UnregisterSyscallProbe(sp) },
		"WaitForOptimizer":       func() error { return s.WaitForOptimizer(ctx) },
	} {
		if err := call(); !errors.Is(err, kprobes.ErrClosed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
