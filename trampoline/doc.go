// Package trampoline keeps the code that we add to the target: slots and detours, in
// arenas that lie within reach of the code they serve, and the journal of what patch
// changed.
//
// The package decides and lays out; it makes no system call. How the memory is laid out, and what the target's threads may read of it meanwhile, is told in doc.go.
//
// Not part of the public promise: any version may change it.
package trampoline

// # The region
//
// All of it lives in memfds named MemfdName. An arena is one extent of their offsets.
// The target maps it at one place as two neighbours; the tracer maps it once more, and
// writes it with plain stores:
//
//	file, at Offset     target         tracer
//	data part           Data   rw-     rw-
//	  the first arena only: header, first resume table
//	  of slots: the probed address of each; journal records
//	  of detours: their records; cells
//	code part           Code   r-x     rw-
//	  of slots: stub (system call, breakpoint), slots
//	  of detours: detours and the jumps of their entries, in any order
//
// No page of the target is ever writable and executable. The header, at offset 0, lists
// all arenas, so a tracer that finds this mapping finds everything. The layout is
// little-endian and fixed by Version; layout.go, journal.go, record.go and resumetable.go
// have the offsets.
//
// Where the target can't map memory, an arena may be a cave instead: zero bytes
// that pad the last page of executable code. It has neither stub nor data part, and
// takes no detours.
//
// # Who does what
//
// The package decides and lays out; it makes no system call. Region.Alloc, Land, Cells,
// SetResume and the journal map another arena when none in reach has room: the Region
// decides where it goes, and its Mapper maps it. Mapper says what must hold then.
//
// # Places for detours
//
// A jump's displacement is constrained (arch.Pattern), so its detour, or at least a jump
// there, must lie in certain windows. Tiles of 8 MiB, mapped as a whole but touched only
// where something is stored, make that a few mappings: see tile.go. Detours are packed from the
// start of their arenas; free bytes of all pages that were touched are breakpoints.
//
// # The resume table
//
// It serves the in-target guard when a thread raises an exception at a site, at an
// instruction's head inside of a jump, or in a detour. It says where the thread goes
// on. The eight bytes at Region.ResumePointer (56 bytes from the header's start) hold
// its address; all its fields are uint64:
//
//	+0               shift
//	+8               mask: the number of entries, a power of two, less one
//	+64 + 16*i       at: the address of the exception, 0 if the entry was never used
//	+64 + 16*i + 8   to: where to go on, 0 if the entry is not in use now
//
// To look up a: begin with i = (a * ResumeHash mod 2^64) >> shift; as long as at is
// neither a nor 0, go on with i = (i + 1) & mask. There always is an unused entry. An entry
// keeps its address for good, and to is written before at, each by one store. A larger
// table is published by one store to the pointer; the one before stays as it is.
//
// # Concurrency
//
// A Region, with its arenas and its journal, is used by one goroutine, the
// tracer. There are no locks. The target's threads may run in all code parts and read the
// data parts at any time: what one of them may meet is changed by single stores, or
// written before anything leads there. The memory that Cells returns is the caller's.
