package reach_test

import (
	"testing"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/arch/amd64"
	"github.com/gokprobe/gokprobe/internal/reach"
)

const base = arch.Addr(0x1000)

// flat is memory with one piece in it.
type flat struct {
	at arch.Addr
	b  []byte
}

func (m flat) ReadMemory(at arch.Addr, p []byte) error {
	if at < m.at || at+arch.Addr(len(p)) > m.at+arch.Addr(len(m.b)) {
		return &arch.FaultError{Addr: at}
	}
	copy(p, m.b[at-m.at:])
	return nil
}

func (m flat) WriteMemory(at arch.Addr, _ []byte) error {
	return &arch.FaultError{Addr: at, Write: true}
}

func analyze(code []byte, entries, pointers []arch.Addr) *reach.Result {
	r := arch.Range{Start: base, End: base + arch.Addr(len(code))}
	return reach.Analyze(amd64.Arch{}, reach.Function{
		Range: r, Code: code, Entries: entries, Memory: flat{base, code},
		Pointers: func() []arch.Addr { return pointers }, IsCode: func(a arch.Addr) bool { return a >= 0x1000 && a < 0x3000 },
	})
}

func TestWhatIsReached(t *testing.T) {
	for _, tt := range []struct {
		name       string
		code       []byte
		entries    []arch.Addr
		pointers   []arch.Addr
		want       []arch.Addr // offsets of instructions
		left       int
		unresolved int
	}{
		{"behind a return there may be data", []byte{0x90, 0xc3, 0x55, 0xc3}, nil, nil, []arch.Addr{0, 1}, 1, 0},
		{"but not behind an entry", []byte{0x90, 0xc3, 0x55, 0xc3}, []arch.Addr{base + 2}, nil, []arch.Addr{0, 1, 2, 3}, 0, 0},
		{"padding is not left", []byte{0xc3, 0x66, 0x90, 0x90, 0xcc}, nil, nil, []arch.Addr{0}, 0, 0},
		{"a call comes back", []byte{0xe8, 0, 1, 0, 0, 0xc3}, nil, nil, []arch.Addr{0, 5}, 0, 0},
		{"unless what follows runs off the end", []byte{0xe8, 0, 1, 0, 0, 0x54, 0x58}, nil, nil, []arch.Addr{0}, 1, 0},
		{"or is no instruction", []byte{0xe8, 0, 1, 0, 0, 0x54, 0x06, 0xc3}, nil, nil, []arch.Addr{0}, 1, 0},
		{"or is privileged", []byte{0xe8, 0, 1, 0, 0, 0xec, 0xc3}, nil, nil, []arch.Addr{0}, 1, 0},
		{"or leads to no code", []byte{0xe8, 0, 1, 0, 0, 0xe9, 0, 0, 0, 0x10, 0xc3}, nil, nil, []arch.Addr{0}, 1, 0},
		{"or into an instruction", []byte{0xe8, 0, 1, 0, 0, 0xeb, 1, 0xb8, 1, 2, 3, 4, 0xc3}, []arch.Addr{base + 7}, nil, []arch.Addr{0, 7, 12}, 1, 0},
		{"a call over data", []byte{0xe8, 2, 0, 0, 0, 0x55, 0xc3, 0x58, 0xc3}, nil, nil, []arch.Addr{0, 7, 8}, 1, 0},
		{"exit does not come back", []byte{0xb8, 60, 0, 0, 0, 0x0f, 0x05, 0x55, 0xc3}, nil, nil, []arch.Addr{0, 5}, 1, 0},
		{"write does", []byte{0xb8, 1, 0, 0, 0, 0x0f, 0x05, 0x55, 0xc3}, nil, nil, []arch.Addr{0, 5, 7, 8}, 0, 0},
		{"a jump by a register may lead anywhere", []byte{0xff, 0xe0, 0x55, 0xc3}, nil, nil, []arch.Addr{0}, 1, 1},
		{"to where pointers lead", []byte{0xff, 0xe0, 0x55, 0xc3}, nil, []arch.Addr{base + 2}, []arch.Addr{0, 2, 3}, 0, 1},
		{"without such a jump they are data's", []byte{0x50, 0xc3, 0x55, 0xc3}, nil, []arch.Addr{base + 2}, []arch.Addr{0, 1}, 1, 0},
		{"a jump to what was loaded", []byte{0x48, 0x8d, 0x05, 4, 0, 0, 0, 0xff, 0xe0, 0x55, 0xc3, 0x58, 0xc3}, nil, nil, []arch.Addr{0, 7, 11, 12}, 1, 0},
		{"a jump behind a lock prefix", []byte{0x74, 1, 0xf0, 0x48, 0xff, 0x07, 0xc3}, nil, nil, []arch.Addr{0, 2, 6}, 0, 0},
	} {
		got := analyze(tt.code, tt.entries, tt.pointers)
		var at []arch.Addr
		for _, i := range got.Insns {
			at = append(at, i.Addr-base)
		}
		same := len(at) == len(tt.want)
		for i := range at {
			same = same && at[i] == tt.want[i]
		}
		if !same || len(got.Left) != tt.left || got.Unresolved != tt.unresolved {
			t.Errorf("%s: %v, left %v, %d unresolved", tt.name, at, got.Left, got.Unresolved)
		}
	}
}

// FuzzAnalyze: whatever the bytes, what is found lies in the function, does not overlap, and is not left as well.
func FuzzAnalyze(f *testing.F) {
	f.Add([]byte{0xff, 0xe0, 0x55, 0xc3}, uint16(2))
	f.Add([]byte{0x48, 0x8d, 0x05, 4, 0, 0, 0, 0xff, 0xe0, 0x55, 0xc3, 0x58, 0xc3}, uint16(0))
	f.Fuzz(func(t *testing.T, code []byte, entry uint16) {
		if len(code) == 0 || len(code) > 1<<12 {
			return
		}
		got := analyze(code, []arch.Addr{base + arch.Addr(entry)}, []arch.Addr{base + arch.Addr(entry)/2})
		used := map[arch.Addr]bool{}
		use := func(r arch.Range) {
			for a := r.Start; a < r.End; a++ {
				if used[a] || a < base || a >= base+arch.Addr(len(code)) {
					t.Fatalf("%s of %v, %v", a, got.Insns, got.Left)
				}
				used[a] = true
			}
		}
		for _, i := range got.Insns {
			use(i.Range())
		}
		for _, r := range got.Left {
			use(r)
		}
	})
}
