package syscallsites

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/arch/amd64"
)

const base arch.Addr = 0x40_0000

// fakeProgram is code at base, and what is known of it.
type fakeProgram struct {
	code      []byte
	functions []arch.Range
	symbols   map[arch.Addr]string // without sizes, in front of functions whose end is not known
	data      []arch.Range
	refuses   error // what Wanted says
	known     []arch.Addr
}

func (p *fakeProgram) Original(at arch.Addr, b []byte) error {
	if at < base || int(at-base)+len(b) > len(p.code) {
		return &arch.FaultError{Addr: at}
	}
	copy(b, p.code[at-base:])
	return nil
}

func (p *fakeProgram) Know(at arch.Addr) error { p.known = append(p.known, at); return nil }

func (p *fakeProgram) Wanted() error { return p.refuses }

func holding(list []arch.Range, at arch.Addr) (arch.Range, bool) {
	i := slices.IndexFunc(list, func(r arch.Range) bool { return r.Contains(at) })
	if i < 0 {
		return arch.Range{}, false
	}
	return list[i], true
}

func (p *fakeProgram) Function(at arch.Addr) (arch.Range, bool) { return holding(p.functions, at) }

func (p *fakeProgram) Symbol(at arch.Addr) (name string, start arch.Addr, size uint64, known bool) {
	for a, n := range p.symbols {
		if a <= at && a >= start {
			name, start, known = n, a, true
		}
	}
	return name, start, 0, known
}

func (p *fakeProgram) IsData(at arch.Addr) bool { _, ok := holding(p.data, at); return ok }

func (p *fakeProgram) Place(at arch.Addr) string { return fmt.Sprintf("+%#x", uint64(at-base)) }

func (p *fakeProgram) search() Search {
	return Search{
		Host: amd64.Arch{}, JumpLen: 5, Program: p, Range: arch.Range{Start: base, End: base + arch.Addr(len(p.code))}, Name: "fake", Unknown: true,
	}
}

// sites are those that a search finds, as offsets: the instruction, the probe's place, the number.
func sites(t *testing.T, s Search) (all [][3]int, found *Found) {
	t.Helper()
	found, err := s.Run()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range found.Functions {
		for i, number := range f.Numbered() {
			site := f.Site(i, number)
			all = append(all, [3]int{int(site.Insn - base), int(site.At - base), site.Number})
		}
	}
	return all, found
}

// wrapper is a function that makes a system call by a number: mov $n,%eax; syscall; ret.
func wrapper(n byte) []byte { return []byte{0xb8, n, 0, 0, 0, 0x0f, 0x05, 0xc3} }

func within(from, to int) arch.Range {
	return arch.Range{Start: base + arch.Addr(from), End: base + arch.Addr(to)}
}

func TestCallsAreFoundInFunctions(t *testing.T) {
	p := &fakeProgram{
		// Two functions, the second one with the instruction's bytes inside of another: mov $0x50f,%ebx.
		code:      slices.Concat(wrapper(1), []byte{0xbb, 0x0f, 0x05, 0, 0}, wrapper(39)),
		functions: []arch.Range{within(0, 8), within(8, 21)},
	}
	got, found := sites(t, p.search())
	if want := [][3]int{{5, 0, 1}, {18, 13, 39}}; !slices.Equal(got, want) || len(found.Gaps) != 0 || found.Short != "" {
		t.Errorf("%v, want %v; %+v, %q", got, want, found.Gaps, found.Short)
	}
	if want := []arch.Addr{base + 5, base + 9, base + 18}; !slices.Equal(p.known, want) {
		t.Errorf("asked about %v, want %v", p.known, want)
	}
}

func TestAFunctionWithoutAnEndBeginsAtItsSymbol(t *testing.T) {
	p := &fakeProgram{code: slices.Concat(wrapper(1), wrapper(2)), symbols: map[arch.Addr]string{base: "first", base + 8: "second"}}
	got, found := sites(t, p.search())
	if want := [][3]int{{5, 0, 1}, {13, 8, 2}}; !slices.Equal(got, want) || len(found.Gaps) != 0 {
		t.Errorf("%v, want %v; %+v", got, want, found.Gaps)
	}
}

func TestWhatIsInNoFunctionIsAGapUnlessItIsData(t *testing.T) {
	call := []byte{0x0f, 0x05}
	for _, c := range []struct {
		name string
		p    fakeProgram
		gaps int
	}{
		{"code", fakeProgram{code: slices.Concat(call, []byte{0xc3})}, 1},
		{"data by its symbol", fakeProgram{code: slices.Concat(call, []byte{0xc3}), data: []arch.Range{within(0, 3)}}, 0},
		{"what does not decode", fakeProgram{code: slices.Concat(call, []byte{0x06, 0x06, 0x06})}, 0}, // push %es is none in 64 bits
		{"what does not decode, but loads a number", fakeProgram{code: slices.Concat(wrapper(1)[:7], []byte{0x06, 0x06})}, 1},
	} {
		p := c.p
		if got, found := sites(t, p.search()); len(got) != 0 || len(found.Gaps) != c.gaps {
			t.Errorf("%s: %v, %+v, want %d gaps", c.name, got, found.Gaps, c.gaps)
		}
		quiet := p.search()
		if quiet.Unknown = false; c.gaps > 0 {
			if _, found := sites(t, quiet); len(found.Gaps) != 0 {
				t.Errorf("%s: %+v, though nobody asks", c.name, found.Gaps)
			}
		}
	}
}

