package kprobes

import (
	"bytes"
	"cmp"
	"maps"
	"slices"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/patch"
)

// A page of code with a patch is a private copy of the file's. A forked child that is to have the original code need not have it written: it can drop the
// copy (MADV_DONTNEED), and its next access finds the file's page. That is one system call of the child's for hundreds of pages, each of which would be read,
// copied by the kernel for the write, written, and read again.
//
// It is done for pages that equal the file's but for our patches, as they are in the child. So what the program or others have put into a page stays: it
// is restored byte by byte, as are pages of memory that has no file. The child stands in its fork meanwhile and has one thread, so nobody writes there but
// the kernel, for a uprobe (see patch.RestoreCopy). Who kills us before the call is made leaves everything there and the guard; the call itself ends in any case.

// Limits of what is dropped: pages that are worth a system call of the child's, and unpatched ones between two patched, which are looked at with them.
const (
	fewPages = 16
	gapPages = 8
	mostRun  = 256      // pages that are read at once
	mostKept = 16 << 20 // bytes of text that are kept from one child to the next
)

// pastInsn is an instruction of pastCode. jump is nil if none ever stood there.
type pastInsn struct {
	at       arch.Addr
	original []byte
	jump     *pastJump
}

func (i *pastInsn) end() arch.Addr {
	n := len(i.original)
	if i.jump != nil {
		n = max(n, len(i.jump.original))
	}
	return i.at + arch.Addr(n)
}

// pageRun is pages that are read at once, and have whole instructions of pastCode.
type pageRun struct {
	arch.Range
	insns   []pastInsn // in order of address
	keeps   bool       // what is found, as last, for the next child; and whole
	last    *found
	whole   []byte // the parent's text there, when heirs.changes was wholeAt
	wholeAt uint64
}

// byRuns is all of p, with the jumps that stood there.
func (p *pastCode) byRuns(jumps map[arch.Addr]*pastJump) []pageRun {
	if p.runs != nil {
		return p.runs
	}
	all := pageRun{insns: make([]pastInsn, 0, len(p.insns))}
	for _, at := range slices.Sorted(maps.Keys(p.insns)) {
		all.insns = append(all.insns, pastInsn{at, p.insns[at], jumps[at]})
	}
	gap := arch.Addr(gapPages * codePage)
	if len(all.byPage()) < fewPages {
		gap = 0
	}
	first := 0
	for i, insn := range all.insns {
		start, end := insn.at&^(codePage-1), (insn.end()+codePage-1)&^(codePage-1)
		n := len(p.runs) - 1
		if n >= 0 && (start < p.runs[n].End || start <= p.runs[n].End+gap && start-p.runs[n].Start < mostRun*codePage) {
			p.runs[n].End = max(p.runs[n].End, end)
		} else {
			p.runs, n, first = append(p.runs, pageRun{Range: arch.Range{Start: start, End: end}}), n+1, i
		}
		p.runs[n].insns = all.insns[first : i+1]
	}
	kept := uint64(0)
	for i := range p.runs {
		kept += 2 * p.runs[i].Len()
		p.runs[i].keeps = kept <= mostKept
	}
	return p.runs
}

// byPage is the single pages of r in which instructions begin.
func (r *pageRun) byPage() (pages []pageRun) {
	for first, i := 0, 1; i <= len(r.insns); i++ {
		page := r.insns[first].at &^ (codePage - 1)
		if i == len(r.insns) || r.insns[i].at&^(codePage-1) != page {
			pages = append(pages, pageRun{Range: arch.Range{Start: page, End: page + codePage}, insns: r.insns[first:i]})
			first = i
		}
	}
	return pages
}

// takeOut makes clean, and notes the pages in which something does not stand, or not as a whole.
func (f *found) takeOut(run *pageRun, text []byte, judge patch.Judge) {
	f.clean, f.unlike = bytes.Clone(text), make([]bool, run.Len()/codePage)
	for _, list := range [][]patch.Entry{f.entries, f.tails} {
		for i, e := range list {
			end := e.At + arch.Addr(len(e.Original))
			if end <= run.End && judge.Undo(list[i:i+1], run.Start, f.clean) {
				continue
			}
			for page := e.At &^ (codePage - 1); page < min(end, run.End); page += codePage {
				f.unlike[(page-run.Start)/codePage] = true
			}
		}
	}
}

// likeTheFile adds, to what can be dropped, the pages of run that equal the file when entries are taken out of them.
func (c *copies) likeTheFile(run *pageRun, f *found) {
	if c.maps == nil {
		c.maps, _ = c.space.Maps()
	}
	for i := range c.maps {
		m := &c.maps[i]
		part := arch.Range{Start: max(run.Start, m.Range.Start), End: min(run.End, m.Range.End)}
		if part.Start >= part.End || !m.Exec || m.Write || m.Shared || m.Anonymous() {
			continue
		}
		skip := int(part.Start - run.Start)
		c.compare(m, part, f.clean[skip:][:part.Len()], f.unlike[skip/codePage:])
	}
}

// compare adds the pages of part, a part of m, that have the text which the file has there.
func (c *copies) compare(m *procfs.Mapping, part arch.Range, text []byte, unlike []bool) {
	f := c.d.neighbours.mappedFile(m)
	if f == nil {
		return
	}
	file := slices.Grow(c.d.session.forkedPages[:0], len(text))[:len(text)]
	c.d.session.forkedPages = file
	got, _ := f.ReadAt(file, int64(m.Offset)+int64(part.Start-m.Range.Start))
	for off := 0; off+codePage <= got; off += codePage {
		if unlike[off/codePage] || !bytes.Equal(text[off:off+codePage], file[off:off+codePage]) {
			continue
		}
		page := part.Start + arch.Addr(off)
		if n := len(c.drop); n > 0 && c.drop[n-1].End == page {
			c.drop[n-1].End += codePage
		} else {
			c.drop = append(c.drop, arch.Range{Start: page, End: page + codePage})
		}
	}
}

// afterDrop makes the child drop pages that have nothing of others but what the file has, and answers what there is to restore still.
func (c *copies) afterDrop() []patch.Entry {
	drop := slices.DeleteFunc(c.drop, func(r arch.Range) bool { return r.Len() < fewPages*codePage })
	if len(drop) == 0 || c.space.Drop(drop...) != nil {
		return c.besides(nil)
	}
	return c.besides(drop)
}

// besides is all that was found, but for what lies in dropped, in order of address.
func (c *copies) besides(dropped []arch.Range) (entries []patch.Entry) {
	gone := func(at arch.Addr) bool {
		i, _ := slices.BinarySearchFunc(dropped, at, func(r arch.Range, at arch.Addr) int { return cmp.Compare(r.End, at+1) })
		return i < len(dropped) && dropped[i].Contains(at)
	}
	add := func(list []patch.Entry) {
		for _, e := range list {
			if !gone(e.At) || !gone(e.At+arch.Addr(len(e.Original))-1) {
				entries = append(entries, e)
			}
		}
	}
	for _, f := range c.found {
		add(f.entries)
	}
	for _, f := range c.found {
		add(f.tails)
	}
	return entries
}
