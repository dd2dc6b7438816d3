package kprobes_test

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
)

// selfPatch is one write of the program's over its own code.
type selfPatch struct {
	name     string
	function string
	offset   int
	bytes    string // in hexadecimal
	inside   bool   // of a jump: a breakpoint has nothing to do with it
	want     string // what call FUNCTION 5 returns then
}

var selfPatches = []selfPatch{
	{"a whole function", "p_mov", 0, "b809000000c3", false, "ret 9"},
	{"the first five bytes", "p_multi", 0, "b809000000c3", false, "ret 9"},
	{"a hook that leads to another function", "p_mov", 0, "e99b000000", false, "ret 105"},
	{"the first byte", "p_multi", 0, "c3", false, "ret "},
	{"an operand", "p_mov", 1, "09000000", false, "ret 9"},
	{"a byte of an operand", "p_mov", 1, "09", false, "ret 9"},
	{"the last byte of an operand", "p_mov", 4, "01", false, "ret 16777223"},
	{"an instruction inside", "p_multi", 4, "488d4309", true, "ret 14"},
	{"two instructions inside", "p_multi", 1, "4889fb488d4309", true, "ret 14"},
	{"behind the first", "p_lea", 3, "09", false, "ret 14"},
	{"behind the first five", "p_long", 9, "33", false, "ret 10"},
}

// TestAProgramThatPatchesItself writes over code that has a breakpoint or a jump. What it wrote stays, also when we leave, and nothing of ours does;
// the probe is told as lost, and is back with the program's own code.
func TestAProgramThatPatchesItself(t *testing.T) {
	bin := testprog.Build(t, "selfpatch")
	for _, c := range selfPatches {
		for _, jumps := range []bool{true, false} {
			for _, back := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s, jumps %v, back %v", c.name, jumps, back), func(t *testing.T) {
					prog := testprog.Start(t, bin)
					selfPatched(t, prog, c, jumps, back)
				})
			}
		}
	}
}

func selfPatched(t *testing.T, prog *testprog.Prog, c selfPatch, jumps, back bool) {
	t.Helper()
	at := addressOf(t, prog.PID(), c.function)
	own := codeOf(t, prog.PID(), uint64(at), 24)
	b, err := hex.DecodeString(c.bytes)
	if err != nil {
		t.Fatal(err)
	}
	want := bytes.Clone(own)
	copy(want[c.offset:], b)
	warned := make(chan struct{})
	warn := sync.OnceFunc(func() { close(warned) })
	s, kp := sessionWith(t, prog, c.function, kprobes.Options{NoOptimize: !jumps, Log: func(m string) {
		if strings.Contains(m, "somebody") { // and not of something else
			warn()
		}
	}})
	prog.Do("call "+c.function+" 5", "ret ")
	prog.Do(fmt.Sprintf("write %s %d %s", c.function, c.offset, c.bytes), "wrote")
	if jumps || !c.inside {
		<-warned
		if s.Disturbances() == 0 {
			t.Error("nothing was counted")
		}
	}
	wantAnswer(t, prog, c)
	if back {
		prog.Do(fmt.Sprintf("write %s %d %s", c.function, c.offset, hex.EncodeToString(own[c.offset:][:len(b)])), "wrote")
		want = own
		wantHitsAgain(t, prog, kp, "call "+c.function+" 5", "ret ")
	}
	closeSession(t, s)
	if now := codeOf(t, prog.PID(), uint64(at), 24); !bytes.Equal(now, want) {
		t.Errorf("there is % x when we have left, not % x", now, want)
	}
	if !back {
		wantAnswer(t, prog, c)
		prog.Do(fmt.Sprintf("write %s %d %s", c.function, c.offset, hex.EncodeToString(own[c.offset:][:len(b)])), "wrote")
	}
	prog.CheckClean()
	wantRight(t, prog)
}

// codeOf is n bytes of a process's memory.
func codeOf(t *testing.T, pid int, at uint64, n int) []byte {
	t.Helper()
	f, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := make([]byte, n)
	if _, err := f.ReadAt(b, int64(at)); err != nil {
		t.Fatal(err)
	}
	return b
}

func wantAnswer(t *testing.T, prog *testprog.Prog, c selfPatch) {
	t.Helper()
	if got := prog.Do("call "+c.function+" 5", "ret "); !strings.HasPrefix(got, c.want) {
		t.Errorf("the call says %q, not %q", got, c.want)
	}
}

// TestAProgramThatCopiesItsCode copies what we have patched and runs that: it is as if we were not there, and a breakpoint of the program's own is its own.
func TestAProgramThatCopiesItsCode(t *testing.T) {
	for _, jumps := range []bool{true, false} {
		for _, function := range []string{"p_multi", "p_lea", "p_mov"} {
			t.Run(fmt.Sprintf("%s, jumps %v", function, jumps), func(t *testing.T) {
				prog := start(t, "selfpatch")
				s, kp := sessionWith(t, prog, function, kprobes.Options{NoOptimize: !jumps})
				want := prog.Do("call "+function+" 5", "ret ")
				prog.Do(fmt.Sprintf("copy %s 16", function), "copied")
				for range 3 {
					prog.Do("run 5", want)
				}
				prog.Do("trap", "trapped")
				prog.Do("call "+function+" 5", want)
				wantHits(t, kp, 2)
				if s.Disturbances() != 1 {
					t.Errorf("%d copies were put right", s.Disturbances())
				}
				closeSession(t, s)
				prog.Do("run 5", want)
				prog.CheckClean()
				wantRight(t, prog)
			})
		}
	}
}

// TestAProgramThatSumsUpItsCode finds what we have written, and its own code when we have left.
func TestAProgramThatSumsUpItsCode(t *testing.T) {
	prog := start(t, "selfpatch")
	want := prog.Do("sum p_multi 16", "sum ")
	s := attach(t, prog.PID(), kprobes.Options{NoOptimize: true})
	register(t, s, &kprobes.Kprobe{SymbolName: "p_multi"})
	if prog.Do("sum p_multi 16", "sum ") == want {
		t.Error("a breakpoint does not show: say so in SECURITY.md")
	}
	closeSession(t, s)
	prog.Do("sum p_multi 16", want)
	prog.CheckClean()
	wantRight(t, prog)
}
