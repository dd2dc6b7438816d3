package kprobes

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/internal/syscallsites"
	"github.com/gokprobe/gokprobe/optimize"
	"github.com/gokprobe/gokprobe/ptrace"
)

// Threads that block all signals: C libraries do so for a moment when they make threads and processes, and end them, so that no
// handler runs there. A breakpoint raises SIGTRAP all the same, for which the kernel resets the process's action to the default: the guard has gone
// (guard.go). While we live it is put back soon; when we are dead, nobody does, and the signal kills the process.
//
// So no thread is to block SIGTRAP. Where code that may have breakpoints, or the C
// library, calls rt_sigprocmask(2), a jump leads to a tail (arch.Masks) behind the
// displaced instructions. If the target's set is all signals, or nearly all, the tail
// makes the call read another one: the same without SIGTRAP and SIGILL. A tail is code
// in the target: it needs no tracer, and works when we are dead. It writes nothing to
// memory as long as we live. It changes only the registers that every system call
// changes, and the one with the pointer to the set.
//
//	a thread in the tail            is as good as in front of the call: whatever it has done there, the pointer is the program's or ours, and either
//	                                is right
//	in front of the call            its pointer may be to our memory: when the session ends, it gets its own back (giveBackMasks)
//	behind the call                 it still has that pointer, but does not need it: either what follows was looked at (argumentEnds), or the
//	                                program's own pointer is a constant of the code, and then all threads that have ours get it back
//
// Calls of rt_sigaction(2) have tails as well: see guard_sigaction.go.
//
// Sets with SIGTRAP are in a table (arch.MaskTable): those that libraries use and that threads block when the tails are made from the beginning, others from
// the first time that they are passed. For those a tail asks us, by a breakpoint; with nobody there, it takes the two signals out of the
// program's own set, where that is nearly all. That is the one thing that it writes to memory.
//
// What the program can see of it: a thread that has all signals blocked reads a mask
// without these two. Not covered: threads that block SIGTRAP and few others; sets that
// are passed to a call in generated code; constant ones that are new when we are dead;
// new ones when the table is full. And a call may fail with EFAULT, since its set is
// gone: if a signal's handler has interrupted the thread in front of the call when the
// session ends, or if the thread is there when the process is recovered after our
// death.

// maskSite is a call of rt_sigprocmask, or of rt_sigaction, at whose site a tail stands.
type maskSite struct {
	syscallsites.Site
	known arch.Addr // rt_sigprocmask's set, if it is always the same constant
}

// mappingKey tells mappings of code apart.
type mappingKey struct {
	at     arch.Range
	offset uint64
	dev    string
	inode  uint64
}

func keyOf(m *procfs.Mapping) mappingKey { return mappingKey{m.Range, m.Offset, m.Dev, m.Inode} }

// setLen is the bytes of a sigset_t that the kernel looks at.
const setLen = 8

// keepUnblocked places tails in the code around sites, which are about to be armed, if that was not searched yet. Then it does f, in the same
// Freeze: threads may have blocked all signals before the tails were there. Where there are no new ones, f is done if always says so.
func (mk *masks) keepUnblocked(sites []*site, always bool, f func(*ptrace.Frozen) error) error {
	fresh := mk.makeTails(sites)
	if len(fresh) == 0 && !always {
		return nil
	}
	return mk.d.space.Freeze(func(frozen *ptrace.Frozen) error {
		if err := mk.putTails(frozen, fresh); mk.d.unlessEnding(err) != nil && !ptrace.Departed(err) {
			mk.d.session.warn("the process may not survive if gokprobe is killed: %v", err)
		}
		mk.d.space.Unblock(mk.d.guard.noteUnblocked)
		return f(frozen)
	})
}

// makeTails makes the sites of tails that are new.
func (mk *masks) makeTails(sites []*site) (fresh []*site) {
	if host.Masks == nil || host.Detours == nil || mk.d.memory.private || mk.placing || !mk.d.guard.has(unix.SIGTRAP) {
		return nil
	}
	mk.placing = true
	defer func() { mk.placing = false }()
	defer mk.d.look.joined()()
	for _, m := range mk.unsearched(sites) {
		calls := mk.maskCalls(m)
		if mk.d.session.heed.wanted() != nil {
			delete(mk.searched, keyOf(m)) // it may have been cut short
			continue
		}
		for _, call := range calls {
			st, err := mk.maskSite(call)
			if err != nil && errors.Is(err, ptrace.ErrNoThread) { // inside vfork(2)
				mk.unfinished = append(mk.unfinished, keyOf(m))
				mk.d.guard.incomplete = true
				break
			}
			if st != nil {
				fresh = append(fresh, st)
			}
		}
	}
	return fresh
}

