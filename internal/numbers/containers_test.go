package numbers

import (
	_ "embed"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/internal/testsize"
	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/symbols"
	"github.com/gokprobe/gokprobe/trace"
)

var (
	//go:embed testdata/containers.cc
	containersCXX string
	//go:embed testdata/containers.rs
	containersRust string
	//go:embed testdata/containers.go.txt
	containersGo string
)

var containersInCXX = [][2]string{
	{"a.ages", `{"anna": 1, "bert": 2, "carl": 3}`}, {"a.empty", "{}"}, {"len(a.ages)", "3"}, {"len(a.empty)", "0"},
	{"a.many", `{"key1000": 0, "key1001": 1, "key1002": 2, "key1003": 3, "key1004": 4, "key1005": 5, "key1006": 6, "key1007": 7, … 300 in all}`}, {"len(a.many)", "300"},
	{"a.small", "{97 'a': -1, 120 'x': 2.5}"}, {"a.several", `{1: "one", 1: "uno"}`}, {"a.shorts", "{-1, 2, 3}"}, {"a.longs", "{5, 5}"}, {"len(a.longs)", "2"},
	{"a.names", `{1: "one", 2: "two"}`}, {"a.rows", `{"r": {1, 2}}`}, {"a.chars", "{99 'c'}"}, {"len(a.names)", "2"},
	{"a.deque", "{-4, -3, -2, -1, 0, 0, 1, 2, … 305 in all}"}, {"a.nothing", "{}"}, {"a.list", `{"first", "second"}`}, {"len(a.list)", "2"}, {"a.chain", "{1, 2, 3}"}, {"a.chain0", "{}"},
	{"a.owned", "5"}, {"*a.owned", "5"}, {"a.none", "nullptr"}, {"a.object->id", "6"}, {"a.object->next->id", "7"}, {"a.shared.next.id", "8"},
	{"a.shared", "{id: 7, next: {id: 8, next: nullptr, prev: nullptr}, prev: nullptr}"}, {"a.weak", "9"}, {"a.gone", "expired"}, {"a.seven", "7"}, {"a.nullopt", "nullopt"}, {"a.text", `"text"`},
	{"a.alternative", `"second"`}, {"a.number", "2.5"}, {"a.tuple", `{1, "tuple", 99 'c'}`}, {"a.pair", `{first: 1, second: "pair"}`}, {"a.nofunction", "nullptr"}, {"a.called", "twice"}, {"a.function", "twice"},
	{"a.ms", "5ms"}, {"a.hours", "3h"}, {"a.seconds", "1.5s"}, {"a.atomic", "11"}, {"a.flag", "true"}, {"a.bits", "0b1000000101"}, {"a.array", "{1, 2, 3}"}, {"a.array[1]", "2"}, {"len(a.array)", "3"},
	{"a.wrapper", "40"}, {"a.rw", "READ|WRITE"}, {"a.other", "9"}, {"a.nested", "{1: {2: 3}}"}, {"a.bools", "{true, false, true, true, false, false, false, true, … 10 in all}"}, {"a.nobools", "{}"}, {"a.handle", "{id: 5, gen: 6}"}, {"a.packs", "{107 'k': {x: 1, y: 2}}"}, {"a.hashed", "{3: {x: 4, y: 5}}"}, {"m", "{1: 10, 2: 20}"}, {"len(m)", "2"}, {"p", "12"}, {"n", "42"},
}

var containersInRust = [][2]string{
	{"a.ages", `{"anna": 1, "bert": 2, "carl": 3}`}, {"a.empty", "{}"}, {"a.many", "{0: 0, 1: 2, 2: 4}"}, {"len(a.many)", "3"}, {"a.tree", `{1: "one", 2: "two"}`}, {"len(a.tree)", "2"},
	{"a.big", "{0: 0, 1: 3, 2: 6, 3: 9, 4: 12, 5: 15, 6: 18, 7: 21, … 1000 in all}"}, {"a.none", "{}"}, {"a.hashed", "{7, 8}"}, {"a.sorted", "{1, 3}"}, {"len(a.sorted)", "2"}, {"len(a.hashed)", "2"},
	{"a.deque", "{-1, 0, 1, 2, 3, 4}"}, {"len(a.deque)", "6"}, {"a.list", "{1, 2}"}, {"a.rc", "5"}, {"a.node", "{id: 1, next: Some({id: 2, next: None})}"}, {"a.node.id", "1"}, {"a.weak", "5"}, {"a.gone", "expired"},
	{"a.never", "expired"}, {"a.mutex", "9"}, {"a.lock", "8"}, {"a.cell", "4"}, {"a.refcell", `"refcell"`}, {"a.path", `"/a/path"`}, {"len(a.path)", "7"}, {"a.os", `"os"`}, {"a.boxed", "3"},
	{"a.half", "1.5s"}, {"a.tiny", "2.5µs"}, {"a.atomic", "11"}, {"a.flag", "true"}, {"a.nonzero", "12"}, {"a.wrapping", "-2"}, {"a.some", "Some(5)"}, {"a.text", `Some("/b")`}, {"*m", "{1: 2}"}, {"len(*m)", "1"},
	{"a.back", "{secs: -2, nanos: 500000000}"}, {"a.links.len", "1"}, {"a.buffer.ptr", "77"}, {"a.buffer", "{ptr: 77}"},
}

