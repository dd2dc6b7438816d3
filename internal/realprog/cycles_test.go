package realprog

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/internal/testsize"
)

// cyclesEach is how many sessions a target has, one after the other, before another one is started.
const cyclesEach = 10

// cycles is how many sessions there are in all, or as GOKPROBE_CYCLES says.
func cycles(t testing.TB) int {
	n := testsize.Rounds(5, 50, 10_000)
	if s := os.Getenv("GOKPROBE_CYCLES"); s != "" {
		var err error
		if n, err = strconv.Atoi(s); err != nil {
			t.Fatalf("GOKPROBE_CYCLES: %v", err)
		}
	}
	return n
}

// TestEverySessionLeavesItsTargetAsItWas: attach, hit, detach, over and over: targets of all kinds, probes, modes and ends by chance. After each session the
// text is that of the files, nobody traces the target, nothing of ours is left, and the target works.
func TestEverySessionLeavesItsTargetAsItWas(t *testing.T) {
	seed := testprog.Seed(t, 1)
	tracer := filepath.Join(t.TempDir(), "gokprobe")
	output(t, "", requires(t, "go")[0], "build", "-o", tracer, "github.com/gokprobe/gokprobe/cmd/gokprobe")
	kinds := slices.DeleteFunc(killKinds(), func(k killKind) bool { return k.told || !k.short && !testsize.Torture() })
	r, n := rand.New(rand.NewPCG(seed, 0)), cycles(t)
	var all tally
	for done := 0; done < n && !late(t); {
		kind := kinds[r.IntN(len(kinds))]
		t.Run(fmt.Sprintf("%d-%s", done, kind.name), func(t *testing.T) {
			k := &killing{killKind: kind, tracer: tracer, rand: r, tally: &all, cycles: true}
			defer func() { done += max(k.kills, 1) }()
			k.run(t, min(cyclesEach, n-done))
		})
	}
	t.Logf("\n%s", all.table())
}

// cycleWork adds to a command line what chooseWork leaves out. The session may end by itself then.
func cycleWork(r *rand.Rand, args []string) []string {
	if args[0] != "attach" {
		return args
	}
	for _, more := range [][]string{{"-stack", "4"}, {"-filter", "common_pid > 0"}, {"-max-hits", "100"}, {"-duration", "200ms"}} {
		if r.IntN(4) == 0 {
			args = append(args, more...)
		}
	}
	return args
}
