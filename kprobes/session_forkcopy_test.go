package kprobes

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"testing"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/program"
)

// TestAFollowedChildIsBornWithItsJumps: they are its parent's, at the same places, with counters of its own, and from then on each goes its own way.
func TestAFollowedChildIsBornWithItsJumps(t *testing.T) {
	prog, s, kps := thousandProbes(t, Options{Follow: true})
	mine := func() {
		t.Helper()
		prog.Send("mine")
		prog.Expect("mine 1499500")
	}
	mine()
	mine()
	child := fork(t, prog)
	hits := func(when string, of []*Kprobe, want uint64) {
		t.Helper()
		for _, kp := range of {
			if n := kp.Hits(); n != want {
				t.Fatalf("%s: %s has %d hits, want %d", when, kp.SymbolName, n, want)
			}
		}
	}
	jumps := func(when string, want int) {
		t.Helper()
		_ = s.do(func() error {
			here, there := s.mainDomain(), s.domainOfProcess(t, child)
			n := 0
			for _, kp := range kps {
				own, parents := there.placed(kp), here.placed(kp)
				if own == nil || parents == nil || own.jump() == nil || parents.jump() == nil {
					continue
				}
				n++
				if own == parents || own.jump() == parents.jump() || own.jump().Addr != parents.jump().Addr || own.jump().count == parents.jump().count || own.domain != there {
					t.Errorf("%s: the jump at %s is not its parent's, or more than that", when, own.addr)
				}
				if fresh := parents.jump().count.fresh(); fresh != 2 {
					t.Errorf("%s: the parent has counted %d hits at %s", when, fresh, own.addr)
				}
			}
			if n != want {
				t.Errorf("%s: %d jumps in both, want %d", when, n, want)
			}
			return nil
		})
	}
	all := 0
	_ = s.do(func() error {
		for _, kp := range kps {
			if s.mainDomain().placed(kp).jump() != nil {
				all++
			}
		}
		return nil
	})
	if all < 900 {
		t.Errorf("only %d jumps", all)
	}
	call := func() {
		t.Helper()
		prog.Send("call")
		prog.Expect("sum 1499500")
	}
	jumps("at birth", all)
	hits("at birth", kps, 2)
	call()
	hits("called once", kps, 3)
	jumps("called once", all)
	if err := s.SetOptimization(false); err != nil {
		t.Fatal(err)
	}
	jumps("without optimization", 0)
	call()
	hits("called twice", kps, 4)
	if err := s.SetOptimization(true); err != nil {
		t.Fatal(err)
	}
	if err := s.WaitForOptimizer(t.Context()); err != nil {
		t.Fatal(err)
	}
	call()
	mine()
	hits("called three times", kps, 6)
	for _, kp := range kps[:100] {
		if err := s.DisableKprobe(kp); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.UnregisterKprobes(kps[100:900]); err != nil {
		t.Fatal(err)
	}
	call()
	hits("disabled", kps[:100], 6)
	hits("unregistered", kps[100:900], 6)
	hits("left", kps[900:], 7)
	again := make([]*Kprobe, 100)
	for i := range again {
		again[i] = &Kprobe{SymbolName: kps[500+i].SymbolName}
	}
	if err := s.RegisterKprobes(context.Background(), again); err != nil {
		t.Fatal(err)
	}
	if err := s.WaitForOptimizer(t.Context()); err != nil {
		t.Fatal(err)
	}
	call()
	hits("registered anew", again, 1)
	endsRight(t, prog, s)
}

// TestAChildOutlivesItsParentsProbes: the session ends while it lives, and it has its own code again, and no memory of ours.
func TestAChildOutlivesItsParentsProbes(t *testing.T) {
	prog, s, kps, child := thousand(t, Options{Follow: true})
	prog.Send("call")
	prog.Expect("sum 1499500")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	testprog.CheckClean(t, child)
	testprog.CheckClean(t, prog.PID())
	for _, kp := range kps {
		if n := kp.Hits(); n != 1 {
			t.Fatalf("%s has %d hits", kp.SymbolName, n)
		}
	}
	prog.Send("call")
	prog.Expect("sum 1499500")
	prog.Send("end")
	prog.Expect("ended")
	if last := prog.Quit(); last != "right" {
		t.Errorf("the program says %q", last)
	}
}

// TestWhatDiffersIsNotCopied: a fork copies memory at a moment of its own. One byte of all pages that we have ever written is enough.
func TestWhatDiffersIsNotCopied(t *testing.T) {
	prog, s, kps, child := thousand(t, Options{Follow: true})
	err := s.do(func() error {
		here, there := s.mainDomain(), s.domainOfProcess(t, child)
		p := there.space.Processes()[0]
		if !there.hasCodeOf(here, p) {
			return errors.New("the child's code differs from its parent's at its birth")
		}
		for _, kp := range []*Kprobe{kps[0], kps[499], kps[999]} {
			page := here.placed(kp).addr &^ (codePage - 1)
			for _, at := range []arch.Addr{page, page + codePage - 1} {
				b := make([]byte, 1)
				if err := there.space.Text().ReadMemory(at, b); err != nil {
					return err
				}
				b[0]++
				if err := there.space.Text().WriteMemory(at, b); err != nil {
					return err
				}
				alike := there.hasCodeOf(here, p)
				b[0]--
				if err := there.space.Text().WriteMemory(at, b); err != nil || alike {
					t.Errorf("a byte at %s differs, and was not seen: %v", at, err)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	endsRight(t, prog, s)
}

// TestAFollowedChildHasRingsAndMapsOfItsOwn: what its parent has recorded at its birth, and nobody has read, is told once, and each record names who made it. Counts
// of programs are those of both. Who has a jump keeps it.
func TestAFollowedChildHasRingsAndMapsOfItsOwn(t *testing.T) {
	prog := testprog.Start(t, testprog.Build(t, "thousand"))
	s, err := Attach(context.Background(), prog.PID(), Options{Follow: true, Log: func(text string) { t.Log(text) }})
	if err != nil {
		t.Fatal(err)
	}
	records := map[int]int{} // by process
	kps := make([]*Kprobe, 200)
	for i := range kps {
		name := fmt.Sprintf("fn_%03d", i)
		p, err := program.Build(name, 0, nil, program.Cond{}, program.CountHit{Shards: 2}, program.WriteRecord{
			Ring:  program.Map{Kind: program.Ring, Size: program.MinRingSize},
			Items: []program.Item{{Value: program.Now()}, {Value: program.CurrentThread()}, {Value: program.Const(int64(i))}},
		})
		if err != nil {
			t.Fatal(err)
		}
		kps[i] = &Kprobe{SymbolName: name, Program: p, RecordHandler: func(kp *Kprobe, r *HitRecord) {
			if n := binary.LittleEndian.Uint64(r.Payload[16:]); n != uint64(i) || kp != kps[i] || r.TID != r.PID || r.Comm != "thousand" {
				t.Errorf("record %d of %s by %d in %d (%s)", n, kp.SymbolName, r.TID, r.PID, r.Comm)
			}
			records[r.PID]++
		}}
	}
	if err := errors.Join(s.RegisterKprobes(t.Context(), kps), s.WaitForOptimizer(t.Context())); err != nil {
		t.Fatal(err)
	}
	mine := func() { t.Helper(); prog.Send("mine"); prog.Expect("mine 1499500") }
	call := func() { t.Helper(); prog.Send("call"); prog.Expect("sum 1499500") }
	var child int
	_ = s.do(func() error { s.records.draining = true; return nil }) // as in a handler that takes long
	mine()
	child = fork(t, prog)
	_ = s.do(func() error {
		s.records.draining = false
		here, there := s.mainDomain(), s.domainOfProcess(t, child)
		n := 0
		for _, kp := range kps {
			own, parents := there.placed(kp).jump(), here.placed(kp).jump()
			if own == nil || parents == nil || own.Addr != parents.Addr || own.record == parents.record || own.record.id != parents.record.id {
				t.Errorf("%s: the child's detour is not its parent's, or more than that", kp.SymbolName)
				continue
			}
			if n++; kp.valuesOf(0)[0] != 1 {
				t.Errorf("%s has counted %d", kp.SymbolName, kp.valuesOf(0)[0])
			}
		}
		if n < 150 || len(there.recorder.rings) != len(here.recorder.rings) || len(there.recorder.recordings) != len(here.recorder.recordings) {
			t.Errorf("%d jumps are kept, with %d of %d rings and %d of %d programs", n, len(there.recorder.rings), len(here.recorder.rings), len(there.recorder.recordings), len(here.recorder.recordings))
		}
		return nil
	})
	want := func(when string, of []*Kprobe, each uint64, parents, childs int) {
		t.Helper()
		s.FlushRecords()
		_ = s.do(func() error {
			if records[prog.PID()] != parents || records[child] != childs || len(records) > 2 {
				t.Errorf("%s: %v records; want %d by the parent, %d by its child", when, records, parents, childs)
			}
			return nil
		})
		for _, kp := range of {
			if kp.Hits() != each || kp.Values(0)[0] != each || kp.Values(2)[0] != 0 {
				t.Fatalf("%s: %s has %d hits, %d counted, %d lost; want %d", when, kp.SymbolName, kp.Hits(), kp.Values(0)[0], kp.Values(2)[0], each)
			}
		}
	}
	want("at birth", kps, 1, 200, 0)
	call()
	mine()
	call()
	want("later", kps, 4, 400, 400)
	if err := s.SetOptimization(false); err != nil {
		t.Fatal(err)
	}
	call()
	want("without optimization", kps, 5, 400, 600)
	if err := errors.Join(s.SetOptimization(true), s.WaitForOptimizer(t.Context()), s.UnregisterKprobes(kps[:100])); err != nil {
		t.Fatal(err)
	}
	mine()
	call()
	want("half of them gone", kps[100:], 7, 500, 700)
	prog.Send("end")
	prog.Expect("ended")
	want("without the child", kps[100:], 7, 500, 700)
	wantClosed(t, prog, s)
}

// TestAForkSoonAfterStatesEnd: a probe whose program has a state is gone, and its jump, switched off, waits for the next pass.
func TestAForkSoonAfterStatesEnd(t *testing.T) {
	prog := testprog.Start(t, testprog.Build(t, "thousand"))
	s, err := Attach(context.Background(), prog.PID(), Options{Follow: true, Log: func(text string) { t.Log(text) }})
	if err != nil {
		t.Fatal(err)
	}
	p, err := program.Build("fn_000", 0, nil, program.Compare(program.Sequence(0).Mod(2), program.Equal, program.Const(0)), program.CountHit{Shards: 2})
	if err != nil {
		t.Fatal(err)
	}
	kp := &Kprobe{SymbolName: "fn_000", Program: p}
	if err := errors.Join(s.RegisterKprobe(kp), s.WaitForOptimizer(t.Context())); err != nil {
		t.Fatal(err)
	}
	_ = s.do(func() error { s.passes.optimizing = make(chan struct{}); return nil }) // the next pass is late
	if err := s.UnregisterKprobe(kp); err != nil {
		t.Fatal(err)
	}
	_ = s.do(func() error {
		d := s.mainDomain()
		if len(d.sites) == 0 || len(d.recorder.states) > 0 || d.copyable() {
			t.Errorf("%d sites with %d states; a copy can be made of them %v", len(d.sites), len(d.recorder.states), d.copyable())
		}
		return nil
	})
	child := fork(t, prog)
	if err := s.do(func() error { s.domainOfProcess(t, child); return nil }); err != nil {
		t.Error(err)
	}
	prog.Send("call")
	prog.Expect("sum 1499500")
	prog.Send("end")
	prog.Expect("ended")
	_ = s.do(func() error { s.passes.optimizing = nil; return nil })
	wantClosed(t, prog, s)
}

// TestRegistrationsCountByThemselves: a Kprobe that is registered again, perhaps with another program, while the detour of the first still stands.
func TestRegistrationsCountByThemselves(t *testing.T) {
	prog := testprog.Start(t, testprog.Build(t, "thousand"))
	s, err := Attach(context.Background(), prog.PID(), Options{Log: func(text string) { t.Errorf("log: %s", text) }})
	if err != nil {
		t.Fatal(err)
	}
	kp := &Kprobe{SymbolName: "fn_000"}
	for n := range 4 {
		actions := make([]program.Action, 1+n%3)
		for i := range actions {
			actions[i] = program.CountHit{Shards: 2}
		}
		kp.Addr, kp.Flags = 0, 0
		if kp.Program, err = program.Build("fn_000", 0, nil, program.Cond{}, actions...); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(s.RegisterKprobe(kp), s.WaitForOptimizer(t.Context())); err != nil {
			t.Fatal(err)
		}
		for hits := range uint64(3) {
			for i := range actions {
				if v := kp.Values(i); len(v) == 0 || v[0] != hits || kp.Hits() != hits {
					t.Errorf("registration %d: counter %d is %v, and %d hits; want %d", n, i, v, kp.Hits(), hits)
				}
			}
			prog.Send("mine")
			prog.Expect("mine 1499500")
		}
		if err := errors.Join(s.UnregisterKprobe(kp), s.WaitForOptimizer(t.Context())); err != nil {
			t.Fatal(err)
		}
	}
	wantClosed(t, prog, s)
}

// TestAChildIsACopyWithoutWhatIsRetired: slots and detours of probes that are gone, in which a thread of the parent's might be. The child has the others, and can use
// the place of these.
func TestAChildIsACopyWithoutWhatIsRetired(t *testing.T) {
	for name, o := range map[string]Options{"jumps": {Follow: true}, "breakpoints": {Follow: true, NoOptimize: true}} {
		t.Run(name, func(t *testing.T) {
			prog, s, kps := thousandProbes(t, o)
			gone, kept := kps[:manyRetired/2], kps[manyRetired/2:]
			if err := errors.Join(s.UnregisterKprobes(gone), s.WaitForOptimizer(t.Context())); err != nil {
				t.Fatal(err)
			}
			copied := func(parent, child int) {
				t.Helper()
				_ = s.do(func() error {
					here, there := s.domainOfProcess(t, parent), s.domainOfProcess(t, child)
					jumps, counters := 0, 0
					for _, st := range there.sites {
						if det := st.jump(); det != nil {
							jumps++
							if det.count != nil {
								counters++
							}
						}
					}
					for _, kp := range kept {
						own, parents := there.placed(kp), here.placed(kp)
						if own.slot.Addr != parents.slot.Addr || own.domain != there || (own.jump() == nil) != (parents.jump() == nil) {
							t.Fatalf("%s: the child's site is not as its parent's", kp.SymbolName)
						}
					}
					if n := there.region.Live(); n != len(there.sites) || n != len(there.slots.at) {
						t.Errorf("the child has %d slots, %d of them known, for %d sites", n, len(there.slots.at), len(there.sites))
					}
					if n := there.region.Detours(); n != jumps || len(there.detours.counters) != counters || o.NoOptimize != (counters == 0) || there.detours.retired != 0 {
						t.Errorf("the child has %d detours with %d counters, %d retired, for %d jumps", n, len(there.detours.counters), there.detours.retired, jumps)
					}
					return nil
				})
			}
			_ = s.do(func() error {
				d := s.mainDomain()
				if d.slots.retired() == 0 || !o.NoOptimize && d.detours.retired == 0 {
					t.Errorf("the parent has %d retired slots, and %d detours", d.slots.retired(), d.detours.retired)
				}
				return nil
			})
			child := fork(t, prog)
			copied(prog.PID(), child)
			for i := range gone {
				gone[i] = &Kprobe{SymbolName: gone[i].SymbolName}
			}
			if err := errors.Join(s.RegisterKprobes(t.Context(), gone), s.WaitForOptimizer(t.Context())); err != nil {
				t.Fatal(err)
			}
			prog.Send("call")
			prog.Expect("sum 1499500")
			prog.Send("mine")
			prog.Expect("mine 1499500")
			for _, kp := range kps {
				if n := kp.Hits(); n != 2 {
					t.Fatalf("%s has %d hits, want 2", kp.SymbolName, n)
				}
			}
			endsRight(t, prog, s)
		})
	}
}
