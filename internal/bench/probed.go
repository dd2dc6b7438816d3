package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/gokprobe/gokprobe/kprobes"
)

// probed is what one call of foo costs the target under the probes that place registers.
func probed(bin string, opts kprobes.Options, place place) (perHit time.Duration, err error) {
	t, err := startTarget(bin)
	if err != nil {
		return 0, err
	}
	defer t.end()
	if _, err := t.do("pin 0"); err != nil {
		return 0, err
	}
	s, err := kprobes.Attach(t.pid(), opts)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	hits, err := place(s)
	if err != nil {
		return 0, err
	}
	if _, err := t.timed("hot %d", hitsARound/10); err != nil {
		return 0, err
	}
	d, err := t.timed("hot %d", hitsARound)
	if err == nil && hits() != hitsARound+hitsARound/10 {
		err = fmt.Errorf("%d hits were counted", hits())
	}
	return d / hitsARound, err
}
