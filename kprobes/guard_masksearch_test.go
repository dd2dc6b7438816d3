package kprobes_test

import (
	"maps"
	"testing"

	"github.com/gokprobe/gokprobe/kprobes"
)

// TestASearchOfCodeIsDoneOnce: what it has found in one process it is in others, wherever the code is mapped there.
func TestASearchOfCodeIsDoneOnce(t *testing.T) {
	kprobes.ForgetSearches()
	searched := 0
	for range 2 {
		prog := start(t, "threads", "1")
		s := attach(t, prog.PID(), kprobes.Options{})
		register(t, s, boosted.probe("foo"))
		got := kprobes.MaskSites(s)
		closeSession(t, s)
		n := kprobes.ForgetSearches()
		if searched == 0 {
			searched = n
		}
		s = attach(t, prog.PID(), kprobes.Options{})
		register(t, s, boosted.probe("foo"))
		want := kprobes.MaskSites(s)
		closeSession(t, s)
		if n == 0 || n != searched || len(want) == 0 || !maps.Equal(got, want) {
			t.Errorf("%d searches, the first time %d; found %v, alone %v", n, searched, got, want)
		}
		prog.CheckClean()
		wantRight(t, prog)
	}
}
