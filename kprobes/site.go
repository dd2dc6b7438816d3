package kprobes

import (
	"errors"
	"fmt"
	"slices"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/patch"
	"github.com/gokprobe/gokprobe/ptrace"
)

// site is one patched address in one address space, shared by its probes.
type site struct {
	domain *domain
	addr   arch.Addr
	plan   arch.Plan
	slot   *arch.Slot
	patch  *patch.Patch

	// probes in the order in which handlers run: the latest registered first
	// (B16). The slice is replaced, never changed, so a handler may register and
	// unregister.
	probes []*Kprobe
	step   bool // trap after the copy: a handler or the instruction needs it
}

// makeSite prepares a site at an address that was checked. Nothing is patched yet.
func (d *domain) makeSite(at arch.Addr) (*site, error) {
	insn, err := d.decode(at)
	if err != nil {
		return nil, err
	}
	plan, err := ptrace.Host.Plan(insn)
	if err != nil {
		return nil, refusal(err)
	}
	if err := d.checkSigreturn(insn); err != nil {
		return nil, err
	}
	if err := d.checkShadowStack(insn); err != nil {
		return nil, err
	}
	st := &site{domain: d, addr: at, plan: plan}
	if err := d.fillSlot(st); err != nil {
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
func (d *domain) checkShadowStack(insn arch.Insn) error {
	switch insn.Flow {
	case arch.FlowCall, arch.FlowIndirectCall, arch.FlowReturn:
	default:
		return nil
	}
	tid, err := d.space.TID()
	if err != nil {
		return err
	}
	if st, err := procfs.ReadStatus(tid, 0); err == nil && st.ShadowStack {
		return ErrShadowStack
	}
	return nil
}

// fillSlot places the copy. Emulated instructions have one too: it is run for the
// exceptions that the processor must raise.
func (d *domain) fillSlot(st *site) error {
	addr, err := d.allocSlot(st.plan.Near)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNoSlot, err)
	}
	slot, err := ptrace.Host.Assemble(st.plan, addr)
	if err == nil {
		err = d.region.Put(slot)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("%w: %w", ErrNoSlot, err), d.region.Free(addr))
	}
	st.slot = slot
	d.slots[addr] = st
	return nil
}

// discard takes back a site that was never armed.
func (d *domain) discard(st *site) {
	delete(d.slots, st.slot.Addr)
	if err := d.region.Free(st.slot.Addr); err != nil {
		d.session.warn("freeing the slot at %s: %v", st.slot.Addr, err)
	}
}

// arm shows the breakpoint. Other threads keep running: see package patch for what
// they may see. The slot is complete before the first of them can need it.
func (d *domain) arm(st *site) error {
	if st.patch != nil {
		return d.text.Arm(st.patch)
	}
	trap := ptrace.Host.Breakpoint()
	d.past[st.addr] = st.plan.Insn.Bytes
	p, err := d.text.Install(st.addr, st.plan.Insn.Bytes[:len(trap)], trap)
	if err != nil {
		return err
	}
	st.patch = p
	return nil
}

// disarm hides the breakpoint. A thread that trapped just before finds the site
// silent and runs the original.
func (d *domain) disarm(st *site) error {
	if st.patch == nil {
		return nil
	}
	for _, th := range d.space.Threads() {
		if ts, ok := th.Local.(*threadState); ok {
			ts.forget(st)
		}
	}
	return d.text.Disarm(st.patch)
}

// remove ends a site. Its slot is recycled when nobody can be inside.
func (d *domain) remove(st *site) error {
	delete(d.sites, st.addr)
	var err error
	if st.patch != nil {
		d.survey = nil
		err = d.text.Remove(st.patch)
		if err != nil && errors.Is(d.checkMapping(st.addr), ErrNotMapped) {
			err = d.text.Drop(st.patch) // dlclose took the code away
		}
		st.patch = nil
	}
	return errors.Join(err, d.region.Retire(st.slot.Addr))
}

func (st *site) armed() bool { return st.patch != nil && st.patch.Armed() }

// hasPost tells whether an enabled probe waits for the end of the instruction.
func (st *site) hasPost() bool {
	for _, kp := range st.probes {
		if kp.enabled() && kp.PostHandler != nil {
			return true
		}
	}
	return false
}

// refresh makes a site agree with its probes: armed if one is enabled, stepped if one
// of those has a PostHandler (B6, B21).
func (d *domain) refresh(st *site) error {
	st.step = d.session.opts.NoBoost || st.plan.MustStep != "" || st.hasPost()
	if slices.ContainsFunc(st.probes, (*Kprobe).enabled) {
		return d.arm(st)
	}
	return d.disarm(st)
}

// decode reads the instruction at at as it is without patches.
func (d *domain) decode(at arch.Addr) (arch.Insn, error) {
	code, err := d.original(at, ptrace.Host.MaxInsnLen())
	if err != nil {
		return arch.Insn{}, err
	}
	insn, err := ptrace.Host.Decode(code, at)
	if err != nil {
		return arch.Insn{}, refusal(err)
	}
	return insn, nil
}

// original reads up to n bytes of unpatched code; fewer if the mapping ends.
func (d *domain) original(at arch.Addr, n int) ([]byte, error) {
	code := make([]byte, n)
	err := d.text.Original(at, code)
	if err == nil {
		return code, nil
	}
	rest := int(4096 - at%4096)
	if rest >= n {
		return nil, fmt.Errorf("%w: %w", ErrNotMapped, err)
	}
	if err := d.text.Original(at, code[:rest]); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotMapped, err)
	}
	return code[:rest], nil
}
