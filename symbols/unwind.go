package symbols

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strings"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/host"
)

// Frame is one function activation.
type Frame struct {
	// Location is where the frame continues. For a caller that is the return
	// address, named after the function that holds the call in front of it.
	Location
	// CFA is the frame's canonical frame address: the stack pointer before the
	// call that made it.
	CFA arch.Addr
	// Signal says that the frame is a signal handler's trampoline; the next
	// one was interrupted, it made no call.
	Signal bool
}

// Registers by their DWARF numbers.
const (
	dwFP    = host.DwarfFP
	dwSP    = host.DwarfSP
	dwIP    = host.DwarfIP
	dwCount = host.DwarfCount
)

// frameState is the registers of one frame.
type frameState struct {
	reg    [dwCount]uint64
	isCall bool // reg[dwIP] is a return address
}

func (f *frameState) ip() arch.Addr { return arch.Addr(f.reg[dwIP]) }
func (f *frameState) sp() arch.Addr { return arch.Addr(f.reg[dwSP]) }

// Backtrace unwinds the stack of a stopped thread, innermost frame first, at
// most max frames. r's IP must be the address of the instruction that the
// thread executes next, not the address after a breakpoint. m reads the stack. A
// caller that has replaced return addresses must pass a memory that shows the true
// ones.
//
// Frames are found by call-frame information, in Go functions by Go's table of
// stack pointer deltas, elsewhere by frame pointers. The trace ends at the
// outermost frame, at max, or where none of these helps.
func (t *Table) Backtrace(r arch.Regs, m arch.Memory, max int) []Frame {
	s := t.snap.Load()
	st := frameState{}
	for i, name := range host.DwarfNames[:dwIP] {
		st.reg[i], _ = r.Get(name)
	}
	st.reg[dwIP] = uint64(r.IP())
	stack := &stackReader{mem: m}
	var out []Frame
	for len(out) < max {
		f := Frame{Location: t.frameLocation(&st)}
		if f.Symbol.Module == nil && len(out) > 0 {
			if st.reg[dwIP] != 0 {
				out = append(out, f)
			}
			break
		}
		c := s.caller(&st, stack)
		f.CFA, f.Signal = c.cfa, c.isSignal
		if c.isSignal { // no call in front of it: the handler was made to return here
			f.Location, _ = t.Lookup(st.ip())
		}
		out = append(out, f)
		progress := c.isSignal || c.hasMoved || c.sp() > st.sp()
		if !c.ok || !progress || c.reg[dwIP] == 0 {
			break
		}
		st = c.frameState
	}
	return out
}

// frameLocation names st's instruction; a return address by the call before it,
// which may be the last instruction of a function that does not return.
func (t *Table) frameLocation(st *frameState) Location {
	if !st.isCall {
		loc, _ := t.Lookup(st.ip())
		return loc
	}
	return t.afterCall(st.ip())
}

// afterCall names a return address.
func (t *Table) afterCall(ip arch.Addr) Location {
	loc, _ := t.Lookup(ip - 1)
	loc.Addr = ip
	if loc.Symbol.Addr != 0 {
		loc.Offset++
	}
	return loc
}

// Caller names a return address as Backtrace does: by the call before it, but for the place to which the handler of a signal returns.
func (t *Table) Caller(ret arch.Addr) Location {
	loc, _ := t.Lookup(ret)
	if m := t.module(ret); m != nil && m.img != nil {
		if f := m.img.frame(m.link(ret)); f != nil && f.isSignal || loc.Offset == 0 && strings.HasPrefix(loc.Symbol.Name, "__restore") { // musl's has no frame
			return loc
		}
	}
	return t.afterCall(ret)
}

// callerState is a frame's caller.
type callerState struct {
	frameState
	cfa      arch.Addr // of the frame
	isSignal bool      // the frame is a signal trampoline
	hasMoved bool      // the caller is on another stack
	ok       bool      // false at the outermost frame
}

