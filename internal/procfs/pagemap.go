package procfs

import (
	"encoding/binary"
	"os"
	"slices"

	"github.com/gokprobe/gokprobe/arch"
)

// pageSize is the length of a page that pagemap has an entry for.
const pageSize = 4096

// Bits of a page's entry.
const (
	pageUsed   = 3 << 62 // present, or swapped out
	pageOfFile = 1 << 61
)

// pages are the entries of /proc/PID/pagemap (Documentation/admin-guide/mm/pagemap.rst), which a kernel may lack, for a page-aligned range.
// Reading it needs the right to read the process.
func pages(pid int, r arch.Range) (entries []uint64, err error) {
	const entry = 8
	f, err := os.Open(path(pid, 0, "pagemap"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b := make([]byte, r.Len()/pageSize*entry)
	if _, err := f.ReadAt(b, int64(r.Start/pageSize*entry)); err != nil {
		return nil, err
	}
	for ; len(b) > 0; b = b[entry:] {
		entries = append(entries, binary.LittleEndian.Uint64(b))
	}
	return entries, nil
}

// Untouched tells of page-aligned anonymous memory of a process that no page of it is there: none was ever read or
// written, or each was given back since.
func Untouched(pid int, r arch.Range) (bool, error) {
	entries, err := pages(pid, r)
	if err != nil {
		return false, err
	}
	return !slices.ContainsFunc(entries, func(e uint64) bool { return e&pageUsed != 0 }), nil
}

// Copied is those parts of r, a page-aligned range in a private mapping of a file, of which a process has copies: somebody
// has written there, the process itself, a debugger or the kernel.
func Copied(pid int, r arch.Range) (copies []arch.Range, err error) {
	entries, err := pages(pid, r)
	if err != nil {
		return nil, err
	}
	for i, e := range entries {
		at := r.Start + arch.Addr(i*pageSize)
		switch n := len(copies); {
		case e&pageUsed == 0 || e&pageOfFile != 0:
		case n > 0 && copies[n-1].End == at:
			copies[n-1].End += pageSize
		default:
			copies = append(copies, arch.Range{Start: at, End: at + pageSize})
		}
	}
	return copies, nil
}
