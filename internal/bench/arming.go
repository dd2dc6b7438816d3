package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"runtime"
	"time"

	"github.com/gokprobe/gokprobe/trace"
)

// armRounds is how often many functions are armed.
const armRounds = 5

// arming measures how long it takes to count all functions of the C library, and the 10,000 of a program, and to take the probes away, what that costs the target, whose
// longest gap a thread sees that reads the clock all the time, and us.
func arming(dir, _ string, kept io.Writer) error {
	bin := filepath.Join(dir, "births")
	if err := compile(birthsSource, bin); err != nil {
		return err
	}
	fmt.Printf("Counting many functions (medians of %d rounds; a pause is the longest gap a busy thread saw)\n", armRounds)
	w := table()
	fmt.Fprintln(w, "functions\tarm\ta second\tremove\ta second\tpause, arming\tspread\tpause, removing\tspread\tpause unattached\tmemory of ours")
	for _, c := range []struct{ name, spec string }{
		{"libc", "libc.so.6:*"},
		{"10000", "fn_*"},
	} {
		m, err := armingOf(bin, c.spec)
		if err != nil {
			return fmt.Errorf("counting %s: %w", c.spec, err)
		}
		each := func(s series) string { return fmt.Sprintf("%.0f", float64(m.places)/s.median().Seconds()) }
		fmt.Fprintf(w, "%d of %s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%.1f MB\n", m.places, c.spec, show(m.arm.median()), each(m.arm), show(m.remove.median()), each(m.remove),
			show(m.armPause.median()), m.armPause.spread(), show(m.removePause.median()), m.removePause.spread(), show(m.idle.median()), float64(m.memory)/1e6)
		for name, s := range map[string]series{"Arm": m.arm, "Remove": m.remove, "ArmPause": m.armPause, "RemovePause": m.removePause} {
			if err := s.keep(kept, fmt.Sprintf("%s/functions=%s", name, c.name)); err != nil {
				return err
			}
		}
	}
	return w.Flush()
}

type armSeries struct {
	places                                   int
	memory                                   int64 // bytes that are held while the functions are counted
	arm, remove, armPause, removePause, idle series
}

func armingOf(bin, spec string) (m armSeries, err error) {
	t, err := startTarget(bin)
	if err != nil {
		return m, err
	}
	defer t.end()
	if _, err := t.do("beat"); err != nil {
		return m, err
	}
	for range armRounds {
		if err := m.round(t, spec); err != nil {
			return m, err
		}
	}
	return m, nil
}

func (m *armSeries) round(t *target, spec string) error {
	before := heap()
	if _, err := t.timed("gap"); err != nil {
		return err
	}
	start := time.Now()
	s, err := trace.Attach(context.Background(), t.pid(), trace.Log(slog.New(slog.DiscardHandler)))
	if err != nil {
		return err
	}
	p, err := s.Probe(spec, trace.Count())
	if err != nil {
		return errors.Join(err, s.Close())
	}
	m.arm = append(m.arm, time.Since(start))
	pause, err := t.timed("gap")
	if err != nil {
		return errors.Join(err, s.Close())
	}
	m.armPause = append(m.armPause, pause)
	m.places, m.memory = len(p.Stats().Places), heap()-before
	if _, err := t.timed("gap"); err != nil {
		return errors.Join(err, s.Close())
	}
	start = time.Now()
	if err := s.Close(); err != nil {
		return err
	}
	end := time.Now()
	m.remove = append(m.remove, end.Sub(start))
	if pause, err = t.timed("gap"); err != nil {
		return err
	}
	m.removePause = append(m.removePause, pause)
	for time.Since(end) < m.arm[len(m.arm)-1] { // the same time, left alone
	}
	idle, err := t.timed("gap")
	m.idle = append(m.idle, idle)
	return err
}

// heap is the bytes that are in use.
func heap() int64 {
	runtime.GC()
	var now runtime.MemStats
	runtime.ReadMemStats(&now)
	return int64(now.HeapAlloc)
}
