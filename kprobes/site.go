package kprobes

import (
	"errors"
	"fmt"
	"slices"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/patch"
)

// site is one patched address in one address space, shared by its probes.
type site struct {
	domain *domain
	addr   arch.Addr
	plan   arch.Plan
	slot   *arch.Slot
	stands stance
	led    bool // threads were led to the slot, also by the guard, so some may be inside

	// probes in the order in which handlers run: the latest registered first
	// (B16), a Jprobe last (B17). The slice is replaced, never changed, so a handler may register and
	// unregister.
	probes []*Kprobe
	step   bool // trap after the copy: a handler or the instruction needs it

	mask    *maskSite // threads are kept from blocking SIGTRAP there (guard_masksites.go); nil elsewhere
	linker  bool      // the dynamic linker's (module.go)
	calls   siteCalls
	leaves  *jumps
	entered *error // whether it is in front of all that its function does; nil if nobody has asked
	noJump  noJump
}

// makeSite prepares a site at an address that was checked. Nothing is patched yet.
func (d *domain) makeSite(at arch.Addr) (*site, error) {
	insn, err := d.look.decode(at)
	if err != nil {
		return nil, err
	}
	plan, err := host.Arch.Plan(insn)
	if err != nil {
		return nil, refusal(err)
	}
	if err := d.look.checkShadowStack(insn); err != nil {
		return nil, err
	}
	st := &site{domain: d, addr: at, plan: plan, stands: unarmed{}}
	if err := d.slots.fillSlot(st); err != nil {
		return nil, err
	}
	return st, nil
}

// refusal gives an architecture's reason the errno that the kernel returns for it.
func refusal(err error) error {
	switch {
	case errors.Is(err, arch.ErrBreakpoint):
		return fmt.Errorf("%w: %w", ErrException, err)
	case errors.Is(err, arch.ErrUndecodable), errors.Is(err, arch.ErrTruncated):
		return fmt.Errorf("%w: %w", ErrUndecodable, err)
	}
	return fmt.Errorf("%w: %w", ErrUnsupported, err)
}

// checkShadowStack refuses to emulate what a shadow stack would have to follow.
func (lo *looks) checkShadowStack(insn arch.Insn) error {
	switch insn.Flow {
	case arch.FlowCall, arch.FlowIndirectCall, arch.FlowReturn:
	default:
		return nil
	}
	on, err := lo.surveyed().ShadowStack()
	if err == nil && on {
		err = ErrShadowStack
	}
	return err
}

// fillSlot places the copy. Emulated instructions have one too: it is run for the
// exceptions that the processor must raise.
func (sl *slotSet) fillSlot(st *site) error {
	addr, err := sl.allocSlot(st.plan.Near)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNoSlot, err)
	}
	slot, err := host.Code.Assemble(st.plan, addr)
	if err == nil {
		err = sl.d.region.Put(slot)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("%w: %w", ErrNoSlot, err), sl.d.region.Free(addr))
	}
	slot.Written()
	st.slot = slot
	sl.at[addr] = st
	return nil
}

// give takes back the slot of a site that ends: at once if nothing has ever led threads there,
// else when nobody is inside. A site that is unarmed may have been left by its jump a moment
// ago, with a thread that has not executed the copy yet.
func (sl *slotSet) give(st *site) {
	free := sl.d.region.Free
	if st.led {
		free = sl.d.region.Retire
		sl.d.guard.unguard(st.addr)
	} else {
		delete(sl.at, st.slot.Addr)
	}
	if err := free(st.slot.Addr); err != nil {
		sl.d.session.warn("freeing the slot of %s: %v", st.addr, err)
	}
}

// arm shows the breakpoint. Other threads keep running: patch/doc.go says what they
// may see. The slot is complete before the first of them can need it.
func (d *domain) arm(st *site) error {
	if st.patch() == nil {
		_, err := d.armAll([]*site{st})
		return err
	}
	if err := d.optimizer.unoptimizeNow(d.optimizer.covering([]*site{st})); err != nil {
		return err
	}
	d.guard.guardSlots([]*site{st}) // its byte may have been a jump's meanwhile
	if err := d.text.Arm(st.patch()); err != nil {
		return err
	}
	d.neighbours.tellShared([]*site{st})
	d.session.beside.begin()
	d.optimizer.consider(st)
	return nil
}

