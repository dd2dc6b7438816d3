package ptrace

import (
	"encoding/binary"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/internal/testprog"
)

// TestSignalsWaitInTheKernelWhileTheirStopsDo: threads have stopped for signals, and the tracer takes these stops but can't deal with them yet. If it were killed now, the
// kernel would forget a signal whose stop was taken: so it is pending again.
func TestSignalsWaitInTheKernelWhileTheirStopsDo(t *testing.T) {
	prog := testprog.Start(t, testprog.Build(t, "threads"), "3")
	prog.Send("start")
	tr, p := attachKeeper(t, keeper{copied: map[int]*Space{}}, prog.PID())
	defer tr.Close()
	whileHeld(t, tr, func() {
		for _, tid := range tids(t, prog.PID()) {
			if err := unix.Tgkill(prog.PID(), tid, unix.SIGURG); err != nil {
				t.Fatal(err)
			}
			for stops := false; !stops; {
				st, err := procfs.ReadStatus(prog.PID(), tid)
				if err != nil {
					t.Fatal(err)
				}
				stops = st.State == 't'
			}
		}
	}, func() error {
		return p.Space.Freeze(func(*Frozen) error {
			for _, th := range p.Threads() {
				st, err := procfs.ReadStatus(p.PID, th.TID)
				if err != nil {
					return err
				}
				if taken := tr.unreaped != th.TID; taken != st.SigPnd.Has(int(unix.SIGURG)) {
					t.Errorf("thread %d: its stop was taken: %t; signals that wait in the kernel: %x", th.TID, taken, st.SigPnd)
				}
			}
			return nil
		})
	})
	whileHeld(t, tr, func() {}, func() error { return tr.Detach(p) })
	prog.CheckClean()
	prog.Do("stop", "calls")
	if got := prog.Quit(); got != "right" {
		t.Errorf("the program says %q, want right", got)
	}
}

func tids(t *testing.T, pid int) []int {
	t.Helper()
	list, err := procfs.Tasks(pid)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// masksKeeper notes masks, or can't.
type masksKeeper struct {
	keeper
	full  bool
	noted map[*Thread][2]Sigset
}

func (k masksKeeper) KeepMask(th *Thread, own, instead Sigset) bool {
	if !k.full {
		k.noted[th] = [2]Sigset{own, instead}
	}
	return !k.full
}

func (k masksKeeper) MaskGiven(th *Thread) { delete(k.noted, th) }

func (k masksKeeper) Lessened(*Thread, Sigset) bool { return false }

// TestAMaskThatCannotBeNotedIsNotChanged: while a signal is held the thread blocks others, if whoever comes after our death can know what it blocked before. Then the signal waits in the
// kernel, too.
func TestAMaskThatCannotBeNotedIsNotChanged(t *testing.T) {
	for _, full := range []bool{false, true} {
		k := masksKeeper{keeper{copied: map[int]*Space{}}, full, map[*Thread][2]Sigset{}}
		prog := testprog.Start(t, testprog.Build(t, "threads"), "3")
		tr, p := attachKeeper(t, k, prog.PID())
		whileHeld(t, tr, func() {}, func() error {
			return p.Space.Freeze(func(*Frozen) error {
				th := p.Leader()
				own, err := th.sigmask()
				if err != nil {
					return err
				}
				info := &Siginfo{}
				binary.LittleEndian.PutUint32(info[:], uint32(unix.SIGURG))
				th.hold(info)
				now, err := th.sigmask()
				if err != nil {
					return err
				}
				st, err := procfs.ReadStatus(p.PID, th.TID)
				if err != nil {
					return err
				}
				noted, ok := k.noted[th]
				if ok == full || (now == own) != full || ok && noted != [2]Sigset{own, now} {
					t.Errorf("full: %t; it blocked %x, and blocks %x; noted %x", full, own, now, noted)
				}
				if waits := st.SigPnd.Has(int(unix.SIGURG)); waits == full || !th.owed.any() {
					t.Errorf("full: %t; the signal waits in the kernel: %t, something is held: %t", full, waits, th.owed.any())
				}
				th.release()
				if now, err = th.sigmask(); now != own || len(k.noted) > 0 {
					t.Errorf("full: %t; released, it blocks %x, before %x, %v; noted %v", full, now, own, err, k.noted)
				}
				return nil
			})
		})
		whileHeld(t, tr, func() {}, func() error { return tr.Detach(p) })
		tr.Close()
		prog.CheckClean()
		if got := prog.Quit(); got != "right" {
			t.Errorf("the program says %q, want right", got)
		}
	}
}

// TestWhoIsHeldBackIsUnblockedWhenItIsReleased: while a signal is held nearly all are blocked, by us, which says nothing of the thread. A thread that blocks SIGTRAP alone goes on to do so, and is known to,
// and one that blocks nearly all by itself is unblocked for the guard, with the mask that it has then.
func TestWhoIsHeldBackIsUnblockedWhenItIsReleased(t *testing.T) {
	alone, nearlyAll := sigbit(unix.SIGTRAP), allSignals&^unblockable
	for _, c := range []struct {
		own, want Sigset
		is        bool
	}{{alone, alone, false}, {nearlyAll, nearlyAll &^ forced, true}, {0, 0, false}} {
		k := masksKeeper{keeper{copied: map[int]*Space{}}, false, map[*Thread][2]Sigset{}}
		prog := testprog.Start(t, testprog.Build(t, "threads"), "3")
		prog.Do("go 1", "went") // until it runs code of its own, a new thread blocks all signals: it would be unblocked, too
		tr, p := attachKeeper(t, k, prog.PID())
		whileHeld(t, tr, func() {}, func() error {
			return p.Space.Freeze(func(*Frozen) error {
				th := p.Leader()
				before := must2(th.sigmask())
				must(th.setSigmask(c.own))
				th.noteMask()
				info := &Siginfo{}
				binary.LittleEndian.PutUint32(info[:], uint32(unix.SIGURG))
				th.hold(info)
				must(th.setSigmask(must2(th.sigmask()) &^ forced)) // as a breakpoint in our code does
				th.noteMask()
				noted := []Sigset{}
				p.Space.Unblock(func(m Sigset) bool { noted = append(noted, m); return true })
				if th.blocks.trap != (c.own == alone) {
					t.Errorf("own mask %x: held, it is believed to block SIGTRAP: %t", c.own, th.blocks.trap)
				}
				th.release()
				if now := must2(th.sigmask()); now != c.want || th.unblocked.is != c.is || th.blocks.trap != (c.own == alone) {
					t.Errorf("own mask %x: released, it blocks %x, want %x; unblocked: %t; believed to block SIGTRAP: %t", c.own, now, c.want, th.unblocked.is, th.blocks.trap)
				}
				if c.is != (len(noted) == 1 && noted[0] == c.own) {
					t.Errorf("own mask %x: noted %x", c.own, noted)
				}
				th.unblocked.is = false
				return th.setSigmask(before)
			})
		})
		whileHeld(t, tr, func() {}, func() error { return tr.Detach(p) })
		tr.Close()
		prog.CheckClean()
		if got := prog.Quit(); got != "right" {
			t.Errorf("the program says %q, want right", got)
		}
	}
}
