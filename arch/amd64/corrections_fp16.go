package amd64

// fp16Row is an AVX512-FP16 instruction; pp and s select it in its map.
func fp16Row(s space, lo, hi byte, pp, w uint8, names string) correction {
	return correction{pattern: pattern{space: s, lo: lo, hi: hi, pp: pp, w: w}, names: names, source: "SDM vol. 2D table A-7, AVX512-FP16"}
}

// fp16Corrections are EVEX's opcode maps 5 and 6, in which x86asm sees maps 1
// and 2. They are printed without operands.
var fp16Corrections = []correction{
	fp16Row(evexMap5, 0x10, 0x11, ppF3, w0, "vmovsh vmovsh"),
	fp16Row(evexMap5, 0x1d, 0, ppNone, w0, "vcvtss2sh"),
	fp16Row(evexMap5, 0x1d, 0, pp66, w0, "vcvtps2phx"),
	fp16Row(evexMap5, 0x2a, 0, ppF3, 0, "vcvtsi2sh"),
	fp16Row(evexMap5, 0x2c, 0x2d, ppF3, 0, "vcvttsh2si vcvtsh2si"),
	fp16Row(evexMap5, 0x2e, 0x2f, ppNone, w0, "vucomish vcomish"),
	fp16Row(evexMap5, 0x51, 0, ppNone, w0, "vsqrtph"),
	fp16Row(evexMap5, 0x51, 0, ppF3, w0, "vsqrtsh"),
	fp16Row(evexMap5, 0x58, 0x59, ppNone, w0, "vaddph vmulph"),
	fp16Row(evexMap5, 0x58, 0x59, ppF3, w0, "vaddsh vmulsh"),
	fp16Row(evexMap5, 0x5a, 0, ppNone, w0, "vcvtph2pd"),
	fp16Row(evexMap5, 0x5a, 0, pp66, w1, "vcvtpd2ph"),
	fp16Row(evexMap5, 0x5a, 0, ppF3, w0, "vcvtsh2sd"),
	fp16Row(evexMap5, 0x5a, 0, ppF2, w1, "vcvtsd2sh"),
	fp16Row(evexMap5, 0x5b, 0, ppNone, w0, "vcvtdq2ph"),
	fp16Row(evexMap5, 0x5b, 0, ppNone, w1, "vcvtqq2ph"),
	fp16Row(evexMap5, 0x5b, 0, pp66, w0, "vcvtph2dq"),
	fp16Row(evexMap5, 0x5b, 0, ppF3, w0, "vcvttph2dq"),
	fp16Row(evexMap5, 0x5c, 0x5f, ppNone, w0, "vsubph vminph vdivph vmaxph"),
	fp16Row(evexMap5, 0x5c, 0x5f, ppF3, w0, "vsubsh vminsh vdivsh vmaxsh"),
	fp16Row(evexMap5, 0x6e, 0, pp66, 0, "vmovw"),
	fp16Row(evexMap5, 0x78, 0x79, ppNone, w0, "vcvttph2udq vcvtph2udq"),
	fp16Row(evexMap5, 0x78, 0x79, pp66, w0, "vcvttph2uqq vcvtph2uqq"),
	fp16Row(evexMap5, 0x78, 0x79, ppF3, 0, "vcvttsh2usi vcvtsh2usi"),
	fp16Row(evexMap5, 0x7a, 0x7b, pp66, w0, "vcvttph2qq vcvtph2qq"),
	fp16Row(evexMap5, 0x7a, 0, ppF2, w0, "vcvtudq2ph"),
	fp16Row(evexMap5, 0x7a, 0, ppF2, w1, "vcvtuqq2ph"),
	fp16Row(evexMap5, 0x7b, 0, ppF3, 0, "vcvtusi2sh"),
	fp16Row(evexMap5, 0x7c, 0x7d, ppNone, w0, "vcvttph2uw vcvtph2uw"),
	fp16Row(evexMap5, 0x7c, 0x7d, pp66, w0, "vcvttph2w vcvtph2w"),
	fp16Row(evexMap5, 0x7d, 0, ppF3, w0, "vcvtw2ph"),
	fp16Row(evexMap5, 0x7d, 0, ppF2, w0, "vcvtuw2ph"),
	fp16Row(evexMap5, 0x7e, 0, pp66, 0, "vmovw"),

	fp16Row(evexMap6, 0x13, 0, ppNone, w0, "vcvtsh2ss"),
	fp16Row(evexMap6, 0x13, 0, pp66, w0, "vcvtph2psx"),
	fp16Row(evexMap6, 0x2c, 0x2d, pp66, w0, "vscalefph vscalefsh"),
	fp16Row(evexMap6, 0x42, 0x43, pp66, w0, "vgetexpph vgetexpsh"),
	fp16Row(evexMap6, 0x4c, 0x4f, pp66, w0, "vrcpph vrcpsh vrsqrtph vrsqrtsh"),
	fp16Row(evexMap6, 0x56, 0x57, ppF3, w0, "vfmaddcph vfmaddcsh"),
	fp16Row(evexMap6, 0x56, 0x57, ppF2, w0, "vfcmaddcph vfcmaddcsh"),
	fp16Row(evexMap6, 0xd6, 0xd7, ppF3, w0, "vfmulcph vfmulcsh"),
	fp16Row(evexMap6, 0xd6, 0xd7, ppF2, w0, "vfcmulcph vfcmulcsh"),
	fp16Row(evexMap6, 0x96, 0x9f, pp66, w0, "vfmaddsub132ph vfmsubadd132ph vfmadd132ph vfmadd132sh vfmsub132ph vfmsub132sh vfnmadd132ph vfnmadd132sh vfnmsub132ph vfnmsub132sh"),
	fp16Row(evexMap6, 0xa6, 0xaf, pp66, w0, "vfmaddsub213ph vfmsubadd213ph vfmadd213ph vfmadd213sh vfmsub213ph vfmsub213sh vfnmadd213ph vfnmadd213sh vfnmsub213ph vfnmsub213sh"),
	fp16Row(evexMap6, 0xb6, 0xbf, pp66, w0, "vfmaddsub231ph vfmsubadd231ph vfmadd231ph vfmadd231sh vfmsub231ph vfmsub231sh vfnmadd231ph vfnmadd231sh vfnmsub231ph vfnmsub231sh"),
}
