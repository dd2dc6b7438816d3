package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/trace"
)

// newTerminal is a pseudoterminal that changes nothing of what is written to it: what a program has in its hands, and the screen.
func newTerminal(t *testing.T) (tty, screen *os.File) {
	t.Helper()
	screen, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { screen.Close() })
	n := 0
	conn, err := screen.SyscallConn()
	if err == nil {
		err = conn.Control(func(fd uintptr) {
			if err = unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0); err == nil {
				n, err = unix.IoctlGetInt(int(fd), unix.TIOCGPTN)
			}
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tty.Close() })
	raw, err := unix.IoctlGetTermios(int(tty.Fd()), unix.TCGETS)
	if err == nil {
		raw.Oflag &^= unix.OPOST
		err = unix.IoctlSetTermios(int(tty.Fd()), unix.TCSETS, raw)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("TERM", "xterm")
	return tty, screen
}

// shows reads what comes to a screen, up to what it must come to.
func shows(t *testing.T, screen io.Reader, until string) string {
	t.Helper()
	var all strings.Builder
	for b := make([]byte, 1); !strings.HasSuffix(all.String(), until); {
		if _, err := screen.Read(b); err != nil {
			t.Fatalf("%q came, and then %v; want %q", all.String(), err, until)
		}
		all.Write(b)
	}
	return all.String()
}

func TestTheLineOfProgressStandsBelowAllMessages(t *testing.T) {
	tty, screen := newTerminal(t)
	c := newConsole(tty)
	step := func(f func()) {
		f()
		c.flush()
	}
	hits := c.above(tty)
	step(func() { c.setLine("arming: 1 of 3 places") })
	step(func() { c.setLine("arming: 1 of 3 places") })
	step(func() { c.setLine("arming: 2 of 3 places") })
	step(func() { fmt.Fprintln(c, "gokprobe: a warning") })
	step(func() { fmt.Fprintln(hits, "a hit") })
	step(func() { c.setLine("") })
	step(func() { fmt.Fprintln(hits, "another hit") })
	step(func() { fmt.Fprintln(c, "armed: 3 probes") })
	const want = "arming: 1 of 3 places" + eraseLine + "arming: 2 of 3 places" +
		eraseLine + "gokprobe: a warning\narming: 2 of 3 places" +
		eraseLine + "a hit\narming: 2 of 3 places" +
		eraseLine + "another hit\narmed: 3 probes\n"
	if got := shows(t, screen, "probes\n"); got != want {
		t.Errorf("the screen got %q\nwant %q", got, want)
	}
}

func TestWhereNoTerminalIsThereIsNoLineOfProgress(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	tty, screen := newTerminal(t)
	t.Setenv("TERM", "dumb")
	for _, c := range []*console{newConsole(w), newConsole(tty)} {
		if p := (stdio{err: c}).progress("arming"); p != nil {
			t.Error("progress is told of")
		}
		c.setLine("arming")
		fmt.Fprintln(c, "armed")
		c.flush()
	}
	for name, from := range map[string]*os.File{"pipe": r, "screen": screen} {
		if got := shows(t, from, "\n"); got != "armed\n" {
			t.Errorf("the %s got %q", name, got)
		}
	}
}

// TestProgressIsThatOfAllSessions: it is shown when it has come, and not before.
func TestProgressIsThatOfAllSessions(t *testing.T) {
	var mu sync.Mutex
	var last string
	came := make(chan struct{}, 1)
	p := newProgress(func(line string) {
		mu.Lock()
		last = line
		mu.Unlock()
		select {
		case came <- struct{}{}:
		default:
		}
	}, time.Nanosecond, time.Nanosecond, "attaching")
	await := func(want string) {
		t.Helper()
		for {
			<-came
			mu.Lock()
			got := last
			mu.Unlock()
			if got == want {
				return
			}
		}
	}
	await("attaching")
	one, two := new(kprobes.Session), new(kprobes.Session)
	p.note(one, trace.Progress{Done: 1, Of: 3})
	await("checking: 1 of 3 places")
	p.note(two, trace.Progress{Done: 4, Of: 4, Arming: true})
	await("checking: 5 of 7 places")
	p.note(one, trace.Progress{Done: 2, Of: 3, Arming: true})
	await("arming: 6 of 7 places")
	p.end()
	await("")
	p.note(one, trace.Progress{Done: 3, Of: 3, Arming: true})
	p.end()
	if mu.Lock(); last != "" {
		t.Errorf("after the end it shows %q", last)
	}
	mu.Unlock()
}

// TestATerminalIsToldWhatTheCommandWaitsFor: a thread of the target is in state D, so attaching ends when the test wants.
func TestATerminalIsToldWhatTheCommandWaitsFor(t *testing.T) {
	p, hears := testprog.StartDeaf(t, 4)
	tty, screen := newTerminal(t)
	cmd := command(t, "attach", "-p", pidOf(p), "-sym", "foo", "-format", "json")
	var stdout strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, tty
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line := "attaching to " + pidOf(p)
	if got := shows(t, screen, line); got != line {
		t.Errorf("the screen got %q first", got)
	}
	_ = cmd.Process.Signal(syscall.SIGINT)
	const last = "interrupted before the probes were armed\n"
	if got := shows(t, screen, last); got != eraseLine+"gokprobe: "+last {
		t.Errorf("the screen got %q then", got)
	}
	if err := cmd.Wait(); err != nil || stdout.String() != "" {
		t.Errorf("%v, stdout %q", err, stdout.String())
	}
	hears()
	p.CheckClean()
	p.Quit()
}
