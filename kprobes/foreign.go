package kprobes

import (
	"bytes"
	"errors"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/internal/targetfs"
	"github.com/gokprobe/gokprobe/ptrace"
)

// Others who write into the code that we have patched: kernel uprobes, debuggers, the
// program itself. patch/standing.go says what they do to it; here is our answer.
//
// Nobody tells us when they come or go. So every patch is looked at now and then, and before and after each change:
//
//	what stands          a breakpoint of ours                     a jump of ours
//	ours, whole          nothing                                  nothing
//	the program's code   lost with a uprobe: armed again          taken back
//	ours, covered        -                                        taken back, but for the foreign breakpoint
//	a part of ours       -                                        taken back
//	other code           left alone, told; armed when the program's code is back, likewise
//
// Jumps are taken back in a Freeze, so no thread sees a part of it; the site gets a breakpoint, and keeps it for good: who came once may
// come again. Where a uprobe stands already when a site is armed, its breakpoint serves for both: it is not written, and not taken away (patch.Shared).
// A uprobe has all hits of a breakpoint that it shares with us. That is told, once; a uprobe that came later to a breakpoint of ours can't be seen, until it goes.
//
// What other threads may see meanwhile. While a uprobe stands at a site, the kernel
// executes the site's instruction for them. They go on at the next head in the jump,
// which traps or is the target's. If the uprobe goes before we have noticed it, the
// file's byte stands in front of the tail of our jump. Instructions that begin with a
// prefix then trap at the tail's first byte, where package optimize put a breakpoint;
// instructions of one byte are whole. They are on the list d.torn, by where they trap.
// See optimize/doc.go for the rest.

// neighbours is what a domain knows of others who write into its code.
type neighbours struct {
	d        *domain
	files    map[string]*targetfs.File // mapped ones, by device and inode number; nil where one can't be opened
	calls    []arch.Range              // where the kernel's uprobes have calls lead to
	ousted   map[*site]bool            // wanted, but other code stands there
	beset    map[string]bool           // files in which others have breakpoints, or have had
	scratch  []byte                    // for code that is compared, which is done often
	expected []byte                    // scratch for undisturbed
	lookFrom time.Time                 // when files are to be looked at again
	torn     map[arch.Addr]arch.Addr   // where the rest of a jump traps, and the head that the thread came to
	strays   map[arch.Addr]*detour     // where a jump leads whose displacement somebody has changed
	mended   map[arch.Addr]bool        // copies of jumps, made by the program, that were put right
	foreign  map[arch.Addr]string      // the target's own breakpoints, and the bytes behind them
}

// besideRefusal is why a site has a breakpoint.
const besideRefusal = "a uprobe or another debugger's breakpoint was seen in the jump's place"

// undisturbed removes from b, which was read from at, the breakpoints and calls that
// others have put over the target's code: it replaces them by the file's bytes. Other
// differences from the file stay.
func (nb *neighbours) undisturbed(at arch.Addr, b []byte) {
	trap := host.Arch.Breakpoint()
	if len(trap) != 1 || len(nb.d.neighbours.calls) == 0 && bytes.IndexByte(b, trap[0]) < 0 {
		return
	}
	defer nb.d.look.joined()()
	for len(b) > 0 {
		m, err := nb.d.look.surveyed().Mapping(at)
		if err != nil || m == nil {
			return
		}
		n := int(min(uint64(len(b)), uint64(m.Range.End-at)))
		if f := nb.mappedFile(m); f != nil {
			nb.expected = slices.Grow(nb.expected[:0], n)
			file := nb.expected[:n]
			if got, _ := f.ReadAt(file, int64(m.Offset)+int64(at-m.Range.Start)); got > 0 {
				nb.compare(at, b[:got], file[:got], trap[0])
			}
		}
		at, b = at+arch.Addr(n), b[n:]
	}
}

// compare does undisturbed's work for what one file has.
func (nb *neighbours) compare(at arch.Addr, b, file []byte, trap byte) {
	for i := 0; i < len(b); i++ {
		switch {
		case b[i] == file[i]:
		case b[i] == trap:
			b[i] = file[i]
		case len(nb.d.neighbours.calls) > 0:
			insn, err := host.Arch.Decode(b[i:], at+arch.Addr(i))
			leads := func(r arch.Range) bool { return r.Contains(insn.Target) }
			if err == nil && insn.Flow == arch.FlowCall && slices.ContainsFunc(nb.d.neighbours.calls, leads) {
				i += copy(b[i:], file[i:i+insn.Len()]) - 1
			}
		}
	}
}

// mappedFile is the file that m shows, nil if it can't be had. Only code of the file's own is compared with it.
func (nb *neighbours) mappedFile(m *procfs.Mapping) *targetfs.File {
	if !m.Exec || m.Shared || m.Anonymous() {
		return nil
	}
	id := fileID(m)
	f, known := nb.d.neighbours.files[id]
	if known {
		return f
	}
	if tid, err := nb.d.space.TID(); err == nil {
		f, _ = ptrace.OpenMapped(tid, *m)
	}
	if nb.d.neighbours.files == nil {
		nb.d.neighbours.files = map[string]*targetfs.File{}
	}
	nb.d.neighbours.files[id] = f
	return f
}

