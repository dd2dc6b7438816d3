// The table of faults.c: X(name, code before, the instruction, code after, how it is mended,
// with what, registers and the like that differ). The instruction is the symbol f_NAME.
#define G 0x6f0000000000L // two pages of data, nothing around them
#define END (G + 0x2000)
#define ZERO (G + 0x400)
#define NONE (G + 0x10000) // mapped without any access
#define RO (G + 0x20000) // mapped for reading
#define GAP (G + 0x30000) // not mapped
#define NX (G + 0x40000) // code in a page without PROT_EXEC
#define BUS (G + 0x51000) // a page of a file behind the file's end
#define STK (G + 0x60000) // 64 KiB of stack
#define SP (STK + 0x8000)
#define LOW 0x20202020L // code that leads to f_end, where 32 bits reach
#define NC 0x0000800000001000L // not canonical
#define AC 0x40202
#define DF 0x602
#define GS 0x33 // the user's code and stack segments
#define SS 0x2b

#define CASES_MEMORY \
	X(load_gap, "", "mov (%rsi),%rax", "", MAP, GAP, .rsi = GAP + 0x18) \
	X(load_none, "", "movzbl 5(%rsi,%rcx,4),%eax", "", MAP, NONE, .rsi = NONE, .rcx = 3) \
	X(load_nc, "", "mov (%rsi),%rax", "", REG, REG_RSI, .rsi = NC) \
	X(load_nc_rbp, "", "mov 8(%rbp),%rax", "", REG, REG_RBP, .rbp = NC) \
	X(load_two, "", "mov -4(%rsi),%rax", "", MAP, END, .rsi = END) \
	X(load_bus, "", "mov (%rsi),%rax", "", GROW, 0, .rsi = BUS + 8) \
	X(load_fs, "", "mov %fs:(%rsi),%rax", "", LEAVE, 0, .rsi = 0x7f0000000000L) \
	X(load_null, "", "mov 0x10,%eax", "", LEAVE, 0) \
	X(load_vec, "", "movdqu -8(%rsi),%xmm5", "", MAP, END, .rsi = END) \
	X(xlat, "", "xlat", "", MAP, GAP, .rbx = GAP, .rax = 5) \
	X(load_here, "", "mov hole(%rip),%rax", "", HOLE, 0) \
	X(store_here, "", "movl $0x1234,hole+8(%rip)", "", HOLE, 0) \
	X(cmp_here, "", "cmpb $7,hole+16(%rip)", "", HOLE, 0) \
	X(push_here, "", "push hole+24(%rip)", "", HOLE, 0) \
	X(call_here, "", "call *hole+32(%rip)", "", HOLE, 0) \
	X(jmp_here, "", "jmp *hole+40(%rip)", "", HOLE, 0) \
	X(store_gap, "", "mov %rax,(%rsi)", "", MAP, GAP, .rsi = GAP) \
	X(store_ro, "", "movb $9,(%rsi)", "", MAP, RO, .rsi = RO + 1) \
	X(store_bus, "", "mov %rax,(%rsi)", "", GROW, 0, .rsi = BUS + 8) \
	X(store_nc, "", "mov %al,(%rsi)", "", REG, REG_RSI, .rsi = NC) \
	X(add_ro, "", "lock addq $1,(%rsi)", "", MAP, RO, .rsi = RO + 8) \
	X(xchg_ro, "", "xchg %rax,(%rsi)", "", MAP, RO, .rsi = RO + 8) \
	X(cmpxchg_ro, "", "lock cmpxchg %rbx,(%rsi)", "", MAP, RO, .rsi = RO + 8) \
	X(bts_ro, "", "bts %rax,(%rsi)", "", MAP, RO, .rsi = RO, .rax = 77) \
	X(clflush_gap, "", "clflush (%rsi)", "", MAP, GAP, .rsi = GAP) \
	X(rep_movsb, "", "rep movsb", "", MAP, END, .rsi = G + 5, .rdi = END - 20, .rcx = 77) \
	X(rep_movsq, "", "rep movsq", "", MAP, END, .rsi = END - 64, .rdi = G, .rcx = 77) \
	X(rep_stos_down, "", "rep stosq", "", MAP, G - 0x1000, .rdi = G + 24, .rcx = 20, .flags = DF) \
	X(repne_scasb, "", "repne scasb", "", MAP, END, .rdi = END - 30, .rcx = 64, .rax = 256) \
	X(repe_cmpsb, "", "repe cmpsb", "", MAP, END, .rsi = END - 256, .rdi = END - 256, .rcx = 300) \
	X(movs_ro, "", "movsl", "", MAP, RO, .rsi = G, .rdi = RO) \
	X(stos_word_bus, "", "rep stosw", "", GROW, 0, .rdi = BUS - 6, .rcx = 9) \
	X(gather, "", "vpgatherdd %xmm2,(%rsi,%xmm3,4),%xmm0", "", MAP, GAP, .rsi = GAP - 0x2f000, .need = AVX2) \
	X(maskmov, "", "maskmovdqu %xmm2,%xmm0", "", MAP, END, .rdi = END - 3)

