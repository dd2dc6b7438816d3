package budget

import (
	"errors"
	"math"
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
			for i := range uint64(1000) {
				if a.Take(i%300, "a section") == nil && i%2 == 0 {
					a.Give(i % 300)
				}
				if used := b.used.Load(); i%100 == 0 && used < 0 {
					t.Errorf("%d bytes are taken", used)
				}
			}
			a.Close()
		})
	}
	wg.Wait()
	a := b.Open()
	if used := b.used.Load(); used != 0 || a.Take(1000, "all") != nil {
		t.Errorf("%d bytes are left taken", used)
	}
	for _, n := range []uint64{1, 1 << 40, math.MaxInt64, math.MaxUint64} {
		if err := a.Take(n, "the symbols"); !errors.Is(err, ErrOver) || !strings.Contains(err.Error(), "the symbols") {
			t.Errorf("%d bytes more: %v", n, err)
		}
	}
}
