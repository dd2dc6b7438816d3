package kprobes

import (
	"errors"
	"slices"
	"unsafe"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/frames"
	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/internal/robust"
	"github.com/gokprobe/gokprobe/optimize"
	"github.com/gokprobe/gokprobe/ptrace"
)

// Return addresses that the target replaces itself. A Kretprobe that the target follows (return_fast.go) needs no stop for that either:
//
//	entry                                                      relay
//	jump ─> body: the table knows R and its relay T?           T: jump ─> body: out of the table
//	   └ no: traps; the tracer makes a relay, and tells it        └ not there: traps
//
// The table has T for such a call, since that is what stands on the stack. What each may see:
//
//   - A body writes T before the call is in the table, and only when T's own code says that it leads to what stood there (arch.FollowWork.Replaces). Until then
//     the stack has R, and after that T: the call returns to R either way.
//   - A thread that comes to T without a call in the table traps: it has kept the address, or the tracer follows its call.
//   - The table forgets relays before the tracer puts true addresses back (noRelays, Forget). A thread that stands in a body then may have found one: its call
//     alone is still to be replaced, or is just about to return. Such calls are left alone (clear of busy). They return by their relay, and the last look at the
//     table, when nobody is in a body, finds them.
//   - When the tracer's thread has died, of whatever, the kernel has marked the table (internal/robust), and bodies replace nothing more: nobody would give an unwinder true
//     addresses. Without that mark they never do.
//   - Before an unwinder runs, the calls that it may meet get their addresses back, and are followed by sites (unrelayStack). All threads are stopped meanwhile: a word on a
//     stack is looked at and then written, and nobody may return from there in between.
//   - A call that is given up as dead may be alive all the same. Where its relay's address stands is noted (strays), for the next unwinder and for the session's end.

const wordSize = 8 // of a return address

// mark makes the kernel mark the table when the tracer's thread dies. It is called on that thread, as unmark is, before the table's memory goes.
func (fo *followed) mark() (ok bool) {
	off, ok := robust.Offset()
	if !ok || off != -arch.MarkNode || arch.MarkDied != robust.Died {
		return false // bodies look elsewhere
	}
	m := fo.table.Mark()
	*(*uint32)(unsafe.Pointer(&m[0])) = robust.Thread()
	return robust.Link(node(m))
}

func (fo *followed) unmark() {
	if fo.table != nil && fo.marked {
		robust.Unlink(node(fo.table.Mark()))
	}
}

func node(mark []byte) *uintptr { return (*uintptr)(unsafe.Pointer(&mark[arch.MarkNode])) }

// isRelay tells whether st stands at a relay.
func (st *site) isRelay() bool { return st.domain.followed.relays.at[st.addr] != nil }

// analysed is detours.analysed for st, which stands at a relay: all of its code is one jump, and nobody comes to the middle of that.
func (rl *relays) analysed(st *site) (*optimize.Choice, error) {
	size := host.Relays.RelaySize()
	code := make([]byte, size)
	if err := rl.d.text.Original(st.addr, code); err != nil {
		return nil, err
	}
	insn, err := host.Arch.Decode(code, st.addr)
	if err != nil {
		return nil, err
	}
	f := optimize.Function{Range: arch.Range{Start: st.addr, End: insn.End()}, Code: code, Next: st.addr.Add(int64(size))}
	an, err := optimize.Analyze(host.Arch, host.Detours, f)
	if err != nil {
		return nil, err
	}
	return an.Site(st.addr)
}

// eachRelayed is the calls in the table that return by a relay.
func (fo *followed) eachRelayed(f func(arch.CallSlot)) {
	if !fo.mayBeRelayed() {
		return
	}
	fo.table.All(func(s arch.CallSlot) {
		if fo.relays.at[s.Ret] != nil {
			f(s)
		}
	})
}

// unrelay gives a call its true return address. It stays in the table if a site can stand there; else the tracer adopts it, as own's. Nobody follows those whose line
// was forgotten. Its thread stands outside of bodies.
func (fo *followed) unrelay(frozen *ptrace.Frozen, s arch.CallSlot, pid int, own frames.Owner) error {
	line, to := fo.lines[s.Line], fo.relays.behind(s.Ret)
	if line == nil {
		return fo.takeBack(s)
	}
	if st := fo.d.sites[to]; st == nil || !line.rp.returns[st] {
		fo.adopt(s, pid, own)
		return nil
	}
	done, err := fo.setTrue(s)
	if done {
		fo.table.Redirect(s, to)
	}
	return err
}

// setTrue puts a call's true return address where its relay's was. done is false if neither is there: the frame is dead, or somewhere else.
func (fo *followed) setTrue(s arch.CallSlot) (done bool, err error) {
	if done, err = fo.relays.putBack(fo.d.space, s.CFA-wordSize); done || err != nil {
		return done, err
	}
	word, ok := fo.returnWord(&KretprobeInstance{sp: s.CFA - wordSize})
	return ok && word == fo.relays.behind(s.Ret), nil // another call in the frame had it done
}

