# One instruction of every kind that is copied or relocated. The test links this
# at codeAt and gives data, an aligned address in the middle of a data area, and
# fsdata, its offset from the base of fs.
# rbx, rsi and rdi point into data, rsp and rbp into a stack, rcx is small.
	.text
	.globl _start
_start:
# integer, relative to rip, with and without immediates behind the displacement
	mov	data(%rip), %rax
	mov	%r9d, data+8(%rip)
	mov	%al, data+3(%rip)
	movb	$0x12, data+1(%rip)
	movw	$0x1234, data+2(%rip)
	movl	$0x12345678, data+4(%rip)
	movq	$-5, data+8(%rip)
	lea	data+16(%rip), %r10
	lea	data+16(%rip), %r10d
	add	$1, %rax
	addl	$0x7f, data(%rip)
	addl	$0x11223344, data(%rip)
	addw	$0x1122, data(%rip)
	addq	$0x11223344, data(%rip)
	adc	data(%rip), %rdx
	sbb	%rdx, data(%rip)
	cmpb	$3, data(%rip)
	cmpq	$-1, data(%rip)
	testl	$0x55555555, data(%rip)
	testb	$0x55, data(%rip)
	notq	data(%rip)
	negw	data(%rip)
	mulq	data(%rip)
	imul	$7, data(%rip), %rcx
	imul	$0x1234567, data(%rip), %r15d
	imul	data(%rip), %r8
	incb	data(%rip)
	decq	data(%rip)
	shlq	$3, data(%rip)
	sarl	%cl, data(%rip)
	rolb	data(%rip)
	shld	$5, %rax, data(%rip)
	shrd	%cl, %rdx, data(%rip)
	btsq	$9, data(%rip)
	bt	%eax, %edx
	xchg	%rax, data(%rip)
	cmpxchg	%rdx, data(%rip)
	cmpxchg8b data(%rip)
	cmpxchg16b data(%rip)
	xadd	%ecx, data(%rip)
	lock addl $1, data(%rip)
	lock incq data(%rip)
	lock cmpxchg %r11, data(%rip)
	lock btsl $3, data(%rip)
	setne	data(%rip)
	cmovl	data(%rip), %r12
	movzbl	data(%rip), %eax
	movswq	data(%rip), %r14
	movslq	data(%rip), %rdi
	movbe	data(%rip), %rdx
	bswap	%r9
	popcnt	data(%rip), %eax
	lzcnt	data(%rip), %rax
	tzcnt	data(%rip), %eax
	bsf	data(%rip), %rax
	crc32b	data(%rip), %eax
	crc32q	data(%rip), %rax
	adcx	data(%rip), %rax
	adox	%r9, %r10
	pushq	data(%rip)
	popq	data(%rip)
	movabs	data, %eax
	movabs	$0x1122334455667788, %r11
	mov	$0x11223344, %r11d
	movnti	%rax, data(%rip)
	prefetcht0 data(%rip)
	prefetchw data(%rip)
	nopw	0x0(%rax,%rax,1)
	nopl	data(%rip)
	clflush	data(%rip)
	clflushopt data(%rip)
	clwb	data(%rip)
	movdiri	%rax, data(%rip)
	movdir64b (%rbx), %rsi
	cldemote data(%rip)
# stack and flags
	push	%rbp
	push	%rsp
	push	$0x12345678
	pop	%r13
	pop	%rsp
	pushf
	enter	$32, $0
	enter	$16, $2
	leave
	cld
	std
	stc
	cmc
	lahf
	sahf
	cltq
	cqto
	xlat
# strings
	movsb
	movsq
	rep movsb
	rep movsq
	rep stosl
	repe cmpsb
	repne scasb
	lodsq
# system, unprivileged
	xgetbv
	rdpkru
	cpuid
	rdfsbase %rax
	wrgsbase %rsi
	mov	%fs, %eax
	fxsave	data(%rip)
	ldmxcsr	mxcsr(%rip)
	stmxcsr	data(%rip)
	fwait
	mfence
	serialize
	xtest
	endbr64
	rdsspq	%rax
	verr	data(%rip)
	pause
# x87 and MMX
	fldl	data(%rip)
	fildll	data(%rip)
	fldcw	fcw(%rip)
	fnstcw	data(%rip)
	faddl	data(%rip)
	fld1
	fstpt	data(%rip)
	fnstsw	%ax
	movq	data(%rip), %mm1
	pshufw	$0x1b, data(%rip), %mm2
	emms
