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

// Others who write into the code that we have patched: kernel uprobes, debuggers, the program itself. What they do to it is told in
// patch/standing.go; here is what is done about it.
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
// What other threads may see meanwhile. While a uprobe stands at a site, they execute the site's instruction by the kernel, and go on at the
// next head in the jump, which traps or is the program's. If the uprobe goes before we have noticed it, the file's byte stands in front of the tail
// of our jump. Instructions that begin with a prefix then trap at the tail's first byte, since package optimize has that be a breakpoint;
// instructions of one byte are whole. They are on the list d.torn, by where they trap. See optimize/doc.go for the rest.

// neighbours is what a domain knows of others who write into its code.
type neighbours struct {
	files    map[string]*targetfs.File // mapped ones, by device and inode number; nil where one can't be opened
	calls    []arch.Range              // where the kernel's uprobes have calls lead to
	ousted   map[*site]bool            // wanted, but other code stands there
	beset    map[string]bool           // files in which others have breakpoints, or have had
	lookFrom time.Time                 // when files are to be looked at again
	torn     map[arch.Addr]arch.Addr   // where what is left of a jump traps, and the head that the thread came to
	strays   map[arch.Addr]*detour     // where a jump leads whose displacement somebody has changed
	mended   map[arch.Addr]bool        // copies of jumps, made by the program, that were put right
	foreign  map[arch.Addr]string      // breakpoints of the program's own, and what follows them
}

// besideInterval is how often code is looked at, unless that takes more than a small share of the time.
const (
	besideInterval = 5 * time.Millisecond
	besideShare    = 100
)

// besideRefusal is why a site has a breakpoint.
const besideRefusal = "a uprobe or another debugger's breakpoint was seen in the jump's place"

// undisturbed replaces in b, which was read from at, the breakpoints and calls that others have put over the program's code by what
// the file has there. Only what differs from the file, and is known for what it is, is replaced.
func (d *domain) undisturbed(at arch.Addr, b []byte) {
	trap := host.Arch.Breakpoint()
	if len(trap) != 1 || len(d.neighbours.calls) == 0 && bytes.IndexByte(b, trap[0]) < 0 {
		return
	}
	if d.survey == nil {
		defer func() { d.survey = nil }()
	}
	for len(b) > 0 {
		m, err := d.surveyed().Mapping(at)
		if err != nil || m == nil {
			return
		}
		n := int(min(uint64(len(b)), uint64(m.Range.End-at)))
		if f := d.mappedFile(m); f != nil {
			file := make([]byte, n)
			if got, _ := f.ReadAt(file, int64(m.Offset)+int64(at-m.Range.Start)); got > 0 {
				d.compare(at, b[:got], file[:got], trap[0])
			}
		}
		at, b = at+arch.Addr(n), b[n:]
	}
}

// compare does undisturbed's work for what one file has.
func (d *domain) compare(at arch.Addr, b, file []byte, trap byte) {
	for i := 0; i < len(b); i++ {
		switch {
		case b[i] == file[i]:
		case b[i] == trap:
			b[i] = file[i]
		case len(d.neighbours.calls) > 0:
			insn, err := host.Arch.Decode(b[i:], at+arch.Addr(i))
			leads := func(r arch.Range) bool { return r.Contains(insn.Target) }
			if err == nil && insn.Flow == arch.FlowCall && slices.ContainsFunc(d.neighbours.calls, leads) {
				i += copy(b[i:], file[i:i+insn.Len()]) - 1
			}
		}
	}
}

// mappedFile is the file that m shows, nil if it can't be had. Only code of the file's own is compared with it.
func (d *domain) mappedFile(m *procfs.Mapping) *targetfs.File {
	if !m.Exec || m.Shared || m.Anonymous() {
		return nil
	}
	id := fileID(m)
	f, known := d.neighbours.files[id]
	if known {
		return f
	}
	if tid, err := d.space.TID(); err == nil {
		f, _ = ptrace.OpenMapped(tid, *m)
	}
	if d.neighbours.files == nil {
		d.neighbours.files = map[string]*targetfs.File{}
	}
	d.neighbours.files[id] = f
	return f
}

// noteCalls finds, in the maps, where the kernel has calls of uprobes lead to.
func (n *neighbours) noteCalls(maps []procfs.Mapping) {
	n.calls = nil
	for _, m := range maps {
		if m.Path == "[uprobes-trampoline]" {
			n.calls = append(n.calls, m.Range)
		}
	}
}

