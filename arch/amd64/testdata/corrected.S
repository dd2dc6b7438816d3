# Instructions that the table of corrections names, one or more a row. Those
# above the mark print with operands, the others with the mnemonic alone.
	.text
	endbr64
	endbr32
	rdsspd	%r12d
	rdsspq	%rax
	incsspd	%r9d
	incsspq	%rdi
	prefetchwt1 64(%rax,%r14,8)
	prefetch (%rax)
	prefetchit0 0x100(%rip)
	prefetchit1 0x100(%rip)
	cldemote 16(%rbp)
	nop	%edi
	nop	%r10
	nopl	%fs:-0x1c(%rcx)
	ptwrite	%rcx
	ptwritel (%rbx)
	ptwriteq 8(%r13)
	tpause	%esi
	umwait	%edx
	umonitor %r10
	senduipi %rdi
	rdpid	%r10
	rdseed	%eax
	rdseed	%ax
	rdseed	%r11
	gf2p8mulb %xmm1, %xmm12
	gf2p8affineqb $0x7b, 0x7f0(%rdx), %xmm5
	gf2p8affineinvqb $1, %xmm9, %xmm5
	aesencwide128kl 0x7e(%rdx)
	aesdecwide128kl 0x7e(%rdx)
	aesencwide256kl 0x7e(%rdx)
	aesdecwide256kl 0x7e(%rdx)
	aesenc128kl 0x7e(%rdx), %xmm2
	aesdec128kl 0x7e(%rdx), %xmm2
	aesenc256kl 0x7e(%rdx), %xmm2
	aesdec256kl 0x7e(%rdx), %xmm2
	loadiwkey %xmm2, %xmm6
	encodekey128 %eax, %edx
	encodekey256 %r8d, %edx
	wrssd	%r12d, (%rax)
	wrssq	%rcx, (%rdx,%r15,1)
	wrussd	%r12d, (%rax)
	wrussq	%rbx, (%rcx,%rax,1)
	adcx	%rdi, %r12
	adcx	0x10(%rip), %eax
	adox	%edi, %r12d
	adox	%fs:(%rsi,%r9,4), %rax
	movdiri	%rax, (%rcx)
	movdir64b 0x1234(%rcx), %rax
	enqcmd	(%r9), %rcx
	enqcmds	(%r9), %rcx
	aadd	%rdx, (%rax)
	aand	%edx, (%rax)
	aor	%rdx, (%rax)
	axor	%edx, (%rax)
	rstorssp (%r12)
	clrssbsy (%rax)
	vmptrld	(%rax)
	vmclear	(%rax)
	vmxon	(%rax)
	vmptrst	(%rax)
	invept	(%rcx), %r11
	invvpid	(%rcx), %r11
	invpcid	(%rcx), %r11
	ud1	(%rax), %edx
	ud0	%eax, %r9d
	lfence
	mfence
	sfence
	.byte	0x0f, 0xae, 0xea
	serialize
	rdpkru
	wrpkru
	xresldtrk
	xsusldtrk
	saveprevssp
	setssbsy
	testui
	clui
	stui
	uiret
	clac
	stac
	enclu
	encls
	enclv
	vmcall
	vmlaunch
	vmresume
	vmxoff
	vmfunc
	vmmcall
	stgi
	clgi
	getsec
	pconfig
	wrmsrns
	rdmsrlist
	wrmsrlist
	tdcall
	seamcall
	seamret
	seamops
	mcommit
	psmash
	vzeroupper
	vzeroall
	tilerelease
	pfadd	(%rax), %mm1
	pswapd	%mm2, %mm3
	pi2fw	8(%rip), %mm1
	pavgusb	0x10(%rbx,%rcx,4), %mm7
	femms
	extrq	%xmm2, %xmm1
	insertq	%xmm2, %xmm11
	xstore
	.byte	0xc0, 0xf0, 3
	.byte	0xc1, 0x70, 3, 5
	.byte	0x66, 0xd3, 0x30
	.byte	0x48, 0xd3, 0xf1
	.byte	0xf6, 0xc8, 7
	.byte	0xf7, 0x48, 8, 1, 0, 0, 0
