package ptrace

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/internal/targetfs"
)

// Cause is why a process can't be attached to.
type Cause uint8

const (
	CauseOther Cause = iota
	CauseNoProcess
	CauseZombie
	CauseKernelThread
	CauseSelf
	CauseTraced
	Cause32Bit
	CauseUserNamespace
	CauseOtherUser
	CauseNotDumpable
	CauseYama
	CauseSeccomp
	CauseCapability
)

// AttachError says why a process can't be attached to and what to do about it. It
// unwraps to the errno.
type AttachError struct {
	PID    int
	Cause  Cause
	Detail string
	Err    error
}

func (e *AttachError) Unwrap() error { return e.Err }

func (e *AttachError) Error() string {
	return fmt.Sprintf("cannot attach to process %d: %s", e.PID, e.reason())
}

func (e *AttachError) reason() string {
	switch e.Cause {
	case CauseNoProcess:
		return "there is no such process; look for it with ps or pgrep"
	case CauseZombie:
		return "it has exited and waits for its parent to collect it (zombie); there is nothing left to probe"
	case CauseKernelThread:
		return "it is a kernel thread; use the kernel's own kprobes for it"
	case CauseSelf:
		return "it is this tracer itself, and a process cannot trace itself; run gokprobe in another process"
	case CauseTraced:
		return "it is already traced " + e.Detail + ", and a process has at most one tracer; detach that one first"
	case Cause32Bit:
		return "it is a " + e.Detail + " program; this build of gokprobe probes 64-bit x86-64 programs only"
	case CauseUserNamespace:
		return "it runs in another user namespace; run gokprobe inside that namespace or as root of its parent (nsenter -U)"
	case CauseOtherUser:
		return "it belongs to " + e.Detail + "; run gokprobe as that user or with CAP_SYS_PTRACE (as root)"
	case CauseNotDumpable:
		return "it is not dumpable (set-user-ID program, changed its user, or called prctl(PR_SET_DUMPABLE, 0)); run gokprobe with CAP_SYS_PTRACE (as root)"
	case CauseYama:
		return e.Detail
	case CauseSeccomp:
		return "a seccomp filter on gokprobe itself forbids ptrace(2); in a container allow it (--cap-add=SYS_PTRACE or a seccomp profile that does)"
	case CauseCapability:
		return "CAP_SYS_PTRACE is missing; run gokprobe with it (as root, in a container with --cap-add=SYS_PTRACE)"
	}
	return fmt.Sprintf("%v", e.Err)
}

// precheck finds reasons for a refusal that can be known before any ptrace request.
func precheck(pid int) (procfs.Status, error) {
	st, err := procfs.ReadStatus(pid, 0)
	if err == nil && st.State == 'Z' { // if others go on, their tracer counts
		if live, err := procfs.ReadStatus(pid, procfs.Living(pid)); err == nil {
			st.TracerPid = live.TracerPid
		}
	}
	switch {
	case err != nil && !errors.Is(err, os.ErrPermission):
		return st, &AttachError{PID: pid, Cause: CauseNoProcess, Err: unix.ESRCH}
	case err != nil:
		return st, &AttachError{PID: pid, Err: err}
	case st.Tgid == os.Getpid():
		return st, &AttachError{PID: pid, Cause: CauseSelf, Err: unix.EPERM}
	case st.KernelThread:
		return st, &AttachError{PID: pid, Cause: CauseKernelThread, Err: unix.EPERM}
	case st.State == 'Z' && !othersAlive(st.Tgid):
		return st, &AttachError{PID: pid, Cause: CauseZombie, Err: unix.ESRCH}
	case st.TracerPid != 0:
		return st, &AttachError{PID: pid, Cause: CauseTraced, Detail: tracerName(st.TracerPid), Err: unix.EPERM}
	}
	if class := exeClass(pid); class != "" {
		return st, &AttachError{PID: pid, Cause: Cause32Bit, Detail: class, Err: unix.EINVAL}
	}
	return st, nil
}

// othersAlive tells a zombie leader whose threads go on from a dead process. A thread of io_uring's may be the last that is
// left, since it keeps the ring open that keeps it.
func othersAlive(pid int) bool {
	tids, err := procfs.UserTasks(pid)
	if err != nil {
		return false
	}
	for _, tid := range tids {
		if st, err := procfs.ReadStat(pid, tid); err == nil && st.State != 'Z' && st.State != 'X' {
			return true
		}
	}
	return false
}

func tracerName(pid int) string {
	// TracerPid names the tracing thread.
	st, err := procfs.ReadStatus(pid, 0)
	if err != nil {
		return fmt.Sprintf("by process %d", pid)
	}
	if comm, err := procfs.Comm(st.Tgid, st.Tgid); err == nil {
		return fmt.Sprintf("by process %d (%s)", st.Tgid, comm)
	}
	return fmt.Sprintf("by process %d", st.Tgid)
}