// armAll arms sites that never were, all or none. After an error failed is the site
// to blame.
func (d *domain) armAll(sites []*site) (failed *site, err error) {
	if len(sites) == 0 {
		return nil, nil
	}
	if err := d.optimizer.unoptimizeNow(d.optimizer.covering(sites)); err != nil {
		return sites[0], err
	}
	trap := host.Arch.Breakpoint()
	wants := make([]patch.Want, len(sites))
	for i, st := range sites {
		d.past.add(st.addr, st.plan.Insn.Bytes)
		st.led = true
		wants[i] = patch.Want{At: st.addr, Expect: st.plan.Insn.Bytes, Replacement: trap}
	}
	d.guard.guardSites(sites)
	if err := d.guard.unguarded(); err != nil {
		return sites[0], err
	}
	if err := d.session.heed.wanted(); err != nil {
		return sites[0], err
	}
	patches, err := d.text.InstallAll(wants)
	if err != nil {
		failed = sites[0]
		if at := (*patch.InstallError)(nil); errors.As(err, &at) {
			failed = d.sites[at.At]
		}
		return failed, err
	}
	for i, st := range sites {
		st.installed(patches[i])
	}
	d.neighbours.tellShared(sites)
	d.session.beside.begin()
	for _, st := range sites {
		d.optimizer.consider(st)
	}
	return nil, nil
}

// disarm hides the breakpoint. A thread that trapped just before finds the site
// silent and runs the original.
func (d *domain) disarm(st *site) error {
	if st.patch() == nil {
		return nil
	}
	for _, th := range d.space.Threads() {
		d.session.hits.states.Of(th).forget(st)
	}
	d.optimizer.leave(st)
	st.showOptimized()
	defer d.optimizer.uncovered(st)
	return d.text.Disarm(st.patch())
}

// settle makes sites agree with the probes that they have left; those without end.
func (d *domain) settle(sites []*site) error {
	if d.released {
		return nil
	}
	var errs []error
	var ended []*site
	var patches []*patch.Patch
	for _, st := range sites {
		switch {
		case d.sites[st.addr] != st: // ended before
		case st.wanted(), len(st.probes) > 0, st.jump() != nil:
			errs = append(errs, d.refresh(st))
		default:
			delete(d.sites, st.addr)
			d.optimizer.leave(st)
			ended = append(ended, st)
			if st.patch() != nil {
				patches = append(patches, st.patch())
			}
		}
	}
	d.text.DisarmAll(patches)
	for _, st := range ended {
		errs = append(errs, d.remove(st))
	}
	return d.unlessEnding(errors.Join(errs...))
}

// remove ends a site. Its slot is recycled when nobody can be inside.
func (d *domain) remove(st *site) error {
	if st.patch() == nil {
		d.slots.give(st)
		return nil
	}
	err := d.text.Remove(st.patch())
	if err != nil {
		end := d.look.anew()
		if errors.Is(d.look.checkMapping(st.addr), ErrNotMapped) {
			err = d.text.Drop(st.patch()) // dlclose took the code away
		}
		end()
	}
	st.taken()
	d.optimizer.uncovered(st)
	d.slots.give(st)
	return err
}

// add gives kp its place in the order in which handlers run.
func (st *site) add(kp *Kprobe) {
	if kp.jprobe != nil {
		st.probes = append(slices.Clone(st.probes), kp)
		return
	}
	at := 0
	for i, o := range st.probes {
		if kp.forCalls && o.forCalls {
			at = i + 1 // in the order of their registration, as by stops
		}
	}
	st.probes = slices.Insert(slices.Clone(st.probes), at, kp)
}

// wanted reports whether anybody still needs to see hits of st.
func (st *site) wanted() bool {
	return st.linker || st.calls.unwinds || st.calls.any() || st.mask != nil && st.jump() != nil || !st.domain.session.registry.disarmed && slices.ContainsFunc(st.probes, (*Kprobe).enabled)
}

// hasPost tells whether an enabled probe waits for the end of the instruction.
func (st *site) hasPost() bool {
	for _, kp := range st.probes {
		if kp.enabled() && kp.PostHandler != nil {
			return true
		}
	}
	return false
}

// refreshAll is refresh for many sites, some perhaps listed twice. New breakpoints are
// shown together, after all that needed a change of another kind. After an error failed
// is the site to blame.
func (d *domain) refreshAll(sites []*site) (failed *site, err error) {
	fresh := make([]*site, 0, len(sites))
	seen := make(map[*site]bool, len(sites))
	for _, st := range sites {
		if st == nil || seen[st] {
			continue
		}
		seen[st] = true
		if st.patch() == nil && st.wanted() {
			st.step = d.mustStep(st)
			fresh = append(fresh, st)
		} else if err := d.refresh(st); err != nil {
			return st, err
		}
	}
	return d.armAll(fresh)
}

// mustStep: a hit is stepped if a handler or the instruction needs it.
func (d *domain) mustStep(st *site) bool {
	return d.session.opts.NoBoost || st.plan.MustStep != "" || st.hasPost()
}

// refresh makes a site agree with its probes: armed if one is enabled, stepped if one
// of those has a PostHandler (B6, B21).
func (d *domain) refresh(st *site) error {
	st.step = d.mustStep(st)
	if st.jump() != nil {
		if done, err := d.optimizer.refreshJump(st); done || err != nil {
			return err
		}
	}
	if st.wanted() {
		return d.arm(st)
	}
	return d.disarm(st)
}
