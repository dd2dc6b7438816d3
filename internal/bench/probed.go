package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/gokprobe/gokprobe/kprobes"
)

// probed is what one hit of kp costs the target.
func probed(bin string, kp *kprobes.Kprobe) (perHit time.Duration, err error) {
	t, err := startTarget(bin)
	if err != nil {
		return 0, err
	}
	defer t.end()
	if _, err := t.do("pin 0"); err != nil {
		return 0, err
	}
	s, err := kprobes.Attach(t.pid(), kprobes.Options{})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	*kp = kprobes.Kprobe{SymbolName: "foo", PreHandler: func(*kprobes.Kprobe, *kprobes.Regs) int { return 0 }, PostHandler: kp.PostHandler}
	if err := s.RegisterKprobe(kp); err != nil {
		return 0, err
	}
	if _, err := t.timed("hot %d", hitsARound/10); err != nil {
		return 0, err
	}
	d, err := t.timed("hot %d", hitsARound)
	if err == nil && kp.Hits() != hitsARound+hitsARound/10 {
		err = fmt.Errorf("%d hits were counted", kp.Hits())
	}
	return d / hitsARound, err
}
