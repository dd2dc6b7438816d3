package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gokprobe/gokprobe/kprobes"
)

// registering measures what a probe's registration costs, or its undoing, if many probes are
// registered one by one or in one call.
func (j job) registering() (ns float64, err error) {
	t, err := j.target()
	if err != nil {
		return 0, err
	}
	defer t.end()
	ns, err = j.register(t)
	if err != nil {
		return 0, err
	}
	if _, err := t.do("clean"); err != nil {
		return 0, fmt.Errorf("after detaching: %w", err)
	}
	return ns, nil
}

func (j job) register(t *target) (ns float64, err error) {
	s, err := kprobes.Attach(context.Background(), t.pid(), kprobes.Options{Log: func(string) {}})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	kps, err := j.probes(s)
	if err != nil {
		return 0, err
	}
	do := func(kps []*kprobes.Kprobe) error { return s.RegisterKprobes(context.Background(), kps) }
	undo := s.UnregisterKprobes
	if !j.Measure.Batch {
		do, undo = oneByOne(s.RegisterKprobe), oneByOne(s.UnregisterKprobe)
	}
	start := time.Now()
	err = do(kps)
	registered := time.Now()
	err = errors.Join(err, undo(kps))
	took := registered.Sub(start)
	if j.Measure.Undo {
		took = time.Since(registered)
	}
	return float64(took.Nanoseconds()) / float64(len(kps)), err
}

// probes are the probes that are going to be registered.
func (j job) probes(s *kprobes.Session) ([]*kprobes.Kprobe, error) {
	kps := make([]*kprobes.Kprobe, j.Measure.Calls)
	for i := range kps {
		name := fmt.Sprintf("%sf_%d", symbolPrefix, i)
		kps[i] = &kprobes.Kprobe{SymbolName: name}
		if j.Measure.ByName {
			continue
		}
		found, err := s.Symbols().Resolve(context.Background(), name)
		if err != nil {
			return nil, err
		}
		kps[i] = &kprobes.Kprobe{Addr: found[0].Addr}
	}
	return kps, nil
}

func oneByOne(f func(*kprobes.Kprobe) error) func([]*kprobes.Kprobe) error {
	return func(kps []*kprobes.Kprobe) error {
		for _, kp := range kps {
			if err := f(kp); err != nil {
				return err
			}
		}
		return nil
	}
}
