package hostile

import (
	"bytes"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"runtime/metrics"
	"testing"

	"github.com/gokprobe/gokprobe/internal/budget"
	"github.com/gokprobe/gokprobe/symbols"
)

// The targets here differ from TestMutatedFilesHarmNobody by who chooses what comes next: the coverage that an input reaches. A find is a panic, a hang,
// memory over the limit, or budget that is not given back.

// fuzzFile reads a file within the limits.
func fuzzFile(t *testing.T, file []byte) {
	name := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(name, file, 0o600))
	limited(t, func() string { return read(name) })
}

// limited does it within the limits for one file.
func limited(t *testing.T, do func() string) {
	t.Helper()
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(budget.Memory) // as the command does
	}
	if mapped() > mostMemory/4 {
		debug.FreeOSMemory() // a test before has taken that
	}
	before, begin := budget.Process().Used(), processorTime()
	stop := watch(begin)
	said := do()
	close(stop)
	if took := processorTime() - begin; took > mostTime() {
		t.Errorf("it took %v of processor time (%s)", took, said)
	}
	if now := mapped(); now > mostMemory {
		t.Errorf("it took %d MB (%s)", now/1_000_000, said)
	}
	if now := budget.Process().Used(); now > before {
		t.Errorf("%d bytes of the budget are not given back (%s)", now-before, said)
	}
}

// mapped is how much memory the runtime has and has not returned, in bytes: after an input that took much it still is about that.
func mapped() uint64 {
	s := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64() - s[1].Value.Uint64()
}

// changed is b with the changes: each is three bytes of a place in it, one of a length, and so many bytes.
func changed(b, changes []byte) []byte {
	out := bytes.Clone(b)
	for len(changes) >= 4 {
		at := int(changes[0])<<16 | int(changes[1])<<8 | int(changes[2])
		n := min(int(changes[3]), len(changes)-4)
		copy(out[at%len(out):], changes[4:4+n])
		changes = changes[4+n:]
	}
	return out
}

// small are small programs, as their tools write them.
func small(f testing.TB, ways ...[]string) (files [][]byte) {
	f.Helper()
	dir := f.TempDir()
	src := filepath.Join(dir, "s.c")
	must(f, os.WriteFile(src, []byte("struct s { int a, b : 3; struct s *next; char name[4]; }; enum e { A, B };\n"+
		"static inline int in(int x) { return x * 3; }\nint visible(struct s *p, enum e e, double d) { return in(p->a) + e + (int)d; }\n"), 0o600))
	for i, way := range ways {
		out := filepath.Join(dir, fmt.Sprint("s", i))
		run(f, dir, "gcc", append(way, "-O1", "-nostdlib", "-Wl,-z,max-page-size=4096", "-Wl,-z,noseparate-code", "-o", out, src)...)
		b, err := os.ReadFile(out)
		must(f, err)
		files = append(files, b)
	}
	return files
}

func library(way ...string) []string { return append(way, "-shared", "-fPIC") }

// FuzzELF reads whole files.
func FuzzELF(f *testing.F) {
	for _, b := range small(f, library("-g"), library("-s"), library("-g", "-gz=zlib"), library("-Wl,--no-eh-frame-hdr", "-Wl,--hash-style=sysv")) {
		f.Add(b)
	}
	f.Add(withDebug())
	f.Fuzz(fuzzFile)
}

// FuzzDWARF reads sections of debug information, and call-frame information.
func FuzzDWARF(f *testing.F) {
	for _, s := range debugSeeds(f) {
		f.Add(s[0], s[1], s[2], s[3], s[4], s[5], s[6])
	}
	f.Fuzz(func(t *testing.T, info, abbrev, line, str, lineStr, lists, frames []byte) {
		fuzzFile(t, debugFile(info, abbrev, line, str, lineStr, lists, frames))
	})
}

func debugFile(info, abbrev, line, str, lineStr, lists, frames []byte) []byte {
	return withDebug(dbg("info", info), dbg("abbrev", abbrev), dbg("line", line), dbg("str", str), dbg("line_str", lineStr),
		dbg("ranges", lists), dbg("rnglists", lists), dbg("frame", frames))
}

