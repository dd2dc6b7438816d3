package survey

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/procfs"
)

const base arch.Addr = 0x10_0000

// fakeTarget has code in whose place all instructions are as long as their first byte says; 0 is none.
type fakeTarget struct {
	code   []byte // at base
	memory map[arch.Addr][]byte
	ranges []arch.Range // mappings

	sections []arch.Range
	shadow   bool
	err      error // of all

	asked, reads int
}

func (f *fakeTarget) Maps() (maps []procfs.Mapping, err error) {
	f.asked++
	for _, r := range f.ranges {
		maps = append(maps, procfs.Mapping{Range: r})
	}
	return maps, f.err
}

func (f *fakeTarget) Original(at arch.Addr, p []byte) error {
	f.reads++
	if at < base || uint64(at-base)+uint64(len(p)) > uint64(len(f.code)) {
		return &arch.FaultError{Addr: at}
	}
	copy(p, f.code[at-base:])
	return nil
}

func (f *fakeTarget) ReadMemory(at arch.Addr, p []byte) error {
	b, ok := f.memory[at]
	if !ok || len(b) < len(p) {
		return &arch.FaultError{Addr: at}
	}
	copy(p, b)
	return nil
}

var errNone = errors.New("no instruction")

func (f *fakeTarget) Decode(code []byte, at arch.Addr) (arch.Insn, error) {
	if len(code) == 0 || code[0] == 0 || int(code[0]) > len(code) {
		return arch.Insn{}, errNone
	}
	return arch.Insn{Addr: at, Bytes: code[:code[0]]}, nil
}

func (f *fakeTarget) Sequences() []arch.Range { return f.sections }

func (f *fakeTarget) ShadowStack() (bool, error) { f.asked++; return f.shadow, f.err }

func TestMappingsAreAskedForOnce(t *testing.T) {
	f := &fakeTarget{ranges: []arch.Range{{Start: 0x1000, End: 0x2000}, {Start: 0x2000, End: 0x4000}, {Start: 0x8000, End: 0x9000}}}
	v := New(f)
	for at, want := range map[arch.Addr]arch.Addr{0xfff: 0, 0x1000: 0x1000, 0x1fff: 0x1000, 0x2000: 0x2000, 0x4000: 0, 0x8fff: 0x8000, 0x9000: 0} {
		m, err := v.Mapping(at)
		if err != nil || (m == nil) != (want == 0) || m != nil && m.Range.Start != want {
			t.Errorf("%s is in %+v, %v", at, m, err)
		}
	}
	if f.asked != 1 {
		t.Errorf("asked %d times", f.asked)
	}
	f = &fakeTarget{err: errNone}
	v = New(f)
	if m, err := v.Mapping(0x1000); m != nil || !errors.Is(err, errNone) {
		t.Errorf("%+v, %v", m, err)
	}
	f.err = nil
	if _, err := v.Mappings(); err != nil || f.asked != 2 {
		t.Errorf("an error is kept: %v", err)
	}
}

func TestWhatIsAskedAtAllIsAskedOnce(t *testing.T) {
	f := &fakeTarget{shadow: true, err: errNone}
	v := New(f)
	if _, err := v.ShadowStack(); !errors.Is(err, errNone) {
		t.Errorf("%v", err)
	}
	f.err = nil
	for range 3 {
		if on, err := v.ShadowStack(); !on || err != nil {
			t.Errorf("%v, %v", on, err)
		}
	}
	if f.asked != 2 {
		t.Errorf("asked %d times", f.asked)
	}
}

func TestCodeIsReadByThePage(t *testing.T) {
	f := &fakeTarget{code: make([]byte, 3*pageSize)}
	for i := range f.code {
		f.code[i] = byte(i * 7)
	}
	v := New(f)
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		off, n := rnd.IntN(len(f.code)), 1+rnd.IntN(2*pageSize)
		code, err := v.Original(base+arch.Addr(off), n)
		if want := f.code[off:min(off+n, len(f.code))]; err != nil || string(code) != string(want) {
			t.Fatalf("%d bytes at %d: %d, %v", n, off, len(code), err)
		}
	}
	if f.reads > 1000+3 { // of a page that is not there nothing is kept
		t.Errorf("%d reads", f.reads)
	}
	var unread *ReadError
	var fault *arch.FaultError
	if _, err := v.Original(base-1, 4); !errors.As(err, &unread) || !errors.As(err, &fault) {
		t.Errorf("in front of all: %v", err)
	}
}

