package amd64_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unsafe"

	bpf "github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/arch/amd64"
	"github.com/gokprobe/gokprobe/arch/amd64/jit"
	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/internal/testsize"
	"github.com/gokprobe/gokprobe/program"
)

const (
	mapsAt = slotAt
	siteAt = 0x12345678
)

// run goes on from r to the first exception that no fixup is for. Fixups are for SIGBUS, too, but here only
// an access relative to the stack segment would raise it, and no program's read of an address is one.
func (c *cpu) run(r amd64.Regs, fixups arch.Stops) (amd64.Regs, unix.Signal) {
	c.t.Helper()
	for {
		if err := unix.PtraceSetRegs(c.pid, (*unix.PtraceRegs)(unsafe.Pointer(&r))); err != nil {
			c.t.Fatal(err)
		}
		if err := unix.PtraceCont(c.pid, 0); err != nil {
			c.t.Fatal(err)
		}
		sig := c.wait()
		r = c.regs()
		to, ok := fixup(fixups, r.IP())
		if sig != unix.SIGSEGV || !ok {
			return r, sig
		}
		r.SetIP(to)
	}
}

// bench is a processor that programs run on, and the memory of their maps.
type bench struct {
	*cpu
	rnd   *rand.Rand
	start amd64.Regs
	at    []arch.Addr // of the maps
}

func newBench(t testing.TB, rnd *rand.Rand) *bench {
	b := &bench{cpu: newCPU(t), rnd: rnd}
	b.start = b.regs()
	next := arch.Addr(mapsAt)
	for _, m := range genMaps {
		b.at = append(b.at, next)
		next += arch.Addr(m.Len())
	}
	if next > mapsAt+area {
		t.Fatalf("the maps need %#x bytes", next-mapsAt)
	}
	text := randomData(rnd)
	for i := range text { // strings of some length
		if rnd.IntN(8) != 0 {
			text[i] |= 1
		}
	}
	b.put(dataAt, text)
	return b
}

// freshMaps are maps in their first state, but rings are where they have been used for long.
func (b *bench) freshMaps() (maps [][]uint64) {
	for _, m := range genMaps {
		cells := make([]uint64, m.Len()/8)
		if m.Kind == program.Ring {
			head := uint64(b.rnd.Uint32())<<8 | uint64(8*b.rnd.IntN(m.Size/8))
			used := uint64(pick(b.rnd, 0, m.Size, m.Size-8*b.rnd.IntN(100), 8*b.rnd.IntN(m.Size/8)))
			cells[program.RingHead/8], cells[program.RingTail/8] = head, head-min(used, head)
		}
		maps = append(maps, cells)
	}
	return maps
}

func (b *bench) putMaps(maps [][]uint64) {
	for i, m := range maps {
		b.put(b.at[i], unsafe.Slice((*byte)(unsafe.Pointer(&m[0])), 8*len(m)))
	}
}

func (b *bench) getMaps() (maps [][]uint64) {
	for i, m := range genMaps {
		raw := b.get(b.at[i], m.Len())
		cells := make([]uint64, len(raw)/8)
		for n := range cells {
			cells[n] = binary.LittleEndian.Uint64(raw[8*n:])
		}
		maps = append(maps, cells)
	}
	return maps
}

// sums is the maps with the shards added up.
func sums(t testing.TB, maps [][]uint64) (list [][]uint64) {
	for i, m := range genMaps {
		if m.Kind == program.Ring {
			list = append(list, maps[i])
			continue
		}
		v, err := m.Values(maps[i])
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, v)
	}
	return list
}

