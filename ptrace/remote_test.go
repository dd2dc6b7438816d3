package ptrace

import (
	"bytes"
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/internal/testprog"
)

// TestBytesForACallAreWhereNothingIs: in memory that nobody has used; below the red zone where there is none; at the end of the initial stack where the stack
// pointer is no good. The call gets them, and what was there is there again.
func TestBytesForACallAreWhereNothingIs(t *testing.T) {
	for _, deep := range []bool{false, true} {
		prog := testprog.Start(t, testprog.Build(t, "prey"))
		if deep {
			prog.Do("call recurse 7000", "ret") // touches the initial stack's lowest pages
		}
		withTarget(t, prog, func(p *Process) {
			must(p.Remote(func(r *Remote) error {
				own := must2(r.th.hostRegs()).SP()
				stack := must2(p.Space.stack())
				for _, sp := range []arch.Addr{own, 0x10, findPlaces(p.PID).rodata.End} {
					must2(r.th.hostRegs()).SetSP(sp)
					const name = "a name"
					old := make([]byte, len(name)+1)
					place := arch.Addr(0)
					must(r.WithString(name, func(at arch.Addr) error {
						place = at
						if !stack.Range.Contains(at) || deep && sp == own && at >= own-128 {
							t.Errorf("deep %v, the stack pointer is %s: the bytes are at %s", deep, sp, at)
						}
						fd := must2(r.Syscall(unix.SYS_MEMFD_CREATE, uint64(at), unix.MFD_CLOEXEC))
						if got := must2(os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", p.PID, fd))); got != "/memfd:"+name+" (deleted)" {
							t.Errorf("the call got %q", got)
						}
						must2(r.Syscall(unix.SYS_CLOSE, fd))
						return nil
					}))
					if deep {
						must(p.Space.ReadMemory(place, old))
						if bytes.HasPrefix(old, []byte(name)) {
							t.Errorf("at %s is %q still", place, old)
						}
					}
				}
				return nil
			}))
		})
		if got := prog.Do("call foo 3", "ret"); got != "ret 7" {
			t.Errorf("the program says %q", got)
		}
		if got := prog.Quit(); got != "right" {
			t.Errorf("the program says %q, want right", got)
		}
	}
}

// TestFiltersDoNotSeeCallsForUs, and see the program's own afterwards: the kernel says so, and a filter that would kill for one of ours does not.
func TestFiltersDoNotSeeCallsForUs(t *testing.T) {
	for mode, seccomp := range map[string]int{"strict": 1, "filter": 2, "few": 2} {
		t.Run(mode, func(t *testing.T) {
			prog := testprog.Start(t, testprog.Build(t, "rev_jail"), mode)
			withTarget(t, prog, func(p *Process) {
				for range 3 {
					must(mapOnce(p))
					must(p.Remote(func(r *Remote) error {
						if pid, err := r.Syscall(unix.SYS_GETPID); err != nil || int(pid) != p.PID {
							t.Errorf("getpid: %d, %v", pid, err)
						}
						return nil
					}))
				}
				if st := must2(procfs.ReadStatus(p.PID, 0)); st.Seccomp != seccomp {
					t.Errorf("its seccomp mode is %d, was %d", st.Seccomp, seccomp)
				}
			})
			prog.Do("foo 10", "did 10")
			if got := prog.Quit(); got != "right" {
				t.Errorf("the program says %q, want right", got)
			}
		})
	}
}

// TestAFilterIsInForceBehindACallForUs, and lifted in none of the program's: what it forbids fails with what it says, before and after.
func TestAFilterIsInForceBehindACallForUs(t *testing.T) {
	k := probe(t, "sysfails")
	k.prog.Do("jail", "jailed")
	for range 3 {
		if got, want := k.prog.Do("parent", "errno"), fmt.Sprintf("errno %d", unix.EPERM); got != want {
			t.Errorf("the program says %q, want %q", got, want)
		}
		k.do(func() error {
			return k.p.Remote(func(r *Remote) error {
				if pid, err := r.Syscall(unix.SYS_GETPPID); err != nil || pid == 0 {
					t.Errorf("the call that the filter forbids: %d, %v", pid, err)
				}
				return nil
			})
		})
	}
	k.end()
}

// TestAThreadTellsWhetherItIsInACall: one that waits, and one that works.
func TestAThreadTellsWhetherItIsInACall(t *testing.T) {
	k := probe(t, "threads", "1")
	foo := k.symbol("foo")
	k.prog.Send("start")
	testprog.Await(t, "one of each", func() (both bool) {
		k.do(func() error {
			return k.p.Space.Freeze(func(*Frozen) error {
				waits, works := k.p.Leader().InSyscall(), false
				for _, th := range k.p.Threads() {
					if ip := th.ip(); ip >= foo && ip < foo+5 {
						if works = true; th.InSyscall() {
							t.Errorf("at %s a thread is in a call", ip)
						}
					}
				}
				both = waits && works
				return nil
			})
		})
		return both
	})
	k.prog.Do("stop", "calls")
	k.end()
}

// TestAWriteToASharedFileIsSeenByAll who have it, and obeys the protections.
func TestAWriteToASharedFileIsSeenByAll(t *testing.T) {
	f := must2(os.CreateTemp("/dev/shm", "gokprobe")) // on no disk
	defer os.Remove(f.Name())
	defer f.Close()
	must(f.Truncate(2 * pageSize))
	hold(t, "siblings", func(p *Process) {
		for _, ways := range []MemoryWays{{VM: true, File: true}, {File: true}} {
			p.Space.LimitMemory(ways)
			var at uint64
			must(p.Remote(func(r *Remote) error {
				return r.WithString(f.Name(), func(name arch.Addr) error {
					fd := must2(r.Syscall(unix.SYS_OPEN, uint64(name), unix.O_RDWR))
					at = must2(r.Syscall(unix.SYS_MMAP, 0, 2*pageSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED, fd, 0))
					must2(r.Syscall(unix.SYS_CLOSE, fd))
					must2(r.Syscall(unix.SYS_MPROTECT, at+pageSize, pageSize, unix.PROT_READ))
					return nil
				})
			}))
			text, got := []byte(fmt.Sprintf("by %+v", ways)), make([]byte, 64)
			if err := p.Space.WriteMemory(arch.Addr(at+17), text); err != nil {
				t.Errorf("%+v: %v", ways, err)
			}
			if must2(f.ReadAt(got, 17)); !bytes.HasPrefix(got, text) {
				t.Errorf("%+v: the file has %q", ways, got)
			}
			if err := p.Space.WriteMemory(arch.Addr(at+pageSize), text); err == nil {
				t.Errorf("%+v: written where nothing may be", ways)
			}
			must(p.Space.Unmap(stretch(arch.Addr(at), 2*pageSize)))
			must(f.Truncate(0))
			must(f.Truncate(2 * pageSize))
		}
	})
}
