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
