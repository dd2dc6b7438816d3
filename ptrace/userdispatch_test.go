package ptrace

import (
	"errors"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
)

// TestACopyIsDispatchedAsItsOriginal: whatever range of addresses the program exempts, and wherever the two are.
func TestACopyIsDispatchedAsItsOriginal(t *testing.T) {
	at := []arch.Addr{0, 0x1000, 0x1fff, 0x2000, 0x7fff_0000_0000}
	for _, own := range []userDispatch{{}, {Mode: 1, Selector: 9, Offset: 0x1000, Len: 0x1000}, {Mode: 1, Selector: 9}, {Mode: 1, Selector: 9, Len: 1 << 47}} {
		for _, original := range at {
			for _, copied := range at {
				as := own.as(original, copied)
				if as.exempts(copied) != own.exempts(original) {
					t.Errorf("%+v: the original at %s is exempt: %v; %+v: the copy at %s: %v", own, original, own.exempts(original), as, copied, as.exempts(copied))
				}
				if own.exempts(original) == own.exempts(copied) && as != own {
					t.Errorf("%+v is changed to %+v for no reason", own, as)
				}
				if !as.exempts(copied) && as.Selector != own.Selector {
					t.Errorf("%+v asks another selector than %+v", as, own)
				}
			}
		}
	}
}

func (th *Thread) ownDispatch() (d userDispatch, err error) {
	err = requestPtr(reqGetUserDispatch, th.TID, unsafe.Sizeof(d), unsafe.Pointer(&d))
	return d, err
}

// TestSystemCallsForUsPassTheProgramsDispatch, which is as it was afterwards. So it is when a thread was to go into a copy, and is told otherwise.
func TestSystemCallsForUsPassTheProgramsDispatch(t *testing.T) {
	hold(t, "siblings", func(p *Process) {
		must(p.Space.Freeze(func(*Frozen) error {
			th := p.Leader()
			if _, err := th.ownDispatch(); errors.Is(err, unix.EIO) || errors.Is(err, unix.EINVAL) {
				return nil // before Linux 6.4 nobody can ask
			}
			own := userDispatch{Mode: 1, Selector: uint64(findPlaces(p.PID).data.Start), Offset: 0x1000, Len: 0x1000}
			must(th.setUserDispatch(&own))
			must(p.Remote(func(r *Remote) error {
				if pid, err := r.Syscall(unix.SYS_GETPID); err != nil || int(pid) != p.PID {
					t.Errorf("a call for us: %d, %v", pid, err)
				}
				return nil
			}))
			if now := must2(th.ownDispatch()); now != own {
				t.Errorf("behind it the dispatch is %+v, was %+v", now, own)
			}
			for _, v := range []Verdict{Undecided(), RunOn(), IntoKernel(0x3000, 0x4000)} {
				th.Go(IntoKernel(0x1800, 0x4000)) // the original is exempt, the copy is not
				if now := must2(th.ownDispatch()); !now.exempts(0x4000) {
					t.Errorf("for the copy it is %+v", now)
				}
				if th.Go(v); must2(th.ownDispatch()) != own || th.dispatch != nil {
					t.Errorf("told otherwise the thread has %+v", must2(th.ownDispatch()))
				}
			}
			th.Go(Undecided())
			return th.setUserDispatch(&userDispatch{})
		}))
	})
}
