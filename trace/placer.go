package trace

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/gokprobe/gokprobe/expr/values"
	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/symbols"
)

// placer registers points of a probe. None is armed before all are in place, but for those in a library that has just come: nobody runs there.
type placer struct {
	probe   *Probe
	from    *pattern // the pattern whose library was loaded; nil for places that exist from the beginning
	points  []*point
	skipped Skipped
	lacking map[string]*lacking // by why there are no arguments
	unknown error               // why the last place of a line was skipped where a name is not known
}

// await makes patterns wait: later, those that have no place yet, and those of which there are points, for other programs.
func (p *Probe) await(ctx context.Context, later []Place, points []*point) error {
	for _, at := range later {
		if _, err := p.want.fetching(p.session.kprobes.Symbols(), at); err != nil {
			return err
		}
	}
	there := make([]Placed, len(points))
	for i, pt := range points {
		there[i] = Placed{pt.Place, pt.kp}
	}
	return p.waits.Await(ctx, later, there)
}

// come places what a pattern stands for in what has come.
func (p *Probe) come(ctx context.Context, c Coming) (placed []Place, err error) {
	pl := &placer{probe: p, from: c.from, skipped: *c.Skipped}
	for i, at := range c.Places {
		c.Places[i].Waits = at.Waits || p.readsDebugInfo(at)
	}
	err = pl.register(ctx, c.Places)
	*c.Skipped = pl.skipped
	for _, pt := range pl.points {
		placed = append(placed, pt.Place)
	}
	return placed, err
}

// readsDebugInfo reports whether the values wanted at a place need debug information.
func (p *Probe) readsDebugInfo(at Place) bool {
	return p.want.args || p.want.locals || at.Return && (p.wantsHits() || p.want.filter != "")
}

// batch is how many places are registered at once: enough to be quick, and few enough for
// Ctrl-C to be.
const batch = 128

// place registers and arms all places.
func (pl *placer) place(ctx context.Context, places []Place) error {
	if err := pl.register(ctx, places); err != nil {
		return err
	}
	if err := pl.arm(ctx); err != nil {
		return err
	}
	if pl.probe.budget.spent() { // while later batches were armed
		pl.probe.disable()
	}
	_ = pl.probe.session.kprobes.WaitForOptimizer(ctx, kprobesOf(pl.points)...) // told by ctx; others may wait for their hits
	return ctx.Err()
}

// register registers every place silently.
func (pl *placer) register(ctx context.Context, places []Place) error {
	spec, all := places[0].Name, len(places)
	for len(places) > 0 {
		pl.probe.session.options.progress(Progress{Done: all - len(places), Of: all})
		if err := ctx.Err(); err != nil {
			return err
		}
		n := 1
		for n < min(len(places), batch) && pl.together(places[0], places[n]) {
			n++
		}
		if _, err := Register(ctx, places[:n], pl.registerBatch, pl.refused); err != nil {
			return err
		}
		places = places[n:]
	}
	if len(pl.points) == 0 && pl.unknown != nil {
		return pl.unknown
	}
	if len(pl.points) == 0 {
		return &NoPlaceError{spec, pl.skipped}
	}
	return nil
}

// NoPlaceError is why no place of patterns is probed.
type NoPlaceError struct {
	Place   string // one of them
	Skipped Skipped
}

// Error implements error.
func (e *NoPlaceError) Error() string { return fmt.Sprintf("cannot place any probe: %s", &e.Skipped) }

// together: of one kind, and none of a library that is not loaded, of which the session tells, unless they are a pattern's.
func (pl *placer) together(a, b Place) bool {
	return a.Return == b.Return && (pl.from != nil || !a.Waits && !b.Waits)
}

// registerBatch registers places of one kind, all or none.
func (pl *placer) registerBatch(ctx context.Context, places []Place) error {
	points := make([]*point, len(places))
	var err error
	for i, at := range places {
		if err := ctx.Err(); err != nil {
			return err
		}
		if points[i], err = pl.newPoint(at); err != nil {
			return err
		}
	}
	if err := pl.registerAll(ctx, points); err != nil {
		return err
	}
	pl.describe(points)
	pl.points = append(pl.points, points...)
	pl.probe.points.Add(points...)
	return ctx.Err()
}

// refused leaves a place of a pattern out that can't be probed.
func (pl *placer) refused(at Place, err error) error {
	wrong := (*WantError)(nil)
	isWant := errors.As(err, &wrong)
	switch {
	case errors.Is(err, kprobes.ErrPlaced): // by another name
		return nil
	case at.Optional && pl.skips(err):
		if isWant {
			err = wrong.Err // it is counted, so it names no place
		}
		pl.skipped.Add(err)
		return nil
	case isWant && at.isLine && unknownName(wrong):
		pl.skipped.Add(wrong.Err)
		pl.unknown = err
		return nil
	case isWant:
		return err
	}
	return NewPlaceError(at.Name, err)
}