// noteCalls finds, in the maps, where the kernel has calls of uprobes lead to.
func (nb *neighbours) noteCalls(maps []procfs.Mapping) {
	nb.calls = nil
	for _, m := range maps {
		if m.Path == "[uprobes-trampoline]" {
			nb.calls = append(nb.calls, m.Range)
		}
	}
}

// closeUnmapped closes the files that the process has unmapped. A program may load libraries that it makes, without end: each would keep
// its room on the disk, and after some thousand no file could be opened any more. One that others are in stays open: what is known of it holds for its inode
// number, which another file could have else.
func (nb *neighbours) closeUnmapped() {
	if len(nb.files) == 0 {
		return
	}
	maps, err := nb.d.look.surveyed().Mappings()
	if err != nil {
		return
	}
	mapped := make(map[string]bool, len(nb.files))
	for i := range maps {
		if m := &maps[i]; m.Exec && !m.Anonymous() {
			mapped[fileID(m)] = true
		}
	}
	for id, f := range nb.files {
		if mapped[id] || nb.beset[id] {
			continue
		}
		if f != nil {
			f.Close()
		}
		delete(nb.files, id)
	}
}

// close is for the end.
func (nb *neighbours) close() {
	for _, f := range nb.files {
		if f != nil {
			f.Close()
		}
	}
	nb.files = nil
}

func (nb *neighbours) lookBeside() (patched bool) {
	var jumps, lost []*site
	for _, x := range nb.d.text.Disturbed() {
		switch st := nb.d.sites[x.Addr()]; {
		case st == nil || st.patch() != x.Patch:
		case st.jump() != nil:
			jumps = append(jumps, st)
		default:
			lost = append(lost, st)
		}
	}
	if len(jumps)+len(lost)+len(nb.d.neighbours.ousted) > 0 && !nb.d.ending() {
		nb.d.session.settled()
		end := nb.d.look.anew()
		nb.freeOf(jumps)
		nb.besetBy(slices.Concat(jumps, lost))
		for _, st := range lost {
			nb.again(st)
		}
		nb.returnOusted()
		end()
	}
	if !nb.d.ending() {
		nb.lookForOthers()
	}
	return len(nb.d.sites) > 0
}

// freeOf takes back jumps that others have changed.
func (nb *neighbours) freeOf(sites []*site) {
	if len(sites) == 0 {
		return
	}
	for _, st := range sites {
		st.jump().beside = true
	}
	err := nb.d.unlessEnding(nb.d.optimizer.unoptimizeNow(sites))
	for _, st := range sites {
		if !nb.ousted[st] { // else it was counted then
			nb.d.session.beside.disturbances.Add(1)
		}
	}
	nb.tellDisturbed(sites[0])
	if err != nil && !nb.d.session.dying() {
		nb.d.session.warn("%v", err)
	}
}

// again arms a site whose breakpoint was lost, or makes it wait while other code stands
// there.
func (nb *neighbours) again(st *site) {
	nb.d.session.beside.disturbances.Add(1)
	err := nb.d.text.Disarm(st.patch())
	if err == nil && st.wanted() {
		err = nb.d.arm(st)
	}
	nb.tellDisturbed(st)
	if err != nil && st.wanted() {
		nb.oust(st, err)
	}
}

// oust makes a site wait until the target's code is back.
func (nb *neighbours) oust(st *site, why error) {
	if nb.d.neighbours.ousted == nil {
		nb.d.neighbours.ousted = map[*site]bool{}
	}
	if !nb.d.neighbours.ousted[st] && !nb.d.ending() && !nb.d.session.dying() {
		nb.d.session.warn("the probe at %s is lost for now, since somebody has changed the code: %v; it comes back with the target's own code", st.addr, why)
	}
	nb.d.neighbours.ousted[st] = true
	st.noJump.now("somebody has put other code there")
	st.showOptimized()
}

func (nb *neighbours) returnOusted() {
	for st := range nb.d.neighbours.ousted {
		if nb.d.sites[st.addr] != st || !st.wanted() || st.armed() {
			delete(nb.d.neighbours.ousted, st)
			continue
		}
		now := make([]byte, st.plan.Insn.Len())
		if nb.d.text.Original(st.addr, now) != nil || !bytes.Equal(now, st.plan.Insn.Bytes) {
			continue
		}
		if nb.d.arm(st) == nil {
			delete(nb.d.neighbours.ousted, st)
		}
	}
}

