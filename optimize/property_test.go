package optimize

import (
	"debug/elf"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/arch/amd64/code"
	"github.com/gokprobe/gokprobe/symbols"
)

// lines is what an independent reading of a function finds: where its instructions begin, up to
// the first bytes that are none, where direct branches and calls of it lead, and where its
// last instruction ends that may be executed: behind it is padding.
type lines struct {
	at      map[arch.Addr]arch.Insn
	targets map[arch.Addr]bool
	end     arch.Addr
	data    arch.Addr // the first bytes that are no instruction
}

// read reads f from an instruction on; targets are known already.
func read(f Function, from arch.Addr, targets map[arch.Addr]bool) lines {
	l := lines{at: map[arch.Addr]arch.Insn{}, targets: targets}
	last := arch.Insn{}
	for l.data = from; l.data < f.Range.End; {
		at := l.data
		i, err := code.Arch{}.Decode(f.Code[at-f.Range.Start:], at)
		if err != nil || i.End() > f.Range.End {
			break
		}
		l.at[at] = i
		if i.Target != 0 {
			l.targets[i.Target] = true
		}
		if i.Flow == arch.FlowCall || i.Flow == arch.FlowIndirectCall {
			l.targets[i.End()] = true
		}
		if l.data = i.End(); !(code.Arch{}).Padding(i) {
			l.end, last = i.End(), i
		}
	}
	if fallsThrough(last) {
		l.end = l.data
	}
	return l
}

// allowed picks a displacement that p allows.
func allowed(p arch.Pattern, r *rand.Rand) (rel [4]byte) {
	for k := range rel {
		for rel[k] = byte(r.Uint32()); !p.Byte[k].Has(rel[k]); rel[k]++ {
		}
	}
	return rel
}

// checkOption writes a jump that o allows, and looks at what each thread would find.
func checkOption(t *testing.T, f Function, l lines, at arch.Addr, o Option, r *rand.Rand) {
	t.Helper()
	rel := allowed(o.Pattern, r)
	jump := append([]byte{0xe9}, rel[:]...)
	original := f.Code[at-f.Range.Start:]
	next := at
	copied := map[arch.Addr]bool{}
	for _, i := range o.Insns {
		if i.Addr != next || l.at[i.Addr].Len() != i.Len() {
			t.Fatalf("%s: displaced instruction at %s, want %s", at, i.Addr, next)
		}
		copied[i.Addr] = true
		next = i.End()
	}
	if o.Kept < len(jump) && o.End() != at+arch.Addr(o.Kept) {
		t.Fatalf("%s: keeps from %d on but displaces up to %s", at, o.Kept, o.End())
	}
	for n := 1; n < len(jump); n++ {
		a := at + arch.Addr(n)
		_, head := l.at[a]
		same := string(jump[n:]) == string(original[n:len(jump)])
		traps := code.Arch{}.TrapBytes(f.BreakpointOnly || n < 4).Has(jump[n]) && copied[a]
		switch {
		case l.targets[a] && !same:
			t.Fatalf("%s: known target %s is overwritten: % x", at, a, jump)
		case head && !same && !traps && (a < l.end || at >= l.end):
			t.Fatalf("%s: head %s neither traps nor is kept: % x for % x", at, a, jump, original[:5])
		case a >= l.data && a < f.Range.End && !same:
			t.Fatalf("%s: data at %s is overwritten", at, a)
		case a >= next && a < l.end && !same:
			t.Fatalf("%s: byte %s behind the displaced code is overwritten", at, a)
		case a >= f.Range.End && a >= next && !same && (f.Next == 0 || a >= f.Next):
			t.Fatalf("%s: byte %s of the next function is overwritten", at, a)
		}
	}
}

// checkAll looks at all sites of f.
func checkAll(t *testing.T, f Function, r *rand.Rand) (sites, chosen int) {
	t.Helper()
	an, err := Analyze(code.Arch{}, code.Arch{}, f)
	if err != nil {
		return 0, 0
	}
	targets := map[arch.Addr]bool{f.Next: true}
	for _, t := range f.Targets {
		targets[t] = true
	}
	l := read(f, f.Range.Start, targets)
	for at := f.Range.Start; at < f.Range.End; at++ {
		c, err := an.Site(at)
		if at >= l.data && err == nil {
			l = read(f, at, targets) // behind data
		}
		_, head := l.at[at]
		if head && at < l.end && f.Code[at-f.Range.Start] != 0xcc {
			sites++
		}
		if err != nil {
			continue
		}
		if !head || len(c.Options) == 0 {
			t.Fatalf("%s: head %v, %d options", at, head, len(c.Options))
		}
		if at < l.end {
			chosen++
		}
		for _, o := range c.Options {
			checkOption(t, f, l, at, o, r)
		}
	}
	return sites, chosen
}

// The test's own code has all that the Go compiler and its assembler write.
func TestEveryJumpAllowedTrapsOrKeepsEveryHead(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	sites, chosen := 0, 0
	for n, f := range ownFunctions(t) {
		if n%4 > 0 {
			continue
		}
		s, c := checkAll(t, f, r)
		sites += s
		chosen += c
	}
	if sites < 100_000 || float64(chosen) < 0.99*float64(sites) {
		t.Errorf("%d of %d instructions can be sites", chosen, sites)
	}
}

// ownFunctions are those of the test's executable.
func ownFunctions(t *testing.T) []Function {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	section := f.Section(".text")
	text, err := section.Data()
	if err != nil {
		t.Fatal(err)
	}
	table, err := symbols.OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	defer table.Close()
	var all []Function
	for _, s := range table.Symbols("") {
		if off := uint64(s.Addr) - section.Addr; s.Func && s.Size > 0 && off < section.Size {
			end := s.Addr.Add(int64(s.Size))
			all = append(all, Function{
				Range: arch.Range{Start: s.Addr, End: end},
				Code:  text[off:min(off+s.Size+32, section.Size)],
				Next:  (end + 31) &^ 31,
			})
		}
	}
	return all
}

func FuzzAnalyze(f *testing.F) {
	f.Add([]byte{0x50, 0x51, 0xf0, 0xff, 0x07, 0xeb, 0xfc, 0xc3}, uint8(8), uint8(0x10), uint8(3), false)
	f.Add([]byte{0x31, 0xc0, 0xc3, 0x06, 0x75, 0xfb, 0x90}, uint8(6), uint8(0), uint8(0), true)
	f.Add([]byte{0xc3, 0xcc, 0x66, 0x90, 0x0f, 0x1f, 0x00, 0x90}, uint8(1), uint8(7), uint8(1), false)
	f.Fuzz(func(t *testing.T, code []byte, size, next, target uint8, breakpointOnly bool) {
		fn := Function{
			Range: arch.Range{Start: base, End: base + arch.Addr(size)}, Code: code,
			Targets: []arch.Addr{base + arch.Addr(target)}, BreakpointOnly: breakpointOnly,
		}
		if next >= size && next > 0 {
			fn.Next = base + arch.Addr(next)
		}
		checkAll(t, fn, rand.New(rand.NewPCG(uint64(size), uint64(target))))
	})
}
