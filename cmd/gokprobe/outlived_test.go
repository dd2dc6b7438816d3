package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// fifo is a named pipe, and what writes a line into it. A shell that reads it waits for that.
func fifo(t *testing.T) (name string, write func()) {
	t.Helper()
	name = filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(name, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(name, os.O_RDWR, 0) // no end of the file for who reads
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return name, func() {
		if _, err := f.WriteString("go\n"); err != nil {
			t.Fatal(err)
		}
	}
}

// leaver is a shell that leaves a child when begin is called, with the status 3, and which ends when end is.
func leaver(t *testing.T) (command []string, begin, end func()) {
	t.Helper()
	first, begin := fifo(t)
	second, end := fifo(t)
	return []string{"sh", "-c", "read x < " + first + "; (read x < " + second + ") >/dev/null 2>&1 & exit 3"}, begin, end
}

// TestWhatIsLeftOfOneOfSeveralIsToldOf when that one has ended, and not when all have; and of one under a scenario.
func TestWhatIsLeftOfOneOfSeveralIsToldOf(t *testing.T) {
	scenario := scenarioFile(t, "kprobe('libc.so.6:malloc', pre = lambda ctx: None)")
	for _, does := range [][]string{
		{"attach", "-sym", "libc.so.6:malloc", "-count"},
		{"inject", "-sym", "libc.so.6:malloc", "-delay", "1us"},
		{"script", scenario},
		{"script", scenario, "one"},
	} {
		n := 2
		if len(does) == 3 && does[2] == "one" {
			n, does = 1, does[:2]
		}
		var who []string
		var shells []*exec.Cmd
		var begins, ends []func()
		for range n {
			command, begin, end := leaver(t)
			sh := exec.Command(command[0], command[1:]...)
			if err := sh.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = sh.Process.Kill() })
			who, shells = append(who, "-p", strconv.Itoa(sh.Process.Pid)), append(shells, sh)
			begins, ends = append(begins, begin), append(ends, end)
		}
		l := start(t, slices.Concat(does[:1], who, []string{"-follow"}, does[1:])...)
		begins[0]()
		if got := l.waitFor("gokprobe: process " + who[1] + " has ended, and what it has left is followed further"); !strings.Contains(got, "(1 process now)") {
			t.Errorf("%v: %q", does, got)
		}
		for i := range n {
			ends[i]()
			if i > 0 {
				begins[i]()
			}
			_ = shells[i].Wait()
		}
		if r := l.end(); r.status != 0 || strings.Count(r.stderr, "process "+who[1]+" has ended") != 1 {
			t.Errorf("%v: status %d, stderr %q", does, r.status, r.stderr)
		}
	}
}

// TestARunEndsWithASignalWhenItsCommandHasEnded: what that has left is followed until then, and the status is the command's.
func TestARunEndsWithASignalWhenItsCommandHasEnded(t *testing.T) {
	scenario := scenarioFile(t, "kprobe('libc.so.6:malloc', pre = lambda ctx: None)")
	for _, does := range [][]string{{"-sym", "libc.so.6:malloc", "-count"}, {"-script", scenario}} {
		for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
			command, begin, end := leaver(t)
			l := start(t, slices.Concat([]string{"run", "-follow"}, does, []string{"--"}, command)...)
			begin()
			for !strings.Contains(l.waitFor("gokprobe: process "), "what it has left is followed further (1 process now); an interrupt ends that") {
			}
			l.signal(sig)
			r := l.end()
			end()
			if r.status != 3 {
				t.Errorf("%v, %v: status %d, stderr %q", does, sig, r.status, r.stderr)
			}
		}
	}
}
