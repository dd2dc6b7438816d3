package kprobes

import (
	"errors"
	"fmt"
	"strings"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/ptrace"
	"github.com/gokprobe/gokprobe/trampoline"
)

// slotSet is a domain's slots.
type slotSet struct {
	d  *domain
	at map[arch.Addr]*site // by slot address, retired ones included
}

// memory is what the target has mapped for us.
type memory struct {
	d       *domain
	brk     arch.Addr                    // where the heap begins, when last seen
	shared  map[arch.Addr]*ptrace.Shared // the arenas, by where they begin in the target
	private bool                         // no memory can be mapped: slots lie in caves, the journal with us
}

// givenBack is told in tests of memory in space, d's or a child's of it, that is given back: nobody may be there, and nothing may lead there.
var givenBack func(d *domain, space *ptrace.Space, memory []arch.Range)

// allocSlot returns a slot for code at near.
func (sl *slotSet) allocSlot(near arch.Range) (arch.Addr, error) {
	sl.makeRoom(near, 1)
	return sl.d.region.Alloc(near)
}

// makeRoom recycles slots of removed sites before the region maps memory for n more.
func (sl *slotSet) makeRoom(near arch.Range, n int) {
	if sl.d.region.Room(near) < n {
		sl.collect()
	}
}

// mapper is the region's trampoline.Mapper: it has the target map memory.
type mapper struct{ d *domain }

var _ trampoline.Mapper = mapper{}

// Mappings is the first step of a change of the target's mappings.
func (m mapper) Mappings() ([]trampoline.Mapping, arch.Range, error) {
	d := m.d
	if d.memory.private {
		return nil, arch.Range{}, trampoline.ErrCantMap
	}
	d.look.changed()
	maps, err := d.space.Maps()
	if err != nil {
		return nil, arch.Range{}, err
	}
	return usedMappings(maps, d.memory.heap()), addressLimits(), nil
}

// Map maps an arena. Where the target can't map memory since a seccomp filter might kill it for
// the attempt, padding of its own code serves for slots.
func (m mapper) Map(e trampoline.Extent) (data, code trampoline.Store, err error) {
	d := m.d
	data, code, err = d.memory.mapExtent(e)
	if err == nil && !d.session.domains[d] { // a handler has ended the session meanwhile: the other arenas have gone
		return nil, nil, errors.Join(ErrClosed, m.Unmap(e))
	}
	if !errors.Is(err, ptrace.ErrSeccomp) {
		return data, code, err
	}
	d.memory.private = len(d.region.Arenas()) == 0
	if d.memory.private || e.Kind == trampoline.Slots {
		d.session.warn("%v: using padding of its code for the copies", err)
	}
	return nil, nil, fmt.Errorf("%w: %w", trampoline.ErrCantMap, err)
}

// Unmap takes an arena back that the region could not use.
func (m mapper) Unmap(e trampoline.Extent) error {
	m.d.memory.shared[e.Data.Start].Unmap()
	delete(m.d.memory.shared, e.Data.Start)
	return m.d.space.Unmap(e.Range())
}

// Cave is behind the code of the module at near.
func (m mapper) Cave(near arch.Range) (arch.Addr, arch.Memory, error) {
	end, ok := m.d.linker.symbols().TextEnd(near.Start)
	if !ok {
		return 0, nil, fmt.Errorf("no padding is known behind the code at %s", near.Start)
	}
	return end, m.d.space.Text(), nil
}

// heap is where brk(2) begins; 0 if that was never told. It is not told of a process that is not dumpable.
func (m *memory) heap() arch.Addr {
	tid, err := m.d.space.TID()
	if err != nil {
		return m.brk
	}
	if st, err := procfs.ReadStat(tid, 0); err == nil && st.StartBrk != 0 {
		m.brk = arch.Addr(st.StartBrk)
	}
	return m.brk
}

