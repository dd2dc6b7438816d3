package trace

import (
	"context"
	"errors"

	"github.com/gokprobe/gokprobe/internal/clean"
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

// Inlined wants also the calls of a function that the compiler has replaced by its body. Each is a place of its own. Their parameters are not
// known, and they have no returns. Where the compiler has moved or copied code of such a body, hits and calls differ:
// see symbols.Table.InlinedCalls.
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
	calls, _, done := r.Table.InlinedCalls(ctx, name, in...)
	var places []Place
	for _, call := range calls {
		if err != nil && r.Programs && (call.Symbol.Module == nil || call.Symbol.Module.Kind != symbols.KindExecutable) {
			continue // the name waits: a program that is executed may have such a function, which a library has for itself
		}
		places = append(places, Place{Name: name, Addr: call.Addr, Optional: true, ambiguous: call.Ambiguous})
	}
	return places, done
}

// tellAmbiguous tells of inlined calls that may be more than their hits.
func (pl *placer) tellAmbiguous() {
	var names []string // in their order
	calls := map[string]int{}
	for _, pt := range pl.points {
		if !pt.ambiguous {
			continue
		}
		if calls[pt.Name]++; calls[pt.Name] == 1 {
			names = append(names, pt.Name)
		}
	}
	for _, name := range names {
		pl.probe.session.warn("%s: the debug information does not tell where each body inlined at %s begins; the compiler may have copied it, so there may be more calls than hits",
			clean.Spec(name), clean.Count(calls[name], "place"))
	}
}

// mostAsked is of how many functions it is told, after they have been armed, that calls of them are not seen. To find that out takes up to a second
// for each file.
const mostAsked = 16

// tellInlined tells, when that has been found out, of calls that the probe does not see since the compiler has put the function's body in their place.
func (p *Probe) tellInlined(points []*point) {
	var asked []Place
	for _, pt := range points {
		if !pt.Optional && !pt.Waits && pt.Addr != 0 {
			asked = append(asked, pt.Place)
		}
	}
	if p.want.inlined || len(asked) == 0 || len(asked) > mostAsked {
		return
	}
	s := p.session
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		<-s.Done()
		cancel()
	}()
	go func() {
		_ = s.kprobes.Symbols().Aside(ctx, func() { // or nobody wants to know any more
			for _, at := range asked {
				if n, _ := s.kprobes.Symbols().Inlined(at.Addr); n > 0 && ctx.Err() == nil {
					s.warn("%s: the compiler has inlined %s of it, which the probe does not see (-inlined probes these too)", clean.Spec(at.Name), clean.Count(n, "call"))
				}
			}
		})
	}()
}
