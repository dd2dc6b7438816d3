package main

import (
	"errors"
	"fmt"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/optimize"
	"github.com/gokprobe/gokprobe/trampoline"
)

// space is the address space of a process that has mapped one module, as far as finding
// room for detours goes.
type space struct {
	used   []trampoline.Mapping
	region *trampoline.Region
	cells  arch.Range         // a counter that all detours share
	pages  map[arch.Addr]bool // that have code of ours
}

const shards = 4 // of the counter

// userLimits is where user mappings may lie.
var userLimits = arch.Range{Start: 64 << 10, End: 1<<47 - trampoline.PageSize}

// newSpace maps m among what a process with a few threads has around it: behind a program
// its heap; around a library other ones, and below it thread stacks and malloc's arenas.
func newSpace(m *module) *space {
	s := &space{pages: map[arch.Addr]bool{}}
	s.region = trampoline.New(host.Code, trampoline.Owner{}, mapper{s})
	s.use(m.mapped, trampoline.GrowsNot)
	s.use(arch.Range{Start: 0x7ffd_1234_0000, End: 0x7ffd_1236_1000}, trampoline.GrowsDown)
	if m.library {
		const others, threads = 16 << 20, 8 * (8<<20 + 64<<20)
		s.use(arch.Range{Start: m.mapped.End, End: m.mapped.End + others}, trampoline.GrowsNot)
		s.use(arch.Range{Start: m.mapped.Start - others - threads, End: m.mapped.Start}, trampoline.GrowsNot)
		return s
	}
	heap := m.mapped.End + 4<<20
	s.use(arch.Range{Start: heap, End: heap + 64<<20}, trampoline.GrowsUp)
	return s
}

func (s *space) use(r arch.Range, g trampoline.Growth) {
	s.used = append(s.used, trampoline.Mapping{Range: r, Grows: g})
}

// errNoLanding is what a site is counted under that finds no room.
var errNoLanding = &optimize.Refusal{Reason: optimize.NoLanding}

// land finds room for one of c's options, and leaves it occupied by a detour that counts.
func (s *space) land(c *optimize.Choice) (*optimize.Option, error) {
	near := arch.Range{Start: c.Options[0].Pattern.From, End: c.Options[0].Pattern.From}
	if err := s.count(near.Start); err != nil {
		return nil, err
	}
	size := 0
	patterns := make([]arch.Pattern, len(c.Options))
	for i, o := range c.Options {
		n, err := host.Detours.DetourLen(o.Insns, s.body(arch.Dead{}))
		if err != nil {
			return nil, err
		}
		size, patterns[i] = max(size, n), o.Pattern
		near = reaching(near, o.Insns)
	}
	landing, err := s.place(near, patterns, size)
	if err != nil {
		return nil, err
	}
	o := &c.Options[landing.Option]
	d, err := host.Detours.AssembleDetour(landing.Detour, o.Insns, s.body(host.Detours.Dead(o.Insns)))
	switch {
	case err != nil:
		return nil, err
	case len(d.Code) > size:
		return nil, fmt.Errorf("a detour of %d bytes instead of %d", len(d.Code), size)
	case !o.Pattern.Allows(landing.Entry):
		return nil, fmt.Errorf("the jump may not lead to %s", landing.Entry)
	}
	s.touch(landing.Entry, host.Detours.JumpLen())
	s.touch(landing.Detour, len(d.Code))
	return o, nil
}

func (s *space) body(dead arch.Dead) arch.Body {
	return host.Detours.CountBody(s.cells.Start, shards, dead, true)
}

// count makes the counter.
func (s *space) count(near arch.Addr) error {
	if s.cells.End != 0 {
		return nil
	}
	at, cell, err := s.region.Cells(near, shards*64)
	s.cells = arch.Range{Start: at, End: at + arch.Addr(len(cell))}
	return noLanding(err)
}

// reaching extends near by the addresses that insns name.
func reaching(near arch.Range, insns []arch.Insn) arch.Range {
	for _, i := range insns {
		for _, a := range []arch.Addr{i.Addr, i.End(), i.Target, i.MemTarget} {
			if a != 0 {
				near.Start, near.End = min(near.Start, a), max(near.End, a+1)
			}
		}
	}
	return near
}

func (s *space) touch(at arch.Addr, n int) {
	for p := at &^ (trampoline.PageSize - 1); p < at+arch.Addr(n); p += trampoline.PageSize {
		s.pages[p] = true
	}
}

// place finds room.
func (s *space) place(near arch.Range, options []arch.Pattern, size int) (trampoline.Landing, error) {
	landing, err := s.region.Land(near, options, size, s.cells)
	return landing, noLanding(err)
}

// noLanding is errNoLanding if err says that there is no room.
func noLanding(err error) error {
	for _, no := range []error{trampoline.ErrNoLanding, trampoline.ErrNoGap, trampoline.ErrTooManyArenas} {
		if errors.Is(err, no) {
			return errNoLanding
		}
	}
	return err
}

// mapper maps the arenas of a space: memory of this process stands for the target's.
type mapper struct{ *space }

func (m mapper) Mappings() ([]trampoline.Mapping, arch.Range, error) { return m.used, userLimits, nil }

func (m mapper) Map(e trampoline.Extent) (data, code trampoline.Store, err error) {
	m.use(e.Range(), trampoline.GrowsNot)
	return trampoline.Bytes(make([]byte, e.Data.Len())), trampoline.Bytes(make([]byte, e.Code.Len())), nil
}

func (m mapper) Unmap(e trampoline.Extent) error {
	return fmt.Errorf("the arena at %s can't be used", e.Data.Start)
}

func (m mapper) Cave(arch.Range) (arch.Addr, arch.Memory, error) {
	return 0, nil, trampoline.ErrCaveSize
}
