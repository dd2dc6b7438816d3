package kprobes_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
)

// heldBy names the process that TestHolder is to attach to, and howHeldEnds how it is to end.
const heldBy, howHeldEnds = "GOKPROBE_HELD_BY", "GOKPROBE_HELD_ENDS"

// TestEveryEndOfAProgramDetaches: signals, a return that forgets Close, and a panic leave the target as it was found.
func TestEveryEndOfAProgramDetaches(t *testing.T) {
	for _, end := range []struct {
		how    string
		signal syscall.Signal
		status string // what the program's own end is
	}{
		{"SIGINT", syscall.SIGINT, "exit status 7"},
		{"SIGTERM", syscall.SIGTERM, "exit status 7"},
		{"SIGQUIT", syscall.SIGQUIT, "exit status 7"},
		{"SIGHUP", syscall.SIGHUP, "exit status 7"},
		{"return", 0, "exit status 7"},
		{"panic", 0, "exit status 2"},
	} {
		t.Run(end.how, func(t *testing.T) {
			prog := start(t, "prey")
			cmd := exec.Command(os.Args[0], "-test.run=^TestHolder$")
			cmd.Env = append(os.Environ(), heldBy+"="+strconv.Itoa(prog.PID()), howHeldEnds+"="+end.how)
			var said strings.Builder
			cmd.Stderr = &said
			out, err := cmd.StdoutPipe()
			if err == nil {
				err = cmd.Start()
			}
			if err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewScanner(out)
			for lines.Scan() && lines.Text() != "armed" {
			}
			prog.Do("call foo 4", "ret 9")
			if end.signal != 0 {
				if err := cmd.Process.Signal(end.signal); err != nil {
					t.Error(err)
				}
				if signal.Ignored(end.signal) { // the tests run under nohup, and so does the program: it goes on
					if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
						t.Errorf("after a SIGHUP that is ignored: %v", err)
					}
				}
			}
			for lines.Scan() {
			}
			if err := cmd.Wait(); err == nil || err.Error() != end.status {
				t.Errorf("the program ends with %v, want %s", err, end.status)
			}
			if strings.Contains(said.String(), "on purpose") != (end.how == "panic") {
				t.Errorf("after %s it says %q", end.how, said.String())
			}
			prog.CheckClean()
			prog.Do("call foo 4", "ret 9")
		})
	}
}

// TestHolder is not a test but the program of TestEveryEndOfAProgramDetaches.
func TestHolder(t *testing.T) {
	pid, err := strconv.Atoi(os.Getenv(heldBy))
	if err != nil {
		return
	}
	over := make(chan struct{})
	go func() { // the testing package would see to a panic itself
		heldProgram(pid, os.Getenv(howHeldEnds))
		close(over) // not after a panic, which ends the program
	}()
	<-over
	os.Exit(7)
}

func heldProgram(pid int, end string) {
	ctx, stop := kprobes.Context()
	defer stop()
	s, err := kprobes.Attach(ctx, pid, kprobes.Options{})
	if err != nil {
		panic(err)
	}
	if err := s.RegisterKprobe(&kprobes.Kprobe{SymbolName: "foo"}); err != nil {
		panic(err)
	}
	fmt.Println("armed")
	switch end {
	case "return":
	case "panic":
		panic("on purpose")
	default:
		<-ctx.Done()
	}
}

// TestStopWaitsForAllSessions, and for attaches that are given up.
func TestStopWaitsForAllSessions(t *testing.T) {
	ctx, stop := kprobes.Context()
	progs := []*testprog.Prog{start(t, "prey"), start(t, "prey")}
	var sessions []*kprobes.Session
	for _, p := range progs {
		s, err := kprobes.Attach(ctx, p.PID(), kprobes.Options{Log: testprog.NoWarnings(t)})
		if err != nil {
			t.Fatal(err)
		}
		register(t, s, &kprobes.Kprobe{SymbolName: "foo"})
		sessions = append(sessions, s)
	}
	closeSession(t, sessions[0])
	stop()
	for _, p := range progs {
		p.CheckClean()
	}
	if _, err := kprobes.Attach(ctx, progs[0].PID(), kprobes.Options{}); err == nil {
		t.Error("something is attached to after stop")
	}
	stop() // does nothing
}