func TestOnlyChosenCallsAreFound(t *testing.T) {
	p := &fakeProgram{code: slices.Concat(wrapper(1), wrapper(14)), functions: []arch.Range{within(0, 8), within(8, 16)}}
	s := p.search()
	s.Chosen = func(before []byte) bool { return bytes.HasSuffix(before, []byte{14, 0, 0, 0}) }
	if got, _ := sites(t, s); !slices.Equal(got, [][3]int{{13, 8, 14}}) {
		t.Errorf("%v", got)
	}
}

// TestCallsAreFoundAcrossWindows: wherever one lies at the end of a piece of code that is looked at at once.
func TestCallsAreFoundAcrossWindows(t *testing.T) {
	for shift := -8; shift <= 1; shift++ {
		at := window + shift
		code := bytes.Repeat([]byte{0x90}, window+64)
		copy(code[at:], wrapper(3))
		p := &fakeProgram{code: code, functions: []arch.Range{within(at, at+8)}}
		if got, _ := sites(t, p.search()); !slices.Equal(got, [][3]int{{at + 5, at, 3}}) {
			t.Errorf("at %#x: %v", at, got)
		}
	}
}

func TestASearchHasLimits(t *testing.T) {
	call := []byte{0x0f, 0x05}
	p := &fakeProgram{code: bytes.Repeat(call, MostUnknown+10)}
	if _, found := sites(t, p.search()); len(found.Gaps) != MostUnknown+1 || !strings.Contains(found.Gaps[MostUnknown].Why, "too many") {
		t.Errorf("%d gaps", len(found.Gaps))
	}
	p = &fakeProgram{code: bytes.Repeat(call, mostPlaces+1)}
	if _, found := sites(t, p.search()); !strings.Contains(found.Short, "more places") {
		t.Errorf("many places: %q", found.Short)
	}
	long := slices.Concat(wrapper(1), make([]byte, longestCode))
	p = &fakeProgram{code: long, functions: []arch.Range{within(0, len(long))}}
	if got, found := sites(t, p.search()); len(got) != 0 || !strings.Contains(found.Short, "longer") {
		t.Errorf("a long function: %v, %q", got, found.Short)
	}
	s := p.search()
	s.Range.End = s.Range.Start + MostCode + 1
	if _, err := s.Run(); err == nil || !strings.Contains(err.Error(), "too large") {
		t.Errorf("much code: %v", err)
	}
}

func TestASearchThatIsNotWantedEnds(t *testing.T) {
	refusal := errors.New("given up")
	p := &fakeProgram{code: wrapper(1), functions: []arch.Range{within(0, 8)}, refuses: refusal}
	if _, err := p.search().Run(); !errors.Is(err, refusal) {
		t.Errorf("%v", err)
	}
}

func TestGapsAreDescribed(t *testing.T) {
	gaps := []Gap{{1, "a"}, {AnyNumber, "b"}, {2, "c"}, {1, "d"}}
	for _, c := range []struct {
		numbers []int
		want    string
	}{
		{[]int{3}, "b"}, {[]int{2}, "b; c"}, {[]int{1}, "a; b; and 1 more"}, {[]int{1, 2}, "a; b; and 2 more"},
	} {
		if got := Describe(gaps, c.numbers); got != c.want {
			t.Errorf("%v: %q, want %q", c.numbers, got, c.want)
		}
	}
	if Describe(gaps[:1], []int{5}) != "" {
		t.Error("there is a reason without a gap")
	}
}

func TestWhatACallPassesAlways(t *testing.T) {
	p := &fakeProgram{code: slices.Concat([]byte{0x48, 0x89, 0xd6}, wrapper(9)), functions: []arch.Range{within(0, 11)}} // mov %rdx,%rsi
	found, err := p.search().Run()
	if err != nil {
		t.Fatal(err)
	}
	site := found.Functions[0].Site(2, 9)
	site.Loads, site.At = found.Functions[0].Insns[:2], base
	register := func(name string) func(arch.Regs) uint64 {
		return func(r arch.Regs) uint64 { v, _ := r.Get(name); return v }
	}
	if v, always := site.Constant(amd64.Arch{}, register("rax")); v != 9 || !always {
		t.Errorf("rax is %d, %v", v, always)
	}
	if _, always := site.Constant(amd64.Arch{}, register("rsi")); always {
		t.Error("rsi is a constant")
	}
}

func TestWhetherAnArgumentIsNeededBehindACall(t *testing.T) {
	mov, ret, xor := []byte{0x48, 0x89, 0xf3}, []byte{0xc3}, []byte{0x31, 0xf6} // mov %rsi,%rbx; xor %esi,%esi
	use := func(i arch.Insn) (needs, sets bool) { return bytes.Equal(i.Bytes, mov), bytes.Equal(i.Bytes, xor) }
	for _, c := range []struct {
		name   string
		behind []byte
		ends   bool
	}{
		{"a return", ret, true},
		{"it is read", slices.Concat(mov, ret), false},
		{"it is set, then read", slices.Concat(xor, mov, ret), true},
		{"it is read on one way", slices.Concat([]byte{0x74, 0x01}, ret, mov, ret), false}, // je to the mov
		{"a loop", []byte{0xeb, 0xfe}, true},
		{"a jump to anywhere", []byte{0xff, 0xe0}, false},
		{"the end of what is known", []byte{0x90}, false},
	} {
		code := slices.Concat(wrapper(1)[:7], c.behind)
		f := newFunction(amd64.Arch{}, 5, within(0, len(code)), code)
		if got := f.ArgumentEnds(1, use); got != c.ends {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}
