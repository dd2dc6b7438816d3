package ptrace

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/internal/testprog"
)

// TestQueuedSignalsAreSentAgainAsTheyWere: several that are held at once come in their order, each with its own siginfo, which the program checks.
func TestQueuedSignalsAreSentAgainAsTheyWere(t *testing.T) {
	const queued, sigRTMin = 5, unix.Signal(34) // of the C library
	k := probe(t, "signals", "alarms")
	k.do(func() error {
		th := k.p.Leader()
		if err := th.Halt(); err != nil {
			return err
		}
		for n := range queued {
			info := siginfoOf(sigRTMin, -1)
			binary.LittleEndian.PutUint32(info[16:], uint32(k.p.PID))
			binary.LittleEndian.PutUint32(info[24:], uint32(n))
			th.hold(info)
		}
		th.Proceed()
		for _, r := range th.owed.resent {
			if r.Signo() == sigRTMin {
				t.Error("a signal that queues is to be given its siginfo back")
			}
		}
		if th.owed.any() {
			t.Error("signals are held still")
		}
		return nil
	})
	got := k.prog.Do("run 1", "ran")
	if want := fmt.Sprintf(" queued %d ", queued); !strings.Contains(got, want) {
		t.Errorf("the program says %q, want%q", got, want)
	}
	k.end()
}

// TestASignalIsTheThreadsThatItIsSentTo, and what it tells is what was set last; no signal, or no thread, is an error.
func TestASignalIsTheThreadsThatItIsSentTo(t *testing.T) {
	k := probe(t, "fails")
	sender, told := -1, 0
	k.onSignal = func(th *Thread, info *Siginfo) (Delivery, Verdict) {
		told++
		if info.Signo() != unix.SIGUSR1 || info.Code() != siTkill || th != k.p.Leader() {
			t.Errorf("told of signal %d, code %d", info.Signo(), info.Code())
		}
		changed := *info
		binary.LittleEndian.PutUint32(changed[16:], 4711)
		must(th.SetSiginfo(&changed))
		sender = must2(th.Siginfo()).PID()
		return Deliver, AsTold()
	}
	th := k.p.Leader()
	k.do(func() error {
		if err := th.Kill(99); !errors.Is(err, unix.EINVAL) {
			t.Errorf("a signal that there is not: %v", err)
		}
		return th.Kill(unix.SIGUSR1)
	})
	testprog.Await(t, "the signal", func() (came bool) {
		k.do(func() error { came = told > 0; return nil })
		return came
	})
	if got := k.prog.Do("usr1", "usr1"); got != "usr1 1" || sender != 4711 {
		t.Errorf("the program says %q; the sender was set to %d", got, sender)
	}
	k.end()
	k.prog.Kill()
	if err := th.Kill(unix.SIGUSR1); !errors.Is(err, ErrExited) {
		t.Errorf("a thread that has gone: %v", err)
	}
}

// TestAnExceptionOfTheProgramsOwnIsItsOwn: it is told once, of the instruction that has raised it, though the process is frozen all along, and when it is let
// go just at the stop for it.
func TestAnExceptionOfTheProgramsOwnIsItsOwn(t *testing.T) {
	for exception, told := range map[string]string{"int3": "signal 5 code 128", "ud2": "signal 4 code 2", "read": "signal 11 code 1"} {
		t.Run(exception, func(t *testing.T) {
			want := fmt.Sprintf("did %s: %s right 1 times 1", exception, told)
			prog := testprog.Start(t, testprog.Build(t, "excepts"))
			tr, p := attachKeeper(t, keeper{copied: map[int]*Space{}}, prog.PID())
			defer tr.Close()
			end := stopAllAlong(t, tr, p)
			for range 20 {
				if got := prog.Do(exception, "did"); got != want {
					t.Errorf("%q, want %q", got, want)
				}
			}
			end()
			whileHeld(t, tr, func() {
				prog.Send(exception)
				testprog.Await(t, "a stop for the exception", func() bool { return must2(procfs.ReadStatus(prog.PID(), 0)).State == 't' })
			}, func() error { return tr.Detach(p) })
			if got := prog.Expect("did"); got != want {
				t.Errorf("let go, %q, want %q", got, want)
			}
			prog.CheckClean()
			if got := prog.Quit(); got != "right" {
				t.Errorf("the program says %q, want right", got)
			}
		})
	}
}

// TestAStepIsCountedWhetherItGetsAnywhere: so many, and no more; one that faults where it is does not.
func TestAStepIsCountedWhetherItGetsAnywhere(t *testing.T) {
	if got := *StepsFor(3); got < MaxSteps+3 {
		t.Errorf("%d steps for three threads", got)
	}
	k := probe(t, "call")
	at := k.symbol("probed")
	k.onHit = func(th *Thread, regs arch.Regs) {
		must(k.p.Space.Freeze(func(*Frozen) error {
			k.remove(at)
			regs.SetIP(at)
			for _, c := range []struct {
				steps Steps
				ip    arch.Addr
				want  bool
			}{{2, at, true}, {0, 0, false}} {
				before := must2(th.Regs()).IP()
				if got := c.steps.Step(k.p.Space, th, before); got != c.want || (must2(th.Regs()).IP() != before) != c.want {
					t.Errorf("with %d steps left: %v, from %s to %s", c.steps, got, before, must2(th.Regs()).IP())
				}
			}
			own := must2(th.Regs()).IP()
			must2(th.Regs()).SetIP(0x10)
			if left := Steps(1); left.Step(k.p.Space, th, 0x10) || left != 0 {
				t.Errorf("a step from where nothing is, got somewhere; %d are left", left)
			}
			must2(th.Regs()).SetIP(own)
			th.Go(DropSignal())
			return nil
		}))
	}
	k.do(func() error { k.plant(at); return nil })
	if got := k.prog.Do("go 27", "ret"); got != "ret 9" {
		t.Errorf("the program says %q", got)
	}
	k.end()
}
