package trampoline

import (
	"errors"
	"fmt"
	"maps"
	"math/bits"

	"github.com/gokprobe/gokprobe/arch"
)

// A resume table, offsets in bytes; see doc.go for how it is read.
const (
	offShift   = 0  // uint64, 64 - log2 of the number of entries
	offMask    = 8  // uint64, the number of entries - 1
	offEntries = 64 // of {at, to uint64}
	entrySize  = 16

	maxResumeBits   = 24 // a finder's limit, log2 of the number of entries
	firstEntries    = 2048
	firstResumeSize = 9 * PageSize // offEntries + firstEntries*entrySize, in whole pages
)

// ResumeHash is the multiplier of a resume table's hash function: the entry of address a is
// looked for from number (a * ResumeHash mod 2^64) >> shift on.
const ResumeHash = 0x9e3779b97f4a7c15

// resumes is the current resume table.
type resumes struct {
	store Store
	off   uint64      // of the table in store
	at    arch.Addr   // where it lies in the target
	keys  []arch.Addr // the entries' addresses, 0 if none was ever there
	to    map[arch.Addr]arch.Addr
	used  int // entries that have an address, cleared ones included
	// former are the smaller tables before it, which lie in cells
	former map[arch.Addr]bool
	// inSlots: larger tables lie where slots do, since no memory for cells can be shared with the target
	inSlots bool
}

// begin makes the table behind the header, which lies in the zeroed data of e, the first one.
func (t *resumes) begin(data Store, e Extent) error {
	t.store, t.off, t.at = data, headerSize, e.Data.Start+headerSize
	t.to = map[arch.Addr]arch.Addr{}
	if err := t.lay(firstEntries); err != nil {
		return err
	}
	return data.Write(offResume, le.AppendUint64(nil, uint64(e.Data.Start+headerSize)))
}

// lay makes t's memory an empty table of n entries.
func (t *resumes) lay(n int) error {
	t.keys, t.used = make([]arch.Addr, n), 0
	b := le.AppendUint64(nil, uint64(64-bits.TrailingZeros(uint(n))))
	return t.store.Write(t.off, le.AppendUint64(b, uint64(n-1)))
}

// entry returns the number of the entry for at: the one that has it, or a free one.
func (t *resumes) entry(at arch.Addr) uint64 {
	n := uint64(len(t.keys))
	i := uint64(at) * ResumeHash >> (64 - bits.TrailingZeros64(n))
	for t.keys[i] != 0 && t.keys[i] != at {
		i = (i + 1) & (n - 1)
	}
	return i
}

// set writes to before at, so that a reader sees both or neither.
func (t *resumes) set(at, to arch.Addr) error {
	i := t.entry(at)
	off := t.off + offEntries + entrySize*i
	if err := t.store.Write(off+8, le.AppendUint64(nil, uint64(to))); err != nil {
		return fmt.Errorf("resume table: %w", err)
	}
	if t.keys[i] == 0 {
		if err := t.store.Write(off, le.AppendUint64(nil, uint64(at))); err != nil {
			return fmt.Errorf("resume table: %w", err)
		}
		t.keys[i] = at
		t.used++
	}
	if to == 0 {
		delete(t.to, at)
	} else {
		t.to[at] = to
	}
	return nil
}

// SetResume tells the in-target guard that a thread which raised an exception at at
// goes on at to. Both are not 0. It replaces an earlier entry for at. The errors are as
// for Cells.
func (r *Region) SetResume(at, to arch.Addr) error {
	return r.growingResume(func() error { return r.setResume(at, to) })
}

// growingResume is growing. A target that can't have a memfd has no cells: then a table lies among the slots. The guard and a finder only read it, and know it by
// its address.
func (r *Region) growingResume(set func() error) error {
	err := r.growing(set)
	if errors.Is(err, ErrNotShared) && !r.resume.inSlots {
		r.resume.inSlots = true
		err = r.growing(set)
	}
	return err
}

