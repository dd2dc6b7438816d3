package optimize

import (
	"bytes"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/arch/amd64/code"
)

// functionsOf is some of a file's functions, none twice, with code that goes on behind them.
func functionsOf(t *testing.T, path string) (all []Function) {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	syms, _ := f.Symbols() // stripped libraries have none
	dynamic, _ := f.DynamicSymbols()
	texts := map[elf.SectionIndex][]byte{}
	seen := map[uint64]bool{}
	for _, s := range append(syms, dynamic...) {
		if elf.ST_TYPE(s.Info) != elf.STT_FUNC || s.Size == 0 || s.Size > 1<<16 || int(s.Section) >= len(f.Sections) || seen[s.Value] {
			continue
		}
		sec := f.Sections[s.Section]
		if texts[s.Section] == nil {
			if texts[s.Section], err = sec.Data(); err != nil {
				t.Fatal(err)
			}
		}
		if seen[s.Value] = true; len(seen)%5 != 0 || len(all) == 1000 || s.Value+s.Size > sec.Addr+sec.Size {
			continue
		}
		behind := texts[s.Section][s.Value-sec.Addr:]
		end := arch.Addr(s.Value + s.Size)
		all = append(all, Function{
			Range: arch.Range{Start: arch.Addr(s.Value), End: end},
			Code:  bytes.Clone(behind[:min(len(behind), int(s.Size)+32)]),
			Next:  (end + functionAlign) &^ (functionAlign - 1),
		})
	}
	return all
}

// sitesOf is what an says about all places of f.
func sitesOf(an *Analysis, f Function) (choices []*Choice, refusals []string) {
	for at := f.Range.Start; at < f.Range.End; at++ {
		c, err := an.Site(at)
		choices, refusals = append(choices, c), append(refusals, fmt.Sprint(err))
	}
	return choices, refusals
}

// TestWhatIsRememberedOfAFunctionIsWhatDecodingItAgainSays compares all places of functions, which lie elsewhere when they are asked for again.
func TestWhatIsRememberedOfAFunctionIsWhatDecodingItAgainSays(t *testing.T) {
	const lib = "/lib/x86_64-linux-gnu/"
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{lib + "libc.so.6", lib + "libcrypto.so.3", filepath.Join(strings.TrimSpace(string(root)), "bin/go")} {
		if _, err := os.Stat(path); os.IsNotExist(err) {
			t.Logf("there is no %s here", path)
			continue
		}
		all := functionsOf(t, path)
		m := Memo{Most: 1 << 30}
		optimized := 0
		for _, shift := range []arch.Addr{0, 0x7f1234567000} {
			for _, f := range all {
				f.Range = arch.Range{Start: f.Range.Start + shift, End: f.Range.End + shift}
				f.Next += shift
				want, wantErr := Analyze(code.Arch{}, code.Arch{}, f)
				f.Code = bytes.Clone(f.Code)
				got, err := m.Analyze(code.Arch{}, code.Arch{}, f)
				if fmt.Sprint(err) != fmt.Sprint(wantErr) {
					t.Fatalf("%s: function at %s: %v, want %v", path, f.Range.Start, err, wantErr)
				}
				if err != nil {
					continue
				}
				wantChoices, wantRefusals := sitesOf(want, f)
				choices, refusals := sitesOf(got, f)
				if !reflect.DeepEqual(choices, wantChoices) || !reflect.DeepEqual(refusals, wantRefusals) {
					t.Fatalf("%s: function at %s: other choices than by decoding it again", path, f.Range.Start)
				}
				optimized++
			}
		}
		asked, found := m.Used()
		if len(all) < 100 || optimized < len(all) || asked != uint64(2*len(all)) || found < uint64(len(all)) {
			t.Errorf("%s: %d functions, of which %d were compared; of %d questions %d were answered by what was known", path, len(all), optimized, asked, found)
		}
	}
}

