package kprobes

// sigreturnLoads are the ways in which libraries load the number of rt_sigreturn, in front of
// the system-call instruction: mov $15,%rax and mov $15,%eax.
var sigreturnLoads = [][]byte{{0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0}, {0xb8, 0x0f, 0, 0, 0}}
