package trampoline

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/gokprobe/gokprobe/arch"
)

// minSlots and maxSlots bound an arena that one Alloc asks for. Each arena for
// the same code is twice as large as the one before.
const (
	minSlots = 512
	maxSlots = 1 << 15
)

// recordsPerSlot sizes the journal: an optimized site has two records while it
// changes, and an emulated one has a record but no slot.
const recordsPerSlot = 2

// Region is all code added to one address space. The zero value is not usable.
// Use it from one goroutine.
type Region struct {
	arch    arch.Code
	owner   Owner
	mapper  Mapper
	arenas  []*Arena // in order of address, caves too
	table   Store    // the data part of the first arena, which has the header
	listed  int      // arenas in the header
	fileEnd uint64
	journal Journal
	resume  resumes
	given   func(...arch.Range) // is told of memory that is given back, in tests
	grounds
}

// New returns a region without arenas, which grows by m when it is used. It touches no memory.
func New(a arch.Code, owner Owner, m Mapper) *Region {
	r := &Region{arch: a, owner: owner, mapper: m, grounds: newGrounds(a)}
	r.journal = Journal{region: r, more: map[int][]int{}}
	return r
}

// Journal returns the region's journal.
func (r *Region) Journal() *Journal { return &r.journal }

// Arenas returns all arenas and caves in order of address.
func (r *Region) Arenas() []*Arena { return slices.Clone(r.arenas) }

// Alloc returns a slot within reach of every byte of near: the code of a module,
// with the data that its instructions address. The slot holds breakpoints until
// Put. Errors match ErrNoGap, ErrTooManyArenas, ErrCantMap, or are the Mapper's.
func (r *Region) Alloc(near arch.Range) (at arch.Addr, err error) {
	err = r.growing(func() error {
		at, err = r.alloc(near)
		return err
	})
	return at, err
}

func (r *Region) alloc(near arch.Range) (arch.Addr, error) {
	for _, a := range r.arenas {
		if a.room() > 0 && inReach(a.span, near, r.arch.Reach()) {
			return a.alloc()
		}
	}
	return 0, r.need(near, 1)
}

// Room is how many slots Alloc can give for near without a new arena.
func (r *Region) Room(near arch.Range) (n int) {
	for _, a := range r.arenas {
		if inReach(a.span, near, r.arch.Reach()) {
			n += a.room()
		}
	}
	return n
}

// Reserve maps one arena, if need be, so that the next n calls of Alloc for near find
// room. It is a smaller one if the address space has no gap for it. The errors are as
// for Alloc.
func (r *Region) Reserve(near arch.Range, n int) error {
	if n -= r.Room(near); n <= 0 {
		return nil
	}
	return r.grow(r.need(near, n))
}

// need decides how large an arena for near should be.
func (r *Region) need(near arch.Range, n int) *needArena {
	size := minSlots
	for _, a := range r.arenas {
		if a.slots() && inReach(a.span, near, r.arch.Reach()) {
			size = min(2*size, maxSlots)
		}
	}
	return &needArena{near: near, reach: r.arch.Reach(), slots: max(n, size)}
}

// place decides where in the target and in the memfd the arena goes that need
// orders. If the address space has no gap of the wished size, a smaller arena
// is planned. The error is a *NoGapError or matches ErrTooManyArenas.
func (r *Region) place(need *needArena, used []Mapping, limits arch.Range) (Extent, error) {
	if r.listed >= MaxArenas {
		return Extent{}, ErrTooManyArenas
	}
	if need.kind == Detours {
		return r.placeDetours(need, used, limits)
	}
	slots := need.slots
	if slots <= 0 {
		slots = minSlots
	}
	used = slices.Concat(used, r.strayPages())
	var failed error
	for _, room := range []uint64{growthRoom, someRoom} {
		for n := slots; ; n /= 2 {
			e := r.layOut(n)
			at, err := findGap(used, need.near, e.Range().Len(), need.reach, limits, room)
			if err == nil {
				return e.move(at), nil
			}
			if failed = err; e.Code.Len() <= PageSize || room == growthRoom && n <= minSlots { // rather near a heap than in many small pieces
				break
			}
		}
	}
	return Extent{}, fmt.Errorf("placing an arena: %w", failed)
}

