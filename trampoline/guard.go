package trampoline

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/gokprobe/gokprobe/arch"
)

// ErrNoGuard means that the region has no place for a guard, or its architecture no guard.
var ErrNoGuard = errors.New("no guard")

// Where the guard is told to lie, offsets in bytes in the guard's data. Before it is
// arch.GuardDataLen bytes of the guard's own.
const (
	offGuardState = GuardLen / 2
	guardStateLen = 48

	offGuardStart     = 0  // uint64, 0 if there is none
	offGuardEnd       = 8  // uint64
	offGuardRestorer  = 16 // uint64
	offGuardInstalled = 24 // uint64, bit n: for signal n
	offGuardUnmasked  = 32 // [2]uint64, bit n-1: signal n
)

// GuardState is the guard that a region has.
type GuardState struct {
	Code      arch.Range // which a thread is in, or not
	Handler   arch.Addr  // the action of the signals in Installed
	Restorer  arch.Addr
	Installed uint64    // bit n: the action of signal n was replaced; the target's own is saved
	Unmasked  [2]uint64 // bit n-1: the handler of signal n no longer blocks SIGTRAP, SIGILL
	Place     arch.GuardPlace
}

// guardPlace returns the addresses in the first arena, at base, that a guard uses.
func guardPlace(base arch.Addr) arch.GuardPlace {
	return arch.GuardPlace{
		Resume: base + offResume, ResumeHash: ResumeHash, ResumeEntries: offEntries,
		Count: base + offCount, First: base + offArenas, Step: arenaSize, Start: offCodeStart, End: offCodeEnd,
		Data: base + offGuard,
	}
}

// AddGuard writes the architecture's guard into slots that follow each other, where it stays.
// The error matches ErrNoGuard if there are none.
func (r *Region) AddGuard() (GuardState, error) {
	host, ok := r.arch.(arch.Guards)
	base, mapped := r.base()
	if !ok || !mapped {
		return GuardState{}, ErrNoGuard
	}
	place := guardPlace(base)
	n := len(host.AssembleGuard(base, place).Code)
	for _, a := range r.arenas {
		if !a.slots() {
			continue
		}
		at, ok, err := a.allocRun((n + int(a.slotSize) - 1) / int(a.slotSize))
		if err != nil {
			return GuardState{}, err
		}
		if ok {
			place.Trap = a.stub + arch.Addr(len(r.arch.SyscallInsn()))
			return r.putGuard(a, host.AssembleGuard(at, place), place)
		}
	}
	return GuardState{}, ErrNoGuard
}

// TakeOver makes r, which has no arena yet, the region of a forked child: with arenas where its parent's lie, and the parent's guard, whose state guard is, at
// its place, with its data. What the parent has noted there of its threads, its sites and its detours is not copied. stores reach the child's own memory, zero, which
// may have been mapped already or not. The error matches ErrNoGuard if the parent's region can't be copied so.
func (r *Region) TakeOver(parent *Region, guard GuardState, stores func(Extent) (data, code Store)) error {
	for _, e := range parent.Mapped() {
		data, code := stores(e)
		if err := r.adopt(e, data, code); err != nil {
			return err
		}
	}
	r.homes = maps.Clone(parent.homes)
	from, ok := parent.arena(guard.Code.Start)
	to, same := r.arena(guard.Code.Start)
	if !ok || !same || !from.slots() || !to.slots() {
		return ErrNoGuard
	}
	code, data := make([]byte, guard.Code.Len()), make([]byte, offHeldMasks)
	at := from.codeOff + uint64(guard.Code.Start-from.code.Start)
	if err := errors.Join(from.store.Read(at, code), parent.table.Read(offGuard, data)); err != nil {
		return err
	}
	if err := to.occupy(guard.Code); err != nil {
		return err
	}
	return errors.Join(to.store.Write(at, code), r.PutGuardData(0, data), r.NoteGuard(guard))
}

