package main

import (
	"errors"
	"fmt"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/optimize"
)

// tally counts what became of sites.
type tally struct {
	sites   int
	yes     int
	refused map[string]int
	example map[string]arch.Addr // an address of each refusal, in the file
	kinds   [kinds]int           // by the option that was taken
}

// kind is what the jump's bytes are that a site got.
type kind int

const (
	free    kind = iota // no inner head
	trapped             // inner heads trap
	kept                // bytes are kept, and inner heads in front of them may trap
	kinds
)

func newTally() *tally { return &tally{refused: map[string]int{}, example: map[string]arch.Addr{}} }

func (t *tally) refuse(why string, at arch.Addr) {
	if t.refused[why]++; t.refused[why] == 1 {
		t.example[why] = at
	}
}

func (t *tally) take(o *optimize.Option, length int) {
	t.yes++
	switch {
	case o.Kept < length:
		t.kinds[kept]++
	case len(o.Heads) > 0:
		t.kinds[trapped]++
	default:
		t.kinds[free]++
	}
}

// measurement tries sites of a module.
type measurement struct {
	*module
	*tally
	space *space
}

// measure tries the entries of all functions, or all instructions.
func measure(m *module, all bool) (*measurement, error) {
	x := &measurement{module: m, tally: newTally(), space: newSpace(m)}
	for _, f := range m.funcs {
		if err := x.function(f, all); err != nil {
			return nil, fmt.Errorf("%s: %w", m.name, err)
		}
	}
	return x, nil
}

func (x *measurement) function(f arch.Range, all bool) error {
	code := x.code(f)
	an, err := optimize.Analyze(host.Arch, host.Detours, optimize.Function{Range: f, Code: code, Next: x.next(f.End)})
	switch {
	case !all:
		return x.try(an, err, f.Start+arch.Addr(host.Arch.EntrySkip(code)))
	case err != nil:
		return x.try(nil, err, f.Start)
	}
	for _, i := range an.Insns() {
		if err := x.try(an, nil, i.Addr); err != nil {
			return err
		}
	}
	return nil
}

// try counts one site; err is the refusal of its whole function. The result is an error
// that is no refusal.
func (x *measurement) try(an *optimize.Analysis, err error, at arch.Addr) error {
	x.sites++
	var c *optimize.Choice
	if err == nil {
		c, err = an.Site(at)
	}
	var o *optimize.Option
	if err == nil {
		o, err = x.space.land(c)
	}
	var refusal *optimize.Refusal
	switch {
	case err == nil:
		x.take(o, host.Detours.JumpLen())
	case errors.As(err, &refusal):
		x.refuse(why(refusal), at-x.bias)
	default:
		return fmt.Errorf("%s: %w", at-x.bias, err)
	}
	return nil
}

// why is the phrase under which r is counted.
func why(r *optimize.Refusal) string {
	if r.Err == nil || r.Reason != optimize.NoCopy {
		return r.Reason.String()
	}
	cause := r.Err
	for inner := cause; inner != nil; inner = errors.Unwrap(inner) {
		cause = inner
	}
	return r.Reason.String() + ": " + cause.Error()
}