// layOut sizes an arena of at least n slots, at target address 0.
func (r *Region) layOut(n int) Extent {
	size := r.slotSize()
	code := roundUp((uint64(n) + r.stubSlots()) * size)
	e := Extent{Offset: r.fileEnd}
	if r.listed == 0 {
		e.Sites = prefixSize
	}
	e.SitesLen = 8 * (code / size)
	e.Journal = (e.Sites + e.SitesLen + recordSize - 1) / recordSize * recordSize
	data := roundUp(e.Journal + recordsPerSlot*recordSize*(code/size))
	e.JournalLen = (data - e.Journal) / recordSize * recordSize
	e.Data.End = arch.Addr(data)
	e.Code = arch.Range{Start: arch.Addr(data), End: arch.Addr(data + code)}
	return e
}

func (e Extent) move(to arch.Addr) Extent {
	e.Data = arch.Range{Start: e.Data.Start + to, End: e.Data.End + to}
	e.Code = arch.Range{Start: e.Code.Start + to, End: e.Code.End + to}
	return e
}

// adopt adds the arena that was mapped as place decided. data and code reach its
// two parts, which hold zero bytes. It writes the stub and lists the arena in
// the header. After an error the arena is not part of the region.
func (r *Region) adopt(e Extent, data, code Store) error {
	if e.Offset != r.fileEnd || !e.valid() {
		return fmt.Errorf("arena at %s was not planned for this region: %w", e.Data.Start, ErrHeader)
	}
	a, err := r.newMapped(e, data, code)
	if err != nil {
		return err
	}
	if err := r.keepStrays(a); err != nil {
		return err
	}
	if err := r.list(e, data); err != nil {
		return fmt.Errorf("listing the arena at %s: %w", e.Data.Start, err)
	}
	r.fileEnd = e.FileEnd()
	r.journal.adopt(data, e)
	r.insert(a)
	return nil
}

func (r *Region) newMapped(e Extent, data, code Store) (*Arena, error) {
	if e.Kind == Detours {
		return newDetourArena(r.arch, e, data, code)
	}
	a := newArena(r.arch, e.Code, code, 0, max(PageSize, r.slotSize()))
	a.span, a.ext, a.data, a.sites, a.stub = e.Range(), e, data, e.Sites, e.Code.Start
	return a, r.writeStub(a)
}

func (r *Region) list(e Extent, data Store) error {
	if r.listed == 0 {
		if err := r.resume.begin(data, e); err != nil {
			return err
		}
		if err := writeHeader(data, r.arch, r.owner, e); err != nil {
			return err
		}
		r.table = data
	} else if err := appendExtent(r.table, r.listed, e); err != nil {
		return err
	}
	r.listed++
	return nil
}

// writeStub puts the system call and a breakpoint into the first slots of a.
func (r *Region) writeStub(a *Arena) error {
	n := int(r.stubSlots())
	if err := a.fillUpTo(n - 1); err != nil {
		return err
	}
	a.next = n
	if err := a.store.Write(0, r.stubCode()); err != nil {
		return fmt.Errorf("writing the stub at %s: %w", a.stub, err)
	}
	return nil
}

func (r *Region) stubCode() []byte {
	return slices.Concat(r.arch.SyscallInsn(), r.arch.Breakpoint())
}

func (r *Region) stubSlots() uint64 {
	return (uint64(len(r.stubCode())) + r.slotSize() - 1) / r.slotSize()
}

func (r *Region) slotSize() uint64 { return uint64(r.arch.SlotSize()) }

// Stub returns the address of a system-call instruction with a breakpoint behind it,
// for remote calls. ok is false as long as there are only caves.
func (r *Region) Stub() (stub arch.Addr, ok bool) {
	for _, a := range r.arenas {
		if a.slots() {
			return a.stub, true
		}
	}
	return 0, false
}

