package ptrace

import (
	"encoding/binary"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/internal/testprog"
)

// TestWhatWasSentToTheProcessWaitsForTheProcess: a thread that believes to block SIGTRAP is stopped for one which was sent to the process, and that stop is put off. The
// signal comes back as the thread's own; but any thread may wait for it. What was sent to a thread stays that thread's.
func TestWhatWasSentToTheProcessWaitsForTheProcess(t *testing.T) {
	const siQueue = -1
	queued := func(pid int) *Siginfo {
		info := siginfoOf(unix.SIGTRAP, siQueue)
		binary.LittleEndian.PutUint32(info[16:], uint32(pid))
		binary.LittleEndian.PutUint32(info[24:], 4711)
		return info
	}
	for name, c := range map[string]struct {
		send    func(pid, tid int) error
		process bool
	}{
		"kill":     {func(pid, _ int) error { return unix.Kill(pid, unix.SIGTRAP) }, true},
		"sigqueue": {func(pid, _ int) error { return queueToProcess(pid, queued(pid)) }, true},
		"tgkill":   {func(pid, tid int) error { return unix.Tgkill(pid, tid, unix.SIGTRAP) }, false},
	} {
		for _, detached := range []bool{false, true} {
			prog := testprog.Start(t, testprog.Build(t, "waitedfor"), "parts")
			tr, p := attachKeeper(t, keeper{copied: map[int]*Space{}}, prog.PID())
			whileHeld(t, tr, func() {}, func() error {
				return p.Space.Freeze(func(*Frozen) error {
					p.Space.Unblock(func(Sigset) bool { return true })
					return nil
				})
			})
			stopped := 0
			whileHeld(t, tr, func() {
				if err := c.send(prog.PID(), prog.PID()); err != nil {
					t.Fatal(err)
				}
				testprog.Await(t, "a stop for the signal", func() bool {
					for _, tid := range tids(t, prog.PID()) {
						if must2(procfs.ReadStatus(prog.PID(), tid)).State == 't' {
							stopped = tid
						}
					}
					return stopped != 0
				})
			}, func() error {
				return p.Space.Freeze(func(*Frozen) error {
					tr.take() // as if another stop had to be waited for
					if detached {
						return tr.Detach(p)
					}
					return nil
				})
			})
			if !detached {
				whileHeld(t, tr, func() {}, func() error { return tr.Detach(p) })
			}
			tr.Close()
			pends := func(tid int) (own, shared bool) {
				st := must2(procfs.ReadStatus(prog.PID(), tid))
				return st.SigPnd.Has(int(unix.SIGTRAP)), st.ShdPnd.Has(int(unix.SIGTRAP))
			}
			testprog.Await(t, "the signal to wait", func() bool { own, shared := pends(stopped); return own || shared })
			if own, shared := pends(stopped); own == c.process || shared != c.process {
				t.Errorf("%s, let go meanwhile %t: it waits for the thread %t, for the process %t", name, detached, own, shared)
			}
			if c.process || stopped == prog.PID() {
				if got := prog.Do("fd 5", "got"); !strings.HasPrefix(got, "got 5 from ") {
					t.Errorf("%s, let go meanwhile %t: %q", name, detached, got)
				}
			}
			prog.CheckClean()
			if got := prog.Quit(); got != "right" {
				t.Errorf("the program says %q, want right", got)
			}
		}
	}
}
