// Package optimize decides whether a site's breakpoint may become a jump to a detour,
// and which bytes that jump may have. It is pure: code in, choices out.
//
// # The problem
//
// The jump is longer than many instructions. It overwrites heads, that is, first bytes, of instructions
// behind the site: inner heads. Any thread may come to an inner head: by a branch that we
// know, by one that nobody can know (an indirect jump, a landing pad, longjmp), by the
// return of a call or a system call, of a signal handler or of the kernel to where it
// had preempted the thread. The kernel proves that none will (its checks are listed below) and waits
// until none is on the way. Here nothing is proven and nobody is waited for. Instead the jump is made such that
// everybody may come.
//
// # The rule
//
// The jump's opcode is one byte, at the site's own head. The other four are the
// displacement, and the detour is put where the displacement is such that at each inner
// head
//
//   - either the jump has a byte that traps, whatever follows it (int3, or one that is no instruction in
//     64-bit mode). The tracer, or the guard without it, sends the thread to the copy of that
//     instruction in the detour;
//   - or the jump has, from there on, the bytes that stood there before: they are kept. The thread runs the original, and so do
//     those behind it.
//
// A byte at which no instruction begins may be any. So a jump whose heads all trap displaces all instructions
// that begin in it, and goes back behind the last of them. One that keeps the bytes from some head on displaces those in front of it, and goes back to it. (LiteInst
// and E9Patch call it punning. E9Patch moves code for good and keeps; here, whoever is wrong is caught.)
//
// Known targets of branches are kept and never trap, since a trap for each turn of a loop would cost more than
// the breakpoint that the jump replaces. That is for speed alone: a target that we overlook traps, and is counted.
//
// # The proof
//
// Claim: at every moment each thread executes what it would without the jump, apart from
// the probe's own work. A thread's place is the address of its next instruction.
// Let S be the site, D the displaced instructions, E the end of them, and let S+n be the first byte that is not written, or is written with what it was.
//
//  1. What D does from its i-th instruction on is done the same by the copies from the i-th on
//     and the jump to E (arch.Detours, tested by execution). In particular calls push
//     the original return address, so no thread is ever sent back into a detour by a
//     return; and copies do not branch into copies.
//  2. Before the write: D stands there. Nothing to show.
//  3. The write happens while all threads of the address space are stopped, each at an instruction's head with all before it done and
//     nothing after it begun: a stop is taken between instructions, and it serializes, so no thread holds decoded stale bytes (SDM vol. 3A §9.1.3, cross-modifying
//     code). Threads that the stop leaves out (in vfork, exiting) are inside the kernel and execute nothing before
//     their return, which serializes as well. Hence nobody sees a part of the write.
//  4. After the write a thread's place is one of these.
//     S: it executes the jump, then the body, then copies from the first on: by 1 the same.
//     An inner head that traps, i-th of D: the exception is reported with all registers as they were there; the thread goes on at the i-th copy: by 1 the
//     same. The trap has no effect of its own, since the tracer takes the signal (or the guard does).
//     An inner head that is kept, or any place outside of the jump: memory from there up to the next branch is as before, or
//     is followed by the jump of another site, to which this proof applies.
//     A byte that is no head: none comes there. Compilers emit such branches only to skip a prefix (lock), directly, and within the function:
//     then the site is refused (IntoMiddle). Nobody falls through to one, since heads are what decoding from S on gives.
//     Padding behind a function that does not fall through, up to the next symbol: none comes there.
//  5. In the detour: by 1 copies need nothing of the memory at S, so they stay right whatever is written there.
//     A fault, a signal or a stop in a copy is told at the original address.
//  6. While the jump is taken back (all stopped, written, gone on) threads are in the detour, at a place of 4, or have trapped at an inner head and are being sent
//     to a copy. The detour stays as long as one of them may be in it, or may return to it from a signal handler: by 5 all of them end at E, or leave by a branch of
//     their own. Threads at inner heads find the original: nothing to show.
//  7. The site's first byte alone (int3 instead of the opcode) may be changed at any time: a one-byte store is seen whole, before or after; the other four
//     bytes trap or are kept by 4, which did not ask for the first byte.
//
// Nothing depends on where threads are at the time of the write: none is moved, and no stack or signal frame is searched.
//
// # The kernel's checks
//
// Numbers are those of this project's list of the kernel's semantics, after can_optimize and copy_optimized_instructions
// of arch/x86/kernel/kprobes/opt.c.
//
//	E3   function known              NoFunction. Entry text is the kernel's own matter.
//	E4   5 bytes left in it          Replaced: padding behind is used; else bytes from the function's end on are kept.
//	                                 Ends, if there are no bytes.
//	E5   all of it decodes           Undecodable. Data behind an instruction that does not fall through is looked through for
//	                                 branches at every byte; sites behind it are refused (BehindData).
//	E6   no exception table entries  Replaced: return addresses and the addresses that faults tell are the original ones, so
//	                                 unwinders find their entries. Landing pads are targets like others.
//	E7   no indirect jumps           Replaced by the rule: where they lead to is a head, and every head traps or is kept.
//	E8   no direct jumps into it     Replaced: their targets are kept. One to what is no head: IntoMiddle.
//	E9   (calls, other functions)    Not checked by the kernel. Here: by the rule.
//	E10  a jump to the site itself   Allowed: it is a hit.
//	E11  all copyable                NoCopy, for the site's own instruction. Others are kept. Calls and branches are copied.
//	E12  no text patched by others   Memory is compared before each write (patch.ErrChanged).
//	E13  detour within reach         NoLanding.
package optimize
