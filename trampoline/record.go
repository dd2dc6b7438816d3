package trampoline

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"

	"github.com/gokprobe/gokprobe/arch"
)

// A detour's record, offsets in bytes. As in the journal, the state word is the
// checksum of the rest and written last. Offsets of places in the detour count from its
// start, of places in the original code from the site.
const (
	detourRecordSize = 128

	offPieces    = 4  // uint16, number of pieces
	offSwitch    = 6  // uint16
	offSite      = 8  // uint64
	offEnd       = 16 // uint64, address behind the last displaced instruction
	offEntry     = 24 // uint64
	offDetour    = 32 // uint64
	offSize      = 40 // uint32
	offBack      = 44 // uint32
	offOn        = 48 // byte
	offOff       = 49 // byte
	offPieceList = 56 // of {copy uint32, copy's length uint16, original byte, its length byte}
	onePiece     = 8
	maxPieces    = (offReserved - offPieceList) / onePiece
	offReserved  = 120 // byte, 1 if the record is or was in use
)

// maxDetour is the size in bytes of the longest detour that can be recorded.
const maxDetour = 1 << 16

// DetourRecord is what a finder learns of a detour.
type DetourRecord struct {
	Displaced arch.Range // from the site on
	Landing   Landing    // Option is not known
	// Detour has no description of its body. Its pieces' instructions have only an
	// address, and Bytes of the right length that are all zero. Its Code is all zero,
	// too, and must not be changed.
	Detour arch.Detour
}

// noCode is the Code of all detours that a finder learns of.
var noCode [maxDetour]byte

// recordID is a place for a record.
type recordID struct {
	arena *Arena
	i     int
}

func (id recordID) erase() error { return id.arena.ground.records.erase(id.i) }

// recordTable is the records of one arena.
type recordTable struct {
	store Store
	off   uint64
	n     int
	used  int // records that were ever reserved
	free  []int
}

// room returns the next record that can be reserved.
func (t *recordTable) room() (int, bool) {
	if n := len(t.free); n > 0 {
		return t.free[n-1], true
	}
	return t.used, t.used < t.n
}

// reserve takes what room returned. A finder stops at the first record that never was.
func (t *recordTable) reserve(i int) error {
	if i < t.used {
		t.free = t.free[:len(t.free)-1]
		return nil
	}
	if err := t.store.Write(t.at(i)+offReserved, []byte{1}); err != nil {
		return fmt.Errorf("reserving a detour's record: %w", err)
	}
	t.used++
	return nil
}

func (t *recordTable) erase(i int) error {
	if err := t.store.Write(t.at(i), make([]byte, offPieces)); err != nil {
		return fmt.Errorf("erasing a detour's record: %w", err)
	}
	t.free = append(t.free, i)
	return nil
}

func (t *recordTable) at(i int) uint64 { return t.off + uint64(i)*detourRecordSize }

// write stores a record so that a reader sees it whole or not at all.
func (t *recordTable) write(i int, b []byte) error {
	err := t.store.Write(t.at(i)+offPieces, b[offPieces:])
	if err == nil {
		err = t.store.Write(t.at(i), b[:offPieces])
	}
	if err != nil {
		return fmt.Errorf("recording a detour: %w", err)
	}
	return nil
}

// freeRecord finds a place for one more record.
func (r *Region) freeRecord() (recordID, bool) {
	for _, a := range r.arenas {
		if a.ground == nil {
			continue
		}
		if i, ok := a.ground.records.room(); ok {
			return recordID{a, i}, true
		}
	}
	return recordID{}, false
}

// Describe records the detour at l, for a recovery after the tracer's death. Call it
// before a jump leads there. FreeLanding and CollectDetours erase the record. Errors
// match ErrNotAllocated, ErrRecord.
func (r *Region) Describe(l Landing, d *arch.Detour) error {
	in, ok := r.landings[l.Entry]
	if !ok || in.Detour != d.Addr {
		return fmt.Errorf("detour at %s: %w", d.Addr, ErrNotAllocated)
	}
	b, err := encodeDetour(l, d)
	if err != nil {
		return err
	}
	return in.record.arena.ground.records.write(in.record.i, b)
}

func encodeDetour(l Landing, d *arch.Detour) ([]byte, error) {
	if len(d.Pieces) == 0 || len(d.Pieces) > maxPieces || len(d.Code) > maxDetour {
		return nil, fmt.Errorf("a detour of %d instructions, %d bytes: %w", len(d.Pieces), len(d.Code), ErrRecord)
	}
	b := make([]byte, detourRecordSize)
	site := d.Pieces[0].Insn.Addr
	le.PutUint16(b[offPieces:], uint16(len(d.Pieces)))
	le.PutUint16(b[offSwitch:], uint16(d.Switch-d.Addr))
	le.PutUint64(b[offSite:], uint64(site))
	le.PutUint64(b[offEnd:], uint64(d.End))
	le.PutUint64(b[offEntry:], uint64(l.Entry))
	le.PutUint64(b[offDetour:], uint64(d.Addr))
	le.PutUint32(b[offSize:], uint32(len(d.Code)))
	le.PutUint32(b[offBack:], uint32(d.Back-d.Addr))
	b[offOn], b[offOff], b[offReserved] = d.On, d.Off, 1
	for i, p := range d.Pieces {
		e := b[offPieceList+i*onePiece:]
		le.PutUint32(e, uint32(p.At-d.Addr))
		le.PutUint16(e[4:], uint16(p.Len))
		e[6], e[7] = byte(p.Insn.Addr-site), byte(p.Insn.Len())
	}
	le.PutUint32(b, detourChecksum(b))
	return b, nil
}

