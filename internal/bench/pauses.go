package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/gokprobe/gokprobe/kprobes"
)

// pauses measures attaching to a target with many sleeping threads and one that reads
// the clock all the time. It tells how long attaching takes, and the longest time for
// which the busy thread did not run, with a tracer and, for as long, without.
func pauses(_, bin string, kept io.Writer) error {
	fmt.Printf("Attach, one probe, detach (median of %d rounds; the pause is the longest gap a busy thread saw)\n", rounds)
	w := table()
	fmt.Fprintln(w, "sleeping threads\tattach\tregister\tdetach\tpause\tspread\tpause unattached")
	for _, n := range []int{1, 100, 1000} {
		m, err := pausesOf(bin, n)
		if err != nil {
			return fmt.Errorf("attaching to %d threads: %w", n, err)
		}
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\t%s\n", n, show(m.attach.median()), show(m.register.median()), show(m.detach.median()),
			show(m.pause.median()), m.pause.spread(), show(m.idle.median()))
		for name, s := range map[string]series{"Attach": m.attach, "Register": m.register, "Detach": m.detach, "Pause": m.pause} {
			if err := s.keep(kept, fmt.Sprintf("%s/threads=%d", name, n)); err != nil {
				return err
			}
		}
	}
	return w.Flush()
}

type pauseSeries struct{ attach, register, detach, pause, idle series }

func pausesOf(bin string, threads int) (m pauseSeries, err error) {
	t, err := startTarget(bin)
	if err != nil {
		return m, err
	}
	defer t.end()
	// The main thread sleeps too.
	for _, c := range []string{fmt.Sprintf("threads %d", threads-1), "beat"} {
		if _, err := t.do("%s", c); err != nil {
			return m, err
		}
	}
	for range rounds {
		if err := m.round(t); err != nil {
			return m, err
		}
	}
	return m, nil
}

func (m *pauseSeries) round(t *target) error {
	if _, err := t.timed("gap"); err != nil {
		return err
	}
	start := time.Now()
	s, err := kprobes.Attach(context.Background(), t.pid(), kprobes.Options{Log: func(string) {}})
	if err != nil {
		return err
	}
	attached := time.Now()
	err = s.RegisterKprobe(&kprobes.Kprobe{SymbolName: "foo"})
	registered := time.Now()
	if err := errors.Join(err, s.Close()); err != nil {
		return err
	}
	end := time.Now()
	pause, err := t.timed("gap")
	if err != nil {
		return err
	}
	for time.Since(end) < end.Sub(start) { // the same time, left alone
	}
	idle, err := t.timed("gap")
	if err != nil {
		return err
	}
	m.attach = append(m.attach, attached.Sub(start))
	m.register = append(m.register, registered.Sub(attached))
	m.detach = append(m.detach, end.Sub(registered))
	m.pause, m.idle = append(m.pause, pause), append(m.idle, idle)
	return nil
}
