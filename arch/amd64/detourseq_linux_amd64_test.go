package amd64_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/arch/amd64"
	"github.com/gokprobe/gokprobe/arch/amd64/code"
	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/internal/testsize"
)

// plainOps are opcodes that Dead knows, one or two bytes, and their immediates.
var plainOps = []struct {
	op    string
	modrm bool
	imm   int
}{
	{"01", true, 0}, {"03", true, 0}, {"09", true, 0}, {"0b", true, 0}, {"11", true, 0}, {"13", true, 0}, {"19", true, 0}, {"1b", true, 0},
	{"21", true, 0}, {"23", true, 0}, {"29", true, 0}, {"2b", true, 0}, {"31", true, 0}, {"33", true, 0}, {"39", true, 0}, {"3b", true, 0},
	{"00", true, 0}, {"02", true, 0}, {"1a", true, 0}, {"30", true, 0}, {"38", true, 0}, {"04", false, 1}, {"1d", false, 4}, {"35", false, 4}, {"3c", false, 1},
	{"50", false, 0}, {"53", false, 0}, {"58", false, 0}, {"5e", false, 0}, {"63", true, 0}, {"69", true, 4}, {"6b", true, 1}, {"68", false, 4}, {"6a", false, 1},
	{"81", true, 4}, {"83", true, 1}, {"80", true, 1}, {"84", true, 0}, {"85", true, 0}, {"88", true, 0}, {"89", true, 0}, {"8a", true, 0}, {"8b", true, 0},
	{"8d", true, 0}, {"90", false, 0}, {"a8", false, 1}, {"a9", false, 4}, {"b1", false, 1}, {"b4", false, 1}, {"b8", false, 4}, {"bf", false, 4},
	{"c6", true, 1}, {"c7", true, 4}, {"f6", true, 1}, {"f7", true, 4}, {"fe", true, 0}, {"ff", true, 0}, {"f7", true, 0},
	{"0f11", true, 0}, {"0f28", true, 0}, {"0fef", true, 0}, {"0f1f", true, 0}, {"0f44", true, 0}, {"0f4c", true, 0}, {"0f94", true, 0}, {"0f9c", true, 0},
	{"0faf", true, 0}, {"0fb6", true, 0}, {"0fb7", true, 0}, {"0fbe", true, 0}, {"0fbf", true, 0}, {"9c", false, 0}, {"c1", true, 1}, {"9f", false, 0},
}

// randomPlain is the bytes of such an instruction, maybe one that does not exist.
func randomPlain(t testing.TB, rnd *rand.Rand) (b []byte) {
	o := pick(rnd, plainOps...)
	if rnd.IntN(12) == 0 {
		b = append(b, 0x66)
	}
	if rnd.IntN(2) == 0 {
		b = append(b, byte(0x40|rnd.IntN(16)))
	}
	b = append(b, unhex(t, o.op)...)
	if o.modrm {
		reg := byte(rnd.IntN(8)) << 3
		switch rnd.IntN(6) {
		case 0:
			b = append(b, 0x44|reg, 0x24, byte(rnd.IntN(16)*8)) // n(%rsp)
		case 1:
			b = append(b, 0x40|reg|pick[byte](rnd, 3, 6, 7), byte(rnd.IntN(128)))
		case 2:
			b = append(b, 5|reg, byte(rnd.IntN(256)), 0x20, 0, 0x10)
		default:
			b = append(b, 0xc0|reg|byte(rnd.IntN(8)))
		}
	}
	for range o.imm {
		b = append(b, byte(rnd.Uint32()))
	}
	return b
}

// randomSequence is up to n instructions that can be displaced, at at.
func randomSequence(t testing.TB, rnd *rand.Rand, at arch.Addr, n int) (insns []arch.Insn) {
	a := code.Arch{}
	for len(insns) < n {
		b := randomPlain(t, rnd)
		if rnd.IntN(10) == 0 {
			b = randomBranch(rnd)
		}
		i, err := a.Decode(b, at)
		if err != nil || a.Displaceable(i) != nil {
			continue
		}
		insns, at = append(insns, i), i.End()
	}
	return insns
}

