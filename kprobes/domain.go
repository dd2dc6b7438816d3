package kprobes

import (
	"errors"
	"os"
	"slices"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/guardian"
	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/internal/recovery"
	"github.com/gokprobe/gokprobe/patch"
	"github.com/gokprobe/gokprobe/ptrace"
	"github.com/gokprobe/gokprobe/trampoline"
)

// domain is our work in one address space: the sites, the patched text, the injected
// region. It belongs to the tracer's thread.
type domain struct {
	session *Session
	space   *ptrace.Space
	text    *patch.Text
	region  *trampoline.Region
	memory  memory // that the region has

	sites map[arch.Addr]*site
	slots slotSet
	past  pastCode
	// former is those in the modules that were unmapped last.
	former map[arch.Addr][]byte

	look       looks
	linker     linker
	optimizer  optimizer
	detours    detours
	upcalls    upcalls
	followed   followed // calls
	recorder   recorder
	guard      guard // for when we are killed
	masks      masks
	neighbours neighbours // who write into the code as well

	heirs []*heir // that are like it; also guarded by counting
	still uint64  // what heirs.changes was when it was found that there could be some

	newborn  bool // it is a forked child's, which has not run yet
	released bool
	steps    *ptrace.Steps // while it is given up
}

// newDomain begins work in p's address space.
func (s *Session) newDomain(p *ptrace.Process) *domain {
	return s.newDomainOf(p.Space, p.PID, p.StartTime())
}

// newDomainOf is newDomain for an address space and its first process, which started at start.
func (s *Session) newDomainOf(space *ptrace.Space, pid int, start uint64) *domain {
	d := &domain{session: s, space: space, sites: map[arch.Addr]*site{}, past: pastCode{insns: map[arch.Addr][]byte{}}}
	d.memory = memory{d: d, shared: map[arch.Addr]*ptrace.Shared{}}
	d.slots = slotSet{d: d, at: map[arch.Addr]*site{}}
	d.look, d.linker, d.upcalls, d.masks, d.neighbours = looks{d: d}, linker{d: d}, upcalls{d: d}, masks{d: d, keys: map[mappingKey]codeKey{}}, neighbours{d: d}
	d.optimizer = optimizer{d: d, queue: map[*site]bool{}, jumps: map[arch.Addr]*pastJump{}}
	d.detours = detours{d: d, at: map[arch.Addr]*detour{}, heads: map[arch.Addr]*detour{}, counters: map[arch.Addr]*counter{}}
	d.followed = followed{d: d, unreturnable: map[arch.Addr]error{}, relays: relays{d: d}}
	d.recorder = recorder{d: d, recordings: map[uint32]*recording{}, states: map[*SharedState]*programState{}}
	d.guard = guard{d: d, told: guardian.NewHold(pid, start)}
	d.text = patch.NewText(space.Text(), journal{d})
	d.text.Beside(d.neighbours.judge(), d.neighbours.undisturbed)
	d.beginRegion()
	s.spaces.Keep(space, d)
	s.domains[d] = true
	return d
}

// beginRegion begins a region without memory.
func (d *domain) beginRegion() {
	owner := trampoline.Owner{PID: uint32(os.Getpid()), StartTime: ownStart(), PIDNamespace: recovery.PIDNamespace()}
	d.region = trampoline.New(host.Code, owner, mapper{d})
	d.region.Avoid(d.neighbours.codeAt)
	if givenBack != nil {
		d.region.Given(func(memory ...arch.Range) { givenBack(d, d.space, memory) })
	}
}

// domainOf is nil for a thread of an address space that has no probes.
func (s *Session) domainOf(th *ptrace.Thread) *domain { return s.at(th.Proc.Space) }

// at is the domain of an address space, which may be changed then; nil if that has none.
func (s *Session) at(space *ptrace.Space) *domain {
	if s.spaces.Of(space) == nil && s.heirs.of.Of(space) == nil {
		return nil
	}
	s.settled()
	return s.spaces.Of(space)
}

// journal is the region's. Without a region in the target there is nobody who could find it.
type journal struct{ d *domain }

func (j journal) Record(at arch.Addr, original, replacement []byte) (int, error) {
	if j.d.memory.private {
		return 0, nil
	}
	id, err := j.d.region.Journal().Record(at, original, replacement)
	if err != nil && j.d.memory.private { // as was found out just now
		return 0, nil
	}
	return id, err
}

func (j journal) Erase(id int) error {
	if j.d.memory.private {
		return nil
	}
	return j.d.region.Journal().Erase(id)
}