#define CASES_STACK \
	X(push_gap, "", "push %rax", "", MAP, GAP, .rsp = GAP + 0x800) \
	X(push_ro, "", "push $0x12345", "", MAP, RO, .rsp = RO + 0x800) \
	X(push_nc, "", "push %rbx", "", REG, REG_RSP, .rsp = NC) \
	X(push_two, "", "push %rbx", "", MAP, STK - 0x1000, .rsp = STK) \
	X(push_rsp, "", "push %rsp", "", MAP, GAP, .rsp = GAP + 0x800) \
	X(push_load_gap, "", "push (%rsi)", "", MAP, GAP, .rsi = GAP) \
	X(push_both, "", "push 8(%rsp)", "", MAP, STK - 0x1000, .rsp = STK) \
	X(push_word, "", "pushw $7", "", MAP, GAP, .rsp = GAP + 0x800) \
	X(push_fs, "", "push %fs", "", MAP, GAP, .rsp = GAP + 0x800) \
	X(pop_gap, "", "pop %rax", "", MAP, GAP, .rsp = GAP + 0x800) \
	X(pop_nc, "", "pop %rax", "", REG, REG_RSP, .rsp = NC) \
	X(pop_store_gap, "", "pop (%rsi)", "", MAP, GAP, .rsi = GAP) \
	X(pop_store_rsp, "", "pop 8(%rsp)", "", MAP, STK + 0x10000, .rsp = STK + 0x10000 - 8) \
	X(pop_rsp_gap, "", "pop %rsp", "", MAP, GAP, .rsp = GAP + 0x800) \
	X(pushf_gap, "", "pushf", "", MAP, GAP, .rsp = GAP + 0x800) \
	X(popf_gap, "", "popf", "", MAP, GAP, .rsp = GAP + 0x800) \
	X(enter_gap, "", "enter $16,$0", "", MAP, GAP, .rsp = GAP + 0x800) \
	X(enter_nested, "", "enter $32,$3", "", MAP, STK - 0x1000, .rsp = STK + 16) \
	X(enter_frames, "", "enter $32,$3", "", MAP, GAP, .rbp = GAP + 0x810) \
	X(leave_gap, "", "leave", "", MAP, GAP, .rbp = GAP + 0x800) \
	X(leave_nc, "", "leave", "", REG, REG_RBP, .rbp = NC) \
	X(call_stack_gap, "", "call f_end", "", MAP, GAP, .rsp = GAP + 0x800) \
	X(call_stack_ro, "", "call f_end", "", MAP, RO, .rsp = RO + 0x800) \
	X(call_stack_none, "", "call f_end", "", MAP, NONE, .rsp = NONE + 0x800) \
	X(call_stack_bus, "", "call f_end", "", GROW, 0, .rsp = BUS + 0x800) \
	X(call_stack_nc, "", "call f_end", "", REG, REG_RSP, .rsp = NC) \
	X(call_stack_two, "", "call f_end", "", MAP, STK - 0x1000, .rsp = STK + 4) \
	X(call_ind_stack, "", "call *%rax", "", MAP, RO, .rax = LOW, .rsp = RO + 0x800) \
	X(call_mem_stack, "", "call *(%rsi)", "", MAP, RO, .rsi = G, .mem = { LOW }, .rsp = RO + 0x800) \
	X(ret_stack_gap, "", "ret", "", MAP, GAP, .rsp = GAP + 0x800) \
	X(ret_stack_bus, "", "ret", "", GROW, 0, .rsp = BUS + 0x800) \
	X(ret_stack_nc, "", "ret", "", REG, REG_RSP, .rsp = NC) \
	X(ret_stack_two, "", "ret $24", "", MAP, STK + 0x10000, .rsp = STK + 0x10000 - 4)