// ran is what displaced instructions leave that ran in place or in a detour.
type ran struct {
	state
	hits  int
	loops bool // maybe forever
}

// intoTheMiddle tells that one of insns is a jump to a byte of them that is not the first of any.
func intoTheMiddle(insns []arch.Insn) bool {
	heads := map[arch.Addr]bool{}
	for _, i := range insns {
		heads[i.Addr] = true
	}
	dcr := arch.Range{Start: insns[0].Addr, End: insns[len(insns)-1].End()}
	return slices.ContainsFunc(insns, func(i arch.Insn) bool { return dcr.Contains(i.Target) && !heads[i.Target] })
}

// runInPlace runs insns from r until the thread leaves them.
func runInPlace(c *cpu, insns []arch.Insn, r amd64.Regs) (out ran) {
	dcr := arch.Range{Start: insns[0].Addr, End: insns[len(insns)-1].End()}
	r.SetIP(dcr.Start)
	out.hits = 1
	for range 100 {
		r, out.sig = c.step(r)
		if r.IP() == dcr.Start && out.sig == unix.SIGTRAP {
			out.hits++
		}
		if out.sig != unix.SIGTRAP || !dcr.Contains(r.IP()) {
			break
		}
	}
	out.loops = out.sig == unix.SIGTRAP && dcr.Contains(r.IP())
	out.regs = r
	out.data, out.stack = c.get(dataAt, area), c.get(stackAt, area)
	return out
}

var errInBody = errors.New("a signal in the body")

// runDetoured does the same when a jump at the first of insns leads to d. What is dead gets
// values from poison behind the body.
func runDetoured(c *cpu, d *arch.Detour, r amd64.Regs, dead arch.Dead, poison func() uint64) (out ran, err error) {
	dcr := arch.Range{Start: d.Pieces[0].Insn.Addr, End: d.End}
	r.SetIP(d.Addr)
	out.hits = 1
	for range 4000 {
		r, out.sig = c.step(r)
		if r.IP() == dcr.Start && out.sig == unix.SIGTRAP {
			out.hits++
			r.SetIP(d.Addr)
		}
		if out.sig != unix.SIGTRAP || !dcr.Contains(r.IP()) && !d.Range().Contains(r.IP()) {
			break
		}
		if r.IP() == d.Start() {
			r = poisoned(r, dead, poison)
		}
	}
	if d.Body.Contains(r.IP()) {
		return out, errInBody
	}
	if orig, pop, ok := d.Original(r.IP()); ok {
		r.SetIP(orig)
		r.SetSP(r.SP().Add(int64(pop)))
	}
	out.regs = r
	out.data, out.stack = c.get(dataAt, area), c.get(stackAt, area)
	return out, nil
}

func poisoned(r amd64.Regs, dead arch.Dead, poison func() uint64) amd64.Regs {
	for n, name := range encodingOrder {
		if dead.Regs>>n&1 != 0 {
			r.Set(name, poison())
		}
	}
	if dead.Flags {
		r.Eflags = r.Eflags&^0x8d5 | poison()&0x8d5
	}
	return r
}