// close is for the end.
func (n *neighbours) close() {
	for _, f := range n.files {
		if f != nil {
			f.Close()
		}
	}
	n.files = nil
}

// watchBeside begins to look at the code now and then, as long as there are patches.
func (s *Session) watchBeside() {
	if !s.beside && !s.closed {
		s.beside = true
		time.AfterFunc(besideInterval, s.lookAgain)
	}
}

func (s *Session) lookAgain() {
	var next time.Duration
	if s.do(func() error { next = s.lookBeside(); return nil }) == nil && next > 0 {
		time.AfterFunc(next, s.lookAgain)
	}
}

// lookBeside looks once, and tells when to look again; 0 if there is nothing to look at.
func (s *Session) lookBeside() (next time.Duration) {
	began, patched := time.Now(), false
	for d := range s.domains {
		if d.released || d.busy {
			patched = patched || d.busy
			continue
		}
		patched = d.lookBeside() || patched
	}
	if s.beside = patched; !patched {
		return 0
	}
	return max(besideInterval, besideShare*time.Since(began))
}

func (d *domain) lookBeside() (patched bool) {
	var jumps, lost []*site
	for _, x := range d.text.Disturbed() {
		switch st := d.sites[x.Addr()]; {
		case st == nil || st.patch() != x.Patch:
		case st.jump() != nil:
			jumps = append(jumps, st)
		default:
			lost = append(lost, st)
		}
	}
	if len(jumps)+len(lost)+len(d.neighbours.ousted) > 0 && !d.ending() {
		d.survey = nil
		d.freeOf(jumps)
		d.besetBy(slices.Concat(jumps, lost))
		for _, st := range lost {
			d.again(st)
		}
		d.returnOusted()
		d.survey = nil
	}
	if !d.ending() {
		d.lookForOthers()
	}
	return len(d.sites) > 0
}

// freeOf takes back jumps that others have changed.
func (d *domain) freeOf(sites []*site) {
	if len(sites) == 0 {
		return
	}
	d.session.disturbances.Add(uint64(len(sites)))
	for _, st := range sites {
		st.jump().beside = true
	}
	err := d.unlessEnding(d.unoptimizeNow(sites))
	d.tellDisturbed(sites[0])
	if err != nil && !d.session.dying() {
		d.session.warn("%v", err)
	}
}

// again arms a site whose breakpoint was lost, or has it wait while other code stands there.
func (d *domain) again(st *site) {
	d.session.disturbances.Add(1)
	err := d.text.Disarm(st.patch())
	if err == nil && st.wanted() {
		err = d.arm(st)
	}
	d.tellDisturbed(st)
	if err != nil && st.wanted() {
		d.oust(st, err)
	}
}

// oust has a site wait until the program's code is back.
func (d *domain) oust(st *site, why error) {
	if d.neighbours.ousted == nil {
		d.neighbours.ousted = map[*site]bool{}
	}
	if !d.neighbours.ousted[st] && !d.ending() && !d.session.dying() {
		d.session.warn("the probe at %s is lost for now, since somebody has changed the code: %v; it comes back with the program's own code", st.addr, why)
	}
	d.neighbours.ousted[st] = true
	st.refusal = "somebody has put other code there"
	st.showOptimized()
}

func (d *domain) returnOusted() {
	for st := range d.neighbours.ousted {
		if d.sites[st.addr] != st || !st.wanted() || st.armed() {
			delete(d.neighbours.ousted, st)
			continue
		}
		now := make([]byte, st.plan.Insn.Len())
		if d.text.Original(st.addr, now) != nil || !bytes.Equal(now, st.plan.Insn.Bytes) {
			continue
		}
		if d.arm(st) == nil {
			delete(d.neighbours.ousted, st)
		}
	}
}

// tellDisturbed warns, once, that somebody has changed a patch, st's. It is told when what they left is no longer run: half a jump leads anywhere.
func (d *domain) tellDisturbed(st *site) {
	if s := d.session; !s.toldDisturbed {
		s.toldDisturbed = true
		s.warn("somebody else writes into the code at %s (a kernel uprobe, a debugger, or the program itself): probes there are armed again when they are lost; hits meanwhile are not seen", st.addr)
	}
}

// Disturbances is how often others, such as kernel uprobes, have changed the code at probes. Each of these was armed again, or told of.
func (s *Session) Disturbances() uint64 { return s.disturbances.Load() }

