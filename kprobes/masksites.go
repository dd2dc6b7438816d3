package kprobes

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/optimize"
	"github.com/gokprobe/gokprobe/ptrace"
)

// Threads that block all signals: C libraries do so for a moment when they make threads and processes, and end them, so that no
// handler runs there. A breakpoint raises SIGTRAP all the same. While we live that costs the guard, for a moment; when we are
// dead it costs the process.
//
// So no thread gets that far. Where code that may have breakpoints calls rt_sigprocmask(2), a jump leads to a tail (arch.Masks) behind
// the displaced instructions, which has the call read another set if the program's is all signals: the same one without SIGTRAP and
// SIGILL. It is code of the target's, needs nobody, and goes on when we are dead. Nothing is written to the program's memory, and no
// other register is changed than one whose value nobody needs behind the call.
//
//	a thread in the tail            is as good as in front of the call: only registers have changed that the call changes anyway,
//	                                and the pointer, which is one of two right ones at any time
//	in front of the call            has a pointer to our memory, perhaps; where we leave, it gets its own back (giveBackMasks, recoverymove.go)
//	behind the call                 the register has no use any more: either what follows was looked at (argumentEnds), or the
//	                                program's pointer is a constant of the code, which all threads that still have ours get back
//
// A child that posix_spawn(3) makes has our code in its memory, until it executes its program, and actions of its own: it sets all that are
// handlers to the default, the guard too, and would die of the next breakpoint after our death. So calls of rt_sigaction that set
// SIGTRAP's to the default do nothing but tell the one before, where the program has never set another one. The tail works in the same way.
//
// Sets that are nearly all signals are treated in the same way if a thread blocks them when the tails are made.
//
// What the program can see of it: a thread that has all signals blocked reads a mask without these two. Not covered are threads that
// block nearly all signals by a set that nobody blocked before, or SIGTRAP and few others; sets that are passed to a call in generated code; and a thread in a
// handler that has interrupted it in front of the call, when we leave: its call fails with EFAULT.

// hostMasks is the architecture's part.
var hostMasks, _ = ptrace.Host.(arch.Masks)

// maskSite is a call of rt_sigprocmask, or of rt_sigaction, at whose site a tail stands.
type maskSite struct {
	callSite
	known arch.Addr // rt_sigprocmask's set, if it is always the same constant
}

// masks is what a domain knows of them.
type masks struct {
	searched  map[maskKey]bool
	maskCells arch.Range // sets for tails; the tracer has them at mem
	mem       []byte
	sets      []arch.MaskCell         // in cells, for sets from anywhere
	constant  map[arch.Addr]arch.Addr // the program's pointer, by the cell that is used in its place
	ownAction arch.Addr               // where tails put the handler that the program sets for SIGTRAP
	placing   bool
}

// maskKey tells mappings of code apart.
type maskKey struct {
	at     arch.Range
	offset uint64
	inode  uint64
}

const (
	setLen      = 8 // bytes of a sigset_t that the kernel looks at
	maxSets     = 64
	searchLoads = 48 // bytes in front of a call, in which its number is loaded
)

// allSignals are the sets with all signals that libraries use: all 64, or without what they use themselves (32 to 34).
var allSignals = []ptrace.Sigset{^ptrace.Sigset(0), ^ptrace.Sigset(1 << 31), ^ptrace.Sigset(1 << 32), ^ptrace.Sigset(3 << 31), ^ptrace.Sigset(7 << 31)}

// keepUnblocked places tails in the code around sites, which are about to be armed, if that was not searched yet. It reports whether there are
// new ones: until then threads may have blocked all signals.
func (d *domain) keepUnblocked(sites []*site) (placed bool) {
	if hostMasks == nil || hostDetours == nil || d.private || d.placing || !d.guard.has(unix.SIGTRAP) {
		return false
	}
	d.placing = true
	defer func() { d.placing = false }()
	var fresh []*site
	for _, st := range sites {
		m, err := d.surveyed().mapping(d, st.addr)
		if err != nil || m == nil || st.linker && len(st.probes) == 0 {
			continue
		}
		key := maskKey{m.Range, m.Offset, m.Inode}
		if d.searched[key] {
			continue
		}
		if d.searched == nil {
			d.searched = map[maskKey]bool{}
		}
		d.searched[key] = true
		for _, call := range d.maskCalls(m) {
			st, err := d.maskSite(call)
			if err != nil && errors.Is(err, ptrace.ErrNoThread) { // inside vfork(2)
				delete(d.searched, key)
				d.guard.incomplete = true
				break
			}
			if st != nil {
				fresh = append(fresh, st)
			}
		}
	}
	if len(fresh) == 0 {
		return false
	}
	if err := d.space.Freeze(func() error { return d.putTails(fresh) }); d.unlessEnding(err) != nil && !departed(err) {
		d.session.warn("the process may not survive if gokprobe is killed: %v", err)
	}
	return true
}

