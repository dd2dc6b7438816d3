// Package kprobes places probes with the semantics of the kernel's kprobes in a live
// process. It is the hub: names come from symbols, instructions from arch, slots from
// trampoline, breakpoints from patch, and ptrace holds the process.
//
//	s, err := kprobes.Attach(ctx, pid, kprobes.Options{})
//	if err != nil { … }
//	defer s.Close()
//	err = s.RegisterKprobe(&kprobes.Kprobe{
//		SymbolName: "foo",
//		PreHandler: func(kp *kprobes.Kprobe, regs *kprobes.Regs) int { … return 0 },
//	})
//
// A Kprobe is what the user registers. A site is one patched address in one address
// space, shared by its probes. A domain is our work in one address space: its sites, its
// patched text, its injected region. Handlers run on the session's tracer thread, while
// the thread that hit is stopped and all others run.
//
// A program that is killed while it probes leaves its breakpoints. If it calls GuardianMain first in its main function, another process
// of it puts all targets right at once. Without that a handler in the target sends threads past the breakpoints, which does not
// save all programs, until Recover is called for them.
//
// CONFORMANCE.md lists the kernel's rules, each with the test that checks it.
//
// # Names
//
//	kernel                         here                          file
//	register_kprobe                Session.RegisterKprobe        probe_register.go
//	register_kprobes               Session.RegisterKprobes       probe_register.go
//	unregister_kprobe(s)           Session.UnregisterKprobe(s)   probe_register.go
//	enable_kprobe, disable_kprobe  Session.EnableKprobe, …       probe_switch.go
//	(dis)arm_all_kprobes           Session.ArmAll, DisarmAll     probe_switch.go
//	_kprobe_addr                   Session.locate                probe_register.go
//	check_kprobe_address_safe      domain.checkMapping           site_check.go
//	can_probe                      domain.checkBoundary          site_check.go
//	arch_adjust_kprobe_addr        domain.checkAddress           site_check.go
//	aggregate kprobe               site.probes                   site.go
//	arm_kprobe, disarm_kprobe      domain.arm, domain.disarm     site.go
//	kprobe_int3_handler            hooks.Breakpoint, hit         hit.go
//	setup_singlestep               proceed                       hit_proceed.go
//	kprobe_post_process            stepped                       hit_proceed.go
//	resume_execution               arch.Plan.Resume              hit_proceed.go
//	kprobe_fault_handler           hooks.Signal, mended          hit.go, handler_fault.go
//	reenter_kprobe                 site.miss                     hit.go
//	NOKPROBE_SYMBOL                Session.Blacklist             site_blacklist.go
//	within_kprobe_blacklist        domain.checkBlacklist         site_blacklist.go
//	collect_garbage_slots          domain.collect                region.go
//	(un)register_jprobe(s)         Session.RegisterJprobe, …     handler_jprobe.go
//	setjmp_pre_handler             Jprobe.handle                 handler_jprobe.go
//	jprobe_return                  JprobeReturn                  handler_jprobe.go
//	(none; strace -e inject)       Session.RegisterSyscallProbe, …  syscall_probe.go
//	kprobes_module_callback        domain.update                 module_changes.go, module_linker.go
//	kill_kprobe                    domain.abandon                module_changes.go
//	longjmp_break_handler          Regs.undone                   handler_jprobe.go
//	(un)register_kretprobe(s)      Session.RegisterKretprobe, …  return_kretprobe.go
//	pre_handler_kretprobe          Kretprobe.entered             return_calls.go
//	arch_prepare_kretprobe         domain.returnSite             return_site.go
//	__kretprobe_trampoline_handler Session.returned              return_calls.go
//	recycle_rp_inst                Kretprobe.end                 return_kretprobe.go
//	kprobe_flush_task              domain.endOf                  return_calls.go
//	override_function_with_return  Regs.ReturnNow                handler_effects.go
//
// # Choices where the kernel's eras differ
//
//	what                                chosen                              kernel
//	unknown symbol                      ENOENT                              modern; EINVAL in 2.6.28
//	several functions of one name       EADDRNOTAVAIL                       since 6.7
//	not on an instruction boundary      EILSEQ                              modern; unchecked in all documents
//	int3 at the address                 EILSEQ                              since 6.9
//	ud2, int n, int1, far transfers     probed; they raise what they raise  refused: EILSEQ, EOPNOTSUPP (A26, A28)
//	mov ss, system calls                probed                              refused: EINVAL (A27); uprobes: ENOTSUPP
//	symbol starts with endbr64          offsets 0 and 4 both mean 4         since 5.18
//	stepping                            a breakpoint behind the copy; TF    since 5.13; TF before
//	                                    only where the copy leaves
//	boost                               decided at registration             since 5.13; after the first step before
//	instructions that change ip         emulated                            since 5.13
//	a probe's own struct after failure  Addr stays what the caller gave     A16 is not reproduced
//	an arming error                     is returned                         A35 is not reproduced
//	fault in the copied instruction     signal at the original address,     as ever (B11)
//	                                    the retry is a hit again
//	fault_handler                       kept, as documented: for faults of  until 5.14; its code called it for
//	                                    handlers and of the instruction     faults of handlers only
//	returning 1 from it                 the access or the instruction is    the fault counts as handled
//	                                    tried again, in the same hit
//	a fault in a handler                counts as missed if there is a      until 5.14 for all probes of the
//	                                    FaultHandler, for its probe         address, then no longer
//	split-off parts in the blacklist    by the suffixes of GCC and LLVM     at the first dot (A21)
//	unregister                          says what could not be put back     void (A37)
//	handlers of several threads         one after the other                 at once (B8)
//	restart of a system call            one hit, unless a signal handler    (it has none)
//	                                    ran in between
//	restartable sequence (rseq)         EINVAL                              (it has none)
//	data in text, where symbols tell    EILSEQ                              only by decoding (A25)
//	signal while in a slot              waits until the copy has run        as uprobes (D23)
//	address outside of every symbol     allowed if it decodes               the kernel refuses (A13)
//	jprobes                             kept, as documented                 until 4.14
//	the body of a jprobe                a Go func in the tracer             code in the kernel, on the probed stack
//	its parameters, and that the        checked where debug information     unchecked (A62)
//	address is an entry                 and symbols tell
//	the stack behind a jprobe           what the body has written of 64     64 bytes are copied back, whoever
//	                                    bytes is put back                   has written them
//	return addresses                    breakpoints are placed at them      rewritten (C13); shown true since 5.16
//	instances of a kretprobe            made when they are needed           all at registration (C1)
//	default of maxactive                max(10, 2 * processors)             since 6.2; by PREEMPT before (A57)
//	a call that does not return         counts as missed                    recycled silently (C27)
//	frames that are jumped over         are noticed (C22, C23)              never by kretprobes, always by uprobes
//	nested calls                        as many as maxactive                64 in uprobes (C25)
//	a call that forks                   returns in a followed child too     as uprobes (C28)
//	code mapped shared (MAP_SHARED)     refused                             the kernel has none
//	symbol in a library that is not     waits for it, if the library's      kprobes: ENOENT; trace events
//	loaded                              name holds ".so"; else ENOENT       wait, with a warning (G13)
//	a library is unloaded               its probes are GONE                 the same (F19)
//	it is loaded again                  those by symbol are placed again,   kprobes are registered again;
//	                                    and keep their counts               trace events are placed again
//	skipping a function's body          the tracer does what ret does,      ip is set to a ret (H17)
//	                                    and no handler of the hit follows
//	code unmapped by the program        is not noticed                      (it has none)
//	itself
package kprobes