// unrelayStack is unrelay for the calls that an unwinder meets which th is about to run: those on the stack that it is on, and those on stacks that no other thread is on. Such
// a stack is a coroutine's, or th's own while th runs a signal's handler on another one. All threads are stopped for it: stacks of several may lie in one mapping, and then
// nobody can tell whose a call is.
func (fo *followed) unrelayStack(th *ptrace.Thread) {
	regs, err := th.Regs()
	if err != nil || !fo.mayBeRelayed() && len(fo.relays.strays) == 0 {
		return
	}
	defer fo.d.look.anew()()
	stack := fo.d.look.stackKnown(regs.SP())
	meets := func(at arch.Addr) bool { return stack.Contains(at) || !fo.ofAnother(th, at) }
	some := len(fo.relays.strays) > 0
	fo.eachRelayed(func(s arch.CallSlot) {
		if meets(s.CFA - 1) {
			some = true
			fo.siteBehind(s)
		}
	})
	if !some {
		return
	}
	err = fo.d.space.Freeze(func(frozen *ptrace.Frozen) error {
		alone := fo.noteStacks(frozen, th, stack)
		return errors.Join(fo.relays.gather(frozen, meets), fo.unrelayAll(frozen, th.Proc.PID, func(s arch.CallSlot) (own frames.Owner, which bool) {
			if alone && stack.Contains(s.CFA-1) {
				own.TID = th.TID
			}
			return own, meets(s.CFA - 1)
		}))
	})
	if err = fo.d.unlessEnding(err); err != nil {
		fo.d.session.warn("%v", err)
	}
}

// stray notes that a call whose relay's address stands at at, or did, is given up.
func (rl *relays) stray(at arch.Addr) {
	const most = 1 << 16
	if rl.strays == nil {
		rl.strays = map[arch.Addr]bool{}
	}
	if rl.kept = rl.kept || len(rl.strays) >= most; len(rl.strays) < most {
		rl.strays[at] = true
	}
}

// gather puts true return addresses to those of strays of which which says so.
func (rl *relays) gather(_ *ptrace.Frozen, which func(arch.Addr) bool) error {
	var errs []error
	followed := map[arch.Addr]bool{}
	if len(rl.strays) > 0 {
		for _, ri := range rl.d.followed.all() {
			followed[ri.sp] = true
		}
	}
	for at := range rl.strays {
		if !which(at) {
			continue
		}
		if followed[at] || rl.d.followed.table != nil && len(rl.d.followed.table.Frame(at+wordSize)) > 0 {
			delete(rl.strays, at) // another call's by now
			continue
		}
		done, err := rl.putBack(rl.d.space, at)
		if errs = append(errs, err); !done {
			rl.kept = true // the address is dead, or somewhere else
		}
		delete(rl.strays, at)
	}
	return errors.Join(errs...)
}

// ofAnother tells whether an address is on a stack that another thread was on when stacks were noted.
func (fo *followed) ofAnother(th *ptrace.Thread, at arch.Addr) bool {
	tid := fo.stacks[fo.d.look.stackKnown(at).Start]
	return tid != 0 && tid != th.TID && slices.ContainsFunc(fo.d.space.Threads(), func(o *ptrace.Thread) bool { return o.TID == tid })
}

// noteStacks notes which threads are on which stacks, and tells whether th alone is on stack.
func (fo *followed) noteStacks(_ *ptrace.Frozen, th *ptrace.Thread, stack arch.Range) (alone bool) {
	fo.stacks, alone = map[arch.Addr]int{}, true
	for _, o := range fo.d.space.Threads() {
		if regs, err := o.Regs(); o.Stopped() && err == nil {
			fo.stacks[fo.d.look.stackKnown(regs.SP()).Start] = o.TID
			alone = alone && (o == th || !stack.Contains(regs.SP()))
		}
	}
	return alone
}

// unrelayAll is unrelay for the calls of which which says so, and whose they are.
func (fo *followed) unrelayAll(frozen *ptrace.Frozen, pid int, which func(arch.CallSlot) (own frames.Owner, yes bool)) error {
	var errs []error
	clear := fo.clear(frozen)
	fo.eachRelayed(func(s arch.CallSlot) {
		if own, yes := which(s); yes && clear(s) {
			errs = append(errs, fo.unrelay(frozen, s, pid, own))
		}
	})
	return errors.Join(errs...)
}

// mayBeRelayed tells whether the table may have such calls, without a look at all of it.
func (fo *followed) mayBeRelayed() bool {
	if fo.table == nil || len(fo.relays.at) == 0 {
		return false
	}
	if fo.loose {
		return true
	}
	for _, line := range fo.lines {
		if line.active() > 0 {
			return true
		}
	}
	return false
}

