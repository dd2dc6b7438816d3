// Package targetfs is the only way to a file that a target names: what its maps, its debug
// links and its executable lead to. The names, the directories and what lies there may be made by
// whoever owns the target, to have a tracer with more rights open something. So
//
//   - names are looked up below the target's root directory, and lead nowhere else: symbolic links and ".."
//     stay inside, links of /proc that are no names are refused (openat2(2), RESOLVE_IN_ROOT,
//     RESOLVE_NO_MAGICLINKS; or the same, one component after the other). The tracer's own mount namespace plays no part,
//     unless it is the same;
//   - only regular files that hold data of their own are opened. What is there is found first, by a descriptor that opens nothing
//     (O_PATH), so that neither a FIFO nor a device notices; then that very file is opened, non-blocking;
//   - a file system that does not answer, FUSE for one, is given up after a while, and not asked again.
//
// All functions are safe for concurrent use.
package targetfs

import (
	"errors"
	"io/fs"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
)

// Why a file is not opened. All errors of this package are a *fs.PathError.
var (
	// ErrNotRegular: a directory, a device, a FIFO or a socket, or a file that the kernel makes up as it is read.
	ErrNotRegular = errors.New("not a regular file")
	// ErrSlow: the file system did not answer in time, now or before.
	ErrSlow = errors.New("its file system does not answer")
)

// Files are those that one process sees.
type Files struct {
	pid  int
	dir  *os.File            // the process's directory in /proc: it is of that process, whoever has its number later; nil if it could not be opened
	kept func() (int, error) // opens the root directory where /proc does not let us; may be nil
	slow atomic.Bool         // it did not answer once
}

// Of gives the files of process pid, as that process sees them at the time of each call.
// They are of the process that has the number now. Close gives a descriptor back.
func Of(pid int) *Files { return Kept(pid, nil) }

// Kept is Of for a process that may keep us out of its directory in /proc later, as one that is not dumpable any more does. root opens its root
// directory (O_PATH), as it was before.
func Kept(pid int, root func() (int, error)) *Files {
	f := &Files{pid: pid, kept: root}
	dir := "/proc/" + strconv.Itoa(pid)
	if fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err == nil {
		f.dir = os.NewFile(uintptr(fd), dir)
	}
	return f
}

// Close ends it; files that are open stay so.
func (f *Files) Close() error {
	if f.dir == nil {
		return nil
	}
	return f.dir.Close()
}

// Own gives the files that this process sees, for names in a file that its user has named. Relative names begin
// at the working directory.
func Own() *Files { return &Files{} }

// root opens the directory below which names are looked up.
func (f *Files) root() (int, error) {
	defer runtime.KeepAlive(f)
	dir := "/"
	if f.pid != 0 {
		dir = f.proc("root")
	}
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if errors.Is(err, fs.ErrPermission) && f.kept != nil {
		return f.kept()
	}
	return fd, err
}

// proc is the path of a file in the process's directory in /proc. It leads to nothing when the process has ended.
func (f *Files) proc(name string) string {
	if f.dir == nil {
		return "/proc/self/fd/none/" + name
	}
	return "/proc/self/fd/" + strconv.Itoa(int(f.dir.Fd())) + "/" + name
}

// Open opens the regular file of that name for reading.
func (f *Files) Open(name string) (*File, error) {
	return f.open(name, func() (int, error) { return f.find(name) })
}

// Stat tells of the file of that name, of any kind, without opening it.
func (f *Files) Stat(name string) (Info, error) {
	info, err := within(&f.slow, func() (Info, error) {
		fd, err := f.find(name)
		if err != nil {
			return Info{}, err
		}
		defer func() { _ = unix.Close(fd) }()
		return infoOf(fd)
	}, nil)
	if err != nil {
		return info, &fs.PathError{Op: "stat", Path: name, Err: err}
	}
	return info, nil
}

// Executable opens the file that the process executes, even if it has no name any more.
func (f *Files) Executable() (*File, error) { return f.link("exe") }

// Mapped opens the file that is mapped at r, one line of the process's maps, even if it has no name any more. It needs
// CAP_CHECKPOINT_RESTORE or CAP_SYS_ADMIN.
func (f *Files) Mapped(r arch.Range) (*File, error) { return f.link("map_files/" + r.String()) }

// link opens what a link of the process's directory in /proc stands for: the kernel's reference to a file, not a name.
func (f *Files) link(name string) (*File, error) {
	return f.open("/proc/"+strconv.Itoa(f.pid)+"/"+name, func() (int, error) {
		defer runtime.KeepAlive(f) // and with it the descriptor
		return unix.Open(f.proc(name), unix.O_PATH|unix.O_CLOEXEC, 0)
	})
}

// Named opens a file that the user of this process has named, for reading. Any links are followed, but it must be a
// regular file, and may not keep us waiting either.
func Named(path string) (*File, error) {
	f := Own()
	return f.open(path, func() (int, error) { return unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0) })
}

// open opens for reading what find has found.
func (f *Files) open(name string, find func() (int, error)) (*File, error) {
	file, err := within(&f.slow, func() (*File, error) {
		fd, err := find()
		if err != nil {
			return nil, err
		}
		defer func() { _ = unix.Close(fd) }()
		return reopen(fd, name)
	}, func(file *File) { _ = file.Close() })
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return file, nil
}

// Inside is the name that the process has for a file which the kernel has named from our root directory, as it does in
// /proc/PID/maps: the same, unless the process's root directory is another one of our mount namespace.
func (f *Files) Inside(name string) string {
	if f.pid == 0 {
		return name
	}
	defer runtime.KeepAlive(f)
	root, err := os.Readlink(f.proc("root"))
	if rest, below := strings.CutPrefix(name, root); err == nil && below && strings.HasPrefix(rest, "/") {
		return rest
	}
	return name
}

// find looks name up below the root, and opens nothing: the descriptor is an O_PATH one.
func (f *Files) find(name string) (int, error) {
	if f.pid == 0 && (name == "" || name[0] != '/') {
		return unix.Open(name, unix.O_PATH|unix.O_CLOEXEC, 0)
	}
	root, err := f.root()
	if err != nil {
		return -1, err
	}
	defer func() { _ = unix.Close(root) }()
	return beneath(root, name)
}