// tellDisturbed warns, once, that somebody has changed a patch, st's. It is told when
// threads no longer run the code that they left: half a jump leads anywhere.
func (nb *neighbours) tellDisturbed(st *site) {
	if s := nb.d.session; !s.beside.toldDisturbed {
		s.beside.toldDisturbed = true
		s.warn("somebody else writes into the code at %s (a kernel uprobe, a debugger, or the target itself): probes there are armed again when they are lost; hits meanwhile are not seen", st.addr)
	}
}

// tellShared warns, once, of sites where somebody else's breakpoint stands.
func (nb *neighbours) tellShared(sites []*site) {
	for _, st := range sites {
		if st.patch() == nil || !st.patch().Shared() {
			continue
		}
		if !nb.d.session.beside.toldShared {
			nb.d.session.warn("somebody else has a breakpoint at %s (a kernel uprobe, or one that a debugger has left): a uprobe has the hits there until it goes", st.addr)
		}
		nb.d.session.beside.toldShared = true
		st.noJump.ever(besideRefusal)
		nb.besiegeAt(st.addr)
	}
}

// noteTorn remembers where threads trap if they come to the rest of det's jump.
func (nb *neighbours) noteTorn(det *detour) {
	if nb.d.neighbours.torn == nil {
		nb.d.neighbours.torn = map[arch.Addr]arch.Addr{}
	}
	for _, p := range det.Pieces {
		at := p.Insn.Addr + 1
		if n := int(at - det.site.addr); n < len(det.jump) && bytes.HasPrefix(det.jump[n:], host.Arch.Breakpoint()) && nb.d.detours.heads[at] == nil {
			nb.d.neighbours.torn[at] = p.Insn.Addr
		}
	}
}

// noteStrays remembers where det's jump leads when others have breakpoints at heads inside, or have had: each of the bytes there is ours,
// a breakpoint, or the program's. Nothing else is at these places (trampoline/stray.go).
func (nb *neighbours) noteStrays(det *detour) {
	if nb.d.neighbours.strays == nil {
		nb.d.neighbours.strays = map[arch.Addr]*detour{}
	}
	for _, at := range det.strays {
		nb.d.neighbours.strays[at] = det
	}
}

// forgetStrays says that det's places are given back.
func (nb *neighbours) forgetStrays(det *detour) {
	for _, at := range det.strays {
		if nb.d.neighbours.strays[at] == det {
			delete(nb.d.neighbours.strays, at)
		}
	}
}

// strayed takes a thread that a changed jump has led to at, where it traps, if info is nil, or faults, to the detour. The program itself never
// is in our region, and faults for want of code nowhere else.
func (nb *neighbours) strayed(th *ptrace.Thread, at arch.Addr, regs arch.Regs, info *ptrace.Siginfo) bool {
	det := nb.d.neighbours.strays[at]
	fetch := nb.d.region.Contains(at) || info != nil && info.Signo() == unix.SIGSEGV && info.Addr() == at
	if det == nil || !fetch || nb.d.detours.holding(at) != nil && nb.d.detours.holding(at) != det {
		return false
	}
	if regs.SetIP(det.site.addr); nb.d.detours.at[det.Addr] == det {
		regs.SetIP(det.landing.Entry)
	}
	nb.d.session.beside.now()
	return true
}

// atTorn handles a breakpoint at at: the rest of a jump, after somebody has put back
// the target's byte in front of it.
func (nb *neighbours) atTorn(at arch.Addr, regs arch.Regs) bool {
	head, ok := nb.d.neighbours.torn[at]
	if !ok {
		return false
	}
	regs.SetIP(head)
	for n := range arch.Addr(maxRegion) {
		st := nb.d.sites[head-n]
		if st == nil || st.jump() == nil {
			continue
		}
		if to, ok := st.jump().CopyOf(head); ok && head != st.addr {
			regs.SetIP(to)
		} else if head == st.addr {
			regs.SetIP(st.jump().landing.Entry)
		}
		nb.d.session.beside.now()
		break
	}
	return true
}

// changedJump tells that somebody has written over the jump's first byte: its site is the kernel's to execute.
func (nb *neighbours) changedJump(det *detour) bool {
	b := make([]byte, 1)
	return nb.d.space.Text().ReadMemory(det.site.addr, b) == nil && b[0] != det.jump[0]
}

var errBeside = errors.New("a breakpoint of somebody else's stands in the jump's place")

// besideIn refuses a jump over foreign breakpoints. It returns the code of r as it is without patches, both by one look at memory.
func (nb *neighbours) besideIn(r arch.Range, st *site) (own []byte, err error) {
	now := make([]byte, r.Len())
	if err := nb.d.space.Text().ReadMemory(r.Start, now); err != nil {
		return nil, err
	}
	nb.d.text.Overlay(r.Start, now)
	own = bytes.Clone(now)
	nb.undisturbed(r.Start, own)
	if st.patch() != nil && st.patch().Shared() || !bytes.Equal(now, own) {
		return nil, errBeside
	}
	return own, nil
}