// sequenceAgrees compares a random sequence with its detour.
func sequenceAgrees(c *cpu, rnd *rand.Rand, from *state) (string, error) {
	a := code.Arch{}
	insns := randomSequence(c.t, rnd, codeAt+0x6000+arch.Addr(rnd.IntN(64)), 1+rnd.IntN(6))
	dead := a.Dead(insns)
	d, err := a.AssembleDetour(detourAt, insns, a.CountBody(cellsAt, pick(rnd, 1, nCells), dead, true))
	if err != nil {
		return "", err
	}
	var code []byte
	for _, i := range insns {
		code = append(code, i.Bytes...)
	}
	c.put(insns[0].Addr, code)
	c.put(d.Addr, d.Code)
	start := linearStart(rnd, from)
	c.load(&start)
	native := runInPlace(c, insns, start.regs)
	switch {
	case native.loops || native.hits > 6 || intoTheMiddle(insns):
		return "loop", nil
	case native.regs.Rsp < start.regs.Rsp-64 && native.regs.Rsp > start.regs.Rsp-512:
		return "below the red zone", nil // where the body has left something to read
	}
	c.load(&start)
	was := c.counted()
	got, err := runDetoured(c, d, start.regs, dead, rnd.Uint64)
	switch {
	case errors.Is(err, errInBody) && got.hits > 1: // the stack pointer may be anything by then
		return "in body", nil
	case err != nil:
		return "", fmt.Errorf("% x: %w", code, err)
	case got.sig != unix.SIGTRAP && (native.regs.Rsp < stackAt || native.regs.Rsp >= stackAt+area):
		return "no stack", nil // a call with a bad operand too raises the one or the other
	case got.sig != unix.SIGTRAP && dead.Flags:
		got.regs.Eflags = native.regs.Eflags
	}
	deep := 24 + 64*(got.hits-1) // a hit may have a stack that has grown
	below := int(start.regs.Rsp) - 128 - deep - stackAt
	copy(got.stack[below:below+deep], native.stack[below:])
	if got.sig != unix.SIGTRAP {
		forgetLink(&got.state, &native.state)
	}
	diff := difference(&native.state, &got.state)
	if diff == "" && (native.hits != got.hits || c.counted() != was+uint64(got.hits)) {
		diff = fmt.Sprintf("%d hits, %d and %d in the detour", native.hits, got.hits, c.counted()-was)
	}
	if diff != "" {
		return "", fmt.Errorf("% x: %+v: %s", code, dead, diff)
	}
	return outcome(native.sig, dead), nil
}

// forgetLink makes the word below the stack pointer, to which a failed call has been writing, the same.
func forgetLink(got, native *state) {
	if at := int(native.regs.Rsp) - 8 - stackAt; at >= 0 && at <= area-8 {
		copy(got.stack[at:at+8], native.stack[at:])
	}
}

func outcome(sig unix.Signal, dead arch.Dead) string {
	s := sig.String()
	if dead.Flags {
		s += " flags"
	}
	if dead.Regs != 0 {
		s += " regs"
	}
	return s
}

func TestDetourOfManyDoesWhatTheOriginalsDo(t *testing.T) {
	n := testsize.Rounds(300, 3000, 30_000)
	seed := testprog.Seed(t, 1)
	rnd := rand.New(rand.NewPCG(seed, 0))
	c := newCPU(t)
	from := state{regs: c.regs(), data: randomData(rnd), stack: randomData(rnd), xstate: c.xstate()}
	seen := map[string]int{}
	for range n {
		what, err := sequenceAgrees(c, rnd, &from)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		seen[what]++
	}
	t.Log(seen)
	for _, what := range []string{"trace/breakpoint trap", "trace/breakpoint trap flags", "trace/breakpoint trap regs", "trace/breakpoint trap flags regs", "segmentation fault flags", "segmentation fault regs"} {
		if seen[what] == 0 {
			t.Errorf("%s never came up", what)
		}
	}
}

// highAt is where sign extension does not make a return address.
const highAt = 0x7e0080000000

