package ptrace

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/procfs"
)

// The target makes the memfd of shared memory, so that it is charged and limited as the
// target is. It reaches us by a descriptor number of the target's. A number proves
// nothing: another thread, or a process that shares the descriptor table, may put any
// file there between two of our steps. So the number is used once, in a way that has no
// effect on any file, and everything else is done to the file that was found:
//
//	O_PATH        pins the file. Its filesystem is not asked, nothing is opened: a FIFO does not block, a device
//	              does nothing, the daemon behind a FUSE file is not waited for. (pidfd_getfd(2) would bring an
//	              open description of anything into our table, and closing that can wait for such a daemon.)
//	mnt_id        of fdinfo tells, again without asking the filesystem, that the file lies on the mount that the kernel
//	              keeps for memfds, which nobody can reach by a path. From here on it is a memfd, whosever.
//	fstat         it is empty and has no name; and everybody may write it, so the target could open it as we do.
//	reopen        by our own descriptor of what is pinned, not by theirs.
//	seals         none yet. It gets its size, and F_SEAL_SHRINK|F_SEAL_GROW|F_SEAL_SEAL; then both are looked at. From
//	              then on nobody can change the size, or refuse us to write.
//
// A hostile target can pass us another memfd than the one that it made for us. It must
// be one that is empty and that the target may resize, seal and write itself, so
// nothing is gained. The target's mapping is compared with our file (mapped), for the
// target's own sake: its code would run somewhere else.

// memfdSeals are the seals of a region's memory.
const memfdSeals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL

const sealExec = 0x20 // F_SEAL_EXEC, which vm.memfd_noexec sets

// errNotOurs is why a file that stands at a number of the target's is not taken.
var errNotOurs = errors.New("the process has put another file where it made shared memory")

// memfd is a file that was found to be fit for shared memory, opened read-write.
type memfd struct {
	*os.File
	stat unix.Stat_t
}

// takeMemfd opens the memfd that is number fd of th's. The error matches errNotOurs if something else is there.
func (th *Thread) takeMemfd(fd uint64) (*memfd, error) {
	pinned, st, err := th.pinMemfd(fd)
	if err != nil {
		return nil, err
	}
	defer unix.Close(pinned)
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Nlink != 0 || st.Size != 0 || st.Mode&0o006 != 0o006 {
		return nil, fmt.Errorf("%w: mode %#o, %d bytes", errNotOurs, st.Mode, st.Size)
	}
	f, err := procfs.Open("/proc/self/fd/"+strconv.Itoa(pinned), os.O_RDWR)
	if err != nil {
		return nil, err
	}
	return &memfd{f, st}, nil
}

// pinMemfd finds the file that is number fd of th's, if it is a memfd, and opens it only as far as to hold it.
func (th *Thread) pinMemfd(fd uint64) (pinned int, st unix.Stat_t, err error) {
	mount, err := memfdMount()
	if err != nil {
		return -1, st, err
	}
	pinned, err = unix.Open(fmt.Sprintf("/proc/%d/fd/%d", th.TID, fd), unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, st, fmt.Errorf("descriptor %d of thread %d: %w", fd, th.TID, err)
	}
	switch id, merr := mountOf(pinned); {
	case merr != nil:
		err = merr
	case id != mount:
		err = errNotOurs
	default:
		err = unix.Fstat(pinned, &st)
	}
	if err != nil {
		unix.Close(pinned)
		return -1, st, err
	}
	return pinned, st, nil
}

// memfdMount is the ID of the mount that all memfds are on: a memfd of our own tells.
var memfdMount = sync.OnceValues(func() (int, error) {
	fd, err := unix.MemfdCreate("gokprobe", unix.MFD_CLOEXEC)
	if err != nil {
		return 0, fmt.Errorf("memfd_create: %w", err)
	}
	defer unix.Close(fd)
	return mountOf(fd)
})

// mountOf is the ID of the mount that a descriptor of ours leads to. It is unique among those of all mount namespaces.
func mountOf(fd int) (int, error) { return procfs.MountOf(fd) }

// seal gives f its size for good.
func (f *memfd) seal(size int64) error {
	fd := f.Fd()
	if seals, err := unix.FcntlInt(fd, unix.F_GET_SEALS, 0); err != nil || seals&^sealExec != 0 {
		return fmt.Errorf("%w: seals %#x", errNotOurs, seals)
	}
	if err := f.Truncate(size); err != nil {
		return err
	}
	if _, err := unix.FcntlInt(fd, unix.F_ADD_SEALS, memfdSeals); err != nil {
		return fmt.Errorf("sealing shared memory: %w", err)
	}
	// Until now any process that has it could resize it, and seal it.
	seals, err := unix.FcntlInt(fd, unix.F_GET_SEALS, 0)
	if err != nil || seals&^sealExec != memfdSeals {
		return fmt.Errorf("%w: seals %#x", errNotOurs, seals)
	}
	if err := unix.Fstat(int(fd), &f.stat); err != nil || f.stat.Size != size {
		return fmt.Errorf("%w: %d bytes, not %d", errNotOurs, f.stat.Size, size)
	}
	return nil
}

// isAt tells whether number fd of th's is f, at this moment.
func (f *memfd) isAt(th *Thread, fd uint64) bool {
	pinned, st, err := th.pinMemfd(fd)
	if err != nil {
		return false
	}
	unix.Close(pinned)
	return st.Dev == f.stat.Dev && st.Ino == f.stat.Ino
}

// mapped checks that e's pages are f's in the target.
func (f *memfd) mapped(s *Space, e Extent) error {
	data, err1 := s.mapAt(e.Data.Start)
	code, err2 := s.mapAt(e.Code.Start)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	dev := fmt.Sprintf("%02x:%02x", unix.Major(f.stat.Dev), unix.Minor(f.stat.Dev))
	same := func(m *procfs.Mapping, r arch.Range, offset uint64) bool {
		return m != nil && m.Shared && m.Inode == f.stat.Ino && m.Dev == dev && m.Range == r && m.Offset == offset
	}
	if !same(data, e.Data, e.Offset) || !data.Write || data.Exec || !same(code, e.Code, e.Offset+e.Data.Len()) || !code.Exec || code.Write {
		return fmt.Errorf("%w: its mappings at %s are of something else", errNotOurs, e.Data.Start)
	}
	return nil
}
