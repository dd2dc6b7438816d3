package amd64_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/arch/amd64/code"
	"github.com/gokprobe/gokprobe/internal/testprog"
)

const (
	callsAt = 0x70000000
	nowAt   = codeAt + 0x8000
	outAt   = dataAt
)

// calls is a call table that the test changes here and a processor there, in memory that they share.
type calls struct {
	*cpu
	rnd   *rand.Rand
	table arch.CallTable
	lines map[uint16]*modelLine
	known map[[2]uint64]bool
	held  map[arch.Addr]int
	shut  bool

	replaced map[[2]uint64]bool // lines' return addresses that are to be replaced

	shared map[arch.Addr]bool // frames that hold, or held, several calls
}

type modelLine struct {
	jumps    bool
	replaces bool
	timed    bool
	limit    int
	active   int
	returns  uint64
}

var (
	callCFAs = []arch.Addr{stackAt + 0x8000, stackAt + 0x8010, stackAt + 0x8400, stackAt + 0x9008}
	callRets = []arch.Addr{codeAt + 0x100, codeAt + 0x105, codeAt + 0x7f3a, codeAt + 0x7f47}
)

// relayOf is where the relay that leads to a return address lies.
func relayOf(ret arch.Addr) arch.Addr { return codeAt + 0x9000 + 16*(ret&0xff) }

func newCalls(t testing.TB, rnd *rand.Rand) *calls {
	t.Helper()
	a := code.Arch{}
	file, mem := sharedMemory(t, a.CallTableSize())
	c := &calls{cpu: newCPU(t, file), rnd: rnd}
	c.mmapFile(callsAt, len(mem))
	c.table = a.CallTable(mem, callsAt)
	c.lines = map[uint16]*modelLine{1: {limit: 3}, 2: {jumps: true, limit: 5}, 3: {timed: true, limit: 5}, 4: {jumps: true, replaces: true, limit: 20}, 5: {timed: true, replaces: true, limit: 5}, arch.MaxLines: {jumps: true, limit: 50}}
	c.shared = map[arch.Addr]bool{}
	c.replaced = map[[2]uint64]bool{}
	for _, ret := range callRets {
		c.put(relayOf(ret), a.Relay(ret))
	}
	c.known, c.held = map[[2]uint64]bool{}, map[arch.Addr]int{}
	for n, l := range c.lines {
		c.table.Line(n).SetLimit(l.limit)
	}
	return c
}

// run executes a body with sp, and says whether it has trapped. Nothing else may have changed but the table.
func (c *calls) run(body arch.Body, sp arch.Addr, dead arch.Dead) (trapped bool, err error) {
	d, err := code.Arch{}.AssembleDetour(detourAt, sequence(c.t, []byte{0x90}, codeAt), body)
	if err != nil {
		return false, err
	}
	c.put(d.Addr, d.Code)
	start := randomRegs(c.rnd, c.regs())
	start.SetSP(sp)
	r := start
	r.SetIP(d.Addr)
	for range 1000 {
		at := r.IP()
		var sig unix.Signal
		if r, sig = c.step(r); sig == unix.SIGSEGV {
			if to, ok := fixup(d.Stops, at); ok {
				r.SetIP(to)
				sig = unix.SIGTRAP
			}
		}
		if sig != unix.SIGTRAP {
			return false, fmt.Errorf("signal %v at %s", sig, at)
		}
		if trapped = at == stopFor(d.Stops, arch.StopCall).At; trapped || r.IP() == d.Start() {
			if diff := changed(start, r, dead); diff != "" {
				return trapped, fmt.Errorf("%s", diff)
			}
			return trapped, nil
		}
	}
	return false, fmt.Errorf("does not end")
}

func (c *calls) dead() arch.Dead {
	return arch.Dead{Flags: c.rnd.IntN(2) == 0, Regs: uint16(c.rnd.Uint32())}
}

func (c *calls) put8(at, v arch.Addr) {
	b := make([]byte, 8)
	for k := range b {
		b[k] = byte(v >> (8 * k))
	}
	c.put(at, b)
}