func TestWhereInstructionsBegin(t *testing.T) {
	f := &fakeTarget{code: make([]byte, pageSize)}
	copy(f.code[0x10:], []byte{1, 3, 9, 9, 2, 9, 5, 9, 9, 9, 9, 1, 0})
	v := New(f)
	fn := arch.Range{Start: base + 0x10, End: base + 0x20}
	starts := map[arch.Addr]bool{0: true, 1: true, 4: true, 6: true, 11: true, 12: true} // 12 does not decode, but begins
	for _, off := range []arch.Addr{5, 0, 12, 2, 1, 11, 3, 4, 6, 7, 8, 9, 10} {
		at := fn.Start + off
		got, err := v.DecodeTo(fn, at)
		if err != nil {
			t.Fatal(err)
		}
		start, begins := got.Begins(at)
		inside := start < at && at < start.Add(int64(got.Code(start)[0]))
		if begins != starts[off] || begins && start != at || !begins && !inside {
			t.Errorf("at %d: %v, in the one at %s", off, begins, start)
		}
	}
	if _, err := v.DecodeTo(fn, fn.Start+13); !errors.Is(err, errNone) {
		t.Errorf("behind what does not decode: %v", err)
	}
	if f.reads != 1 {
		t.Errorf("%d reads", f.reads)
	}
	var unread *ReadError
	if _, err := v.DecodeTo(arch.Range{Start: 1, End: 5}, 2); !errors.As(err, &unread) {
		t.Errorf("no code: %v", err)
	}
	if _, err := v.DecodeTo(arch.Range{Start: base, End: base + longestKept + 1}, base+1); err == nil || errors.As(err, &unread) {
		t.Errorf("a long function: %v", err)
	}
}

// TestASurveyKeepsSomeFunctionsOnly: however many there are, and however long.
func TestASurveyKeepsSomeFunctionsOnly(t *testing.T) {
	f := &fakeTarget{code: make([]byte, longestKept)}
	for i := range f.code {
		f.code[i] = 1
	}
	v := New(f)
	for n := range 100 {
		fn := arch.Range{Start: base + arch.Addr(n), End: base + longestKept}
		if _, err := v.DecodeTo(fn, fn.Start+1); err != nil {
			t.Fatal(err)
		}
		kept := uint64(0)
		for r := range v.functions {
			kept += r.Len()
		}
		if kept > mostKept {
			t.Fatalf("%d bytes of functions are kept", kept)
		}
	}
}

func descriptor(start arch.Addr, length uint64, abort arch.Addr) []byte {
	b := binary.LittleEndian.AppendUint64(nil, 0)
	b = binary.LittleEndian.AppendUint64(b, uint64(start))
	b = binary.LittleEndian.AppendUint64(b, length)
	return binary.LittleEndian.AppendUint64(b, uint64(abort))
}

func TestRestartableSequences(t *testing.T) {
	f := &fakeTarget{
		sections: []arch.Range{{Start: 0x100, End: 0x100 + 2*32 + 5}, {Start: 0x900, End: 0x920}, {Start: 0x500, End: 0x520}}, // of the second nothing can be read
		memory: map[arch.Addr][]byte{
			0x100: append(append(descriptor(0x5000, 0x10, 0x6000), descriptor(0x500c, 0x10, 0x7000)...), 1, 2, 3, 4, 5),
			0x500: descriptor(0x4000, 0, 0x4100), // it is empty
		},
	}
	v := New(f)
	for _, c := range []struct {
		at         arch.Addr
		start, end arch.Addr
	}{
		{0x4fff, 0, 0}, {0x5000, 0x5000, 0x501c}, {0x500f, 0x5000, 0x501c}, {0x501b, 0x5000, 0x501c}, {0x501c, 0, 0}, // two that overlap
		{0x5ffb, 0, 0}, {0x5ffc, 0x5ffc, 0x6000}, {0x6000, 0, 0}, // what the kernel looks at in front of the abort address
		{0x4000, 0, 0}, {0x40ff, 0x40fc, 0x4100}, {0x6fff, 0x6ffc, 0x7000}, {0x8000, 0, 0},
	} {
		r, inside := v.Restartable(c.at)
		if inside != (c.end != 0) || r != (arch.Range{Start: c.start, End: c.end}) {
			t.Errorf("%s: %s, %v", c.at, fmt.Sprint(r), inside)
		}
	}
}
