// Works of zlib.
#include "work.h"

#include <zlib.h>

static unsigned char text[700], packed[1000], back[sizeof text];

// fill makes a text that has repetitions near and far, and parts without any.
static void fill(void)
{
	for (size_t i = 0; i < sizeof text; i++) {
		uint32_t r = number();

		if (i > 300 && r % 8 == 0)
			for (size_t from = i - 1 - r / 8 % 250, n = 3 + r / 2048 % 40; n-- && i < sizeof text - 1; i++)
				text[i] = text[from++];
		text[i] = i > 500 && i < 560 ? (char)(r >> 8) : "etaoin shrdlu\n"[r / 64 % 14];
	}
}

static void pack(int level, int strategy, int bits, size_t size)
{
	z_stream z = {0}, u = {0};

	CHECK(deflateInit2(&z, level, Z_DEFLATED, bits, 3, strategy) == Z_OK);
	z.next_out = packed;
	z.avail_out = sizeof packed;
	// In unequal parts, so that windows are filled and moved.
	for (size_t at = 0, n; at < size; at += n) {
		n = 1 + number() % size;
		if (n > size - at)
			n = size - at;
		z.next_in = text + at;
		z.avail_in = n;
		CHECK(deflate(&z, at % 4 ? Z_NO_FLUSH : Z_SYNC_FLUSH) == Z_OK);
	}
	CHECK(deflate(&z, Z_FINISH) == Z_STREAM_END);
	digest_bytes(packed, z.total_out);
	CHECK(inflateInit2(&u, bits) == Z_OK);
	u.next_in = packed;
	u.avail_in = z.total_out;
	memset(back, 0, sizeof back);
	while (u.total_out < size || u.avail_in) {
		u.next_out = back + u.total_out;
		u.avail_out = 1 + number() % size;
		if (u.avail_out > size - u.total_out)
			u.avail_out = size - u.total_out;
		int r = inflate(&u, Z_NO_FLUSH);
		CHECK(r == Z_OK || r == Z_STREAM_END);
		if (r != Z_OK)
			break;
	}
	CHECK(u.total_out == size && !memcmp(back, text, size));
	CHECK(deflateEnd(&z) == Z_OK && inflateEnd(&u) == Z_OK);
}

static void fast(void)
{
	fill();
	pack(1, Z_DEFAULT_STRATEGY, 9, sizeof text); // through a window of 512 bytes
}

static void slow(void)
{
	fill();
	pack(9, Z_DEFAULT_STRATEGY, 15 + 16, sizeof text);
}

static void plain(void)
{
	fill();
	pack(0, Z_DEFAULT_STRATEGY, -15, sizeof text);
	pack(6, Z_FIXED, 9, 200);
	pack(6, Z_RLE, 15, 200);
	pack(6, Z_HUFFMAN_ONLY, 15, 200);
}

static void sums(void)
{
	fill();
	for (int n = 0; n < 600; n = n * 2 + 1) {
		calls++;
		unsigned long sum[2] = {adler32(1, text + n % 5, n), crc32(0, text + n % 7, n)};

		digest_bytes(sum, sizeof sum);
	}
}

int main(void)
{
	static const struct work works[] = {{"fast", fast, NULL}, {"slow", slow, NULL}, {"plain", plain, NULL}, {"sums", sums, NULL}, {NULL, NULL, NULL}};

	return serve(works);
}
