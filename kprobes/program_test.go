package kprobes_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/program"
)

// recording is a probe whose hits record their thread, their first argument and more.
func recording(t testing.TB, symbol string, handle kprobes.RecordHandler) *kprobes.Kprobe {
	t.Helper()
	p, err := program.Build(symbol, 0, []string{"rdi", "rsp"}, program.Cond{}, program.WriteRecord{
		Ring: program.Map{Kind: program.Ring, Size: program.MinRingSize},
		Items: []program.Item{
			{Value: program.Now()}, {Value: program.CurrentThread()}, {Value: program.Reg("rdi")},
			{Kind: program.Bytes, Value: program.Reg("rsp"), Max: 8},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return &kprobes.Kprobe{SymbolName: symbol, Program: p, RecordHandler: handle}
}

// lost is how many hits of a recording probe found no room.
func lost(kp *kprobes.Kprobe) int { return int(kp.Values(1)[0]) }

// TestShortRecordsAreRefused: a record that does not tell its time and thread can't be handed on.
func TestShortRecordsAreRefused(t *testing.T) {
	prog := start(t, "threads", "1")
	s := attach(t, prog.PID(), kprobes.Options{})
	for _, items := range [][]program.Item{{{Value: program.Now()}}, {{Value: program.Now()}, {Value: program.CurrentThread()}}} {
		p, err := program.Build("foo", 0, nil, program.Cond{}, program.WriteRecord{
			Ring: program.Map{Kind: program.Ring, Size: program.MinRingSize}, Items: items,
		})
		if err != nil {
			t.Fatal(err)
		}
		whole := len(items) == 2
		kp := &kprobes.Kprobe{SymbolName: "foo", Program: p}
		if err := s.RegisterKprobe(kp); whole != (err == nil) || !whole && !errors.Is(err, kprobes.ErrShortRecord) {
			t.Errorf("a record of %d words: %v", len(items), err)
		}
	}
	closeSession(t, s)
	prog.CheckClean()
}

// Records are those of the hits: none is lost uncounted, each thread's are in its order, and
// they tell thread and time, whether the target writes them or the tracer.
func TestRecordsOfHits(t *testing.T) {
	const threads, calls = 4, 20_000
	for _, mechanism := range []string{"optimized", "boosted"} {
		t.Run(mechanism, func(t *testing.T) {
			n := calls
			opts := kprobes.Options{}
			if mechanism == "boosted" {
				opts.NoOptimize, n = true, 500
			}
			prog := start(t, "threads", fmt.Sprint(threads))
			s := attach(t, prog.PID(), opts)
			seen := map[int]int{}
			last := map[int]time.Time{}
			began := time.Now()
			kp := recording(t, "foo", func(_ *kprobes.Kprobe, r *kprobes.HitRecord) {
				seen[r.TID]++
				if r.PID != prog.PID() || r.Comm == "" || len(r.Payload) < 40 || binary.LittleEndian.Uint64(r.Payload[32:]) == 0 {
					t.Errorf("record %+v", r)
				}
				if r.Time.Before(last[r.TID]) || r.Time.Before(began.Add(-time.Second)) || r.Time.After(time.Now().Add(time.Second)) {
					t.Errorf("thread %d: %v after %v", r.TID, r.Time, last[r.TID])
				}
				last[r.TID] = r.Time
			})
			register(t, s, kp)
			if mechanism == "optimized" {
				wantOptimized(t, s, kp)
			}
			prog.Do(fmt.Sprintf("go %d", n), "went")
			tids, err := procfs.Tasks(prog.PID())
			ok(t, err)
			closeSession(t, s)
			all := lost(kp)
			for _, tid := range tids {
				all += seen[tid]
			}
			wantHits(t, kp, uint64(threads*n))
			if all != threads*n || len(seen) != threads {
				t.Errorf("records by thread %v, and %d lost, of %d", seen, lost(kp), threads*n)
			}
			prog.CheckClean()
			wantRight(t, prog)
		})
	}
}

// Threads that live for one call are told apart, though they use each other's storage.
func TestRecordsOfShortLivedThreads(t *testing.T) {
	prog := start(t, "churn", "4")
	s := attach(t, prog.PID(), kprobes.Options{})
	seen := map[int]int{}
	last, wraps := 0, 0
	kp := recording(t, "foo", func(_ *kprobes.Kprobe, r *kprobes.HitRecord) {
		if seen[r.TID]++; r.PID != prog.PID() || r.Comm == "" {
			t.Errorf("record %+v", r)
		}
		if r.TID < last-1000 { // IDs are given in turn: they begin again
			wraps++
		}
		last = r.TID
	})
	register(t, s, kp)
	s.WaitForOptimizer(t.Context())
	for kp.Hits() < 500 {
		prog.Do("count", "count")
	}
	closeSession(t, s)
	all := lost(kp)
	for tid, n := range seen {
		all += n
		if n > 1+wraps {
			t.Errorf("thread %d has %d records, and IDs began again %d times", tid, n, wraps)
		}
	}
	if uint64(all) != kp.Hits() {
		t.Errorf("%d threads, %d lost, %d hits", len(seen), lost(kp), kp.Hits())
	}
	prog.CheckClean()
	wantRight(t, prog)
}

// Children of all kinds are told apart, from their parent as well, whose storage some use.
func TestRecordsOfChildren(t *testing.T) {
	const rounds = 20
	// The ones that run another program have probes in it if they are followed.
	for follow, kinds := range map[bool]int{false: 2, true: 4} {
		prog := start(t, "forker")
		s := attach(t, prog.PID(), kprobes.Options{Follow: follow})
		seen := map[int]int{}
		var last time.Time
		kp := recording(t, "foo", func(_ *kprobes.Kprobe, r *kprobes.HitRecord) {
			if seen[r.PID]++; r.TID != r.PID || r.PID == prog.PID() || r.Comm == "" || r.Time.Before(last) {
				t.Errorf("record %+v after %v", r, last)
			}
			last = r.Time
		})
		register(t, s, kp)
		s.WaitForOptimizer(t.Context())
		prog.Do(fmt.Sprintf("run %d", rounds), "ran")
		closeSession(t, s)
		if len(seen) != kinds*rounds || int(kp.Hits()) != kinds*rounds {
			t.Errorf("follow %v: %d children in records, %d hits, want %d", follow, len(seen), kp.Hits(), kinds*rounds)
		}
		prog.CheckClean()
		wantRight(t, prog)
	}
}

// Addresses that can't be read are faults in the record, and nothing that the program could notice: the
// kernel resets the action and the mask of a fault that is blocked or ignored.
func TestRecordsOfBadAddresses(t *testing.T) {
	for _, args := range [][]string{nil, {"handled"}, {"blocked"}, {"ignored"}, {"handled", "blocked"}, {"ignored", "blocked"}} {
		const rounds = 100
		prog := start(t, "badreads", args...)
		s := attach(t, prog.PID(), kprobes.Options{})
		results := map[int64]int{}
		p, err := program.Build("foo", 0, []string{"rdi"}, program.Cond{}, program.WriteRecord{
			Ring: program.Map{Kind: program.Ring, Size: program.MinRingSize},
			Items: []program.Item{
				{Value: program.Now()}, {Value: program.CurrentThread()},
				{Kind: program.Bytes, Value: program.Reg("rdi"), Max: 5},
			},
		})
		ok(t, err)
		kp := &kprobes.Kprobe{SymbolName: "foo", Program: p, RecordHandler: func(_ *kprobes.Kprobe, r *kprobes.HitRecord) {
			results[int64(binary.LittleEndian.Uint64(r.Payload[p.Fields[2].Err:]))]++
		}}
		register(t, s, kp)
		wantOptimized(t, s, kp)
		prog.Do(fmt.Sprintf("call %d", rounds), "called")
		closeSession(t, s)
		if results[-program.Efault] != rounds*4/5 || results[0] != rounds/5 {
			t.Errorf("%v: results %v", args, results)
		}
		if got := prog.Do("actions", "actions"); got != "actions own" {
			t.Errorf("%v: afterwards %s", args, got)
		}
		prog.CheckClean()
		wantRight(t, prog)
	}
}
