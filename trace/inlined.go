package trace

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/gokprobe/gokprobe/internal/escape"
	"github.com/gokprobe/gokprobe/symbols"
)

// InlinedCalls says which calls a function's name stands for that the compiler has replaced by the function's body.
type InlinedCalls uint8

const (
	// NoInlined stands for none: only a function's own code has parameters at its entry, and returns.
	NoInlined InlinedCalls = iota
	// InlinedAway stands for those of functions that have no code of their own.
	InlinedAway
	// AllInlined stands for those of all functions.
	AllInlined
)

// errInlinedReturn is why an inlined call is not followed to its end.
var errInlinedReturn = errors.New("an inlined call has no return")

// Inlined wants also the calls of a function that the compiler has replaced by its body. Each is a place of its own. Of their parameters
// those are known that debug information places there, and they have no returns. Hits are how often the places are
// executed: see symbols.Table.InlinedCalls for where that is not the number of calls. Patterns, lines and offsets have no inlined calls.
func Inlined() Want { return func(w *wanted) { w.inlined = true } }

func (w wanted) inlinedCalls() InlinedCalls {
	if w.inlined {
		return AllInlined
	}
	return InlinedAway
}

// inlined lists the inlined calls that a name stands for; err is what the table says of the name itself.
func (r *Resolver) inlined(ctx context.Context, name string, own []symbols.Location, err error) ([]Place, error) {
	switch {
	case r.Inlined == NoInlined, r.Again, err == nil && r.Inlined != AllInlined, err != nil && !errors.Is(err, symbols.ErrUnknownSymbol):
		return nil, nil
	case len(own) > 0 && own[0].Every.Len() > 0:
		return nil, nil
	}
	var in []*symbols.Module // where it has code of its own
	for _, loc := range own {
		in = append(in, loc.Symbol.Module)
	}
	calls, isAll, done := r.Table.InlinedCalls(ctx, name, in...)
	var places []Place
	for _, call := range calls {
		if err != nil && r.Programs && (call.Symbol.Module == nil || call.Symbol.Module.Kind != symbols.KindExecutable) {
			continue // the name waits: a program that is executed may have such a function, which a library has for itself
		}
		places = append(places, Place{Name: name, Addr: call.Addr, Optional: true, inlined: &call})
	}
	if !isAll && (len(places) > 0 || len(own) > 0) {
		r.Partial = append(r.Partial, name)
	}
	return places, done
}

// isPart tells of a function's code that it is a part of it, which GCC has split off. The rest was inlined, and is where calls begin.
func isPart(loc symbols.Location) bool { return strings.Contains(loc.Symbol.Linkage, ".part.") }

// warnInlined warns where inlined calls are not all known, or not for as long as the probe is there.
func (pl *placer) warnInlined(partial []string) {
	p := pl.probe
	for _, name := range partial {
		p.warnOnce("%s: not all of the debug information was read, so it may have more inlined calls", escape.Spec(name))
	}
	pl.tellAmbiguous()
	if n := inlinedOf(pl.points); n > 0 && p.session.options.kprobes.Follow {
		p.warnOnce("%s of inlined calls: not in programs that are executed, where names stand for functions with code of their own only", escape.Count(n, "place"))
	}
}

// warnOnce warns, also of several processes once.
func (p *Probe) warnOnce(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if _, told := p.want.told.LoadOrStore(text, nil); !told {
		p.session.warn("%s", text)
	}
}

func inlinedOf(points []*point) (n int) {
	for _, pt := range points {
		if pt.inlined != nil {
			n++
		}
	}
	return n
}

// tellAmbiguous tells of inlined calls that may be more than their hits.
func (pl *placer) tellAmbiguous() {
	var names []string // in their order
	calls := map[string]int{}
	for _, pt := range pl.points {
		if pt.inlined == nil || !pt.inlined.Ambiguous {
			continue
		}
		if calls[pt.Name]++; calls[pt.Name] == 1 {
			names = append(names, pt.Name)
		}
	}
	for _, name := range names {
		pl.probe.warnOnce("%s: the debug information does not tell where each body inlined at %s begins, or how often: there may be more calls than hits",
			escape.Spec(name), escape.Count(calls[name], "place"))
	}
}

// mostAsked is of how many functions it is told, after they have been armed, that calls of them are not seen. To find that out takes up to a second
// for each file.
const mostAsked = 16

// tellInlined tells, when that has been found out, of calls that the probe does not see since the compiler has put the function's body in their place.
func (p *Probe) tellInlined(points []*point) {
	var asked []Place
	for _, pt := range points {
		if k := pt.known.Load(); !pt.Optional && !pt.Waits && k != nil && strings.HasSuffix(k.symbol, "+0x0") && !strings.HasPrefix(pt.Name, "0x") {
			asked = append(asked, pt.Place)
		}
	}
	if p.want.inlined || len(asked) == 0 || len(asked) > mostAsked {
		return
	}
	s, program := p.session, p.session.kprobes.Program()
	ctx, done := context.WithCancel(context.Background())
	go func() {
		defer done()
		_ = s.kprobes.Symbols().Aside(ctx, func() { // or nobody wants to know any more
			for _, at := range asked {
				n, _ := s.kprobes.Symbols().Inlined(at.Addr)
				if n > 0 && ctx.Err() == nil && s.kprobes.Program() == program {
					p.warnOnce("%s: the compiler has inlined %s of it, which the probe does not see%s", escape.Spec(at.Name), escape.Count(n, "call"), inlinedAdvice(at))
				}
			}
		})
	}()
	go func() {
		select {
		case <-s.Done():
		case <-p.closed:
		case <-ctx.Done():
		}
		done()
	}()
}

func inlinedAdvice(at Place) string {
	if at.Return {
		return ""
	}
	return " (-inlined probes these too)"
}
