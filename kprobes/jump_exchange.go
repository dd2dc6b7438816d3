package kprobes

import (
	"errors"
	"fmt"
	"slices"

	"github.com/gokprobe/gokprobe/patch"
	"github.com/gokprobe/gokprobe/ptrace"
)

// How breakpoints become jumps and jumps become breakpoints, and what is left if that fails.

// giveUp leaves st with its breakpoint.
func (opt *optimizer) giveUp(st *site, why error) {
	det := st.unplanned()
	opt.forgetHeads(det)
	opt.d.detours.discard(det)
	st.noJump.now(why.Error())
	st.showOptimized()
}

// changedSince tells whether the program has changed, since the detour was made, the instructions
// that its copies stand for; then st gets no jump. What the jump covers is looked at once more when
// that is written.
func (opt *optimizer) changedSince(st *site) bool {
	now, err := opt.d.neighbours.besideIn(st.next().region(), st)
	if err != nil {
		opt.giveUp(st, err)
		return true
	}
	for _, p := range st.next().Pieces {
		if got := now[p.Insn.Addr-st.addr:][:p.Insn.Len()]; !slices.Equal(got, p.Insn.Bytes) {
			opt.giveUp(st, fmt.Errorf("code at %s is % x instead of % x: %w", p.Insn.Addr, got, p.Insn.Bytes, patch.ErrChanged))
			return true
		}
	}
	return false
}

// exchange removes the patches of sites and installs others. After an error none of those is left, but
// such as can't be taken back.
func (opt *optimizer) exchange(frozen *ptrace.Frozen, wants []patch.Want, sites []*site) error {
	if _, err := opt.takeAway(frozen, sites); err != nil {
		return err
	}
	_, err := opt.d.text.While(frozen).InstallAll(wants)
	return err
}

// takenAway is a site whose patch stands no more.
type takenAway struct {
	*site
	jump    *detour // that its jump led to; nil if it had none
	changed bool    // the program may have left some bytes
}

// takeAway removes the patches of sites. Those that can't be written over stay.
func (opt *optimizer) takeAway(frozen *ptrace.Frozen, sites []*site) (taken []takenAway, err error) {
	old := make([]*patch.Patch, len(sites))
	for i, st := range sites {
		old[i] = st.patch()
	}
	text := opt.d.text.While(frozen)
	text.DisarmAll(old)
	var errs []error
	for _, st := range sites {
		err := text.Remove(st.patch())
		if p, _ := opt.d.text.Find(st.addr); p != st.patch() {
			taken = append(taken, takenAway{st, st.taken(), errors.Is(err, patch.ErrChanged)})
		}
		errs = append(errs, err)
	}
	return taken, errors.Join(errs...)
}

// rearm gives sites without a patch their breakpoints back, if they are wanted.
func (opt *optimizer) rearm(sites []*site) error {
	var wanted []*site
	for _, st := range sites {
		if st.patch() == nil && st.wanted() {
			wanted = append(wanted, st)
		}
	}
	if len(wanted) == 0 {
		return nil
	}
	if _, err := opt.d.armAll(wanted); err == nil {
		return nil
	}
	var errs []error
	for _, st := range wanted { // those that can be
		if _, err := opt.d.armAll([]*site{st}); errors.Is(err, patch.ErrChanged) {
			opt.d.session.beside.disturbances.Add(1)
			opt.d.neighbours.oust(st, err)
		} else {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
