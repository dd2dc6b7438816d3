// Works of libcrypto. OPENSSL_ia32cap chooses which of its implementations run.
#include "work.h"

#include <openssl/bn.h>
#include <openssl/evp.h>

// What the library has found the processor to be able to do, in its order of bits.
extern unsigned OPENSSL_ia32cap_P[4];

static unsigned char data[2048];

static void fill(void)
{
	for (size_t i = 0; i < sizeof data; i++)
		data[i] = number();
}

static void hash(const char *name)
{
	// One block, its remainder beyond what fits, and many.
	static const int lengths[] = {3, 63, 129, 448};
	EVP_MD *md = EVP_MD_fetch(NULL, name, NULL);
	unsigned char out[EVP_MAX_MD_SIZE];
	unsigned n = 0;

	CHECK(md);
	fill();
	for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
		CHECK(EVP_Digest(data, lengths[i], out, &n, md, NULL) == 1);
		digest_bytes(out, n);
	}
	EVP_MD_free(md);
}

static void sha1(void) { hash("SHA1"); }
static void sha256(void) { hash("SHA256"); }
static void sha512(void) { hash("SHA512"); }
static void sha3(void) { hash("SHA3-256"); }

// once encrypts n bytes, or decrypts them, and returns how many came out.
static int once(const EVP_CIPHER *c, int enc, const unsigned char *in, int n, unsigned char *out, unsigned char *tag)
{
	EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new();
	int aead = EVP_CIPHER_get_flags(c) & EVP_CIPH_FLAG_AEAD_CIPHER;
	int got = 0, last = 0;

	CHECK(EVP_CipherInit_ex2(ctx, c, data, data + 64, enc, NULL) == 1);
	if (aead)
		CHECK(EVP_CipherUpdate(ctx, NULL, &got, data + 100, 37) == 1);
	if (aead && !enc)
		CHECK(EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_SET_TAG, 16, tag) == 1);
	CHECK(EVP_CipherUpdate(ctx, out, &got, in, n) == 1);
	CHECK(EVP_CipherFinal_ex(ctx, out + got, &last) == 1);
	if (aead && enc)
		CHECK(EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_GET_TAG, 16, tag) == 1);
	EVP_CIPHER_CTX_free(ctx);
	return got + last;
}

static void cipher(const char *name, const int *lengths)
{
	unsigned char out[2200], back[2200], tag[16] = "";
	EVP_CIPHER *c = EVP_CIPHER_fetch(NULL, name, NULL);

	CHECK(c);
	fill();
	for (int i = 0; lengths[i]; i++) {
		int n = once(c, 1, data + i, lengths[i], out, tag);

		digest_bytes(out, n);
		digest_bytes(tag, sizeof tag);
		CHECK(once(c, 0, out, n, back, tag) == lengths[i]);
		CHECK(!memcmp(back, data + i, lengths[i]));
	}
	EVP_CIPHER_free(c);
}

static int capable(unsigned ecx) { return OPENSSL_ia32cap_P[1] & ecx; }

enum { SSSE3 = 1 << 9, AES = 1 << 25 };

// The implementations of AES take 1, 2, 3, 4, 6, or 8 blocks at a time, of those
// without instructions for it the one with SSSE3 1 or 8, the other 1.
static void aes(const char *name)
{
	static const int lengths[] = {16, 33, 48, 64, 80, 97, 112, 128, 300, 785, 0}, few[] = {33, 144, 0}, least[] = {16, 17, 0};

	cipher(name, capable(AES) ? lengths : capable(SSSE3) ? few : least);
}

static void ecb(void)
{
	static const int lengths[] = {16, 64, 112, 208, 0}, least[] = {16, 32, 0};

	cipher("AES-256-ECB", capable(AES) ? lengths : least);
}

static void cbc(void) { aes("AES-128-CBC"); }
static void ctr(void) { aes("AES-192-CTR"); }
static void xts(void) { aes("AES-256-XTS"); }
static void gcm(void) { aes("AES-128-GCM"); }

static void chacha(void)
{
	static const int lengths[] = {33, 130, 300, 1100, 0}, least[] = {33, 130, 0};

	cipher("ChaCha20-Poly1305", capable(SSSE3) ? lengths : least);
}

// power is modular exponentiation, of numbers of 512 and 1024 bits.
static void power(void)
{
	BN_CTX *ctx = BN_CTX_new();
	BIGNUM *r = BN_new(), *e = BN_new();

	fill();
	CHECK(BN_set_word(e, 17));
	for (int n = 64; n <= 128; n += 64) {
		data[0] |= 0x80;
		data[n - 1] |= 1;
		BIGNUM *m = BN_bin2bn(data, n, NULL), *a = BN_bin2bn(data + 200, n, NULL);

		CHECK(BN_mod_exp_mont(r, a, e, m, ctx, NULL) == 1);
		unsigned char out[128];
		digest_bytes(out, BN_bn2bin(r, out));
		BN_free(m);
		BN_free(a);
	}
	BN_free(r);
	BN_free(e);
	BN_CTX_free(ctx);
}

int main(void)
{
	static const struct work works[] = {
		{"sha1", sha1, NULL}, {"sha256", sha256, NULL}, {"sha512", sha512, NULL}, {"sha3", sha3, NULL},
		{"ecb", ecb, NULL}, {"cbc", cbc, NULL}, {"ctr", ctr, NULL}, {"xts", xts, NULL}, {"gcm", gcm, NULL},
		{"chacha", chacha, NULL}, {"power", power, NULL}, {NULL, NULL, NULL},
	};

	OPENSSL_init_crypto(0, NULL);
	dprintf(1, "capable %#x %#x %#x %#x\n", OPENSSL_ia32cap_P[0], OPENSSL_ia32cap_P[1], OPENSSL_ia32cap_P[2], OPENSSL_ia32cap_P[3]);
	return serve(works);
}
