package kprobes

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/ptrace"
)

// # Where others are, no jumps stand
//
// A breakpoint of ours bears all that a uprobe does: each state of that byte is either of us, whole. A jump is five bytes that mean one thing. What a
// uprobe does to it, byte by byte (S is its first byte, H a head inside, O the file's byte, d ours):
//
//	uprobe at S comes       cc d d d d     the kernel executes the site's instruction, the next head traps or is kept: right
//	          and goes      O  d d d d     right where O is an instruction, or a prefix in front of a breakpoint; else a mixture
//	uprobe at H comes       e9 .. cc ..    nothing changes if d is cc; else the jump leads elsewhere
//	          and goes      e9 .. O  ..    the jump leads elsewhere
//	while we write it       all five bytes at once: the kernel writes with the address space's lock held for writing, we with it
//	                        held for reading. So it comes before, and is seen, or afterwards, as above.
//	while we take it back   the same. Its owner's breakpoint stays, and its place is the program's code else.
//
// Nobody can keep a uprobe from coming. But they do not come alone: who has one in a
// file comes back to it. So once a breakpoint of others was seen anywhere in a mapped
// file, none of its sites has a jump until the session ends. Every file is looked at
// before it gets jumps, and now and then while it has some. One case is left: the first
// that comes stands right on a jump, until we notice. The jumps that threads' signal
// masks need (guard_masksites.go) are not probes: they lie in front of system calls in
// the middle of functions, and stay until somebody comes to one of them.

// besetInterval is how often files with jumps are looked at, unless that takes more than besideShare of the time.
const besetInterval = 50 * time.Millisecond

// besetRefusal is why sites of such a file have breakpoints.
const besetRefusal = "a kernel uprobe or another debugger's breakpoint was seen in the same file"

// fileID names a mapped file.
func fileID(m *procfs.Mapping) string { return fmt.Sprint(m.Dev, m.Inode) }

// besetSite tells whether others have breakpoints in the file that st lies in, or have had since the session began.
func (nb *neighbours) besetSite(st *site) bool {
	m, err := nb.d.look.surveyed().Mapping(st.addr)
	return err == nil && m != nil && nb.besetFile(m)
}

// besetFile looks at each mapping once in a look.
func (nb *neighbours) besetFile(m *procfs.Mapping) bool {
	if m.Anonymous() {
		return false
	}
	if len(nb.d.neighbours.beset) > 0 && nb.d.neighbours.beset[fileID(m)] {
		return true
	}
	return nb.d.look.once(keyOf(m), func() bool {
		found := nb.foreignIn(m)
		if found {
			nb.besiege(m)
		}
		return found
	})
}

// besiege notes that others are in a file.
func (nb *neighbours) besiege(m *procfs.Mapping) {
	id := fileID(m)
	if m.Anonymous() || nb.d.neighbours.beset[id] {
		return
	}
	if nb.d.session.settled(); nb.d.neighbours.beset == nil {
		nb.d.neighbours.beset = map[string]bool{}
	}
	nb.d.neighbours.beset[id] = true
	if !nb.d.session.opts.NoOptimize && !nb.d.ending() && !nb.d.session.dying() {
		nb.d.session.warn("others write into the code of %s (kernel uprobes, a debugger, or the target itself): probes there have breakpoints, not jumps, from now on", m.Path)
	}
}

// besiegeAt is besiege of the file that is mapped at at.
func (nb *neighbours) besiegeAt(at arch.Addr) {
	defer nb.d.look.joined()()
	if m, err := nb.d.look.surveyed().Mapping(at); err == nil && m != nil {
		nb.besiege(m)
	}
}

// foreignIn looks for breakpoints that are neither ours nor the file's, in the pages of m that the process has copies of.
func (nb *neighbours) foreignIn(m *procfs.Mapping) bool {
	trap := host.Arch.Breakpoint()
	f := nb.mappedFile(m)
	tid, err := nb.d.space.TID()
	if err != nil || f == nil || len(trap) != 1 {
		return false
	}
	copies, err := procfs.Copied(tid, m.Range, mostCopies)
	if err != nil {
		return errors.Is(err, procfs.ErrTooMuch)
	}
	total := uint64(0)
	for _, r := range copies {
		total += r.Len()
	}
	if total >= mostCopies {
		return true
	}
	const most = 64 << 10 // bytes at a time
	if nb.scratch == nil {
		nb.scratch = make([]byte, 2*most)
	}
	now, file := nb.scratch[:most], nb.scratch[most:]
	for _, r := range copies {
		for at := r.Start; at < r.End; at += most {
			n := min(uint64(r.End-at), most)
			got, _ := f.ReadAt(file[:n], int64(m.Offset)+int64(at-m.Range.Start))
			if nb.d.space.Text().ReadMemory(at, now[:n]) != nil {
				continue
			}
			if nb.d.text.Overlay(at, now[:n]); holds(now[:got], file[:got], trap[0]) {
				return true
			}
		}
	}
	return false
}

