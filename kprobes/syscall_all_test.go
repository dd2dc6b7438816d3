package kprobes_test

import (
	"bytes"
	"debug/elf"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/ptrace"
)

// mnemonic is a line of objdump -d with a system call on it.
var mnemonic = regexp.MustCompile(`(?m)^ *([0-9a-f]+):\s+(?:[0-9a-f]{2} )*\s*(?:syscall|sysenter|int +\$0x80)\s*$`)

// sitesOf keeps what fileSites found.
var sitesOf sync.Map

// fileSites are the file offsets of a file's system-call instructions, by objdump.
func fileSites(t testing.TB, path string) []uint64 {
	t.Helper()
	if known, ok := sitesOf.Load(path); ok {
		return known.([]uint64)
	}
	out, err := exec.Command("objdump", "-d", "--no-show-raw-insn", path).Output()
	if err != nil {
		t.Fatalf("objdump %s: %v", path, err)
	}
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var all []uint64
	for _, m := range mnemonic.FindAllSubmatch(out, -1) {
		at, err := strconv.ParseUint(string(m[1]), 16, 64)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range f.Progs {
			if p.Type == elf.PT_LOAD && at >= p.Vaddr && at < p.Vaddr+p.Filesz {
				all = append(all, at-p.Vaddr+p.Off)
			}
		}
	}
	sitesOf.Store(path, all)
	return all
}

// sigreturn is what stands in front of the system call that signal handlers return to: mov
// $15,%rax.
var sigreturn = []byte{0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0}

// syscallSites are the addresses of all system-call instructions in the code of a process. What
// objdump says they are must be one to us, too.
func syscallSites(t testing.TB, pid int) []arch.Addr {
	t.Helper()
	maps, err := procfs.Maps(pid)
	if err != nil {
		t.Fatal(err)
	}
	var all []arch.Addr
	for _, m := range maps {
		if !m.Exec || !filepath.IsAbs(m.Path) {
			continue
		}
		code := make([]byte, m.Range.Len())
		if err := (ptrace.PeekMemory{PID: pid}).ReadMemory(m.Range.Start, code); err != nil {
			t.Fatal(err)
		}
		for _, off := range fileSites(t, m.Path) {
			if off < m.Offset || off >= m.Offset+m.Range.Len() {
				continue
			}
			if bytes.HasSuffix(code[:off-m.Offset], sigreturn) {
				continue // blacklisted
			}
			at := m.Range.Start + arch.Addr(off-m.Offset)
			insn, err := host.Arch.Decode(code[off-m.Offset:], at)
			if err != nil || insn.Flow != arch.FlowSyscall {
				t.Errorf("%s, %s: objdump says that it is a system call, we say %v, %v", m.Path, at, insn, err)
			}
			all = append(all, at)
		}
	}
	if len(all) < 300 {
		t.Fatalf("only %d system calls in %v", len(all), maps)
	}
	return all
}

// answer sends a command and returns what is printed until "did".
func answer(prog *testprog.Prog, command string) []string {
	prog.Send(command)
	return untilDid(prog)
}

func compareAnswers(t testing.TB, command string, got, want []string) {
	t.Helper()
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || got[i] != want[i] {
			t.Errorf("%s: %q, want %q", command, got[min(i, len(got)):], want[min(i, len(want)):])
			return
		}
	}
}

// probeAll registers a probe at every address, at once.
func probeAll(t testing.TB, s *kprobes.Session, m mode, sites []arch.Addr) []*kprobes.Kprobe {
	t.Helper()
	var kps []*kprobes.Kprobe
	for _, at := range sites {
		kps = append(kps, m.probeAt(at))
	}
	register(t, s, kps...)
	return kps
}

func hitsOf(kps []*kprobes.Kprobe) (hits uint64, sites int) {
	for _, kp := range kps {
		if n := kp.Hits(); n > 0 {
			hits += n
			sites++
		}
	}
	return hits, sites
}

// TestAllSystemCallsAtOnce: every system-call instruction of libc, the dynamic linker and the
// program is probed while the program forks, vforks, executes, makes threads, blocks and takes
// signals. All results are those of an unprobed run.
func TestAllSystemCallsAtOnce(t *testing.T) {
	commands := []string{"processes", "interrupt", "signals 200", "same 200", "facts", "raw 500", "block", "wake", "processes"}
	for _, follow := range []bool{false, true} {
		for _, m := range modes {
			t.Run(fmt.Sprintf("%s/follow=%v", m, follow), func(t *testing.T) {
				prog := start(t, "callsites")
				want := map[string][]string{}
				for _, c := range commands {
					want[c] = answer(prog, c)
				}
				s := attach(t, prog.PID(), kprobes.Options{Follow: follow})
				kps := probeAll(t, s, m, syscallSites(t, prog.PID()))
				for _, c := range commands {
					compareAnswers(t, c, answer(prog, c), want[c])
				}
				hits, sites := hitsOf(kps)
				t.Logf("%d sites, %d of them hit, %d hits", len(kps), sites, hits)
				if sites < 40 || hits < 2000 {
					t.Errorf("%d hits of %d sites, want 2000 and 40 at least", hits, sites)
				}
				closeSession(t, s)
				prog.CheckClean()
				for _, c := range commands {
					compareAnswers(t, c, answer(prog, c), want[c])
				}
				wantRight(t, prog)
			})
		}
	}
}

