package hostile

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/gokprobe/gokprobe/internal/testsize"
)

// files is how many mutated files are read.
func files(t testing.TB) int {
	t.Helper()
	if n, err := strconv.Atoi(os.Getenv("GOKPROBE_HOSTILE_FILES")); err == nil {
		return n
	}
	return testsize.Rounds(26, 260, 5000)
}

// What a file says of itself is not to be believed: its reader neither panics nor hangs, and takes no more memory than it may.
func TestMutatedFilesHarmNobody(t *testing.T) {
	all := seeds(t)
	groups := make([][][]field, len(all))
	for i, s := range all {
		groups[i] = fields(s.data)
	}
	n, next := files(t), make(chan int)
	var mu sync.Mutex
	var worst cost
	slowest, largest := "", uint64(0)
	dir := t.TempDir()
	var wg sync.WaitGroup
	for worker := range 2 {
		wg.Go(func() {
			child := start(t)
			name := filepath.Join(dir, fmt.Sprint("file", worker))
			for i := range next {
				s := all[i%len(all)]
				r := rand.New(rand.NewPCG(uint64(i), 20260613))
				data := mutate(r, s.data, groups[i%len(all)])
				if err := os.WriteFile(name, data, 0o600); err != nil {
					t.Error(err)
					continue
				}
				c, err := child.read(name)
				if err != nil {
					keep := filepath.Join(os.TempDir(), fmt.Sprintf("gokprobe-hostile-%s-%d", s.name, i))
					_ = os.WriteFile(keep, data, 0o600) // to be looked at; the test fails anyway
					t.Errorf("file %d, of %s, kept as %s: %v", i, s.name, keep, err)
					child = start(t)
				}
				mu.Lock()
				if c.time > worst.time {
					worst.time, slowest = c.time, fmt.Sprint(s.name, " ", i)
				}
				largest = max(largest, c.memory)
				mu.Unlock()
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wg.Wait()
	t.Logf("%d files: at most %v (%s), at most %d MB", n, worst.time.Round(time.Millisecond), slowest, largest/1_000_000)
}

// The finds of earlier campaigns, and the files as they are, which must be read.
func TestFindsStayMended(t *testing.T) {
	child := start(t)
	found, err := filepath.Glob("testdata/finds/*")
	must(t, err)
	for _, f := range found {
		if _, err := child.read(f); err != nil {
			t.Errorf("%s: %v", f, err)
			child = start(t)
		}
	}
	dir := t.TempDir()
	for _, s := range seeds(t) {
		name := filepath.Join(dir, s.name)
		must(t, os.WriteFile(name, s.data, 0o600))
		c, err := child.read(name)
		if err != nil {
			t.Fatalf("%s: %v", s.name, err)
		}
		t.Logf("%s: %v, %d MB: %s", s.name, c.time, c.memory/1_000_000, c.said)
	}
}
