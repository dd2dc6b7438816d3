package testprog

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"github.com/gokprobe/gokprobe/internal/testsize"
)

// Seed is the seed of a test's random numbers: usual, so that make test judges a change by its own faults alone; another
// one at each run of make torture; or what GOKPROBE_SEED says, to see a failure again. A test that fails has it in its output.
func Seed(t testing.TB, usual uint64) uint64 {
	t.Helper()
	seed := usual
	if testsize.Torture() {
		seed = rand.Uint64()
	}
	if s := os.Getenv("GOKPROBE_SEED"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatalf("GOKPROBE_SEED: %v", err)
		}
		seed = n
	}
	t.Logf("GOKPROBE_SEED=%d", seed)
	return seed
}