// mapExtent prefers memory shared with the tracer. A target that can't have a memfd
// (no descriptor left, an old kernel) gets anonymous memory.
func (m *memory) mapExtent(ext trampoline.Extent) (data, code trampoline.Store, err error) {
	e := ptrace.Extent{Data: ext.Data, Code: ext.Code, Offset: ext.Offset}
	shared, err := m.d.space.MapShared(trampoline.MemfdName, e)
	if err == nil {
		m.shared[ext.Data.Start] = shared
		return trampoline.Bytes(shared.Data), trampoline.Bytes(shared.Code), nil
	}
	if errors.Is(err, ptrace.ErrSeccomp) || errors.Is(err, ptrace.ErrExited) || errors.Is(err, ptrace.ErrNoThread) {
		return nil, nil, err
	}
	if failed := m.d.space.MapPrivate(e); failed != nil {
		return nil, nil, failed
	}
	mem := m.d.space.Text()
	return trampoline.Remote(mem, ext.Data), trampoline.Unshared(mem, ext.Code, err), nil
}

// usedMappings is the target's maps with the directions in which they grow. heap is where brk(2) begins, which may not have been called yet: the kernel chooses a
// place up to 1 GiB behind the program (arch_randomize_brk), and leaves what is in between to nobody.
func usedMappings(maps []procfs.Mapping, heap arch.Addr) []trampoline.Mapping {
	used := make([]trampoline.Mapping, len(maps), len(maps)+1)
	for i, m := range maps {
		used[i].Range = m.Range
		switch {
		case strings.HasPrefix(m.Path, "[stack"):
			used[i].Grows = trampoline.GrowsDown
		case m.Path == "[heap]":
			used[i].Grows = trampoline.GrowsUp
		}
	}
	if heap != 0 {
		used = append(used, trampoline.Mapping{Range: arch.Range{Start: heap, End: heap}, Grows: trampoline.GrowsUp})
	}
	return used
}

// addressLimits is where user mappings may lie: above vm.mmap_min_addr, below the
// canonical hole of a 47-bit address space, whose last page the kernel keeps.
func addressLimits() arch.Range {
	low := uint64(64 << 10)
	if v, err := procfs.MinMapAddr(); err == nil && v > low {
		low = v
	}
	return arch.Range{Start: arch.Addr(low), End: 1<<47 - 4096}
}

// collect recycles slots of removed sites, when there are enough to make the pause
// worth it. No signal is ever delivered to a thread in a slot, so no frame on any stack
// refers to one: a thread is inside only if its instruction pointer is. Nothing leads
// into a retired one. So a thread that is elsewhere, and waits in a system call, need
// not be stopped. Children whose first stop is not handled are as for detours (detours.collect).
func (sl *slotSet) collect() {
	if sl.retired() == 0 {
		return
	}
	err := sl.d.space.FreezeAwake(sl.d.region.Contains, func() error {
		if sl.d.session.tracer.Awaits(sl.d.space) {
			return nil
		}
		inside := map[arch.Addr]bool{}
		for _, th := range sl.d.space.Threads() {
			for ts := sl.d.session.hits.states.Of(th); ts != nil; ts = ts.outer {
				if ts.site != nil {
					inside[ts.site.slot.Addr] = true // a hit in progress will go there
				}
			}
			if regs, err := th.Regs(); th.Stopped() && err == nil {
				if slot, ok := sl.d.region.SlotOf(regs.IP()); ok {
					inside[slot] = true
				}
			}
		}
		_, err := sl.d.region.Collect(func(slot arch.Range) bool {
			if inside[slot.Start] {
				return true
			}
			if st := sl.at[slot.Start]; st != nil {
				_ = sl.d.region.ClearResume(st.slot.Trap)
			}
			delete(sl.at, slot.Start)
			return false
		})
		return err
	})
	if err != nil {
		sl.d.session.warn("recycling slots: %v", err)
	}
}

// retired counts slots whose site is gone.
func (sl *slotSet) retired() (n int) {
	for _, st := range sl.at {
		if sl.d.sites[st.addr] != st {
			n++
		}
	}
	return n
}
