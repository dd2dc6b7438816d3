package ptrace

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/internal/testprog"
)

// TestWhyAttachIsRefused: one cause for each combination of facts, in the kernel's order.
func TestWhyAttachIsRefused(t *testing.T) {
	mine := procfs.Status{UIDs: [4]int{1000, 1000, 1000, 1000}, State: 'S'}
	base := facts{status: mine, uid: 1000, sameUserNS: true}
	with := func(change func(*facts)) facts { f := base; change(&f); return f }
	for _, c := range []struct {
		name   string
		err    error
		facts  facts
		want   Cause
		detail string
	}{
		{"gone", unix.ESRCH, base, CauseNoProcess, ""},
		{"gone, as our own error says it", ErrExited, base, CauseNoProcess, ""},
		{"gone before we looked", unix.EPERM, with(func(f *facts) { f.statusErr = os.ErrNotExist }), CauseNoProcess, ""},
		{"our seccomp answers ENOSYS", unix.ENOSYS, base, CauseSeccomp, ""},
		{"anything else", unix.EIO, base, CauseOther, ""},
		{"zombie", unix.EPERM, with(func(f *facts) { f.status.State = 'Z' }), CauseZombie, ""},
		{"traced", unix.EPERM, with(func(f *facts) { f.status.TracerPid = 1 }), CauseTraced, "by process 1"},
		{"traced by an ended tracer", unix.EPERM, with(func(f *facts) { f.status.TracerPid = 1 << 30 }), CauseTraced, "by process 1073741824"},
		{"other user namespace", unix.EPERM, with(func(f *facts) { f.sameUserNS = false }), CauseUserNamespace, ""},
		{"other user", unix.EPERM, with(func(f *facts) { f.status.UIDs[0] = 33 }), CauseOtherUser, "user 33 and you are user 1000"},
		{"not dumpable", unix.EPERM, with(func(f *facts) { f.ownerRoot = true }), CauseNotDumpable, ""},
		{"Yama 0 is no cause", unix.EPERM, with(func(f *facts) { f.hasYama = true }), CauseCapability, ""},
		{"Yama 1", unix.EPERM, with(func(f *facts) { f.hasYama, f.yama = true, 1 }), CauseYama, "ptrace_scope 1"},
		{"Yama 2", unix.EACCES, with(func(f *facts) { f.hasYama, f.yama = true, 2 }), CauseYama, "ptrace_scope 2"},
		{"Yama 3", unix.EPERM, with(func(f *facts) { f.hasYama, f.yama = true, 3 }), CauseYama, "ptrace_scope 3"},
		{"Yama 1 does not bind the capable", unix.EPERM, with(func(f *facts) { f.hasYama, f.yama, f.capPtrace = true, 1, true }), CauseOther, ""},
		{"Yama 3 binds the capable", unix.EPERM, with(func(f *facts) { f.hasYama, f.yama, f.capPtrace = true, 3, true }), CauseYama, "ptrace_scope 3"},
		{"our seccomp answers EPERM", unix.EPERM, with(func(f *facts) { f.ownSeccomp, f.capPtrace = 2, true }), CauseSeccomp, ""},
		{"no capability", unix.EPERM, base, CauseCapability, ""},
		{"another user's, but capable", unix.EPERM, with(func(f *facts) { f.status.UIDs[0], f.capPtrace = 33, true }), CauseOther, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, detail := explain(c.err, c.facts)
			if got != c.want || !strings.Contains(detail, c.detail) {
				t.Errorf("cause %d %q, want %d %q", got, detail, c.want, c.detail)
			}
		})
	}
}

// TestRefusalsAreOneSentence: what failed, why, and what to do about it.
func TestRefusalsAreOneSentence(t *testing.T) {
	shape := regexp.MustCompile(`^cannot attach to process 7: [^.\n]+[^.\n ]$`)
	file := regexp.MustCompile(`\(([^)]*)\)|/[a-z_/]+`) // names may have dots
	for cause := CauseNoProcess; cause <= CauseCapability; cause++ {
		details := []string{"by process 9 (gdb)"}
		if cause == CauseYama {
			details = []string{yamaAdvice(1), yamaAdvice(2), yamaAdvice(3)}
		}
		for _, d := range details {
			e := &AttachError{PID: 7, Cause: cause, Detail: d, Err: unix.EPERM}
			text := file.ReplaceAllString(e.Error(), "x")
			if !shape.MatchString(text) {
				t.Errorf("cause %d: %q", cause, e)
			}
			advice := cause != CauseZombie && !strings.Contains(d, "3 forbids") // nothing can be done about these
			if advice && !strings.ContainsAny(text, ";") {
				t.Errorf("cause %d gives no advice: %q", cause, e)
			}
			if !errors.Is(fmt.Errorf("wrapped: %w", e), unix.EPERM) {
				t.Errorf("cause %d does not unwrap to its errno", cause)
			}
		}
	}
}