// siteBehind makes sure of a site where a call truly returns to, if there can be one.
func (fo *followed) siteBehind(s arch.CallSlot) {
	if line := fo.lines[s.Line]; line != nil {
		_, _ = fo.siteOfReturns(line.rp, fo.relays.behind(s.Ret), false)
	}
}

// takeBack gives a call its true return address, and takes it out of the table. Others of its frame that go on keep the relay.
func (fo *followed) takeBack(s arch.CallSlot) error {
	for _, o := range fo.table.Frame(s.CFA) {
		if o.Ret == s.Ret && o.Line != s.Line && fo.lines[o.Line] != nil && !fo.d.released {
			fo.table.Take(s)
			return nil
		}
	}
	done, err := fo.setTrue(s)
	if !done {
		fo.relays.kept = true // the address is dead, or somewhere else
	}
	fo.table.Take(s)
	return err
}

// clear tells which calls in the table are not those that a thread in a body, or at a relay, is entering or leaving.
func (fo *followed) clear(_ *ptrace.Frozen) func(arch.CallSlot) bool {
	const deepest = 1024 // bytes that a body has on the stack
	var busy []arch.Range
	for _, th := range fo.d.space.Threads() {
		if regs, err := th.Regs(); th.Stopped() && err == nil {
			ip := regs.IP()
			if det := fo.d.detours.holding(ip); fo.relays.at[ip] != nil || det != nil && (det.Body.Contains(ip) || det.site.isRelay() && det.atEntry(ip)) {
				busy = append(busy, arch.Range{Start: regs.SP(), End: regs.SP() + deepest})
			}
		}
	}
	return func(s arch.CallSlot) bool {
		for _, r := range busy {
			if r.Contains(s.CFA) {
				return false
			}
		}
		return true
	}
}

// noRelays ends that the target replaces return addresses. Calls whose addresses were get them back.
func (fo *followed) noRelays() {
	if fo.table == nil {
		return
	}
	fo.table.ForgetRelays()
	processes := fo.d.space.Processes()
	if len(processes) == 0 {
		return
	}
	fo.eachRelayed(fo.siteBehind)
	err := fo.d.space.Freeze(func(frozen *ptrace.Frozen) error {
		return fo.unrelayAll(frozen, processes[0].PID, func(arch.CallSlot) (nobody frames.Owner, yes bool) { return nobody, true })
	})
	if fo.d.unlessEnding(err) != nil {
		fo.d.session.warn("%v", err)
	}
}

// putBackTable gives calls in the table their true return addresses, those whose line is one of lines or was forgotten, and takes them out.
func (fo *followed) putBackTable(frozen *ptrace.Frozen, lines func(*callLine) bool) error {
	var errs []error
	clear := fo.clear(frozen)
	fo.eachRelayed(func(s arch.CallSlot) {
		if line := fo.lines[s.Line]; (line == nil || lines(line)) && clear(s) {
			errs = append(errs, fo.takeBack(s))
		}
	})
	return errors.Join(errs...)
}

// straightenThose is straighten before the Kretprobes of kps end.
func (rg *registry) straightenThose(kps []*Kprobe) {
	calls := map[*domain][]*KretprobeInstance{}
	ending := map[*Kretprobe]bool{}
	for _, kp := range kps {
		if kp.session != rg.s || kp.ret == nil {
			continue
		}
		ending[kp.ret] = true
		for ri := range kp.ret.live {
			if ri.domain != nil && !ri.domain.released && len(ri.domain.followed.relays.at) > 0 {
				calls[ri.domain] = append(calls[ri.domain], ri)
			}
		}
	}
	straightenTables(ending)
	for d, list := range calls {
		d.followed.straighten(list, func(ri *KretprobeInstance) bool { return ending[ri.probe] })
	}
}

// straightenTables is straighten, before Kretprobes end, for their calls in tables: lines still count them as entered. Entries trap from now on.
func straightenTables(ending map[*Kretprobe]bool) {
	lines := map[*domain]map[*callLine]bool{}
	for rp := range ending {
		for _, line := range rp.KP.lines {
			d := line.site.domain
			if d.released || d.followed.table == nil || len(d.followed.relays.at) == 0 {
				continue
			}
			if d.followed.table.Forget(line.id); lines[d] == nil {
				lines[d] = map[*callLine]bool{}
			}
			lines[d][line] = true
		}
	}
	for d, ending := range lines {
		d.followed.loose = true // who stands in a body now may put one there yet
		some := false
		d.followed.eachRelayed(func(s arch.CallSlot) { some = some || ending[d.followed.lines[s.Line]] })
		if !some {
			continue
		}
		err := d.space.Freeze(func(frozen *ptrace.Frozen) error {
			return d.followed.putBackTable(frozen, func(l *callLine) bool { return ending[l] })
		})
		if d.unlessEnding(err) != nil {
			d.session.warn("%v", err)
		}
	}
}
