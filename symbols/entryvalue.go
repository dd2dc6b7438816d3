package symbols

import (
	"debug/dwarf"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/go-delve/delve/pkg/dwarf/frame"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/host"
)

// What a register held when a function was entered, its own code may have forgotten. The function that has called it may still know: debug information
// tells of a call what the caller has put into registers, as an expression over what the caller keeps (DWARF 5 §2.5.1.7 and §3.4). That is believed where
// the instruction in front of the return address surely is the call that has entered the function: one with the function's address in it, and no way
// for the function to enter itself again by jumps from which it would return to the same place.

// callerPlace is where a function's caller is found at one instruction of it.
type callerPlace struct {
	start uint64     // link-time address of the function's first instruction
	row   *unwindRow // at the instruction
	table *Table     // nil until it is known what the file is mapped as
	mod   *Module

	reenters func() bool // the function may have entered itself again, see entersItself
}

var (
	errNoCall    = errors.New("the caller does not tell what the function was called with")
	errForgotten = errors.New("the caller has not kept what the function was called with")
)

// callerWindow is how many bytes of the caller's frame a record of a hit has.
const callerWindow = 256

// newCallerPlace is that of the function at start, with a DWARF calling convention, where row tells how to unwind; nil if the caller is not found so simply.
func newCallerPlace(start uint64, convention int64, row *unwindRow) *callerPlace {
	const nocall = 3 // of the ordinary ones the last
	if convention < 0 || convention > nocall {
		return nil // it may leave other registers to its caller
	}
	if row == nil || row.isSignal || row.cfa.Rule != frame.RuleCFA || row.cfa.Reg >= dwIP {
		return nil
	}
	if ip := row.rules[dwIP]; ip.Rule != frame.RuleOffset || ip.Offset != -8 {
		return nil
	}
	return &callerPlace{start: start, row: row}
}

// base is the register that the frame address is found by, and its distance from there.
func (c *callerPlace) base() (reg string, off int64) {
	return host.DwarfNames[c.row.cfa.Reg], c.row.cfa.Offset
}

// held is what the register with a DWARF number held at the function's entry.
func (c *callerPlace) held(reg uint64, r arch.Regs, m arch.Memory) (cell, error) {
	if c.table == nil {
		return cell{}, errNoCall
	}
	name, off := c.base()
	v, ok := r.Get(name)
	if !ok {
		return cell{}, fmt.Errorf("no register %s", name)
	}
	cfa := v + uint64(off)
	var b [8]byte
	if err := m.ReadMemory(arch.Addr(cfa-8), b[:]); err != nil {
		return cell{}, err
	}
	back := arch.Addr(binary.LittleEndian.Uint64(b[:]))
	if in := c.table.module(back); in == nil || in.img != c.mod.img || in.link(back) != c.mod.link(back) {
		return cell{}, errNoCall
	}
	site := c.mod.img.callSite(c.table, c.mod.link(back))
	if site == nil || site.target != c.start {
		return cell{}, errNoCall
	}
	made := site.params[reg]
	if made == nil {
		return cell{}, errNoCall
	}
	if made, ok = made.loaded(c.table, c.mod); !ok {
		return cell{}, errNoCall
	}
	return execute(callerWorld{hitWorld{r, m, made}, c, cfa}, made.steps, false)
}

// callerWorld is the caller, where the call has not returned yet.
type callerWorld struct {
	hitWorld
	place *callerPlace
	cfa   uint64
}

func (w callerWorld) register(name string) (cell, error) {
	for i, n := range host.DwarfNames[:dwIP] {
		if n != name {
			continue
		}
		if i == dwSP {
			return cell{v: w.cfa}, nil
		}
		off, isSaved, ok := w.place.saved(uint64(i))
		switch {
		case !ok:
			return cell{}, errForgotten
		case isSaved:
			return w.load(cell{v: w.cfa + uint64(off)}, 8)
		}
		return w.hitWorld.register(name)
	}
	return cell{}, errForgotten
}