// tellShared warns, once, of sites where somebody else's breakpoint stands.
func (d *domain) tellShared(sites []*site) {
	for _, st := range sites {
		if st.patch() == nil || !st.patch().Shared() {
			continue
		}
		if !d.session.toldShared {
			d.session.warn("somebody else has a breakpoint at %s (a kernel uprobe, or one that a debugger has left): a uprobe has the hits there until it goes", st.addr)
		}
		d.session.toldShared, st.rejected, st.refusal = true, true, besideRefusal
		d.besiegeAt(st.addr)
	}
}

// noteTorn remembers where threads trap that come to what is left of det's jump.
func (d *domain) noteTorn(det *detour) {
	if d.neighbours.torn == nil {
		d.neighbours.torn = map[arch.Addr]arch.Addr{}
	}
	for _, p := range det.Pieces {
		at := p.Insn.Addr + 1
		if n := int(at - det.site.addr); n < len(det.jump) && bytes.HasPrefix(det.jump[n:], host.Arch.Breakpoint()) && d.heads[at] == nil {
			d.neighbours.torn[at] = p.Insn.Addr
		}
	}
}

// noteStrays remembers where det's jump leads when others have breakpoints at heads inside, or have had: each of the bytes there is ours,
// a breakpoint, or the program's. Nothing else is at these places (trampoline/stray.go).
func (d *domain) noteStrays(det *detour) {
	if d.neighbours.strays == nil {
		d.neighbours.strays = map[arch.Addr]*detour{}
	}
	for _, at := range det.strays {
		d.neighbours.strays[at] = det
	}
}

// forgetStrays says that det's places are given back.
func (d *domain) forgetStrays(det *detour) {
	for _, at := range det.strays {
		if d.neighbours.strays[at] == det {
			delete(d.neighbours.strays, at)
		}
	}
}

// strayed takes a thread that a changed jump has led to at, where it traps, if info is nil, or faults, to the detour. The program itself never
// is in our region, and faults for want of code nowhere else.
func (d *domain) strayed(th *ptrace.Thread, at arch.Addr, regs arch.Regs, info *ptrace.Siginfo) bool {
	det := d.neighbours.strays[at]
	fetch := d.region.Contains(at) || info != nil && info.Signo() == unix.SIGSEGV && info.Addr() == at
	if det == nil || !fetch || d.detourAt(at) != nil && d.detourAt(at) != det {
		return false
	}
	if regs.SetIP(det.site.addr); d.detours[det.Addr] == det {
		regs.SetIP(det.landing.Entry)
	}
	if info != nil {
		th.UndoFault()
	}
	d.session.lookNow()
	return true
}

// atTorn deals with a breakpoint at at that is left of a jump, in front of which somebody has put back the program's byte.
func (d *domain) atTorn(at arch.Addr, regs arch.Regs) bool {
	head, ok := d.neighbours.torn[at]
	if !ok {
		return false
	}
	regs.SetIP(head)
	for n := range arch.Addr(maxRegion) {
		st := d.sites[head-n]
		if st == nil || st.jump() == nil {
			continue
		}
		if to, ok := st.jump().CopyOf(head); ok && head != st.addr {
			regs.SetIP(to)
		} else if head == st.addr {
			regs.SetIP(st.jump().landing.Entry)
		}
		d.session.lookNow()
		break
	}
	return true
}

// lookNow has the code looked at as soon as the tracer is done with what it does.
func (s *Session) lookNow() {
	if !s.lookSoon {
		s.lookSoon = true
		go func() { _ = s.do(func() error { s.lookSoon = false; s.lookBeside(); return nil }) }()
	}
}

// changedJump tells that somebody has written over the jump's first byte: its site is the kernel's to execute.
func (d *domain) changedJump(det *detour) bool {
	b := make([]byte, 1)
	return d.space.Text().ReadMemory(det.site.addr, b) == nil && b[0] != det.jump[0]
}

var errBeside = errors.New("a breakpoint of somebody else's stands in the jump's place")

// besideIn refuses a jump over foreign breakpoints.
func (d *domain) besideIn(r arch.Range, st *site) error {
	now, own := make([]byte, r.Len()), make([]byte, r.Len())
	if err := d.space.Text().ReadMemory(r.Start, now); err != nil {
		return err
	}
	d.text.Overlay(r.Start, now)
	if err := d.text.Original(r.Start, own); err != nil {
		return err
	}
	if st.patch() != nil && st.patch().Shared() || !bytes.Equal(now, own) {
		return errBeside
	}
	return nil
}
