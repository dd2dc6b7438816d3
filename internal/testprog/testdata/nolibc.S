// A program without libc, vdso use or a stack frame, to build with -static
// -nostdlib: answers each line of input by "ret 42", from a call of answer.
	.text
	.globl _start, answer
	.type answer, @function
answer:
	mov	value(%rip), %eax
	ret
	.size answer, . - answer

	.type _start, @function
_start:
	lea	ready(%rip), %rsi
	mov	$6, %edx
	call	print
1:	xor	%eax, %eax		// read(0, line, 64)
	xor	%edi, %edi
	lea	line(%rip), %rsi
	mov	$64, %edx
	syscall
	test	%rax, %rax
	jle	2f
	call	answer
	cmp	$42, %eax
	jne	3f
	lea	ret42(%rip), %rsi
	mov	$7, %edx
	call	print
	jmp	1b
2:	lea	right(%rip), %rsi
	mov	$6, %edx
	call	print
	xor	%edi, %edi
	jmp	4f
3:	mov	$1, %edi
4:	mov	$231, %eax		// exit_group
	syscall
	.size _start, . - _start

	.type print, @function
print:	mov	$1, %eax
	mov	$1, %edi
	syscall
	ret
	.size print, . - print

	.data
value:	.long 42
ready:	.ascii "ready\n"
ret42:	.ascii "ret 42\n"
right:	.ascii "right\n"
	.bss
	.lcomm line, 64
	.section .note.GNU-stack, "", @progbits
