//go:build linux

package testprog

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
)

// Every fixture runs unprobed first: what it says then is what a probed run is
// compared with.
func TestEveryFixtureIsRightWhenNobodyProbesIt(t *testing.T) {
	tests := []struct {
		name  string
		flags []string
		args  []string
		talk  [][2]string // command, answer
	}{
		{"prey", nil, nil, [][2]string{{"call target 9", "ret 3"}, {"call six 1", "ret 21"}, {"call string 0", "ret 4"}, {"call recurse 50", "ret 50"}, {"threads 8 1000 target", thirds(8, 1000)}, {"call stack_driver 9", "ret 3"}, {"stack", "stack 0x"}}},
		{"prey", []string{"-static"}, nil, [][2]string{{"threads 2 10 foo", "sum 200 count 20"}}},
		{"prey", []string{"-static-pie", "-fcf-protection=branch"}, nil, [][2]string{{"call target2 9", "ret 4"}}},
		{"prey", []string{"-O0", "-no-pie", "-fno-omit-frame-pointer"}, nil, [][2]string{{"call foo 1", "ret 3"}}},
		{"threads", nil, []string{"16"}, [][2]string{{"go 100", "went 1600"}, {"start\nstop", "calls "}, {"go 1", "went 16"}}},
		{"signals", nil, []string{"default"}, [][2]string{{"run 1000", "ran 1000 alarms "}}},
		{"signals", nil, []string{"blocked"}, [][2]string{{"run 1000", "ran 1000 alarms "}}},
		{"signals", nil, []string{"ignored"}, [][2]string{{"run 1000", "ran 1000 alarms "}}},
		{"signals", nil, []string{"handled"}, [][2]string{{"run 1000", "ran 1000 alarms "}}},
		{"churn", nil, nil, [][2]string{{"count", "count "}}},
		{"forker", nil, nil, [][2]string{{"run 20", "ran 80"}}},
		{"execer", nil, nil, [][2]string{{"call 1", "ret 14"}, {"exec", "ready 1"}, {"execthread", "ready 2"}, {"call 2", "ret 27"}}},
		{"leader", nil, nil, [][2]string{{"call 1", "ret 18"}}},
		{"busy64", nil, []string{"16"}, [][2]string{{"count", "count "}}},
		{"syscalls", nil, []string{"60"}, [][2]string{{"wake", "all"}}},
		{"cxx", nil, nil, [][2]string{{"call 3", "ret 31"}, {"threads 4 100", "sum "}}},
		{"gosrv", nil, nil, [][2]string{{"call 9", "ret 3"}, {"threads 8 1000", thirds(8, 1000)}, {"deep 5000", "ret 5000"}}},
		{"interrupts", nil, nil, [][2]string{{"pause 3", "did"}, {"handler", "did"}, {"own", "did 1 traps 1"}, {"queue 100", "did 100"}, {"step", "did "}, {"divide\nhello", "did "}}},
		{"many", nil, nil, [][2]string{{"call 2", "called"}, {"start\nwait 3", "started"}, {"stop", "calls "}}},
		{"rough", nil, nil, [][2]string{{"rough 7", "did"}}},
		{"faults", nil, nil, [][2]string{{"list", "label h_back "}, {"run load_gap", "load_gap skip: end "}, {"breakpoints", "traps 2"}}},
		{"traceflag", nil, nil, [][2]string{{"run", "step 1e "}, {"threads 4 20", "did"}, {"plain 4 20", "did"}}},
		{"callsites", nil, nil, [][2]string{{"processes", "fork 41"}, {"interrupt", "semop restart: -1"}, {"same 100", "did"}, {"block\nwake", "read 1 "}, {"facts", "syscall right 1"}, {"dispatch", "sigsys 31"}}},
		{"ownerrno", nil, nil, [][2]string{{"go 30", "10 errno 0 0 asked 0"}}},
		{"errnos", nil, nil, [][2]string{{"go", "10 errno 0 others 0"}, {"thread", "10 errno 0 others 0"}, {"vfork", "10 errno 0 others 0"}}},
		{"effects", nil, nil, [][2]string{{"go 30", "ret 10"}, {"worker 30", "ret 10"}, {"vfork 30", "ret 10"}, {"deep 5", "ret 15"}, {"many 4", "sum 40"}, {"fork", "child 5"}, {"block", "blocked"}, {"go 3", "pending 0"}, {"signals", "signals 0"}, {"exec", "again"}}},
		{"nolibc", []string{"-static", "-nostdlib"}, nil, [][2]string{{"x", "ret 42"}}},
	}
	for _, tt := range tests {
		t.Run(strings.Join(append([]string{tt.name}, append(tt.flags, tt.args...)...), " "), func(t *testing.T) {
			t.Parallel()
			p := Start(t, Build(t, tt.name, tt.flags...), tt.args...)
			for _, c := range tt.talk {
				p.Do(c[0], c[1])
			}
			p.CheckClean()
			if last := p.Quit(); last != "right" {
				t.Errorf("last line %q", last)
			}
		})
	}
}

func thirds(threads, calls int) string {
	sum := 0
	for i := range calls {
		sum += i / 3
	}
	return fmt.Sprintf("sum %d count %d", threads*sum, threads*calls)
}

func TestBuildKeepsProgramsAndTellsFlagsApart(t *testing.T) {
	a, b, c := Build(t, "prey"), Build(t, "prey"), Build(t, "prey", "-O0")
	if a != b || a == c {
		t.Errorf("paths %s, %s, %s", a, b, c)
	}
	if _, err := build("no-such-fixture", nil); err == nil {
		t.Error("a fixture that is not there was built")
	}
	if _, err := build("prey", []string{"-fno-such-flag"}); err == nil || !strings.Contains(err.Error(), "no-such-flag") {
		t.Errorf("the compiler's complaint is lost: %v", err)
	}
}

func TestLinesBeforeTheExpectedOneAreKept(t *testing.T) {
	p := Start(t, Build(t, "prey"))
	p.Send("call foo 1\ncall foo 2\nstack")
	p.Expect("stack")
	if a, b := p.Line(), p.Line(); a != "ret 3" || b != "ret 5" {
		t.Errorf("lines %q, %q", a, b)
	}
}

func TestExitIsReportedAsItWas(t *testing.T) {
	p := Start(t, Build(t, "prey"))
	if err := p.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if e := p.Wait(); e != (Exit{Signal: syscall.SIGTERM}) {
		t.Errorf("exit %+v", e)
	}
	p = Start(t, Build(t, "prey"))
	p.Kill()
	if e := p.Wait(); e != (Exit{Signal: syscall.SIGKILL}) {
		t.Errorf("exit %+v", e)
	}
}

func TestAFixtureRunsAsAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to change the user")
	}
	p := StartWith(t, Options{UID: 65534}, Build(t, "prey"))
	info, err := os.Stat(fmt.Sprintf("/proc/%d", p.PID()))
	if err != nil || info.Sys().(*syscall.Stat_t).Uid != 65534 {
		t.Errorf("owner %+v, %v", info, err)
	}
	if p.Quit() != "right" {
		t.Error("it went wrong")
	}
}