# with the mnemonic alone
names:
	vmload
	vmsave
	vmrun
	skinit
	invlpga
	hreset	$0
	clzero
	rdpru
	monitorx
	mwaitx
	invlpgb
	tlbsync
	rmpquery
	rmpadjust
	rmpupdate
	pvalidate
	mov	%cr0, %rax
	vmread	%rax, %rbx
	vmwrite	(%rax), %rbx
	ldtilecfg (%rbx)
	sttilecfg (%rbx)
	tilezero %tmm7
	tileloadd (%rcx,%rdx,2), %tmm1
	tileloaddt1 (%rcx,%rdx,2), %tmm1
	tilestored %tmm1, (%rcx,%rdx,2)
	tdpbf16ps %tmm5, %tmm4, %tmm3
	tdpfp16ps %tmm5, %tmm4, %tmm3
	tdpbuud	%tmm3, %tmm2, %tmm1
	tdpbusd	%tmm3, %tmm2, %tmm1
	tdpbsud	%tmm3, %tmm2, %tmm1
	tdpbssd	%tmm3, %tmm2, %tmm1
	cmpoxadd %rbx, %rcx, (%rdx)
	cmpnlexadd %rbx, %rcx, (%rdx)
	vfmaddsubps %xmm4, (%rcx), %xmm2, %xmm7
	vfmsubaddpd %xmm4, (%rcx), %xmm2, %xmm7
	vfmaddps %xmm4, (%rcx), %xmm2, %xmm7
	vfmsubsd %xmm4, (%rcx), %xmm2, %xmm7
	vfnmaddsd %xmm4, (%rcx), %xmm2, %xmm7
	vfnmsubss %xmm4, (%rcx), %xmm2, %xmm7
	vmovsh	(%rcx), %xmm1
	vmovsh	%xmm1, (%rcx)
	vcvtss2sh %xmm1, %xmm2, %xmm3
	vcvtps2phx %zmm1, %ymm2
	vcvtsi2sh %eax, %xmm1, %xmm2
	vcvttsh2si %xmm1, %rax
	vcvtsh2si %xmm1, %eax
	vucomish %xmm1, %xmm2
	vcomish	%xmm1, %xmm2
	vsqrtph	%zmm1, %zmm2
	vsqrtsh	%xmm1, %xmm2, %xmm3
	vaddph	{rn-sae}, %zmm1, %zmm2, %zmm3
	vmulsh	%xmm1, %xmm2, %xmm3
	vcvtph2pd %xmm1, %zmm2
	vcvtpd2ph %zmm1, %xmm2
	vcvtsh2sd %xmm1, %xmm2, %xmm3
	vcvtsd2sh %xmm1, %xmm2, %xmm3
	vcvtdq2ph %zmm1, %ymm2
	vcvtqq2ph %zmm1, %xmm2
	vcvtph2dq %ymm1, %zmm2
	vcvttph2dq %ymm1, %zmm2
	vsubph	%zmm1, %zmm2, %zmm3
	vminsh	%xmm1, %xmm2, %xmm3
	vdivph	%zmm1, %zmm2, %zmm3
	vmaxsh	%xmm1, %xmm2, %xmm3
	vmovw	%eax, %xmm1
	vmovw	%xmm1, %eax
	vcvttph2udq %ymm1, %zmm2
	vcvtph2udq %ymm1, %zmm2
	vcvttph2uqq %xmm1, %zmm2
	vcvtph2uqq %xmm1, %zmm2
	vcvttsh2usi %xmm1, %eax
	vcvtsh2usi %xmm1, %rax
	vcvttph2qq %xmm1, %zmm2
	vcvtph2qq %xmm1, %zmm2
	vcvtudq2ph %zmm1, %ymm2
	vcvtuqq2ph %zmm1, %xmm2
	vcvtusi2sh %eax, %xmm1, %xmm2
	vcvttph2uw %zmm1, %zmm2
	vcvtph2uw %zmm1, %zmm2
	vcvttph2w %zmm1, %zmm2
	vcvtph2w %zmm1, %zmm2
	vcvtw2ph %zmm1, %zmm2
	vcvtuw2ph %zmm1, %zmm2
	vcvtsh2ss %xmm1, %xmm2, %xmm3
	vcvtph2psx %ymm1, %zmm2
	vscalefph %zmm1, %zmm2, %zmm3
	vgetexpsh %xmm1, %xmm2, %xmm3
	vrcpph	%zmm1, %zmm2
	vrsqrtsh %xmm1, %xmm2, %xmm3
	vfmaddcph %zmm1, %zmm2, %zmm3
	vfcmaddcsh %xmm1, %xmm2, %xmm3
	vfmulcph %zmm1, %zmm2, %zmm3
	vfcmulcsh %xmm1, %xmm2, %xmm3
	vfmaddsub132ph %zmm1, %zmm2, %zmm3
	vfnmsub213sh %xmm1, %xmm2, %xmm3
	vfmadd231ph %zmm1, %zmm2, %zmm3
	bndmk	(%rax), %bnd1
	bndldx	(%rax,%rbx), %bnd2
	bndstx	%bnd2, (%rax,%rbx)
	bndcl	(%rax), %bnd1
	bndcu	8(%rip), %bnd1
	bndcn	%rax, %bnd1
	bndmov	%bnd1, %bnd2
	bndmov	%bnd1, (%rax)
	extrq	$2, $3, %xmm1
	insertq	$2, $3, %xmm1, %xmm2
	vpermil2ps $1, %xmm1, %xmm2, %xmm3, %xmm4
	vaddph	(%rcx), %zmm2, %zmm7
	vfcmulcsh %xmm4, %xmm2, %xmm7
	vmovw	(%rcx), %xmm2