// enter has a thread come to a function's entry.
func (c *calls) enter(n uint16, cfa, ret arch.Addr) error {
	l, frame := c.lines[n], c.table.Frame(cfa)
	word, known := ret, c.known[[2]uint64{uint64(n), uint64(ret)}]
	if l.replaces && !known && c.replaced[[2]uint64{uint64(n), uint64(ret)}] {
		word, known = relayOf(ret), true
	}
	traps := c.shut || c.held[ret] > 0 || c.held[word] > 0 || !known || l.active >= l.limit
	joins := -1
	for k, s := range frame {
		if joins >= 0 {
			break
		}
		if traps = traps || !s.Jumps || s.Ret != word || word != ret || l.timed; s.Line == n {
			joins = k
		}
	}
	c.put8(cfa-8, ret)
	dead := c.dead()
	dead.Regs &^= 1 << 4
	ticks := c.now()
	trapped, err := c.run(code.Arch{}.FollowBody(arch.FollowWork{Table: c.table, Line: n, Jumps: l.jumps, Timed: l.timed, Replaces: l.replaces, Dead: dead}), cfa-8, dead)
	if err != nil || trapped != traps {
		return fmt.Errorf("entering %d at %s for %s: traps %v, want %v; %w", n, cfa, ret, trapped, traps, err)
	}
	after := c.table.Frame(cfa)
	now := arch.Addr(binary.LittleEndian.Uint64(c.get(cfa-8, 8)))
	switch {
	case traps && now != ret, !traps && now != word:
		return fmt.Errorf("entering %d at %s for %s, traps %v: the return address becomes %s", n, cfa, ret, trapped, now)
	case traps && len(after) != len(frame), !traps && joins >= 0 && after[joins].Count != frame[joins].Count+1:
		return fmt.Errorf("entering %d: the frame %v becomes %v", n, frame, after)
	case !traps && joins < 0 && len(after) != len(frame)+1:
		return fmt.Errorf("entering %d: the frame %v becomes %v", n, frame, after)
	case !traps && l.timed && !(ticks < after[0].Began && after[0].Began < c.now()):
		return fmt.Errorf("entering %d at %d: %v", n, ticks, after)
	}
	if !traps {
		l.active++
		c.shared[cfa] = len(after) > 1 || len(frame) > 0 && c.shared[cfa]
	}
	return c.check()
}

// leave has a thread come to a return address, by a return or not.
func (c *calls) leave(cfa, ret arch.Addr, byReturn bool) error {
	frame := c.table.Frame(cfa)
	relay := slices.ContainsFunc(callRets, func(to arch.Addr) bool { return relayOf(to) == ret })
	traps := (relay || c.held[ret] > 0) && len(frame) == 0
	for _, s := range frame {
		traps = traps || s.Ret != ret || !byReturn
	}
	c.put8(cfa-8, ret)
	if !byReturn {
		c.put8(cfa-8, ret+1)
	}
	dead := c.dead()
	w := arch.ReturnWork{Table: c.table, Ret: ret, Relay: relay, Dead: dead}
	if c.rnd.IntN(2) == 0 {
		w.Then = wordsTo(outAt)
		traps = traps || len(frame) > 1 || len(frame) == 1 && (frame[0].Count > 1 || c.shared[cfa])
		c.put(outAt, make([]byte, 16))
	}
	trapped, err := c.run(code.Arch{}.ReturnBody(w), cfa, dead)
	if err != nil || trapped != traps {
		return fmt.Errorf("leaving %s for %s (%v): traps %v, want %v; %w", cfa, ret, frame, trapped, traps, err)
	}
	if w.Then != nil && !traps {
		if err := c.checkWords(frame); err != nil {
			return err
		}
	}
	for _, s := range frame {
		if l := c.lines[s.Line]; !traps {
			l.active -= s.Count
			l.returns += uint64(s.Count)
		}
	}
	if after := c.table.Frame(cfa); !traps && len(after) != 0 || traps && len(after) != len(frame) {
		return fmt.Errorf("leaving: the frame %v becomes %v", frame, after)
	}
	return c.check()
}

