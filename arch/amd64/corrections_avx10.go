package amd64

// avx10Row is an instruction that AVX10.2 or MOVRS added to EVEX's map 5 or 6.
func avx10Row(s space, lo, hi byte, pp, w uint8, names string) correction {
	return correction{pattern{space: s, lo: lo, hi: hi, pp: pp, w: w}, names, "", noOperands, "Intel AVX10.2 Architecture Specification (361050)"}
}

// avx10Corrections follow fp16Corrections in the maps 5 and 6, printed without
// operands. x86asm knows what AVX10.2 added to the other maps.
var avx10Corrections = []correction{
	avx10Row(evexMap5, 0x18, 0, ppNone, w0, "vcvtbiasph2hf8"),
	avx10Row(evexMap5, 0x18, 0, ppF3, w0, "vcvtph2hf8"),
	avx10Row(evexMap5, 0x18, 0, ppF2, w0, "vcvt2ph2hf8"),
	avx10Row(evexMap5, 0x1b, 0, ppNone, w0, "vcvtbiasph2hf8s"),
	avx10Row(evexMap5, 0x1b, 0, ppF3, w0, "vcvtph2hf8s"),
	avx10Row(evexMap5, 0x1b, 0, ppF2, w0, "vcvt2ph2hf8s"),
	avx10Row(evexMap5, 0x1e, 0, ppF2, w0, "vcvthf82ph"),
	avx10Row(evexMap5, 0x2e, 0x2f, ppF3, w0, "vucomxsh vcomxsh"),
	avx10Row(evexMap5, 0x2f, 0, pp66, w0, "vcomisbf16"),
	avx10Row(evexMap5, 0x51, 0, pp66, w0, "vsqrtbf16"),
	avx10Row(evexMap5, 0x58, 0x59, pp66, w0, "vaddbf16 vmulbf16"),
	avx10Row(evexMap5, 0x5c, 0x5f, pp66, w0, "vsubbf16 vminbf16 vdivbf16 vmaxbf16"),
	avx10Row(evexMap5, 0x68, 0x6b, ppNone, w0, "vcvttph2ibs vcvtph2ibs vcvttph2iubs vcvtph2iubs"),
	avx10Row(evexMap5, 0x68, 0x6b, pp66, w0, "vcvttps2ibs vcvtps2ibs vcvttps2iubs vcvtps2iubs"),
	avx10Row(evexMap5, 0x68, 0x6b, ppF2, w0, "vcvttbf162ibs vcvtbf162ibs vcvttbf162iubs vcvtbf162iubs"),
	avx10Row(evexMap5, 0x6c, 0x6d, ppNone, w0, "vcvttps2udqs vcvttps2dqs"),
	avx10Row(evexMap5, 0x6c, 0x6d, ppNone, w1, "vcvttpd2udqs vcvttpd2dqs"),
	avx10Row(evexMap5, 0x6c, 0x6d, pp66, w0, "vcvttps2uqqs vcvttps2qqs"),
	avx10Row(evexMap5, 0x6c, 0x6d, pp66, w1, "vcvttpd2uqqs vcvttpd2qqs"),
	avx10Row(evexMap5, 0x6c, 0x6d, ppF3, 0, "vcvttss2usis vcvttss2sis"),
	avx10Row(evexMap5, 0x6c, 0x6d, ppF2, 0, "vcvttsd2usis vcvttsd2sis"),
	avx10Row(evexMap5, 0x6e, 0, ppF3, w0, "vmovw"),
	avx10Row(evexMap5, 0x6f, 0, ppF3, w0, "vmovrsd"),
	avx10Row(evexMap5, 0x6f, 0, ppF3, w1, "vmovrsq"),
	avx10Row(evexMap5, 0x6f, 0, ppF2, w0, "vmovrsb"),
	avx10Row(evexMap5, 0x6f, 0, ppF2, w1, "vmovrsw"),
	avx10Row(evexMap5, 0x74, 0, ppNone, w0, "vcvtbiasph2bf8s"),
	avx10Row(evexMap5, 0x74, 0, ppF3, w0, "vcvtph2bf8s"),
	avx10Row(evexMap5, 0x74, 0, ppF2, w0, "vcvt2ph2bf8s"),
	avx10Row(evexMap5, 0x7e, 0, ppF3, w0, "vmovw"),

	avx10Row(evexMap6, 0x2c, 0, ppNone, w0, "vscalefbf16"),
	avx10Row(evexMap6, 0x42, 0, ppNone, w0, "vgetexpbf16"),
	avx10Row(evexMap6, 0x4c, 0, ppNone, w0, "vrcpbf16"),
	avx10Row(evexMap6, 0x4e, 0, ppNone, w0, "vrsqrtbf16"),
	avx10Row(evexMap6, 0x98, 0, ppNone, w0, "vfmadd132bf16"),
	avx10Row(evexMap6, 0x9a, 0, ppNone, w0, "vfmsub132bf16"),
	avx10Row(evexMap6, 0x9c, 0, ppNone, w0, "vfnmadd132bf16"),
	avx10Row(evexMap6, 0x9e, 0, ppNone, w0, "vfnmsub132bf16"),
	avx10Row(evexMap6, 0xa8, 0, ppNone, w0, "vfmadd213bf16"),
	avx10Row(evexMap6, 0xaa, 0, ppNone, w0, "vfmsub213bf16"),
	avx10Row(evexMap6, 0xac, 0, ppNone, w0, "vfnmadd213bf16"),
	avx10Row(evexMap6, 0xae, 0, ppNone, w0, "vfnmsub213bf16"),
	avx10Row(evexMap6, 0xb8, 0, ppNone, w0, "vfmadd231bf16"),
	avx10Row(evexMap6, 0xba, 0, ppNone, w0, "vfmsub231bf16"),
	avx10Row(evexMap6, 0xbc, 0, ppNone, w0, "vfnmadd231bf16"),
	avx10Row(evexMap6, 0xbe, 0, ppNone, w0, "vfnmsub231bf16"),
}
