package kprobes

import (
	"errors"
	"slices"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/frames"
	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/ptrace"
)

// Calls that the target follows itself. A Kretprobe without handlers counts, and runs
// its Program. Where its entry is optimized, the detour notes the call in a table that
// is shared with the tracer. The detour of the return site takes it out
// (arch.CallTable).
//
//	                entry                                   return
//	jump            table, if that is plain                 out of the table
//	   └ else traps ─┐                                         └ else traps ─┐
//	breakpoint ──────┴─> tracer: adopt the frame, entered,  breakpoint ──────┴─> tracer: adopt
//	                     hand over                                               the frame, returned
//
// The rules are those of return.go, and are written there alone. They work on the
// tracer's instances. Before them, entries of the table for that frame become instances
// (adopt). After them, a plain call that the tracer entered is put into the table
// (entrust). Each side takes a call out of the table by compare and exchange, so none
// is counted twice.
//
// While calls that return to an address are with the tracer, returns to it that the
// table does not know trap. Entries that will return to it trap, too (Hold): no frame
// is followed on both sides.
//
// The table has no owners and knows one stack of a frame. So when a process is made that shares
// the memory (vfork), the table is closed, and the calls on that stack are adopted.

// followed is a domain's calls in the table. table is nil until there is one.
type followed struct {
	d      *domain
	table  arch.CallTable
	marked bool              // the table is, when we die
	loose  bool              // it may have calls of lines that were forgotten
	stacks map[arch.Addr]int // the threads that were on stacks, by where those begin
	closed bool
	lines  map[uint16]*callLine
	lineOf map[*Kretprobe]*callLine
	last   uint16 // line

	calls        frames.Book[*KretprobeInstance]
	unreturnable map[arch.Addr]error // return addresses without a site
	relays       relays              // that stand on stacks in the place of return addresses
}

// callLine is what the target counts of a Kretprobe's calls.
type callLine struct {
	arch.CallLine
	rp   *Kretprobe
	site *site
	id   uint16
}

// needsTracer says why rp's calls can't be followed in the target.
func (rp *Kretprobe) needsTracer() string {
	switch {
	case host.CallBodies == nil:
		return "a kretprobe follows calls from there"
	case rp.Handler != nil, rp.EntryHandler != nil:
		return "a kretprobe's handlers run in the tracer"
	case rp.MaxActive > arch.MaxCalls:
		return "a kretprobe may follow more calls at once than the target can"
	}
	return ""
}

// followBody is what a detour at the entry of rp's function does first.
func (fo *followed) followBody(st *site, rp *Kretprobe, dead arch.Dead) (arch.Body, error) {
	line, err := fo.newCallLine(st, rp)
	if err != nil {
		return nil, err
	}
	return host.CallBodies.FollowBody(arch.FollowWork{Table: fo.d.followed.table, Line: line.id, Jumps: st.jumpsAway(), Timed: rp.timed(), Replaces: rp.by != ReturnSites && host.Relays != nil && fo.marked, Dead: dead}), nil
}

// callBodies is what det does first of all: it may leave everything to the tracer. It leaves registers that are dead
// changed only if no program behind it looks at them: a caller that has no use for a result still has it in one.
func (fo *followed) callBodies(det *detour, dead arch.Dead) (bodies sequence, err error) {
	if det.work.program != nil || len(det.site.calls.recorders) > 0 {
		dead = arch.Dead{}
	}
	if rp := det.work.follows; rp != nil {
		b, err := fo.followBody(det.site, rp, dead)
		if err != nil {
			return nil, err
		}
		bodies = append(bodies, b)
	}
	if det.work.returns {
		if err := fo.newCallTable(det.site.addr); err != nil {
			return nil, err
		}
		then, err := fo.returnPrograms(det, dead)
		if err != nil {
			return nil, err
		}
		bodies = append(bodies, host.CallBodies.ReturnBody(arch.ReturnWork{Table: fo.d.followed.table, Ret: det.site.addr, Relay: det.site.isRelay(), Dead: dead, Then: then}))
	}
	return bodies, nil
}

func (fo *followed) newCallLine(st *site, rp *Kretprobe) (*callLine, error) {
	if line := fo.d.followed.lineOf[rp]; line != nil {
		return line, nil
	}
	if err := fo.newCallTable(st.addr); err != nil {
		return nil, err
	}
	if fo.d.followed.last == arch.MaxLines {
		return nil, errors.New("too many kretprobes have been optimized")
	}
	fo.d.followed.last++
	n := fo.d.followed.last
	line := &callLine{CallLine: fo.d.followed.table.Line(n), rp: rp, site: st, id: n}
	fo.d.followed.lines[n], fo.d.followed.lineOf[rp] = line, line
	counting.Lock()
	rp.KP.lines = append(slices.Clone(rp.KP.lines), line)
	counting.Unlock()
	rp.limit()
	return line, nil
}