// siteAt returns the site at an address.
func (d *domain) siteAt(a arch.Addr) *site { return d.sites[a] }

// slotSite returns the site whose slot ip lies in.
func (sl *slotSet) slotSite(ip arch.Addr) *site {
	if !sl.d.region.Contains(ip) {
		return nil
	}
	slot, ok := sl.d.region.SlotOf(ip)
	if !ok {
		return nil
	}
	return sl.at[slot]
}

// stuck tells whether code could not be restored: then everything that it leads to stays, as after the
// death of a tracer, but no detour works any more.
func (d *domain) stuck() (left bool) {
	defer d.look.anew()()
	for _, p := range d.text.Patches() {
		if !errors.Is(d.look.checkMapping(p.Addr()), ErrNotMapped) {
			left = true
		}
	}
	for _, st := range d.sites {
		if left && st.jump() != nil {
			_ = d.detours.turn(st.jump(), false)
		}
	}
	return left
}

// mapped is what the injected region occupies. The header's arena is the first. So it is the first that goes: were we killed before the others have
// gone, too, a header would be left that tells of memory which is not there.
func (m *memory) mapped() (ranges []arch.Range) {
	for _, a := range m.d.region.Arenas() {
		switch e := a.Extent(); {
		case a.Cave():
		case e.Offset == 0:
			ranges = slices.Insert(ranges, 0, e.Range())
		default:
			ranges = append(ranges, e.Range())
		}
	}
	return ranges
}

// moveOut takes a stopped thread to the place in the original code that corresponds
// to where it stands. A thread that trapped but was not handled is put before the
// instruction; one in a slot is put before or after it, as far as it got.
func (d *domain) moveOut(th *ptrace.Thread) {
	if !th.Stopped() {
		return
	}
	d.guard.leaveGuard(th)
	regs, err := th.Regs()
	if err != nil {
		return
	}
	ip := regs.IP()
	ts := d.session.hits.states.Of(th)
	if ts != nil && ts.outer != nil {
		ts = ts.outer
	}
	if ts != nil && ts.box != nil && ts.outOfBox(th) != nil {
		return
	}
	switch {
	case th.HasLeft():
		return
	case ts != nil && ts.phase != between && ts.phase != atCall: // the handler ends the session
		ts.regs.undone()
		if ts.phase == atReturn || regs.Trapped() == ts.site.addr {
			regs.SetIP(ts.site.returnsTo())
		}
		th.Go(ptrace.RunOn())
		return
	case th.Stop().Reason == ptrace.SingleStep && ts != nil && ts.site != nil:
		_, _ = d.session.hits.resume(th, ts) // if it fails, the thread stands at the original code all the same
		return
	}
	if st := d.slots.slotSite(ip); st != nil {
		d.moveOutOfSlot(th, st, regs)
		return
	}
	if det := d.detours.holding(ip); det != nil {
		d.detours.moveOutOfDetour(th, det)
		return
	}
	if d.detours.raisedByJump(th, regs) {
		th.Go(ptrace.DropSignal())
		return
	}
	if det := d.neighbours.strayAt(th, regs); det != nil {
		d.neighbours.moveOutOfStray(th, det, regs)
		return
	}
	if th.Stop().Reason == ptrace.Breakpoint {
		at := regs.Trapped()
		if _, ours := d.past.insns[at]; ours {
			regs.SetIP(at)
			th.Go(ptrace.RunOn())
		} else if head, ours := d.neighbours.torn[at]; ours {
			regs.SetIP(head)
			th.Go(ptrace.RunOn())
		}
	}
}

func (d *domain) moveOutOfSlot(th *ptrace.Thread, st *site, regs arch.Regs) {
	ip := regs.IP()
	orig, executed, ok := st.slot.Origin(ip)
	if !ok {
		return
	}
	if executed {
		d.session.hits.rerecord(th, st)
	}
	switch th.Stop().Reason {
	case ptrace.Signal, ptrace.Breakpoint:
		if regs.Trapped() != st.slot.Trap {
			d.session.hits.translate(th, ip, orig) // of the program's own
			th.Go(ptrace.WithSignal())
			break
		}
		fallthrough
	default:
		th.Go(ptrace.RunOn())
	}
	regs.SetIP(orig)
}

// stepped is the steps that are left for d's threads while it is given up, and many outside of that.
func (d *domain) stepped() *ptrace.Steps {
	if d.steps != nil {
		return d.steps
	}
	return ptrace.StepsFor(1)
}
