package main

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"strings"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/cmd/gokprobe/internal/event"
	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/symbols"
)

// place is one address to be probed.
type place struct {
	name string // as records show it
	addr arch.Addr
	// symbol is a specification that stands for addr alone, for a library that is
	// loaded again or a program that a followed process executes later. Empty if there
	// is none.
	symbol string
	// waits: it is in a library that is not loaded yet; addr is 0.
	waits bool
	// atReturn: the calls of the function at addr are followed to their returns.
	atReturn bool
	// optional places come from a pattern: one that can't be probed is skipped.
	optional bool
}

// resolver turns specifications into places.
type resolver struct {
	table   *symbols.Table
	mem     arch.Memory // the target's, without patches
	returns bool        // all places are at returns
	follow  bool        // fill in place.symbol for patterns too
	skip    skipped
	code    *kprobes.Code // nil before it is needed
}

// resolveAll resolves every specification before any is placed. A pattern never
// stands for the same place twice.
func (r *resolver) resolveAll(ctx context.Context, specs []string) ([]place, error) {
	var places []place
	for _, spec := range specs {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		name, suffixed := strings.CutSuffix(spec, event.ReturnSuffix)
		found, err := r.table.Resolve(ctx, name)
		if library(name, err) {
			if isPattern(name) {
				return nil, placeError(spec, fmt.Errorf("%w; a pattern does not wait for a library, give names to wait for", err))
			}
			places = append(places, place{name: spec, symbol: name, waits: true, atReturn: suffixed || r.returns})
			continue
		}
		if err != nil {
			return nil, placeError(spec, err)
		}
		if !suffixed && !r.returns {
			places = append(places, r.expand(spec, found)...)
			continue
		}
		if found[0].Every.Len() > 0 {
			return nil, placeError(spec, errEveryReturn)
		}
		for _, at := range r.expand(name, found) {
			at.atReturn = true
			if suffixed {
				at.name += event.ReturnSuffix
			}
			places = append(places, at)
		}
	}
	return places, nil
}

// library tells of the error for a specification that it is in a library that is not loaded.
func library(spec string, err error) bool {
	return errors.Is(err, symbols.ErrUnknownModule) && symbols.Library(spec) != ""
}

// isPattern tells of a specification in a library whether what it stands for is settled at
// the start.
func isPattern(spec string) bool { return strings.ContainsAny(spec, "*?[") }

var errEveryReturn = fmt.Errorf("a call is followed from the entry of its function, so +* has no meaning with returns: %w", kprobes.ErrNotEntry)

// expand lists the places that one specification stands for.
func (r *resolver) expand(spec string, found []symbols.Location) []place {
	if len(found) == 1 && found[0].Every.Len() == 0 {
		return []place{{name: spec, addr: found[0].Addr, symbol: spec}}
	}
	if r.follow {
		r.table.IndexNames(context.Background()) // unique looks up the names of them all
	}
	var places []place
	for _, loc := range found {
		switch {
		case loc.Every.Len() > 0:
			places = append(places, r.everyInsn(loc)...)
		case loc.Line != 0:
			places = append(places, place{name: spec, addr: loc.Addr, optional: true})
		default:
			name := strings.TrimSuffix(loc.String(), "+0x0")
			places = append(places, place{name: name, addr: loc.Addr, symbol: r.unique(loc), optional: true})
		}
	}
	return places
}

// unique is a specification for loc alone, or empty.
func (r *resolver) unique(loc symbols.Location) string {
	if !r.follow || loc.Symbol.Module == nil || loc.Offset != 0 {
		return ""
	}
	spec := loc.Symbol.Module.Name + ":" + loc.Symbol.Linkage
	if found, err := r.table.Resolve(context.Background(), spec); err != nil || len(found) != 1 || found[0].Addr != loc.Addr {
		return ""
	}
	return spec
}

// everyInsn lists the instructions of a function: what its paths lead to. The rest may be data, which a
// breakpoint would change. A landing pad at its entry stays in place, so the instruction behind it is the first.
func (r *resolver) everyInsn(loc symbols.Location) []place {
	if r.code == nil {
		r.code = kprobes.NewCode(r.table, r.mem)
	}
	var places []place
	rest := r.code.EachInsn(loc.Every, func(insn arch.Insn, why error) {
		if why != nil {
			r.skip.add(why)
			return
		}
		at := loc
		at.Offset += uint64(insn.Addr - loc.Addr)
		at.Addr = insn.Addr
		places = append(places, place{name: at.String(), addr: insn.Addr, optional: true})
	})
	if rest != nil {
		r.skip.add(rest)
	}
	return places
}

// skipped counts optional places that are not probed, by reason.
type skipped map[string]int

func (s skipped) add(err error) { s[skipReason(err)]++ }

// skippable tells a refusal of one place from a failure of everything.
func skippable(err error) bool {
	for _, e := range []error{kprobes.ErrNotExecutable, kprobes.ErrBlacklisted, kprobes.ErrNotBoundary,
		kprobes.ErrUndecodable, kprobes.ErrData, kprobes.ErrRestartable, kprobes.ErrNotEntry, kprobes.ErrException, kprobes.ErrUnsupported, kprobes.ErrShadowStack} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// skipReason is the most specific sentinel's text: reasons are counted, so they must
// not hold addresses.
func skipReason(err error) string {
	for _, e := range []error{arch.ErrOperandSize, arch.ErrTruncated, arch.ErrUndecodable, arch.ErrBreakpoint,
		arch.ErrEnclave, arch.ErrReach,
		kprobes.ErrNotExecutable, kprobes.ErrBlacklisted, kprobes.ErrNotBoundary, kprobes.ErrUndecodable,
		kprobes.ErrData, kprobes.ErrRestartable, kprobes.ErrNotEntry,
		kprobes.ErrException, kprobes.ErrUnsupported, kprobes.ErrShadowStack} {
		if errors.Is(err, e) {
			return e.Error()
		}
	}
	return err.Error()
}

// String lists the reasons, the most frequent first.
func (s skipped) String() string {
	reasons := make([]string, 0, len(s))
	for reason := range s {
		reasons = append(reasons, reason)
	}
	sort.Slice(reasons, func(i, j int) bool {
		if a, b := s[reasons[i]], s[reasons[j]]; a != b {
			return a > b
		}
		return reasons[i] < reasons[j]
	})
	for i, reason := range reasons {
		reasons[i] = fmt.Sprintf("%s (%d)", reason, s[reason])
	}
	return strings.Join(reasons, ", ")
}

func (s skipped) total() int {
	n := 0
	for _, k := range s {
		n += k
	}
	return n
}