// mostCopies is how many bytes of code are compared with a file. Who has written into more is taken for others, too.
const mostCopies = 64 << 20

// holds tells whether there is a breakpoint in code where the file has none. Code that
// the target or its linker wrote over as a whole is other code: there a breakpoint may
// be a part of it.
func holds(code, file []byte, trap byte) bool {
	for i := 0; i < len(code); {
		n := bytes.IndexByte(code[i:], trap)
		if n < 0 {
			return false
		}
		if i += n; file[i] != trap {
			return true
		}
		i++
	}
	return false
}

// lookForOthers looks at the files that have jumps, if it is time to, and takes the jumps of those back where others are.
func (nb *neighbours) lookForOthers() {
	began := time.Now()
	if began.Before(nb.d.neighbours.lookFrom) {
		return
	}
	end := nb.d.look.anew()
	nb.takeBackBeset()
	end()
	nb.d.neighbours.lookFrom = began.Add(max(besetInterval, besideShare*time.Since(began)))
}

// besetBy bans jumps in the files that sites lie in, since others were seen there.
func (nb *neighbours) besetBy(sites []*site) {
	for _, st := range sites {
		nb.besiegeAt(st.addr)
	}
	if len(sites) > 0 {
		nb.takeBackBeset()
	}
}

// takeBackBeset has sites with jumps in files where others are have breakpoints again.
func (nb *neighbours) takeBackBeset() {
	var jumps []*site
	var m *procfs.Mapping // of the last one: most lie in one file
	for _, st := range nb.d.sites {
		if st.jump() == nil || st.bare() {
			continue
		}
		if m == nil || !m.Range.Contains(st.addr) {
			m, _ = nb.d.look.surveyed().Mapping(st.addr)
		}
		if m != nil && nb.besetFile(m) {
			jumps = append(jumps, st)
		}
	}
	for batch := range slices.Chunk(jumps, batchSize) {
		nb.d.session.settled()
		for _, st := range batch {
			st.jump().beset = true
		}
		if err := nb.d.unlessEnding(nb.d.optimizer.unoptimizeNow(batch)); err != nil && !nb.d.session.dying() {
			nb.d.session.warn("%v", err)
		}
	}
}

// strayAt is the detour from whose jump, which somebody has changed, a stopped thread has been led to where it has trapped or faulted; nil if
// none is known.
func (nb *neighbours) strayAt(th *ptrace.Thread, regs arch.Regs) *detour {
	switch ip := regs.IP(); th.Stop().Reason {
	case ptrace.Breakpoint:
		return nb.d.neighbours.strays[regs.Trapped()]
	case ptrace.Signal:
		info, err := th.Siginfo()
		if err == nil && info.Synchronous() && info.Signo() == unix.SIGSEGV && info.Addr() == ip {
			return nb.d.neighbours.strays[ip]
		}
	}
	return nil
}

// moveOutOfStray takes such a thread to its site.
func (nb *neighbours) moveOutOfStray(th *ptrace.Thread, det *detour, regs arch.Regs) {
	if th.Stop().Reason == ptrace.Signal {
		th.Go(ptrace.DropSignal())
	}
	regs.SetIP(det.site.addr)
	th.Go(ptrace.RunOn())
}

// codeAt returns where code of the program's ends that has at and can be executed, as far as the maps tell; 0 if there is none.
func (nb *neighbours) codeAt(at arch.Addr) (end arch.Addr) {
	switch m, err := nb.d.look.surveyed().Mapping(at); {
	case err != nil: // there may be some everywhere
		return ^arch.Addr(0)
	case m != nil && m.Exec:
		return m.Range.End
	}
	return 0
}
