// Package trampoline keeps the code that we add to the target: slots, in arenas
// that lie within reach of the code they serve, and the journal of what patch
// changed.
//
// # The region
//
// All of it lives in one memfd named MemfdName. An arena is one extent of that
// file, mapped in the target at one place as two neighbours, and once more by
// the tracer, which writes it with plain stores:
//
//	file, at Offset     target         tracer
//	data part           Data   rw-     rw-
//	  header (first arena only)
//	  sites: the probed address of every slot
//	  journal records
//	code part           Code   r-x     rw-
//	  stub: system call, breakpoint
//	  slots
//
// No page of the target is ever writable and executable. The header, at offset 0
// of the file, lists all arenas: whoever finds the mapping finds everything.
// The layout is little-endian and fixed by Version.
//
// Where the target can't map memory, an arena may be a cave instead: zero bytes
// that pad the last page of executable code. It has neither stub nor data part.
//
// # Who does what
//
// The package decides and lays out; it makes no system call. Region.Alloc
// answers *NeedArena when no arena in reach has room; Region.Place decides where
// a new one goes; the caller maps it and hands the stores to Region.Adopt; then
// Alloc succeeds.
//
// # Concurrency
//
// A Region, with its arenas and its journal, is used by one goroutine, the
// tracer. There are no locks.
package trampoline
