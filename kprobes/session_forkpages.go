package kprobes

import (
	"bytes"
	"maps"
	"slices"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/patch"
	"github.com/gokprobe/gokprobe/ptrace"
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
	mostRun  = 256 // pages that are compared at once
)

// dropCopies has the child drop pages that have nothing but entries in them, and answers what there is to restore still.
func (d *domain) dropCopies(child *ptrace.Process, entries []patch.Entry) []patch.Entry {
	byPage := map[arch.Addr][]patch.Entry{}
	for _, e := range entries {
		for page := e.At &^ (codePage - 1); page < e.At+arch.Addr(len(e.Original)); page += codePage {
			byPage[page] = append(byPage[page], e)
		}
	}
	if len(byPage) < fewPages {
		return entries
	}
	mappings, err := child.Space.Maps()
	if err != nil {
		return entries
	}
	var drop []arch.Range
	dropped := map[arch.Addr]bool{}
	for _, run := range runsOf(byPage, mappings) {
		for _, r := range d.likeTheFile(child, run, byPage) {
			if r.Len() < fewPages*codePage {
				continue
			}
			drop = append(drop, r)
			for page := r.Start; page < r.End; page += codePage {
				dropped[page] = true
			}
		}
	}
	if len(drop) == 0 || child.Space.Drop(drop...) != nil {
		return entries
	}
	return slices.DeleteFunc(entries, func(e patch.Entry) bool {
		return dropped[e.At&^(codePage-1)] && dropped[(e.At+arch.Addr(len(e.Original))-1)&^(codePage-1)]
	})
}

// pageRun is pages of one mapping, most of which have patches.
type pageRun struct {
	arch.Range
	m *procfs.Mapping
}

// runsOf finds the pages that lie together in private mappings of a file's code.
func runsOf(byPage map[arch.Addr][]patch.Entry, mappings []procfs.Mapping) (runs []pageRun) {
	for _, page := range slices.Sorted(maps.Keys(byPage)) {
		if n := len(runs); n > 0 && runs[n-1].m.Range.Contains(page) && page-runs[n-1].End <= gapPages*codePage && page-runs[n-1].Start < mostRun*codePage {
			runs[n-1].End = page + codePage
			continue
		}
		i := slices.IndexFunc(mappings, func(m procfs.Mapping) bool { return m.Range.Contains(page) })
		if i < 0 {
			continue
		}
		if m := &mappings[i]; m.Exec && !m.Write && !m.Shared && !m.Anonymous() {
			runs = append(runs, pageRun{arch.Range{Start: page, End: page + codePage}, m})
		}
	}
	return runs
}

// likeTheFile are the parts of run that equal the file when entries are taken out of them.
func (d *domain) likeTheFile(child *ptrace.Process, run pageRun, entries map[arch.Addr][]patch.Entry) (alike []arch.Range) {
	f, n := d.neighbours.mappedFile(run.m), int(run.Len())
	both := slices.Grow(d.session.forkedPages[:0], 2*n)[:2*n]
	d.session.forkedPages = both
	code, file := both[:n], both[n:]
	if f == nil || child.Space.Text().ReadMemory(run.Start, code) != nil {
		return nil
	}
	got, _ := f.ReadAt(file, int64(run.m.Offset)+int64(run.Start-run.m.Range.Start))
	for off := 0; off+codePage <= got; off += codePage {
		page := run.Start + arch.Addr(off)
		if !d.plain(run.Range, code, entries[page]) || !bytes.Equal(code[off:off+codePage], file[off:off+codePage]) {
			continue
		}
		if k := len(alike); k > 0 && alike[k-1].End == page {
			alike[k-1].End += codePage
		} else {
			alike = append(alike, arch.Range{Start: page, End: page + codePage})
		}
	}
	return alike
}

// plain takes entries out of code, which is r's. It is false if one of them does not stand there, or not as a whole.
func (d *domain) plain(r arch.Range, code []byte, entries []patch.Entry) bool {
	for _, e := range entries {
		if e.At < r.Start || e.At+arch.Addr(len(e.Original)) > r.End {
			return false
		}
	}
	return d.neighbours.judge().Undo(entries, r.Start, code)
}
