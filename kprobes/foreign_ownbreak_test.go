package kprobes_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/kprobes"
)

// TestABreakpointOfTheProgramsOwnWhereAProbeWas: a breakpoint that the program itself writes where a probe was belongs to the program. The bytes behind it
// are what they were with the probe, so they do not tell whose it is.
func TestABreakpointOfTheProgramsOwnWhereAProbeWas(t *testing.T) {
	for _, opts := range []kprobes.Options{{}, {NoBoost: true, NoOptimize: true}} {
		p := start(t, "ownbreak")
		s := attach(t, p.PID(), opts)
		var at uint64
		if _, err := fmt.Sscanf(p.Do("where", "did"), "did %v", &at); err != nil {
			t.Fatal(err)
		}
		says := func(command string, traps int, code byte) {
			t.Helper()
			if got, want := p.Do(command, "did"), fmt.Sprintf("traps %d byte %x", traps, code); !strings.HasSuffix(got, want) {
				t.Errorf("after %s the program says %q, want %q", command, got, want)
			}
		}
		other := &kprobes.Kprobe{SymbolName: "main"} // the session goes on with it
		register(t, s, other)
		for round := range 2 {
			kp := &kprobes.Kprobe{Addr: arch.Addr(at)}
			register(t, s, kp)
			p.Do("call", "did")
			wantHits(t, kp, 1)
			if err := s.UnregisterKprobe(kp); err != nil {
				t.Fatal(err)
			}
			says("own", 2*round, 0xcc)
			says("call", 2*round+1, 0xcc)
			says("call", 2*round+2, 0xcc)
			says("plain", 2*round+2, 0x90)
			says("call", 2*round+2, 0x90)
		}
		closeSession(t, s)
		p.CheckClean()
		wantRight(t, p)
	}
}