// wordsTo is a body for ReturnWork.Then that stores its words at out.
type wordsTo arch.Addr

func (out wordsTo) Assemble(arch.Addr) (arch.BodyCode, error) {
	code := []byte{0x50} // push %rax
	for k := range len(arch.ThenWords) {
		code = append(code, 0x48, 0x8b, 0x44, 0x24, byte(8+8*k), 0x48, 0xa3) // mov …(%rsp),%rax; movabs %rax,…
		code = binary.LittleEndian.AppendUint64(code, uint64(out)+uint64(8*k))
	}
	return arch.BodyCode{Code: append(code, 0x58)}, nil
}

// checkWords compares the words with the call that has ended.
func (c *calls) checkWords(frame []arch.CallSlot) error {
	words := c.get(outAt, 16)
	duration, line := binary.LittleEndian.Uint64(words), binary.LittleEndian.Uint64(words[8:])
	if len(frame) == 0 && line != 0 || len(frame) == 1 && line != uint64(frame[0].Line) {
		return fmt.Errorf("line %d for %v", line, frame)
	}
	if line != 0 && c.lines[uint16(line)].timed && (duration == 0 || duration >= c.now()-frame[0].Began) {
		return fmt.Errorf("duration %d for %v", duration, frame)
	}
	return nil
}

// now is the time-stamp counter of the processor there.
func (c *calls) now() uint64 {
	c.put(nowAt, []byte{0x0f, 0x31}) // rdtsc
	r := c.regs()
	r.SetIP(nowAt)
	r, _ = c.step(r)
	return r.Rdx<<32 | r.Rax&(1<<32-1)
}

// check compares the lines with the table and the model.
func (c *calls) check() error {
	in := map[uint16]int{}
	c.table.All(func(s arch.CallSlot) { in[s.Line] += s.Count })
	for n, l := range c.lines {
		if active, returns := c.table.Line(n).Calls(); active != l.active || returns != l.returns || active != in[n] {
			return fmt.Errorf("line %d has %d calls and %d returns, the table %d; want %+v", n, active, returns, in[n], *l)
		}
	}
	return nil
}

// change is what the tracer does.
func (c *calls) change(n uint16, ret arch.Addr) {
	switch c.rnd.IntN(10) {
	case 0:
		c.table.Hold(ret, 1)
		c.held[ret]++
	case 1:
		if c.held[ret] > 0 {
			c.table.Hold(ret, -c.held[ret])
			delete(c.held, ret)
		}
	case 2:
		c.table.Forget(n)
		for _, ret := range callRets {
			delete(c.known, [2]uint64{uint64(n), uint64(ret)})
			delete(c.known, [2]uint64{uint64(n), uint64(relayOf(ret))})
			delete(c.replaced, [2]uint64{uint64(n), uint64(ret)})
		}
	case 3:
		if c.shut = !c.shut; c.shut {
			c.table.Close()
		} else {
			c.table.Open()
		}
	case 4:
		c.table.All(func(s arch.CallSlot) {
			if s.Line == n && c.table.Take(s) {
				c.table.Line(n).Add(-s.Count)
				c.lines[n].active -= s.Count
			}
		})
	case 5:
		cfa := pick(c.rnd, callCFAs...)
		if len(c.table.Frame(cfa)) == 0 && c.table.Put(arch.FollowedCall{CFA: cfa, Ret: ret, Line: n, Count: 2, Jumps: c.lines[n].jumps, Began: c.now()}) {
			c.shared[cfa] = true
			c.table.Line(n).Add(2)
			c.lines[n].active += 2
		}
	case 6, 7:
		if c.rnd.IntN(20) == 0 {
			c.table.ForgetRelays()
			clear(c.replaced)
		} else if n = pick(c.rnd, uint16(4), 4, 5); ret < relayOf(0) {
			c.table.Replace(ret, n, relayOf(ret))
			c.replaced[[2]uint64{uint64(n), uint64(ret)}] = true
		}
	default:
		c.table.Know(ret, n)
		c.known[[2]uint64{uint64(n), uint64(ret)}] = true
	}
}