// maskCalls finds the calls in a mapping that can have a tail, and may need it.
func (d *domain) maskCalls(m *procfs.Mapping) (calls []maskSite) {
	if !m.Read || m.Write || m.Anonymous() {
		return nil
	}
	mask, action := number(unix.SYS_RT_SIGPROCMASK), number(unix.SYS_RT_SIGACTION)
	callers, _, err := d.callersIn(m, func(before []byte) bool {
		before = before[max(len(before)-searchLoads, 0):]
		return bytes.Contains(before, mask) || bytes.Contains(before, action)
	})
	if err != nil {
		return nil
	}
	for _, f := range callers {
		for i, n := range f.numbered() {
			call := maskSite{callSite: f.site(i, n)}
			if call.at != call.insn && d.takesTail(f, i, &call) && d.checkCallSite(call.callSite) == nil {
				calls = append(calls, call)
			}
		}
	}
	return calls
}

// takesTail tells whether number i of f's instructions makes a call that may have a tail, and needs one.
func (d *domain) takesTail(f *callerCode, i int, call *maskSite) bool {
	switch call.number {
	case unix.SYS_RT_SIGACTION:
		return f.argumentEnds(i)
	case unix.SYS_RT_SIGPROCMASK:
	default:
		return false
	}
	p, known := call.set()
	if known && d.constantSet(p) != 0 {
		call.known = p
		return true
	}
	return !known && f.argumentEnds(i)
}

// number is how an instruction that loads a small number holds it.
func number(n uint32) []byte { return binary.LittleEndian.AppendUint32(nil, n) }

// set is the pointer that the call passes, if that is always the same.
func (c *maskSite) set() (p arch.Addr, known bool) {
	var passed [2]arch.Addr
	for k, fill := range []byte{0x11, 0x22} {
		regs := ptrace.Host.NewRegs()
		for i, name := range regs.Names() {
			regs.Set(name, uint64(fill)*0x0101010101010101+uint64(i))
		}
		for _, load := range c.loads {
			if ptrace.Host.Load(load, regs, vague(fill)) != nil {
				return 0, false
			}
		}
		passed[k], _ = hostMasks.MaskPointers(regs)
	}
	return passed[0], passed[0] == passed[1]
}

// constantSet is the set to block in place of the one at p, 0 if that need not be changed or may be another one later.
func (d *domain) constantSet(p arch.Addr) ptrace.Sigset {
	m, err := d.surveyed().mapping(d, p)
	b := make([]byte, setLen)
	if err != nil || m == nil || m.Write || m.Anonymous() || d.space.ReadMemory(p, b) != nil {
		return 0
	}
	set, ok := ptrace.Sigset(binary.LittleEndian.Uint64(b)).Unforced()
	if !ok {
		return 0
	}
	return set
}

// argumentEnds tells whether nothing behind number i of f's instructions, a system call, needs the register of the call's second
// argument, on any way, before it gets another value. Functions that are called, and other system calls, do not get it: a compiler would
// have to pass them, as their own second argument, what it has put there for this call.
func (f *callerCode) argumentEnds(i int) bool {
	seen := map[int]bool{}
	todo := []arch.Addr{f.insns[i].End()}
	for len(todo) > 0 {
		j, ok := f.index(todo[len(todo)-1])
		if todo = todo[:len(todo)-1]; !ok {
			return false
		}
		if seen[j] {
			continue
		}
		seen[j] = true
		insn := f.insns[j]
		switch insn.Flow {
		case arch.FlowReturn, arch.FlowTrap, arch.FlowCall, arch.FlowIndirectCall:
			continue
		case arch.FlowIndirectJump, arch.FlowFar:
			return false
		case arch.FlowJump:
			todo = append(todo, insn.Target)
			continue
		case arch.FlowCond:
			todo = append(todo, insn.Target)
		default:
			needs, sets := hostMasks.MaskPointerUse(insn)
			if needs {
				return false
			}
			if sets {
				continue
			}
		}
		todo = append(todo, insn.End())
	}
	return true
}

// maskSite makes the site of a call, unless there is one. The error says why it can't have a jump.
func (d *domain) maskSite(call maskSite) (*site, error) {
	if st := d.sites[call.at]; st != nil {
		if st.mask == nil {
			st.mask = &call
			d.consider(st)
		}
		return nil, nil
	}
	st, err := d.makeSite(call.at)
	if err != nil {
		return nil, err
	}
	st.mask = &call
	d.sites[st.addr] = st
	if st.next, err = d.makeDetour(st, work{unblocks: true}); err == nil && d.armedInside(st.next.region(), st) != nil {
		d.discardDetour(st.next)
		err = errNoTail
	}
	if err != nil {
		d.dropMaskSite(st)
		return nil, err
	}
	return st, nil
}

func (d *domain) dropMaskSite(st *site) {
	delete(d.sites, st.addr)
	d.discard(st)
}

// putTails writes the jumps of sites that never had a breakpoint. The space is frozen: see optimizer.go.
func (d *domain) putTails(sites []*site) error {
	sites = slices.DeleteFunc(sites, func(st *site) bool {
		if d.changedSince(st) {
			d.dropMaskSite(st)
			return true
		}
		return false
	})
	errs := []error{nil}
	for _, st := range sites {
		d.remember(st.next)
		d.guardDetour(st.next)
		errs = append(errs, d.turn(st.next, true))
	}
	d.noteFaults(sites)
	_, err := d.text.InstallAll(wantsOf(sites))
	for _, st := range sites {
		if p, ok := d.text.Find(st.addr); ok && p.Range().Len() == uint64(len(st.next.jump)) {
			d.jumping(st, p)
		} else {
			d.giveUp(st, errors.Join(err, ErrNoSlot))
			d.dropMaskSite(st)
		}
	}
	return errors.Join(append(errs, err)...)
}

