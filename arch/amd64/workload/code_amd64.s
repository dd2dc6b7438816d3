#include "textflag.h"

// The code that is measured, by the C calling convention: it is copied into a shared object
// (package bench), so that it is no Go code to anybody. Each function begins at a multiple of 64
// bytes, which Functions names. RDI is a block (package bench, target.go), RSI a number.
//
// What a probed function does is total += number; return total.
TEXT ·machineCode(SB), NOSPLIT|NOFRAME, $0-0
	// +0 foo: begins with a move from memory, which the kernel's uprobes step.
	MOVQ (DI), AX
	ADDQ SI, AX
	MOVQ AX, (DI)
	RET
	PCALIGN $64

	// +64 foo_push: begins as most functions do; the kernel's uprobes emulate the push.
	PUSHQ BP
	MOVQ SP, BP
	MOVQ (DI), AX
	ADDQ SI, AX
	MOVQ AX, (DI)
	POPQ BP
	RET
	PCALIGN $64

	// +128 foo_nop: begins with the 5-byte nop, which the kernel's uprobes overwrite with a call.
	BYTE $0x0f; BYTE $0x1f; BYTE $0x44; BYTE $0x00; BYTE $0x00
	MOVQ (DI), AX
	ADDQ SI, AX
	MOVQ AX, (DI)
	RET
	PCALIGN $64

	// +192 foo_jump: foo with a detour that does nothing.
	JMP jump_detour
jump_back:
	MOVQ AX, (DI)
	RET
	PCALIGN $64

	// +256 foo_count: foo with a detour that counts.
	JMP count_detour
count_back:
	MOVQ AX, (DI)
	RET
	PCALIGN $64

	// +320 foo_record: foo with a detour that records.
	JMP record_detour
record_back:
	MOVQ AX, (DI)
	RET
	PCALIGN $64

	// +384 hot: calls the function RDX with the block RDI and the number 1, RSI times.
	PUSHQ BX
	PUSHQ R12
	PUSHQ R13
	MOVQ DI, R12
	MOVQ SI, BX
	MOVQ DX, R13
hot_next:
	MOVQ R12, DI
	MOVL $1, SI
	CALL R13
	DECQ BX
	JNZ hot_next
	POPQ R13
	POPQ R12
	POPQ BX
	RET
	PCALIGN $64

	// +448 trap: a breakpoint, RSI times. A tracer must swallow them.
	BYTE $0xcc
	DECQ SI
	JNZ -2(PC)
	RET
	PCALIGN $64

	// +512 foo_call: foo that makes a system call first, which does next to nothing: getppid.
	MOVL $110, AX
	SYSCALL
	MOVQ (DI), AX
	ADDQ SI, AX
	MOVQ AX, (DI)
	RET
	PCALIGN $64

	// The detours, too far away for a short jump, as a real one is.
	PCALIGN $512
jump_detour:
	MOVQ (DI), AX
	ADDQ SI, AX
	JMP jump_back

	// Counts at block+64, skipping the red zone, with what is changed put back.
count_detour:
	LEAQ -128(SP), SP
	PUSHQ AX
	LAHF
	SETOS AX
	LOCK
	INCQ 64(DI)
	ADDB $127, AX
	SAHF
	POPQ AX
	LEAQ 128(SP), SP
	MOVQ (DI), AX
	ADDQ SI, AX
	JMP count_back

	// Records flags, time and 15 registers in a ring of 256 entries of 256 bytes at
	// block+4096; the next entry's offset is at block+128.
record_detour:
	LEAQ -128(SP), SP
	PUSHFQ
	PUSHQ AX
	PUSHQ CX
	PUSHQ DX
	MOVL $256, CX
	LOCK
	XADDQ CX, 128(DI)
	MOVWLZX CX, CX
	LEAQ 4096(DI)(CX*1), CX
	MOVQ DI, 0(CX)
	MOVQ SI, 8(CX)
	MOVQ AX, 16(CX)
	MOVQ BX, 24(CX)
	MOVQ BP, 32(CX)
	MOVQ R8, 40(CX)
	MOVQ R9, 48(CX)
	MOVQ R10, 56(CX)
	MOVQ R11, 64(CX)
	MOVQ R12, 72(CX)
	MOVQ R13, 80(CX)
	MOVQ R14, 88(CX)
	MOVQ R15, 96(CX)
	MOVQ DX, 104(CX)
	MOVQ 8(SP), AX
	MOVQ AX, 112(CX)
	MOVQ 24(SP), AX
	MOVQ AX, 120(CX)
	RDTSC
	SHLQ $32, DX
	ORQ DX, AX
	MOVQ AX, 128(CX)
	MOVQ $1, 136(CX)
	POPQ DX
	POPQ CX
	POPQ AX
	POPFQ
	LEAQ 128(SP), SP
	MOVQ (DI), AX
	ADDQ SI, AX
	JMP record_back
	PCALIGN $1024

// func codeStart() uintptr
TEXT ·codeStart(SB), NOSPLIT, $0-8
	LEAQ ·machineCode(SB), AX
	MOVQ AX, ret+0(FP)
	RET

// func Enter(fn, block, number, third uintptr)
//
// The frame is for what fn and a probe's detour put on the stack.
TEXT ·Enter(SB), 0, $4096-32
	MOVQ fn+0(FP), AX
	MOVQ block+8(FP), DI
	MOVQ number+16(FP), SI
	MOVQ third+24(FP), DX
	CALL AX
	RET
