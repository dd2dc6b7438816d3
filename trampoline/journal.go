package trampoline

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"slices"

	"github.com/gokprobe/gokprobe/arch"
)

// A journal record, offsets in bytes. The state word is the checksum of the rest,
// never 0, and written last; 0 is no record. So a reader at any moment, and after
// any order of the stores, sees the complete record or none.
const (
	recordSize = 64
	pieceLen   = 20 // bytes of code in one record; a longer patch takes several

	offState       = 0 // uint32
	offLength      = 4 // uint16, at most pieceLen; uint16 of zero follows
	offSequence    = 8 // uint64, ascending from 1
	offAddress     = 16
	offOriginal    = 24
	offReplacement = offOriginal + pieceLen
)

// Record is one change of the target's code.
type Record struct {
	At          arch.Addr
	Original    []byte // what stood there
	Replacement []byte // the bytes that were, or were about to be, written
}

// anywhere is the reach of an arena that is needed for its journal only.
const anywhere = math.MaxUint64

// Journal keeps the original bytes of patched code in the arenas' data parts,
// where they survive the tracer. It implements patch.Journal. Get it from
// Region.Journal.
type Journal struct {
	region   *Region // which grows when the journal is full
	parts    []journalPart
	sequence uint64
	more     map[int][]int // by id, the further records of a long patch
	near     arch.Range    // of the first arena
}

// journalPart is the journal of one arena. Its records have the ids from first on.
type journalPart struct {
	store Store
	off   uint64
	first int
	n     int
	used  int   // records that were ever written; the rest is all zero
	free  []int // erased ones below used
	live  []bool
}

func (j *Journal) adopt(s Store, e Extent) {
	if e.Kind != Slots {
		return
	}
	first := 0
	if n := len(j.parts); n > 0 {
		first = j.parts[n-1].first + j.parts[n-1].n
	} else {
		j.near = e.Range()
	}
	j.parts = append(j.parts, journalPart{
		store: s, off: e.Journal, first: first, n: int(e.JournalLen / recordSize),
	})
}

// Record notes a change that is about to be made, of any length, and returns
// its id. The record is complete when it returns; after an error nothing is recorded. The
// errors are those of Region.Alloc.
func (j *Journal) Record(at arch.Addr, original, replacement []byte) (id int, err error) {
	err = j.region.growing(func() error {
		id, err = j.record(at, original, replacement)
		return err
	})
	return id, err
}

func (j *Journal) record(at arch.Addr, original, replacement []byte) (int, error) {
	if len(original) == 0 || len(original) != len(replacement) {
		return 0, fmt.Errorf("%d bytes in place of %d: %w", len(replacement), len(original), ErrRecord)
	}
	if j.room() < (len(original)+pieceLen-1)/pieceLen {
		return 0, j.need(at)
	}
	var ids []int
	for len(original) > 0 {
		n := min(pieceLen, len(original))
		id, err := j.write(Record{at, original[:n], replacement[:n]})
		if err != nil {
			for _, id := range ids {
				err = errors.Join(err, j.erase(id))
			}
			return 0, err
		}
		ids = append(ids, id)
		at, original, replacement = at+arch.Addr(n), original[n:], replacement[n:]
	}
	if len(ids) > 1 {
		j.more[ids[0]] = ids[1:]
	}
	return ids[0], nil
}

// Erase forgets the record id, after its bytes have been put back. After an error
// it can be repeated.
func (j *Journal) Erase(id int) error {
	// The id itself goes last: it is what a repetition starts from.
	for more := j.more[id]; len(more) > 0; more = j.more[id] {
		if err := j.erase(more[len(more)-1]); err != nil {
			return err
		}
		j.more[id] = more[:len(more)-1]
	}
	delete(j.more, id)
	return j.erase(id)
}

func (j *Journal) room() (n int) {
	for _, p := range j.parts {
		n += p.n - p.used + len(p.free)
	}
	return n
}

func (j *Journal) write(r Record) (int, error) {
	for i := range j.parts {
		p := &j.parts[i]
		reuse := len(p.free) > 0
		if !reuse && p.used == p.n {
			continue
		}
		k := p.used
		if reuse {
			k = p.free[len(p.free)-1]
		}
		j.sequence++
		b := encodeRecord(r, j.sequence)
		off := p.off + uint64(k)*recordSize
		if err := p.store.Write(off+offLength, b[offLength:]); err != nil {
			return 0, fmt.Errorf("journal: %w", err)
		}
		if err := p.store.Write(off+offState, b[:offLength]); err != nil {
			return 0, fmt.Errorf("journal: %w", err)
		}
		if reuse {
			p.free = p.free[:len(p.free)-1]
		} else {
			p.used++
			p.live = append(p.live, false)
		}
		p.live[k] = true
		return p.first + k, nil
	}
	return 0, j.need(r.At)
}

