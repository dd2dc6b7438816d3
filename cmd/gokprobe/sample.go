package main

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gokprobe/gokprobe/internal/procfs"
)

// The sample is the target of demo and check: this executable, started again with sampleEnv
// set. It works, checks its own results, and says at the end whether anything has disturbed
// it. It does not know that it is probed.

const (
	sampleEnv     = "GOKPROBE_SAMPLE"
	sampleThreads = 4
	samplePace    = 350 * time.Millisecond // between two orders of a thread
)

// sample is the state that its threads share.
type sample struct {
	calls atomic.Int64
	wrong atomic.Int64
	quit  chan struct{}
}

// runSample is the sample's main. In mode "work" it serves orders until its input
// ends; in mode "once" it serves one order for each input line. It returns 0 if
// nothing was disturbed.
func runSample(mode string, in io.Reader, out io.Writer) int {
	before, err := textHash()
	if err != nil {
		fmt.Fprintln(out, "cannot read my own code:", err)
		return 1
	}
	s := &sample{quit: make(chan struct{})}
	var threads sync.WaitGroup
	if mode == "work" {
		for i := range sampleThreads {
			threads.Go(func() { s.work(i) })
		}
	}
	fmt.Fprintln(out, "ready")
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		s.checkOrder(int(s.calls.Load()))
		fmt.Fprintln(out, "served", s.calls.Load())
	}
	close(s.quit)
	threads.Wait()
	return s.report(out, before)
}

// work serves orders on a thread of its own.
func (s *sample) work(thread int) {
	runtime.LockOSThread()
	tick := time.NewTicker(samplePace)
	defer tick.Stop()
	for n := thread; ; n += sampleThreads {
		select {
		case <-s.quit:
			return
		case <-tick.C:
			s.checkOrder(n)
		}
	}
}

var customers = [...]string{"Ada Lovelace", "Grace Hopper", "Linus Torvalds", "Barbara Liskov", "Ken Thompson"}

// checkOrder serves order n and compares the results with the right ones.
func (s *sample) checkOrder(n int) {
	name, amount := customers[n%len(customers)], 19.5+float64(n%7)
	if got, want := serveOrder(n, name, amount, n%2 == 0), int64(n*1000+len(name)); got != want {
		s.wrong.Add(1)
	}
	s.calls.Add(1)
	if n%5 == 4 {
		if got := refund(n, amount); math.Abs(got-amount*0.9) > 1e-9 {
			s.wrong.Add(1)
		}
		s.calls.Add(1)
	}
}

//go:noinline
func serveOrder(id int, customer string, amount float64, express bool) int64 {
	if math.IsNaN(amount) || express && customer == "" {
		return -1
	}
	return int64(id*1000 + len(customer))
}

//go:noinline
func refund(id int, amount float64) float64 {
	if id < 0 {
		return 0
	}
	return amount * 0.9
}

// report prints whether all results were right, and whether the code, the mappings and the
// tracer are as before. It returns 0 if all is well.
func (s *sample) report(out io.Writer, before string) int {
	after, err := textHash()
	bad := 0
	say := func(good bool, yes, no string) {
		if !good {
			bad++
			yes = "NOT AS IT SHOULD BE: " + no
		}
		fmt.Fprintln(out, yes)
	}
	say(s.wrong.Load() == 0, fmt.Sprintf("I made %d calls on %d threads, and every result was right", s.calls.Load(), sampleThreads),
		fmt.Sprintf("wrong results: %d", s.wrong.Load()))
	say(err == nil && before == after, "my code is byte for byte the same (sha256 "+after[:min(len(after), 16)]+"…)", "my code has changed")
	left, tracer, err := traces()
	say(err == nil && left == "", "nothing is left in my memory", "there is a mapping "+left)
	say(err == nil && tracer == 0, "nobody traces me", fmt.Sprintf("process %d traces me", tracer))
	return min(bad, 1)
}

// textHash returns the hash of all code that this process maps from files, as it is in
// memory now.
func textHash() (string, error) {
	maps, err := procfs.Maps(os.Getpid())
	if err != nil {
		return "", err
	}
	mem, err := os.Open("/proc/self/mem")
	if err != nil {
		return "", err
	}
	defer mem.Close()
	sum := sha256.New()
	for _, m := range maps {
		if !m.Exec || m.Inode == 0 {
			continue
		}
		r := io.NewSectionReader(mem, int64(m.Range.Start), int64(m.Range.Len()))
		if _, err := io.Copy(sum, r); err != nil {
			return "", fmt.Errorf("reading %s: %w", m.Path, err)
		}
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// traces looks for remains of a tracer: a mapping that it has added, or a tracer of a thread.
func traces() (mapping string, tracer int, err error) {
	maps, err := procfs.Maps(os.Getpid())
	for _, m := range maps {
		if strings.HasPrefix(m.Path, regionName) {
			mapping = m.Path
		}
	}
	tids, err2 := procfs.Tasks(os.Getpid())
	for _, tid := range tids {
		if st, err := procfs.ReadStatus(os.Getpid(), tid); err == nil && st.TracerPid != 0 {
			tracer = st.TracerPid
		}
	}
	return mapping, tracer, errors.Join(err, err2)
}

// regionName begins the name of the mappings that gokprobe injects.
const regionName = "/memfd:gokprobe"
