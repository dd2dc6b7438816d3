// Package bench measures the cost of a probe's hit on this machine. It has the rows of
// the table in the kernel's document, rows of optimized probes, and the kernel's own
// uprobes. Each has a floor that is measured in the same rounds. Machines differ and
// are noisy, so only the ratios count.
//
// The target and the tracer are this program, started again (Child), so nothing but its
// executable is needed.
//
// Not part of the public promise: any version may change it.
package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Config says what Run measures.
type Config struct {
	Rounds int      // at least 1
	Rows   []string // names of rows, or the letters before their dashes; empty for all
	// Quick divides the number of calls, so that a run shows no more than that it works; 0 for 1.
	Quick int
	// Progress is called when a round begins, counted from 1, unless it is nil.
	Progress func(round int)
}

// state is a row on its way.
type state struct {
	row
	each, floors    series
	note, floorNote string
}

// Run measures. The error matches ErrUnknownRow before anything is measured. If ctx
// ends, Run ends all processes and returns ctx's error with a report of the figures
// until then, nil without any. A row that can't be measured here is no error: its Note
// says why.
func Run(ctx context.Context, c Config) (*Report, error) {
	rows, err := choose(c.Rows)
	if err != nil {
		return nil, err
	}
	machine := thisMachine()
	cpus, err := usable()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "gokprobe-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	r := runner{ctx, dir, cpus, max(c.Quick, 1)}
	for file, data := range map[string][]byte{hotFile: hotImage(), manyFile: manyImage()} {
		if err := os.WriteFile(filepath.Join(dir, file), data, 0o755); err != nil {
			return nil, err
		}
	}
	states := make([]*state, len(rows))
	for i := range rows {
		states[i] = &state{row: rows[i]}
	}
	for n := range c.Rounds {
		if c.Progress != nil {
			c.Progress(n + 1)
		}
		if err := r.round(states); err != nil {
			if ctx.Err() == nil || n == 0 {
				return nil, err
			}
			return newReport(machine, states), err
		}
	}
	return newReport(machine, states), nil
}

// The images' files.
const (
	hotFile  = "bench.so"
	manyFile = "many.so"
)

type runner struct {
	ctx   context.Context
	dir   string // of the images
	cpus  []int
	quick int
}

func (r *runner) round(states []*state) error {
	for _, s := range states {
		if err := r.measure(s.floor, &s.floors, &s.floorNote); err != nil {
			return fmt.Errorf("the floor of row %s: %w", s.name, err)
		}
		if err := r.measure(s.row.measure, &s.each, &s.note); err != nil {
			return fmt.Errorf("row %s: %w", s.name, err)
		}
	}
	return nil
}

// measure appends to into, or says in note why it can't; then it is not tried again.
func (r *runner) measure(m measure, into *series, note *string) error {
	if *note != "" {
		return nil
	}
	if (m.Load == free || m.Load == busy) && len(r.cpus) < 2 {
		*note = "not measured: it needs two processors"
		return nil
	}
	m.Calls = max(m.Calls/r.quick, 1)
	file := hotFile
	if m.Kind == registering {
		file = manyFile
	}
	ns, err := job{Measure: m, Image: filepath.Join(r.dir, file), CPUs: r.cpus}.do(r.ctx)
	var none *unavailable
	if errors.As(err, &none) {
		*note = none.reason
		return nil
	}
	if err == nil {
		*into = append(*into, ns)
	}
	return err
}
