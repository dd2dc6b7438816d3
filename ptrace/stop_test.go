package ptrace

import (
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestDecodeWaitStatus: the values are those of ptrace(2) and <linux/ptrace.h>: status
// word = event<<16 | signal<<8 | 0x7f for a stop.
func TestDecodeWaitStatus(t *testing.T) {
	stop := func(event, sig int) unix.WaitStatus { return unix.WaitStatus(event<<16 | sig<<8 | 0x7f) }
	for _, c := range []struct {
		name string
		ws   unix.WaitStatus
		want Stop
	}{
		{"exit with status 0", 0, Stop{Reason: Exited}},
		{"exit with status 255", 0xff00, Stop{Reason: Exited, Code: 255}},
		{"killed", 9, Stop{Reason: Killed, Signal: unix.SIGKILL}},
		{"killed with a core dump", 0x80 | 11, Stop{Reason: Killed, Signal: unix.SIGSEGV}},
		{"killed by a real-time signal", 64, Stop{Reason: Killed, Signal: 64}},
		{"continued", 0xffff, Stop{Reason: Other}},
		{"signal", stop(0, 14), Stop{Reason: Signal, Signal: unix.SIGALRM}},
		{"the last real-time signal", stop(0, 64), Stop{Reason: Signal, Signal: 64}},
		{"SIGTRAP is a signal until its siginfo is read", stop(0, 5), Stop{Reason: Signal, Signal: unix.SIGTRAP}},
		{"SIGSTOP about to be delivered", stop(0, 19), Stop{Reason: Signal, Signal: unix.SIGSTOP}},
		{"group-stop by SIGSTOP", stop(128, 19), Stop{Reason: GroupStop, Signal: unix.SIGSTOP}},
		{"group-stop by SIGTSTP", stop(128, 20), Stop{Reason: GroupStop, Signal: unix.SIGTSTP}},
		{"group-stop by SIGTTIN", stop(128, 21), Stop{Reason: GroupStop, Signal: unix.SIGTTIN}},
		{"PTRACE_INTERRUPT", stop(128, 5), Stop{Reason: Interrupt}},
		{"system call", stop(0, 5|0x80), Stop{Reason: SyscallStop}},
		{"fork", stop(1, 5), Stop{Reason: Fork}},
		{"vfork", stop(2, 5), Stop{Reason: Vfork}},
		{"clone", stop(3, 5), Stop{Reason: Clone}},
		{"exec", stop(4, 5), Stop{Reason: Exec}},
		{"end of vfork", stop(5, 5), Stop{Reason: VforkDone}},
		{"about to exit", stop(6, 5), Stop{Reason: Exiting}},
		{"seccomp event, never asked for", stop(7, 5), Stop{Reason: Other}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.want.TID = 42
			if got := decode(42, c.ws); got != c.want {
				t.Errorf("%#x is %+v, want %+v", int(c.ws), got, c.want)
			}
			if got := decode(42, c.ws); got.Ended() != (c.ws.Exited() || c.ws.Signaled()) {
				t.Errorf("%#x: ended is %v", int(c.ws), got.Ended())
			}
		})
	}
}

// TestDecodeRealStatuses: what wait4 reports of real children.
func TestDecodeRealStatuses(t *testing.T) {
	for _, c := range []struct {
		script string
		want   Stop
	}{
		{"exit 7", Stop{Reason: Exited, Code: 7}},
		{"kill -TERM $$", Stop{Reason: Killed, Signal: unix.SIGTERM}},
		{"kill -40 $$", Stop{Reason: Killed, Signal: 40}},
	} {
		cmd := exec.Command("sh", "-c", c.script)
		cmd.Dir = os.TempDir()
		_ = cmd.Run()
		ws := unix.WaitStatus(cmd.ProcessState.Sys().(syscall.WaitStatus))
		if got := decode(0, ws); got != c.want {
			t.Errorf("sh -c %q: %+v, want %+v", c.script, got, c.want)
		}
	}
}

func TestReasonsHaveNames(t *testing.T) {
	seen := map[string]bool{}
	for r := Exited; r <= Other; r++ {
		if r.String() == "" || seen[r.String()] {
			t.Errorf("reason %d is called %q", r, r)
		}
		seen[r.String()] = true
	}
	if got := (Stop{TID: 7, Reason: Signal, Signal: unix.SIGALRM}).String(); got != "7: signal SIGALRM" {
		t.Error(got)
	}
}
