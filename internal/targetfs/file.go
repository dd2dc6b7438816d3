package targetfs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Info is what a file is, whatever its name.
type Info struct {
	Dev, Inode uint64 // together they are the file's identity; btrfs and overlay tell another Dev than maps do
	Size       int64  // in bytes
	Regular    bool
	// Modified and Changed are the times of the last change of the content, and of that or anything else; in nanoseconds. Only the owner of the file system
	// can keep a change from showing in Changed.
	Modified, Changed int64
}

// Same tells whether both are one file.
func (i Info) Same(o Info) bool { return i.Dev == o.Dev && i.Inode == o.Inode }

// On tells whether the file is on the device that /proc/PID/maps names so: major and minor number, in hexadecimal.
func (i Info) On(device string) bool {
	return device == fmt.Sprintf("%02x:%02x", unix.Major(i.Dev), unix.Minor(i.Dev))
}

func infoOf(fd int) (Info, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return Info{}, err
	}
	return Info{
		Dev: st.Dev, Inode: st.Ino, Size: st.Size, Regular: st.Mode&unix.S_IFMT == unix.S_IFREG,
		Modified: st.Mtim.Nano(), Changed: st.Ctim.Nano(),
	}, nil
}

// File is an open regular file. Reads end where the file ended when it was opened: it may be written, cut or replaced at any time, so
// what was read once may read otherwise the next time.
type File struct {
	Info
	f     *os.File
	leave func()      // its place among those that may be open
	watch bool        // a read may never return
	sworn bool        // its times are what a process says (FUSE), who may be the target
	slow  atomic.Bool // one did not

	mu    sync.Mutex
	block []byte // the file's content from at on
	at    int64
}

// reopen opens for reading what fd, an O_PATH descriptor, stands for.
func reopen(fd int, name string) (*File, error) {
	info, err := infoOf(fd)
	if err != nil {
		return nil, err
	}
	if !info.Regular {
		return nil, ErrNotRegular
	}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil {
		return nil, err
	}
	if madeUp[fs.Type] {
		return nil, fmt.Errorf("%w: it lies in one of the kernel's own file systems", ErrNotRegular)
	}
	// The link stands for the file that was looked at, whatever its name leads to by now. O_NONBLOCK: a lease on it
	// (fcntl(2), F_SETLEASE) would make us wait for its holder.
	leave, err := claim()
	if err != nil {
		return nil, err
	}
	n, err := unix.Open("/proc/self/fd/"+strconv.Itoa(fd), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		leave()
		return nil, err
	}
	file := &File{Info: info, f: os.NewFile(uintptr(n), name), leave: leave, watch: !prompt[fs.Type], sworn: fs.Type == unix.FUSE_SUPER_MAGIC}
	runtime.AddCleanup(file, func(leave func()) { leave() }, leave)
	return file, nil
}

// madeUp are the file systems whose regular files are no data: to read one may do something, or wait for it.
var madeUp = map[int64]bool{
	unix.PROC_SUPER_MAGIC: true, unix.SYSFS_MAGIC: true, unix.DEBUGFS_MAGIC: true, unix.TRACEFS_MAGIC: true,
	unix.SECURITYFS_MAGIC: true, unix.PSTOREFS_MAGIC: true, unix.BPF_FS_MAGIC: true, unix.CGROUP_SUPER_MAGIC: true,
	unix.CGROUP2_SUPER_MAGIC: true, unix.EFIVARFS_MAGIC: true, unix.SELINUX_MAGIC: true, unix.SMACK_MAGIC: true,
	unix.AAFS_MAGIC: true, unix.BINFMTFS_MAGIC: true, unix.DEVPTS_SUPER_MAGIC: true, unix.NSFS_MAGIC: true,
	unix.RDTGROUP_SUPER_MAGIC: true, unix.XENFS_SUPER_MAGIC: true, unix.OPENPROM_SUPER_MAGIC: true,
	unix.BINDERFS_SUPER_MAGIC: true, unix.AUTOFS_SUPER_MAGIC: true, unix.USBDEVICE_SUPER_MAGIC: true,
	unix.PID_FS_MAGIC:        true,
	configfs:                 true,
	unix.SOCKFS_MAGIC:        true,
	unix.PIPEFS_MAGIC:        true,
	unix.ANON_INODE_FS_MAGIC: true,
	mqueue:                   true,
	functionfs:               true,
	gadgetfs:                 true,
}

// Those that x/sys does not name (fs/configfs/mount.c, ipc/mqueue.c, drivers/usb/gadget).
const (
	configfs   = 0x62656570
	mqueue     = 0x19800202
	functionfs = 0xa647361
	gadgetfs   = 0xaee71ee7
)

