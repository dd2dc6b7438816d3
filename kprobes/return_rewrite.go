package kprobes

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/frames"
	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/ptrace"
)

// Rewriting. The kernel has one trampoline, and a record for each call tells where it returns to. A program's stacks are not
// the kernel's: programs copy them, jump to where they were before, fork, and outlive their tracer. So here the address that stands on the stack
// tells by itself where it leads. Each place that is returned to has a relay (arch.Relays), one jump:
//
//	stack         relay, in a page of the target's own          the caller
//	[sp] ───────> T:  int3 ── stop ── Handlers                  R: as it was
//	                  jmp R ─────────────────────────────────────^
//
// The breakpoint at a relay is a site as any other (return_site.go). So all that is known of sites holds for it: the journal has it, the guard leads
// threads past it when the tracer is dead, and a forked child loses it. Without it the relay is code that needs nobody.
//
// What each may see, at each step:
//
//   - A relay is written whole, and its breakpoint stands, before its address is given to anyone. It never changes again.
//   - A return address is replaced while its own thread stands at the function's entry; no other thread returns by it. Whoever returns by a relay
//     comes to the true place, whether the call is in our books or not: a second time (setjmp), on a copy of the stack, in a
//     forked child.
//   - It is put back with all threads stopped, and only if the relay's address is still there.
//   - A signal is not delivered at a relay: no handler is told of one (hooks.Signal).
//   - If the tracer is killed between any two of these, the addresses that are left lead to relays.
//
// Who reads return addresses must find true ones. Our own unwinder does (Regs.Backtrace). The target's is met at its entry, where the thread's calls get their
// addresses back and are followed by sites (return_unwinders.go).
//
// The pages stay when the session ends, if some address may still lead there: one that was not found in its place.

// relay is one that the target has.
type relay struct{ at, to arch.Addr }

// relays is those of an address space.
type relays struct {
	d     *domain
	pages []arch.Range
	free  arch.Range // of the last page
	to    map[arch.Addr]*relay
	at    map[arch.Addr]*relay
	bad   map[arch.Addr]bool // places that can have none
	out   int                // return addresses that were replaced, and are there still as far as is known
	kept  bool               // somebody has kept such an address, and returned by it without a call of ours

	// strays is where relays' addresses may stand of calls that were given up, and may yet return: until an unwinder comes there, or the session's end.
	strays map[arch.Addr]bool

	asked bool // why is known
	why   string
}

// mostRelayPages: generated code has ever new places. Behind that, sites serve.
const mostRelayPages = 64

// serves tells whether a call of st, by the Kretprobe rp, to be returned from to ret, may have its return address replaced.
func (rl *relays) serves(rp *Kretprobe, st *site, ret arch.Addr) bool {
	switch {
	case rp.by == ReturnSites, st.calls.inGo, st.calls.unwinds:
		return false
	case rl.to[ret] != nil:
		return rl.refusal() == "" && !rl.looksBack(st)
	case rl.bad[ret] || rl.refusal() != "" || rl.looksBack(st):
		return false
	}
	defer rl.d.look.anew()()
	if rl.d.look.checkRelay(ret) != nil {
		rl.cannot(ret)
		return false
	}
	return true
}

func (rl *relays) cannot(ret arch.Addr) {
	const enough = 1024
	if rl.bad == nil || len(rl.bad) >= enough {
		rl.bad = map[arch.Addr]bool{}
	}
	rl.bad[ret] = true
}

// checkRelay accepts an address that has been found in the place of a return address if it is one: a call ends there, and is no signal's.
func (lo *looks) checkRelay(at arch.Addr) error {
	m, err := lo.surveyed().Mapping(at)
	switch {
	case err != nil:
		return err
	case m == nil:
		return ErrNotMapped
	case !m.Exec || lo.d.region.Contains(at) || lo.isSigreturn(at):
		return ErrBlacklisted
	}
	return lo.checkBehindCall(at, *m)
}

