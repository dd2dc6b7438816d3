package procfs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
)

// pageSize is the length of a page that pagemap has an entry for.
const pageSize = 4096

// Bits of a page's entry.
const (
	pageUsed   = 3 << 62 // present, or swapped out
	pageOfFile = 1 << 61
)

// entryLen is the length of an entry in bytes.
const entryLen = 8

// pages goes through the entries of /proc/PID/pagemap (Documentation/admin-guide/mm/pagemap.rst), which a kernel may lack, for a page-aligned
// range, until each says no. Reading it needs the right to read the process.
func pages(f *os.File, r arch.Range, each func(at arch.Addr, entry uint64) bool) error {
	b := make([]byte, min(64<<10, r.Len()/pageSize*entryLen))
	for at := r.Start; at < r.End; {
		n := min(uint64(len(b)), uint64(r.End-at)/pageSize*entryLen)
		if _, err := f.ReadAt(b[:n], int64(at/pageSize*entryLen)); err != nil {
			return err
		}
		for e := b[:n]; len(e) > 0; e = e[entryLen:] {
			if !each(at, binary.LittleEndian.Uint64(e)) {
				return nil
			}
			at += pageSize
		}
	}
	return nil
}

// Untouched tells of page-aligned anonymous memory of a process that no page of it is there: none was ever read or
// written, or each was given back since. Each GiB takes 2 MiB to be read. f is the process's pagemap.
func Untouched(f *os.File, r arch.Range) (bool, error) {
	free := true
	err := pages(f, r, func(_ arch.Addr, e uint64) bool {
		free = e&pageUsed == 0
		return free
	})
	return free && err == nil, err
}

// mostPages bounds the address space, in bytes, that is examined page by page where the
// kernel can't list the present pages.
const mostPages = 16 << 30

// Copied returns the parts of r that the process has private copies of. r is a
// page-aligned range in a private mapping of a file; the process itself, a debugger or
// the kernel has written there. The parts have about most bytes at most: later ones are
// left out. The error matches ErrTooMuch if the range is too long to be looked at.
func Copied(pid int, r arch.Range, most uint64) (copies []arch.Range, err error) {
	f, err := open(pid, "pagemap")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	left := int64(most)
	add := func(part arch.Range) bool {
		if n := len(copies); n > 0 && copies[n-1].End == part.Start {
			copies[n-1].End = part.End
		} else {
			copies = append(copies, part)
		}
		left -= int64(part.Len())
		return left > 0
	}
	if err := scanPages(f, r, add); err == nil {
		return copies, nil
	}
	if copies, left = nil, int64(most); r.Len() > mostPages {
		return nil, fmt.Errorf("pages of %d GiB: %w", r.Len()>>30, ErrTooMuch)
	}
	err = pages(f, r, func(at arch.Addr, e uint64) bool {
		return e&pageUsed == 0 || e&pageOfFile != 0 || add(arch.Range{Start: at, End: at + pageSize})
	})
	return copies, err
}

// pageScan is struct pm_scan_arg of include/uapi/linux/fs.h, since Linux 6.7.
type pageScan struct {
	size, flags, start, end, walked  uint64
	found, room                      uint64 // struct page_region: where they are to be written, how many there is room for
	most                             uint64
	inverted, mask, anyOf, returning uint64
}

type pageRegion struct {
	start, end uint64
	_          uint64 // categories
}

const (
	scanPagemap = 0xc0606610 // PAGEMAP_SCAN, _IOWR('f', 16, struct pm_scan_arg)
	pageIsFile  = 1 << 2
	pageIsThere = 1<<3 | 1<<4 // PAGE_IS_PRESENT, PAGE_IS_SWAPPED
)

// scanPages asks the kernel for the pages that are present and not a file's. It passes
// over page tables that are not there, so it takes what is there, not what is mapped.
func scanPages(f *os.File, r arch.Range, each func(arch.Range) bool) error {
	found := new([512]pageRegion)
	var pin runtime.Pinner
	pin.Pin(found)
	defer pin.Unpin()
	for r.Start < r.End {
		s := pageScan{
			start: uint64(r.Start), end: uint64(r.End), found: uint64(uintptr(unsafe.Pointer(found))), room: uint64(len(found)),
			inverted: pageIsFile, mask: pageIsFile, anyOf: pageIsThere, returning: pageIsThere,
		}
		s.size = uint64(unsafe.Sizeof(s))
		n, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), scanPagemap, uintptr(unsafe.Pointer(&s)))
		if errno != 0 {
			return errno
		}
		if s.walked <= uint64(r.Start) || int(n) > len(found) {
			return errors.New("the kernel does not go on")
		}
		for _, p := range found[:n] {
			if !each(arch.Range{Start: arch.Addr(p.start), End: arch.Addr(p.end)}) {
				return nil
			}
		}
		r.Start = arch.Addr(s.walked)
	}
	return nil
}
