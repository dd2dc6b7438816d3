package realprog

import (
	"fmt"
	"strings"
	"testing"
)

// caps are OPENSSL_ia32cap_P: the processor's abilities as libcrypto knows them, of
// CPUID's leaf 1 in edx and ecx and of its leaf 7 in ebx and ecx (OPENSSL_ia32cap(3)).
type caps [4]uint32

// Bits of caps.
var (
	capIntel  = caps{0: 1 << 30} // not CPUID's: set where the vendor is Intel
	capPCLMUL = caps{1: 1 << 1}
	capSSSE3  = caps{1: 1 << 9}
	capMOVBE  = caps{1: 1 << 22}
	capAES    = caps{1: 1 << 25}
	capAVX    = caps{1: 1 << 28}
	capAVX2   = caps{2: 1<<5 | 1<<3 | 1<<8} // with BMI1 and BMI2
	capADX    = caps{2: 1 << 19}
	capAVX512 = caps{2: 1<<16 | 1<<17 | 1<<30 | 1<<31}
	capIFMA   = caps{2: 1 << 21}
	capSHA    = caps{2: 1 << 29}
)

func (c caps) with(o caps) caps {
	for i := range c {
		c[i] |= o[i]
	}
	return c
}

func (c caps) without(os ...caps) caps {
	for _, o := range os {
		for i := range c {
			c[i] &^= o[i]
		}
	}
	return c
}

func (c caps) has(o caps) bool { return c.with(o) == c }

func (c caps) env() string {
	return fmt.Sprintf("OPENSSL_ia32cap=%#x:%#x", uint64(c[1])<<32|uint64(c[0]), uint64(c[3])<<32|uint64(c[2]))
}

// cryptoCase is a work and the functions that do it. The first must run.
type cryptoCase struct {
	needs     caps
	work      string
	functions string
}

const (
	aesniCore = " aesni_encrypt aesni_decrypt aesni_set_encrypt_key __aesni_set_encrypt_key aesni_set_decrypt_key" +
		" _aesni_encrypt2 _aesni_encrypt3 _aesni_encrypt4 _aesni_encrypt6 _aesni_encrypt8" +
		" _aesni_decrypt2 _aesni_decrypt3 _aesni_decrypt4 _aesni_decrypt6 _aesni_decrypt8"
	vpaesCore = " vpaes_set_encrypt_key vpaes_set_decrypt_key vpaes_encrypt vpaes_decrypt _vpaes_encrypt_core _vpaes_decrypt_core" +
		" _vpaes_preheat _vpaes_schedule_core _vpaes_schedule_192_smear _vpaes_schedule_round _vpaes_schedule_low_round" +
		" _vpaes_schedule_transform _vpaes_schedule_mangle"
	bsaesCore = " _bsaes_encrypt8 _bsaes_encrypt8_bitslice _bsaes_decrypt8 _bsaes_key_convert"
	plainAES  = " AES_decrypt AES_set_encrypt_key AES_set_decrypt_key _x86_64_AES_encrypt _x86_64_AES_decrypt" +
		" _x86_64_AES_encrypt_compact _x86_64_AES_decrypt_compact _x86_64_AES_set_encrypt_key"
	chachaCore = " ChaCha20_ctr32 poly1305_init poly1305_blocks poly1305_emit"
)

// cryptoSetting is a processor with and without some of its abilities.
type cryptoSetting struct {
	name  string
	caps  caps
	cases []cryptoCase
}

