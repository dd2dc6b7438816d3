package kprobes

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/ptrace"
)

// thousand starts fixture thousand with a probe of each of its functions, and has it fork a child.
func thousand(t *testing.T, o Options) (prog *testprog.Prog, s *Session, kps []*Kprobe, child int) {
	t.Helper()
	prog, s, kps = thousandProbes(t, o)
	return prog, s, kps, fork(t, prog)
}

// uncopied is thousand with a parent that a child's domain can't be a copy of: calls are followed. So the child begins with its original code.
func uncopied(t *testing.T) (prog *testprog.Prog, s *Session, kps []*Kprobe, child int) {
	t.Helper()
	prog, s, kps = thousandProbes(t, Options{Follow: true})
	if err := s.RegisterKretprobe(&Kretprobe{KP: Kprobe{SymbolName: "libc.so.6:getppid"}}); err != nil {
		t.Fatal(err)
	}
	if err := s.WaitForOptimizer(context.Background()); err != nil {
		t.Fatal(err)
	}
	_ = s.do(func() error {
		if s.mainDomain().copyable() {
			t.Error("a process in which calls are followed can be copied")
		}
		return nil
	})
	return prog, s, kps, fork(t, prog)
}

func thousandProbes(t *testing.T, o Options) (prog *testprog.Prog, s *Session, kps []*Kprobe) {
	t.Helper()
	prog = testprog.Start(t, testprog.Build(t, "thousand"))
	o.Log = func(text string) { t.Log(text) }
	s, err := Attach(context.Background(), prog.PID(), o)
	if err != nil {
		t.Fatal(err)
	}
	kps = make([]*Kprobe, 1000)
	for i := range kps {
		kps[i] = &Kprobe{SymbolName: fmt.Sprintf("fn_%03d", i)}
	}
	if err := s.RegisterKprobes(context.Background(), kps); err != nil {
		t.Fatal(err)
	}
	if !o.NoOptimize {
		if err := s.WaitForOptimizer(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	return prog, s, kps
}

func fork(t *testing.T, prog *testprog.Prog) (child int) {
	t.Helper()
	prog.Send("fork")
	child, err := strconv.Atoi(strings.TrimPrefix(prog.Expect("child"), "child "))
	if err != nil {
		t.Fatal(err)
	}
	return child
}

func endsRight(t *testing.T, prog *testprog.Prog, s *Session) {
	t.Helper()
	prog.Send("end")
	prog.Expect("ended")
	wantClosed(t, prog, s)
}

// TestAForkedChildHasThePlainCode: a thousand jumps, and breakpoints among them, are taken out of its copy, and it works as if alone.
func TestAForkedChildHasThePlainCode(t *testing.T) {
	for name, o := range map[string]Options{"jumps": {}, "breakpoints": {NoOptimize: true}} {
		t.Run(name, func(t *testing.T) {
			prog, s, kps, child := thousand(t, o)
			testprog.CheckClean(t, child)
			if err := s.UnregisterKprobes(kps[100:900]); err != nil { // past ones are left in no copy
				t.Fatal(err)
			}
			prog.Send("call")
			prog.Expect("sum 1499500")
			for i := range kps {
				if n := kps[i].Hits(); n != 0 {
					t.Fatalf("%s was hit %d times in a child that is not followed", kps[i].SymbolName, n)
				}
			}
			prog.Send("end")
			prog.Expect("ended")
			testprog.CheckClean(t, fork(t, prog))
			endsRight(t, prog, s)
		})
	}
}

// TestAFollowedChildHasItsProbes: all of them, each hit once.
func TestAFollowedChildHasItsProbes(t *testing.T) {
	prog, s, kps, _ := thousand(t, Options{Follow: true})
	prog.Send("call")
	prog.Expect("sum 1499500")
	for _, kp := range kps {
		if n := kp.Hits(); n != 1 {
			t.Fatalf("%s was hit %d times", kp.SymbolName, n)
		}
	}
	endsRight(t, prog, s)
}

// TestAFollowedChildGetsAJumpForWhatItHits: a probe that is not hit there costs no detour, until somebody waits for all of them.
func TestAFollowedChildGetsAJumpForWhatItHits(t *testing.T) {
	prog, s, kps, child := uncopied(t)
	unhit := func() (n int) {
		_ = s.do(func() error {
			d := s.domainOfProcess(t, child)
			for _, kp := range kps {
				st := d.placed(kp)
				if d.optimizer.unhit[st] && st.armed() {
					n++
				} else if st.jump() == nil && st.noJump.why == "" && !d.optimizer.queue[st] {
					t.Errorf("%s waits for nothing", kp.SymbolName)
				}
			}
			return nil
		})
		return n
	}
	if n := unhit(); n != len(kps) {
		t.Errorf("%d of %d wait for a hit", n, len(kps))
	}
	prog.Send("call")
	prog.Expect("sum 1499500")
	if n := unhit(); n != 0 {
		t.Errorf("%d wait for a hit after it", n)
	}
	if err := s.WaitForOptimizer(t.Context()); err != nil {
		t.Error(err)
	}
	prog.Send("end")
	prog.Expect("ended")
	child = fork(t, prog)
	if err := s.WaitForOptimizer(t.Context()); err != nil {
		t.Error(err)
	}
	if n := unhit(); n != 0 {
		t.Errorf("%d wait for a hit, and who waited for the optimizer did not", n)
	}
	endsRight(t, prog, s)
}

// TestWhoWaitsForSomeProbesHastensNoOthers: they may wait for their hits in the child.
func TestWhoWaitsForSomeProbesHastensNoOthers(t *testing.T) {
	prog, s, kps, child := uncopied(t)
	few := kps[100:110]
	if err := s.WaitForOptimizer(t.Context(), few...); err != nil {
		t.Error(err)
	}
	_ = s.do(func() error {
		d := s.domainOfProcess(t, child)
		for i, kp := range kps {
			st, mine := d.placed(kp), i >= 100 && i < 110
			if d.optimizer.unhit[st] == mine || mine && st.jump() == nil && st.noJump.why == "" {
				t.Errorf("%s: it waits for a hit %v, and has the refusal %q", kp.SymbolName, !mine, st.noJump.why)
			}
		}
		return nil
	})
	prog.Send("call")
	prog.Expect("sum 1499500")
	endsRight(t, prog, s)
}

// TestNothingIsOptimizedInAChildThatEnds: its thread stands in its exit, which the tracer was not told of yet, and nobody can map memory there. So the first
// site that can't have its detour ends all of the work. With each of the others it would cost milliseconds, in which everybody
// else waits for the tracer: 49 s for 10,000.
func TestNothingIsOptimizedInAChildThatEnds(t *testing.T) {
	prog, s, _, child := thousand(t, Options{Follow: true, NoOptimize: true})
	_ = s.do(func() error {
		d := s.domainOfProcess(t, child)
		s.opts.NoOptimize = false
		for _, st := range d.sites {
			d.optimizer.queue[st] = true
		}
		if len(d.optimizer.queue) < 2*batchSize-100 {
			t.Errorf("%d sites in the queue", len(d.optimizer.queue))
		}
		prog.Send("end")
		testprog.Await(t, "the child in its exit", func() bool {
			st, err := procfs.ReadStat(child, 0)
			return err != nil || st.State == 't'
		})
		_ = d.optimizer.optimizeSlice()
		if n := len(d.optimizer.queue); n != 0 {
			t.Errorf("%d sites are left for later", n)
		}
		tried := 0
		for _, st := range d.sites {
			if st.jump() != nil && !st.bare() {
				t.Errorf("there is a jump at %s", st.addr)
			}
			if strings.Contains(st.noJump.why, ptrace.ErrNoThread.Error()) {
				tried++
			}
		}
		if tried > 1 {
			t.Errorf("%d sites were tried", tried)
		}
		s.opts.NoOptimize = true
		return nil
	})
	prog.Expect("ended")
	wantClosed(t, prog, s)
}

func (s *Session) domainOfProcess(t *testing.T, pid int) *domain {
	for d := range s.domains {
		for _, p := range d.space.Processes() {
			if p.PID == pid {
				return d
			}
		}
	}
	t.Fatalf("process %d is not followed", pid)
	return nil
}

// TestAChildsCopyIsTakenBackInOrder: page by page, jumps before what lies in them, those that unblock signals last.
func TestAChildsCopyIsTakenBackInOrder(t *testing.T) {
	prog, s, _, _ := thousand(t, Options{})
	_ = s.do(func() error {
		d := s.mainDomain()
		c := d.copied(d.space)
		if c.unread != nil {
			t.Error(c.unread)
		}
		entries := c.besides(nil)
		at := map[arch.Addr]int{}
		last, unblocking := arch.Addr(0), false
		for i, e := range entries {
			jump := len(e.Original) > 1
			if unblocking = unblocking || d.unblocks(e.At); !unblocking && e.At&^(codePage-1) < last {
				t.Errorf("%s comes behind page %s", e.At, last)
			}
			last = e.At &^ (codePage - 1)
			if bytes.Equal(e.Original, e.Replacement) {
				t.Errorf("%s is not changed", e.At)
			}
			for b := range e.Original {
				if before, twice := at[e.At.Add(int64(b))]; twice && jump {
					t.Errorf("the jump at %s comes behind %s", e.At, entries[before].At)
				}
				at[e.At.Add(int64(b))] = i
			}
		}
		if len(entries) < 1000 {
			t.Errorf("only %d places", len(entries))
		}
		return nil
	})
	endsRight(t, prog, s)
}

// TestWhatTheLastChildHadIsKnownOnlyWhileItStands: what is known of the last child's copy is what a search of the memory finds, whatever has changed since.
func TestWhatTheLastChildHadIsKnownOnlyWhileItStands(t *testing.T) {
	prog, s, kps, _ := thousand(t, Options{})
	same := func(after string) (places int) {
		t.Helper()
		_ = s.do(func() error {
			d := s.mainDomain()
			known := d.copied(d.space)
			if again := d.copied(d.space); !slices.Equal(again.found, known.found) {
				t.Errorf("after %s: memory that has not changed is searched again", after)
			}
			d.past.runs = nil
			searched := d.copied(d.space)
			places = len(searched.besides(nil))
			if !reflect.DeepEqual(known.besides(nil), searched.besides(nil)) || !slices.Equal(known.drop, searched.drop) {
				t.Errorf("after %s: %d places, %v to drop are known; there are %d, %v", after, len(known.besides(nil)), known.drop, places, searched.drop)
			}
			return nil
		})
		return places
	}
	change := func(kps []*Kprobe, change func(*Kprobe) error) {
		t.Helper()
		for _, kp := range kps {
			if err := change(kp); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.WaitForOptimizer(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	all := same("all were armed")
	change(kps[100:200], s.DisableKprobe)
	if n := same("a hundred were disabled"); n > all-100 {
		t.Errorf("%d places of %d are there still", n, all)
	}
	change(kps[100:200], s.EnableKprobe)
	if n := same("they were enabled"); n != all {
		t.Errorf("%d places, %d before", n, all)
	}
	if err := s.UnregisterKprobes(kps[:900]); err != nil {
		t.Fatal(err)
	}
	change(nil, nil)
	if n := same("900 were removed"); n > all-900 {
		t.Errorf("%d places of %d are there still", n, all)
	}
	endsRight(t, prog, s)
}

// TestAChildKnowsWhereItsParentsCallsAre: code that was searched in the parent is not searched again, as long as the calls stand where they were found.
func TestAChildKnowsWhereItsParentsCallsAre(t *testing.T) {
	prog, s, _, _ := thousand(t, Options{Follow: true})
	prog.Send("end")
	prog.Expect("ended")
	told := mappingKey{inode: 1} // of no mapping: nobody finds it out
	_ = s.do(func() error { s.mainDomain().masks.keys[told] = codeKey{}; return nil })
	child := fork(t, prog)
	_ = s.do(func() error {
		delete(s.mainDomain().masks.keys, told)
		d := s.domainOfProcess(t, child)
		if _, knows := d.masks.keys[told]; !knows {
			t.Error("the child was not told what its parent knows")
		}
		calls := 0
		for key, code := range s.mainDomain().masks.keys {
			if d.masks.keys[key] != code {
				t.Errorf("of the code at %s the child knows something else", key.at)
			}
			found, ok := code.remembered()
			if calls += len(found.calls); !ok || !d.masks.stand(found.calls, key.at.Start) {
				t.Errorf("the calls at %s do not stand", key.at)
			}
			if len(found.calls) > 0 && d.masks.stand(found.calls, key.at.Start+1) {
				t.Errorf("the calls at %s stand beside where they are, too", key.at)
			}
		}
		if calls == 0 {
			t.Error("no calls are known")
		}
		return nil
	})
	endsRight(t, prog, s)
}

// TestAForkedChildDropsCopiesOfTheCode: pages that have nothing but our patches in them are the file's again. What the program has put into one is there still.
func TestAForkedChildDropsCopiesOfTheCode(t *testing.T) {
	for _, follow := range []bool{false, true} {
		t.Run(fmt.Sprintf("follow-%t", follow), func(t *testing.T) {
			prog := testprog.Start(t, testprog.Build(t, "pages"))
			alone := fork(t, prog)
			want := prog.Do("call", "sum")
			if n := copiedPages(t, alone); n != 0 {
				t.Fatalf("a child has %d pages of the code for itself without us", n)
			}
			prog.Do("end", "ended")
			s, err := Attach(context.Background(), prog.PID(), Options{Follow: follow, Log: func(text string) { t.Log(text) }})
			if err != nil {
				t.Fatal(err)
			}
			var kps []*Kprobe
			for i := range 64 {
				kps = append(kps, &Kprobe{SymbolName: fmt.Sprintf("pg_%02o", i)})
			}
			if err := s.RegisterKprobes(context.Background(), kps); err != nil {
				t.Fatal(err)
			}
			if err := s.WaitForOptimizer(context.Background()); err != nil {
				t.Fatal(err)
			}
			for _, poked := range []int{0, 1} {
				byteWas := ""
				if poked > 0 {
					byteWas = strings.Replace(prog.Do("poke 32", "poked"), "poked", "byte", 1)
				}
				child := fork(t, prog)
				if n := copiedPages(t, child); follow && n < 64 || !follow && n != poked {
					t.Errorf("the child has %d pages of the code for itself, %d were changed by the program", n, poked)
				}
				if got := prog.Do("call", "sum"); got != want {
					t.Errorf("probed %s, alone %s", got, want)
				}
				if got := prog.Do("peek 32", "byte"); poked > 0 && got != byteWas {
					t.Errorf("the program has put %s there, the child has %s", byteWas, got)
				}
				if !follow && poked == 0 {
					testprog.CheckClean(t, child)
				}
				prog.Do("end", "ended")
			}
			prog.Do("poke 32", "poked")
			wantClosed(t, prog, s)
		})
	}
}

// copiedPages is how many pages of the program's code a process has copies of.
func copiedPages(t *testing.T, pid int) (n int) {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps", pid))
	if err != nil {
		t.Fatal(err)
	}
	code := false
	for line := range strings.Lines(string(b)) {
		fields := strings.Fields(line)
		switch {
		case len(fields) > 5:
			code = fields[1] == "r-xp" && strings.HasSuffix(fields[5], "/pages")
		case code && fields[0] == "Anonymous:":
			kb, err := strconv.Atoi(fields[1])
			if err != nil {
				t.Fatal(err)
			}
			n += kb / 4
		}
	}
	return n
}