// target is a random one that has what p needs.
func (b *bench) target(p *program.Checked) program.Target {
	e := program.Target{Site: siteAt, Maps: b.at, RedZone: b.rnd.IntN(2) == 0, HWCAP2: 2}
	if !slices.ContainsFunc(p.Code, func(i program.Insn) bool {
		return i.Mem == program.InContext && strings.HasSuffix(p.Regs[i.Off/8], "_base")
	}) {
		e.HWCAP2 = uint64(b.rnd.IntN(4))
	}
	e.ThreadPointer = b.rnd.IntN(2) == 0
	if b.rnd.IntN(2) == 0 {
		for _, m := range p.Maps {
			e.Far = append(e.Far, m.Kind == program.State && b.rnd.IntN(2) == 0)
		}
	}
	e.Dead.Flags = b.rnd.IntN(2) == 0
	if b.rnd.IntN(2) == 0 {
		e.Dead.Regs = uint16(b.rnd.Uint32() & b.rnd.Uint32())
	}
	return e
}

// thread is what program.Thread is said to return.
func (b *bench) thread(r amd64.Regs, e program.Target) uint64 {
	switch word := make([]byte, 8); {
	case e.HWCAP2&2 != 0:
		return r.Fs_base
	case e.ThreadPointer && b.ReadMemory(arch.Addr(r.Fs_base), word) == nil:
		return binary.LittleEndian.Uint64(word)
	}
	return 0
}

// registers are random; some are no addresses.
func (b *bench) registers() amd64.Regs {
	r := randomRegs(b.rnd, b.start)
	r.Orig_rax = ^uint64(0)
	for _, name := range encodingOrder {
		if name != "rsp" && b.rnd.IntN(6) == 0 {
			r.Set(name, b.rnd.Uint64()>>b.rnd.IntN(64))
		}
	}
	return r
}

// forget makes what is dead the same in r as in like.
func forget(r *amd64.Regs, like amd64.Regs, dead arch.Dead) {
	for n, name := range encodingOrder {
		if v, _ := like.Get(name); dead.Regs>>n&1 != 0 && name != "rsp" {
			r.Set(name, v)
		}
	}
	if dead.Flags {
		r.Eflags = r.Eflags&^0x8d5 | like.Eflags&0x8d5
	}
}

// compare runs p both ways from random registers.
func (b *bench) compare(p *program.Checked) error {
	target, before := b.target(p), b.registers()
	body, err := jit.Compiler{}.Compile(p, target)
	if err != nil {
		return err
	}
	before.SetIP(arch.Addr(codeAt + b.rnd.IntN(64)))
	code, err := body.Assemble(before.IP())
	if err != nil {
		return err
	}
	maps := b.freshMaps()
	b.putMaps(maps)
	near := b.markStack(before.SP())
	seen := before
	seen.SetIP(siteAt + 1)
	chosen, err := p.Decide(&program.Env{Regs: &seen, Memory: b.cpu, Maps: maps, Thread: b.thread(before, target)})
	if err != nil {
		return err
	}
	if err := b.execute(before, code, target.Dead, chosen); err != nil {
		if !errors.Is(err, errGiveUp) {
			err = fmt.Errorf("%+v: %w\n%s", target, err, disassembled(code.Code, before.IP()))
		}
		return err
	}
	if err := b.checkStack(before.SP(), near, target.RedZone); err != nil {
		return err
	}
	return mapsDiffer(sums(b.t, maps), sums(b.t, b.getMaps()))
}

// errGiveUp is the error of code that had no stack.
var errGiveUp = errors.New("no stack")

// execute runs code from before to its end, or to where it goes with a hit that is chosen, and checks the registers.
func (b *bench) execute(before amd64.Regs, code arch.BodyCode, dead arch.Dead, chosen bool) error {
	at := before.IP()
	b.put(at, append(slices.Clone(code.Code), 0xcc))
	after, sig := b.run(before, code.Stops)
	noRoom := stopFor(code.Stops, arch.StopNoRoom).At
	gaveUp := noRoom != 0 && after.IP() == noRoom+1
	end := at.Add(int64(len(code.Code)))
	if chosen {
		end, dead = stopFor(code.Stops, arch.StopChosen).At, arch.Dead{}
	}
	if sig != unix.SIGTRAP || after.IP() != end+1 && !gaveUp {
		return fmt.Errorf("%v at %v, chosen %t", sig, after.IP(), chosen)
	}
	if chosen && !gaveUp { // who goes on behind the breakpoint does the rest of the body
		if rest, sig := b.run(after, code.Stops); sig != unix.SIGTRAP || rest.IP() != at.Add(int64(len(code.Code)))+1 {
			return fmt.Errorf("behind the breakpoint: %v at %v", sig, rest.IP())
		}
	}
	after.SetIP(at)
	after.Orig_rax = before.Orig_rax
	if gaveUp {
		dead = arch.Dead{}
	}
	forget(&after, before, dead)
	switch lowest := before.SP() - 400; {
	case after != before:
		return fmt.Errorf("registers\nbefore %+x\nafter  %+x", before, after)
	case gaveUp && lowest >= stackAt && before.SP() <= stackAt+area:
		return errors.New("it says that there is no stack")
	case gaveUp:
		return errGiveUp
	}
	return nil
}