// cryptoSettings are who does the works then.
func cryptoSettings(all caps) []cryptoSetting {
	return []cryptoSetting{
		{"all", all, []cryptoCase{
			{capSHA, "sha1", "sha1_block_data_order_shaext sha1_block_data_order"},
			{capSHA, "sha256", "sha256_block_data_order_shaext sha256_block_data_order"},
			{capAVX2, "sha512", "sha512_block_data_order_avx2 sha512_block_data_order"},
			{caps{}, "sha3", "__KeccakF1600 KeccakF1600 SHA3_absorb SHA3_squeeze"},
			{capAES, "ecb", "aesni_ecb_encrypt" + aesniCore},
			{capAES, "cbc", "aesni_cbc_encrypt" + aesniCore},
			{capAES, "ctr", "aesni_ctr32_encrypt_blocks" + aesniCore},
			{capAES, "xts", "aesni_xts_encrypt aesni_xts_decrypt" + aesniCore},
			{capAES.with(capAVX).with(capMOVBE).with(capPCLMUL), "gcm", "aesni_gcm_encrypt aesni_gcm_decrypt _aesni_ctr32_ghash_6x" +
				" _aesni_ctr32_6x gcm_init_avx gcm_gmult_avx gcm_ghash_avx aesni_ctr32_encrypt_blocks" + aesniCore},
			{capAVX512.with(capIFMA), "chacha", "ChaCha20_16x ChaCha20_avx512 ChaCha20_avx512vl ChaCha20_8xvl" +
				" poly1305_init_base2_44 poly1305_blocks_vpmadd52 poly1305_blocks_vpmadd52_4x poly1305_blocks_vpmadd52_8x poly1305_emit_base2_44" + chachaCore},
			{capAVX2.with(capADX), "power", "bn_mulx4x_mont bn_mul_mont bn_sqr8x_mont bn_sqrx8x_internal __bn_sqrx8x_reduction __bn_postx4x_internal"},
		}},
		{"no SHA, no AVX-512", all.without(capSHA, capAVX512, capIFMA), []cryptoCase{
			{capAVX2, "sha1", "sha1_block_data_order_avx2 sha1_block_data_order"},
			{capAVX2, "sha256", "sha256_block_data_order_avx2 sha256_block_data_order"},
			{capAVX2, "chacha", "ChaCha20_8x poly1305_blocks_avx2 poly1305_blocks_avx __poly1305_block __poly1305_init_avx poly1305_emit_avx" + chachaCore},
		}},
		{"AVX of an Intel", all.with(capIntel).without(capSHA, capAVX512, capIFMA, capAVX2, capADX), []cryptoCase{
			{capAVX, "sha1", "sha1_block_data_order_avx sha1_block_data_order"},
			{capAVX, "sha256", "sha256_block_data_order_avx sha256_block_data_order"},
			{capAVX, "sha512", "sha512_block_data_order_avx sha512_block_data_order"},
			{capAVX, "chacha", "poly1305_blocks_avx ChaCha20_4x ChaCha20_ssse3 __poly1305_block __poly1305_init_avx poly1305_emit_avx" + chachaCore},
			{caps{}, "power", "bn_mul4x_mont bn_mul_mont bn_sqr8x_mont bn_sqr8x_internal __bn_sqr8x_reduction __bn_post4x_internal"},
		}},
		{"no AVX", all.without(capSHA, capAVX512, capIFMA, capAVX2, capAVX, capADX), []cryptoCase{
			{capAES.with(capPCLMUL), "gcm", "gcm_ghash_clmul gcm_init_clmul gcm_gmult_clmul aesni_ctr32_encrypt_blocks" + aesniCore},
		}},
		{"SSSE3", all.without(capSHA, capAVX512, capIFMA, capAVX2, capAVX, capADX, capAES, capPCLMUL), []cryptoCase{
			{capSSSE3, "sha1", "sha1_block_data_order_ssse3 sha1_block_data_order"},
			{capSSSE3, "sha256", "sha256_block_data_order_ssse3 sha256_block_data_order"},
			{capSSSE3, "ecb", "vpaes_encrypt" + vpaesCore},
			{capSSSE3, "cbc", "vpaes_cbc_encrypt ossl_bsaes_cbc_encrypt" + bsaesCore + vpaesCore},
			{capSSSE3, "ctr", "ossl_bsaes_ctr32_encrypt_blocks" + bsaesCore + vpaesCore},
			{capSSSE3, "xts", "ossl_bsaes_xts_encrypt ossl_bsaes_xts_decrypt" + bsaesCore + vpaesCore},
			{capSSSE3, "chacha", "ChaCha20_ssse3 ChaCha20_4x ChaCha20_128" + chachaCore},
		}},
		{"neither", all.without(capSHA, capAVX512, capIFMA, capAVX2, capAVX, capADX, capAES, capPCLMUL, capSSSE3), []cryptoCase{
			{caps{}, "sha1", "sha1_block_data_order"},
			{caps{}, "sha256", "sha256_block_data_order"},
			{caps{}, "sha512", "sha512_block_data_order"},
			{caps{}, "ecb", "AES_encrypt" + plainAES},
			{caps{}, "cbc", "AES_cbc_encrypt" + plainAES},
			{caps{}, "gcm", "gcm_ghash_4bit gcm_gmult_4bit AES_encrypt" + plainAES},
			{caps{}, "chacha", "ChaCha20_ctr32 poly1305_init poly1305_blocks poly1305_emit"},
		}},
	}
}

// TestWholeFunctionsOfLibcrypto: each implementation of its hashes and ciphers that
// this processor can run.
func TestWholeFunctionsOfLibcrypto(t *testing.T) {
	bin := buildWork(t, "crypto", "libcrypto.a", "libssl-dev")
	code := disassemble(t, bin)
	for _, of := range cryptoSettings(capable(t, startWork(t, code, bin))) {
		t.Run(of.name, func(t *testing.T) {
			w := startWork(t, code, bin, of.caps.env())
			if got := capable(t, w); got != of.caps {
				t.Errorf("libcrypto says %#x, asked for %#x", got, of.caps)
			}
			for _, c := range of.cases {
				if !of.caps.has(c.needs) {
					t.Logf("this processor cannot do %s", c.functions)
					continue
				}
				t.Run(c.work, func(t *testing.T) {
					w.varies = c.work == "power" // by the distance of heap and stack
					functions := strings.Fields(c.functions)
					if ran := w.test(t, c.work, functions...); ran[functions[0]] == 0 {
						t.Errorf("%s did not run: %v", functions[0], ran)
					}
				})
			}
			w.quit(t)
		})
	}
}

func capable(t testing.TB, w *whole) (c caps) {
	t.Helper()
	if _, err := fmt.Sscanf(w.prog.Expect("capable"), "capable %v %v %v %v", &c[0], &c[1], &c[2], &c[3]); err != nil {
		t.Fatal(err)
	}
	return c
}
