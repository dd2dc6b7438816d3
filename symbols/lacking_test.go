package symbols

import (
	"os"
	"strings"
	"testing"

	"github.com/xrash/smetrics"
)

// TestANameIsNotGivenUpThatIsNear: what distance says without a table of edits is what the table says.
func TestANameIsNotGivenUpThatIsNear(t *testing.T) {
	exe, err := os.Executable()
	must(t, err)
	tab := file(t, exe)
	names := []string{"", "a", "ab", "ba", "aab", "abb", "mian", "main", "maain", "mein", "main.main", "Main"}
	for i, s := range tab.Symbols("") {
		if i%200 == 0 {
			names = append(names, s.Linkage, s.Linkage[1:], s.Linkage[:len(s.Linkage)/2]+"xy"+s.Linkage[len(s.Linkage)/2:])
		}
	}
	near, given := 0, 0
	for _, want := range names {
		for _, have := range names {
			d := len(want) - len(have)
			if d > 5 || d < -5 {
				continue
			}
			edits := smetrics.WagnerFischer(want, have, 1, 1, 1)
			if n := lacking(want, have); n > edits {
				t.Errorf("%q lacks %d bytes of %q, which is %d edits away", have, n, want, edits)
			}
			for limit := 1; limit <= 4; limit++ {
				got := distance(want, have, limit)
				switch {
				case got > limit && edits <= limit:
					t.Errorf("%q and %q, limit %d: given up, it is %d edits away", want, have, limit, edits)
				case got <= limit && got != edits && got > 1:
					t.Errorf("%q and %q, limit %d: %d, want %d", want, have, limit, got, edits)
				case got <= limit:
					near++
				case got > limit && !strings.EqualFold(want, have):
					given++
				}
			}
		}
	}
	if near < 100 || given < 100 {
		t.Errorf("%d pairs are near and %d are not: too few", near, given)
	}
}