func TestCallFromAnywherePushesItsReturnAddress(t *testing.T) {
	a := code.Arch{}
	c := newCPU(t)
	start := c.regs()
	bases := []uint64{highAt, 0x90000000, codeAt}
	for _, base := range bases {
		c.mmap(base)
	}
	for _, base := range bases {
		for _, code := range []string{"e8 00 01 00 00", "ff d0", "41 ff d3", "ff 54 24 10", "ff 14 24", "ff 15 00 08 00 00"} {
			at := arch.Addr(base + 0x100)
			insns := sequence(t, unhex(t, code), at)
			d, err := a.AssembleDetour(at+0x1000, insns, a.CountBody(arch.Addr(base+0x8000), nCells, arch.Dead{}, false))
			if err != nil {
				t.Fatal(err)
			}
			r := start
			r.Rsp, r.Rax, r.R11 = stackAt+0x8000, base+0x2000, base+0x3000
			target := []byte{0, 0x40, 0, 0, 0, 0, 0, 0}
			c.put(at+0x800+6, target)
			c.put(r.SP(), target)
			c.put(r.SP()+0x10, target)
			c.put(d.Addr, d.Code)
			c.put(at, insns[0].Bytes)
			r.SetIP(at)
			native, sig := c.step(r)
			link := c.get(native.SP(), 8)
			c.put(native.SP(), make([]byte, 8))
			got, gotSig, err := c.through(d, r, arch.Dead{})
			if err != nil || got != native || sig != gotSig || !bytes.Equal(link, c.get(got.SP(), 8)) {
				t.Errorf("%s at %s: %v, %v, %v, link % x\nin place %+x\ndetour   %+x", code, at, err, sig, gotSig, c.get(got.SP(), 8), native, got)
			}
		}
	}
}

func TestTrapBytesTrap(t *testing.T) {
	c := newCPU(t)
	r := c.regs()
	seed := testprog.Seed(t, 1)
	rnd := rand.New(rand.NewPCG(seed, 0))
	all, int3 := code.Arch{}.TrapBytes(false), code.Arch{}.TrapBytes(true)
	for v := range 256 {
		if !all.Has(byte(v)) {
			continue
		}
		for range 200 {
			r.SetIP(codeAt + 0x100)
			code := []byte{byte(v)}
			for range 15 {
				code = append(code, byte(rnd.Uint32()))
			}
			c.put(r.IP(), code)
			got, sig := c.step(r)
			want, wantIP := unix.SIGILL, r.IP()
			if int3.Has(byte(v)) {
				want, wantIP = unix.SIGTRAP, wantIP+1
			}
			if sig != want || got.IP() != wantIP {
				t.Fatalf("seed %d: % x: %v at %s", seed, code, sig, got.IP())
			}
		}
	}
}

// TestCountBodyWithoutStack: a push that faults is skipped by its fixup, with all
// registers as they were.
func TestCountBodyWithoutStack(t *testing.T) {
	a := code.Arch{}
	c := newCPU(t)
	start := c.regs()
	faults := 0
	for room := range 5 {
		for _, n := range []int{1, nCells} {
			d, err := a.AssembleDetour(detourAt, sequence(t, []byte{0x90}, codeAt+0x100), a.CountBody(cellsAt, n, arch.Dead{}, true))
			if err != nil {
				t.Fatal(err)
			}
			c.put(d.Addr, d.Code)
			r := start
			r.Rsp = stackAt + 128 + 8*uint64(room)
			before := r
			was, faulted := c.counted(), false
			r.SetIP(d.Addr)
			for r.IP() != d.Start() {
				var sig unix.Signal
				if r, sig = c.step(r); sig == unix.SIGTRAP {
					continue
				}
				to, ok := fixup(d.Stops, r.IP())
				if faulted || !ok {
					t.Fatalf("%v at %s: %+v", sig, r.IP(), d)
				}
				faulted = true
				r.SetIP(to)
			}
			if diff := changed(before, r, arch.Dead{}); diff != "" {
				t.Error(diff)
			}
			if counted := c.counted() != was; counted == faulted {
				t.Errorf("%d counters, room for %d: faulted %t, counted %t", n, room, faulted, counted)
			}
			if faulted {
				faults++
			}
		}
	}
	if faults != 1+3 {
		t.Errorf("%d faults", faults)
	}
}

// fixup is where a thread goes on behind a fault at at.
func fixup(stops arch.Stops, at arch.Addr) (arch.Addr, bool) {
	stop, ok := stops.StopAt(at)
	return stop.To, ok && stop.Why.Faults()
}