// lead is the relay that leads to ret.
func (rl *relays) lead(ret arch.Addr) (*relay, error) {
	if r := rl.to[ret]; r != nil {
		return r, nil
	}
	size := host.Relays.RelaySize()
	if rl.free.Len() < uint64(size) {
		if err := rl.newPage(); err != nil {
			return nil, err
		}
	}
	r := &relay{at: rl.free.Start, to: ret}
	if err := rl.d.space.Text().WriteMemory(r.at, host.Relays.Relay(ret)); err != nil {
		return nil, err
	}
	rl.free.Start = rl.free.Start.Add(int64(size))
	if rl.to == nil {
		rl.to, rl.at = map[arch.Addr]*relay{}, map[arch.Addr]*relay{}
	}
	rl.to[ret], rl.at[r.at] = r, r
	return r, nil
}

func (rl *relays) newPage() error {
	if len(rl.pages) == mostRelayPages {
		return errors.New("calls return to very many places")
	}
	page, err := rl.d.space.MapCode(codePage)
	if err != nil {
		if !errors.Is(err, ptrace.ErrNoThread) {
			rl.why = err.Error()
		}
		return err
	}
	rl.d.look.changed()
	rl.pages, rl.free = append(rl.pages, page), page
	return nil
}

// behind is the place that a return address leads to.
func (rl *relays) behind(ret arch.Addr) arch.Addr {
	if r := rl.at[ret]; r != nil {
		return r.to
	}
	return ret
}

// returnsTo is the place that is returned to by way of st.
func (st *site) returnsTo() arch.Addr { return st.domain.followed.relays.behind(st.addr) }

// wayBack makes sure of a site that a call of st meets when it returns to ret; nil if there can be none. word is its return address, which
// leads there.
func (fo *followed) wayBack(rp *Kretprobe, st *site, word, ret arch.Addr) *site {
	if word != ret {
		return fo.returnSite(rp, word, st.calls.inGo)
	}
	if rp.by == ReturnAuto {
		if back, err := fo.siteOfReturns(rp, ret, st.calls.inGo); err == nil {
			return back
		} else if fo.unreturnable[ret] == nil { // it may do well the next time
			return fo.returnSite(rp, ret, st.calls.inGo)
		}
	}
	if fo.relays.serves(rp, st, ret) {
		back, err := fo.relaySite(rp, ret)
		if err == nil {
			return back
		}
		if !errors.Is(err, ptrace.ErrNoThread) { // inside vfork(2), which ends
			fo.relays.cannot(ret)
		}
	}
	return fo.returnSite(rp, ret, st.calls.inGo)
}

func (fo *followed) relaySite(rp *Kretprobe, ret arch.Addr) (*site, error) {
	r, err := fo.relays.lead(ret)
	if err != nil {
		return nil, err
	}
	return fo.siteOfReturns(rp, r.at, false)
}

// rewrite replaces the return address at at, by which a stopped thread is to return from a function that it has just entered.
func (fo *followed) rewrite(ri *KretprobeInstance, regs *Regs, at arch.Addr, back *site) error {
	switch now, _, err := host.Arch.Caller(regs, rawMemory{regs}); {
	case err != nil:
		return err
	case now != ri.word:
		return errChanged
	}
	if ts := regs.hit; ts != nil {
		ts.noted = false // the thread has noted what was there
	}
	return fo.replace(ri, at, back)
}

func (fo *followed) replace(ri *KretprobeInstance, at arch.Addr, back *site) error {
	if err := fo.d.space.WriteMemory(at, binary.LittleEndian.AppendUint64(nil, uint64(back.addr))); err != nil {
		return err
	}
	ri.word = back.addr
	return nil
}

// rewritten tells whether a relay's address was written in the place of ri's return address, as far as is known.
func (ri *KretprobeInstance) rewritten() bool { return ri.word != ri.RetAddr }

// errChanged: an EntryHandler has written there.
var errChanged = errors.New("the return address is another one now")

// settled: the return address of the calls in a frame is not there any more.
func (fo *followed) settled(calls iter.Seq[*KretprobeInstance]) {
	for ri := range calls {
		if ri.rewritten() {
			fo.hold(ri.word, -1)
			ri.word = ri.RetAddr
			fo.hold(ri.word, 1)
			fo.relays.out--
		}
	}
}

