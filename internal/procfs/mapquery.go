package procfs

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
)

// Since Linux 6.11 a mapping can be asked for, one at a time, by PROCMAP_QUERY (struct procmap_query in include/uapi/linux/fs.h). The
// text of /proc/PID/maps takes the kernel very long where paths are: it looks at each of their characters, for each mapping.
type mapQuery struct {
	size, flags, addr                uint64
	start, end, vmaFlags, page, offs uint64
	inode                            uint64
	major, minor                     uint32
	nameSize, buildIDSize            uint32 // in bytes: the room for it, then its length with the NUL; 0 for none
	name, buildID                    uint64 // where it is to be written
}

const (
	queryMap   = 0xc0686611 // _IOWR('f', 17, struct procmap_query)
	queryNext  = 0x10       // PROCMAP_QUERY_COVERING_OR_NEXT_VMA
	mapRead    = 1
	mapWrite   = 2
	mapExec    = 4
	mapShared  = 8
	pathMax    = unix.PathMax
	shortName  = 256     // bytes that are asked for after much was read already: names that are no file's path are not longer
	manyNames  = 1 << 20 // bytes of names that are read as they come, each as often as it is there
	deviceForm = "%02x:%02x"
)

// Area is what one mapping says of itself, without its path.
type Area struct {
	Start, End          arch.Addr
	Read, Write, Shared bool
	Dev                 uint64 // as unix.Mkdev
	Inode               uint64
}

// AreaAt is the mapping that at lies in, by an open /proc/PID/maps. It allocates nothing. The error is ENOENT if there is none, ENOTTY of a kernel that
// can't be asked, ESRCH if the memory has gone. It is safe for concurrent use, but not with f's Close.
func AreaAt(f *os.File, at arch.Addr) (Area, syscall.Errno) {
	q := mapQuery{addr: uint64(at)}
	q.size = uint64(unsafe.Sizeof(q))
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), queryMap, uintptr(unsafe.Pointer(&q))); errno != 0 {
		return Area{}, errno
	}
	return Area{
		Start: arch.Addr(q.start), End: arch.Addr(q.end), Read: q.vmaFlags&mapRead != 0, Write: q.vmaFlags&mapWrite != 0, Shared: q.vmaFlags&mapShared != 0,
		Dev: unix.Mkdev(q.major, q.minor), Inode: q.inode,
	}, 0
}

// Vacant tells, by an open /proc/PID/maps, that nothing is mapped in r. It is false if the kernel can't be asked. It is safe for concurrent use, but not with
// f's Close.
func Vacant(f *os.File, r arch.Range) bool {
	q := mapQuery{flags: queryNext, addr: uint64(r.Start)}
	q.size = uint64(unsafe.Sizeof(q))
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), queryMap, uintptr(unsafe.Pointer(&q)))
	return errno == unix.ENOENT || errno == 0 && q.start >= uint64(r.End)
}

// mapLister asks for one mapping after the other.
type mapLister struct {
	f    *os.File
	q    mapQuery
	name [pathMax]byte
	*names
	read    int // bytes of names
	devices map[[2]uint32]string
	files   map[[3]uint64]string // paths by file, of those that were read
}

func newMapLister() *mapLister {
	return &mapLister{names: newNames(), devices: map[[2]uint32]string{}, files: map[[3]uint64]string{}}
}

// mapListers are used again: there are many questions at each fork and exec.
var mapListers = sync.Pool{New: func() any { return newMapLister() }}

// putBack forgets what l was told. One that was told much is not kept.
func (l *mapLister) putBack() {
	const much = 1 << 10 // names
	if len(l.all) > much || len(l.files) > much {
		return
	}
	clear(l.all)
	clear(l.devices)
	clear(l.files)
	l.f, l.size, l.read = nil, 0, 0
	mapListers.Put(l)
}

