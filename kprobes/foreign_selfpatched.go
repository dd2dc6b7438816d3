package kprobes

import (
	"bytes"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/patch"
	"github.com/gokprobe/gokprobe/ptrace"
)

// Programs that write over their own code, or copy it, as hotpatchers, hooks and
// packers do. patch/judge.go tells which bytes of a patch they have written over. What
// they copy has our bytes in it: a breakpoint that nobody knows, or a jump that leads
// as far from the copy as ours does from the site. A thread that comes there traps, or
// faults where no code is. The copy then gets what stood at the site, byte for byte, as
// it would have without us.

// judge tells the program's code from ours.
func (nb *neighbours) judge() patch.Judge {
	return patch.Judge{Trap: host.Arch.Breakpoint(), Decode: host.Arch.Decode, Leads: nb.leads}
}

// leads tells whether a jump of the program's may lead to to: to code of its own, and there to the beginning of a function, where functions are known.
func (nb *neighbours) leads(to arch.Addr) bool {
	defer nb.d.look.joined()()
	m, err := nb.d.look.surveyed().Mapping(to)
	if err != nil || m == nil || !m.Exec || nb.d.region.Contains(to) {
		return false
	}
	const padding = 16 // between functions
	for k := range arch.Addr(padding) {
		if fn, known := nb.d.linker.symbols().Function(to - k); known {
			return fn.Start == to
		}
	}
	return true
}

// copied corrects a copy of our code that the target has made. If info is nil, a thread
// has trapped in it at at. Otherwise the copy has led the thread to at, where it
// faults.
func (nb *neighbours) copied(th *ptrace.Thread, at arch.Addr, regs arch.Regs, info *ptrace.Siginfo) bool {
	switch {
	case info == nil:
		return nb.copiedBreakpoint(at, regs)
	case info.Signo() == unix.SIGSEGV && (info.Addr() == at || nb.d.region.Contains(at)) && nb.copiedJump(at, regs):
		return true
	}
	return false
}

// copiedBreakpoint: code that is the same as a site's, behind the breakpoint, is a copy of it. At a place that was a site
// itself, that tells nothing: the program may have brought our breakpoint back, from a copy, or have other code there now,
// with a breakpoint of its own. There the file has to tell. Where there is none, as for code that is generated, the breakpoint is the program's.
func (nb *neighbours) copiedBreakpoint(at arch.Addr, regs arch.Regs) bool {
	const least = 16 // the bytes behind a breakpoint of the target's own look like many functions' beginnings
	code := make([]byte, least)
	trap := host.Arch.Breakpoint()
	if nb.d.space.Text().ReadMemory(at, code) != nil {
		return false
	}
	if code[0] != trap[0] {
		if nb.d.neighbours.mended[at] {
			regs.SetIP(at)
		}
		return nb.d.neighbours.mended[at]
	}
	if len(trap) != 1 || nb.d.neighbours.foreign[at] == string(code) || nb.fromFile(at, trap[0]) {
		return false
	}
	var found []byte
	for site, insn := range nb.d.past.insns {
		if !bytes.HasPrefix(code[1:], insn[1:]) || !nb.sameBehind(site, code) || site == at && !nb.inFile(at, insn[0], code[1:]) {
			continue
		}
		if found != nil && found[0] != insn[0] {
			return false // nobody can tell
		}
		found = insn
	}
	if found == nil {
		nb.noteForeign(at, code)
		return false
	}
	if nb.d.space.Text().WriteMemory(at, found[:1]) != nil {
		return false
	}
	nb.tellCopied(at)
	regs.SetIP(at)
	return true
}

// noteForeign remembers code behind a breakpoint that is no copy: a program that uses breakpoints comes to them again and again.
func (nb *neighbours) noteForeign(at arch.Addr, code []byte) {
	const most = 4096
	if len(nb.d.neighbours.foreign) >= most || nb.d.neighbours.foreign == nil {
		nb.d.neighbours.foreign = map[arch.Addr]string{}
	}
	nb.d.neighbours.foreign[at] = string(code)
}

// sameBehind reports whether code, its first byte aside, equals the target's code at
// site, or the bytes in memory there.
func (nb *neighbours) sameBehind(site arch.Addr, code []byte) bool {
	now, own := make([]byte, len(code)), make([]byte, len(code))
	if nb.d.space.Text().ReadMemory(site, now) != nil || nb.d.text.Original(site, own) != nil {
		return false
	}
	for i := 1; i < len(code); i++ {
		if code[i] != now[i] && code[i] != own[i] {
			return false
		}
	}
	return true
}

// fromFile tells whether the byte at at is b in the file that is mapped there.
func (nb *neighbours) fromFile(at arch.Addr, b byte) bool {
	defer nb.d.look.joined()()
	m, err := nb.d.look.surveyed().Mapping(at)
	if err != nil || m == nil || nb.d.region.Contains(at) {
		return true
	}
	f, one := nb.mappedFile(m), make([]byte, 1)
	if f == nil {
		return !m.Anonymous() && !m.Write
	}
	_, err = f.ReadAt(one, int64(m.Offset)+int64(at-m.Range.Start))
	return err != nil || one[0] == b
}

// inFile reports whether the target's code at at is that of a file, and begins there with one and then behind.
func (nb *neighbours) inFile(at arch.Addr, one byte, behind []byte) bool {
	defer nb.d.look.joined()()
	m, err := nb.d.look.surveyed().Mapping(at)
	if err != nil || m == nil {
		return false
	}
	f, code := nb.mappedFile(m), make([]byte, 1+len(behind))
	if f == nil {
		return false
	}
	_, err = f.ReadAt(code, int64(m.Offset)+int64(at-m.Range.Start))
	return err == nil && code[0] == one && bytes.Equal(code[1:], behind)
}

// copiedJump: a jump of ours leads here from where it has been copied to.
func (nb *neighbours) copiedJump(at arch.Addr, regs arch.Regs) bool {
	for site, past := range nb.d.optimizer.jumps {
		for _, jump := range past.replacements {
			insn, err := host.Arch.Decode(jump, site)
			if err != nil || len(jump) != insn.Len() {
				continue
			}
			from := at - insn.Target + site
			now := make([]byte, len(jump))
			if from == site || nb.d.space.Text().ReadMemory(from, now) != nil || !bytes.Equal(now, jump) {
				continue
			}
			if nb.mend(from, past.original) {
				nb.tellCopied(from)
				regs.SetIP(from)
				return true
			}
		}
	}
	return false
}

// mend writes code while other threads may come there: behind a breakpoint, which they are taken back from.
func (nb *neighbours) mend(at arch.Addr, code []byte) bool {
	if nb.d.neighbours.mended == nil {
		nb.d.neighbours.mended = map[arch.Addr]bool{}
	}
	nb.d.neighbours.mended[at] = true
	trap, mem := host.Arch.Breakpoint(), nb.d.space.Text()
	n := len(trap)
	return mem.WriteMemory(at, trap) == nil && mem.WriteMemory(at.Add(int64(n)), code[n:]) == nil && mem.WriteMemory(at, code[:n]) == nil
}

func (nb *neighbours) tellCopied(at arch.Addr) {
	nb.d.session.beside.disturbances.Add(1)
	if !nb.d.session.beside.toldCopied {
		nb.d.session.warn("the target runs a copy, at %s, of code that has a probe: the copy was put right. Copies that are not run before we leave are not found", at)
	}
	nb.d.session.beside.toldCopied = true
}