# SSE to SSE4, AES, SHA, GFNI
	movups	data(%rip), %xmm1
	movaps	%xmm1, data(%rip)
	movsd	data(%rip), %xmm14
	addss	data(%rip), %xmm2
	cmpps	$3, data(%rip), %xmm3
	shufps	$0x1b, data(%rip), %xmm4
	pshufd	$0x39, data(%rip), %xmm5
	cvtsi2sdq data(%rip), %xmm6
	cvttsd2si data(%rip), %rax
	pinsrw	$2, data(%rip), %xmm7
	pextrq	$1, %xmm7, data(%rip)
	pextrb	$1, %xmm7, data(%rip)
	insertps $0x10, data(%rip), %xmm8
	roundsd	$3, data(%rip), %xmm9
	palignr	$5, data(%rip), %xmm10
	pcmpistri $0x18, data(%rip), %xmm11
	pshufb	data(%rip), %xmm12
	aesenc	data(%rip), %xmm13
	aeskeygenassist $1, data(%rip), %xmm1
	sha1rnds4 $2, data(%rip), %xmm1
	sha256msg1 data(%rip), %xmm2
	gf2p8affineqb $3, data(%rip), %xmm3
	gf2p8mulb data(%rip), %xmm4
	movntdqa data(%rip), %xmm5
# VEX
	vmovups	data(%rip), %ymm1
	vmovdqa	%ymm1, data(%rip)
	vaddps	data(%rip), %ymm2, %ymm3
	vpshufd	$0x1b, data(%rip), %ymm4
	vblendvps %ymm1, data(%rip), %ymm2, %ymm5
	vperm2i128 $0x21, data(%rip), %ymm1, %ymm6
	vinserti128 $1, data(%rip), %ymm1, %ymm7
	vpbroadcastd data(%rip), %ymm8
	vpgatherdd %xmm3, data-data(%rbx,%xmm4,1), %xmm5
	vfmadd231pd data(%rip), %ymm1, %ymm2
	vcvtph2ps data(%rip), %ymm9
	vaesenc	data(%rip), %ymm1, %ymm2
	vzeroupper
	vzeroall
	andn	data(%rip), %rax, %rdx
	rorx	$7, data(%rip), %r9
	bextr	%rcx, data(%rip), %rax
	pdep	data(%rip), %rax, %r10
	mulx	data(%rip), %rax, %rdx
	kmovq	data(%rip), %k1
	kshiftlq $3, %k1, %k2
# EVEX
	vmovups	data(%rip), %zmm17
	vmovdqu8 %zmm17, data(%rip)
	vaddps	data(%rip), %zmm2, %zmm30
	vaddps	data(%rip){1to16}, %zmm2, %zmm3{%k1}{z}
	vaddps	64(%rbx), %zmm2, %zmm3
	vpternlogd $0x96, data(%rip), %zmm2, %zmm5
	vpcmpub	$2, data(%rip), %zmm1, %k3
	valignq	$3, data(%rip), %zmm1, %zmm6
	vpermb	data(%rip), %zmm1, %zmm7
	vcvtps2pd {sae}, %ymm1, %zmm2
	vaddpd	{rz-sae}, %zmm1, %zmm2, %zmm3
	vgetmantpd $4, data(%rip), %zmm8
	vpopcntq data(%rip), %zmm9
	vaddph	data(%rip), %zmm1, %zmm10
	vfmaddcph data(%rip), %zmm1, %zmm11
	vreduceph $3, data(%rip), %zmm12
	vcmpph	$1, data(%rip), %zmm1, %k2
	vpcompressd %zmm1, data(%rip)
	vextracti64x4 $1, %zmm1, data(%rip)
# segments
	mov	%fs:0, %rax
	mov	%gs:8(%rcx), %rdx
	add	%rax, %fs:16
	mov	%fs:fsdata(%rip), %rax
	mov	%ds:(%rbx), %rax
# sizes and prefixes
	addr32 mov (%ebx), %rax
	.byte	0x66, 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0
	.byte	0xf3, 0x90
	.byte	0x66, 0x90
	.byte	0x48, 0x90
	.byte	0x2e, 0x89, 0xc8
	.byte	0x48, 0x26, 0x01, 0xc8
