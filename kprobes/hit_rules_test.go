package kprobes_test

import (
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/ptrace"
)

// TestPostHandlersSeeTheSuccessor (B5): behind every kind of instruction the IP is where the
// processor goes on, and flags are 0.
func TestPostHandlersSeeTheSuccessor(t *testing.T) {
	prog := start(t, "conform")
	for _, name := range strings.Fields("go_next go_jump go_taken go_past go_call go_return go_indirect go_kernel") {
		t.Run(name, func(t *testing.T) {
			want := prog.Do("call "+name+" 30", "ret")
			s := attach(t, prog.PID(), kprobes.Options{})
			var next arch.Addr
			kp := &kprobes.Kprobe{SymbolName: "at_" + name, PostHandler: func(_ *kprobes.Kprobe, r *kprobes.Regs, flags uint64) {
				if next = r.IP(); flags != 0 {
					t.Errorf("flags are %d", flags)
				}
			}}
			register(t, s, kp)
			if got := prog.Do("call "+name+" 30", "ret"); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
			if at := successor(t, s, prog.PID(), name); next != at && name != "go_return" {
				t.Errorf("the successor is %s, want %s", next, at)
			}
			wantHits(t, kp, 1)
			closeSession(t, s)
			prog.CheckClean()
		})
	}
	wantRight(t, prog)
}

// successor is the instruction after at_NAME in the fixture.
func successor(t *testing.T, s *kprobes.Session, pid int, name string) arch.Addr {
	t.Helper()
	at := symbol(t, s, "at_"+name)
	code := make([]byte, 16)
	if err := (ptrace.PeekMemory{PID: pid}).ReadMemory(at, code); err != nil {
		t.Fatal(err)
	}
	code[0] = map[string]byte{"go_next": 0x48, "go_jump": 0xeb, "go_taken": 0x74, "go_past": 0x75, "go_call": 0xe8,
		"go_return": 0xc3, "go_indirect": 0xff, "go_kernel": 0x0f}[name] // a breakpoint is there
	insn, err := host.Arch.Decode(code, at)
	if err != nil {
		t.Fatal(err)
	}
	switch name {
	case "go_jump", "go_taken":
		return insn.Target
	case "go_call":
		return symbol(t, s, "third")
	case "go_indirect":
		return insn.End() + 2 // behind ud2
	}
	return insn.End()
}

// TestNonZeroAnswersEndTheHit (B2, B19): the PreHandlers behind, the instruction, and all
// PostHandlers are skipped.
func TestNonZeroAnswersEndTheHit(t *testing.T) {
	prog := start(t, "conform")
	s := attach(t, prog.PID(), kprobes.Options{})
	var order string
	probe := func(name string, answer int) *kprobes.Kprobe {
		return &kprobes.Kprobe{
			SymbolName: "at_go_next",
			PreHandler: func(_ *kprobes.Kprobe, r *kprobes.Regs) int {
				order += name
				if answer != 0 {
					r.SetIP(r.IP() + 3) // add $2,%rax has 4 bytes
				}
				return answer
			},
			PostHandler: func(*kprobes.Kprobe, *kprobes.Regs, uint64) { order += name + "'" },
		}
	}
	register(t, s, probe("a", 0), probe("b", -1), probe("c", 0))
	if got := prog.Do("call go_next 30", "ret"); got != "ret 31" || order != "cb" {
		t.Errorf("got %q, handlers %q; want ret 31 and cb", got, order)
	}
}

// TestTheThreadIsStoppedInHandlers (B7).
func TestTheThreadIsStoppedInHandlers(t *testing.T) {
	prog := start(t, "conform")
	s := attach(t, prog.PID(), kprobes.Options{})
	check := func(r *kprobes.Regs) {
		if st, err := procfs.ReadStat(r.PID(), r.TID()); err != nil || st.State != 't' {
			t.Errorf("the thread's state is %c, %v; want t", st.State, err)
		}
	}
	kp := &kprobes.Kprobe{SymbolName: "third",
		PreHandler:  func(_ *kprobes.Kprobe, r *kprobes.Regs) int { check(r); return 0 },
		PostHandler: func(_ *kprobes.Kprobe, r *kprobes.Regs, _ uint64) { check(r) },
	}
	register(t, s, kp)
	prog.Do("call third 30", "ret")
	wantHits(t, kp, 1)
}

// TestTheSecondProbeSharesTheSite (B22): one copy of the instruction serves them all.
func TestTheSecondProbeSharesTheSite(t *testing.T) {
	prog := start(t, "conform")
	s := attach(t, prog.PID(), kprobes.Options{})
	at := symbol(t, s, "at_go_next")
	register(t, s, boosted.probeAt(at))
	region := mapping(t, prog.PID(), func(m procfs.Mapping) bool { return m.Exec && m.Deleted })
	one := copies(t, prog.PID(), region)
	for range 20 {
		register(t, s, stepped.probeAt(at))
	}
	if many := copies(t, prog.PID(), region); one == 0 || many != one {
		t.Errorf("there are %d copies for 21 probes, for one there were %d", many, one)
	}
}

// copies counts where our region holds the bytes of add $2,%rax.
func copies(t *testing.T, pid int, region arch.Addr) int {
	t.Helper()
	code := make([]byte, 4096)
	if err := (ptrace.PeekMemory{PID: pid}).ReadMemory(region, code); err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(code), "\x48\x83\xc0\x02")
}