// prompt are the file systems that answer without asking another machine or process. Overlays may have anything below.
var prompt = map[int64]bool{
	unix.EXT4_SUPER_MAGIC: true, unix.XFS_SUPER_MAGIC: true, unix.BTRFS_SUPER_MAGIC: true, unix.TMPFS_MAGIC: true,
	unix.RAMFS_MAGIC: true, unix.F2FS_SUPER_MAGIC: true, unix.SQUASHFS_MAGIC: true, unix.EROFS_SUPER_MAGIC_V1: true,
	unix.MSDOS_SUPER_MAGIC: true, unix.ISOFS_SUPER_MAGIC: true, unix.HUGETLBFS_MAGIC: true,
}

// Settled reports whether everything that was read of the file is its content as it was when it was opened, and whether any other content shows in its Info:
// it has not changed since, nor so shortly before that a change might still get the same time. coarsest is how far apart the times are that its file system can
// tell, at most.
func (f *File) Settled(coarsest time.Duration) bool {
	if f.sworn || time.Since(time.Unix(0, max(f.Modified, f.Changed))) < coarsest {
		return false
	}
	now, err := f.stat()
	return err == nil && now == f.Info
}

func (f *File) stat() (info Info, err error) {
	look := func() (info Info, err error) {
		c, err := f.f.SyscallConn()
		if err != nil {
			return info, err
		}
		bad := c.Control(func(fd uintptr) { info, err = infoOf(int(fd)) })
		return info, errors.Join(bad, err)
	}
	if f.watch {
		return within(&f.slow, look, nil)
	}
	return look()
}

// blockSize is how much a small read reads, in bytes: headers are read piece by piece.
const blockSize = 16 << 10

// ReadAt implements io.ReaderAt.
func (f *File) ReadAt(p []byte, off int64) (n int, err error) {
	if off < 0 {
		return 0, unix.EINVAL
	}
	if len(p) >= blockSize {
		return f.read(p, off)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for n < len(p) {
		if at := off + int64(n); at < f.at || at >= f.at+int64(len(f.block)) {
			if err := f.fill(at &^ (blockSize - 1)); err != nil {
				return n, err
			}
			if at >= f.at+int64(len(f.block)) {
				return n, io.EOF
			}
		}
		n += copy(p[n:], f.block[off+int64(n)-f.at:])
	}
	return n, nil
}

// fill reads the block at off.
func (f *File) fill(off int64) error {
	block := f.block[:0]
	f.block = nil
	if cap(block) < blockSize {
		block = blocks.Get().(*[blockSize]byte)[:0]
	}
	n, err := f.read(block[:blockSize], off)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	f.block, f.at = block[:n], off
	return nil
}

// read reads up to where the file ended when it was opened.
func (f *File) read(p []byte, off int64) (n int, err error) {
	if off >= f.Size {
		return 0, io.EOF
	}
	end := len(p)
	if int64(end) > f.Size-off {
		end, err = int(f.Size-off), io.EOF
	}
	if !f.watch {
		n, rerr := f.f.ReadAt(p[:end], off)
		if rerr != nil {
			err = rerr
		}
		return n, err
	}
	for n < end {
		piece, rerr := f.watched(min(end-n, watchedSize), off+int64(n))
		n += copy(p[n:], piece)
		if rerr != nil {
			return n, rerr
		}
	}
	return n, err
}

// watchedSize is how much is read at once where reading may take for ever.
const watchedSize = 1 << 20

func (f *File) watched(size int, off int64) ([]byte, error) {
	return within(&f.slow, func() ([]byte, error) {
		b := make([]byte, size) // its own: the caller may have gone when the read returns
		n, err := f.f.ReadAt(b, off)
		return b[:n], err
	}, nil)
}

// Close closes the file. A read that hangs keeps it open.
func (f *File) Close() error {
	defer f.leave()
	if f.mu.TryLock() { // who hangs has it
		if b := f.block; cap(b) == blockSize {
			f.block = nil // nobody else has it: what was read of it is a copy
			blocks.Put((*[blockSize]byte)(b[:blockSize]))
		}
		f.mu.Unlock()
	}
	return f.f.Close()
}

// blocks are those of files that were closed.
var blocks = sync.Pool{New: func() any { return new([blockSize]byte) }}

// patience is how long a file system may take to answer.
const patience = 3 * time.Second

// within does what may hang, and gives up on it in the end. What comes too late is passed to drop. Where something was given up
// before, slow, nothing is tried again: a hanging call keeps a thread.
func within[T any](slow *atomic.Bool, do func() (T, error), drop func(T)) (T, error) {
	type answer struct {
		v   T
		err error
	}
	var zero T
	if slow.Load() {
		return zero, ErrSlow
	}
	got := make(chan answer, 1)
	go func() {
		v, err := do()
		got <- answer{v, err}
	}()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case a := <-got:
		return a.v, a.err
	case <-timer.C:
	}
	slow.Store(true)
	go func() {
		if a := <-got; a.err == nil && drop != nil {
			drop(a.v)
		}
	}()
	return zero, ErrSlow
}
