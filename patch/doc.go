// Package patch is the only writer of code that the target already had.
//
// It knows every byte that was changed and its original. So it can show memory as if
// nothing were patched, and put everything back.
//
// A Text and its patches are used by one goroutine, the tracer. There are no locks. The package is pure: memory is an
// arch.Memory. What other threads see of a patch is told in doc.go.
//
// Not part of the public promise: any version may change it.
package patch

// # What other threads see
//
// A one-byte patch is a breakpoint (int3 on x86). It is written, armed,
// disarmed and removed while the target's other threads run:
//
//  1. Before the store every thread fetches the original first byte.
//  2. The store is one byte, hence atomic: a fetch gets the old byte or the
//     new one (Intel SDM vol. 3A, "Guaranteed Atomic Operations"). A thread that
//     gets the old one runs the original instruction whole; the bytes behind
//     the first are the same in both versions. A thread that gets the new one
//     traps; the tracer, which is the goroutine that stores, looks at stops only
//     afterwards and finds the patch.
//  3. After the store a processor may still run bytes that it fetched before, until
//     it serialises ("Handling Self- and Cross-Modifying Code"). That is the state
//     of step 1 again, for a moment.
//
// Disarming and removing are the same in the other direction: a thread may have trapped
// just before, or trap on a stale byte just after. Either way it stands behind a
// breakpoint that memory no longer shows, and is to be sent back to run the original
// instruction. A disarmed patch is still found. A caller of Remove while threads run
// must remember the address, or such a trap looks foreign. The kernel's
// smp_text_poke_batch_finish (arch/x86/kernel/alternative.c) stands on the same
// property of int3.
//
// Text is a private file mapping. At the first write to a page the kernel copies it
// (FOLL_FORCE breaks copy-on-write), switches the page-table entry, and flushes it from
// the processors that run the target. The copy is complete when the entry is switched,
// so a thread fetches from the old page (step 1) or from its equal copy. The file and
// other processes never see the change.
//
// Many patches of one byte at once (InstallAll, DisarmAll) are as many stores, each as
// above. So other threads see some of the breakpoints for a moment, then all. Only the
// checks before and after are made page by page. One store for a page would be little
// faster. It would also store the bytes between the patches, over anything that the
// target has written there since the check.
//
// A patch of several bytes has no such proof: a thread may stand between the bytes or
// fetch half of them. It is written only while all threads of all processes that share
// the memory are stopped. The proof of that is a value: a function that writes such
// patches takes a Frozen (Text.While, Restore).