// saved tells where a register of the caller's is: off from the frame address, or still in the register.
func (c *callerPlace) saved(reg uint64) (off int64, isSaved, ok bool) {
	switch rule := c.row.rules[reg]; {
	case !slices.Contains(host.DwarfKept, int(reg)):
	case rule.Rule == frame.RuleOffset:
		return rule.Offset, true, true
	case rule.Rule == frame.RuleUndefined, rule.Rule == frame.RuleSameVal:
		return 0, false, true
	}
	return 0, false, false
}

func (w callerWorld) vector(int) (uint64, error) { return 0, errForgotten }

// entry would lead to the caller's caller.
func (w callerWorld) entry(uint64) (cell, error) { return cell{}, errForgotten }

// reads lists what held may need: registers, and memory beginning at the lowest register that the function has saved.
func (c *callerPlace) reads() (regs []string, reads []Read) {
	name, base := c.base()
	regs = []string{name}
	low := int64(-8)
	for i := range uint64(dwIP) {
		switch off, isSaved, ok := c.saved(i); {
		case ok && !isSaved:
			regs = append(regs, host.DwarfNames[i])
		case ok && off < low && off >= -callerWindow:
			low = off
		}
	}
	at := func(off, n int64) Read { return Read{Addr: Word{Reg: name}, Off: base + off, Max: n, IsSpare: true} }
	window := at(0, callerWindow)
	window.Kind = ReadArray // at the end of a stack there are fewer
	return regs, []Read{at(low, -low), window}
}

// entryStep reads the operand of opEntryValue: the register whose value at the entry is asked for.
func (c callee) entryStep(x *lineCursor) (s step, known bool) {
	b, ok := x.block(x.uleb())
	if !ok || c.caller == nil {
		return s, false
	}
	reg, ok := soleRegister(b)
	return step{op: opEntryValue, n: reg}, ok && !c.caller.reenters()
}

// soleRegister is the DWARF number of the register that an expression names.
func soleRegister(expr []byte) (reg uint64, ok bool) {
	x := &lineCursor{b: expr}
	switch op := x.uint(1); {
	case op >= opReg0 && op < opReg0+32:
		reg = op - opReg0
	case op == opRegx:
		reg = x.uleb()
	default:
		return 0, false
	}
	return reg, !x.isBad && len(x.b) == 0
}

// callSite is what debug information tells of a call.
type callSite struct {
	target uint64                  // link-time address of the function that the instruction calls
	params map[uint64]*computation // by the registers' DWARF numbers
}

// callSites are those of a function, by return address. A call that is described twice is nil.
type callSites map[uint64]*callSite

// What is read of a function to know its calls: entries, calls, and how to unwind at calls.
const (
	mostSiteEntries = usualRead
	mostSites       = 1 << 12
	mostFramed      = 1 << 8
)

// Tags and attributes of calls (DWARF 5 §3.4), and those that GCC has used before.
const (
	tagGNUCallSite          = dwarf.Tag(0x4109)
	tagGNUCallSiteParameter = dwarf.Tag(0x410a)
	attrGNUCallValue        = dwarf.Attr(0x2111)
	attrGNUTailCall         = dwarf.Attr(0x2115)
	attrGNUAllTailCalls     = dwarf.Attr(0x2116)
	attrGNUAllCalls         = dwarf.Attr(0x2117)
)

// callSite is the call behind which v is, nil if nothing is known of it.
func (img *image) callSite(t *Table, v uint64) *callSite {
	code, err := img.readAt(v-host.DirectCallLen, host.DirectCallLen, nil)
	if err != nil {
		return nil
	}
	call, err := host.Arch.Decode(code, arch.Addr(v-host.DirectCallLen))
	if err != nil || call.Flow != arch.FlowCall || call.Len() != len(code) {
		return nil
	}
	d, err := img.dwarfOf(t)
	if err != nil {
		return nil
	}
	u, off, ok := d.subprogram(v - 1)
	if !ok {
		return nil
	}
	sites, ok := d.sites.get(uint64(off))
	if !ok {
		cost := uint64(0)
		sites, cost = d.readSites(img, u, off)
		d.sites.put(uint64(off), sites, cost, d.kept)
	}
	site := sites[v]
	target := uint64(call.Target)
	if site == nil || site.target != 0 && site.target != target {
		return nil
	}
	return &callSite{target, site.params}
}

