package hostile

import (
	"encoding/binary"
	"hash/crc32"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/trampoline"
)

var le = binary.LittleEndian

// run runs a tool.
func run(t testing.TB, dir, name string, args ...string) {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
}

// seed is a real file, whose structure is known.
type seed struct {
	name string
	data []byte
}

// seeds are real files of all kinds that are read.
func seeds(t testing.TB) []seed {
	t.Helper()
	dir := t.TempDir()
	src, err := filepath.Abs("../../symbols/testdata")
	must(t, err)
	at := func(name string) string { return filepath.Join(dir, name) }
	source := func(name string) string { return filepath.Join(src, name) }
	run(t, dir, "gcc", "-g", "-gdwarf-5", "-O1", "-o", "dwarf5", source("names.c"))
	run(t, dir, "gcc", "-g", "-gdwarf-4", "-O1", "-o", "dwarf4", source("names.c"))
	run(t, dir, "gcc", "-g", "-O1", "-Wl,--no-eh-frame-hdr", "-o", "nohdr", source("members.c"))
	run(t, dir, "gcc", "-g", "-gz=zlib", "-O1", "-o", "zlib", source("members.c"))
	run(t, dir, "objcopy", "--compress-debug-sections=zlib-gnu", "dwarf4", "zdebug")
	run(t, dir, "objcopy", "--compress-debug-sections=zstd", "dwarf5", "zstd")
	run(t, dir, "go", "build", "-o", "go", source("plain.go"))
	run(t, dir, "go", "build", "-ldflags=-s -w", "-o", "gostripped", source("plain.go"))
	run(t, dir, "objcopy", "-S", "--keep-symbol=hidden", "dwarf5", "mini")
	run(t, dir, "xz", "mini")
	run(t, dir, "strip", "-o", "bare", "dwarf5")
	run(t, dir, "objcopy", "--add-section", ".gnu_debugdata=mini.xz", "bare", "minidebug")
	must(t, os.WriteFile(at("debug"), []byte("prog.debug\x00\x00\x01\x02\x03\x04"), 0o600))
	run(t, dir, "objcopy", "--add-section", ".gnu_debuglink=debug", "bare", "link")
	var out []seed
	for _, name := range []string{"dwarf5", "dwarf4", "nohdr", "zlib", "zdebug", "zstd", "go", "gostripped", "minidebug", "link", "bare"} {
		b, err := os.ReadFile(at(name))
		must(t, err)
		out = append(out, seed{name, b})
	}
	sectionless := seed{"sectionless", append([]byte(nil), out[0].data...)}
	clear(sectionless.data[0x28:0x30])
	clear(sectionless.data[0x3c:0x40])
	return append(out, sectionless, seed{"journal", journal()})
}

// journal is what a killed tracer may have left, in memory that repeats: a header, an arena whose journal is full of records, and one of
// detours.
func journal() []byte {
	const size, header, data = 1 << 20, 4096, 512 << 10
	b := make([]byte, size)
	for off := data; off < size; off += 64 {
		r := b[off : off+64]
		le.PutUint16(r[4:], 1)
		le.PutUint64(r[8:], uint64(off))
		le.PutUint64(r[16:], 0x401000)
		r[24], r[44] = 0x55, 0xcc
		le.PutUint32(r, max(crc32.Checksum(r[4:], crc32.MakeTable(crc32.Castagnoli)), 1))
	}
	copy(b, trampoline.Magic)
	le.PutUint32(b[8:], trampoline.Version)
	le.PutUint32(b[12:], 2)
	copy(b[16:], "amd64")
	le.PutUint32(b[36:], 64)
	for kind := range uint64(2) {
		a := b[header+96*kind:]
		start, end := 7*size+uint64(data), 8*size-uint64(64<<10)
		for off, v := range map[int]uint64{8: start, 16: end, 24: end, 32: end + 4096, 64: end - start, 72: kind, 88: end - start} {
			le.PutUint64(a[off:], v)
		}
	}
	return b
}