func (r *Region) setResume(at, to arch.Addr) error {
	t := &r.resume
	switch {
	case at == 0 || to == 0:
		return fmt.Errorf("resuming %s at %s: %w", at, to, ErrNotAllocated)
	case t.store == nil && t.inSlots:
		return r.need(stretch(at, 1), 1)
	case t.store == nil:
		return needCells(stretch(at, 1), offEntries, anywhere)
	}
	if t.keys[t.entry(at)] == 0 && 2*t.used >= len(t.keys) {
		if err := r.growResume(at, 1); err != nil {
			return err
		}
	}
	return t.set(at, to)
}

// ClearResume forgets at. It is no error if nothing is set for it.
func (r *Region) ClearResume(at arch.Addr) error {
	if _, ok := r.resume.to[at]; !ok {
		return nil
	}
	return r.resume.set(at, 0)
}

// ReserveResume makes room for n more entries, so that setting them takes little time. It does nothing as long as there is no table. The errors are as for Cells.
func (r *Region) ReserveResume(near arch.Addr, n int) error {
	return r.growingResume(func() error {
		if t := &r.resume; t.store == nil || 2*(t.used+n) <= len(t.keys) {
			return nil
		}
		return r.growResume(near, n)
	})
}

// growResume publishes a larger table, for more entries. The one before stays: a thread may be reading it.
func (r *Region) growResume(near arch.Addr, more int) error {
	old := &r.resume
	n := len(old.keys)
	for n < 4*(len(old.to)+more) {
		n *= 2
	}
	at, cell, slots, err := r.resumeMemory(near, offEntries+n*entrySize)
	if err != nil {
		return err
	}
	t := resumes{store: Bytes(cell), at: at, to: old.to, former: map[arch.Addr]bool{old.at: true}, inSlots: old.inSlots}
	maps.Copy(t.former, old.former)
	if err := t.lay(n); err != nil {
		return err
	}
	for _, at := range old.keys { // in their order, so the same table grows to the same table
		if to, ok := old.to[at]; ok {
			t.put(cell, at, to)
		}
	}
	if slots != nil {
		t.store, t.off = slots.store, slots.codeOff+uint64(at-slots.code.Start)
		if err := t.store.Write(t.off, cell); err != nil {
			return fmt.Errorf("a larger resume table: %w", err)
		}
	}
	if err := r.table.Write(offResume, le.AppendUint64(nil, uint64(at))); err != nil {
		return fmt.Errorf("publishing a resume table: %w", err)
	}
	r.resume = t
	return nil
}

// put is set in a table that nobody reads yet, and that table has no entry for at.
func (t *resumes) put(table []byte, at, to arch.Addr) {
	i := t.entry(at)
	e := table[offEntries+entrySize*i:]
	le.PutUint64(e, uint64(at))
	le.PutUint64(e[8:], uint64(to))
	t.keys[i] = at
	t.used++
}

// resumeMemory returns data anywhere: no code reaches it by a displacement. Where it lies among the slots of an arena, cell is what to write there.
func (r *Region) resumeMemory(near arch.Addr, n int) (at arch.Addr, cell []byte, slots *Arena, err error) {
	if r.resume.inSlots {
		return r.resumeSlots(near, n)
	}
	for _, a := range r.arenas {
		if a.ground == nil {
			continue
		}
		if at, cell, ok := a.ground.cells.alloc((n + cellSize - 1) &^ (cellSize - 1)); ok {
			return at, cell, nil, nil
		}
	}
	return 0, nil, nil, needCells(stretch(near, 1), n, anywhere)
}

// resumeSlots takes as many slots as n bytes need, for good. Padding of the target's own code is too small for that.
func (r *Region) resumeSlots(near arch.Addr, n int) (at arch.Addr, cell []byte, slots *Arena, err error) {
	for _, a := range r.arenas {
		if !a.slots() {
			continue
		}
		at, ok, err := a.allocRun((n + int(a.slotSize) - 1) / int(a.slotSize))
		if err != nil {
			return 0, nil, nil, err
		}
		if ok {
			return at, make([]byte, n), a, nil
		}
	}
	return 0, nil, nil, r.need(stretch(near, 1), n/int(r.slotSize())+1+int(r.stubSlots()))
}