// caller computes the state of st's caller.
func (s *snapshot) caller(st *frameState, stack *stackReader) callerState {
	m := s.module(st.ip())
	if m == nil || m.img == nil {
		return byFramePointer(st, stack)
	}
	v := m.link(st.ip())
	e := m.symbols().find(v)
	atStart := m.isInPLT(st.ip()) || e != nil && e.value == v
	if st.isCall && atStart && isSigreturn(st.ip(), stack) {
		return bySignalFrame(st, stack)
	}
	if st.isCall {
		v--
	}
	if g := m.img.stackTable(); g != nil {
		if f, found := g.frame(v); found {
			return s.byGoTable(st, stack, f)
		}
	}
	if row := m.img.row(v); row != nil {
		return row.apply(st, stack)
	}
	switch {
	case isSigreturn(st.ip(), stack): // in a stripped program
		return bySignalFrame(st, stack)
	case atStart && !st.isCall:
		return byStackTop(st, stack)
	}
	return byFramePointer(st, stack)
}

// byGoTable pops a Go frame. In a function that moves to another stack the
// table holds up to the move only; behind it a frame pointer leads back, and
// without one the frame is the last.
func (s *snapshot) byGoTable(st *frameState, stack *stackReader, f goFrame) callerState {
	c := callerState{frameState: *st, cfa: st.sp() + arch.Addr(f.delta) + 8}
	c.isCall = true
	c.reg[dwIP], c.ok = stack.word(c.cfa - 8)
	switch {
	case f.isTop:
		c.ok = false
		return c
	case f.switches && (st.isCall || !c.ok || s.module(c.ip()) == nil):
		if c.ok = f.isSaved; c.ok {
			c = byFramePointer(st, stack)
			c.hasMoved = true
		}
		return c
	case f.isSaved:
		c.reg[dwFP], _ = stack.word(c.cfa - 16)
	}
	c.reg[dwSP] = uint64(c.cfa)
	return c
}

// byStackTop is right at a function's first instruction.
func byStackTop(st *frameState, stack *stackReader) callerState {
	c := callerState{frameState: *st, cfa: st.sp() + 8}
	c.isCall = true
	c.reg[dwIP], c.ok = stack.word(st.sp())
	c.reg[dwSP] = uint64(c.cfa)
	return c
}

// byFramePointer is right where the function keeps rbp as its frame pointer.
func byFramePointer(st *frameState, stack *stackReader) callerState {
	fp := arch.Addr(st.reg[dwFP])
	c := callerState{frameState: *st, cfa: fp + 16}
	c.isCall = true
	if fp&7 != 0 {
		return c
	}
	saved, ok1 := stack.word(fp)
	ret, ok2 := stack.word(fp + 8)
	c.reg[dwFP], c.reg[dwIP], c.reg[dwSP] = saved, ret, uint64(fp+16)
	c.ok = ok1 && ok2
	return c
}

// sigreturn is the code of a signal trampoline. Musl's and Go's carry no call-frame information.
var sigreturn = func() []byte {
	loads := host.Arch.SigreturnLoads()
	if len(loads) == 0 {
		return nil
	}
	return slices.Concat(loads[0], host.Arch.SyscallInsn())
}()

func isSigreturn(ip arch.Addr, stack *stackReader) bool {
	code := make([]byte, len(sigreturn))
	return sigreturn != nil && stack.mem.ReadMemory(ip, code) == nil && bytes.Equal(code, sigreturn)
}

// bySignalFrame takes the interrupted registers from the ucontext on the stack.
func bySignalFrame(st *frameState, stack *stackReader) callerState {
	const mcontext = 40 // offset in struct ucontext
	c := callerState{cfa: st.sp(), isSignal: true}
	for i, reg := range host.SignalContext {
		if c.reg[reg], c.ok = stack.word(st.sp() + mcontext + arch.Addr(8*i)); !c.ok {
			return c
		}
	}
	return c
}

// stackReader reads words, fetching a stretch of the stack at a time.
type stackReader struct {
	mem  arch.Memory
	at   arch.Addr
	n    int
	page [1024]byte
}

func (r *stackReader) word(a arch.Addr) (uint64, bool) {
	if a < r.at || a+8 > r.at+arch.Addr(r.n) {
		if !r.fetch(a) {
			return 0, false
		}
	}
	return binary.LittleEndian.Uint64(r.page[a-r.at:]), true
}

// fetch fills the buffer from a, by less than its size at a mapping's end.
func (r *stackReader) fetch(a arch.Addr) bool {
	for _, n := range []int{len(r.page), 256, 8} {
		if r.mem.ReadMemory(a, r.page[:n]) == nil {
			r.at, r.n = a, n
			return true
		}
	}
	r.n = 0
	return false
}