var containersInGo = [][2]string{
	{"a.Ages", `map[string]int{"anna": 1, "bert": 2, "carl": 3}`}, {"a.Nil", "map[string]int(nil)"}, {"a.Empty", "map[int]int{}"}, {"a.Many", "map[int]int{0: 0, 1: 2, 2: 4}"}, {"len(a.Many)", "3"},
	{"a.Pairs", `map[main.Key]string{{A: 1, B: 2}: "pair"}`}, {"a.Long", "map[[200]uint8]int{{1, 0, 0, 0, 0, 0, 0, 0, … 200 in all}: 5}"}, {"a.Wide", "map[int][200]uint8{1: {7, 0, 0, 0, 0, 0, 0, 0, … 200 in all}}"},
	{"a.Set", "map[uint8]struct {}{2: {}, 4: {}}"}, {"a.Tags", `main.Tags{"t": true}`}, {"a.Nested", `map[string]map[int]bool{"in": map[int]bool{1: true}}`}, {"a.Floats", `map[float64]string{-1: "y", 2.5: "x"}`},
	{"a.When", "2024-02-29T12:30:00.5Z"}, {"a.Zero", "0001-01-01T00:00:00Z"}, {"a.Wait", "1.5s"}, {"a.Count", "11"}, {"a.Big", "1099511627776"}, {"a.Flag", "true"}, {"a.Fn", "main.twice"},
	{"a.Closure", "main.main.func1"}, {"a.NilFn", "nil"}, {"a.Nodes", `map[string]*main.Node{"nil": nil}`}, {"m", `map[string]int{"anna": 1, "bert": 2, "carl": 3}`}, {"len(m)", "3"}, {"f", "main.twice"},
	{"a.Err", `(*errors.errorString)("broken")`}, {"a.Any", "int(42)"},
}

// TestContainersHaveTheirElements: what a program has in its containers and wrappers, where threads stop and where they do not have to, and when memory is torn.
func TestContainersHaveTheirElements(t *testing.T) {
	for _, x := range []struct {
		maker
		source string
		all    [][2]string
		entry  string
		hold   []string
		fail   []string
	}{
		{maker{name: "g++", levels: [][]string{{"-g", "-std=c++20"}}, suffix: ".cc"}, containersCXX, containersInCXX, "handle", []string{"a.atomic == 11", "len(a.ages) == 3 && len(m) == 2", "*p == 12", "a.shared->next->id == 8", "a.array[2] > 2"}, []string{"a.atomic > 11", "len(a.many) < 300"}},
		{maker{name: "clang++", levels: [][]string{{"-g", "-O2", "-std=c++20"}}, suffix: ".cc"}, containersCXX, containersInCXX, "handle", []string{"a.atomic == 11", "len(a.ages) == 3 && len(m) == 2", "*p == 12", "a.shared->next->id == 8", "a.array[2] > 2"}, []string{"a.atomic > 11", "len(a.many) < 300"}},
		{maker{name: "rustc", levels: [][]string{{"-g", "-O"}}, suffix: ".rs"}, containersRust, containersInRust, "handle", []string{"len(a.ages) == 3", "a.atomic == 11", "a.cell == 4", `a.path == "/a/path"`, "a.node.id == 1", "len(*m) == 1"}, []string{"a.atomic != 11", "len(a.big) < 1000"}},
		{maker{name: "go", levels: [][]string{{}}, suffix: ".go"}, containersGo, containersInGo, "main.handle", []string{"len(a.Ages) == 3", "a.Count == 11", "a.Wait == 1500000000", "len(m) == 3"}, []string{"a.Count > 11", "len(a.Many) > 3"}},
	} {
		for _, flags := range x.levels {
			bin := x.compile(t, flags, x.source)
			for _, stops := range []bool{false, true} {
				if stops && x.name == "clang++" {
					continue // as those of g++
				}
				walk(t, bin, x.entry, x.all, x.hold, x.fail, stops)
			}
			tornValues(t, bin, x.entry)
			if x.suffix == ".go" {
				recorded(t, bin)
			}
		}
	}
}

