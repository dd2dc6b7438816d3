package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/internal/testprog"
)

// gate is an output that takes nothing until it is opened.
type gate struct {
	open chan struct{}
	mu   sync.Mutex
	bytes.Buffer
	err error
}

func (g *gate) Write(p []byte) (int, error) {
	<-g.open
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.err != nil {
		return 0, g.err
	}
	return g.Buffer.Write(p)
}

func TestConsoleNeverBlocksAndTellsWhatItLost(t *testing.T) {
	g := &gate{open: make(chan struct{})}
	c := newConsole(g)
	message := strings.Repeat("x", 1<<20-1) + "\n"
	const sent = 12
	for range sent {
		if n, err := c.Write([]byte(message)); n != len(message) || err != nil {
			t.Fatal(n, err)
		}
	}
	close(g.open)
	c.flush()
	_, _ = io.WriteString(c, "and more\n")
	c.flush()
	got := g.String()
	told := regexp.MustCompile(`(?m)^gokprobe: ([4-8]) messages lost here, since stderr was read too slowly\n`).FindStringSubmatch(got)
	taken := strings.Count(got, message)
	// The goroutine may have taken the first ones before the others came.
	if told == nil || sent-taken != int(told[1][0]-'0') || !strings.HasSuffix(got, "\nand more\n") {
		t.Errorf("%d messages were taken, the rest is told as %q", taken, told)
	}
}

// TestOneMessageOfAnySizeIsTaken: as the summary of 40,000 probes, which has six megabytes.
func TestOneMessageOfAnySizeIsTaken(t *testing.T) {
	g := &gate{open: make(chan struct{})}
	close(g.open)
	c := newConsole(g)
	message := strings.Repeat("x", 2*consoleLimit) + "\n"
	_, _ = io.WriteString(c, message)
	c.flush()
	if got := g.String(); got != message {
		t.Errorf("%d of %d bytes came", len(got), len(message))
	}
}

// TestWhoCanWaitLosesNothing: more than may wait, while others fill what there is.
func TestWhoCanWaitLosesNothing(t *testing.T) {
	g := &gate{open: make(chan struct{})}
	c := newConsole(g)
	_, _ = io.WriteString(c, strings.Repeat("y", consoleLimit-1)+"\n")
	const rows = 100000
	done := make(chan struct{})
	go func() {
		defer close(done)
		var table strings.Builder
		for i := range rows {
			fmt.Fprintf(&table, "row %d of a table that is larger than what may wait for a reader, and comes in pieces\n", i)
		}
		_, _ = io.WriteString(patient{c}, table.String())
	}()
	close(g.open)
	<-done
	c.flush()
	got := g.String()
	if n := strings.Count(got, " of a table "); n != rows || strings.Contains(got, "lost") || !strings.HasSuffix(got, "in pieces\n") {
		t.Errorf("%d of %d rows came", n, rows)
	}
}

// TestWhoCanWaitDoesNotWaitForAReaderThatHasGone would hang.
func TestWhoCanWaitDoesNotWaitForAReaderThatHasGone(t *testing.T) {
	g := &gate{open: make(chan struct{}), err: errors.New("gone")}
	c := newConsole(g)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.WriteString(patient{c}, strings.Repeat("x", 4*consoleLimit))
	}()
	close(g.open)
	<-done
	c.flush()
}

func TestConsoleGivesUpAfterAnError(t *testing.T) {
	g := &gate{open: make(chan struct{}), err: errors.New("gone")}
	close(g.open)
	c := newConsole(g)
	for range 3 {
		_, _ = io.WriteString(c, "a message\n")
		c.flush()
	}
	if !c.isBroken || c.pending != nil {
		t.Errorf("it still waits with %d bytes", len(c.pending))
	}
}

// fullPipe is a pipe that takes nothing more.
func fullPipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	size, err := unix.FcntlInt(w.Fd(), unix.F_GETPIPE_SZ, 0)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := w.Write(bytes.Repeat([]byte("x"), size)); n != size || err != nil {
		t.Fatal(n, err)
	}
	return r, w
}

// TestAStderrThatNobodyReadsHoldsNoTarget: the warning is told on the tracer's thread, at a hit.
func TestAStderrThatNobodyReadsHoldsNoTarget(t *testing.T) {
	p := fails(t)
	before := testprog.TakeSnapshot(t, p.PID())
	r, w := fullPipe(t)
	cmd := command(t, "inject", "-p", pidOf(p), "-sym", "work", "-set", "$arg1=$arg1", "-poke", "0x10=0x00", "-no-optimize")
	cmd.Stderr = w
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	hit := make(chan string, 1)
	go func() {
		b := make([]byte, 1000)
		n, _ := out.Read(b)
		hit <- string(b[:n])
	}()
	for line := ""; line == ""; { // nothing tells when it is armed
		p.Do("run 5", "failed")
		select {
		case line = <-hit:
			if !strings.Contains(line, "=> set $arg1=") {
				t.Fatalf("stdout is %q", line)
			}
		default:
		}
	}
	if got := p.Do("run 5", "failed"); got != "failed 0:" {
		t.Error(got)
	}
	var said []byte
	for b := make([]byte, 4096); !bytes.Contains(said, []byte("armed: 1 probe")); { // the first hit may come before the command knows that it is armed
		n, err := r.Read(b)
		if err != nil {
			t.Fatalf("%v, stderr is %q", err, bytes.TrimLeft(said, "x"))
		}
		said = append(said, b[:n]...)
	}
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	said = append(said, rest...)
	if err := cmd.Wait(); err != nil || bytes.Count(said, []byte(" was not done: ")) != 1 || !bytes.Contains(said, []byte("\nFAULT ")) {
		t.Errorf("%v, stderr is %q", err, bytes.TrimLeft(said, "x"))
	}
	before.Compare(t, p.PID())
	p.CheckClean()
	p.Quit()
}

func TestAClosedStderrChangesNoExitStatus(t *testing.T) {
	p := prey(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	for d := 50 * time.Millisecond; ; d *= 4 { // on a slow machine the first ones are not armed in time
		cmd := command(t, "attach", "-p", pidOf(p), "-sym", "foo", "-duration", d.String())
		cmd.Stderr = w
		err := cmd.Run()
		if cmd.ProcessState.ExitCode() == 3 {
			continue
		}
		if err != nil {
			t.Error(err)
		}
		break
	}
	w.Close()
	p.CheckClean()
	p.Quit()
}