// readSites reads the calls of the function at off, and tells about how many bytes they take.
func (d *dwarfData) readSites(img *image, u *unit, off dwarf.Offset) (sites callSites, cost uint64) {
	sites = callSites{}
	x := d.entriesAt(off)
	x.left, x.most = mostSiteEntries, mostSiteEntries
	fn := x.next()
	if fn == nil {
		return sites, 0
	}
	starts := starts{}
	c := callee{isInside: true, numbers: d.numbers(u), address: d.address(u)}
	base, _ := attr(d.origins(fn), dwarf.AttrFrameBase).([]byte)
	var site *callSite
	framed := 0
	x.below(fn, func(e *dwarf.Entry) bool {
		switch e.Tag {
		case dwarf.TagCallSite, tagGNUCallSite:
			back, ok := returnOf(e)
			if site = nil; !ok || len(sites) == mostSites {
				break
			}
			if _, twice := sites[back]; twice {
				sites[back] = nil
				break
			}
			site = &callSite{params: map[uint64]*computation{}, target: starts.of(x, e)}
			if c.frame = (frameBase{}); framed < mostFramed {
				framed++
				c.frame = frameAt(base, img.row(back-1), false)
			}
			sites[back] = site
			cost += 256
		case dwarf.TagCallSiteParameter, tagGNUCallSiteParameter:
			if site != nil {
				cost += site.param(c, e)
			}
		}
		return true
	})
	if x.err != nil {
		return callSites{}, 0
	}
	return sites, cost
}

// param adds what e tells of a register, and returns about how many bytes that takes.
func (s *callSite) param(c callee, e *dwarf.Entry) (cost uint64) {
	where, _ := e.Val(dwarf.AttrLocation).([]byte)
	reg, ok := soleRegister(where)
	if !ok {
		return 0
	}
	value, isExpr := e.Val(dwarf.AttrCallValue).([]byte)
	if !isExpr {
		value, isExpr = e.Val(attrGNUCallValue).([]byte)
	}
	if _, twice := s.params[reg]; twice || !isExpr {
		s.params[reg] = nil
		return 0
	}
	x := &lineCursor{b: value}
	made, _, ok := c.computation(x)
	if !ok || len(x.b) > 0 {
		s.params[reg] = nil
		return 0
	}
	s.params[reg] = made
	return 256 + 96*uint64(len(made.steps))
}

// returnOf is the return address of a call.
func returnOf(e *dwarf.Entry) (v uint64, ok bool) {
	if e.Tag == tagGNUCallSite {
		v, ok = e.Val(dwarf.AttrLowpc).(uint64)
		return v, ok
	}
	v, ok = e.Val(dwarf.AttrCallReturnPC).(uint64)
	return v, ok
}

// starts are where functions begin whose entries were looked at, 0 where that is not known.
type starts map[dwarf.Offset]uint64

// of is where the function begins that a call names, 0 if that is not known. It is looked up on x's account.
func (known starts) of(x *dies, e *dwarf.Entry) uint64 {
	off, ok := calleeOfSite(e)
	if !ok {
		return 0
	}
	v, met := known[off]
	if !met {
		if fn := x.lookAt(off); fn != nil {
			v, _ = fn.Val(dwarf.AttrLowpc).(uint64)
		}
		known[off] = v
	}
	return v
}

// calleeOfSite is the entry of the function that a call names.
func calleeOfSite(e *dwarf.Entry) (off dwarf.Offset, ok bool) {
	if off, ok = e.Val(dwarf.AttrCallOrigin).(dwarf.Offset); !ok {
		off, ok = e.Val(dwarf.AttrAbstractOrigin).(dwarf.Offset)
	}
	return off, ok
}

// below calls f for all entries below e, which was just read, until f returns false.
func (x *dies) below(e *dwarf.Entry, f func(*dwarf.Entry) bool) {
	if !e.Children {
		return
	}
	for depth := 1; depth > 0; {
		c := x.next()
		switch {
		case c == nil:
			return
		case c.Tag == 0:
			depth--
			continue
		case !f(c):
			return
		case c.Children:
			depth++
		}
	}
}