// recorded compares a map that nobody has named, of which the length is recorded without a stop, with one that has been named.
func recorded(t *testing.T, bin string) {
	t.Helper()
	p := testprog.Start(t, bin)
	s, err := trace.Attach(t.Context(), p.PID())
	if err != nil {
		t.Fatal(err)
	}
	brief, named := place(t, s, "main.brief", trace.Args()), place(t, s, "main.brief", trace.AsInSource(), trace.Fetch("m"))
	p.Do("go", "done")
	for probe, want := range map[*trace.Probe]string{brief: "map[string]int{… 3 in all}", named: `map[string]int{"anna": 1, "bert": 2, "carl": 3}`} {
		if err := probe.Close(); err != nil {
			t.Error(err)
		}
		for h := range probe.Hits() {
			if got := h.Args[0].String(); got != want {
				t.Errorf("m is %s, not %s", got, want)
			}
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	p.CheckClean()
	p.Quit()
}

// torn is memory some words of which are others: other addresses, small and huge numbers, or what lies elsewhere. It counts what is read.
type torn struct {
	arch.Memory
	rnd         *rand.Rand
	seen        []uint64
	reads, size int
}

func (m *torn) ReadMemory(at arch.Addr, p []byte) error {
	m.reads++
	m.size += len(p)
	err := m.Memory.ReadMemory(at, p)
	for i := 0; i+8 <= len(p); i += 8 {
		if m.seen = append(m.seen, binary.LittleEndian.Uint64(p[i:]), uint64(at)); m.rnd.IntN(12) > 0 {
			continue
		}
		others := []uint64{m.seen[m.rnd.IntN(len(m.seen))], 0, m.rnd.Uint64N(70), 1<<m.rnd.IntN(64) - 1, m.rnd.Uint64()}
		binary.LittleEndian.PutUint64(p[i:], others[m.rnd.IntN(len(others))])
	}
	if m.rnd.IntN(8) == 0 && len(p) > 0 {
		p[m.rnd.IntN(len(p))] = byte(m.rnd.Uint32())
	}
	if m.rnd.IntN(40) == 0 {
		return errors.New("torn")
	}
	return err
}

// tornValues is all values of a program, whose memory is another at each read: they come to an end soon.
func tornValues(t *testing.T, bin, entry string) {
	t.Helper()
	p := testprog.Start(t, bin)
	s, err := kprobes.Attach(t.Context(), p.PID(), kprobes.Options{})
	if err != nil {
		t.Fatal(err)
	}
	most, size, values := 0, 0, 0
	probe := &kprobes.Kprobe{SymbolName: entry, PreHandler: func(k *kprobes.Kprobe, r *kprobes.Regs) int {
		params, err := r.Symbols().Params(k.Addr)
		if err != nil {
			t.Error(err)
			return 0
		}
		for _, f := range params[0].TypeOf().Elem().Fields() {
			if member, err := params[0].At(f.Name, symbols.Step{Member: f.Name}); err == nil {
				params = append(params, member)
			}
		}
		for seed := range uint64(testsize.Rounds(5, 20, 3000)) {
			for _, param := range params {
				m := &torn{Memory: r, rnd: rand.New(rand.NewPCG(seed, 3))}
				param.Value(r, m)
				most, size, values = max(most, m.reads), max(size, m.size), values+1
			}
		}
		return 0
	}}
	if err := s.RegisterKprobe(probe); err != nil {
		t.Fatal(err)
	}
	p.Do("go", "done")
	if values == 0 || most > 2000 || size > 1<<19 {
		t.Errorf("%s: a value makes %d reads, or reads %d bytes, of %d values", bin, most, size, values)
	}
	t.Logf("%s: %d values, each with %d reads and %d bytes at most", bin, values, most, size)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	p.CheckClean()
	p.Quit()
}