// ResumePointer is the target address of eight bytes that hold the address of the resume
// table in force, never 0; ok is false as long as nothing but caves was adopted.
func (r *Region) ResumePointer() (at arch.Addr, ok bool) {
	base, ok := r.base()
	return base + offResume, ok
}

// GuardData is the target addresses of GuardLen bytes in the header that are the guard's
// own, zero at first; ok is false as long as nothing but caves was adopted. The tracer
// changes them with PutGuardData; who finds the region gets them by Header.GuardData.
func (r *Region) GuardData() (at arch.Range, ok bool) {
	base, ok := r.base()
	return stretch(base+offGuard, GuardLen), ok
}

// PutGuardData stores p at offset off, in bytes, of the guard's data.
func (r *Region) PutGuardData(off int, p []byte) error {
	if r.table == nil || off < 0 || off > GuardLen || len(p) > GuardLen-off {
		return fmt.Errorf("%d bytes at %d of the guard's data: %w", len(p), off, ErrBounds)
	}
	return r.table.Write(uint64(offGuard+off), p)
}

// base is where the header lies.
func (r *Region) base() (arch.Addr, bool) {
	for _, a := range r.arenas {
		if !a.Cave() && a.ext.Offset == 0 {
			return a.ext.Data.Start, true
		}
	}
	return 0, false
}

// How a finder looks an address up.
const (
	// mostProbes is how many entries are looked at. A table is at most half full, and ours have no forty in a row
	// (TestResumeTablesHaveNoLongRuns), but the target can fill it.
	mostProbes = 512
	probesRead = 16 // at once
)

// ResumeAt reads from the target where a thread goes on that raised an exception at at. ok
// is false if nothing is set for it. The error matches ErrTooMuch for a table that no tracer has made.
func (h *Header) ResumeAt(mem arch.Memory, at arch.Addr) (to arch.Addr, ok bool, err error) {
	if h.Resume == 0 || at == 0 {
		return 0, false, nil
	}
	b := make([]byte, offEntries)
	if err := mem.ReadMemory(h.Resume, b); err != nil {
		return 0, false, fmt.Errorf("reading the resume table: %w", err)
	}
	shift, mask := le.Uint64(b[offShift:]), le.Uint64(b[offMask:])
	if shift < 64-maxResumeBits || shift > 63 || mask != ^uint64(0)>>shift {
		return 0, false, fmt.Errorf("resume table at %s: %w", h.Resume, ErrHeader)
	}
	b = make([]byte, probesRead*entrySize)
	i := uint64(at) * ResumeHash >> shift
	for left := min(mask+1, mostProbes); left > 0; {
		n := min(left, probesRead, mask+1-i)
		if err := mem.ReadMemory(h.Resume+offEntries+arch.Addr(entrySize*i), b[:n*entrySize]); err != nil {
			return 0, false, fmt.Errorf("reading the resume table: %w", err)
		}
		for e := b[:n*entrySize]; len(e) > 0; e = e[entrySize:] {
			switch arch.Addr(le.Uint64(e)) {
			case 0:
				return 0, false, nil
			case at:
				to = arch.Addr(le.Uint64(e[8:]))
				return to, to != 0, nil
			}
		}
		left -= n
		i = (i + n) & mask
	}
	return 0, false, fmt.Errorf("resume table at %s: %d entries in a row: %w", h.Resume, min(mask+1, mostProbes), ErrTooMuch)
}

// GuardData reads the guard's own bytes from the target.
func (h *Header) GuardData(mem arch.Memory) ([]byte, error) {
	b := make([]byte, GuardLen)
	for _, e := range h.Arenas {
		if e.Offset != 0 {
			continue
		}
		if err := mem.ReadMemory(e.Data.Start+offGuard, b); err != nil {
			return nil, fmt.Errorf("reading the guard's data: %w", err)
		}
		return b, nil
	}
	return nil, fmt.Errorf("no first arena: %w", ErrHeader)
}
