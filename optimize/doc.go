// Package optimize decides whether a site's breakpoint may become a jump to a detour, and
// which bytes that jump may have. It is pure: code in, choices out.
//
// The problem, the rule, the proof that it holds, and which of the kernel's checks it replaces are told in doc.go.
//
// Not part of the public promise: any version may change it.
package optimize

// # The problem
//
// The jump is longer than most instructions. It overwrites heads, that is, first bytes, of
// instructions behind the site: inner heads. Any thread may come to one: by a branch that
// we know; by one that nobody can know (an indirect jump, a landing pad, longjmp); by the
// return of a call, a system call or a signal handler; or because the kernel had preempted
// it there. The kernel proves that no thread will, and waits until none is on the way; its
// checks are listed below. Here nothing is proven and nobody is waited for: the jump is
// such that everybody may come.
//
// # The rule
//
// The jump's opcode is one byte, at the site. The other four are the displacement, and the
// detour is put where the displacement has, at each inner head,
//
//   - either a byte that traps whatever follows it (a breakpoint, or one that is no
//     instruction): the tracer, or the guard without it, sends the thread to the copy of
//     that instruction in the detour;
//   - or, from there on, the bytes that stood there before. They are kept: a thread runs
//     the original, here and behind.
//
// A byte at which no instruction begins may be any. So a jump whose inner heads all trap
// displaces all instructions that begin in it, and its detour goes back behind the last of
// them. One that keeps the bytes from some head on displaces the instructions in front of
// that head, and its detour goes back to it. Displaced instructions follow each other.
//
// Known targets of branches are kept and never trap: a trap in each turn of a loop
// would cost more than the breakpoint that the jump replaces. That is for speed alone.
// A target that is overlooked traps, and is counted by the tracer. The first
// instruction behind a jump or a return, padding aside, counts as a target, since some
// branch must lead there.
//
// # The proof
//
// Claim: at every moment each thread does what it would do without the jump, apart from the
// probe's own work. Let S be the site, D the displaced instructions and E the end of them.
// A thread's place is the address of its next instruction.
//
//  1. Copies. From the copy of D's i-th instruction on, the detour does what the original
//     code does from that instruction on: that is the contract of arch.Detours, tested by
//     execution. Calls push the original return address, so no return leads into a detour.
//     Branches lead to original addresses. Nothing in a copy depends on the bytes at S.
//  2. Before the write D stands at S, and there is nothing to show.
//  3. The write happens while all threads of the address space are stopped. A stop is taken
//     between instructions, and going on from it serializes, so no thread executes a
//     mixture of old and new bytes (cross-modifying code, SDM vol. 3A §9.1.3). Threads that
//     the stop leaves out, in vfork or exiting, are inside the kernel, execute none of the
//     program's instructions meanwhile, and serialize when they return.
//  4. After the write a thread's place is one of these, however it came there:
//     S: the jump, the body, then the copies from the first on. By 1 that is D.
//     The i-th instruction of D, which traps: the exception finds all registers as they
//     are at that place, and has no effect but a stop; the thread goes on at the i-th copy.
//     By 1 that is D from the i-th instruction on.
//     A head in the jump that is kept, or a place outside of the jump: the bytes from there
//     on are the original ones, or the jump of another site, of which the same is shown.
//     A byte in the jump at which no instruction begins: nobody comes. Falling through leads
//     only to what is a head when decoding begins at S. Branches to such bytes exist, to
//     skip a prefix (lock); compilers and assemblers write them as direct branches in the
//     same function, and then the site is refused: IntoMiddle. (Of all direct branches in
//     glibc, libcrypto, libstdc++, libgmp, python, redis and a Go program, 1.9 million
//     instructions, five lead to no head: in glibc, behind lock, in their own function.)
//     Padding behind a function's end, up to the next symbol: nobody comes, since nothing
//     falls through to it.
//  5. In the detour: by 1 the copies remain right, even if the bytes at S change meanwhile. A
//     fault, a signal or a stop there is told at the original address.
//  6. Taking the jump back is a write as in 3. Before it threads are at a place of 4 or 5,
//     or have trapped and not gone on yet. Afterwards those at places of 4 find D; those in
//     the detour, and those that trapped, go on by 5. So the detour stays until nobody is in
//     it, is on the way to it, or may return to it from a signal handler.
//  7. The site's first byte alone may be changed from the jump's opcode to a breakpoint and
//     back at any time: a store of one byte is seen whole or not at all, and nothing in 4
//     depends on it for places other than S. A thread that it traps goes on at the first
//     copy.
//  8. No other site lies within D or the jump: the hub takes the jump back before it puts a
//     breakpoint there (E19 to E22).
//
// No thread is moved, and no stack and no signal frame is searched or changed.
//
// # When somebody takes the jump's first byte away
//
// A kernel uprobe that comes to S and goes again puts the target's own byte back there,
// in front of our displacement. Until the tracer notices, a thread at S executes a
// mixture. If the original instruction has one byte, it is whole, and the bytes behind
// it trap or are the target's. If it is longer and begins with a prefix, the jump can
// have a breakpoint behind that prefix (arch.Detours.TrapsBehind): then it traps before
// it has any effect. Such jumps are preferred. Where there is no room for them, and for
// other instructions, there is no such safety.
//
// A uprobe at a head inside of the jump changes where the jump leads: to one of
// Pattern.Strays. At each of them there is a breakpoint that belongs to the detour, or
// no code at all (trampoline.Region.Land). A thread that comes there has executed the
// jump and nothing else, and goes on as if it had come to the detour.
//
// # The kernel's checks
//
// The kernel makes them in can_optimize and copy_optimized_instructions
// (arch/x86/kernel/kprobes/opt.c). The numbers are this project's
// (kprobes/CONFORMANCE.md).
//
//	E3   function known             NoFunction. Kernel entry text has no counterpart.
//	E4   room in the function       Replaced: padding behind it is used; without, what follows is
//	                                kept. Ends, if nothing follows.
//	E5   all of it can be decoded   Undecodable. What nothing leads to, from behind a jump or a
//	                                return up to what can't be decoded, is taken for data: branches
//	                                are looked for at each byte of it, and sites in it are refused
//	                                (InData).
//	E6   no exception table entry   Replaced: return addresses and the addresses of faults are the
//	                                original ones, so unwinders find the entries. Landing pads are
//	                                heads like others.
//	E7   no indirect jump           Replaced: wherever it leads is a head, and traps or is kept.
//	E8   no jump into the region    Replaced: its target is a head and kept. If it is no head:
//	                                IntoMiddle.
//	E9   calls, other functions     Not checked by the kernel. Here they are as E7.
//	E10  a jump to the site         Allowed: it is a hit.
//	E11  all can be copied          NoCopy, of the site's own instruction. Others are then kept.
//	                                Calls and branches can be copied.
//	E12  no text that others patch  Memory is compared before each write (patch.ErrChanged).
//	E13  detour within reach        NoLanding.