// extend has a detour displace everything up to the call, behind which its tail comes.
func (c *maskSite) extend(choice *optimize.Choice) *optimize.Choice {
	out := *choice
	out.Options = nil
	for _, o := range choice.Options {
		for _, load := range c.loads {
			if load.Addr == o.End() {
				o.Insns = append(slices.Clone(o.Insns), load)
			}
		}
		if o.End() == c.insn {
			out.Options = append(out.Options, o)
		}
	}
	return &out
}

// tailed is a body with the tail of a maskSite.
type tailed struct {
	arch.Body
	tail func(arch.Addr) arch.TailCode
}

func (t tailed) Tail(at arch.Addr) arch.TailCode { return t.tail(at) }

// withTail adds the tail of a call to a body.
func (d *domain) withTail(c *maskSite, body arch.Body) (arch.Body, error) {
	if err := d.makeMaskCells(c.at); err != nil {
		return nil, err
	}
	if c.number == unix.SYS_RT_SIGACTION {
		return tailed{body, hostMasks.ActionTail(int(unix.SIGTRAP), d.ownAction)}, nil
	}
	w := arch.MaskWork{Cells: d.sets}
	if c.known != 0 {
		var err error
		if w.Known, err = d.constantCell(c.known); err != nil {
			return nil, err
		}
	}
	return tailed{body, hostMasks.MaskTail(w)}, nil
}

// makeMaskCells makes sure of memory for sets.
func (d *domain) makeMaskCells(near arch.Addr) error {
	if d.mem != nil {
		return nil
	}
	at, mem, err := d.newCells(near, maxSets*setLen)
	if err != nil {
		return err
	}
	d.maskCells, d.mem, d.constant = arch.Range{Start: at, End: at}, mem, map[arch.Addr]arch.Addr{}
	if d.ownAction, err = d.addCell(0); err != nil {
		return err
	}
	sets := slices.Clone(allSignals)
	for _, own := range d.space.Masks() {
		if _, ok := own.Unforced(); ok && !slices.Contains(sets, own) && len(sets) < maxSets/2 {
			sets = append(sets, own, own|setOf(unix.SIGKILL)|setOf(unix.SIGSTOP)) // which a set may have, and no mask
		}
	}
	for _, all := range sets {
		set, _ := all.Unforced()
		cell, err := d.addCell(set)
		if err != nil {
			return err
		}
		d.sets = append(d.sets, arch.MaskCell{Set: uint64(all), At: cell})
	}
	return nil
}

// addCell puts a set into the target.
func (d *domain) addCell(set ptrace.Sigset) (arch.Addr, error) {
	n := d.maskCells.Len()
	if n+setLen > uint64(len(d.mem)) {
		return 0, errors.New("too many sets of signals")
	}
	binary.LittleEndian.PutUint64(d.mem[n:], uint64(set))
	d.maskCells.End += setLen
	return d.maskCells.End - setLen, nil
}

// constantCell is where the set stands that is to be blocked in place of the constant at p.
func (d *domain) constantCell(p arch.Addr) (arch.Addr, error) {
	for cell, own := range d.constant {
		if own == p {
			return cell, nil
		}
	}
	cell, err := d.addCell(d.constantSet(p))
	if err == nil {
		d.constant[cell] = p
	}
	return cell, err
}

// giveBackMasks has stopped threads that are about to pass one of our sets pass their own, and block what they believe to block.
func (d *domain) giveBackMasks() {
	if d.maskCells.Len() == 0 {
		return
	}
	sets := make([]ptrace.Sigset, len(d.sets))
	for i, c := range d.sets {
		sets[i] = ptrace.Sigset(c.Set)
	}
	d.space.Unblocked(sets...)
	for _, th := range d.space.Threads() {
		regs, err := th.Regs()
		if !th.Stopped() || err != nil {
			continue
		}
		// rt_sigaction may go on reading the action only: it sets the one that the guard is about to leave behind.
		if passed, own := hostMasks.MaskPointers(regs); d.maskCells.Contains(passed) {
			if constant := d.constant[passed]; constant != 0 {
				own = constant
			}
			if d.constant[passed] != 0 || d.beforeCall(regs) {
				hostMasks.SetMaskPointer(regs, own)
			}
		}
	}
}

// beforeCall tells whether a thread is in front of a system call.
func (d *domain) beforeCall(regs arch.Regs) bool { return inFrontOfCall(d.space, regs) }

func inFrontOfCall(mem arch.Memory, regs arch.Regs) bool {
	call := ptrace.Host.SyscallInsn()
	b := make([]byte, len(call))
	return mem.ReadMemory(regs.IP(), b) == nil && bytes.Equal(b, call)
}