// newCallTable makes sure of a table.
func (fo *followed) newCallTable(near arch.Addr) error {
	if fo.d.followed.table != nil {
		return nil
	}
	at, cells, err := fo.d.region.Cells(near, host.CallBodies.CallTableSize())
	if err != nil {
		return err
	}
	t := host.CallBodies.CallTable(cells, at)
	for _, f := range fo.calls.Frames() {
		for ri := range fo.calls.In(f) {
			t.Hold(ri.word, 1)
		}
	}
	fo.d.followed.table, fo.d.followed.lines, fo.d.followed.lineOf = t, map[uint16]*callLine{}, map[*Kretprobe]*callLine{}
	fo.marked = fo.mark()
	fo.whetherClosed()
	return nil
}

// limit tells the target how many more calls of rp may be followed at once.
func (rp *Kretprobe) limit() {
	for _, line := range rp.KP.lines {
		if rp.live == nil {
			line.SetLimit(0)
		} else {
			line.SetLimit(rp.MaxActive - len(rp.live))
		}
	}
}

// active is how many calls of rp are in the table.
func (rp *Kretprobe) active() (n int) {
	for _, line := range rp.KP.lines {
		n += line.active()
	}
	return n
}

// hold tells the target that n more calls which return to ret are the tracer's.
func (fo *followed) hold(ret arch.Addr, n int) {
	if fo.d.followed.table != nil {
		fo.d.followed.table.Hold(ret, n)
	}
}

// adopt makes instances of a call in the table, whose owner is own.
func (fo *followed) adopt(s arch.CallSlot, pid int, own frames.Owner) {
	fo.d.followed.table.Hold(s.Ret, s.Count)
	defer fo.d.followed.table.Hold(s.Ret, -s.Count)
	if !fo.d.followed.table.Take(s) {
		return
	}
	line, ret := fo.d.followed.lines[s.Line], fo.relays.behind(s.Ret)
	if line == nil { // unregistered
		fo.relays.kept = fo.relays.kept || ret != s.Ret
		return
	}
	line.move(-s.Count)
	f := frames.Frame{PID: pid, CFA: s.CFA}
	fo.endReentered(f, s.Ret, 0) // the target has not seen what the tracer followed there before
	for i := range s.Count {
		if len(line.rp.live) >= 2*arch.MaxCalls { // never as many, unless the target has written there itself
			line.rp.missed.add(MissMaxActive, uint64(s.Count-i))
			fo.relays.kept = fo.relays.kept || ret != s.Ret
			return
		}
		ri := line.rp.instance()
		ri.RetAddr, ri.word, ri.entry, ri.sp, ri.began = ret, s.Ret, line.site, s.CFA-wordSize, s.Began
		fo.link(ri, own, f)
	}
}

// adoptFrame adopts the calls in one frame of own's.
func (fo *followed) adoptFrame(pid int, cfa arch.Addr, own frames.Owner) {
	if fo.d.followed.table == nil {
		return
	}
	for _, s := range fo.d.followed.table.Frame(cfa) {
		fo.adopt(s, pid, own)
	}
}

// adoptStack adopts the calls on the stack that th is on.
func (fo *followed) adoptStack(th *ptrace.Thread) {
	busy := false
	for _, line := range fo.d.followed.lines {
		busy = busy || line.active() > 0
	}
	regs, err := th.Regs()
	if !busy || err != nil {
		return
	}
	stack := fo.d.look.stackOf(regs.SP())
	fo.d.followed.table.All(func(s arch.CallSlot) {
		if stack.Contains(s.CFA - 1) {
			fo.adopt(s, th.Proc.PID, frames.Owner{TID: th.TID})
		}
	})
}

// Shared implements ptrace.Handler: child will run in the memory of parent, whose stack it may
// be on.
func (s hooks) Shared(parent *ptrace.Thread, child *ptrace.Process) {
	if d := s.spaces.Of(parent.Proc.Space); d != nil && d.followed.table != nil {
		d.followed.closed = true
		d.followed.table.Close()
		d.followed.adoptStack(parent)
	}
}

// whetherClosed opens the table if the memory has one process.
func (fo *followed) whetherClosed() bool {
	if shared := len(fo.d.space.Processes()) > 1; shared != fo.d.followed.closed {
		if fo.d.followed.closed = shared; shared {
			fo.d.followed.table.Close()
		} else {
			fo.d.followed.table.Open()
		}
	}
	return fo.d.followed.closed
}

