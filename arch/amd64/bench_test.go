package amd64_test

import (
	"testing"

	"github.com/gokprobe/gokprobe/arch/amd64"
)

func BenchmarkDecode(b *testing.B) {
	base, code := text(b, files("/lib/x86_64-linux-gnu/libc.so.6", "/lib64/libc.so.6")[0])
	b.ReportAllocs()
	pos := 0
	for b.Loop() {
		i, err := amd64.Arch{}.Decode(code[pos:], base.Add(int64(pos)))
		if err != nil {
			pos++
		}
		if pos += i.Len(); pos >= len(code)-16 {
			pos = 0
		}
	}
}
