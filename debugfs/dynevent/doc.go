// Package dynevent is the language of kprobe_events, uprobe_events and dynamic_events: a line defines or deletes
// an event, and each event is listed as a line that defines it again (Documentation/trace/kprobetrace.rst,
// uprobetracer.rst; kernel/trace/trace_probe.c, trace_kprobe.c, trace_uprobe.c).
//
//	p[:[GRP/][EVENT]] [MOD:]SYM[+OFFS]|ADDR [ARGS]
//	r[MAX][:[GRP/][EVENT]] [MOD:]SYM[+0]|ADDR [ARGS]
//	p[:[GRP/][EVENT]] [MOD:]SYM[+0]%return [ARGS]
//	p|r[:[GRP/][EVENT]] PATH:OFFSET[%return][(REF)] [ARGS]
//	-:[GRP/][EVENT] [what the definition was]
//
// The package is pure: no system call, no build tag.
//
// Not part of the public promise: any version may change it.
package dynevent

// The names of programs have bytes that the kernel's have not: + - % / and : may be part of a symbol or a module
// where nothing else can be meant (main.(*T).M-fm, operator+, libstdc++.so.6:malloc, yaml%2ev3.Unmarshal,
// std::terminate).
