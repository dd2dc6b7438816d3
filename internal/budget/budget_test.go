package budget

import (
	"errors"
	"math"
	"runtime"
	"strings"
	"sync"
	"testing"
)

func TestABudgetIsNeverOverdrawn(t *testing.T) {
	b := New(1000)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			a := b.Open()
			list := a.Part("a list")
			for i := range uint64(1000) {
				q := a.Open()
				_ = q.Take(i%300, "a section")
				_ = list.Set(i % 170)
				if used := b.used.Load(); i%100 == 0 && used < 0 {
					t.Errorf("%d bytes are taken", used)
				}
				if q.Close(); i%64 == 0 {
					a.Close()
				}
			}
			a.Close()
			if list.Set(0) != nil || list.Set(1) != nil {
				t.Error("a part of a closed account can't be had any more")
			}
			a.Close()
		})
	}
	wg.Wait()
	a := b.Open()
	if used := b.Used(); used != 0 || a.Take(1000, "all") != nil {
		t.Errorf("%d bytes are left taken", used)
	}
	for _, n := range []uint64{1, 1 << 40, math.MaxInt64, math.MaxUint64} {
		if err := a.Take(n, "the symbols"); !errors.Is(err, ErrOver) || !strings.Contains(err.Error(), "the symbols") {
			t.Errorf("%d bytes more: %v", n, err)
		}
	}
	if b.Used() != 1000 {
		t.Errorf("%d bytes are taken after refusals", b.Used())
	}
}

func TestAPartIsWhatWasSetLast(t *testing.T) {
	b := New(100)
	a := b.Open()
	p, q := a.Part("p"), a.Part("q")
	for _, c := range []struct {
		part *Part
		n    uint64
		used uint64
		ok   bool
	}{{p, 60, 60, true}, {q, 41, 60, false}, {q, 40, 100, true}, {p, 61, 100, false}, {p, 10, 50, true}, {q, 90, 100, true}, {q, math.MaxUint64, 100, false}, {q, 0, 10, true}} {
		if err := c.part.Set(c.n); (err == nil) != c.ok || b.Used() != c.used {
			t.Errorf("%s of %d: %v, %d are taken, want %d", c.part.what, c.n, err, b.Used(), c.used)
		}
	}
}

func TestWhatIsSpareIsGivenBackBeforeAnythingIsRefused(t *testing.T) {
	b := New(100)
	kept, a := b.Open(), b.Open()
	asked := 0
	b.Spare(func() bool {
		asked++
		some := kept.Held() > 0
		kept.Close()
		return some
	})
	for i, c := range []struct {
		kept, n uint64
		ok      bool
		asked   int
	}{{60, 40, true, 0}, {60, 41, true, 1}, {0, 101, false, 0}, {60, 101, false, 0}, {50, 100, true, 1}} {
		asked = 0
		kept.Close()
		a.Close()
		if err := kept.Take(c.kept, "what is kept"); err != nil {
			t.Fatal(err)
		}
		if err := a.Take(c.n, "it"); (err == nil) != c.ok || asked != c.asked {
			t.Errorf("case %d: %v, spare was asked for %d times", i, err, asked)
		}
	}
	if err := a.Take(1, "it"); !errors.Is(err, ErrOver) || b.Used() != 100 {
		t.Errorf("%v, %d are taken", err, b.Used())
	}
}

// Whoever forgets to close an account keeps nobody from anything once it is garbage.
func TestAForgottenAccountGivesBack(t *testing.T) {
	b := New(1000)
	for range 20 {
		for b.Open().Take(600, "it") != nil { // cleanups run after the collection, on goroutines of their own
			runtime.GC()
			runtime.Gosched()
		}
	}
}