// arrived: a thread has returned by a relay, whose address stood at at, from the calls of a frame; there are none if those were given up, or if it has come by an address that
// it had kept.
func (fo *followed) arrived(top *KretprobeInstance, at arch.Addr) {
	if top == nil {
		fo.relays.kept = fo.relays.kept || !fo.relays.strays[at]
		delete(fo.relays.strays, at)
		return
	}
	fo.settled(fo.calls.In(top.call.Frame))
}

// putBack gives the call that has its return address at at the true one, in mem, if there is a relay's. Nobody runs on that stack.
func (rl *relays) putBack(mem arch.Memory, at arch.Addr) (done bool, err error) {
	var b [8]byte
	if err := mem.ReadMemory(at, b[:]); err != nil {
		return false, nil // the stack is gone
	}
	r := rl.at[arch.Addr(binary.LittleEndian.Uint64(b[:]))]
	if r == nil {
		return false, nil
	}
	if err := mem.WriteMemory(at, binary.LittleEndian.AppendUint64(nil, uint64(r.to))); err != nil {
		return false, fmt.Errorf("putting a return address back: %w", err)
	}
	return true, nil
}

// rewritten is those of calls, one of each frame, whose return address is a relay's.
func (fo *followed) rewritten(calls []*KretprobeInstance) (tops []*KretprobeInstance) {
	if len(fo.relays.at) == 0 {
		return nil
	}
	seen := map[frames.Frame]bool{}
	for _, ri := range calls {
		if ri.call.Frame.Goroutine != 0 || seen[ri.call.Frame] {
			continue
		}
		seen[ri.call.Frame] = true
		if word, ok := fo.returnWord(ri); ok && fo.relays.at[word] != nil {
			tops = append(tops, ri)
		}
	}
	return tops
}

// all is all calls, where some of them may have their return addresses replaced.
func (fo *followed) all() (calls []*KretprobeInstance) {
	if len(fo.relays.at) == 0 {
		return nil
	}
	for _, f := range fo.calls.Frames() {
		calls = slices.AppendSeq(calls, fo.calls.In(f))
	}
	return calls
}

// putBackAll gives the calls in the frames of tops their true return addresses. A thread that is at a relay has returned; it goes on
// where that leads.
func (fo *followed) putBackAll(_ *ptrace.Frozen, tops []*KretprobeInstance) error {
	var errs []error
	for _, ri := range tops {
		done, err := fo.relays.putBack(fo.d.space, ri.sp)
		if errs = append(errs, err); done {
			fo.settled(fo.calls.In(ri.call.Frame))
		}
	}
	for _, th := range fo.d.space.Threads() {
		fo.relays.leaveRelay(th)
	}
	return errors.Join(errs...)
}

// straighten gives calls their true return addresses. Those that go on to be followed are so by sites; where there can be none they are
// missed. ending are calls that nobody wants to follow any more.
func (fo *followed) straighten(calls []*KretprobeInstance, ending func(*KretprobeInstance) bool) {
	tops := fo.rewritten(calls)
	var lost []*KretprobeInstance
	for _, top := range tops {
		for ri := range fo.calls.In(top.call.Frame) {
			if !ending(ri) && fo.returnSite(ri.probe, ri.RetAddr, false) == nil {
				lost = append(lost, ri)
			}
		}
	}
	if len(tops) == 0 {
		return
	}
	err := fo.d.space.Freeze(func(frozen *ptrace.Frozen) error { return fo.putBackAll(frozen, tops) })
	if fo.d.unlessEnding(err) != nil {
		fo.d.session.warn("%v", err)
	}
	for _, ri := range lost {
		if ri.probe != nil && ri.probe.live[ri] && ri.domain != nil {
			fo.miss(ri, MissReturnAddress)
		}
	}
}

// ofStack is the calls whose frames an unwinder meets that th runs: those that th has entered, and all that are on its stack.
func (fo *followed) ofStack(th *ptrace.Thread, sp arch.Addr) []*KretprobeInstance {
	calls := fo.all()
	if len(calls) == 0 {
		return nil
	}
	stack := fo.d.look.stackOf(sp)
	return slices.DeleteFunc(calls, func(ri *KretprobeInstance) bool {
		own := ri.call.Owner == frames.Owner{TID: th.TID} || ri.call.Owner == frames.Owner{}
		return !own && !stack.Contains(ri.call.Frame.CFA-1)
	})
}