// queryMaps lists the mappings of an open /proc/PID/maps. The error matches ErrTooMuch or says that the kernel can't be asked.
func queryMaps(f *os.File) (maps []Mapping, err error) {
	const usual = 32 // mappings of a program that has just begun
	l := mapListers.Get().(*mapLister)
	defer l.putBack()
	l.f = f
	maps = make([]Mapping, 0, usual)
	var pin runtime.Pinner // the kernel is told an address in it
	pin.Pin(l)
	defer pin.Unpin()
	for addr := uint64(0); ; addr = l.q.end {
		path, err := l.next(addr)
		switch {
		case errors.Is(err, unix.ENOENT) && len(maps) > 0:
			return append(maps, gate()...), nil
		case err != nil:
			return nil, err
		case l.q.end <= addr:
			return nil, fmt.Errorf("%w: a mapping that ends at %#x, behind %#x", ErrFormat, l.q.end, addr)
		case len(maps) > mostMappings:
			return nil, fmt.Errorf("%d mappings: %w", len(maps), ErrTooMuch)
		}
		maps = append(maps, l.mapping(path))
	}
}

// MapAt is the mapping at at, of an open /proc/PID/maps; none if there is none. The error says that the kernel can't be asked for a single one.
func MapAt(f *os.File, at arch.Addr) (m Mapping, found bool, err error) {
	l := mapListers.Get().(*mapLister)
	defer l.putBack()
	l.f = f
	var pin runtime.Pinner
	pin.Pin(l)
	defer pin.Unpin()
	path, err := l.next(uint64(at))
	if errors.Is(err, unix.ENOENT) {
		return m, false, nil
	}
	if err != nil {
		return m, false, err
	}
	m = l.mapping(path)
	return m, m.Range.Contains(at), nil
}

// mapping is the answer.
func (l *mapLister) mapping(path string) Mapping {
	q := &l.q
	device := [2]uint32{q.major, q.minor}
	if l.devices[device] == "" {
		l.devices[device] = fmt.Sprintf(deviceForm, q.major, q.minor)
	}
	m := Mapping{
		Range: arch.Range{Start: arch.Addr(q.start), End: arch.Addr(q.end)},
		Read:  q.vmaFlags&mapRead != 0, Write: q.vmaFlags&mapWrite != 0, Exec: q.vmaFlags&mapExec != 0, Shared: q.vmaFlags&mapShared != 0,
		Offset: q.offs, Dev: l.devices[device], Inode: q.inode,
	}
	m.Path, m.Deleted = strings.CutSuffix(path, deletedMark)
	return m
}

// next asks for the mapping at addr, or behind it, and its path. Where many paths were read, that of a file which had one is the same:
// it may be another of the same file's.
func (l *mapLister) next(addr uint64) (path string, err error) {
	room := pathMax
	if l.read > manyNames {
		room = shortName
	}
	path, err = l.ask(addr, room)
	if !errors.Is(err, unix.ENAMETOOLONG) {
		return path, err
	}
	if _, err = l.ask(addr, 0); err != nil {
		return "", err
	}
	file := [3]uint64{uint64(l.q.major), uint64(l.q.minor), l.q.inode}
	path, known := l.files[file]
	if !known && room == shortName {
		path, err = l.ask(addr, pathMax)
		if errors.Is(err, unix.ENAMETOOLONG) {
			path = ""
			_, err = l.ask(addr, 0)
		}
	}
	if err == nil {
		l.files[file] = path
	}
	return path, err
}

// ask makes one query, for a name of at most room bytes.
func (l *mapLister) ask(addr uint64, room int) (path string, err error) {
	q := &l.q
	*q = mapQuery{size: uint64(unsafe.Sizeof(*q)), flags: queryNext, addr: addr}
	if room > 0 {
		q.nameSize, q.name = uint32(room), uint64(uintptr(unsafe.Pointer(&l.name)))
	}
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, l.f.Fd(), queryMap, uintptr(unsafe.Pointer(q)))
	if errno != 0 {
		return "", errno
	}
	n := int(q.nameSize)
	if q.inode == 0 {
		q.offs = 0 // as in the text
	}
	if n <= 1 || n > room {
		return "", nil
	}
	l.read += n
	if kept, ok := l.all[string(l.name[:n-1])]; ok {
		return kept, nil
	}
	return l.keep(string(l.name[:n-1])), nil
}

// gate is the vsyscall page, which is no mapping of the process's own: the kernel's text alone has it.
var gate = sync.OnceValue(func() []Mapping {
	f, err := open(os.Getpid(), "maps")
	if err != nil {
		return nil
	}
	defer f.Close()
	maps, _ := ParseMaps(f)
	if n := len(maps); n > 0 && maps[n-1].Path == "[vsyscall]" {
		return maps[n-1:]
	}
	return nil
})
