package numbers

import (
	_ "embed"
	"fmt"
	"math/rand/v2"
	"regexp"
	"testing"

	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/internal/testsize"
)

var (
	//go:embed testdata/style.cc
	styleCXX string
	//go:embed testdata/style.rs
	styleRust string
	//go:embed testdata/style.go.txt
	styleGo string
)

var (
	inCXXStyle = []difference{
		{regexp.MustCompile(`not known: a class of the library$`), "we show containers of the library by what they hold"},
	}
	inRustStyle = append(inCXXStyle[:len(inCXXStyle):len(inCXXStyle)],
		difference{regexp.MustCompile(`not known: That operation is not available on integers of more than 8 bytes`), "gdb's Python has no such numbers"},
		difference{regexp.MustCompile(`^limit core::option::Option<u32> = \{"Some":7\} \| "None"$`), "gdb chooses the member of an enumeration as if bytes in registers were zero"})
	inGoStyle = []difference{
		{regexp.MustCompile(`not known: Go's (interfaces|maps) are`), "gdb shows them as memory"},
		{regexp.MustCompile(` \[\]uint8 = "| runtime\.moduledata = `), "we show bytes as a text"},
		{regexp.MustCompile(`not known: Cannot convert value to long`), "gdb's Python does not read complex numbers and functions"},
	}
)

// TestGdbGivesTheSameVariablesOfOtherLanguages: in programs as people write them.
func TestGdbGivesTheSameVariablesOfOtherLanguages(t *testing.T) {
	seed := testprog.Seed(t, 20261130)
	var all locals
	for i, x := range []struct {
		maker
		source      string
		usual       int // levels
		differences []difference
	}{
		{maker{name: "g++", suffix: ".cc", levels: [][]string{{"-g", "-O0"}, {"-g", "-O3", "-flto"}, {"-g", "-O2"}}}, styleCXX, 2, inCXXStyle},
		{maker{name: "clang++", suffix: ".cc", levels: [][]string{{"-g", "-O2", "-std=c++17"}, {"-g", "-O0", "-std=c++17"}}}, styleCXX, 1, inCXXStyle},
		{maker{name: "rustc", suffix: ".rs", levels: [][]string{{"-g", "-O"}, {"-g", "-Copt-level=3", "-Clto"}, {"-g"}}}, styleRust, 1, inRustStyle},
		{maker{name: "go", suffix: ".go", levels: [][]string{{"-gcflags=-N -l"}, {}}}, styleGo, 2, inGoStyle},
	} {
		for j, flags := range x.levels[:min(len(x.levels), testsize.Rounds(1, x.usual, 3))] {
			var one locals
			r := rand.New(rand.NewPCG(seed, uint64(10*i+j)))
			l := &looking{T: t, locals: &one, what: fmt.Sprintf("GOKPROBE_SEED=%d %s %v", seed, x.name, flags), isGo: x.name == "go", differences: x.differences}
			l.choose = func() visit {
				v := l.statements("random" + x.suffix)
				r.Shuffle(len(v.Places), func(i, j int) { v.Places[i], v.Places[j] = v.Places[j], v.Places[i] })
				v.Places = v.Places[:min(len(v.Places), testsize.Rounds(6, 12, 1000))]
				v.Hits, v.Walks, v.Steps, v.Seed = 2, 3, 5, r.Uint64()
				return v
			}
			l.run(x.compile(t, flags, x.source))
			t.Logf("%s %v: %s", x.name, flags, &one)
			all.add(one)
		}
	}
	t.Log(&all)
	if least := testsize.Rounds(200, 500, 5000); all.same < least || all.reached < least/2 {
		t.Errorf("%d values were compared, and %d that are reached from them", all.same, all.reached)
	}
}
