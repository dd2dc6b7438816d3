package returns

import (
	"testing"

	"github.com/gokprobe/gokprobe/kprobes"
)

// machinery is what the languages' runtimes leave functions by and change stacks with: some
// of it returns twice, or never, or on another stack.
var machinery = map[string][]string{
	"jumps": {"libc.so.6:_setjmp", "libc.so.6:__sigsetjmp", "libc.so.6:longjmp", "libc.so.6:siglongjmp", "libc.so.6:raise",
		"libc.so.6:getcontext", "libc.so.6:setcontext", "libc.so.6:swapcontext", "libc.so.6:makecontext", "libc.so.6:sem_wait"},
	"ends": {"libc.so.6:fork", "libc.so.6:vfork", "libc.so.6:system", "libc.so.6:pthread_create", "libc.so.6:pthread_join", "libc.so.6:pthread_exit",
		"libc.so.6:pthread_cancel", "libc.so.6:backtrace", "libc.so.6:execve", "libc.so.6:pause", "libgcc_s.so.1:_Unwind_Backtrace"},
	"throws": {"libstdc++.so.6:__cxa_throw", "libstdc++.so.6:__cxa_rethrow", "libstdc++.so.6:__cxa_begin_catch", "libstdc++.so.6:__cxa_end_catch",
		"libstdc++.so.6:__gxx_personality_v0", "libgcc_s.so.1:_Unwind_RaiseException", "libgcc_s.so.1:_Unwind_Resume", "libgcc_s.so.1:_Unwind_ForcedUnwind"},
	"coro20": {"libstdc++.so.6:__cxa_throw", "libgcc_s.so.1:_Unwind_RaiseException", "libgcc_s.so.1:_Unwind_Resume"},
	"unwind": {"libgcc_s.so.1:_Unwind_RaiseException", "libgcc_s.so.1:_Unwind_Resume"},
	"gounwind": {"runtime.gopanic", "runtime.goexit1", "runtime.deferreturn", "runtime.newstack", "runtime.copystack", "runtime.asyncPreempt2",
		"runtime.gcStart", "runtime.gopark", "runtime.mcall", "runtime.schedule", "runtime.execute", "runtime.newproc1", "runtime.growslice", "runtime.callers"},
	"gocgo": {"runtime.cgocall", "runtime.cgocallbackg", "runtime.entersyscall", "runtime.exitsyscall", "runtime.gopanic", "runtime.systemstack", "crosscall2"},
}

// TestFollowedMachinery: the programs are right while these functions are followed, too, and
// what they count adds up.
func TestFollowedMachinery(t *testing.T) { followedMachinery(t, kprobes.Options{}) }

// TestRewrittenMachinery: the same where return addresses are replaced. Some of these functions look at their own.
func TestRewrittenMachinery(t *testing.T) {
	followedMachinery(t, kprobes.Options{Returns: kprobes.ReturnRewrite})
}

// TestChosenMachinery: the same where each call is followed as it can be.
func TestChosenMachinery(t *testing.T) {
	followedMachinery(t, kprobes.Options{Returns: kprobes.ReturnAuto})
}

func followedMachinery(t *testing.T, opts kprobes.Options) {
	t.Helper()
	eachCase(t, func(t *testing.T, p program, c playing) {
		prog := p.start(t)
		want := play(prog, c, 1)
		c.warns, c.maxActive = restorer, 20_000
		s := attach(t, prog.PID(), c, opts)
		f := newFollower(t, prog.PID(), p, c)
		f.strict = false
		for _, function := range machinery[p.fixture] {
			rp := &kprobes.Kretprobe{MaxActive: 64}
			rp.KP.SymbolName = function
			f.probes = append(f.probes, rp)
		}
		register(t, s, f)
		if got := play(prog, c, 1); got != want {
			t.Errorf("followed it says %q, unprobed %q", got, want)
		}
		prog.Quit()
		closeSession(t, s)
		for _, rp := range f.probes {
			ended := rp.Hits() + rp.NMissed()
			if twice[rp.KP.SymbolName] {
				ended -= rp.Hits() / 2
			}
			if rp.KP.Hits() != ended || rp.KP.NMissed() != 0 {
				t.Errorf("%s: %d entries are not %d returns and %d missed (%d unseen)",
					rp.KP.SymbolName, rp.KP.Hits(), rp.Hits(), rp.NMissed(), rp.KP.NMissed())
			}
		}
	})
}

// twice is what returns in two processes of one address space.
var twice = map[string]bool{"libc.so.6:vfork": true}
