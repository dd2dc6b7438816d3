package ptrace

import (
	"errors"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
)

// Syscall User Dispatch (prctl(2), PR_SET_SYSCALL_USER_DISPATCH; used by Wine): the kernel
// turns system calls into SIGSYS unless the address behind the instruction lies in a range.
// It looks at that before the thread stops at the entry, when a copy is still where the copy
// is. So the thread's range is replaced for the copy if it would decide otherwise there.

// Requests of Linux 6.4.
const (
	reqSetUserDispatch = unix.PTRACE_SET_SYSCALL_USER_DISPATCH_CONFIG
	reqGetUserDispatch = unix.PTRACE_GET_SYSCALL_USER_DISPATCH_CONFIG
)

// userDispatch is struct ptrace_sud_config.
type userDispatch struct{ Mode, Selector, Offset, Len uint64 }

// exempts reports whether a call that returns to a is made without asking the selector.
func (d *userDispatch) exempts(a arch.Addr) bool {
	return d.Mode == 0 || uint64(a)-d.Offset < d.Len
}

// as returns a configuration that decides for a copy as d does for the original.
func (d userDispatch) as(original, copied arch.Addr) userDispatch {
	switch {
	case d.exempts(original) == d.exempts(copied):
	case d.exempts(original):
		d = userDispatch{}
	default:
		d.Offset, d.Len = 0, 0
	}
	return d
}

// imitateDispatch makes a system-call instruction that copied follows count as the one that
// original follows.
func (th *Thread) imitateDispatch(original, copied arch.Addr) {
	t := th.Proc.tracer
	if t.noUserDispatch {
		return
	}
	var own userDispatch
	err := requestPtr(reqGetUserDispatch, th.TID, unsafe.Sizeof(own), unsafe.Pointer(&own))
	if err != nil {
		t.noUserDispatch = errors.Is(err, unix.EIO) || errors.Is(err, unix.EINVAL)
		return
	}
	if as := own.as(original, copied); as != own && th.setUserDispatch(&as) == nil {
		th.dispatch = &own
	}
}

// restoreDispatch ends that.
func (th *Thread) restoreDispatch() {
	if th.dispatch != nil {
		_ = th.setUserDispatch(th.dispatch)
		th.dispatch = nil
	}
}

// suspendDispatch lets the calls that the thread makes for us pass. A SIGSYS in place of one,
// with all signals blocked, would take the program's handler away.
func (th *Thread) suspendDispatch() (undo func(), suspended bool) {
	var own userDispatch
	err := requestPtr(reqGetUserDispatch, th.TID, unsafe.Sizeof(own), unsafe.Pointer(&own))
	if err != nil || own.Mode == 0 || th.setUserDispatch(&userDispatch{}) != nil {
		return func() {}, false
	}
	return func() { _ = th.setUserDispatch(&own) }, true
}

func (th *Thread) setUserDispatch(d *userDispatch) error {
	return requestPtr(reqSetUserDispatch, th.TID, unsafe.Sizeof(*d), unsafe.Pointer(d))
}