#define CASES_FLOW \
	X(jmp_gap, "", "jmp *%rax", "", CODE, GAP, .rax = GAP + 0x40) \
	X(jmp_nx, "", "jmp *%rax", "", CODE, NX, .rax = NX) \
	X(jmp_nc, "", "jmp *%rax", "", REG, REG_RAX, .rax = NC) \
	X(jmp_mem_gap, "", "jmp *(%rsi)", "", MAP, GAP, .rsi = GAP) \
	X(jmp_mem_nc, "", "jmp *(%rsi)", "", REG, REG_RSI, .rsi = NC) \
	X(jmp_mem_target_nc, "", "jmp *(%rsi)", "", MEM, 0, .rsi = G, .mem = { NC }) \
	X(call_gap, "", "call *%rax", "", CODE, GAP, .rax = GAP + 0x40) \
	X(call_nc, "", "call *%rax", "", REG, REG_RAX, .rax = NC) \
	X(call_mem_gap, "", "call *8(%rsi,%rcx,8)", "", MAP, GAP, .rsi = GAP, .rcx = 2) \
	X(call_mem_target_nc, "", "call *(%rsi)", "", MEM, 0, .rsi = G, .mem = { NC }) \
	X(call_mem_nc, "", "call *(%rsi)", "", REG, REG_RSI, .rsi = NC) \
	X(ret_gap, "", "ret", "", CODE, GAP, .rsp = G, .mem = { GAP + 0x40 }) \
	X(ret_nx, "", "ret", "", CODE, NX, .rsp = G, .mem = { NX }) \
	X(ret_nc, "", "ret", "", MEM, 0, .rsp = G, .mem = { NC }) \
	X(ret_imm_nc, "", "ret $16", "", MEM, 0, .rsp = G, .mem = { NC }) \
	X(ret_null, "", "ret", "", LEAVE, 0, .rsp = ZERO) \
	X(ljmp, "", "ljmp *(%rsi)", "", LEAVE, 0, .rsi = G, .mem = { LOW | (long)GS << 32 }) \
	X(ljmp_null, "", "ljmp *(%rsi)", "", MEM, GS, .rsi = G, .mem = { LOW }) \
	X(ljmp_kernel, "", "ljmp *(%rsi)", "", MEM, GS, .rsi = G, .mem = { LOW | 0x10L << 32 }) \
	X(ljmp_gap, "", "ljmp *(%rsi)", "", LEAVE, 0, .rsi = GAP) \
	X(lcall, "", "lcall *(%rsi)", "", LEAVE, 0, .rsi = G, .mem = { LOW | (long)GS << 32 }) \
	X(lcall_null, "", "lcall *(%rsi)", "", MEM, GS, .rsi = G, .mem = { LOW }) \
	X(lcall_stack, "", "lcall *(%rsi)", "", MAP, RO, .rsi = G, .mem = { LOW | (long)GS << 32 }, .rsp = RO + 0x800) \
	X(lret, "", "lretq", "", LEAVE, 0, .rsp = G, .mem = { LOW, GS }) \
	X(lret_imm, "", "lretl $8", "", LEAVE, 0, .rsp = G, .mem = { LOW | (long)GS << 32 }) \
	X(lret_null, "", "lretq", "", LEAVE, 0, .rsp = G, .mem = { LOW, 0 }) \
	X(lret_gap, "", "lretq", "", LEAVE, 0, .rsp = GAP) \
	X(iret, "", "iretq", "", LEAVE, 0, .rsp = G, .mem = { LOW, GS, 0xa93, SP, SS }) \
	X(iret_kernel, "", "iretq", "", LEAVE, 0, .rsp = G, .mem = { LOW, 0x10, 0x202, SP, SS }) \
	X(iret_gap, "", "iretq", "", LEAVE, 0, .rsp = GAP) \
	X(iret_nc, "", "iretq", "", LEAVE, 0, .rsp = G, .mem = { NC, GS, 0x202, SP, SS })

