package ptrace

import (
	"encoding/binary"
	"errors"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/procfs"
)

// A page that is not there may never come: of a file whose file system (FUSE, NFS) does not answer, or of memory that userfaultfd(2) is to provide
// and nobody does. Who touches it waits in the kernel, and no signal but SIGKILL, or not even that, ends the wait. So an access is looked at first:
//
//	memory without a file   /proc/PID/mem: it waits for nobody, since its caller can't let go of mmap_lock (get_user_pages_remote without
//	                        FOLL_UNLOCKABLE, mm/gup.c); for a page of userfaultfd it says EIO at once. process_vm_readv(2) would wait
//	a page of a file on a   process_vm_readv: the disk is all that it waits for. Only root mounts a disk
//	disk (device number)
//	a page of another file  is there if pagemap says so: it is read or copied at once. Else a goroutine that nobody has to wait for reads it, by
//	                        process_vm_readv, which waits without mmap_lock: the program's own mmap(2) goes on. See patience.go
//
// /proc/PID/mem ignores protections, so these are asked as well. One ioctl
// (PROCMAP_QUERY, since Linux 6.11) tells both. With its cost, this is still faster
// than reading by process_vm_readv. On older kernels one would have to read all
// mappings. There all memory is taken for a file's, and process_vm_readv checks the
// protections. The answer may be outdated when the access is made, as for an access of
// the target itself. Only a target that wants to hold us gains by that (SECURITY.md).

// files is what /proc has of one address space, open. Its files are those of one memory: they read nothing of a program that is executed later.
type files struct{ maps, mem, pagemap *os.File }

// openFiles opens the files of the memory that thread or process id has, as far as it
// can.
func openFiles(id, flag int) (w files, err error) {
	dir := "/proc/" + strconv.Itoa(id) + "/"
	var errs [3]error
	w.maps, errs[0] = procfs.Open(dir+"maps", os.O_RDONLY)
	w.mem, errs[1] = procfs.Open(dir+"mem", flag)
	w.pagemap, errs[2] = procfs.Open(dir+"pagemap", os.O_RDONLY)
	if errors.Is(errs[2], os.ErrNotExist) {
		errs[2] = nil // a kernel without it (CONFIG_PROC_PAGE_MONITOR)
	}
	return w, errors.Join(errs[:]...)
}

func (w *files) close() {
	for _, f := range [...]*os.File{w.maps, w.mem, w.pagemap} {
		if f != nil {
			_ = f.Close()
		}
	}
	*w = files{}
}

// ground is what an access meets.
type ground struct {
	mapped  bool // everywhere; nothing else is told if not
	allowed bool // by the protections
	file    bool // there are pages of a file in it, which is not shared memory of the kernel's own
	shared  bool // writes to it go to that file, which is on no disk
	absent  bool // not all pages of a file are there
	unasked bool // allowed and file are guesses: process_vm_readv(2) knows about the protections
	where   source
}

// source tells who provides a mapping's pages. The zero value is memory without a file.
type source struct {
	dev   uint64 // as unix.Mkdev
	inode uint64
}

// region is what one mapping says of an access.
type region struct {
	start, end          arch.Addr
	read, write, shared bool
	source              source
}

// look tells what an access to n bytes at at meets. It touches nothing. Where the kernel can't be asked for one mapping maps reads all; if it is nil,
// since that takes long, only pagemap is asked. known is a region that needs not be asked for, if there is one, and then the one that was. Not safe for
// concurrent use with close.
func (w *files) look(at arch.Addr, n int, write bool, known *region, maps func() ([]procfs.Mapping, error)) (ground, error) {
	g := ground{mapped: true, allowed: true}
	end := at + arch.Addr(n)
	for end >= at {
		r, err := *known, error(nil)
		if at < r.start || at >= r.end {
			r, err = w.region(at, maps)
			*known = r
		}
		switch {
		case errors.Is(err, errors.ErrUnsupported):
			return ground{mapped: true, allowed: true, file: true, unasked: true, absent: !w.present(at, end)}, nil
		case err != nil:
			return ground{}, err
		}
		stop := min(end, r.end)
		if write && !r.write || !write && !r.read {
			g.allowed = false
		}
		if r.source != (source{}) && r.source.dev != sharedMemory() {
			g.file = true
			onDisk := unix.Major(r.source.dev) != 0
			g.shared = g.shared || r.shared && !onDisk
			if !onDisk && !g.absent && !w.present(at, stop) {
				g.absent, g.where = true, r.source
			}
		}
		if at = stop; at == end {
			return g, nil
		}
	}
	return ground{}, unix.EFAULT
}

// sharedMemory is the device that the kernel has for memfds, System V's shared memory, and anonymous memory that is shared: their pages come from nowhere
// else, but for userfaultfd's. 0 if it can't be known.
var sharedMemory = sync.OnceValue(func() uint64 {
	var st unix.Stat_t
	fd, err := unix.MemfdCreate("gokprobe", unix.MFD_CLOEXEC)
	if err != nil {
		return 0
	}
	defer unix.Close(fd)
	if unix.Fstat(fd, &st) != nil {
		return 0
	}
	return st.Dev
})