// need asks for an arena near the first one or, without one, near the change at at.
func (j *Journal) need(at arch.Addr) *needArena {
	near := j.near
	if near.Len() == 0 {
		near = stretch(at, 1)
	}
	return &needArena{near: near, reach: anywhere}
}

func (j *Journal) erase(id int) error {
	for i := range j.parts {
		p := &j.parts[i]
		k := id - p.first
		if k < 0 || k >= p.used || !p.live[k] {
			continue
		}
		if err := p.store.Write(p.off+uint64(k)*recordSize+offState, make([]byte, offLength)); err != nil {
			return fmt.Errorf("journal: %w", err)
		}
		p.live[k] = false
		p.free = append(p.free, k)
		return nil
	}
	return fmt.Errorf("journal: record %d: %w", id, ErrRecord)
}

func encodeRecord(r Record, sequence uint64) []byte {
	b := make([]byte, recordSize)
	le.PutUint16(b[offLength:], uint16(len(r.Original)))
	le.PutUint64(b[offSequence:], sequence)
	le.PutUint64(b[offAddress:], uint64(r.At))
	copy(b[offOriginal:offReplacement], r.Original)
	copy(b[offReplacement:], r.Replacement)
	le.PutUint32(b[offState:], checksum(b))
	return b
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func checksum(record []byte) uint32 {
	return max(crc32.Checksum(record[offLength:recordSize], castagnoli), 1)
}

type sequenced struct {
	Record
	sequence uint64
}

// parseRecord decodes one record, which keeps b. blank tells that nothing was ever written there.
func parseRecord(b []byte) (r sequenced, ok, blank bool) {
	if le.Uint32(b[offState:]) != checksum(b) {
		return r, false, bytes.Count(b[:recordSize], []byte{0}) == recordSize
	}
	n := int(le.Uint16(b[offLength:]))
	if n == 0 || n > pieceLen {
		return r, false, false
	}
	r.sequence = le.Uint64(b[offSequence:])
	r.At = arch.Addr(le.Uint64(b[offAddress:]))
	r.Original, r.Replacement = b[offOriginal:][:n:n], b[offReplacement:][:n:n]
	return r, true, false
}

// mostRecords is how many records of changed code, and how many of detours, are read of one process: a target can forge an arena as large as its
// address space, and name it many times. Real regions have some hundred thousand, where every instruction of large libraries is probed.
const mostRecords = 1 << 19

// Allowance is how much may still be read of what killed tracers have left in a process, in all its regions together.
type Allowance struct{ most, records, detours int }

// NewAllowance is what any real tracer may have left, or so many records of each kind if that is less.
func NewAllowance(most int) *Allowance {
	most = min(max(most, 0), mostRecords)
	return &Allowance{most, most, most}
}

// Used is the number of records that were read, of the kind that had more.
func (a *Allowance) Used() int { return a.most - max(min(a.records, a.detours), 0) }

// take is false if that is too much.
func take(left *int, n uint64) bool {
	*left -= int(n)
	return *left >= 0
}

// Records reads the journals of all arenas from the target, the newest record
// first: what patch.Restore needs. An unreadable arena does not hide the others;
// the errors are joined. They match ErrTooMuch if more is there than the allowance: then the records are a part.
func (h *Header) Records(mem arch.Memory, a *Allowance) ([]Record, error) {
	var found []sequenced
	var errs []error
	for _, e := range h.Arenas {
		s := Remote(mem, e.Data)
		var err error
		if found, err = readJournal(found, s, e, a); err != nil {
			errs = append(errs, fmt.Errorf("reading the journal at %s: %w", e.Data.Start+arch.Addr(e.Journal), err))
		}
		if a.records < 0 {
			break
		}
	}
	slices.SortFunc(found, func(a, b sequenced) int { return cmp.Compare(b.sequence, a.sequence) })
	rs := make([]Record, len(found))
	for i := range found {
		rs[i] = found[i].Record
	}
	return rs, errors.Join(errs...)
}

// readJournal reads page by page and stops where nothing was ever written: to
// read further would make the kernel allocate the memfd's empty pages.
func readJournal(rs []sequenced, s Store, e Extent, a *Allowance) ([]sequenced, error) {
	end := e.Journal + e.JournalLen/recordSize*recordSize
	for off := e.Journal; off < end; {
		if !take(&a.records, PageSize/recordSize) {
			return rs, fmt.Errorf("more records of changed code than are read: %w", ErrTooMuch)
		}
		b := make([]byte, min(end-off, PageSize)) // which the records keep
		if err := s.Read(off, b); err != nil {
			return rs, err
		}
		off += uint64(len(b))
		for ; len(b) >= recordSize; b = b[recordSize:] {
			r, ok, blank := parseRecord(b)
			switch {
			case ok:
				rs = append(rs, r)
			case blank:
				return rs, nil
			}
		}
	}
	return rs, nil
}