#define CASES_ALIGN \
	X(movaps, "", "movaps %xmm0,8(%rsi)", "", REG, REG_RSI, .rsi = G + 0x100) \
	X(cmpxchg16b, "", "lock cmpxchg16b 8(%rsi)", "", REG, REG_RSI, .rsi = G + 0x100) \
	X(ldmxcsr, "", "ldmxcsr (%rsi)", "", MEM, -1, .rsi = G, .mem = { -1 }) \
	X(fxrstor, "", "fxrstor (%rsi)", "", REG, REG_RSI, .rsi = G + 0x108) \
	X(ac_load, "", "mov 1(%rsi),%rax", "", FLAGS, 0, .rsi = G, .flags = AC) \
	X(ac_push, "", "push %rax", "", FLAGS, 0, .rsp = SP + 1, .flags = AC) \
	X(ac_pop, "", "pop %rax", "", FLAGS, 0, .rsp = SP + 1, .flags = AC) \
	X(ac_call, "", "call f_end", "", FLAGS, 0, .rsp = SP + 1, .flags = AC) \
	X(ac_call_mem, "", "call *1(%rsi)", "", FLAGS, 0, .rsi = G, .mem = { LOW << 8 }, .flags = AC) \
	X(ac_jmp_mem, "", "jmp *1(%rsi)", "", FLAGS, 0, .rsi = G, .mem = { LOW << 8 }, .flags = AC) \
	X(ac_ret, "", "ret", "", FLAGS, 0, .rsp = G + 1, .mem = { LOW << 8 }, .flags = AC) \
	X(ac_leave, "", "leave", "", FLAGS, 0, .rbp = SP + 1, .flags = AC) \
	X(ac_off, "", "popf", "", NOTHING, 0, .rsp = G, .mem = { 0x202 }, .flags = AC)

#define CASES_NUMBERS \
	X(div_zero, "", "div %rcx", "", REG, REG_RCX, .rcx = 0, .rdx = 0) \
	X(idiv_over, "", "idiv %ecx", "", REG, REG_RCX, .rax = 0x80000000, .rdx = -1, .rcx = -1) \
	X(div_mem, "", "divb (%rsi)", "", REG, REG_RSI, .rsi = ZERO, .rax = 77) \
	X(fdiv, "fld1\nfldz", "fdivrp", "fwait", FPU, 0, .cw = 0x37b) \
	X(fdiv_mem, "fld1", "fdivl (%rsi)", "fwait", FPU, 0, .rsi = ZERO, .cw = 0x37b) \
	X(fwait, "fld1\nfldz\nfdivrp", "fwait", "", FPU, 0, .cw = 0x37b) \
	X(fld_waits, "fld1\nfldz\nfdivrp", "fld1", "fwait", FPU, 0, .cw = 0x37b) \
	X(fist_invalid, "fldl (%rsi)", "fistps 8(%rsi)", "fwait", FPU, 0, .rsi = G, .mem = { 0x7ff0000000000000 }, .cw = 0x37e) \
	X(fenv, "", "fld1", "fnstenv (%rdi)\nmovl $0,12(%rdi)\nmovl $0,16(%rdi)\nmovq $0,20(%rdi)", NOTHING, 0, .rdi = G) \
	X(fmulp, "fld1\nfldpi", "fmulp", "fstpl (%rdi)", NOTHING, 0, .rdi = G) \
	X(divss, "", "divss %xmm1,%xmm0", "", FPU, 0, .mxcsr = 0x1d80) \
	X(divps_mem, "", "divps (%rsi),%xmm0", "", FPU, 0, .rsi = ZERO, .mxcsr = 0x1d80) \
	X(sqrtsd, "", "sqrtsd %xmm4,%xmm0", "", FPU, 0, .mxcsr = 0x1f00)