// TestCodeThatWasChangedIsDecodedAgain: no byte of what is known may differ.
func TestCodeThatWasChangedIsDecodedAgain(t *testing.T) {
	m := Memo{Most: 1 << 20}
	f := function(0xb8, 1, 0, 0, 0, 0x90, 0x75, 0xfd, 0xc3) // mov $1,%eax; nop; jne to behind the nop's beginning; ret
	ask := func(f Function) string {
		t.Helper()
		an, err := m.Analyze(code.Arch{}, code.Arch{}, f)
		if err != nil {
			return err.Error()
		}
		c, err := an.Site(f.Range.Start)
		want, wantErr := choose(f, f.Range.Start)
		if !reflect.DeepEqual(c, want) || fmt.Sprint(err) != fmt.Sprint(wantErr) {
			t.Errorf("% x: %+v, %v instead of %+v, %v", f.Code[:f.Range.Len()], c, err, want, wantErr)
		}
		return fmt.Sprint(c, err)
	}
	known := func(want uint64) {
		t.Helper()
		if _, found := m.Used(); found != want {
			t.Errorf("%d answers were known, want %d", found, want)
		}
	}
	ask(f)
	ask(f)
	known(1)
	for i := range f.Code {
		changed := f
		changed.Code = bytes.Clone(f.Code)
		changed.Code[i] ^= 0x01
		ask(changed)
	}
	for _, change := range []func(*Function){ // where the next function begins is no part of what is known
		func(f *Function) { f.Next -= 0xf0 },
		func(f *Function) { f.Next = 0 },
	} {
		changed := f
		change(&changed)
		ask(changed)
	}
	known(3)
	for _, change := range []func(*Function){
		func(f *Function) { f.Range.End-- },
		func(f *Function) { f.BreakpointOnly = true },
		func(f *Function) { f.Range.Start++; f.Range.End++; f.Next++ }, // padding begins elsewhere
		func(f *Function) { f.Targets = []arch.Addr{base + 5} },
		func(f *Function) { f.Targets = []arch.Addr{base + 1} },
	} {
		changed := f
		change(&changed)
		ask(changed)
	}
	known(3)
	ask(f)
	known(4)
}

// TestWhatFollowsAFunctionDoesNotMatterForJumpsThatEndInIt compares where it begins just behind the function, further on, and where that is a target.
func TestWhatFollowsAFunctionDoesNotMatterForJumpsThatEndInIt(t *testing.T) {
	differ := 0
	for _, f := range functionsOf(t, "/lib/x86_64-linux-gnu/libc.so.6") {
		an, err := Analyze(code.Arch{}, code.Arch{}, f)
		if err != nil {
			continue
		}
		for _, next := range []arch.Addr{f.Range.End, f.Range.End + 1, f.Range.End + 32} {
			there := an.Before(next)
			for at := f.Range.Start; at < f.Range.End; at++ {
				want, wantErr := an.Site(at)
				got, err := there.Site(at)
				same := reflect.DeepEqual(got, want) && fmt.Sprint(err) == fmt.Sprint(wantErr)
				if at+arch.Addr(code.Arch{}.JumpLen()) > f.Range.End {
					differ += map[bool]int{false: 1}[same]
				} else if !same {
					t.Fatalf("%s in %s: %v, %v if the next one begins at %s, and %v, %v if at %s", at, f.Range, want, wantErr, f.Next, got, err, next)
				}
			}
		}
	}
	if differ == 0 {
		t.Error("it does not matter for the others either: nothing was compared")
	}
}

// TestAMemoHasABound: what was asked for last is kept.
func TestAMemoHasABound(t *testing.T) {
	const most = 1 << 16
	m := Memo{Most: most}
	for i := range 4096 {
		f := function(0xb8, byte(i), byte(i>>8), 0, 0, 0xc3)
		if _, err := m.Analyze(code.Arch{}, code.Arch{}, f); err != nil {
			t.Fatal(err)
		}
		size := 0
		for _, generation := range []map[content]known{m.young, m.old} {
			for _, k := range generation {
				size += len(k.code)
			}
		}
		if size > most {
			t.Fatalf("%d bytes of code are kept, of %d at most", size, most)
		}
		if _, err := m.Analyze(code.Arch{}, code.Arch{}, f); err != nil {
			t.Fatal(err)
		}
		if _, found := m.Used(); found != uint64(i+1) {
			t.Fatalf("what was asked for last is not kept: %d of %d", found, i+1)
		}
	}
	long := Function{Range: arch.Range{Start: base, End: base + most}, Code: bytes.Repeat([]byte{0x90}, most)}
	if _, err := m.Analyze(code.Arch{}, code.Arch{}, long); err != nil || len(m.young) == 0 {
		t.Fatalf("a function that is longer than what is kept has displaced all others, %v", err)
	}
}
