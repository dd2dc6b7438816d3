package trampoline

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/gokprobe/gokprobe/arch"
)

const (
	// MemfdName is the memfd's name; /proc/PID/maps shows its mappings as
	// "/memfd:gokprobe (deleted)".
	MemfdName = "gokprobe"
	// Magic is the first eight bytes of the file.
	Magic = "gokprobe"
	// Version changes with the layout.
	Version = 3
	// MaxArenas is the number of arenas that the header has room for.
	MaxArenas = 1024
)

// Offsets in bytes from the start of the file.
const (
	headerSize = offArenas + MaxArenas*arenaSize // a multiple of PageSize
	prefixSize = headerSize + firstResumeSize    // what only the first arena has

	offMagic     = 0  // [8]byte, written last
	offVersion   = 8  // uint32
	offCount     = 12 // uint32, arenas
	offArch      = 16 // [16]byte, GOARCH, zero padded
	offPID       = 32 // uint32
	offSlotSize  = 36 // uint32
	offStartTime = 40 // uint64
	offPIDNS     = 48 // uint64
	offResume    = 56 // uint64, target address of the table that Region.SetResume keeps

	offGuard  = 2048 // [GuardLen]byte, see Region.GuardData
	offArenas = 4096 // [MaxArenas]arena
)

// GuardLen is the size in bytes of what the header keeps for the in-target guard.
const GuardLen = offArenas - offGuard

// Offsets in bytes from the start of an arena's entry. All fields are uint64.
const (
	arenaSize = 96

	offFile       = 0 // offset in the memfd
	offDataStart  = 8
	offDataEnd    = 16
	offCodeStart  = 24
	offCodeEnd    = 32
	offSites      = 40 // from DataStart
	offSitesLen   = 48
	offJournal    = 56 // from DataStart
	offJournalLen = 64
	offKind       = 72
	offRecords    = 80 // from DataStart
	offRecordsLen = 88
)

// Kind is what an arena is for.
type Kind uint8

const (
	Slots   Kind = iota // slots and journal records
	Detours             // detours, their records, and cells
)

// Owner is the tracer that owns a region. Pid and start time together name a
// process even after its pid is used again.
type Owner struct {
	PID          uint32 // in its own pid namespace
	StartTime    uint64 // clock ticks since boot, /proc/PID/stat field 22
	PIDNamespace uint64 // inode number of /proc/PID/ns/pid; 0 if not known
}

// Extent is where an arena lies. Data and Code are neighbours in the file and in
// the target: Data first.
type Extent struct {
	Kind       Kind
	Offset     uint64     // in the memfd, bytes
	Data, Code arch.Range // in the target

	// The data part's content, as offsets and lengths in bytes in Data.
	Sites, SitesLen     uint64 // one uint64 for each slot: the probed address, 0 if none
	Journal, JournalLen uint64
	Records, RecordsLen uint64 // of detours; the rest of Data is cells
}

// Range is all of the extent's target addresses, which one munmap(2) may take.
func (e Extent) Range() arch.Range { return arch.Range{Start: e.Data.Start, End: e.Code.End} }

// FileEnd is the size in bytes that the memfd must have for the extent.
func (e Extent) FileEnd() uint64 { return e.Offset + e.Range().Len() }

// Header is the decoded start of a region.
type Header struct {
	Arch     string // as in GOARCH
	Owner    Owner
	SlotSize int       // bytes
	Resume   arch.Addr // of the table that Region.SetResume keeps; 0 if there is none
	Arenas   []Extent
}

var le = binary.LittleEndian

// encodeHeader returns the header up to the arena table, with no arenas.
func encodeHeader(a arch.Code, o Owner) []byte {
	b := make([]byte, offResume)
	copy(b[offMagic:], Magic)
	le.PutUint32(b[offVersion:], Version)
	copy(b[offArch:offPID], a.Name())
	le.PutUint32(b[offPID:], o.PID)
	le.PutUint32(b[offSlotSize:], uint32(a.SlotSize()))
	le.PutUint64(b[offStartTime:], o.StartTime)
	le.PutUint64(b[offPIDNS:], o.PIDNamespace)
	return b
}

func encodeExtent(e Extent) []byte {
	b := make([]byte, arenaSize)
	for off, v := range map[int]uint64{
		offFile:      e.Offset,
		offDataStart: uint64(e.Data.Start), offDataEnd: uint64(e.Data.End),
		offCodeStart: uint64(e.Code.Start), offCodeEnd: uint64(e.Code.End),
		offSites: e.Sites, offSitesLen: e.SitesLen,
		offJournal: e.Journal, offJournalLen: e.JournalLen,
		offKind: uint64(e.Kind), offRecords: e.Records, offRecordsLen: e.RecordsLen,
	} {
		le.PutUint64(b[off:], v)
	}
	return b
}

// writeHeader makes s the start of a region whose first arena is e. Until the
// last write, the magic, a finder sees no region.
func writeHeader(s Store, a arch.Code, o Owner, e Extent) error {
	b := encodeHeader(a, o)
	le.PutUint32(b[offCount:], 1)
	if err := s.Write(offArenas, encodeExtent(e)); err != nil {
		return err
	}
	if err := s.Write(offVersion, b[offVersion:]); err != nil {
		return err
	}
	return s.Write(offMagic, b[:offVersion])
}

// appendExtent adds e as the n-th arena (from 0). Until the last write a finder sees
// the old list.
func appendExtent(s Store, n int, e Extent) error {
	if n >= MaxArenas {
		return ErrTooManyArenas
	}
	if err := s.Write(offArenas+uint64(n)*arenaSize, encodeExtent(e)); err != nil {
		return err
	}
	return s.Write(offCount, le.AppendUint32(nil, uint32(n)+1))
}

