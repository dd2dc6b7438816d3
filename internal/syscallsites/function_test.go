package syscallsites

import (
	"slices"
	"testing"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/arch/amd64"
)

// TestPlacesInFrontOfSystemCalls: which place a probe on a system call has, and which number the call, in functions of all kinds.
func TestPlacesInFrontOfSystemCalls(t *testing.T) {
	const base arch.Addr = 0x1000
	mov, call, ret := []byte{0xb8, 1, 1, 0, 0}, []byte{0x0f, 0x05}, []byte{0xc3}
	r10 := []byte{0x49, 0x89, 0xca}
	for _, c := range []struct {
		name   string
		code   []byte
		call   int // the offset of the system call, and of the probe
		at     int
		number int
	}{
		{"mov; syscall", slices.Concat(mov, call, ret), 5, 0, 257},
		{"mov; mov; syscall", slices.Concat(mov, r10, call, ret), 8, 0, 257},
		{"the number comes with the call", slices.Concat(r10, r10, call, ret), 6, 0, AnyNumber},
		{"too short for a jump", slices.Concat([]byte{0x31, 0xc0}, call, ret), 2, 2, 0},
		{"more than a load between: the number is known", slices.Concat(mov, []byte{0x40, 0x80, 0xf6, 0x81}, call, ret), 9, 9, 257},
		{"a branch to the call itself", slices.Concat([]byte{0x74, 0x05}, mov, call, ret), 7, 7, AnyNumber},
		{"a branch to the call, with the same number", slices.Concat(mov, []byte{0x74, 0x05}, mov, call, ret), 12, 12, 257},
		{"a branch to the load", slices.Concat([]byte{0x74, 0x00}, mov, call, ret), 7, 2, 257},
		{"again without the load, after another", slices.Concat(mov, call, []byte{0x75, 0xfc}, ret), 5, 5, AnyNumber},
		{"a branch out in front of the call", slices.Concat(mov, []byte{0x74, 0x02}, call, ret), 7, 7, 257},
		{"behind a function's call", slices.Concat(mov, []byte{0xe8, 0, 0, 0, 0}, call, ret), 10, 10, AnyNumber},
		{"an indirect jump", slices.Concat(mov, call, []byte{0xff, 0xe0}), 5, 5, AnyNumber},
		{"nothing leads there", slices.Concat(ret, call, ret), 1, 1, unreached},
	} {
		f := newFunction(amd64.Arch{}, 5, arch.Range{Start: base, End: base + arch.Addr(len(c.code))}, c.code)
		i, ok := f.Index(base + arch.Addr(c.call))
		if !ok {
			t.Fatalf("%s: no instruction at %d", c.name, c.call)
		}
		site := f.Site(i, f.numbers()[i])
		if site.Insn != base+arch.Addr(c.call) || site.At != base+arch.Addr(c.at) || site.Number != c.number {
			t.Errorf("%s: call at %d, probe at %d, number %d; want %d, %d, %d", c.name, site.Insn-base, site.At-base, site.Number, c.call, c.at, c.number)
		}
	}
}

// TestEntrancesFromElsewhere: what another function jumps to is no way that is known.
func TestEntrancesFromElsewhere(t *testing.T) {
	const base arch.Addr = 0x1000
	for _, c := range []struct {
		name       string
		jump       []byte // at 8, behind the function; from behind it
		at, number int
	}{
		{"to the call", []byte{0xe9, 0xf8, 0xff, 0xff, 0xff}, 5, AnyNumber},    // 8+5-8 = 5
		{"to the load", []byte{0xe9, 0xf3, 0xff, 0xff, 0xff}, 0, 257},          // 0
		{"to the call, if", []byte{0x0f, 0x84, 0xf7, 0xff, 0xff, 0xff}, 5, -1}, // 8+6-9 = 5
		{"to behind the call", []byte{0xe9, 0xfa, 0xff, 0xff, 0xff}, 0, 257},   // 7
		{"elsewhere", []byte{0xe9, 0, 0, 0, 0}, 0, 257},
	} {
		code := slices.Concat([]byte{0xb8, 1, 1, 0, 0, 0x0f, 0x05, 0xc3}, c.jump)
		f := newFunction(amd64.Arch{}, 5, arch.Range{Start: base, End: base + 8}, code[:8])
		all := arch.Range{Start: base, End: base + arch.Addr(len(code))}
		newEntranceMap(amd64.Arch{}, []*Function{f}, all).note(all, base, code)
		site := f.Site(1, f.numbers()[1])
		if site.At != base+arch.Addr(c.at) || site.Number != c.number {
			t.Errorf("%s: probe at %d, number %d, want %d, %d", c.name, site.At-base, site.Number, c.at, c.number)
		}
	}
}
