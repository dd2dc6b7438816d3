package ptrace

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/testprog"
)

// TestSIGTRAPIsToTheProgramAsItHasSetIt, though its handler, and it itself, have breakpoints of ours all along: what it says after each command is what it
// says alone.
func TestSIGTRAPIsToTheProgramAsItHasSetIt(t *testing.T) {
	raises := []string{"raise", "int3", "call", "ask", "raise", "int3", "raise", "ask"}
	for _, c := range []struct {
		name           string
		before, script []string // it is attached to in between
	}{
		{"default", nil, []string{"call", "ask"}},
		{"ignored since before", []string{"act ignore"}, []string{"call", "raise", "ask", "raise", "call", "ask"}},
		{"ignored since", []string{"call"}, []string{"act ignore", "raise", "call", "ask", "raise", "ask"}},
		{"handled since before", []string{"act handle"}, raises},
		{"handled since", nil, append([]string{"act handle"}, raises...)},
		{"handled, not deferred", nil, append([]string{"act nodefer"}, raises...)},
		{"handled, all blocked", nil, append([]string{"act block"}, raises...)},
		{"another handler", []string{"act handle"}, []string{"raise", "act block", "raise", "ask", "act nodefer", "raise", "int3", "ask"}},
		{"blocked", []string{"mask block"}, []string{"call", "raise", "call", "act handle", "mask unblock", "raise", "ask"}},
		{"blocked and handled", []string{"act handle", "mask block"}, []string{"call", "ask", "raise", "call", "call", "mask unblock", "raise", "ask"}},
		{"blocked and ignored", []string{"act ignore", "mask block"}, []string{"call", "ask", "raise", "call", "ask", "mask unblock", "ask"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			alone := testprog.Start(t, testprog.Build(t, "owntraps"))
			k := probeAfter(t, "owntraps", c.before...)
			at := k.symbol("foo")
			k.do(func() error {
				return k.p.Space.Freeze(func(*Frozen) error { k.plant(at); return k.p.NoteTrapAction() })
			})
			for _, line := range c.before {
				alone.Do(line, "did")
			}
			for _, line := range c.script {
				if got, want := k.prog.Do(line, "did"), alone.Do(line, "did"); got != want {
					t.Errorf("%s: %q, alone %q", line, got, want)
				}
			}
			if k.hits == 0 {
				t.Error("nothing was hit")
			}
			k.end()
			if got := alone.Quit(); got != "right" {
				t.Errorf("alone the program says %q", got)
			}
		})
	}
}

// probeAfter is probe for a program that has obeyed some commands.
func probeAfter(t *testing.T, fixture string, lines ...string) *prober {
	t.Helper()
	k := newProber(t, fixture)
	k.prog = testprog.Start(t, k.bin)
	for _, line := range lines {
		k.prog.Do(line, "did")
	}
	k.attach(k.prog.PID())
	return k
}

// TestRestoreTrapIsInTime: during a hit whoever reads the action of SIGTRAP has it as the program has set it.
func TestRestoreTrapIsInTime(t *testing.T) {
	k := probeAfter(t, "owntraps", "act handle", "mask block")
	at := k.symbol("foo")
	seen := map[string]int{}
	k.onHit = func(th *Thread, _ arch.Regs) {
		th.RestoreTrap()
		var sa *sigaction
		must(th.Proc.Remote(func(r *Remote) (err error) {
			sa, err = r.sigaction(unix.SIGTRAP)
			return err
		}))
		seen[fmt.Sprintf("handler %v blocked %v", sa.handler > sigIgn, must2(th.sigmask()).Has(unix.SIGTRAP))]++
	}
	k.do(func() error {
		return k.p.Space.Freeze(func(*Frozen) error { k.plant(at); return k.p.NoteTrapAction() })
	})
	if got := k.prog.Do("call", "did"); got != "did call: traps 0 deep 0 blocked 1 pending 0" {
		t.Errorf("the program says %q", got)
	}
	if n := seen["handler true blocked true"]; n != 5 || len(seen) != 1 {
		t.Errorf("seen: %v", seen)
	}
	k.end()
}
