package ptrace

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/procfs"
)

// processors are those that this process may run on.
func processors() (list []int) {
	var all unix.CPUSet
	must(unix.SchedGetaffinity(0, &all))
	for n := 0; len(list) < all.Count(); n++ {
		if all.IsSet(n) {
			list = append(list, n)
		}
	}
	return list
}

// moveTo has thread tid run on one processor only.
func moveTo(tid, processor int) {
	var one unix.CPUSet
	one.Set(processor)
	must(unix.SchedSetaffinity(tid, &one))
}

// TestAThreadTellsItsProcessor, by what the C library has the kernel write, or by /proc.
func TestAThreadTellsItsProcessor(t *testing.T) {
	k := probe(t, "call")
	at := k.symbol("probed")
	seen := []int{}
	k.onHit = func(th *Thread, _ arch.Regs) {
		seen = append(seen, th.Processor(), th.Processor(), must2(procfs.ReadStat(th.Proc.PID, th.TID)).Processor)
	}
	k.do(func() error { k.plant(at); return nil })
	for range 3 {
		for _, n := range processors() {
			moveTo(k.prog.PID(), n)
			k.prog.Do("go 27", "ret 9")
			k.do(func() error {
				for _, got := range seen {
					if got != n {
						t.Errorf("a thread on processor %d says %v", n, seen)
					}
				}
				if len(seen) != 3 {
					t.Errorf("asked %d times", len(seen))
				}
				seen = seen[:0]
				th := k.p.Leader()
				if th.area = (rseqArea{}); th.Processor() != n || th.area.at != 0 { // one that runs can't be asked for its area
					t.Errorf("a thread on processor %d, which runs, says %d", n, th.Processor())
				}
				return nil
			})
		}
	}
	k.end()
}

// TestAnExecutedProgramHasAnotherPlaceForItsProcessor: the old one is not read in the new memory.
func TestAnExecutedProgramHasAnotherPlaceForItsProcessor(t *testing.T) {
	k := probe(t, "execer")
	ask := func() (processor int) {
		k.do(func() error {
			return k.p.Space.Freeze(func(*Frozen) error {
				th := k.p.Leader()
				if processor = th.Processor(); th.area.space != k.p.Space {
					t.Error("it is read where another program had it")
				}
				return nil
			})
		})
		return processor
	}
	for _, n := range processors() {
		moveTo(k.prog.PID(), n)
		k.prog.Do("call 2", "ret 27")
		if got := ask(); got != n {
			t.Errorf("it is on %d, says %d", n, got)
		}
		k.prog.Do("exec", "ready")
		if got := ask(); got != n {
			t.Errorf("executed, it is on %d, says %d", n, got)
		}
	}
	k.end()
}

// TestTheTracerFollowsItsTarget to the processor that this runs on, looks ever more rarely while it stays there, and gives up when it moves all the time.
func TestTheTracerFollowsItsTarget(t *testing.T) {
	all := processors()
	if len(all) < 2 {
		var f follower
		if f.init(); f.usable {
			t.Error("one processor is followed")
		}
		return
	}
	k := probe(t, "call")
	th := k.p.Leader()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var f follower
	f.init()
	before := f.all
	defer func() { must(unix.SchedSetaffinity(0, &before)) }()
	on := func() (set unix.CPUSet) { must(unix.SchedGetaffinity(0, &set)); return set }
	look := func() { // as many hits as it takes
		for n := f.period - f.hits; n > 0; n-- {
			f.follow(th)
		}
	}
	move := func(n int) {
		moveTo(k.prog.PID(), n)
		k.prog.Do("go 27", "ret 9")
	}
	move(all[0])
	for n := range firstLook {
		if now := on(); now != before {
			t.Errorf("after %d hits we are on %v", n, now)
		}
		f.follow(th)
	}
	if now := on(); now.Count() != 1 || !now.IsSet(all[0]) || f.pinned != all[0] {
		t.Errorf("the target is on %d, we are on %v", all[0], now)
	}
	for want := 2 * firstLook; want <= lastLook; want *= 2 {
		if look(); f.period != want {
			t.Errorf("the next look is in %d hits, want %d", f.period, want)
		}
	}
	if look(); f.period != lastLook {
		t.Errorf("the next look is in %d hits", f.period)
	}
	for n := range maxMoves {
		to := all[(n+1)%2]
		move(to)
		if look(); f.pinned != to {
			t.Errorf("after %d moves the target is on %d, we are on %d", n+1, to, f.pinned)
		}
	}
	move(all[1])
	if look(); f.pinned != -1 || on() != before {
		t.Errorf("it moves all the time, we are on %v", on())
	}
	if f.usable = false; f.hits != 0 {
		t.Errorf("%d hits are counted", f.hits)
	}
	if f.follow(th); f.hits != 0 {
		t.Error("one processor is followed")
	}
	k.end()
}
