package hostile

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/internal/budget"
)

// mostMemory and mostTime are the limits for one file.
const mostMemory = 512_000_000 // bytes, resident

// mostTime is five seconds of processor time where a system call takes the 0.1 to 0.3 µs that it does on a processor, and one that reads memory of a process
// less than a microsecond; and more, in proportion, under hypervisors where these take several times as long.
var mostTime = sync.OnceValue(func() time.Duration {
	const usual, usualRead = 400 * time.Nanosecond, time.Microsecond
	memory, err := os.Open("/proc/self/mem")
	if err != nil {
		panic(err)
	}
	defer memory.Close()
	word := make([]byte, 8)
	at := int64(uintptr(unsafe.Pointer(&word[0])))
	call := costOf(func() { unix.Getppid() })
	read := costOf(func() { _, _ = unix.Pread(int(memory.Fd()), word, at) })
	return 5 * max(time.Second, time.Second*call/usual, time.Second*read/usualRead)
})

// costOf is the processor time of a call, at best.
func costOf(call func()) time.Duration {
	const calls = 50_000
	cost := time.Duration(1 << 62)
	for range 3 {
		begin := processorTime()
		for range calls {
			call()
		}
		cost = min(cost, (processorTime()-begin)/calls)
	}
	return cost
}

const childEnv = "GOKPROBE_HOSTILE_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		child()
		return
	}
	if os.Getenv(liveEnv) != "" {
		runLimited(os.Args[1:])
		return
	}
	os.Exit(m.Run())
}

// child reads files whose names come line by line, and says for each what it took.
func child() {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(budget.Memory) // as the command does
	}
	// An allocation that no memory backs is not seen in what is resident.
	const data = 4 << 30
	if err := unix.Setrlimit(unix.RLIMIT_DATA, &unix.Rlimit{Cur: data, Max: data}); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		runtime.GC()
		debug.FreeOSMemory()
		_ = os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) // the peak begins anew; not every kernel has it
		begin := processorTime()
		stop := watch(begin)
		said := read(in.Text())
		close(stop)
		fmt.Printf("done %d %d %s\n", processorTime()-begin, peak(), strings.ReplaceAll(said, "\n", " "))
	}
}

func processorTime() time.Duration {
	var r unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &r); err != nil {
		return 0
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// watch ends the process when a file takes twice what it may, with the stacks of all goroutines.
func watch(begin time.Duration) chan struct{} {
	stop := make(chan struct{})
	go func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(50 * time.Millisecond):
			}
			if processorTime()-begin > 2*mostTime() {
				b := make([]byte, 1<<16)
				fmt.Fprintf(os.Stderr, "hangs:\n%s\n", b[:runtime.Stack(b, true)])
				os.Exit(3)
			}
		}
	}()
	return stop
}

// peak is how much memory was resident at most, in bytes.
func peak() uint64 {
	b, _ := os.ReadFile("/proc/self/status")
	_, rest, _ := bytes.Cut(b, []byte("VmHWM:"))
	kb, _ := strconv.ParseUint(string(bytes.Fields(append(rest, " 0"...))[0]), 10, 64)
	return kb << 10
}

// reader is a child that reads files.
type reader struct {
	cmd *exec.Cmd
	in  interface{ Write([]byte) (int, error) }
	out *bufio.Scanner
	err bytes.Buffer
}

func start(t testing.TB) *reader {
	t.Helper()
	exe, err := os.Executable()
	must(t, err)
	r := &reader{cmd: exec.Command(exe, "-test.run=^$")}
	r.cmd.Env = append(os.Environ(), childEnv+"=1", "GOTRACEBACK=single")
	r.cmd.Stderr = &r.err
	in, err := r.cmd.StdinPipe()
	must(t, err)
	out, err := r.cmd.StdoutPipe()
	must(t, err)
	r.in, r.out = in, bufio.NewScanner(out)
	r.out.Buffer(nil, 1<<20)
	must(t, r.cmd.Start())
	t.Cleanup(func() {
		in.Close()
		_ = r.cmd.Wait() // it may have ended before, which is told of where it matters
	})
	return r
}

// cost is what a file took.
type cost struct {
	time   time.Duration
	memory uint64
	said   string
}

// read has the child read a file. The error says how it ended.
func (r *reader) read(file string) (c cost, err error) {
	if _, err := fmt.Fprintln(r.in, file); err != nil {
		return c, err
	}
	if !r.out.Scan() {
		err := r.cmd.Wait()
		text := r.err.String()
		return c, fmt.Errorf("%w\n%s", err, text[:min(len(text), 6000)])
	}
	f := strings.SplitN(r.out.Text(), " ", 4)
	if len(f) != 4 || f[0] != "done" {
		return c, fmt.Errorf("it said %q", r.out.Text())
	}
	ns, _ := strconv.ParseInt(f[1], 10, 64)
	c.time, c.said = time.Duration(ns), f[3]
	c.memory, _ = strconv.ParseUint(f[2], 10, 64)
	switch {
	case c.time > mostTime():
		err = fmt.Errorf("it took %v of processor time (%s)", c.time, c.said)
	case c.memory > mostMemory:
		err = fmt.Errorf("it took %d MB (%s)", c.memory/1_000_000, c.said)
	}
	return c, err
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
