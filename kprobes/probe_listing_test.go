package kprobes_test

import (
	"regexp"
	"slices"
	"testing"

	"github.com/gokprobe/gokprobe/kprobes"
)

func TestListedLines(t *testing.T) {
	for _, c := range []struct {
		l    kprobes.Listed
		want string
	}{
		{kprobes.Listed{Addr: 0x401000, Type: 'k', Symbol: "foo+0x0"}, "0000000000401000  k  foo+0x0    "},
		{kprobes.Listed{Addr: 0x401000, Type: 'r', Symbol: "foo+0x4", Module: "lib.so"}, "0000000000401000  r  foo+0x4  lib.so "},
		{kprobes.Listed{Addr: 0x401000, Type: 'j', Symbol: "foo+0x0", Disabled: true, Optimized: true}, "0000000000401000  j  foo+0x0    [DISABLED][OPTIMIZED]"},
		{kprobes.Listed{Addr: 0x401000, Type: 'k', Gone: true, Disabled: true}, "0000000000401000  k  0x401000 [GONE]"},
	} {
		if got := c.l.String(); got != c.want {
			t.Errorf("%+v is listed as\n%q, want\n%q", c.l, got, c.want)
		}
	}
}

// All kinds, of one site and of several; what a session has not registered any more is not listed.
func TestProbesAreListed(t *testing.T) {
	p := start(t, "prey")
	s := attach(t, p.PID(), kprobes.Options{})
	none := func(*kprobes.Kprobe, *kprobes.Regs) int { return 0 }
	optimized, below := &kprobes.Kprobe{SymbolName: "foo"}, &kprobes.Kprobe{SymbolName: "foo", Flags: kprobes.FlagDisabled}
	stepped := boosted.probe("target")
	stepped.PreHandler = none
	register(t, s, optimized, below, stepped)
	rp := &kprobes.Kretprobe{KP: kprobes.Kprobe{SymbolName: "target2"}, Handler: func(*kprobes.KretprobeInstance, *kprobes.Regs) int { return 0 }}
	if err := s.RegisterKretprobe(rp); err != nil {
		t.Fatal(err)
	}
	jp := &kprobes.Jprobe{KP: kprobes.Kprobe{SymbolName: "recurse"}, Entry: func(int64) {}}
	if err := s.RegisterJprobe(jp); err != nil {
		t.Fatal(err)
	}
	s.WaitForOptimizer(t.Context())
	var lines []string
	for _, l := range s.Probes() {
		lines = append(lines, l.String()[len("0000000000401000"):])
	}
	want := []string{
		`^  k  foo\+0x[04]    \[DISABLED\]\[OPTIMIZED\]$`, `^  k  foo\+0x[04]    \[OPTIMIZED\]$`,
		`^  k  target\+0x[04]    (\[OPTIMIZED\])?$`, `^  r  target2\+0x[04]    (\[OPTIMIZED\])?$`, `^  j  recurse\+0x[04]    $`,
	}
	if len(lines) != len(want) {
		t.Fatalf("listed are %q", lines)
	}
	for _, w := range want {
		if !slices.ContainsFunc(lines, regexp.MustCompile(w).MatchString) {
			t.Errorf("nothing listed matches %s: %q", w, lines)
		}
	}
	if i := slices.IndexFunc(lines, regexp.MustCompile(want[0]).MatchString); i < 0 || lines[i+1] == "" || !regexp.MustCompile(want[1]).MatchString(lines[i+1]) {
		t.Errorf("of one address the probe that was registered last does not come first: %q", lines)
	}
	if err := s.UnregisterKprobes([]*kprobes.Kprobe{optimized, below}); err != nil {
		t.Fatal(err)
	}
	if n := len(s.Probes()); n != len(want)-2 {
		t.Errorf("%d probes are listed after two were unregistered", n)
	}
	for _, on := range []bool{false, true} {
		if err := s.SetOptimization(on); err != nil || s.Optimization() != on {
			t.Errorf("optimization is %v (%v) after it was set to %v", s.Optimization(), err, on)
		}
	}
	wantRight(t, p)
}
