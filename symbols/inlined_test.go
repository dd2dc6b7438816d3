package symbols

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// Who names a function of which every call was inlined is told at how many places, and of a line that can be
// probed there. The line is asked for as a user would.
func TestAFunctionOfWhichEveryCallIsInlinedIsAnsweredByItsPlaces(t *testing.T) {
	advice := regexp.MustCompile(`probe a line of it, such as (.*?):([0-9]+), which stands for ([0-9]+|one) places?`)
	for _, cc := range []string{"g++", "clang++"} {
		for _, level := range []string{"-O1", "-O2", "-O3"} {
			out := filepath.Join(t.TempDir(), "prog")
			run(t, cc, "-g", level, "-o", out, filepath.Join("testdata", "inlinedaway.cc"))
			tab := file(t, out)
			for spec, want := range map[string]struct {
				places, lo, hi int
			}{
				"deep::stretch":              {2, 13, 18},
				"deep::stretch(int)":         {2, 13, 18},
				"deep::box<int>::doubled":    {1, 6, 11},
				"deep::box<long>::doubled":   {1, 6, 11},
				"deep::box::doubled":         {2, 6, 11},
				"outer":                      {1, 22, 25},
				"deep::stretched":            {},
				"doubled":                    {},
				"deep::box<short>::doubled":  {},
				"deep::box<int>::doubled(t)": {},
			} {
				_, err := tab.Resolve(t.Context(), spec)
				said := fmt.Sprint(err)
				if !errors.Is(err, ErrUnknownSymbol) {
					t.Errorf("%s %s %s: %v", cc, level, spec, err)
				}
				at := fmt.Sprintf("at %s,", countedPlaces(want.places))
				if got := strings.Contains(said, "inlined every call"); got != (want.places > 0) || got && !strings.Contains(said, at) {
					t.Errorf("%s %s %s: %s, want %d places", cc, level, spec, said, want.places)
					continue
				}
				m := advice.FindStringSubmatch(said)
				if m == nil {
					if want.places > 0 && spec != "outer" { // its only line may have no code besides stretch's
						t.Errorf("%s %s %s: no line: %s", cc, level, spec, said)
					}
					continue
				}
				line, _ := strconv.Atoi(m[2])
				locs, err := tab.Resolve(t.Context(), m[1]+":"+m[2])
				if err != nil || countedPlaces(len(locs)) != countedPlaces(atoiOrOne(m[3])) || line < want.lo || line > want.hi {
					t.Errorf("%s %s %s: %s: %d places, %v", cc, level, spec, m[0], len(locs), err)
				}
			}
		}
	}
}

func atoiOrOne(s string) int {
	if s == "one" {
		return 1
	}
	n, _ := strconv.Atoi(s)
	return n
}