// Mapped is the arenas that the mapper has mapped, in the order of their offsets, which is that in which they came.
func (r *Region) Mapped() (list []Extent) {
	for _, a := range r.arenas {
		if !a.Cave() {
			list = append(list, a.ext)
		}
	}
	slices.SortFunc(list, func(a, b Extent) int { return cmp.Compare(a.Offset, b.Offset) })
	return list
}

// occupy allocates the slots of code, which were never used. Those before them are free.
func (a *Arena) occupy(code arch.Range) error {
	first := int(uint64(code.Start-a.code.Start) / a.slotSize)
	end := first + int((code.Len()+a.slotSize-1)/a.slotSize)
	if a.addr(first) != code.Start || first < a.next || end > len(a.state) {
		return fmt.Errorf("slots %d to %d of the arena at %s: %w", first, end, a.span.Start, ErrNotAllocated)
	}
	if err := a.fillUpTo(end - 1); err != nil {
		return err
	}
	for i := first - 1; i >= a.next; i-- {
		a.free = append(a.free, i)
	}
	for i := first; i < end; i++ {
		a.state[i] = slotLive
	}
	a.next = end
	return nil
}

func (r *Region) putGuard(a *Arena, g arch.Guard, place arch.GuardPlace) (GuardState, error) {
	s := GuardState{Code: stretch(g.Handler, uint64(len(g.Code))), Handler: g.Handler, Restorer: g.Restorer, Place: place}
	if err := a.store.Write(a.codeOff+uint64(g.Handler-a.code.Start), g.Code); err != nil {
		return s, fmt.Errorf("writing the guard: %w", err)
	}
	if err := r.PutGuardData(int(place.DefaultAction()-place.Data)+24, bytes.Repeat([]byte{0xff}, 8)); err != nil {
		return s, err
	}
	return s, r.NoteGuard(s)
}

// NoteGuard writes the state of the guard into the region, for a later recovery.
func (r *Region) NoteGuard(s GuardState) error {
	b := le.AppendUint64(nil, uint64(s.Code.Start))
	b = le.AppendUint64(b, uint64(s.Code.End))
	b = le.AppendUint64(b, uint64(s.Restorer))
	b = le.AppendUint64(b, s.Installed)
	for _, u := range s.Unmasked {
		b = le.AppendUint64(b, u)
	}
	return r.PutGuardData(offGuardState, b)
}

// Guard reads which guard the region has. ok is false if it has none.
func (h *Header) Guard(mem arch.Memory) (s GuardState, ok bool, err error) {
	if len(h.Arenas) == 0 {
		return s, false, nil
	}
	place := guardPlace(h.Arenas[0].Data.Start)
	b := make([]byte, guardStateLen)
	if err := mem.ReadMemory(place.Data+offGuardState, b); err != nil {
		return s, false, fmt.Errorf("reading the guard's state: %w", err)
	}
	s = GuardState{
		Code:      arch.Range{Start: arch.Addr(le.Uint64(b[offGuardStart:])), End: arch.Addr(le.Uint64(b[offGuardEnd:]))},
		Handler:   arch.Addr(le.Uint64(b[offGuardStart:])),
		Restorer:  arch.Addr(le.Uint64(b[offGuardRestorer:])),
		Installed: le.Uint64(b[offGuardInstalled:]),
		Unmasked:  [2]uint64{le.Uint64(b[offGuardUnmasked:]), le.Uint64(b[offGuardUnmasked+8:])},
		Place:     place,
	}
	return s, s.Handler != 0, nil
}

// allocRun returns n slots that follow each other, filled with breakpoints.
func (a *Arena) allocRun(n int) (at arch.Addr, ok bool, err error) {
	if a.next+n > len(a.state) {
		return 0, false, nil
	}
	if err := a.fillUpTo(a.next + n - 1); err != nil {
		return 0, false, err
	}
	at = a.addr(a.next)
	for range n {
		a.state[a.next] = slotLive
		a.next++
	}
	return at, true, nil
}
