package procfs

import (
	"encoding/binary"
	"os"

	"github.com/gokprobe/gokprobe/arch"
)

// Untouched tells of page-aligned anonymous memory of a process that no page of it is there: none was ever read or
// written, or each was given back since. It reads /proc/PID/pagemap (Documentation/admin-guide/mm/pagemap.rst), which a
// kernel may lack, and needs the right to read the process.
func Untouched(pid int, r arch.Range) (bool, error) {
	const (
		page  = 4096
		entry = 8
		used  = 3 << 62 // present, or swapped out
	)
	f, err := os.Open(path(pid, 0, "pagemap"))
	if err != nil {
		return false, err
	}
	defer f.Close()
	b := make([]byte, r.Len()/page*entry)
	if _, err := f.ReadAt(b, int64(r.Start/page*entry)); err != nil {
		return false, err
	}
	for ; len(b) > 0; b = b[entry:] {
		if binary.LittleEndian.Uint64(b)&used != 0 {
			return false, nil
		}
	}
	return true, nil
}

// Copied is those parts of r, a page-aligned range in a private mapping of a file, of which a process has copies: somebody
// has written there, the process itself, a debugger or the kernel. It reads what Untouched reads.
func Copied(pid int, r arch.Range) (copies []arch.Range, err error) {
	const (
		page   = 4096
		entry  = 8
		used   = 3 << 62 // present, or swapped out
		ofFile = 1 << 61
	)
	f, err := os.Open(path(pid, 0, "pagemap"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b := make([]byte, r.Len()/page*entry)
	if _, err := f.ReadAt(b, int64(r.Start/page*entry)); err != nil {
		return nil, err
	}
	for at := r.Start; len(b) > 0; at, b = at+page, b[entry:] {
		e := binary.LittleEndian.Uint64(b)
		switch n := len(copies); {
		case e&used == 0 || e&ofFile != 0:
		case n > 0 && copies[n-1].End == at:
			copies[n-1].End += page
		default:
			copies = append(copies, arch.Range{Start: at, End: at + page})
		}
	}
	return copies, nil
}
