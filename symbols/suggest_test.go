package symbols

import (
	"slices"
	"testing"
)

func TestSwappedLettersAreSuggested(t *testing.T) {
	for typed, want := range map[string][]string{"paly": {"play"}, "ypla": nil, "lpay": {"play"}, "work": {"work"}} {
		if got := nearest(typed, slices.Values([]string{"work", "play"})); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", typed, got, want)
		}
	}
}
