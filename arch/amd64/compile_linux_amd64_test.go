package amd64_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"unsafe"

	bpf "github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/arch/amd64"
	"github.com/gokprobe/gokprobe/program"
)

const (
	mapsAt = slotAt
	siteAt = 0x12345678
)

// run goes on from r to the first exception that no fixup is for.
func (c *cpu) run(r amd64.Regs, fixups []arch.Fixup) (amd64.Regs, unix.Signal) {
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
		n := slices.IndexFunc(fixups, func(f arch.Fixup) bool { return f.At == r.IP() })
		if sig != unix.SIGSEGV && sig != unix.SIGBUS || n < 0 {
			return r, sig
		}
		r.SetIP(fixups[n].To)
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
			used := uint64(pick(b.rnd, 0, m.Size, 8*b.rnd.IntN(m.Size/8)))
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

func (b *bench) env() program.Target {
	e := program.Target{Site: siteAt, Maps: b.at, RedZone: b.rnd.IntN(2) == 0, HWCAP2: 2}
	if b.rnd.IntN(2) == 0 {
		e.Dead.Flags = true
	}
	if b.rnd.IntN(2) == 0 {
		e.Dead.Regs = uint16(b.rnd.Uint32() & b.rnd.Uint32())
	}
	return e
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

var errGiveUp = errors.New("no stack")

// compare runs p both ways from random registers.
func (b *bench) compare(p *program.Checked) error {
	env := b.env()
	body, err := amd64.Arch{}.Compile(p, env)
	if err != nil {
		return err
	}
	at := arch.Addr(codeAt + b.rnd.IntN(64))
	code, err := body.Assemble(at)
	if err != nil {
		return err
	}
	end := at.Add(int64(len(code.Code)))
	b.put(at, append(slices.Clone(code.Code), 0xcc))
	before := randomRegs(b.rnd, b.start)
	before.Orig_rax = ^uint64(0)
	maps := b.freshMaps()
	b.putMaps(maps)
	near := b.markStack(before.SP())
	seen := before
	seen.SetIP(siteAt + 1)
	interpreted := program.Env{Regs: &seen, Memory: b.cpu, Maps: maps, Thread: before.Fs_base}
	if err := p.Run(&interpreted); err != nil {
		return err
	}
	before.SetIP(at)
	after, sig := b.run(before, code.Fixups)
	gaveUp := len(code.Traps) > 0 && after.IP() == code.Traps[0]+1
	if sig != unix.SIGTRAP || after.IP() != end+1 && !gaveUp {
		return fmt.Errorf("%v at %v, %v from the beginning of\n%s", sig, after.IP(), after.IP()-at, disassembled(code.Code, at))
	}
	after.SetIP(at)
	after.Orig_rax = before.Orig_rax
	if gaveUp {
		if after != before {
			return fmt.Errorf("giving up:\nbefore %+x\nafter  %+x", before, after)
		}
		return errGiveUp
	}
	forget(&after, before, env.Dead)
	if after != before {
		return fmt.Errorf("%+v\nbefore %+x\nafter  %+x", env, before, after)
	}
	if err := b.checkStack(before.SP(), near, env.RedZone); err != nil {
		return err
	}
	want, got := sums(b.t, maps), sums(b.t, b.getMaps())
	for i := range want {
		for n := range want[i] {
			if want[i][n] != got[i][n] {
				return fmt.Errorf("map %d (%+v) word %d: interpreted %#x, compiled %#x", i, genMaps[i], n, want[i][n], got[i][n])
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
	n := 4000
	if os.Getenv("GOKPROBE_TORTURE") != "" {
		n *= 50
	}
	seed := rand.Uint64()
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
