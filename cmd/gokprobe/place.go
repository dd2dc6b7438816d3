package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/expr/values"
	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/symbols"
)

// placer registers probes. None is armed before all are in place.
type placer struct {
	sess *kprobes.Session
	req  request
	rec  *recorder
	skip skipped

	noParams map[string]*lacking // by why -args prints none
}

// batch is how many places are registered at once: enough to be quick, and few enough for
// Ctrl-C to be.
const batch = 1024

// register registers every place silently.
func (pl *placer) register(ctx context.Context, places []place) error {
	for len(places) > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		n := 1
		for n < min(len(places), batch) && together(places[0], places[n]) {
			n++
		}
		if err := pl.registerBatch(ctx, places[:n]); err != nil {
			return err
		}
		places = places[n:]
	}
	if len(pl.rec.probes) == 0 {
		return &classed{errPlace, fmt.Errorf("cannot place any probe: %s", pl.skip)}
	}
	return nil
}

// together: of one kind, and none of a library that is not loaded, of which the session tells.
func together(a, b place) bool { return a.atReturn == b.atReturn && !a.waits && !b.waits }

// registerBatch registers places of one kind. If some are refused, all are, and each half is
// tried for itself.
func (pl *placer) registerBatch(ctx context.Context, places []place) error {
	probes := make([]*probe, len(places))
	for i, at := range places {
		if err := ctx.Err(); err != nil {
			return err
		}
		var err error
		if probes[i], err = pl.newProbe(at); err != nil {
			return err
		}
	}
	err := pl.registerAll(ctx, probes)
	switch {
	case err == nil:
		for _, p := range probes {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := p.describe(pl.sess); err != nil {
				pl.lacks(p, err)
			}
		}
		pl.rec.probes = append(pl.rec.probes, probes...)
		return nil
	case ctx.Err() != nil:
		return err
	case len(places) > 1:
		half := len(places) / 2
		if err := pl.registerBatch(ctx, places[:half]); err != nil {
			return err
		}
		return pl.registerBatch(ctx, places[half:])
	case places[0].optional && skippable(err):
		pl.skip.add(err)
		return nil
	}
	return placeError(places[0].name, err)
}

func (pl *placer) registerAll(ctx context.Context, probes []*probe) error {
	if probes[0].ret == nil {
		return pl.sess.RegisterKprobes(ctx, kprobesOf(probes))
	}
	rps := make([]*kprobes.Kretprobe, len(probes))
	for i, p := range probes {
		rps[i] = &p.ret.rp
	}
	return pl.sess.RegisterKretprobes(ctx, rps)
}

func kprobesOf(probes []*probe) []*kprobes.Kprobe {
	kps := make([]*kprobes.Kprobe, len(probes))
	for i, p := range probes {
		kps[i] = p.kp
	}
	return kps
}

// arm enables the registered probes.
func (pl *placer) arm(ctx context.Context) error {
	for probes := range slices.Chunk(pl.rec.probes, batch) {
		if err := ctx.Err(); err != nil {
			return err
		}
		if pl.sess.EnableKprobes(ctx, kprobesOf(probes)) == nil {
			continue
		}
		for _, p := range probes { // which one is it?
			if err := pl.sess.EnableKprobes(ctx, []*kprobes.Kprobe{p.kp}); err != nil {
				return placeError(p.name, err)
			}
		}
	}
	return nil
}

// firstStack is how many frames request.stackFirst prints.
const firstStack = 16

func (pl *placer) newProbe(at place) (*probe, error) {
	p := &probe{place: at, args: pl.req.args, regs: pl.req.regs, stack: pl.req.stack, stacks: -1}
	if at.name == pl.req.stackFirst {
		p.stack, p.stacks = firstStack, 1
	}
	if p.kp = new(kprobes.Kprobe); at.atReturn {
		p.ret = &returnProbe{}
		p.kp = &p.ret.rp.KP
	}
	*p.kp = kprobes.Kprobe{Addr: at.addr, Flags: kprobes.FlagDisabled}
	if at.symbol != "" {
		p.kp.Addr, p.kp.SymbolName = 0, at.symbol
	}
	var err error
	if p.fetch, err = pl.req.newFetching(pl.sess.Symbols(), at); err != nil {
		return nil, err
	}
	switch {
	case p.ret != nil && !pl.returnsInTarget(p):
		pl.rec.follow(p, pl.req.maxActive)
	case p.ret == nil && !pl.inTarget(p):
		p.kp.PreHandler = pl.rec.handler(p)
	}
	return p, nil
}

// describe looks up, once for each address that p has, what every hit there repeats. The
// error says why there are no parameters.
func (p *probe) describe(sess *kprobes.Session) (err error) {
	if p.described = p.kp.Addr; p.described == 0 {
		return nil
	}
	table := sess.Symbols()
	if loc, ok := table.Lookup(p.kp.Addr); ok {
		p.symbol = loc.String()
		if loc.Symbol.Module != nil {
			p.module = loc.Symbol.Module.Name
		}
	}
	if p.ret != nil {
		p.ret.results, err = table.Results(p.kp.Addr)
		p.ret.typed = err == nil
	}
	if !p.args {
		return nil
	}
	p.params, err = parameters(table, p)
	return err
}

// lacking is probes that print no arguments for one reason.
type lacking struct {
	count int
	first string // that reason in the words of the first of them
}

// lacks notes why p prints no arguments. What is said of many functions is said once.
func (pl *placer) lacks(p *probe, err error) {
	full := values.NoParams(pl.sess.Symbols(), p.kp.Addr, err).Error()
	reason := full
	if all, ok := err.(interface{ Unwrap() []error }); ok && !errors.Is(err, symbols.ErrNoDebugInfo) {
		causes := all.Unwrap()
		reason = causes[len(causes)-1].Error()
	}
	if pl.noParams[reason] == nil {
		pl.noParams[reason] = &lacking{first: full}
	}
	pl.noParams[reason].count++
}

// longestPad is the bytes of endbr64, behind which a probe at an entry lies.
const longestPad = 4

var errNotAtEntry = errors.New("parameters are known at a function's entry only")

// parameters is what -args shows of p.
func parameters(table *symbols.Table, p *probe) ([]symbols.Param, error) {
	r, known := table.Function(p.kp.Addr)
	if p.ret == nil && known && p.kp.Addr > r.Start && (p.addr != r.Start || p.kp.Addr > r.Start+arch.Addr(longestPad)) {
		return nil, errNotAtEntry
	}
	return table.Params(p.kp.Addr)
}

// warnings tells what the user asked for and does not get.
func (pl *placer) warnings(warn func(string, ...any)) {
	if n := pl.skip.total(); n > 0 {
		warn("%d of %d places are not probed: %s", n, n+len(pl.rec.probes), pl.skip)
	}
	for reason, l := range pl.noParams {
		if l.count == 1 {
			warn("a probe prints no arguments: %s", l.first)
		} else {
			warn("%d probes print no arguments: %s", l.count, reason)
		}
	}
}
