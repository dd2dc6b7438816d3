package bench

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/internal/procfs"
)

// The target is the program whose calls are measured: this executable, started again, with
// the image mapped. It says "ready TID", the thread that makes the calls. Commands on standard
// input, one line of answer each:
//
//	pin CPU              keeps the thread on a processor: "ok"
//	hot FUNCTION N       calls the function N times: "ns X", per call
//	own FUNCTION N T     the same on each of T threads, in the threads' own time
//	trap N               executes a breakpoint N times: "ns X", each
//	counted              what the hand-written detours have counted and recorded: "calls C R"
//	burn                 keeps the thread busy until the input ends: "ok"
//	clean                "ok" if the code is what it was and nothing else was mapped

// A block is what a thread's calls work on; see the code in arch.
const (
	blockSize   = 4096 + 64<<10
	counterWord = 64
	ringWord    = 128
	ringEntry   = 256
	linkWord    = 192 // points to the block's beginning
)

// targetSide is the target's state.
type targetSide struct {
	image  []byte // the mapping
	file   []byte
	blocks [][]byte
}

// runTarget is the target's main program.
func runTarget(path string, in io.Reader, out io.Writer) error {
	runtime.LockOSThread()
	debug.SetGCPercent(-1) // the collector's signals would be stops
	t, err := mapImage(path)
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "ready", unix.Gettid())
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		answer, err := t.command(lines.Text())
		if err != nil {
			answer = "error " + err.Error()
		}
		fmt.Fprintln(out, answer)
		if answer == burning {
			burn(in)
		}
	}
	return nil
}

func mapImage(path string) (*targetSide, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	file, err := io.ReadAll(f)
	if err != nil {
		return nil, err
	}
	m, err := unix.Mmap(int(f.Fd()), 0, len(file), unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE)
	if err != nil {
		return nil, fmt.Errorf("mapping %s: %w", path, err)
	}
	return &targetSide{image: m, file: file}, nil
}

func (t *targetSide) command(line string) (string, error) {
	what, rest, _ := strings.Cut(line, " ")
	if what == "hot" || what == "own" {
		name, n, threads := "", 0, 1
		if count, err := fmt.Sscanf(rest, "%s %d %d", &name, &n, &threads); count < 2 {
			return "", err
		}
		fn, err := t.entry(name)
		switch {
		case err != nil:
			return "", err
		case what == "hot":
			return t.alone("hot", n, fn)
		}
		return t.crowd(n, threads, fn)
	}
	n, _ := strconv.Atoi(rest)
	switch what {
	case "pin":
		return "ok", pinThread(n)
	case "trap":
		return t.alone("trap", n, 0)
	case "counted":
		return t.counted(), nil
	case "burn":
		return burning, nil
	case "clean":
		return "ok", t.clean()
	}
	return "", fmt.Errorf("there is no command %q", line)
}

const burning = "ok, burning"

// burn is busy until the input ends.
func burn(in io.Reader) {
	go func() {
		_, _ = io.Copy(io.Discard, in)
		os.Exit(0)
	}()
	for turns := uint64(0); ; turns++ {
		spun.Store(turns)
	}
}

var spun atomic.Uint64

func pinThread(cpu int) error {
	var one unix.CPUSet
	one.Set(cpu)
	return unix.SchedSetaffinity(0, &one)
}

// entry is the address of a function of the image.
func (t *targetSide) entry(name string) (uintptr, error) {
	off, err := offsetOf(name)
	return addrOf(t.image) + uintptr(off), err
}

func addrOf(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// block is the n-th thread's.
func (t *targetSide) block(n int) (uintptr, error) {
	for len(t.blocks) <= n {
		b, err := unix.Mmap(-1, 0, blockSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
		if err != nil {
			return 0, err
		}
		*(*uintptr)(unsafe.Pointer(&b[linkWord])) = addrOf(b)
		t.blocks = append(t.blocks, b)
	}
	return addrOf(t.blocks[n]), nil
}

// alone calls a loop of n turns on this thread.
func (t *targetSide) alone(loop string, n int, fn uintptr) (string, error) {
	at, err := t.entry(loop)
	if err != nil {
		return "", err
	}
	block, err := t.block(0)
	if err != nil {
		return "", err
	}
	start := time.Now()
	host.Enter(at, block, uintptr(n), fn)
	return perCall(time.Since(start), n), nil
}

// crowd calls fn n times on each of so many threads at once. It tells the threads' own
// time, which does not depend on the number of processors and their load.
func (t *targetSide) crowd(n, threads int, fn uintptr) (string, error) {
	at, err := t.entry("hot")
	if err != nil {
		return "", err
	}
	if _, err := t.block(threads - 1); err != nil {
		return "", err
	}
	if threads == 1 {
		block, _ := t.block(0)
		start := threadTime()
		host.Enter(at, block, uintptr(n), fn)
		return perCall(threadTime()-start, n), nil
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(threads + 2))
	var ready, done sync.WaitGroup
	var sum atomic.Int64
	ready.Add(threads)
	for i := range threads {
		done.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			block, _ := t.block(i)
			ready.Done()
			ready.Wait()
			start := threadTime()
			host.Enter(at, block, uintptr(n), fn)
			sum.Add(int64(threadTime() - start))
		})
	}
	done.Wait()
	return perCall(time.Duration(sum.Load()), n*threads), nil
}

// threadTime is for how long the calling thread has run.
func threadTime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
		panic(err) // every Linux has it
	}
	return time.Duration(ts.Nano())
}

func perCall(d time.Duration, n int) string {
	return fmt.Sprintf("ns %g", float64(d.Nanoseconds())/float64(max(n, 1)))
}

// counted sums up what the blocks hold.
func (t *targetSide) counted() string {
	var calls, counts, records uint64
	for _, b := range t.blocks {
		word := func(at int) uint64 { return *(*uint64)(unsafe.Pointer(&b[at])) }
		calls, counts, records = calls+word(0), counts+word(counterWord), records+word(ringWord)/ringEntry
	}
	return fmt.Sprintf("%d %d %d", calls, counts, records)
}

// clean says what a tracer has left.
func (t *targetSide) clean() error {
	if !bytes.Equal(t.image, t.file) {
		return errors.New("the code was not put back")
	}
	maps, err := procfs.Maps(os.Getpid())
	for _, m := range maps {
		if strings.HasPrefix(m.Path, "/memfd:gokprobe") {
			err = fmt.Errorf("%s is still mapped", m.Path)
		}
	}
	return err
}
