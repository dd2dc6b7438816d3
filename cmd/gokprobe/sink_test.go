package main

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/gokprobe/gokprobe/cmd/gokprobe/internal/event"
	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/trace"
)

func jsonPrinter(w io.Writer) event.Printer { return event.NewJSON(w) }

func TestSinkWritesAllRecordsInOrder(t *testing.T) {
	var out strings.Builder
	s := newSink(&out, jsonPrinter)
	const n = 10000
	for i := range n {
		if !s.put(&event.Hit{TID: i}) {
			t.Fatal("a record is refused")
		}
	}
	if lost, err := s.close(nil); lost != 0 || err != nil {
		t.Errorf("%d lost, %v", lost, err)
	}
	i := 0
	for line := range strings.Lines(out.String()) {
		var h hitLine
		strictly(t, line, &h)
		if h.TID != i {
			t.Fatalf("record %d is number %d", i, h.TID)
		}
		i++
	}
	if i != n {
		t.Errorf("%d records", i)
	}
}

// stopping takes limit bytes and then fails.
type stopping struct{ limit int }

var errStopped = errors.New("no more")

func (w *stopping) Write(p []byte) (int, error) {
	n := min(w.limit, len(p))
	w.limit -= n
	if n < len(p) {
		return n, errStopped
	}
	return n, nil
}

func TestSinkCountsWhatAFailingOutputDoesNotTake(t *testing.T) {
	var one strings.Builder
	if err := event.NewJSON(&one).Hit(&event.Hit{}); err != nil {
		t.Fatal(err)
	}
	size := one.Len()
	for _, c := range []struct{ bytes, lost int }{{0, 10}, {size - 1, 10}, {size, 9}, {3*size + 5, 7}} {
		s := newSink(&stopping{c.bytes}, jsonPrinter)
		var puts sync.WaitGroup
		for range 10 {
			puts.Go(func() { s.put(&event.Hit{}) })
		}
		puts.Wait()
		<-s.failed
		lost, err := s.close(nil)
		if lost != uint64(c.lost) || !errors.Is(err, errStopped) {
			t.Errorf("after %d bytes %d are lost, not %d: %v", c.bytes, lost, c.lost, err)
		}
		if s.put(&event.Hit{}) {
			t.Error("a closed sink takes a record")
		}
	}
}

// TestSinkGivesUpOnlyAnOutputThatIsStuck: timeout(1) signals twice, and that is no reason to
// lose what the output takes.
func TestSinkGivesUpOnlyAnOutputThatIsStuck(t *testing.T) {
	giveUp := make(chan struct{})
	close(giveUp)
	for range 20 {
		var out strings.Builder
		s := newSink(&out, jsonPrinter)
		s.grace = testprog.Patience // on a busy machine the writer may not have a processor for as long as users are given
		const n = 100
		for range n {
			s.put(&event.Hit{})
		}
		if lost, err := s.close(giveUp); lost != 0 || err != nil || strings.Count(out.String(), "\n") != n {
			t.Fatalf("%d lost, %v", lost, err)
		}
	}
}

// blocked takes nothing until it is released.
type blocked struct{ release chan struct{} }

func (w blocked) Write(p []byte) (int, error) { <-w.release; return len(p), nil }

func TestSinkNeverWaitsForItsOutput(t *testing.T) {
	w := blocked{make(chan struct{})}
	s := newSink(w, jsonPrinter)
	taken := 0
	for range 3 * trace.QueueDepth {
		if s.put(&event.Hit{}) {
			taken++
		}
	}
	if taken < trace.QueueDepth || taken > 2*trace.QueueDepth { // one batch may be on its way
		t.Errorf("%d records are taken", taken)
	}
	giveUp := make(chan struct{})
	close(giveUp)
	if lost, err := s.close(giveUp); !errors.Is(err, errOutputStuck) || lost < uint64(2*trace.QueueDepth-trace.QueueDepth) {
		t.Errorf("%d lost, %v", lost, err)
	}
	close(w.release)
}

// TestNothingIsPrintedBeforeAllIsPlaced, nor if it is not.
func TestNothingIsPrintedBeforeAllIsPlaced(t *testing.T) {
	for _, placed := range []bool{true, false} {
		var out bytes.Buffer
		s := newHeldSink(&out, jsonPrinter)
		s.put(&event.Hit{Symbol: "early"})
		if placed {
			s.begin()
			s.begin()
		}
		_, err := s.close(nil)
		if err != nil || strings.Contains(out.String(), "early") != placed {
			t.Errorf("placed: %t: %q, %v", placed, out.String(), err)
		}
	}
}