// Put writes s into its slot, which Alloc returned. No thread may be inside.
// Errors match ErrNotAllocated, ErrSlotSize.
func (r *Region) Put(s *arch.Slot) error {
	a, i, err := r.slot(s.Addr)
	if err != nil {
		return err
	}
	return a.put(i, s.Code, s.Insn.Addr)
}

// Free fills the slot at addr with breakpoints, for Alloc to give out again. No
// thread may be inside nor come back to it; see Retire. The error matches
// ErrNotAllocated.
func (r *Region) Free(addr arch.Addr) error {
	a, i, err := r.slot(addr)
	if err != nil {
		return err
	}
	r.give(stretch(addr, r.slotSize()))
	return a.release(i)
}

// Retire says that no thread will enter the slot at addr any more, though one may
// be inside. It keeps its code until Collect (the kernel's dirty slots).
// The error matches ErrNotAllocated.
func (r *Region) Retire(addr arch.Addr) error {
	a, i, err := r.slot(addr)
	if err != nil {
		return err
	}
	a.retire(i)
	return nil
}

// Collect frees retired slots, as the kernel's collect_garbage_slots does. inside
// reports whether a thread is in a slot; such a slot stays. left is the number of those
// that stay. No thread may run meanwhile, unless the caller knows that it can't be
// inside.
func (r *Region) Collect(inside func(slot arch.Range) bool) (left int, err error) {
	var errs []error
	var freed []arch.Range
	for _, a := range r.arenas {
		a.retired(func(i int) {
			slot := arch.Range{Start: a.addr(i), End: a.addr(i + 1)}
			if inside(slot) {
				left++
				return
			}
			freed = append(freed, slot)
			if err := a.release(i); err != nil {
				left++
				errs = append(errs, err)
			}
		})
	}
	r.give(freed...)
	return left, errors.Join(errs...)
}

// Live is the number of slots in use or retired.
func (r *Region) Live() (n int) {
	for _, a := range r.arenas {
		n += a.live
	}
	return n
}

// Contains reports whether ip lies in an arena's code or a cave.
func (r *Region) Contains(ip arch.Addr) bool {
	_, ok := r.arena(ip)
	return ok
}

// SlotOf returns the address of the slot around ip. ok is false if ip lies in
// none that is in use or retired. It looks at no memory and takes constant time
// but for a binary search among the few arenas.
func (r *Region) SlotOf(ip arch.Addr) (slot arch.Addr, ok bool) {
	a, ok := r.arena(ip)
	if !ok {
		return 0, false
	}
	return a.SlotOf(ip)
}

// Wipe makes all caves zero again, as the target's pages were. No thread may be
// inside. Mapped arenas are left: the caller unmaps them. Slots in caves are
// free afterwards.
func (r *Region) Wipe() error {
	var errs []error
	for _, a := range r.arenas {
		if a.Cave() {
			errs = append(errs, a.wipe())
		}
	}
	return errors.Join(errs...)
}

func (r *Region) slot(addr arch.Addr) (*Arena, int, error) {
	a, ok := r.arena(addr)
	if !ok {
		return nil, 0, fmt.Errorf("address %s: %w", addr, ErrNotAllocated)
	}
	i, err := a.index(addr)
	return a, i, err
}

// arena returns the arena whose code contains ip.
func (r *Region) arena(ip arch.Addr) (*Arena, bool) {
	i, found := slices.BinarySearchFunc(r.arenas, ip, func(a *Arena, ip arch.Addr) int {
		return cmp.Compare(a.code.Start, ip)
	})
	if !found {
		i--
	}
	if i < 0 || !r.arenas[i].Contains(ip) {
		return nil, false
	}
	return r.arenas[i], true
}

func (r *Region) insert(a *Arena) {
	i, _ := slices.BinarySearchFunc(r.arenas, a.code.Start, func(a *Arena, at arch.Addr) int {
		return cmp.Compare(a.code.Start, at)
	})
	r.arenas = slices.Insert(r.arenas, i, a)
	clear(r.order)
}
