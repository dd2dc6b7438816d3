package bench

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/internal/host"
)

// mapped is this process's own target side.
func mapped(t *testing.T) *targetSide {
	t.Helper()
	path := filepath.Join(t.TempDir(), "bench.so")
	if err := os.WriteFile(path, hotImage(), 0o755); err != nil {
		t.Fatal(err)
	}
	side, err := mapImage(path)
	if err != nil {
		t.Fatal(err)
	}
	return side
}

func TestTheCodeDoesWhatItSays(t *testing.T) {
	const calls = 300
	for _, c := range []struct {
		fn              string
		counts, records uint64
	}{
		{"foo", 0, 0}, {"foo_push", 0, 0}, {"foo_nop", 0, 0}, {"foo_jump", 0, 0}, {"foo_call", 0, 0}, {"foo_count", calls, 0}, {"foo_record", 0, calls},
	} {
		side := mapped(t)
		for _, threads := range []int{1, 3} {
			side.blocks = nil
			if _, err := side.command("own " + c.fn + " 100 " + string(rune('0'+threads))); err != nil {
				t.Fatal(err)
			}
			for range 3 - threads {
				if _, err := side.command("hot " + c.fn + " 100"); err != nil {
					t.Fatal(err)
				}
			}
			sum := [3]uint64{}
			for _, b := range side.blocks {
				sum[0] += binary.LittleEndian.Uint64(b)
				sum[1] += binary.LittleEndian.Uint64(b[counterWord:])
				sum[2] += binary.LittleEndian.Uint64(b[ringWord:]) / ringEntry
			}
			if want := [3]uint64{calls, c.counts, c.records}; sum != want {
				t.Errorf("%s on %d threads: %v, want %v", c.fn, threads, sum, want)
			}
		}
	}
}

func TestTheHandWrittenRecordHoldsArgumentsAndTime(t *testing.T) {
	side := mapped(t)
	if _, err := side.command("hot foo_record 2"); err != nil {
		t.Fatal(err)
	}
	block := addrOf(side.blocks[0])
	word := func(entry, n int) uint64 {
		return binary.LittleEndian.Uint64(side.blocks[0][4096+entry*ringEntry+8*n:])
	}
	if word(0, 0) != uint64(block) || word(0, 1) != 1 {
		t.Errorf("arguments %#x %#x, want %#x 1", word(0, 0), word(0, 1), block)
	}
	if first, second := word(0, 16), word(1, 16); first == 0 || second <= first {
		t.Errorf("times %d and %d", first, second)
	}
	if word(0, 17) != 1 || word(1, 17) != 1 || word(2, 17) != 0 {
		t.Error("the words that say that a record is complete are wrong")
	}
}

// TestTheImageIsASharedObject also checks offsets and sizes of the functions: each ends with
// its return, and the next byte is padding.
func TestTheImageIsASharedObject(t *testing.T) {
	f, err := elf.NewFile(bytes.NewReader(hotImage()))
	if err != nil {
		t.Fatal(err)
	}
	symbols, err := f.Symbols()
	if err != nil || len(symbols) != len(host.WorkloadFunctions) {
		t.Fatalf("%d symbols, want %d: %v", len(symbols), len(host.WorkloadFunctions), err)
	}
	text, err := f.Section(".text").Data()
	if err != nil || !bytes.Equal(text, host.Workload()) {
		t.Fatalf("the section is not the code: %v", err)
	}
	for i, s := range symbols {
		if s.Name != symbolPrefix+host.WorkloadFunctions[i].Name || elf.ST_TYPE(s.Info) != elf.STT_FUNC {
			t.Errorf("symbol %d is %+v", i, s)
		}
		end := s.Value - codeOffset + s.Size
		if text[end-1] != 0xc3 || !strings.Contains("\x66\x0f\x90", string(text[end:end+1])) {
			t.Errorf("%s ends with % x, then % x", s.Name, text[end-3:end], text[end:end+2])
		}
	}
	for _, jump := range []string{"foo_jump", "foo_count", "foo_record"} {
		off, err := offsetOf(jump)
		if err != nil || text[off-codeOffset] != 0xe9 {
			t.Errorf("%s does not begin with the long jump: %v", jump, err)
		}
	}
}

func TestChangedCodeIsNoticed(t *testing.T) {
	side := mapped(t)
	if answer, err := side.command("clean"); err != nil || answer != "ok" {
		t.Fatalf("untouched: %q, %v", answer, err)
	}
	if err := unix.Mprotect(side.image, unix.PROT_READ|unix.PROT_WRITE); err != nil {
		t.Fatal(err)
	}
	side.image[codeOffset] = 0xcc
	if _, err := side.command("clean"); err == nil {
		t.Error("a breakpoint was not noticed")
	}
}

func TestForeignMappingsAreNoticed(t *testing.T) {
	side := mapped(t)
	fd, err := unix.MemfdCreate("gokprobe-test", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Ftruncate(fd, int64(os.Getpagesize())); err != nil {
		t.Fatal(err)
	}
	m, err := unix.Mmap(fd, 0, os.Getpagesize(), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := side.command("clean"); err == nil {
		t.Error("the mapping was not noticed")
	}
	if err := unix.Munmap(m); err != nil {
		t.Fatal(err)
	}
	if _, err := side.command("clean"); err != nil {
		t.Error(err)
	}
}

func TestUnknownCommandsAreErrors(t *testing.T) {
	side := mapped(t)
	for _, line := range []string{"", "dance", "hot", "hot foo", "hot nothing 3", "own nothing 3 1"} {
		if answer, err := side.command(line); err == nil {
			t.Errorf("%q: %q", line, answer)
		}
	}
}