// exeClass names the kind of program if it is not a 64-bit x86-64 one.
func exeClass(pid int) string {
	files := targetfs.Of(procfs.Living(pid))
	defer func() { _ = files.Close() }()
	f, err := files.Executable()
	if err != nil {
		return ""
	}
	defer f.Close()
	const classAt, machineAt = 4, 18 // Elf64_Ehdr.e_ident[EI_CLASS], e_machine
	head := make([]byte, machineAt+2)
	if _, err := f.ReadAt(head, 0); err != nil || string(head[:classAt]) != elf.ELFMAG {
		return ""
	}
	class, machine := elf.Class(head[classAt]), elf.Machine(binary.LittleEndian.Uint16(head[machineAt:]))
	switch {
	case machine == host.Machine && class == elf.ELFCLASS64:
		return ""
	case class == elf.ELFCLASS32:
		return "32-bit (" + machine.String() + ")"
	}
	return machine.String()
}

// facts decide why the kernel refused.
type facts struct {
	status     procfs.Status
	statusErr  error
	uid        int
	capPtrace  bool
	subset     bool // the process has no capability that we lack
	ownSeccomp int
	ownerRoot  bool // the files in /proc/PID belong to root: the kernel's mark of a non-dumpable process
	sameUserNS bool
	yama       int
	hasYama    bool
}

// diagnose explains a refusal of the kernel.
func diagnose(pid int, err error) *AttachError {
	if known := new(AttachError); errors.As(err, &known) {
		return known
	}
	cause, detail := explain(err, gather(pid))
	return &AttachError{PID: pid, Cause: cause, Detail: detail, Err: err}
}

func gather(pid int) facts {
	f := facts{uid: os.Geteuid(), sameUserNS: true}
	f.status, f.statusErr = procfs.ReadStatus(pid, 0)
	if own, err := procfs.ReadStatus(os.Getpid(), 0); err == nil {
		f.capPtrace = own.CapEff&(1<<unix.CAP_SYS_PTRACE) != 0
		f.ownSeccomp = own.Seccomp
		f.subset = f.status.CapEff&^own.CapEff == 0
	}
	if fi, err := os.Stat(fmt.Sprintf("/proc/%d/status", pid)); err == nil {
		if sys, ok := fi.Sys().(*syscall.Stat_t); ok {
			f.ownerRoot = sys.Uid == 0
		}
	}
	ours, err1 := os.Readlink("/proc/self/ns/user")
	theirs, err2 := os.Readlink(fmt.Sprintf("/proc/%d/ns/user", pid))
	if err1 == nil && err2 == nil {
		f.sameUserNS = ours == theirs
	}
	f.yama, f.hasYama = procfs.YamaScope()
	return f
}

// explain decides the cause from the facts, in the order in which the kernel checks
// (ptrace_may_access in kernel/ptrace.c, then Yama).
func explain(err error, f facts) (Cause, string) {
	switch {
	case errors.Is(err, unix.ESRCH) || f.statusErr != nil:
		return CauseNoProcess, ""
	case errors.Is(err, unix.ENOSYS):
		return CauseSeccomp, ""
	case !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EACCES):
		return CauseOther, ""
	case f.status.State == 'Z':
		return CauseZombie, ""
	case f.status.TracerPid != 0 && f.status.TracerPid != os.Getpid():
		return CauseTraced, tracerName(f.status.TracerPid)
	case !f.sameUserNS:
		return CauseUserNamespace, ""
	case !f.capPtrace && f.status.UIDs[0] != f.uid:
		return CauseOtherUser, fmt.Sprintf("user %d and you are user %d", f.status.UIDs[0], f.uid)
	case !f.capPtrace && f.ownerRoot && f.uid != 0:
		return CauseNotDumpable, ""
	case f.hasYama && (f.yama == 3 || f.yama > 0 && !f.capPtrace):
		return CauseYama, yamaAdvice(f.yama)
	case f.ownSeccomp == 2:
		return CauseSeccomp, ""
	case !f.capPtrace && f.subset && f.uid != 0:
		return CauseNotDumpable, "" // it was not, and is again
	case !f.capPtrace:
		return CauseCapability, ""
	}
	return CauseOther, ""
}

func yamaAdvice(scope int) string {
	switch scope {
	case 1:
		return "Yama's ptrace_scope 1 lets a process trace its own descendants only; start the program with gokprobe run, use CAP_SYS_PTRACE (as root), or set /proc/sys/kernel/yama/ptrace_scope to 0"
	case 2:
		return "Yama's ptrace_scope 2 demands CAP_SYS_PTRACE; run gokprobe as root, or set /proc/sys/kernel/yama/ptrace_scope to 0"
	}
	return "Yama's ptrace_scope 3 forbids ptrace to everybody until the next boot"
}