// mapsDiffer tells where the maps differ.
func mapsDiffer(interpreted, compiled [][]uint64) error {
	for i, want := range interpreted {
		for n, w := range want {
			if got := compiled[i][n]; got != w {
				return fmt.Errorf("map %d (%+v) word %d: interpreted %#x, compiled %#x", i, genMaps[i], n, w, got)
			}
		}
	}
	return nil
}

const stackMark = 0xa5

// markStack fills the stack around sp, and returns how much of it.
func (b *bench) markStack(sp arch.Addr) arch.Range {
	r := arch.Range{Start: max(sp-1024, stackAt), End: min(sp+256, stackAt+area)}
	if r.Start < r.End {
		b.put(r.Start, bytes.Repeat([]byte{stackMark}, int(r.Len())))
	}
	return r
}

// checkStack: nothing changed but a few bytes below sp and the red zone.
func (b *bench) checkStack(sp arch.Addr, near arch.Range, redZone bool) error {
	const most = 200
	if near.Start >= near.End {
		return nil
	}
	top := sp
	if redZone {
		top -= 128
	}
	allowed := arch.Range{Start: top - most, End: top}
	for i, v := range b.get(near.Start, int(near.Len())) {
		if at := near.Start.Add(int64(i)); v != stackMark && !allowed.Contains(at) {
			return fmt.Errorf("stack changed at sp%+d", int64(at-sp))
		}
	}
	return nil
}

func listing(p *program.Program) string {
	var s strings.Builder
	for n, i := range p.Insns {
		fmt.Fprintf(&s, "%3d %s: %v\n", n, i.Symbol(), i)
	}
	return s.String()
}

// disassembled is code up to where it can't be decoded.
func disassembled(code []byte, at arch.Addr) string {
	var s strings.Builder
	a := amd64.Arch{}
	for start := at; len(code) > 0; {
		i, err := a.Decode(code, at)
		if err != nil {
			fmt.Fprintf(&s, "%5x %v\n", uint64(at-start), err)
			break
		}
		fmt.Fprintf(&s, "%5x %-32s % x\n", uint64(at-start), a.Disassemble(i), i.Bytes)
		code, at = code[i.Len():], i.End()
	}
	return s.String()
}

func TestCompiledProgramsDoWhatTheInterpreterSays(t *testing.T) {
	n := testsize.Rounds(150, 1500, 30_000)
	seed := testprog.Seed(t, 1)
	rnd := rand.New(rand.NewPCG(seed, 0))
	b := newBench(t, rnd)
	seen := map[string]int{}
	for range n {
		p := randomProgram(rnd, 1+rnd.IntN(30))
		checked, err := program.Check(p)
		if err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, listing(p))
		}
		err = b.compare(checked)
		if errors.Is(err, errGiveUp) {
			seen["no stack"]++
			continue
		}
		if err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, listing(p))
		}
		for _, i := range p.Insns {
			seen[kindOf(i)]++
		}
	}
	t.Log(seen)
}

// kindOf tells instructions apart as far as they are compiled differently.
func kindOf(i bpf.Instruction) string {
	if i.OpCode.JumpOp() == bpf.Call {
		h, _ := program.HelperFor(bpf.BuiltinFunc(i.Constant))
		return h.Name
	}
	return i.OpCode.String()
}