// debugSeeds are the arguments of debugFile, as compilers write them.
func debugSeeds(f testing.TB) (seeds [][7][]byte) {
	at := func(way ...string) []string { // where build puts the code
		return append(way, "-g", "-no-pie", "-static", "-Wl,-Ttext=0x401000", "-Wl,-e,visible")
	}
	for _, b := range small(f, at("-gdwarf-4"), at("-gdwarf-5"), at("-gdwarf-2", "-gstrict-dwarf")) {
		file, err := elf.NewFile(bytes.NewReader(b))
		must(f, err)
		get := func(name string) []byte {
			s := file.Section(name)
			if s == nil {
				return nil
			}
			data, err := s.Data()
			must(f, err)
			return data
		}
		lists := append(get(".debug_ranges"), get(".debug_rnglists")...)
		seeds = append(seeds, [7][]byte{
			get(".debug_info"), get(".debug_abbrev"), get(".debug_line"), get(".debug_str"), get(".debug_line_str"), lists, get(".eh_frame"),
		})
	}
	return seeds
}

// FuzzGoTable reads tables of Go functions, of a Go program whose table is changed.
func FuzzGoTable(f *testing.F) {
	dir := f.TempDir()
	src, err := filepath.Abs("../../symbols/testdata/plain.go")
	must(f, err)
	run(f, dir, "go", "build", "-ldflags=-s -w", "-o", "go", src)
	whole, err := os.ReadFile(filepath.Join(dir, "go"))
	must(f, err)
	file, err := elf.NewFile(bytes.NewReader(whole))
	must(f, err)
	s := file.Section(".gopclntab")
	f.Add([]byte{0, 0, 8, 4, 1, 0, 0, 0}, []byte(nil)) // how many functions there are
	f.Add([]byte{0, 0, 32, 8, 0, 1, 0, 0, 0, 0, 0, 0}, []byte(nil))
	f.Add([]byte(nil), whole[s.Offset:s.Offset+4096]) // the beginning of a table, which is damaged in all places
	f.Fuzz(func(t *testing.T, changes, table []byte) {
		if len(table) > 0 {
			fuzzFile(t, build(section{name: ".gopclntab", typ: elf.SHT_PROGBITS, data: table}))
			return
		}
		b := bytes.Clone(whole)
		copy(b[s.Offset:], changed(whole[s.Offset:s.Offset+s.Size], changes))
		fuzzFile(t, b)
	})
}

// FuzzMiniDebug reads compressed symbol tables.
func FuzzMiniDebug(f *testing.F) {
	for _, b := range small(f, library()) {
		for _, check := range []string{"none", "crc32", "crc64", "sha256"} {
			cmd := exec.Command("xz", "-c", "--check="+check)
			cmd.Stdin = bytes.NewReader(b)
			packed, err := cmd.Output()
			must(f, err)
			f.Add(packed)
		}
	}
	f.Fuzz(func(t *testing.T, packed []byte) {
		fuzzFile(t, build(section{name: ".gnu_debugdata", typ: elf.SHT_PROGBITS, data: packed}))
	})
}

// FuzzJournal reads what a killed tracer is said to have left: of a header, an arena's record and a journal's records that are changed.
func FuzzJournal(f *testing.F) {
	whole := journal()
	f.Add([]byte{0, 0, 12, 4, 4, 0, 0, 0})
	f.Add([]byte{0, 0x10, 8, 16, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0})
	f.Add([]byte{8, 0, 0, 24, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x10, 0x40, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, changes []byte) {
		limited(t, func() string { return readJournal(changed(whole, changes)) })
	})
}

// The targets start with what is read whole.
func TestTheSeedsOfDebugInformationAreRead(t *testing.T) {
	for i, s := range debugSeeds(t) {
		name := filepath.Join(t.TempDir(), "file")
		must(t, os.WriteFile(name, debugFile(s[0], s[1], s[2], s[3], s[4], s[5], s[6]), 0o600))
		tab, err := symbols.OpenFile(name)
		must(t, err)
		defer tab.Close()
		const text = 0x401000
		if params, err := tab.Params(text); err != nil || len(params) != 3 || params[0].Type != "struct s *" && params[0].Type != "s *" {
			t.Errorf("seed %d: parameters %+v, %v", i, params, err)
		}
		if file, line, ok := tab.Line(text); !ok || line != 2 && line != 3 {
			t.Errorf("seed %d: line %d of %s", i, line, file)
		}
	}
}
