package main

import (
	_ "embed"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/gokprobe/gokprobe/kprobes"
)

//go:embed testdata/many.c
var manySource []byte

const (
	batchSize   = 10_000
	batchRounds = 3
	batchGoal   = 20
)

// batches measures thousands of probes, registered and unregistered in one call each,
// against one call for each.
func batches(dir, _ string) error {
	bin := filepath.Join(dir, "many")
	if err := compile(manySource, bin); err != nil {
		return err
	}
	fmt.Printf("%d probes, registered and unregistered (median of %d rounds)\n", batchSize, batchRounds)
	w := table()
	fmt.Fprintln(w, "found by\t\tone by one\tspread\tbatch\tspread\tratio\tgoal")
	for _, byName := range []bool{false, true} {
		var single, batch [2]series
		for range batchRounds {
			var a, b [2]time.Duration
			err := withMany(bin, byName, func(s *kprobes.Session, kps []*kprobes.Kprobe) (err error) {
				a, err = oneByOne(s, kps)
				return err
			})
			if err == nil {
				err = withMany(bin, byName, func(s *kprobes.Session, kps []*kprobes.Kprobe) (err error) {
					b, err = oneBatch(s, kps)
					return err
				})
			}
			if err != nil {
				return err
			}
			for i := range 2 {
				single[i], batch[i] = append(single[i], a[i]), append(batch[i], b[i])
			}
		}
		for i, what := range []string{"registered", "unregistered"} {
			by := "address"
			if byName {
				by = "name"
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%.0f×\t≥ %d×\n", by, what, show(single[i].median()), single[i].spread(),
				show(batch[i].median()), batch[i].spread(), single[i].ratio(batch[i]), batchGoal)
		}
	}
	return w.Flush()
}

// withMany runs f on a fresh process with a probe for each of its functions.
func withMany(bin string, byName bool, f func(*kprobes.Session, []*kprobes.Kprobe) error) (err error) {
	t, err := startTarget(bin)
	if err != nil {
		return err
	}
	defer t.end()
	s, err := kprobes.Attach(t.pid(), kprobes.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	kps := make([]*kprobes.Kprobe, batchSize)
	for i := range kps {
		kps[i] = &kprobes.Kprobe{SymbolName: fmt.Sprintf("f_%d", i)}
		if byName {
			continue
		}
		found, err := s.Symbols().Resolve(kps[i].SymbolName)
		if err != nil {
			return err
		}
		kps[i].SymbolName, kps[i].Addr = "", found[0].Addr
	}
	return f(s, kps)
}

func oneByOne(s *kprobes.Session, kps []*kprobes.Kprobe) (took [2]time.Duration, err error) {
	start := time.Now()
	for _, kp := range kps {
		err = errors.Join(err, s.RegisterKprobe(kp))
	}
	took[0], start = time.Since(start), time.Now()
	for _, kp := range kps {
		err = errors.Join(err, s.UnregisterKprobe(kp))
	}
	took[1] = time.Since(start)
	return took, err
}

func oneBatch(s *kprobes.Session, kps []*kprobes.Kprobe) (took [2]time.Duration, err error) {
	start := time.Now()
	err = s.RegisterKprobes(kps)
	took[0], start = time.Since(start), time.Now()
	err = errors.Join(err, s.UnregisterKprobes(kps))
	took[1] = time.Since(start)
	return took, err
}