// ParseHeader decodes the first bytes of a region: as many as the arenas that it lists
// take, at most HeaderLen. It trusts nothing: the target can write there. The error
// matches ErrHeader.
func ParseHeader(b []byte) (*Header, error) {
	switch {
	case len(b) < offArenas:
		return nil, fmt.Errorf("%d bytes are too few: %w", len(b), ErrHeader)
	case string(b[:len(Magic)]) != Magic:
		return nil, fmt.Errorf("no magic: %w", ErrHeader)
	case le.Uint32(b[offVersion:]) != Version:
		return nil, fmt.Errorf("layout version %d, this is %d: %w", le.Uint32(b[offVersion:]), Version, ErrHeader)
	}
	n := le.Uint32(b[offCount:])
	if n > MaxArenas || len(b) < offArenas+int(n)*arenaSize {
		return nil, fmt.Errorf("%d arenas in %d bytes: %w", n, len(b), ErrHeader)
	}
	h := &Header{
		Arch:     string(bytes.TrimRight(b[offArch:offPID], "\x00")),
		SlotSize: int(le.Uint32(b[offSlotSize:])),
		Owner: Owner{
			PID:          le.Uint32(b[offPID:]),
			StartTime:    le.Uint64(b[offStartTime:]),
			PIDNamespace: le.Uint64(b[offPIDNS:]),
		},
		Resume: arch.Addr(le.Uint64(b[offResume:])),
	}
	for i := range int(n) {
		e := parseExtent(b[offArenas+i*arenaSize:])
		if !e.valid() {
			return nil, fmt.Errorf("arena %d is malformed: %w", i, ErrHeader)
		}
		h.Arenas = append(h.Arenas, e)
	}
	return h, nil
}

func parseExtent(b []byte) Extent {
	u := func(off int) uint64 { return le.Uint64(b[off:]) }
	return Extent{
		Kind:   Kind(min(u(offKind), 0xff)),
		Offset: u(offFile),
		Data:   arch.Range{Start: arch.Addr(u(offDataStart)), End: arch.Addr(u(offDataEnd))},
		Code:   arch.Range{Start: arch.Addr(u(offCodeStart)), End: arch.Addr(u(offCodeEnd))},
		Sites:  u(offSites), SitesLen: u(offSitesLen),
		Journal: u(offJournal), JournalLen: u(offJournalLen),
		Records: u(offRecords), RecordsLen: u(offRecordsLen),
	}
}

func (e Extent) valid() bool {
	within := func(off, n uint64) bool { return off <= e.Data.Len() && n <= e.Data.Len()-off }
	return e.Kind <= Detours && e.Data.Start < e.Data.End && e.Data.End == e.Code.Start && e.Code.Start < e.Code.End &&
		(e.Data.Start|e.Data.End|e.Code.End)%PageSize == 0 && e.Offset%PageSize == 0 &&
		within(e.Sites, e.SitesLen) && within(e.Journal, e.JournalLen) && within(e.Records, e.RecordsLen)
}

// HeaderLen is the size of the header in bytes with all the arenas that it has room for.
const HeaderLen = headerSize

// Inspect reads the header of the region whose mapping of file offset 0 starts
// at at. The error matches ErrHeader if there is no region.
func Inspect(mem arch.Memory, at arch.Addr) (*Header, error) {
	b := make([]byte, offArenas)
	if err := mem.ReadMemory(at, b); err != nil {
		return nil, fmt.Errorf("reading a region's header: %w", err)
	}
	b = append(b, make([]byte, arenaSize*min(le.Uint32(b[offCount:]), MaxArenas))...)
	if err := mem.ReadMemory(at+offArenas, b[offArenas:]); err != nil {
		return nil, fmt.Errorf("reading a region's list of arenas: %w", err)
	}
	h, err := ParseHeader(b)
	if err != nil {
		return nil, fmt.Errorf("mapping at %s: %w", at, err)
	}
	return h, nil
}

// Glance is Inspect of a header whose further arenas do not matter: of those there is the first at most.
func Glance(mem arch.Memory, at arch.Addr) (*Header, error) {
	b := make([]byte, offArenas+arenaSize)
	if err := mem.ReadMemory(at, b); err != nil {
		return nil, fmt.Errorf("reading a region's header: %w", err)
	}
	le.PutUint32(b[offCount:], min(le.Uint32(b[offCount:]), 1))
	h, err := ParseHeader(b)
	if err != nil {
		return nil, fmt.Errorf("mapping at %s: %w", at, err)
	}
	return h, nil
}

// Site returns the slot around ip and the probed address that it serves. ok is false if
// ip is in no slot in use.
func (h *Header) Site(mem arch.Memory, ip arch.Addr) (slot, site arch.Addr, ok bool, err error) {
	if h.SlotSize <= 0 {
		return 0, 0, false, nil
	}
	for _, e := range h.Arenas {
		if !e.Code.Contains(ip) {
			continue
		}
		i := uint64(ip-e.Code.Start) / uint64(h.SlotSize)
		if i >= e.SitesLen/8 {
			return 0, 0, false, nil
		}
		var b [8]byte
		if err := mem.ReadMemory(e.Data.Start+arch.Addr(e.Sites+8*i), b[:]); err != nil {
			return 0, 0, false, fmt.Errorf("reading a slot's site: %w", err)
		}
		site = arch.Addr(le.Uint64(b[:]))
		return e.Code.Start + arch.Addr(i*uint64(h.SlotSize)), site, site != 0, nil
	}
	return 0, 0, false, nil
}
