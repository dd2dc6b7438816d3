package kprobes

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/internal/procfs"
)

// returnSite makes sure of a site at a return address; nil if there can be none.
func (fo *followed) returnSite(rp *Kretprobe, at arch.Addr, inGo bool) *site {
	st, err := fo.siteOfReturns(rp, at, inGo)
	if err != nil && !rp.warned {
		rp.warned = true
		called, _ := fo.d.linker.symbols().Lookup(rp.KP.Addr)
		also := ""
		if fo.d.session.opts.Returns != ReturnSites {
			if why := fo.relays.refusal(); why != "" {
				also = "; return addresses are not replaced: " + why
			}
		}
		fo.d.session.warn("calls of %s that return to %s are missed: %v%s", called, at, err, also)
	}
	return st
}

// siteOfReturns is returnSite for who can do without.
func (fo *followed) siteOfReturns(rp *Kretprobe, at arch.Addr, inGo bool) (*site, error) {
	st := fo.d.sites[at]
	if st == nil || !st.calls.any() || !st.armed() {
		var err error
		if st, err = fo.makeReturnSite(at, st); err != nil {
			return nil, err
		}
	}
	st.calls.fromGo = st.calls.fromGo || inGo
	if !rp.returns[st] {
		rp.returns[st] = true
		if st.calls.begin(rp) && st.jump() != nil {
			if err := fo.d.refresh(st); err != nil {
				fo.d.session.warn("%v", err)
			}
		}
	}
	return st, nil
}

// makeReturnSite arms st, or a new site, for returns. It runs during a hit: the
// findings of a registration are older.
func (fo *followed) makeReturnSite(at arch.Addr, st *site) (*site, error) {
	if err := fo.unreturnable[at]; err != nil {
		return nil, err
	}
	defer fo.d.look.anew()()
	var err error
	fresh := st == nil
	if fresh {
		ours := fo.relays.at[at] != nil
		if !ours {
			err = fo.d.look.checkReturn(at)
		}
		if err == nil {
			st, err = fo.d.makeSite(at)
		}
		if err != nil {
			fo.cannotReturn(at, err)
			return nil, err
		}
		fo.d.sites[at] = st
	}
	err = st.calls.awaiting(func() error { return fo.d.refresh(st) })
	if err != nil && fresh {
		delete(fo.d.sites, at)
		fo.d.slots.give(st)
	}
	return st, err
}

// cannotReturn remembers a refusal: it took a while to come by. Code that is generated has
// ever new addresses.
func (fo *followed) cannotReturn(at arch.Addr, err error) {
	const enough = 1024
	if len(fo.unreturnable) >= enough {
		clear(fo.unreturnable)
	}
	fo.unreturnable[at] = err
}

// checkReturn makes the checks of an address that nobody has asked to probe: it has been
// found on a stack. It must be known for an instruction, or stand behind a call; and it must
// not be code that a program generates and may change, move or copy at any time.
func (lo *looks) checkReturn(at arch.Addr) error {
	if err := lo.checkMapping(at); err != nil {
		return err
	}
	m, err := lo.surveyed().Mapping(at)
	if err != nil {
		return err
	}
	bounds, known := lo.d.linker.symbols().Function(at)
	if m.Write || !known && ofNoFile(m) {
		return fmt.Errorf("%w: it is generated code (%s)", ErrBlacklisted, mappingName(m))
	}
	if err := lo.checkCode(at); err != nil {
		return err
	}
	if lo.isSigreturn(at) { // a signal's handler returns; nothing in front of it need be code
		if !lo.d.linker.symbols().Unwindable(at) {
			return fmt.Errorf("%w: it is where signal handlers return to, and unwinders know it by its bytes", ErrBlacklisted)
		}
		return nil
	}
	if known {
		return lo.checkBoundary(bounds, at)
	}
	return lo.checkBehindCall(at, *m)
}

// ofNoFile tells of memory that programs put code into which they have generated, also where it has a name (prctl(2), PR_SET_VMA_ANON_NAME; memfd_create(2)).
func ofNoFile(m *procfs.Mapping) bool {
	if m.Path == "" {
		return true
	}
	return slices.ContainsFunc([]string{"[anon", "[heap]", "[stack", "/memfd:", "/dev/zero"}, func(name string) bool { return strings.HasPrefix(m.Path, name) })
}

// checkBehindCall accepts an address if a call ends there.
func (lo *looks) checkBehindCall(at arch.Addr, m procfs.Mapping) error {
	const shortest, longest = 2, 8
	for n := arch.Addr(shortest); n <= longest && at-n >= m.Range.Start; n++ {
		insn, err := lo.decode(at - n)
		if err == nil && insn.End() == at && (insn.Flow == arch.FlowCall || insn.Flow == arch.FlowIndirectCall) {
			return nil
		}
	}
	return fmt.Errorf("%w: there is no call in front of it", ErrNotBoundary)
}

// jumps describes how a function may go on, other than with the next instruction.
type jumps struct {
	away bool // into another function, by a jump or over its own end, as far as is known
	back bool // to its entry
}

// jumpsAway tells whether the function at st may end by a jump into another or into itself,
// whose return address is then its own (C24). Where the code is not known, it may. Go's
// compiler calls no function by a jump to its own entry.
func (st *site) jumpsAway() bool {
	j := st.jumps()
	return j.away || j.back && !st.calls.inGo
}

func (st *site) jumps() jumps {
	if st.leaves == nil {
		leaves := st.domain.look.jumpsOf(st)
		st.leaves = &leaves
	}
	return *st.leaves
}

func (lo *looks) jumpsOf(st *site) (j jumps) {
	bounds, known := lo.d.linker.symbols().Function(st.addr)
	if !known {
		return jumps{away: true}
	}
	defer lo.anew()()
	parts := []arch.Range{bounds}
	for i := 0; i < len(parts); i++ {
		falls := false // out of the part, into what lies behind it
		for at := parts[i].Start; at < parts[i].End; {
			insn, err := lo.decode(at)
			if err != nil {
				j.away = true
				return j
			}
			at = insn.End()
			if !host.Arch.Padding(insn) {
				falls = insn.Flow == arch.FlowNext || insn.Flow == arch.FlowCond || insn.Flow == arch.FlowSyscall
			}
			switch to := insn.Target; insn.Flow {
			case arch.FlowIndirectJump, arch.FlowFar:
				j.away = true
			case arch.FlowJump, arch.FlowCond:
				part, inside := lo.partOf(bounds, to)
				if inside && !slices.Contains(parts, part) {
					parts = append(parts, part)
				}
				j.away = j.away || !inside
				// Where a Go function begins, its stack is checked again.
				j.back = j.back || to == st.addr || !st.calls.inGo && bounds.Contains(to) && to < st.addr
			}
		}
		j.away = j.away || falls // a call at the end does not return
	}
	return j
}

// partOf reports whether at is in a function, or in a part that a compiler has split
// off it because it seldom runs. It also returns the extent of either.
func (lo *looks) partOf(fn arch.Range, at arch.Addr) (part arch.Range, inside bool) {
	if fn.Contains(at) {
		return fn, true
	}
	part, known := lo.d.session.table.Function(at)
	whole, _ := lo.d.session.table.Lookup(fn.Start)
	split, _ := lo.d.session.table.Lookup(at)
	suffix, ofWhole := strings.CutPrefix(split.Symbol.Linkage, whole.Symbol.Linkage)
	return part, known && ofWhole && (strings.HasPrefix(suffix, ".cold") || strings.HasPrefix(suffix, ".warm"))
}