// unsearched are the mappings of code around sites, and the C library's, that were not searched yet; now they are.
func (mk *masks) unsearched(sites []*site) (list []*procfs.Mapping) {
	add := func(m *procfs.Mapping) {
		if key := keyOf(m); !mk.searched[key] {
			mk.searched[key] = true
			list = append(list, m)
		}
	}
	if mk.searched == nil {
		mk.searched = map[mappingKey]bool{}
	}
	probed := false
	for _, st := range sites {
		m, err := mk.d.look.surveyed().Mapping(st.addr)
		if err != nil || m == nil {
			continue
		}
		probed = true
		if !st.linker || len(st.probes) > 0 {
			add(m)
		}
	}
	maps, err := mk.d.look.surveyed().Mappings()
	if err != nil || !probed {
		return list
	}
	for i := range maps {
		if m := &maps[i]; m.Exec && isCLibrary(m.Path) {
			add(m)
		}
	}
	return list
}

// isCLibrary tells from its name whether a file is the library that makes threads, and passes on what programs want done with signals:
// glibc's (libc.so.6, libc-2.31.so, libpthread.so.0), or musl's (ld-musl-x86_64.so.1, libc.so).
func isCLibrary(path string) bool {
	name := filepath.Base(path)
	for _, prefix := range []string{"libc.", "libc-", "libpthread.", "libpthread-", "ld-musl-"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// maskCalls finds the calls in a mapping that can have a tail, and may need it.
func (mk *masks) maskCalls(m *procfs.Mapping) (calls []maskSite) {
	if !m.Read || m.Write || m.Anonymous() {
		return nil
	}
	searched := mk.searchMasks(m)
	for _, found := range searched.calls {
		site, err := found.in(m.Range.Start)
		if err != nil || mk.d.look.checkMapping(site.Insn) != nil || mk.d.look.checkMapping(site.At) != nil || mk.d.look.checkRestartable(site.At) != nil {
			continue
		}
		call := maskSite{Site: site}
		if found.constant {
			if call.known = m.Range.Start + found.pointer; mk.constantSet(call.known) == 0 {
				continue
			}
		}
		calls = append(calls, call)
	}
	if searched.short != "" && mk.d.session.heed.wanted() == nil {
		mk.d.session.warn("the process may not survive if gokprobe is killed: %s", searched.short)
	}
	return calls
}

// mostTails is how many calls in a mapping may get tails. C libraries have some twenty.
const mostTails = 1024

// searchMasks finds the calls in a mapping that can have a tail, as far as its code tells; see guard_masksearch.go.
func (mk *masks) searchMasks(m *procfs.Mapping) searchedCalls {
	if found, ok := mk.keys[keyOf(m)].remembered(); ok && mk.stand(found.calls, m.Range.Start) {
		return found
	}
	code := mk.d.look.backed(m)
	lies, unchanged := mk.liesIn(m, code)
	if key := lies.key(); unchanged {
		if found, ok := key.remembered(); ok && mk.stand(found.calls, m.Range.Start) {
			mk.keys[keyOf(m)] = key
			return found
		}
	}
	key, err := mk.keyOfCode(code)
	if err != nil {
		return searchedCalls{short: err.Error()}
	}
	if mk.keys[keyOf(m)] = key; unchanged {
		if still, unchanged := mk.liesIn(m, code); unchanged && still == lies { // else it was changed while it was read
			lies.remember(key)
		}
	}
	if found, ok := key.remembered(); ok {
		return found
	}
	found, err := mk.searchMasksAnew(m)
	if err != nil {
		return searchedCalls{short: err.Error()}
	}
	key.remember(found)
	return found
}

// inherit takes over from the parent of a forked child which code has been searched: to read it all again would be half of what a fork costs.
func (mk *masks) inherit(parent *masks) { mk.keys = maps.Clone(parent.keys) }

// anew has all code searched again.
func (mk *masks) anew() {
	clear(mk.searched)
	clear(mk.keys)
}

// stand tells that the calls which were found are there still.
func (mk *masks) stand(calls []foundCall, start arch.Addr) bool {
	for _, c := range calls {
		code := append(slices.Concat(c.loads...), host.Arch.SyscallInsn()...)
		if now, err := mk.d.look.original(start+c.at, len(code)); err != nil || !bytes.Equal(now, code) {
			return false
		}
	}
	return true
}

func (mk *masks) searchMasksAnew(m *procfs.Mapping) (all searchedCalls, err error) {
	mask, action := number(unix.SYS_RT_SIGPROCMASK), number(unix.SYS_RT_SIGACTION)
	search := mk.d.look.callSearch(m)
	search.Chosen = func(before []byte) bool { return bytes.Contains(before, mask) || bytes.Contains(before, action) }
	found, err := search.Run()
	if err != nil {
		return all, err
	}
	for _, f := range found.Functions {
		for i, n := range f.NearlyNumbered() {
			call := f.Site(i, n)
			if call.At == call.Insn {
				continue
			}
			pointer, constant, ok := takesTail(f, i, &call)
			switch {
			case !ok || mk.d.look.checkCallSite(call) != nil:
			case len(all.calls) >= mostTails:
				found.Short = fmt.Sprintf("there are more calls that change signals in %s than are looked at", mappingName(m))
			default:
				all.calls = append(all.calls, relative(&call, m.Range.Start, pointer, constant))
			}
		}
	}
	all.short = found.Short
	return all, nil
}

// takesTail tells whether number i of f's instructions makes a call that may have a tail, and needs one: at a constant pointer, if its set has to be changed.
func takesTail(f *syscallsites.Function, i int, call *syscallsites.Site) (pointer arch.Addr, constant, ok bool) {
	switch call.Number {
	case unix.SYS_RT_SIGACTION:
		return 0, false, f.ArgumentEnds(i, host.Masks.MaskPointerUse)
	case unix.SYS_RT_SIGPROCMASK:
	default:
		return 0, false, false
	}
	if pointer, constant = constantPointer(call); constant {
		return pointer, true, true
	}
	return 0, false, f.ArgumentEnds(i, host.Masks.MaskPointerUse)
}

// number is how an instruction that loads a small number holds it.
func number(n uint32) []byte { return binary.LittleEndian.AppendUint32(nil, n) }

// constantPointer is the pointer that the call passes, if that is always the same.
func constantPointer(call *syscallsites.Site) (p arch.Addr, known bool) {
	v, known := call.Constant(host.Arch, func(r arch.Regs) uint64 {
		passed, _ := host.Masks.MaskPointers(r)
		return uint64(passed)
	})
	return arch.Addr(v), known
}

// constantSet returns the set to block in place of the one at p; 0 if that needs no
// change, or if memory at p may change.
func (mk *masks) constantSet(p arch.Addr) ptrace.Sigset {
	m, err := mk.d.look.surveyed().Mapping(p)
	b := make([]byte, setLen)
	if err != nil || m == nil || m.Write || m.Anonymous() || mk.d.space.ReadMemory(p, b) != nil {
		return 0
	}
	set, ok := ptrace.Sigset(binary.LittleEndian.Uint64(b)).Unforced()
	if !ok {
		return 0
	}
	return set
}

// maskSite makes the site of a call; the error says why it can't have a jump. A site that is there already gets the tail with its next jump, and none is returned.
func (mk *masks) maskSite(call maskSite) (*site, error) {
	if st := mk.d.sites[call.At]; st != nil {
		if st.mask == nil {
			st.mask, mk.d.past.runs = &call, nil
			mk.d.optimizer.consider(st)
		}
		return nil, nil
	}
	st, err := mk.d.makeSite(call.At)
	if err != nil {
		return nil, err
	}
	st.mask, mk.d.past.runs = &call, nil
	mk.d.sites[st.addr] = st
	det, err := mk.d.detours.make(st, work{unblocks: true})
	if err == nil && mk.d.optimizer.armedInside(det.region(), st) != nil {
		mk.d.detours.discard(det)
		err = errNoTail
	}
	if err != nil {
		mk.dropMaskSite(st)
		return nil, err
	}
	st.planJump(det)
	return st, nil
}

func (mk *masks) dropMaskSite(st *site) {
	delete(mk.d.sites, st.addr)
	mk.d.slots.give(st)
}

// putTails writes the jumps of sites that never had a breakpoint: see jump.go.
func (mk *masks) putTails(frozen *ptrace.Frozen, sites []*site) error {
	mk.placing = true
	defer func() { mk.placing = false }()
	sites = slices.DeleteFunc(sites, func(st *site) bool {
		if mk.d.optimizer.changedSince(st) {
			mk.dropMaskSite(st)
			return true
		}
		return false
	})
	errs := []error{nil}
	for _, st := range sites {
		mk.d.optimizer.remember(st.next())
		mk.d.guard.guardDetour(st.next())
		errs = append(errs, mk.d.detours.turn(st.next(), true))
	}
	mk.d.detours.noteFaults(sites)
	_, err := mk.d.text.While(frozen).InstallAll(wantsOf(sites))
	for _, st := range sites {
		if p, ok := mk.d.text.Find(st.addr); ok && p.Range().Len() == uint64(len(st.next().jump)) {
			mk.d.optimizer.jumping(st, p)
		} else {
			mk.d.optimizer.giveUp(st, errors.Join(err, ErrNoSlot))
			mk.dropMaskSite(st)
		}
	}
	return errors.Join(append(errs, err)...)
}

// takeTailsBack ends the sites of tails where nothing else is. They come again with the next probe.
func (mk *masks) takeTailsBack() error {
	var tails []*site
	for _, st := range mk.d.sites {
		if st.mask != nil && st.bare() {
			st.mask, mk.d.past.runs = nil, nil
			tails = append(tails, st)
		}
	}
	clear(mk.searched)
	return mk.d.optimizer.unoptimizeNow(tails)
}

// extend makes a detour displace everything up to the call, behind which its tail comes.
func (c *maskSite) extend(choice *optimize.Choice) *optimize.Choice {
	out := *choice
	out.Options = nil
	for _, o := range choice.Options {
		for _, load := range c.Loads {
			if load.Addr == o.End() {
				o.Insns = append(slices.Clone(o.Insns), load)
			}
		}
		if o.End() == c.Insn {
			out.Options = append(out.Options, o)
		}
	}
	return &out
}