// noQuery: the kernel does not know PROCMAP_QUERY.
var noQuery atomic.Bool

// region asks for the mapping that at lies in. The error is EFAULT if there is none, ErrUnsupported if nobody can be asked.
func (w *files) region(at arch.Addr, maps func() ([]procfs.Mapping, error)) (region, error) {
	if !noQuery.Load() && w.maps != nil {
		a, errno := procfs.AreaAt(w.maps, at)
		switch errno {
		case 0:
			return region{start: a.Start, end: a.End, read: a.Read, write: a.Write, shared: a.Shared, source: source{a.Dev, a.Inode}}, nil
		case unix.ENOTTY:
			noQuery.Store(true)
		case unix.ESRCH: // the memory has gone, or its files were opened before an exec
			return region{}, ErrExited
		default:
			return region{}, unix.EFAULT
		}
	}
	if maps == nil {
		return region{}, errors.ErrUnsupported
	}
	all, err := maps()
	if err != nil {
		return region{}, err
	}
	for _, m := range all {
		if m.Range.Contains(at) {
			return region{start: m.Range.Start, end: m.Range.End, read: m.Read, write: m.Write, shared: m.Shared, source: source{device(m.Dev), m.Inode}}, nil
		}
	}
	return region{}, unix.EFAULT
}

// vacant tells that nothing is mapped in r, as far as the kernel can be asked. It is for the tracer's thread.
func (w *files) vacant(r arch.Range) bool {
	return r.Start == r.End || r.Start < r.End && w.maps != nil && procfs.Vacant(w.maps, r)
}

// device is a device as /proc/PID/maps writes it, major:minor in hexadecimal.
func device(s string) uint64 {
	major, minor, _ := strings.Cut(s, ":")
	a, _ := strconv.ParseUint(major, 16, 32)
	b, _ := strconv.ParseUint(minor, 16, 32)
	return unix.Mkdev(uint32(a), uint32(b))
}

// present tells whether the pages from at to end are in the page table: then an access waits for nobody.
func (w *files) present(at, end arch.Addr) bool {
	const (
		entry  = 8
		inRAM  = 1 << 63 // Documentation/admin-guide/mm/pagemap.rst
		atOnce = 64
	)
	if w.pagemap == nil || end < at {
		return false
	}
	var b [atOnce * entry]byte
	for page := at / pageSize; page <= (end-1)/pageSize; {
		part := b[:min(atOnce, uint64((end-1)/pageSize-page+1))*entry]
		if n, err := unix.Pread(int(w.pagemap.Fd()), part, int64(page*entry)); err != nil || n != len(part) {
			return false
		}
		for ; len(part) > 0; part = part[entry:] {
			if binary.LittleEndian.Uint64(part)&inRAM == 0 {
				return false
			}
			page++
		}
	}
	return true
}

// readMem reads through /proc/PID/mem, which ignores protections. It is safe for
// concurrent use with a Close of f.
func readMem(f *os.File, at arch.Addr, p []byte) error {
	if f == nil {
		return unix.EBADF
	}
	_, err := f.ReadAt(p, int64(at))
	return plain(err)
}

// writeMem writes so.
func writeMem(f *os.File, at arch.Addr, p []byte) error {
	if f == nil {
		return unix.EBADF
	}
	_, err := f.WriteAt(p, int64(at))
	return plain(err)
}

// accessMem is readMem or writeMem for the thread that alone closes f: it takes a tenth less.
func accessMem(f *os.File, at arch.Addr, p []byte, write bool) error {
	if f == nil {
		return unix.EBADF
	}
	for len(p) > 0 {
		n, err := 0, error(nil)
		if write {
			n, err = unix.Pwrite(int(f.Fd()), p, int64(at))
		} else {
			n, err = unix.Pread(int(f.Fd()), p, int64(at))
		}
		switch {
		case err != nil:
			return err
		case n == 0:
			return unix.EFAULT
		}
		at, p = at+arch.Addr(n), p[n:]
	}
	return nil
}

// plain is the kernel's error, without the name of a file.
func plain(err error) error {
	var e *os.PathError
	switch {
	case errors.Is(err, io.EOF):
		return unix.EFAULT
	case errors.As(err, &e):
		return e.Err
	}
	return err
}

func parseMaps(f *os.File) ([]procfs.Mapping, error) {
	if f == nil {
		return nil, unix.EBADF
	}
	return procfs.ReadMaps(f)
}

// waitingRead is the way of a read that may wait, and must be on a goroutine of its own. process_vm_readv(2) is preferred, since it waits without
// mmap_lock. forced reads what the protections forbid.
func waitingRead(id int, mem *os.File, at arch.Addr, p []byte, forced bool) error {
	err := processVM(id, at, p, false)
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) || forced && errors.Is(err, unix.EFAULT) {
		return readMem(mem, at, p)
	}
	return err
}