// TestRelaysOfATableAreNoCalls, in whichever buckets they lie: the tracer would take such calls out, and with them the words by which bodies find relays.
func TestRelaysOfATableAreNoCalls(t *testing.T) {
	a := code.Arch{}
	table := a.CallTable(make([]byte, a.CallTableSize()), callsAt)
	for n := range arch.Addr(1 << 14) {
		table.Replace(codeAt+5*n, 1, codeAt+0x100000+16*n)
	}
	calls := 0
	table.All(func(arch.CallSlot) { calls++ })
	if calls > 0 {
		t.Errorf("it lists %d calls, and has none", calls)
	}
}

// TestCallTable: the bodies and the tracer's view do what a model says, in any order, and the
// bodies leave everything else as it was, also where they trap.
func TestCallTable(t *testing.T) {
	seed := testprog.Seed(t, 1)
	c := newCalls(t, rand.New(rand.NewPCG(seed, 0)))
	followed, replaced := 0, 0
	for k := range 3000 {
		n := pick(c.rnd, 1, 2, 3, 4, 5, uint16(arch.MaxLines))
		cfa, ret := pick(c.rnd, callCFAs...), pick(c.rnd, callRets...)
		if c.rnd.IntN(4) == 0 {
			ret = relayOf(ret)
		}
		var err error
		switch c.rnd.IntN(5) {
		case 0, 1:
			if frame := c.table.Frame(cfa); len(frame) > 0 && frame[0].Line == 4 && c.rnd.IntN(2) == 0 {
				n = 4
				for _, to := range callRets { // a call by the place that the last one was from
					if relayOf(to) == frame[0].Ret {
						ret = pick(c.rnd, to, frame[0].Ret)
					}
				}
			}
			err = c.enter(n, cfa, ret)
		case 2, 3:
			if frame := c.table.Frame(cfa); len(frame) > 0 && c.rnd.IntN(4) > 0 {
				ret = frame[0].Ret
				if followed++; ret >= relayOf(0) {
					replaced++
				}
			}
			err = c.leave(cfa, ret, c.rnd.IntN(8) > 0)
		case 4:
			c.change(n, ret)
		}
		if err != nil {
			t.Fatalf("step %d: %v", k, err)
		}
	}
	if followed < 50 || replaced < 20 {
		t.Errorf("only %d returns of calls in the table, %d to relays", followed, replaced)
	}
}

// TestAFullBucketTraps, and takes calls again when one has ended.
func TestAFullBucketTraps(t *testing.T) {
	c := newCalls(t, rand.New(rand.NewPCG(1, 1)))
	cfa, ret := callCFAs[0], callRets[0]
	n := uint16(arch.MaxLines)
	c.table.Know(ret, n)
	c.known[[2]uint64{uint64(n), uint64(ret)}] = true
	var full []arch.Addr
	for other := cfa + 1<<32; len(full) < 8; other += 16 {
		if c.table.Put(arch.FollowedCall{CFA: other, Ret: ret, Line: n, Count: 1}) {
			if calls := c.table.Frame(cfa); len(calls) != 0 {
				t.Fatal(calls)
			}
			full = append(full, other)
		}
		if !sameBucket(c, other, cfa) {
			c.table.Take(c.table.Frame(other)[0])
			full = full[:len(full)-1]
		}
	}
	dead := arch.Dead{}
	body := code.Arch{}.FollowBody(arch.FollowWork{Table: c.table, Line: n, Dead: dead})
	c.put8(cfa-8, ret)
	if trapped, err := c.run(body, cfa-8, dead); !trapped || err != nil {
		t.Errorf("full: traps %v, %v", trapped, err)
	}
	c.table.Take(c.table.Frame(full[5])[0])
	if trapped, err := c.run(body, cfa-8, dead); trapped || err != nil {
		t.Errorf("with room: traps %v, %v", trapped, err)
	}
	if calls := c.table.Frame(cfa); len(calls) != 1 || calls[0].Ret != ret || calls[0].Count != 1 {
		t.Errorf("followed: %v", calls)
	}
}

