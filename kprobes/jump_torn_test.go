package kprobes

import (
	"context"
	"testing"

	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/internal/testprog"
)

// TestAJumpWhoseFirstByteIsTakenAway: a uprobe has come and gone before anybody has looked. Threads that come there meanwhile do what the program
// does, and hits are seen.
func TestAJumpWhoseFirstByteIsTakenAway(t *testing.T) {
	prog := testprog.Start(t, testprog.Build(t, "optstorm"))
	s, kps := unwatched(t, prog, "s_ret", "s_push", "s_one", "s_call", "s_jump")
	for round := range 3 {
		_ = s.do(func() error {
			for _, kp := range kps {
				st := kp.placements[0].site
				if st.jump() == nil {
					t.Logf("round %d: %s has no jump (%s)", round, kp.SymbolName, st.noJump.why)
					continue
				}
				poke(t, st, st.jump().original[:1])
			}
			return nil
		})
		before := kps[0].Hits()
		prog.Do("storm 20", "did")
		if kps[0].Hits() == before {
			t.Error("no hits are seen")
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	prog.CheckClean()
	if last := prog.Quit(); last != "right" {
		t.Errorf("the program says %q", last)
	}
}

// TestAJumpOfWhichABytesMeaningIsChanged: a uprobe comes to an instruction inside of a jump, or has gone from there, before anybody has looked. The jump then
// leads elsewhere, and a thread that goes there traps or faults, and is where it belongs. This is done to every such instruction.
func TestAJumpOfWhichABytesMeaningIsChanged(t *testing.T) {
	prog := testprog.Start(t, testprog.Build(t, "optstorm"))
	changed := 0
	for head := range 2 {
		for _, gone := range []bool{true, false} {
			s, kps := unwatched(t, prog, "s_ret", "s_push", "s_one", "s_call", "s_loop", "s_jump")
			_ = s.do(func() error {
				for _, kp := range kps {
					changed += changeAHead(t, kp.placements[0].site, head, gone)
				}
				return nil
			})
			prog.Do("storm 10", "did")
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			prog.Do("storm 1", "did")
			prog.CheckClean()
		}
	}
	if changed < 5 {
		t.Errorf("only %d jumps were changed", changed)
	}
	if last := prog.Quit(); last != "right" {
		t.Errorf("the program says %q", last)
	}
}

// unwatched is a session with jumps at functions of prog, which does not look whether somebody writes into them.
func unwatched(t *testing.T, prog *testprog.Prog, functions ...string) (*Session, []*Kprobe) {
	t.Helper()
	s, err := Attach(context.Background(), prog.PID(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	_ = s.do(func() error {
		s.beside.on = true // as if it would look soon: it does not begin to
		return nil
	})
	kps := make([]*Kprobe, len(functions))
	for i, f := range functions {
		kps[i] = &Kprobe{SymbolName: f}
	}
	if err := s.RegisterKprobes(t.Context(), kps); err != nil {
		t.Fatal(err)
	}
	s.WaitForOptimizer(t.Context())
	return s, kps
}

// changeAHead writes a breakpoint over an instruction inside of st's jump, or what the program has there. What a uprobe of the kernel's does where it has a
// breakpoint can't be done here; so a breakpoint is only written where nobody comes but by the jump.
func changeAHead(t *testing.T, st *site, head int, gone bool) int {
	det := st.jump()
	if det == nil || head >= len(det.Pieces)-1 {
		return 0
	}
	at := det.Pieces[head+1].Insn.Addr
	n := int(at - st.addr)
	if n >= len(det.jump) {
		return 0
	}
	b := host.Arch.Breakpoint()
	if gone {
		b = det.original[n : n+1]
	}
	if b[0] == det.jump[n] {
		return 0
	}
	if err := st.domain.space.Text().WriteMemory(at, b); err != nil {
		t.Error(err)
	}
	return 1
}

// poke writes b at st, as the kernel does: at once, while threads run.
func poke(t *testing.T, st *site, b []byte) {
	t.Helper()
	mem := st.domain.space.Text()
	if err := mem.WriteMemory(st.addr, b); err != nil {
		t.Fatal(err)
	}
}