// entrust puts the calls in a frame into the table. rp's call was entered last; it must
// be followed there, and be the only probe's in the frame. came is the word that it came with, in the place of the return address, and word the one that is there now.
func (fo *followed) entrust(rp *Kretprobe, f frames.Frame, came, word arch.Addr) {
	line := fo.d.followed.lineOf[rp]
	if line == nil || line.site.jump() == nil || line.site.jump().work.follows != rp || fo.whetherClosed() {
		return
	}
	if fo.d.followed.table.Know(word, line.id); came != word {
		fo.d.followed.table.Replace(came, line.id, word)
	}
	for ri := range fo.calls.In(f) {
		if fo.d.followed.lineOf[ri.probe] == nil {
			return
		}
	}
	for ri := fo.calls.Top(f); ri != nil; ri = fo.calls.Top(f) {
		if !fo.putAway(fo.d.followed.lineOf[ri.probe], f, word) {
			return
		}
	}
}

// putAway puts one probe's calls in a frame into the table.
func (fo *followed) putAway(line *callLine, f frames.Frame, word arch.Addr) bool {
	var calls []*KretprobeInstance
	for ri := range fo.calls.In(f) {
		if ri.probe == line.rp {
			calls = append(calls, ri)
		}
	}
	n := len(calls)
	if line.rp.timed() && n > 1 || line.active()+n > arch.MaxCalls || !fo.d.followed.table.Put(arch.FollowedCall{
		CFA: f.CFA, Ret: word, Line: line.id, Count: n, Jumps: line.site.jumpsAway(), Began: calls[0].began,
	}) {
		return false
	}
	line.move(n)
	for _, ri := range calls {
		if fo.unlink(ri); ri.rewritten() {
			fo.relays.out--
		}
		ri.put()
	}
	return true
}

// searchTable ends the calls of rp in the table that are known to be dead.
func (rp *Kretprobe) searchTable(in *domain, known *stacks) {
	for _, line := range rp.KP.lines {
		d := line.site.domain
		if line.active() == 0 {
			continue
		}
		d.followed.table.All(func(s arch.CallSlot) {
			if s.Line != line.id {
				return
			}
			ri := &KretprobeInstance{RetAddr: d.followed.relays.behind(s.Ret), sp: s.CFA - wordSize}
			below := d == in && s.CFA < known.now && known.sameStack(d, s.CFA, known.now)
			if (below || !d.followed.holdsReturn(ri)) && d.followed.table.Take(s) {
				line.move(-s.Count)
				rp.missed.add(MissUnreturned, uint64(s.Count))
				if ri.RetAddr != s.Ret {
					d.followed.relays.stray(ri.sp)
				}
			}
		})
	}
}

// endTable forgets the calls of rp in all tables. Their remaining entries there belong
// to no line, and are taken out when they are met.
func (rp *Kretprobe) endTable() {
	for _, line := range rp.KP.lines {
		d := line.site.domain
		d.followed.table.Forget(line.id)
		delete(d.followed.lines, line.id)
		delete(d.followed.lineOf, rp)
		line.end(false)
	}
}

// foldCalls counts what the target has counted with the Kretprobes, before its memory goes.
// Calls in flight are missed if the program has ended.
func (fo *followed) foldCalls(ended bool) {
	for _, line := range fo.d.followed.lines {
		line.end(ended)
	}
	fo.unmark()
	fo.d.followed.table, fo.d.followed.closed, fo.d.followed.lines, fo.d.followed.lineOf, fo.d.followed.last = nil, false, nil, nil, 0
	fo.loose, fo.stacks = false, nil
}

// active is how many of the calls are in the table.
func (l *callLine) active() int {
	n, _ := l.Calls()
	return n
}

// move puts n calls into the table, or takes them out. The line counts entries of calls
// that are in it or have returned from it.
func (l *callLine) move(n int) {
	counting.Lock()
	defer counting.Unlock()
	l.Add(n)
	l.rp.KP.hits.Add(uint64(-n))
}

// end gives the Kretprobe what the line has counted.
func (l *callLine) end(missed bool) {
	counting.Lock()
	defer counting.Unlock()
	l.SetLimit(0)
	active, returns := l.Calls()
	l.rp.hits.Add(returns)
	l.rp.KP.hits.Add(returns + uint64(active))
	if missed {
		l.rp.missed.add(MissUnreturned, uint64(active))
	}
	l.rp.KP.lines = slices.DeleteFunc(slices.Clone(l.rp.KP.lines), func(o *callLine) bool { return o == l })
}

// followedInTarget is how many calls and returns of kp's Kretprobe the target has counted and nobody folded.
func (kp *Kprobe) followedInTarget() (entries, returns uint64) {
	for _, line := range kp.lines {
		n, r := line.Calls()
		entries, returns = entries+uint64(n)+r, returns+r
	}
	return entries, returns
}

// knownTrap tells whether a breakpoint of a detour's body stands at at.
func (ds *detours) knownTrap(at arch.Addr) bool {
	det := ds.holding(at)
	if det == nil || at == det.Trap {
		return det != nil
	}
	stop, ok := det.StopAt(at)
	return ok && !stop.Why.Faults()
}