// sameBucket tells whether other, which is in the table, lies where cfa would.
func sameBucket(c *calls, other, cfa arch.Addr) bool {
	if !c.table.Put(arch.FollowedCall{CFA: cfa, Ret: 1, Line: 1, Count: 1}) {
		return true
	}
	at, of := c.table.Frame(cfa)[0], c.table.Frame(other)[0]
	c.table.Take(at)
	return at.At>>8 == of.At>>8
}

// TestCallsWithoutRoomOnTheStackTrap, with all registers as they were.
func TestCallsWithoutRoomOnTheStackTrap(t *testing.T) {
	c := newCalls(t, rand.New(rand.NewPCG(2, 2)))
	n, ret := uint16(2), callRets[0]
	c.table.Know(ret, n)
	for room := range arch.Addr(6) {
		cfa := stackAt + 128 + 8*room
		c.put8(cfa, ret)
		for name, body := range map[string]arch.Body{
			"entry":  code.Arch{}.FollowBody(arch.FollowWork{Table: c.table, Line: n}),
			"return": code.Arch{}.ReturnBody(arch.ReturnWork{Table: c.table, Ret: ret}),
			"then":   code.Arch{}.ReturnBody(arch.ReturnWork{Table: c.table, Ret: ret, Then: wordsTo(outAt)}),
		} {
			trapped, err := c.run(body, cfa, arch.Dead{})
			if err != nil || trapped != (room < 5 || name == "then") {
				t.Errorf("%s with room for %d words: traps %v, %v", name, room, trapped, err)
			}
		}
	}
}

// TestARelayThatLeadsElsewhereIsNotPutOnAStack: its word may be another key's.
func TestARelayThatLeadsElsewhereIsNotPutOnAStack(t *testing.T) {
	c := newCalls(t, rand.New(rand.NewPCG(3, 3)))
	n, ret, cfa := uint16(4), callRets[0], callCFAs[0]
	c.put8(cfa-8, ret)
	for _, to := range []arch.Addr{callRets[1], ret} {
		c.table.Replace(ret, n, relayOf(to))
		trapped, err := c.run(code.Arch{}.FollowBody(arch.FollowWork{Table: c.table, Line: n, Replaces: true}), cfa-8, arch.Dead{})
		now := arch.Addr(binary.LittleEndian.Uint64(c.get(cfa-8, 8)))
		if err != nil || trapped != (to != ret) || !trapped && now != relayOf(ret) || trapped && now != ret {
			t.Errorf("a relay to %s for %s: traps %v, %v, and the return address is %s", to, ret, trapped, err, now)
		}
	}
}

// TestNothingIsReplacedForADeadTracer: such calls go on without a trap and without being followed; others are as ever.
func TestNothingIsReplacedForADeadTracer(t *testing.T) {
	c := newCalls(t, rand.New(rand.NewPCG(4, 4)))
	n, ret, cfa := uint16(4), callRets[0], callCFAs[0]
	c.table.Replace(ret, n, relayOf(ret))
	binary.LittleEndian.PutUint32(c.table.Mark(), arch.MarkDied)
	for _, known := range []bool{false, true} {
		if known {
			c.table.Know(ret, n)
		}
		c.put8(cfa-8, ret)
		trapped, err := c.run(code.Arch{}.FollowBody(arch.FollowWork{Table: c.table, Line: n, Replaces: true}), cfa-8, arch.Dead{})
		now := arch.Addr(binary.LittleEndian.Uint64(c.get(cfa-8, 8)))
		if err != nil || trapped || now != ret || (len(c.table.Frame(cfa)) == 1) != known {
			t.Errorf("known %v: traps %v, %v, the return address is %s, the table has %v", known, trapped, err, now, c.table.Frame(cfa))
		}
	}
}
