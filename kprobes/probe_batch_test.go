package kprobes_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
)

// The functions of fixture many.
const (
	manyFunctions = 5000
	functionSize  = 11 // instructions of 7, 3 and 1 bytes
)

// thousands is a counting probe on the instruction at offset of every function.
func thousands(first arch.Addr, offsets ...uint64) []*kprobes.Kprobe {
	var kps []*kprobes.Kprobe
	for _, offset := range offsets {
		for i := range uint64(manyFunctions) {
			kp := boosted.probe("")
			kp.Addr, kp.Offset = first+arch.Addr(i*functionSize), offset
			kps = append(kps, kp)
		}
	}
	return kps
}

// again makes unregistered probes ready to be registered.
func again(kps []*kprobes.Kprobe) {
	for _, kp := range kps {
		kp.Offset, kp.Flags = 0, 0
	}
}

func unregister(t testing.TB, s *kprobes.Session, kps ...*kprobes.Kprobe) {
	t.Helper()
	if err := s.UnregisterKprobes(kps); err != nil {
		t.Fatalf("unregister: %v", err)
	}
}

// code reads the functions of fixture many as they are in memory.
func code(t testing.TB, pid int, first arch.Addr) []byte {
	t.Helper()
	f, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := make([]byte, manyFunctions*functionSize)
	if _, err := f.ReadAt(b, int64(first)); err != nil {
		t.Fatal(err)
	}
	return b
}

// wantAllHits checks that every probe was hit from low to high times.
func wantAllHits(t testing.TB, kps []*kprobes.Kprobe, low, high uint64) {
	t.Helper()
	for i, kp := range kps {
		if h := kp.Hits(); h < low || h > high {
			t.Errorf("probe %d at %s: %d hits, want %d to %d", i, kp.Addr, h, low, high)
			return
		}
	}
}

func startMany(t *testing.T) (*testprog.Prog, *kprobes.Session, arch.Addr) {
	t.Helper()
	prog := start(t, "many")
	s := attach(t, prog.PID(), kprobes.Options{NoOptimize: true})
	return prog, s, symbol(t, s, "f_0")
}

// TestABatchOfThousands comes and goes while threads run the code: no hit is lost, and
// the text is as it was. A thread that comes to a breakpoint while the others are being
// shown or hidden stands there until they all are, so it passes each probe at most once
// more than another.
func TestABatchOfThousands(t *testing.T) {
	const threads = 2
	prog, s, first := startMany(t)
	before := code(t, prog.PID(), first)
	kps := thousands(first, 0, 7)
	for range 3 {
		prog.Do("start", "started")
		register(t, s, kps...)
		prog.Do("wait 4", "waited")
		unregister(t, s, kps...)
		if !bytes.Equal(code(t, prog.PID(), first), before) {
			t.Error("the text differs afterwards")
		}
		prog.Do("stop", "calls")
		fewest := kps[0].Hits()
		for _, kp := range kps {
			fewest = min(fewest, kp.Hits())
		}
		wantAllHits(t, kps, max(fewest, 1), fewest+2*threads)
		again(kps)
	}
	register(t, s, kps...)
	prog.Do("call 2", "called")
	unregister(t, s, kps...)
	prog.Do("call 1", "called")
	wantAllHits(t, kps, 2, 2)
	closeSession(t, s)
	prog.CheckClean()
	wantRight(t, prog)
}

// TestABatchThatFailsInTheMiddle (A45): nothing of it is left, and what comes behind the
// failure is untouched.
func TestABatchThatFailsInTheMiddle(t *testing.T) {
	prog, s, first := startMany(t)
	before := code(t, prog.PID(), first)
	kps := thousands(first, 0, 7)
	bad, middle := kps[4321], len(kps)/2
	bad.Offset = 1
	kps[middle], kps[4321] = bad, kps[middle]
	prog.Do("start", "started")
	if err := s.RegisterKprobes(t.Context(), kps); !errors.Is(err, kprobes.ErrNotBoundary) || !errors.Is(err, unix.EILSEQ) {
		t.Errorf("got %v, want %v", err, kprobes.ErrNotBoundary)
	}
	if !bytes.Equal(code(t, prog.PID(), first), before) {
		t.Error("the text differs")
	}
	prog.Do("wait 4", "waited")
	wantAllHits(t, kps, 0, 0)
	if kp := kps[middle+1]; kp.Flags != 0 || kp.Addr != first+(arch.Addr(middle+1)%manyFunctions)*functionSize {
		t.Errorf("a probe behind the failure has address %s, flags %d", kp.Addr, kp.Flags)
	}
	good := append(kps[middle+1:len(kps):len(kps)], thousands(first, 0)...)
	register(t, s, good...)
	prog.Do("wait 4", "waited")
	prog.Do("stop", "calls")
	wantAllHits(t, good, 1, 1000)
	unregister(t, s, good...)
	wantRight(t, prog)
}

// TestABatchOnSharedSites: probes of one batch share addresses with each other and with
// probes that were there, enabled and disabled ones (A50).
func TestABatchOnSharedSites(t *testing.T) {
	prog, s, first := startMany(t)
	before := code(t, prog.PID(), first)
	old, a, b, silent := thousands(first, 7), thousands(first, 7), thousands(first, 0, 7), thousands(first, 0, 7, 10)
	for _, kp := range append(silent, old[:manyFunctions/2]...) {
		kp.Flags = kprobes.FlagDisabled
	}
	register(t, s, old...)
	register(t, s, append(append(a, b...), silent...)...)
	prog.Do("call 1", "called")
	wantAllHits(t, append(a, b...), 1, 1)
	wantAllHits(t, append(silent, old[:manyFunctions/2]...), 0, 0)
	wantAllHits(t, old[manyFunctions/2:], 1, 1)

	unregister(t, s, append(b, silent...)...)
	prog.Do("call 1", "called")
	wantAllHits(t, a, 2, 2)
	wantAllHits(t, b, 1, 1)
	unregister(t, s, a...)
	for i, c := range code(t, prog.PID(), first) {
		armed := i%functionSize == 7 && i/functionSize >= manyFunctions/2
		if armed != (c != before[i]) {
			t.Fatalf("byte %d of function %d is %#x", i%functionSize, i/functionSize, c)
		}
	}
	unregister(t, s, old...)
	if !bytes.Equal(code(t, prog.PID(), first), before) {
		t.Error("the text differs afterwards")
	}
	wantRight(t, prog)
}

// TestAProbeTwiceInABatch is refused as a second registration is.
func TestAProbeTwiceInABatch(t *testing.T) {
	prog, s, first := startMany(t)
	kps := thousands(first, 0)
	if err := s.RegisterKprobes(t.Context(), append(kps, kps[3])); !errors.Is(err, kprobes.ErrRegistered) {
		t.Errorf("got %v, want %v", err, kprobes.ErrRegistered)
	}
	prog.Do("call 1", "called")
	wantAllHits(t, kps, 0, 0)
	again(kps)
	register(t, s, kps...)
	unregister(t, s, append(kps, kps...)...)
	wantRight(t, prog)
}
