package kprobes_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/guardian"
	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/ptrace"
)

const (
	manyRecords  = "GOKPROBE_TEST_RECORDS"
	eachFunction = "GOKPROBE_TEST_FUNCTIONS"
)

// TestManyRecordsTracer is not a test but a process that probes some thousand instructions of the C library, or the functions of thousand.c, and waits to be killed.
func TestManyRecordsTracer(t *testing.T) {
	pid, err := strconv.Atoi(os.Getenv(manyRecords))
	if err != nil {
		return
	}
	calls := func(*kprobes.Kprobe, *kprobes.Regs) int { return 0 }
	s, err := kprobes.Attach(context.Background(), pid, kprobes.Options{NoOptimize: true, Log: func(m string) { fmt.Fprintln(os.Stderr, "tracer:", m) }})
	ok(t, err)
	defer s.Close()
	if os.Getenv(eachFunction) != "" {
		kps := make([]*kprobes.Kprobe, 1000)
		for i := range kps {
			kps[i] = &kprobes.Kprobe{SymbolName: fmt.Sprintf("fn_%03d", i), PreHandler: calls}
		}
		ok(t, s.RegisterKprobes(t.Context(), kps))
		fmt.Println("armed", len(kps))
		select {}
	}
	placed := 0
	for _, name := range []string{"getaddrinfo", "strptime", "qsort_r", "glob64", "regcomp", "regexec", "wordexp", "fnmatch", "getopt_long", "strfmon", "mktime", "realpath"} {
		locs, err := s.Symbols().Resolve(t.Context(), "libc.so.6:"+name+"+*")
		if err != nil {
			continue // another C library's
		}
		kps := probesOf(t, pid, locs[0].Every)
		if s.RegisterKprobes(t.Context(), kps) == nil { // else something there may not be probed
			placed += len(kps)
		}
	}
	ok(t, s.RegisterKprobe(&kprobes.Kprobe{SymbolName: "foo", PreHandler: calls}))
	fmt.Println("armed", placed+1)
	select {}
}

// probesOf are probes of all that lie in code.
func probesOf(t *testing.T, pid int, code arch.Range) (kps []*kprobes.Kprobe) {
	t.Helper()
	b := make([]byte, code.Len())
	ok(t, ptrace.PeekMemory{PID: pid}.ReadMemory(code.Start, b))
	for at := code.Start; at < code.End; {
		insn, err := host.Arch.Decode(b[at-code.Start:], at)
		if err != nil {
			return kps
		}
		kps = append(kps, &kprobes.Kprobe{Addr: at, PreHandler: func(*kprobes.Kprobe, *kprobes.Regs) int { return 0 }})
		at = insn.End()
	}
	return kps
}

// leaveRecords probes a process and is killed. It returns how many places were probed.
func leaveRecords(t *testing.T, prog *testprog.Prog, env ...string) (places int) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestManyRecordsTracer$", "-test.timeout=30m")
	cmd.Env = append(append(os.Environ(), manyRecords+"="+strconv.Itoa(prog.PID())), env...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	ok(t, err)
	ok(t, cmd.Start())
	line, _ := bufio.NewReader(out).ReadString('\n')
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if _, err := fmt.Sscanf(line, "armed %d", &places); err != nil {
		t.Fatalf("the tracer says %q", line)
	}
	return places
}

// TestALargeProcessIsRecovered: 3,000 records and 1,000 threads. What there is to do grows with the threads, and does not multiply with the records.
func TestALargeProcessIsRecovered(t *testing.T) {
	work := map[int]int{}
	for _, threads := range []int{100, 1000} {
		prog := start(t, "threads", strconv.Itoa(threads))
		prog.Do("go 1", fmt.Sprint("went ", threads))
		places := leaveRecords(t, prog)
		prog.Do("go 1", fmt.Sprint("went ", threads)) // by the guard
		done, n, err := kprobes.RecoverCounted(prog.PID())
		if err != nil || done.Regions != 1 || done.Kept != 0 || done.Patches < places || places < 3000 {
			t.Errorf("%d places, %d threads: %+v, %v", places, threads, done, err)
		}
		work[threads] = n
		prog.CheckClean()
		prog.Do("go 1", fmt.Sprint("went ", threads))
		wantRight(t, prog)
	}
	t.Log(work)
	if work[1000] > 11*work[100] || work[100] == 0 {
		t.Errorf("work by threads: %v", work)
	}
}

// TestATargetWithoutADescriptorOutlivesItsTracer: it can't have a memfd. What the guard knows of the places, more than the header has room for, lies among
// the slots then.
func TestATargetWithoutADescriptorOutlivesItsTracer(t *testing.T) {
	prog := start(t, "thousand")
	var before unix.Rlimit
	ok(t, unix.Prlimit(prog.PID(), unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 3, Max: 3}, &before))
	places := leaveRecords(t, prog, eachFunction+"=1")
	for range 2 {
		wantResult(t, prog.Do("mine", "mine"), "mine 1499500", "by the guard", 0)
	}
	done, err := kprobes.Recover(t.Context(), prog.PID())
	if err != nil || done.Regions != 1 || done.Kept != 0 || done.Patches < places {
		t.Errorf("%d places: %+v, %v", places, done, err)
	}
	prog.CheckClean()
	wantRight(t, prog)
}

// TestAGuardianRecoversSomeHeirsOnly: a program has made more children with memory that looks like a killed tracer's than can have been forked when it died.
func TestAGuardianRecoversSomeHeirsOnly(t *testing.T) {
	const more = 7
	prog := start(t, "forger", "heirs", strconv.Itoa(kprobes.MostHeirs+more))
	defer prog.Kill() // and its children
	g := startGuarded(t, prog.PID(), "GOKPROBE_SYMBOLS=main")
	end := guardian.Watch(g.guardian(0))
	defer end.Close()
	g.ask("armed")
	g.kill()
	for !end.Ended(time.Hour) {
	}
	children, err := procfs.Children(prog.PID(), prog.PID())
	ok(t, err)
	left := 0
	for _, pid := range children {
		if st, err := procfs.ReadStatus(pid, 0); err != nil || st.TracerPid != 0 {
			t.Errorf("process %d: %+v, %v", pid, st, err)
		}
		if hasForged(t, pid) {
			left++
		}
	}
	if len(children) != kprobes.MostHeirs+more || left != more {
		t.Errorf("%d of %d are left, want %d", left, len(children), more)
	}
	prog.CheckClean()
}

// hasForged tells whether a forger has its first region still.
func hasForged(t *testing.T, pid int) bool {
	t.Helper()
	const base = 0x200000100000
	maps, err := procfs.Maps(pid)
	ok(t, err)
	for _, m := range maps {
		if m.Range.Contains(base) {
			return true
		}
	}
	return false
}