// TestAllSystemCallsUnderSignals: the same while signals arrive all the time, which interrupt
// calls that the kernel restarts.
func TestAllSystemCallsUnderSignals(t *testing.T) {
	for _, m := range modes {
		t.Run(string(m), func(t *testing.T) {
			prog := start(t, "callsites")
			want := answer(prog, "processes")
			s := attach(t, prog.PID(), kprobes.Options{})
			probeAll(t, s, m, syscallSites(t, prog.PID()))
			stop := flood(prog)
			compareAnswers(t, "processes", answer(prog, "processes"), want)
			prog.Do("same 50", "did")
			stop()
			closeSession(t, s)
			wantRight(t, prog)
		})
	}
}

// TestExecutionAndExitByProbedCalls: execve of the program itself, and its exit_group.
func TestExecutionAndExitByProbedCalls(t *testing.T) {
	for _, m := range modes {
		t.Run(string(m), func(t *testing.T) {
			prog := start(t, "callsites")
			s := attach(t, prog.PID(), kprobes.Options{})
			probeAll(t, s, m, syscallSites(t, prog.PID()))
			prog.Do("exec", "readyagain")
			closeSession(t, s)
			s = attach(t, prog.PID(), kprobes.Options{})
			probeAll(t, s, m, syscallSites(t, prog.PID()))
			prog.Send("leave 23")
			if e := prog.Wait(); e != (testprog.Exit{Status: 23}) {
				t.Errorf("the program ended with %+v, want status 23", e)
			}
		})
	}
}

// TestHandlersChangeACall: a PreHandler changes the number of a call or skips it, a PostHandler
// sees the result and changes it.
func TestHandlersChangeACall(t *testing.T) {
	prog := start(t, "callsites")
	var pid, parent uint64
	who := prog.Do("who", "pid")
	if _, err := fmt.Sscanf(who, "pid %d parent %d", &pid, &parent); err != nil {
		t.Fatal(err)
	}
	prog.Expect("did")
	result := func(nr int) uint64 {
		r := number(t, prog.Do(fmt.Sprintf("one %d", nr), "result"), "result")
		prog.Expect("did")
		return r
	}
	s := attach(t, prog.PID(), kprobes.Options{})
	with := func(pre kprobes.PreHandler, post kprobes.PostHandler, want uint64) {
		t.Helper()
		kp := &kprobes.Kprobe{SymbolName: "raw_site", PreHandler: pre, PostHandler: post}
		register(t, s, kp)
		if got := result(unix.SYS_GETPID); got != want {
			t.Errorf("the result is %d, want %d", got, want)
		}
		wantHits(t, kp, 1)
		if err := s.UnregisterKprobe(kp); err != nil {
			t.Error(err)
		}
	}
	with(nil, nil, pid)
	change := func(_ *kprobes.Kprobe, r *kprobes.Regs) int { r.Set("rax", unix.SYS_GETPPID); return 0 }
	with(change, nil, parent)
	var seen, ip uint64
	with(change, func(kp *kprobes.Kprobe, r *kprobes.Regs, _ uint64) {
		seen, ip = r.ReturnValue(), uint64(r.IP()-kp.Addr)
		r.SetReturnValue(4711)
	}, 4711)
	if seen != parent || ip != 2 {
		t.Errorf("the PostHandler saw the result %d at %d, want %d at 2", seen, ip, parent)
	}
	with(func(kp *kprobes.Kprobe, r *kprobes.Regs) int {
		r.SetReturnValue(99)
		r.Set("rcx", uint64(kp.Addr)+2) // as the call leaves it; the program looks
		flags, _ := r.Get("eflags")
		r.Set("r11", flags)
		r.SetIP(kp.Addr + 2)
		return 1
	}, nil, 99)
	closeSession(t, s)
	wantRight(t, prog)
}

// TestFilteredCallTellsItsAddress: SIGSYS names the address behind the system call, whether a
// seccomp filter raises it or syscall user dispatch, which lets calls from some addresses pass.
func TestFilteredCallTellsItsAddress(t *testing.T) {
	for _, command := range []string{"dispatch", "only"} {
		unprobed := start(t, "callsites")
		want := answer(unprobed, command)
		for _, m := range modes {
			t.Run(command+"/"+string(m), func(t *testing.T) {
				prog := start(t, "callsites")
				s := attach(t, prog.PID(), kprobes.Options{})
				register(t, s, m.probe("raw_site"), m.probe("raw_other"))
				for range 3 {
					compareAnswers(t, command, answer(prog, command), want)
				}
				closeSession(t, s)
				wantRight(t, prog)
			})
		}
	}
}
