package kprobes_test

import (
	"bytes"
	"debug/elf"
	"encoding/hex"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
)

// optimizedThere has function optimized in prog, and checks that its hits are counted and that it does what it is to do.
func optimizedThere(t *testing.T, prog *testprog.Prog, function, want string) {
	t.Helper()
	s, kp := sessionWith(t, prog, function, kprobes.Options{})
	wantOptimized(t, s, kp)
	if got := prog.Do("call "+function+" 5", "ret "); !strings.HasPrefix(got, want) {
		t.Errorf("the call says %q, not %q", got, want)
	}
	wantHits(t, kp, 1)
	closeSession(t, s)
}

// TestAFunctionIsDecodedOnceForAllProcesses counts how often what is known was asked for in a second process of the same program, which has it elsewhere.
func TestAFunctionIsDecodedOnceForAllProcesses(t *testing.T) {
	bin := testprog.Build(t, "selfpatch")
	functions := map[string]string{"p_mov": "ret 7", "p_multi": "ret 6", "p_lea": "ret ", "p_long": "ret "}
	for n := range 2 {
		prog := testprog.Start(t, bin)
		_, before := kprobes.Remembered()
		for function, want := range functions {
			optimizedThere(t, prog, function, want)
		}
		if _, known := kprobes.Remembered(); n == 1 && known-before < uint64(len(functions)) {
			t.Errorf("in the second process %d functions of %d were known", known-before, len(functions))
		}
		prog.CheckClean()
	}
}

// TestWhatIsRememberedIsNotOfCodeThatWasChanged: by the program itself, between two sessions.
func TestWhatIsRememberedIsNotOfCodeThatWasChanged(t *testing.T) {
	for _, c := range selfPatches {
		if c.want == "ret " || strings.HasPrefix(c.bytes, "e9") {
			continue // a function that has no room for a jump, or leads to another
		}
		t.Run(c.name, func(t *testing.T) {
			prog := start(t, "selfpatch")
			at := addressOf(t, prog.PID(), c.function)
			own := codeOf(t, prog.PID(), uint64(at), 24)
			b, err := hex.DecodeString(c.bytes)
			if err != nil {
				t.Fatal(err)
			}
			was := prog.Do("call "+c.function+" 5", "ret ")
			for range 2 {
				optimizedThere(t, prog, c.function, strings.TrimSpace(was))
				prog.Do("write "+c.function+" "+strconv.Itoa(c.offset)+" "+c.bytes, "wrote")
				optimizedThere(t, prog, c.function, c.want)
				changed := bytes.Clone(own)
				copy(changed[c.offset:], b)
				if now := codeOf(t, prog.PID(), uint64(at), 24); !bytes.Equal(now, changed) {
					t.Errorf("there is % x when we have left, not % x", now, changed)
				}
				prog.Do("write "+c.function+" "+strconv.Itoa(c.offset)+" "+hex.EncodeToString(own[c.offset:][:len(b)]), "wrote")
			}
			prog.CheckClean()
		})
	}
}

// TestWhatIsRememberedIsNotOfAnotherFile: one that has taken the place of the program's between two starts of it, with other code at the same place.
func TestWhatIsRememberedIsNotOfAnotherFile(t *testing.T) {
	content, err := os.ReadFile(testprog.Build(t, "selfpatch"))
	if err != nil {
		t.Fatal(err)
	}
	f, err := elf.NewFile(bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	symbols, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	offset := uint64(0)
	for _, s := range symbols {
		if sec := f.Sections[min(int(s.Section), len(f.Sections)-1)]; s.Name == "p_mov" {
			offset = s.Value - sec.Addr + sec.Offset
		}
	}
	if offset == 0 || content[offset] != 0xb8 || content[offset+1] != 7 {
		t.Fatal("p_mov is not where it is thought to be")
	}
	bin := filepath.Join(t.TempDir(), "prog")
	for _, answer := range []byte{7, 9, 7} {
		content[offset+1] = answer
		_ = os.Remove(bin)
		if err := os.WriteFile(bin, content, 0o755); err != nil {
			t.Fatal(err)
		}
		prog := testprog.Start(t, bin)
		optimizedThere(t, prog, "p_mov", "ret "+strconv.Itoa(int(answer)))
		prog.CheckClean()
	}
}