func detourChecksum(b []byte) uint32 {
	return max(crc32.Checksum(b[offPieces:detourRecordSize], castagnoli), 1)
}

// parseDetour decodes a record. blank tells that nothing was ever written there.
func parseDetour(b []byte) (r DetourRecord, ok, blank bool) {
	n := int(le.Uint16(b[offPieces:]))
	if le.Uint32(b) != detourChecksum(b) || n == 0 || n > maxPieces {
		return r, false, bytes.Count(b, []byte{0}) == len(b)
	}
	addr := func(off int) arch.Addr { return arch.Addr(le.Uint64(b[off:])) }
	d := &r.Detour
	d.Addr, d.End = addr(offDetour), addr(offEnd)
	d.Switch, d.On, d.Off = d.Addr+arch.Addr(le.Uint16(b[offSwitch:])), b[offOn], b[offOff]
	d.Back = d.Addr + arch.Addr(le.Uint32(b[offBack:]))
	r.Landing = Landing{Entry: addr(offEntry), Detour: d.Addr, Size: int(le.Uint32(b[offSize:]))}
	r.Displaced = arch.Range{Start: addr(offSite), End: d.End}
	for i := range n {
		e := b[offPieceList+i*onePiece:]
		d.Pieces = append(d.Pieces, arch.Piece{
			Insn: arch.Insn{Addr: r.Displaced.Start + arch.Addr(e[6]), Bytes: make([]byte, e[7])},
			At:   d.Addr + arch.Addr(le.Uint32(e)), Len: int(le.Uint16(e[4:])),
		})
	}
	return r, r.plausible(), false
}

// plausible reports whether everything is where it can be.
func (r DetourRecord) plausible() bool {
	code := stretch(r.Landing.Detour, uint64(r.Landing.Size))
	ok := r.Landing.Size <= maxDetour && code.End >= code.Start && code.Contains(r.Detour.Back) &&
		r.Displaced.Start < r.Displaced.End && r.Displaced.Len() <= maxPieces*0xff
	for _, p := range r.Detour.Pieces {
		ok = ok && code.Contains(p.At) && uint64(p.Len) <= uint64(code.End-p.At) && r.Displaced.Contains(p.Insn.Addr)
	}
	return ok
}

// DetourIndex finds the detour that an address lies in. It keeps the places of the
// records, not their content, so there may be many.
type DetourIndex struct{ places []detourPlace } // in order of their code

type detourPlace struct {
	code   arch.Range
	record arch.Addr
}

// Len is how many detours there are.
func (x *DetourIndex) Len() int { return len(x.places) }

// Find reads the record of the detour that ip lies in. ok is false if it lies in none, or if the record has gone. Where detours lie in one
// another, as no tracer's do, it may be any of them.
func (x *DetourIndex) Find(mem arch.Memory, ip arch.Addr) (r DetourRecord, ok bool, err error) {
	i, found := slices.BinarySearchFunc(x.places, ip, func(p detourPlace, ip arch.Addr) int { return cmp.Compare(p.code.Start, ip) })
	if !found {
		i--
	}
	if i < 0 || !x.places[i].code.Contains(ip) {
		return r, false, nil
	}
	p := x.places[i]
	b := make([]byte, detourRecordSize)
	if err := mem.ReadMemory(p.record, b); err != nil {
		return r, false, fmt.Errorf("reading the record of the detour at %s: %w", p.code.Start, err)
	}
	if r, ok, _ = parseDetour(b); !ok || stretch(r.Landing.Detour, uint64(r.Landing.Size)) != p.code {
		return r, false, nil
	}
	r.Detour.Code = noCode[:r.Landing.Size]
	return r, true, nil
}

// Detours finds the records of all detours in the target. An unreadable arena does not
// hide the others; the errors are joined. They match ErrTooMuch if more is there than the allowance.
func (h *Header) Detours(mem arch.Memory, a *Allowance) (*DetourIndex, error) {
	var errs []error
	x := &DetourIndex{}
	for _, e := range h.Arenas {
		if err := x.read(Remote(mem, e.Data), e, a); err != nil {
			errs = append(errs, fmt.Errorf("reading the detours' records at %s: %w", e.Data.Start+arch.Addr(e.Records), err))
		}
		if a.detours < 0 {
			break
		}
	}
	slices.SortStableFunc(x.places, func(a, b detourPlace) int { return cmp.Compare(a.code.Start, b.code.Start) })
	return x, errors.Join(errs...)
}

// read stops where nothing was ever written, for the reason that readJournal has.
func (x *DetourIndex) read(s Store, e Extent, a *Allowance) error {
	page := make([]byte, PageSize)
	end := e.Records + e.RecordsLen/detourRecordSize*detourRecordSize
	for off := e.Records; off < end; {
		b := page[:min(end-off, PageSize)]
		if !take(&a.detours, PageSize/detourRecordSize) {
			return fmt.Errorf("more detours than are read: %w", ErrTooMuch)
		}
		if err := s.Read(off, b); err != nil {
			return err
		}
		at := e.Data.Start + arch.Addr(off)
		off += uint64(len(b))
		for ; len(b) >= detourRecordSize; b, at = b[detourRecordSize:], at+detourRecordSize {
			r, ok, blank := parseDetour(b)
			if blank {
				return nil
			}
			if ok {
				x.places = append(x.places, detourPlace{stretch(r.Landing.Detour, uint64(r.Landing.Size)), at})
			}
		}
	}
	return nil
}