#define CASES_PRIVILEGED \
	X(ud0, "", "ud0 (%rsi),%eax", "", LEAVE, 0, .rsi = G) \
	X(ud1, "", "ud1 (%rsi),%eax", "", LEAVE, 0, .rsi = G) \
	X(ud2, "", "ud2", "", LEAVE, 0) \
	X(int1, "", ".byte 0xf1", "", NOTHING, 0) \
	X(int1_inner, "", ".byte 0xf1", "", NOTHING, 0) \
	X(int4, "", "int $4", "", NOTHING, 0) \
	X(int20, "", "int $0x20", "", LEAVE, 0) \
	X(int0, "", "int $0", "", LEAVE, 0) \
	X(int2, "", "int $2", "", LEAVE, 0) \
	X(hlt, "", "hlt", "", LEAVE, 0) \
	X(cli, "", "cli", "", LEAVE, 0) \
	X(sti, "", "sti", "", LEAVE, 0) \
	X(in, "", "in (%dx),%al", "", LEAVE, 0, .rdx = 0x80) \
	X(in_imm, "", "in $0x80,%eax", "", LEAVE, 0) \
	X(out, "", "out %al,(%dx)", "", LEAVE, 0, .rdx = 0x80) \
	X(insb, "", "rep insb", "", LEAVE, 0, .rdi = G, .rcx = 3, .rdx = 0x80) \
	X(outsb, "", "rep outsb", "", LEAVE, 0, .rsi = G, .rcx = 3, .rdx = 0x80) \
	X(cr0, "", "mov %cr0,%rax", "", LEAVE, 0) \
	X(cr3, "", "mov %rax,%cr3", "", LEAVE, 0) \
	X(db7, "", "mov %db7,%rax", "", LEAVE, 0) \
	X(rdmsr, "", "rdmsr", "", LEAVE, 0, .rcx = 0x10) \
	X(wrmsr, "", "wrmsr", "", LEAVE, 0, .rcx = 0x10) \
	X(rdpmc, "", "rdpmc", "", LEAVE, 0, .rcx = 0x1234) \
	X(xgetbv, "", "xgetbv", "", REG, REG_RCX, .rcx = 77) \
	X(xsetbv, "", "xsetbv", "", LEAVE, 0, .rcx = 0) \
	X(lgdt, "", "lgdt (%rsi)", "", LEAVE, 0, .rsi = G) \
	X(lidt, "", "lidt hole(%rip)", "", LEAVE, 0) \
	X(ltr, "", "ltr %ax", "", LEAVE, 0) \
	X(clts, "", "clts", "", LEAVE, 0) \
	X(invlpg, "", "invlpg (%rsi)", "", LEAVE, 0, .rsi = G) \
	X(wbinvd, "", "wbinvd", "", LEAVE, 0) \
	X(swapgs, "", "swapgs", "", LEAVE, 0) \
	X(sysret, "", "sysretq", "", LEAVE, 0) \
	X(sysexit, "", "sysexit", "", LEAVE, 0) \
	X(monitor, "", "monitor", "", LEAVE, 0) \
	X(mov_ss, "", "mov %eax,%ss", "nop", NOTHING, 0, .rax = SS) \
	X(mov_ss_bad, "", "mov %eax,%ss", "", SEG, 0, .rax = GS) \
	X(mov_ds_bad, "", "mov %eax,%ds", "", SEG, 0, .rax = 0x10) \
	X(pop_fs_gap, "", "pop %gs", "", LEAVE, 0, .rsp = GAP) \
	X(lss_bad, "", "lss (%rsi),%eax", "", LEAVE, 0, .rsi = G, .mem = { 7 }) \
	X(wrfsbase, "", "wrgsbase %rax", "", REG0, REG_RAX, .rax = NC, .need = FSGSBASE) \
	X(smsw, "", "smsw %eax", "", NOTHING, 0, .need = UMIP) \
	X(sgdt, "", "sgdt (%rdi)", "", NOTHING, 0, .rdi = G, .need = UMIP) \
	X(sidt_here, "", "sidt room(%rip)", "", NOTHING, 0, .need = UMIP) \
	X(sgdt_gap, "", "sgdt (%rdi)", "", MAP, GAP, .rdi = GAP, .need = UMIP)

#define CASES CASES_MEMORY CASES_STACK CASES_FLOW CASES_ALIGN CASES_NUMBERS CASES_PRIVILEGED
