package symbols

import (
	"slices"
	"testing"
)

func TestSwappedLettersAreSuggested(t *testing.T) {
	for typed, want := range map[string][]string{"wrok": {"work"}, "okwr": nil, "wokr": {"work"}, "work": {"work"}} {
		if got := nearest(typed, slices.Values([]string{"work", "play"})); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", typed, got, want)
		}
	}
}