// unwound comes before the target's own unwinder reads the stack of a thread.
func (hs *hits) unwound(ts *threadState, d *domain) {
	d.followed.unrelayStack(ts.regs.thread)
	if d.followed.relays.out == 0 {
		return
	}
	ts.enter(atSite)
	defer ts.done()
	calls := d.followed.ofStack(ts.regs.thread, ts.regs.SP())
	d.followed.straighten(calls, func(*KretprobeInstance) bool { return false })
}

// keepAddresses notes where return addresses of a forked child's may be relays', and leaveChild puts true ones back. The child keeps the relays: what
// it knows of them is not looked for.
func (fo *followed) keepAddresses(child *ptrace.Process) {
	var at []arch.Addr
	for _, ri := range fo.all() {
		if ri.call.Frame.Goroutine == 0 {
			at = append(at, ri.sp)
		}
	}
	fo.eachRelayed(func(s arch.CallSlot) { at = append(at, s.CFA-wordSize) })
	at = slices.AppendSeq(at, maps.Keys(fo.relays.strays))
	if at != nil {
		fo.d.session.forkedReturns.Keep(child.Space, &at)
	}
}

func (fo *followed) leaveChild(child *ptrace.Process) (err error) {
	kept := &fo.d.session.forkedReturns
	if at := kept.Of(child.Space); at != nil {
		for _, at := range *at {
			_, failed := fo.relays.putBack(child.Space, at)
			err = errors.Join(err, failed)
		}
	}
	kept.Keep(child.Space, nil)
	return err
}

// copyWay makes sure of a site that c meets, in a forked child, when it returns as ri does in the parent.
func (fo *followed) copyWay(c, ri *KretprobeInstance) bool {
	word, ok := fo.returnWord(ri)
	if !ok || fo.relays.behind(word) != ri.RetAddr {
		return fo.returnSite(c.probe, ri.RetAddr, false) != nil
	}
	back := fo.wayBack(c.probe, ri.entry, word, ri.RetAddr)
	if back == nil || back.addr == word {
		return back != nil
	}
	return fo.replace(c, ri.sp, back) == nil || fo.returnSite(c.probe, ri.RetAddr, false) != nil
}

// leaveRelay takes a thread that is at a relay to where that leads.
func (rl *relays) leaveRelay(th *ptrace.Thread) {
	if len(rl.at) == 0 || !th.Stopped() {
		return
	}
	if regs, err := th.Regs(); err == nil && rl.at[regs.IP()] != nil {
		regs.SetIP(rl.behind(regs.IP()))
	}
}

// unneeded is the pages that nothing leads to.
func (rl *relays) unneeded() []arch.Range {
	if rl.out > 0 || rl.kept {
		return nil
	}
	return rl.pages
}

// trueMemory is rawMemory as unwinders are to see it.
type trueMemory struct{ *Regs }

func (m trueMemory) ReadMemory(at arch.Addr, p []byte) error {
	err := rawMemory(m).ReadMemory(at, p)
	if rl := &m.domain.followed.relays; err == nil && len(rl.at) > 0 {
		rl.showTrue(at, p)
	}
	return err
}

// showTrue shows true addresses in the place of relays' in p, which was read at at.
func (rl *relays) showTrue(at arch.Addr, p []byte) {
	for off := int(-at & 7); off+8 <= len(p); off += 8 {
		if r := rl.at[arch.Addr(binary.LittleEndian.Uint64(p[off:]))]; r != nil {
			binary.LittleEndian.PutUint64(p[off:], uint64(r.to))
		}
	}
}

// ReplacesReturns tells that return addresses on the target's stacks may be replaced (Options.Returns).
func (s *Session) ReplacesReturns() bool { return s.opts.Returns != ReturnSites }

// ReturnPlace is where at leads to, if it was found on a stack in the place of a return address: the place that is returned to, for one
// that we have replaced, else at itself. It is for handlers.
func (r *Regs) ReturnPlace(at arch.Addr) arch.Addr { return r.domain.followed.relays.behind(at) }

// ReturnPlace is that of Regs, for what the record has. It is for RecordHandlers.
func (r *HitRecord) ReturnPlace(at arch.Addr) arch.Addr {
	if r.domain == nil {
		return at
	}
	return r.domain.followed.relays.behind(at)
}