// TestPrecheck: refused before any ptrace request.
func TestPrecheck(t *testing.T) {
	for _, c := range []struct {
		name  string
		pid   int
		cause Cause
		errno unix.Errno
	}{
		{"no such process", 1 << 30, CauseNoProcess, unix.ESRCH},
		{"ourselves", os.Getpid(), CauseSelf, unix.EPERM},
		{"another thread of ours", otherThread(t), CauseSelf, unix.EPERM},
		{"kernel thread", 2, CauseKernelThread, unix.EPERM},
	} {
		if c.cause == CauseKernelThread {
			if name, err := procfs.Comm(2, 2); err != nil || name != "kthreadd" {
				continue // another PID namespace
			}
		}
		_, err := precheck(c.pid)
		var refused *AttachError
		if !errors.As(err, &refused) || refused.Cause != c.cause || !errors.Is(err, c.errno) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func otherThread(t *testing.T) int {
	tids, err := procfs.Tasks(os.Getpid())
	if err != nil || len(tids) < 2 {
		t.Fatalf("threads %v: %v", tids, err)
	}
	return tids[len(tids)-1]
}

// refusedBecause attaches to a process that can't be, and checks that nothing is held then.
func refusedBecause(t *testing.T, pid int, want Cause) *AttachError {
	t.Helper()
	tr := must2(New())
	defer tr.Close()
	refused := new(AttachError)
	must(tr.Do(func() {
		p, err := tr.Attach(pid)
		if p != nil || !errors.As(err, &refused) || refused.Cause != want || len(tr.procs)+len(tr.threads) > 0 {
			t.Errorf("%v, %v; %d processes are held", p, err, len(tr.procs))
		}
	}))
	return refused
}

// TestAZombieIsNotAttachedTo, but a process whose main thread alone has ended is.
func TestAZombieIsNotAttachedTo(t *testing.T) {
	cmd := exec.Command("/proc/self/exe", "-test.run=^$")
	must(cmd.Start())
	testprog.Await(t, "a zombie", func() bool { // all of whose threads have ended
		return must2(procfs.ReadStat(cmd.Process.Pid, 0)).State == 'Z' && len(tids(t, cmd.Process.Pid)) == 1
	})
	refusedBecause(t, cmd.Process.Pid, CauseZombie)
	must(cmd.Wait())
	refusedBecause(t, cmd.Process.Pid, CauseNoProcess)

	prog := testprog.Start(t, testprog.Build(t, "leader"))
	if st, err := precheck(prog.PID()); err != nil || st.State != 'Z' {
		t.Errorf("its main thread is %c: %v", st.State, err)
	}
	withTarget(t, prog, func(p *Process) {
		if p.Leader() != nil || len(p.Threads()) != 2 {
			t.Errorf("the main thread is %v, there are %d", p.Leader(), len(p.Threads()))
		}
		tid, err := p.Space.TID()
		if err != nil || tid == p.PID {
			t.Errorf("its memory is that of thread %d, %v", tid, err)
		}
		must(p.Remote(func(r *Remote) error {
			if pid, err := r.Syscall(unix.SYS_GETPID); err != nil || int(pid) != p.PID {
				t.Errorf("getpid: %d, %v", pid, err)
			}
			return nil
		}))
		if maps, err := p.Space.Maps(); err != nil || len(maps) == 0 {
			t.Errorf("%d mappings, %v", len(maps), err)
		}
	})
	if got := prog.Do("call 2", "ret"); got != "ret 35" {
		t.Errorf("the program says %q", got)
	}
}

// TestATracedProcessTellsItsTracer, which is asked before and after the kernel was.
func TestATracedProcessTellsItsTracer(t *testing.T) {
	prog := testprog.Start(t, testprog.Build(t, "threads"), "2")
	other := another(t, prog.PID())
	want := fmt.Sprintf("by process %d (", other.Process.Pid)
	if e := refusedBecause(t, prog.PID(), CauseTraced); !strings.HasPrefix(e.Detail, want) {
		t.Errorf("it is traced %s, want %s", e.Detail, want)
	}
	if e := diagnose(prog.PID(), unix.EPERM); e.Cause != CauseTraced || !strings.HasPrefix(e.Detail, want) {
		t.Errorf("it is traced %s, want %s", e.Detail, want)
	}
	known := &AttachError{PID: 7, Cause: CauseYama}
	if e := diagnose(prog.PID(), fmt.Errorf("x: %w", known)); e != known {
		t.Errorf("what is known is taken for %v", e)
	}
	must(other.Process.Kill())
	_ = other.Wait()
	twice := must2(New())
	defer twice.Close()
	must(twice.Do(func() {
		p := must2(twice.Attach(prog.PID()))
		_, err := twice.Attach(prog.PID())
		if refused := new(AttachError); !errors.As(err, &refused) || refused.Cause != CauseTraced {
			t.Errorf("the same once more: %v", err)
		}
		must(twice.Detach(p))
	}))
}

// TestTheFactsOfARefusal are those that the kernel has of both processes.
func TestTheFactsOfARefusal(t *testing.T) {
	prog := testprog.Start(t, testprog.Build(t, "siblings"))
	f := gather(prog.PID())
	own := must2(procfs.ReadStatus(os.Getpid(), 0))
	if f.statusErr != nil || f.status.Tgid != prog.PID() || f.uid != os.Geteuid() || f.status.UIDs[0] != f.uid {
		t.Errorf("who they are: %+v", f)
	}
	if f.capPtrace != (own.CapEff>>unix.CAP_SYS_PTRACE&1 == 1) || !f.subset || !f.sameUserNS || f.ownSeccomp != own.Seccomp || f.ownerRoot != (f.uid == 0) {
		t.Errorf("what they may: %+v", f)
	}
	if f := gather(1 << 30); f.statusErr == nil {
		t.Errorf("of nobody: %+v", f)
	}
}
