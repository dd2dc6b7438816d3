package numbers

import (
	_ "embed"
	"fmt"
	"math/rand/v2"
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

// TestGdbGivesTheSameVariablesOfOtherLanguages: in programs as people write them.
func TestGdbGivesTheSameVariablesOfOtherLanguages(t *testing.T) {
	seed := testprog.Seed(t, 20261130)
	var all locals
	for i, x := range []struct {
		maker
		source      string
		differences []difference
	}{
		{maker{name: "g++", suffix: ".cc", levels: [][]string{{"-g", "-O0"}, {"-g", "-O2"}, {"-g", "-O3", "-flto"}}}, styleCXX, nil},
		{maker{name: "clang++", suffix: ".cc", levels: [][]string{{"-g", "-O0", "-std=c++17"}, {"-g", "-O2", "-std=c++17"}}}, styleCXX, nil},
		{maker{name: "rustc", suffix: ".rs", levels: [][]string{{"-g"}, {"-g", "-O"}, {"-g", "-Copt-level=3", "-Clto"}}}, styleRust, nil},
		{maker{name: "go", suffix: ".go", levels: [][]string{{"-gcflags=-N -l"}, {}}}, styleGo, nil},
	} {
		for j, flags := range x.levels {
			var one locals
			r := rand.New(rand.NewPCG(seed, uint64(10*i+j)))
			l := &looking{T: t, locals: &one, what: fmt.Sprintf("GOKPROBE_SEED=%d %s %v", seed, x.name, flags), differences: x.differences}
			l.choose = func() visit {
				v := l.statements("random" + x.suffix)
				r.Shuffle(len(v.Places), func(i, j int) { v.Places[i], v.Places[j] = v.Places[j], v.Places[i] })
				v.Places = v.Places[:min(len(v.Places), testsize.Rounds(20, 40, 1000))]
				v.Hits, v.Walks, v.Steps, v.Seed = 2, 3, 5, r.Uint64()
				return v
			}
			l.run(x.compile(t, flags, x.source))
			t.Logf("%s %v: %s", x.name, flags, &one)
			all.add(one)
		}
	}
	t.Log(&all)
}
