package kprobes

import (
	"bytes"
	"errors"
	"slices"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/patch"
	"github.com/gokprobe/gokprobe/ptrace"
)

// clean puts the original code into a forked child's copy of the memory. The child
// has only one thread, and a forking thread is inside a system call, not in a slot.
func (d *domain) clean(child *ptrace.Process) error {
	c := d.copied(child.Space)
	return errors.Join(c.unread, patch.RestoreCopy(newborn{child}, c.space.Text(), d.neighbours.judge(), c.afterDrop()))
}

// copies is what a forked child's memory has of ours.
type copies struct {
	d      *domain
	space  *ptrace.Space // the child's
	found  []*found
	unread error            // what can't be read is unmapped since; else this says so
	drop   []arch.Range     // pages that need not be written, see session_forkpages.go
	maps   []procfs.Mapping // the child's, once they were needed
}

// found is what is in one run of pages, in the order in which it is taken back: page by page, in each of
// them the jumps before the breakpoints, which may look like a part of one.
//
// We may be killed at any moment, and the child then runs on with what is left, and the guard. So the jumps go last that
// keep threads from blocking the signal by which the guard answers breakpoints (guard_masksites.go).
type found struct {
	entries []patch.Entry
	tails   []patch.Entry // go last
	shared  bool          // others' breakpoints were left out
	shares  uint64        // patch.Text.Shares then
	patched int           // pages
	text    []byte        // in which all this was found, if it is kept
	clean   []byte        // text without entries and tails, of many pages
	unlike  []bool        // the pages of it that could not be made so
}

func (d *domain) copied(space *ptrace.Space) *copies {
	c := &copies{d: d, space: space}
	runs := d.past.byRuns(d.optimizer.jumps)
	for i := range runs {
		c.look(&runs[i])
	}
	return c
}

// look reads the pages of run at once, or one by one if some can't be read. What they have is as a rule what the last child had.
func (c *copies) look(run *pageRun) {
	text := slices.Grow(c.d.session.forkedPages[:0], int(run.Len()))[:run.Len()]
	c.d.session.forkedPages = text
	switch err := c.space.Text().ReadMemory(run.Start, text); {
	case err == nil:
		f := run.last
		if f == nil || f.shared || f.shares != c.d.text.Shares() || !bytes.Equal(f.text, text) {
			f = c.find(run, text)
			run.last = f
		}
		c.found = append(c.found, f)
		if f.clean != nil {
			c.likeTheFile(run, f)
		}
	case run.Len() > codePage:
		for _, page := range run.byPage() {
			c.look(&page)
		}
	default:
		c.note(err)
	}
}

func (c *copies) note(err error) {
	if errors.Is(err, ptrace.ErrNoAnswer) {
		c.unread = err
	}
}

// find finds what text, which is run's, has of ours.
func (c *copies) find(run *pageRun, text []byte) *found {
	f := &found{shares: c.d.text.Shares()}
	var breakpoints []patch.Entry
	inTail := arch.Range{}
	for _, page := range run.byPage() {
		before := len(f.tails) + len(f.entries)
		breakpoints = breakpoints[:0]
		for i := range page.insns {
			insn := &page.insns[i]
			if e, ok := c.jump(insn, run, text); ok && c.d.unblocks(e.At) {
				f.tails = append(f.tails, e)
				inTail = arch.Range{Start: e.At, End: insn.end()}
			} else if ok {
				f.entries = append(f.entries, e)
			}
			e, ok := c.breakpoint(insn, run, text)
			if !ok {
				continue
			}
			switch p, _ := c.d.text.Find(e.At); {
			case p != nil && p.Shared():
				f.shared = true
			case inTail.Contains(e.At):
				f.tails = append(f.tails, e)
			default:
				breakpoints = append(breakpoints, e)
			}
		}
		f.entries = append(f.entries, breakpoints...)
		if len(f.tails)+len(f.entries) > before {
			f.patched++
		}
	}
	if f.patched >= fewPages {
		f.takeOut(run, text, c.d.neighbours.judge())
	}
	if run.keeps {
		f.text = bytes.Clone(text)
	}
	return f
}

// jump is the one at insn that the child has.
func (c *copies) jump(insn *pastInsn, run *pageRun, text []byte) (e patch.Entry, ok bool) {
	if insn.jump == nil {
		return e, false
	}
	r := insn.jump.standing(c.bytes(insn.at, len(insn.jump.original), run, text))
	return patch.Entry{At: insn.at, Original: insn.jump.original, Replacement: r}, r != nil
}

// breakpoint is the one at insn that the child has.
func (c *copies) breakpoint(insn *pastInsn, run *pageRun, text []byte) (e patch.Entry, ok bool) {
	trap := host.Arch.Breakpoint()
	n, now := len(trap), c.bytes(insn.at, len(insn.original), run, text)
	if now == nil || !bytes.Equal(now[:n], trap) || !bytes.Equal(now[n:], insn.original[n:]) {
		return e, false
	}
	return patch.Entry{At: insn.at, Original: insn.original[:n], Replacement: trap}, true
}

// bytes is the n bytes at at, in text, which is run's, or partly behind that. It is nil if they can't be read.
func (c *copies) bytes(at arch.Addr, n int, run *pageRun, text []byte) []byte {
	if off := int(at - run.Start); off+n <= len(text) {
		return text[off : off+n]
	}
	p := make([]byte, n)
	if err := c.space.Text().ReadMemory(at, p); err != nil {
		c.note(err)
		return nil
	}
	return p
}

// newborn is patch.Frozen for a forked child: it stands in its fork, and has run nothing yet.
type newborn struct{ *ptrace.Process }

func (n newborn) Holds() bool {
	threads := n.Threads()
	return len(threads) == 1 && threads[0].Stopped()
}

const codePage = 4096
