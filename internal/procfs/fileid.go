package procfs

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
)

// FileID is what /proc/PID/maps tells of a file: the same in all processes that map it, by whatever name, so nobody has to look
// at a name that a target has chosen. On some file systems stat(2) has other numbers.
type FileID struct {
	Dev   string // as in Mapping
	Inode uint64
}

// File tells which file is mapped; that of an anonymous mapping has no inode.
func (m Mapping) File() FileID { return FileID{m.Dev, m.Inode} }

// IdentifyFile maps a part of a file into this process, for a moment, to see what it is.
func IdentifyFile(f *os.File) (FileID, error) {
	page, err := unix.Mmap(int(f.Fd()), 0, 1, unix.PROT_READ, unix.MAP_PRIVATE)
	if err != nil {
		return FileID{}, fmt.Errorf("it can't be mapped: %w", err)
	}
	defer func() { _ = unix.Munmap(page) }()
	at := arch.Addr(uintptr(unsafe.Pointer(&page[0])))
	all, err := Maps(os.Getpid())
	for _, m := range all {
		if m.Range.Contains(at) {
			return m.File(), nil
		}
	}
	return FileID{}, errors.Join(err, errors.New("it is not listed among our own mappings"))
}
