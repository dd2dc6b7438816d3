// Package debugfs shows a session as the kernel's files: kprobes/list and enabled, the
// sysctl debug.kprobes-optimization, tracefs with its events and their fetch arguments
// (Documentation/trace/kprobetrace.rst, uprobetracer.rst, events.rst), and
// fail_function, which makes functions return errors (Documentation/fault-injection).
//
// A Tree is an fs.FS for reading, with Write and Truncate besides. Package door gives it to
// programs that use files.
//
// What a hit does is found in hit.go. It runs on the tracer's thread, which never waits for
// Tree.mu: who holds that waits for the tracer.
//
// Where a process is no kernel, what was chosen is told in doc.go.
//
// Not part of the public promise: any version may change it.
package debugfs

// # Choices where a process is no kernel
//
//	what                          here                                      kernel
//	symbols in brackets           those of libraries name them: f+0x0/0x9   modules: the same
//	                              [libc.so.6]; the target's own do not
//	flags of a hit                none: .....                               irqs-off …
//	a hit's time                  CLOCK_MONOTONIC                           trace_clock
//	the trace                     one; buffer_size_kb is the memory that    one for each CPU, of records
//	                              all entries take
//	records that are lost in the  are told as [LOST n EVENTS], with those   only the latter
//	target                        that were overwritten
//	strings                       256 bytes, less if there are many         PATH_MAX
//	$argN, $retval                by the convention of the language: Go's   the platform's
//	                              registers are others than C's
//	MOD:SYM that is not loaded    waits, if MOD holds ".so"                 waits
//	@SYM of a library that is     is looked up when the event is turned on  and when the module comes
//	loaded anew
//	a uprobe's file               has to be mapped when the event is        is probed wherever it is mapped, now
//	                              turned on, unless its name holds ".so"    or later
//	a return probe in a file      at entries of functions                   anywhere
//	-:EVENT, some of whose        nothing is deleted: EBUSY                 all but the last are
//	probes are all that is on
//	events called enable, filter  refused: EEXIST                           hide the file
//	files that can't be written   EACCES                                    root's writes: EINVAL
//	a write of more than 1 MiB    E2BIG                                     done, line by line
//	values of a synthetic event   variables, and fields of the event with   of the event that onmatch names, too
//	                              the action
//	clocks of a histogram         local, global, mono: all CLOCK_MONOTONIC  as trace_clock
//	a filter that is changed      no hit in between is lost, or filtered    the same
//	                              by half
//	fail_function/inject          any function; what it may return is told  functions that are marked
//	                              by its declared result
//	make-it-fail, fail-nth        fail_function/tasks/TID                   /proc/PID, /proc/PID/task/TID
//	more attributes               when, rate, for, per-thread, seed         none
//	interval, when, space         of each process by itself                 of all
