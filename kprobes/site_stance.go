package kprobes

import "github.com/gokprobe/gokprobe/patch"

// stance is what stands at a site: one of unarmed, breakpoint, planned and jumping. Only the methods below change it.
//
//	unarmed <──────────────────────────────── taken ─┐
//	   │ installed                                    │
//	   v            planJump              written     │
//	breakpoint <────────────> planned ──────────> jumping
//	              unplanned
//
// A planned site has its breakpoint until the jump is written, and none for a moment in between; the site of a tail never had one. An error at that
// moment leaves it planned, until it is unplanned. A breakpoint may be hidden (patch.Patch.Armed), a jump switched off.
type stance interface{ stance() }

type (
	unarmed    struct{}
	breakpoint struct{ patch *patch.Patch }
	planned    struct {
		patch *patch.Patch // nil if there is no breakpoint
		det   *detour      // to which nothing leads yet
	}
	jumping struct {
		patch *patch.Patch
		det   *detour
	}
)

func (unarmed) stance()    {}
func (breakpoint) stance() {}
func (planned) stance()    {}
func (jumping) stance()    {}

// patch is what has been written at st, nil if that is nothing.
func (st *site) patch() *patch.Patch {
	switch s := st.stands.(type) {
	case breakpoint:
		return s.patch
	case planned:
		return s.patch
	case jumping:
		return s.patch
	}
	return nil
}

// jump is the detour that st's jump leads to, nil if st has none.
func (st *site) jump() *detour {
	if s, ok := st.stands.(jumping); ok {
		return s.det
	}
	return nil
}

// next is the detour that st is about to be led to, nil if there is none.
func (st *site) next() *detour {
	if s, ok := st.stands.(planned); ok {
		return s.det
	}
	return nil
}

// armed tells whether threads that come to st stop, or jump.
func (st *site) armed() bool {
	p := st.patch()
	return p != nil && p.Armed()
}

// installed: p, a breakpoint, stands at st, which was unarmed.
func (st *site) installed(p *patch.Patch) { st.stands = breakpoint{p} }

// planJump: st is to jump to det.
func (st *site) planJump(det *detour) { st.stands = planned{st.patch(), det} }

// unplanned ends the plan. It returns the detour that nothing leads to.
func (st *site) unplanned() *detour {
	s := st.stands.(planned)
	if st.stands = (unarmed{}); s.patch != nil {
		st.stands = breakpoint{s.patch}
	}
	return s.det
}

// written: p, the jump that was planned, stands at st.
func (st *site) written(p *patch.Patch) {
	st.stands, st.led = jumping{p, st.stands.(planned).det}, true
}

// taken: what stood at st was taken away. It returns the detour that nothing leads to any more, nil if there was no jump.
func (st *site) taken() (left *detour) {
	switch s := st.stands.(type) {
	case planned:
		st.stands = planned{nil, s.det}
		return nil
	case jumping:
		left = s.det
	}
	st.stands = unarmed{}
	return left
}

// showOptimized sets FlagOptimized of st's enabled probes if st jumps, or is to: as in the kernel it is set when the
// site is queued (E24).
func (st *site) showOptimized() {
	on := st.next() != nil
	switch {
	case st.jump() != nil:
		on = st.wanted()
	case st.domain.optimizer.queue[st], st.domain.optimizer.unhit[st]:
		on = st.armed()
	}
	for _, kp := range st.probes {
		if kp.Flags &^= FlagOptimized; on && kp.enabled() {
			kp.Flags |= FlagOptimized
		}
	}
}
