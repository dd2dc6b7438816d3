package kprobes_test

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
)

// TestWhereOthersHaveBreakpointsNoJumpsStand: a uprobe elsewhere in the same file has jumps taken back, and keeps later probes, there and in later sessions, from
// getting any; other files have theirs.
func TestWhereOthersHaveBreakpointsNoJumpsStand(t *testing.T) {
	testprog.NeedUprobes(t)
	prog := testprog.Start(t, ownCopy(t, "optstorm"))
	place, err := testprog.PlaceOf(prog.PID(), addressOf(t, prog.PID(), "s_glob"))
	if err != nil {
		t.Fatal(err)
	}
	told := make(chan struct{})
	tell := sync.OnceFunc(func() { close(told) })
	s, kp := sessionWith(t, prog, "s_ret", kprobes.Options{Log: func(m string) {
		if strings.HasPrefix(m, "others write into the code of ") {
			tell()
		}
	}})
	if got := s.Status(kp).Mechanism; got != kprobes.Optimized {
		t.Fatalf("%s before anybody has come", got)
	}
	u, err := testprog.OpenUprobe(prog.PID(), place.File, place.Offset, false)
	if err != nil {
		t.Fatal(err)
	}
	<-told
	if s.Status(kp).Mechanism == kprobes.Optimized {
		t.Error("the jump stays")
	}
	late := &kprobes.Kprobe{SymbolName: "s_push"}
	other := &kprobes.Kprobe{SymbolName: "getenv"}
	if err := s.RegisterKprobes(t.Context(), []*kprobes.Kprobe{late, other}); err != nil {
		t.Fatal(err)
	}
	s.WaitForOptimizer(t.Context())
	prog.Do("storm 3", "did")
	if st := s.Status(late); st.Mechanism == kprobes.Optimized || st.Hits == 0 {
		t.Errorf("a later probe is %s (%s), with %d hits", st.Mechanism, st.Reason, st.Hits)
	}
	if st := s.Status(other); !jumps(s, other) {
		t.Errorf("one in another file is %s (%s)", st.Mechanism, st.Reason)
	}
	closeSession(t, s)
	s, kp = sessionWith(t, prog, "s_ret", kprobes.Options{})
	if st := s.Status(kp); st.Mechanism == kprobes.Optimized {
		t.Errorf("one where a uprobe stands is %s", st.Mechanism)
	}
	u.Close()
	closeSession(t, s)
	s, kp = sessionWith(t, prog, "s_ret", kprobes.Options{})
	if st := s.Status(kp); st.Mechanism != kprobes.Optimized {
		t.Errorf("when it has gone, a new session's is %s (%s)", st.Mechanism, st.Reason)
	}
	closeSession(t, s)
	prog.CheckClean()
	wantRight(t, prog)
}

// ownCopy is a fixture in a file of its own: a uprobe of another process's at the same place of a file has the hits here, too.
func ownCopy(t *testing.T, fixture string) string {
	t.Helper()
	b, err := os.ReadFile(testprog.Build(t, fixture))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), fixture)
	if err := os.WriteFile(file, b, 0o755); err != nil {
		t.Fatal(err)
	}
	return file
}
