package kprobes

import (
	"errors"
	"slices"
	"testing"
)

// TestWhatAPatternLeavesOutIsToldAgainIfItIsMore: a shell executes thousands of programs, each of which lacks the same places.
func TestWhatAPatternLeavesOutIsToldAgainIfItIsMore(t *testing.T) {
	var told []string
	s := &Session{opts: Options{Log: func(m string) { told = append(told, m) }}}
	s.registry.s = s
	pt := &Pattern{Spec: "libc.so.6:*"}
	s.registry.patterns = []*Pattern{pt}
	for _, n := range []int{1, 1, 0, 3, 1, 3} {
		for range n {
			pt.leave(errors.New("it is not there"))
		}
		s.registry.tellLeftOut()
	}
	want := []string{"probe libc.so.6:* is not placed at 1 of its places: it is not there", "probe libc.so.6:* is not placed at 3 of its places: it is not there"}
	if !slices.Equal(told, want) {
		t.Errorf("told: %q", told)
	}
}