// unknownName tells of what is wrong with a want that it names a variable which is not known at one place.
func unknownName(wrong *WantError) bool {
	var v *values.Error
	return errors.As(wrong.Err, &v) && v.UnknownName()
}

// skips tells that places are probed without the one that was refused with err. Where a library has come nobody could be told
// that there is nothing at all.
func (pl *placer) skips(err error) bool {
	return Skippable(err) || pl.from != nil && !errors.Is(err, kprobes.ErrClosed) && !errors.Is(err, kprobes.ErrExited)
}

// describe looks up the parts of hits that are the same at each hit of a new point.
func (pl *placer) describe(points []*point) {
	for _, pt := range points {
		if pl.from != nil {
			pt.name()
		} else if err := pt.describe(); err != nil && !pl.probe.want.count {
			pl.lacks(pt, err)
		}
	}
}

func (pl *placer) registerAll(ctx context.Context, points []*point) error {
	s := pl.probe.session.kprobes
	if points[0].ret == nil {
		return s.RegisterKprobes(ctx, kprobesOf(points))
	}
	rps := make([]*kprobes.Kretprobe, len(points))
	for i, pt := range points {
		rps[i] = &pt.ret.rp
	}
	return s.RegisterKretprobes(ctx, rps)
}

func kprobesOf(points []*point) []*kprobes.Kprobe {
	kps := make([]*kprobes.Kprobe, len(points))
	for i, pt := range points {
		kps[i] = pt.kp
	}
	return kps
}

// arm enables the registered points.
func (pl *placer) arm(ctx context.Context) error {
	s, progress := pl.probe.session.kprobes, Progress{Arming: true, Of: len(pl.points)}
	for points := range slices.Chunk(pl.points, batch) {
		pl.probe.session.options.progress(progress)
		progress.Done += len(points)
		if err := ctx.Err(); err != nil {
			return err
		}
		if s.EnableKprobes(ctx, kprobesOf(points)) == nil {
			continue
		}
		for _, pt := range points { // which one is it?
			if err := s.EnableKprobes(ctx, []*kprobes.Kprobe{pt.kp}); err != nil {
				return NewPlaceError(pt.Name, err)
			}
		}
	}
	pl.probe.session.options.progress(progress)
	return nil
}

func (pl *placer) newPoint(at Place) (*point, error) {
	w := pl.probe.want
	pt := &point{Place: at, probe: pl.probe, from: pl.from, stack: w.stack, stacks: -1}
	if at.Name == w.first.place && w.first.frames > 0 {
		pt.stack, pt.stacks = w.first.frames, 1
	}
	if pt.kp = new(kprobes.Kprobe); at.Return {
		pt.ret = &returns{}
		pt.kp = &pt.ret.rp.KP
		pt.ret.rp.MaxActive = w.maxActive
	}
	*pt.kp = kprobes.Kprobe{Addr: at.Addr, Flags: kprobes.FlagDisabled}
	if pl.from != nil && !pl.probe.budget.spent() {
		pt.kp.Flags = 0
	}
	if at.Symbol != "" {
		pt.kp.Addr, pt.kp.SymbolName = 0, at.Symbol
	}
	var err error
	if pt.fetch, err = w.fetching(pl.probe.session.kprobes.Symbols(), at); err != nil {
		return nil, err
	}
	pt.makePlan()
	return pt, nil
}

// lacking is points that have no arguments for one reason.
type lacking struct {
	count int
	first string // that reason in the words of the first of them
}

// lacks notes why pt has no arguments. A reason that holds for many functions is printed once.
func (pl *placer) lacks(pt *point, err error) {
	full := values.NoParams(pl.probe.session.kprobes.Symbols(), pt.kp.Addr, err).Error()
	reason := full
	if all, ok := err.(interface{ Unwrap() []error }); ok && !errors.Is(err, symbols.ErrNoDebugInfo) {
		causes := all.Unwrap()
		reason = causes[len(causes)-1].Error()
	}
	if pl.lacking[reason] == nil {
		pl.lacking[reason] = &lacking{first: full}
	}
	pl.lacking[reason].count++
}

// warn warns of places that are not probed and of arguments that are not known.
func (pl *placer) warn() {
	s := pl.probe.session
	tellSkipped(s.warn, &pl.skipped, len(pl.points))
	for reason, l := range pl.lacking {
		if l.count == 1 {
			s.warn("a probe prints no arguments: %s", l.first)
		} else {
			s.warn("%d probes print no arguments: %s", l.count, reason)
		}
	}
}
