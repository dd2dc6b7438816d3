package kprobes

import (
	"testing"

	"github.com/gokprobe/gokprobe/internal/testprog"
)

// TestAJumpWhoseFirstByteIsTakenAway: a uprobe has come and gone before anybody has looked. Threads that come there meanwhile do what the program
// does, and hits are seen.
func TestAJumpWhoseFirstByteIsTakenAway(t *testing.T) {
	prog := testprog.Start(t, testprog.Build(t, "optstorm"))
	s, err := Attach(prog.PID(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	_ = s.do(func() error {
		s.beside = true // nobody looks
		return nil
	})
	functions := []string{"s_ret", "s_push", "s_one", "s_call", "s_jump"}
	var kps []*Kprobe
	for _, f := range functions {
		kps = append(kps, &Kprobe{SymbolName: f})
	}
	if err := s.RegisterKprobes(kps); err != nil {
		t.Fatal(err)
	}
	s.WaitForOptimizer()
	for round := range 3 {
		_ = s.do(func() error {
			for _, kp := range kps {
				st := kp.placements[0].site
				if st.jump == nil {
					t.Logf("round %d: %s has no jump (%s)", round, kp.SymbolName, st.refusal)
					continue
				}
				poke(t, st, st.jump.original[:1])
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

// poke writes b at st, as the kernel does: at once, while threads run.
func poke(t *testing.T, st *site, b []byte) {
	t.Helper()
	mem := st.domain.space.Text()
	if err := mem.WriteMemory(st.addr, b); err != nil {
		t.Fatal(err)
	}
}
