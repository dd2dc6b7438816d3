package main

import (
	"os"
	"strings"
	"testing"
)

func TestGoalsOnTheTestsOwnCode(t *testing.T) {
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	m, err := load(path)
	if err != nil {
		t.Fatal(err)
	}
	few := *m
	few.funcs = m.funcs[:500]
	for _, tt := range []struct {
		what  string
		m     *module
		all   bool
		sites int
		goal  float64 // percent
	}{
		{"entries", m, false, 2_000, 99},
		{"instructions", &few, true, 20_000, 90},
	} {
		x, err := measure(tt.m, tt.all)
		if err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		x.print(&out, tt.all)
		t.Logf("\n%s", &out)
		taken, refused := 0, 0
		for _, n := range x.kinds {
			taken += n
		}
		for _, n := range x.refused {
			refused += n
		}
		if taken != x.yes || taken+refused != x.sites {
			t.Errorf("%s: %d by kind, %d refused, of %d and %d", tt.what, taken, refused, x.yes, x.sites)
		}
		if x.sites < tt.sites || percent(x.yes, x.sites) < tt.goal {
			t.Errorf("%s: %d, %.2f %%, want %d, %.0f %%", tt.what, x.sites, percent(x.yes, x.sites), tt.sites, tt.goal)
		}
		if n := len(x.space.region.Arenas()); n == 0 || n > 1000 {
			t.Errorf("%s: %d arenas", tt.what, n)
		}
	}
}
