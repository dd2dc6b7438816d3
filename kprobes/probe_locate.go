package kprobes

import (
	"context"
	"errors"
	"fmt"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/symbols"
)

// manyNames is how many names pay for an index of all.
const manyNames = 50

// notYet is the address of what a library will bring.
const notYet arch.Addr = 0

// located is the addresses of probes, or which has none and why.
type located struct {
	addrs  []arch.Addr
	waits  map[*Kprobe]error // why those have no address that may have one later
	failed *Kprobe
	err    error
}

// locateAll is locate for all of kps. For what a pattern finds in something that has come, a thread of the target stands still: what is unknown is not explained.
// The main process need not have it then, and may have something else of that name.
func (rg *registry) locateAll(ctx context.Context, kps []*Kprobe) located {
	at := located{addrs: make([]arch.Addr, len(kps)), waits: map[*Kprobe]error{}}
	resolve, elsewhere := rg.s.table.Resolve, false
	if rg.s.tracer.Own() && rg.expanding != nil {
		resolve, elsewhere = rg.s.table.Find, rg.expandsElsewhere()
	}
	if named(kps) >= manyNames {
		if rg.s.table.IndexNames(ctx) != nil {
			at.failed, at.err = kps[0], over(ctx)
			return at
		}
		resolve = quickly(rg.s.table, resolve)
	}
	for i, kp := range kps {
		if at.addrs[i], at.err = rg.locateBy(ctx, kp, resolve); rg.comes(kp, at.err) || elsewhere && at.err != nil && ctx.Err() == nil {
			at.addrs[i], at.waits[kp], at.err = notYet, at.err, nil
		} else if at.err != nil {
			at.failed = kp
			break
		}
	}
	return at
}

// locate finds the address that kp asks for, before the checks.
func (rg *registry) locate(ctx context.Context, kp *Kprobe) (arch.Addr, error) {
	return rg.locateBy(ctx, kp, rg.s.table.Resolve)
}

// locateBy is locate with another way to look names up.
func (rg *registry) locateBy(ctx context.Context, kp *Kprobe, resolve resolver) (arch.Addr, error) {
	switch {
	case kp.SymbolName != "" && kp.Addr != 0 && kp.session == nil:
		return 0, ErrBothAddrAndSymbol
	case kp.SymbolName == "" && kp.Addr == 0:
		return 0, ErrNoAddrOrSymbol
	case kp.SymbolName == "":
		return kp.Addr.Add(int64(kp.Offset)), nil
	}
	at, err := resolveOne(ctx, resolve, kp.SymbolName)
	return at.Add(int64(kp.Offset)), err
}

// named is how many of kps are found by name.
func named(kps []*Kprobe) (n int) {
	for _, kp := range kps {
		if kp.SymbolName != "" {
			n++
		}
	}
	return n
}

// resolver looks a name up.
type resolver func(ctx context.Context, spec string) ([]symbols.Location, error)

// quickly is resolve of names whose symbols were read, without a goroutine for each.
func quickly(table *symbols.Table, resolve resolver) resolver {
	return func(ctx context.Context, spec string) ([]symbols.Location, error) {
		if at, ok := table.Place(spec); ok {
			return []symbols.Location{{Addr: at}}, nil
		}
		return resolve(ctx, spec)
	}
}

// resolveOne translates a name that must mean one address.
func resolveOne(ctx context.Context, resolve resolver, name string) (arch.Addr, error) {
	found, err := resolve(ctx, name)
	switch {
	case ctx.Err() != nil:
		return 0, over(ctx)
	case errors.Is(err, symbols.ErrAmbiguous):
		return 0, fmt.Errorf("%w: %w", ErrAmbiguousSymbol, err)
	case errors.Is(err, symbols.ErrUnknownSymbol), errors.Is(err, symbols.ErrUnknownModule):
		return 0, fmt.Errorf("%w: %w", ErrUnknownSymbol, err)
	case err != nil:
		return 0, err
	case len(found) > 1 || found[0].Every.Len() > 0:
		return 0, fmt.Errorf("%w: it stands for %d places", ErrAmbiguousSymbol, len(found))
	}
	return found[0].Addr, nil
}
