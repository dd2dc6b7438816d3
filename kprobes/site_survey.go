package kprobes

import (
	"errors"
	"fmt"
	"time"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/internal/survey"
)

// findings is what a survey has found out about the target.
type findings struct {
	*survey.Survey
	analyses analyses
}

// looks is how a domain is looked at: by surveys, each of which ends with the call that has begun it. One that is begun
// in the course of another finds out everything itself.
type looks struct {
	d       *domain
	survey  *findings // the one that was begun last; nil if nothing was asked of it yet
	open    int       // how many have been begun and not ended
	changes uint64    // how often they have become untrue
	// seen is what once was told of mappings. It ends with its look, but not when our own mappings have come meanwhile, as those of arenas do.
	seen *lookedAt
}

// lookedAt is what was told of mappings, and since when.
type lookedAt struct {
	told  map[mappingKey]bool
	since time.Time
	took  time.Duration
}

// resume gives the look that was begun last what an earlier one was told, unless that is too long ago: for work in slices. It
// takes as long to ask as there is code of ours in the mapping, for each slice again.
func (lo *looks) resume(earlier *lookedAt) {
	const share = 10 // of the time may go into asking
	if earlier.told == nil || time.Since(earlier.since) > max(besetInterval, share*earlier.took) {
		*earlier = lookedAt{told: map[mappingKey]bool{}, since: time.Now()}
	}
	lo.seen = earlier
}

// anew begins a survey; what it returns ends it.
func (lo *looks) anew() (end func()) {
	before, changes, seen := lo.survey, lo.changes, lo.seen
	lo.survey, lo.open, lo.seen = nil, lo.open+1, &lookedAt{told: map[mappingKey]bool{}}
	return func() {
		lo.open--
		lo.seen = seen
		if lo.survey = before; lo.changes != changes {
			lo.survey = nil
		}
	}
}

// joined takes part in the survey that was begun last, or begins one.
func (lo *looks) joined() (end func()) {
	if lo.open > 0 {
		return func() {}
	}
	return lo.anew()
}

// changed says that the target's mappings are others now: what all surveys have found out is untrue.
func (lo *looks) changed() {
	lo.survey = nil
	lo.changes++
}

// once is what tell says of a mapping. In one look it is asked once.
func (lo *looks) once(mapping mappingKey, tell func() bool) bool {
	if lo.seen == nil {
		return tell()
	}
	told, known := lo.seen.told[mapping]
	if !known {
		seen, began := lo.seen, time.Now()
		told = tell()
		seen.told[mapping] = told
		seen.took += time.Since(began)
	}
	return told
}

// surveyed is what the survey that was begun last has found out. If there is none, nothing is kept.
func (lo *looks) surveyed() *findings {
	if lo.survey != nil {
		return lo.survey
	}
	found := &findings{Survey: survey.New(surveyable{lo.d})}
	if lo.open > 0 {
		lo.survey = found
	}
	return found
}

// original reads up to n bytes of unpatched code; fewer if the mapping ends.
func (lo *looks) original(at arch.Addr, n int) ([]byte, error) {
	code, err := lo.surveyed().Original(at, n)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotMapped, err)
	}
	return code, nil
}

// decodeTo decodes fn from its start until it reaches or passes at.
func (lo *looks) decodeTo(fn arch.Range, at arch.Addr) (*survey.Function, error) {
	f, err := lo.surveyed().DecodeTo(fn, at)
	var unread *survey.ReadError
	switch {
	case err == nil:
		return f, nil
	case errors.As(err, &unread):
		return nil, fmt.Errorf("%w: %w", ErrNotMapped, err)
	}
	return nil, fmt.Errorf("%w: %w", ErrUndecodable, err)
}

// surveyable is a domain as a survey sees it.
type surveyable struct{ d *domain }

func (t surveyable) Maps() ([]procfs.Mapping, error) {
	if _, err := t.d.space.TID(); err != nil {
		return nil, ErrExited
	}
	maps, err := t.d.space.Maps()
	if err != nil {
		return nil, fmt.Errorf("reading the process's mappings: %w", err)
	}
	t.d.neighbours.noteCalls(maps)
	return maps, nil
}

func (t surveyable) Original(at arch.Addr, p []byte) error { return t.d.text.Original(at, p) }

func (t surveyable) ReadMemory(at arch.Addr, p []byte) error { return t.d.space.ReadMemory(at, p) }

func (t surveyable) Decode(code []byte, at arch.Addr) (arch.Insn, error) {
	return host.Arch.Decode(code, at)
}

func (t surveyable) Sequences() []arch.Range { return t.d.linker.symbols().Sections("__rseq_cs") }

func (t surveyable) ShadowStack() (bool, error) {
	tid, err := t.d.space.TID()
	if err != nil {
		return false, err
	}
	st, err := procfs.ReadStatus(tid, 0)
	return err == nil && st.ShadowStack, nil
}

// stackOf is the memory around at that can be written: a stack may be several mappings (mlock(2), madvise(2) of a part), and has something else at its end.
func (lo *looks) stackOf(at arch.Addr) arch.Range {
	defer lo.anew()()
	return lo.stackKnown(at)
}

// stackKnown is stackOf by the survey that has begun.
func (lo *looks) stackKnown(at arch.Addr) arch.Range {
	stack := arch.Range{Start: at, End: at + 1}
	m, err := lo.surveyed().Mapping(at)
	if err != nil || m == nil {
		return stack
	}
	const most = 64
	stack = m.Range
	for range most {
		below, err := lo.surveyed().Mapping(stack.Start - 1)
		if err != nil || below == nil || !below.Write {
			break
		}
		stack.Start = below.Range.Start
	}
	for range most {
		above, err := lo.surveyed().Mapping(stack.End)
		if err != nil || above == nil || !above.Write {
			break
		}
		stack.End = above.Range.End
	}
	return stack
}
