package door

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrUnsafe tells that a directory for sockets is not the user's alone.
var ErrUnsafe = errors.New("not a directory that is this user's alone")

// Directories for sockets. The first is root's, the second the user's, made at login and gone at logout.
const dirName = "gokprobe"

var (
	rootDir = "/run"
	runDir  = "/run/user"
	tmpDir  = "/tmp"
)

// socketDirs are the directories in which sessions of uid may have their sockets, the preferred
// one first. Where everybody may make directories comes last.
func socketDirs(uid int) []string {
	var dirs []string
	if x := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(x) {
		if d, err := openDir(x); err == nil {
			if st, err := d.stat(); err == nil && int(st.Uid) == uid {
				dirs = append(dirs, filepath.Join(x, dirName))
			}
			d.close()
		}
	}
	if uid == 0 {
		dirs = append(dirs, filepath.Join(rootDir, dirName))
	}
	return append(dirs,
		filepath.Join(runDir, strconv.Itoa(uid), dirName),
		filepath.Join(tmpDir, dirName+"-"+strconv.Itoa(uid)))
}

// dir is an open directory. Everything in it is done by its descriptor: it is the
// directory that was checked, even if its name means another one by now.
type dir struct {
	fd   int
	name string
}

// openDir opens a directory, no symbolic link.
func openDir(name string) (*dir, error) {
	fd, err := unix.Open(name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	switch {
	case errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP):
		return nil, fmt.Errorf("%s is %w: it is no directory", name, ErrUnsafe)
	case err != nil:
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return &dir{fd, name}, nil
}

func (d *dir) close() { _ = unix.Close(d.fd) }

func (d *dir) stat() (st unix.Stat_t, err error) {
	err = unix.Fstat(d.fd, &st)
	return st, err
}

// path is a name of file in d. It stays valid as long as d is open, even if d is
// renamed.
func (d *dir) path(file string) string {
	return fmt.Sprintf("/proc/self/fd/%d/%s", d.fd, file)
}

// openPrivate opens a directory to which nobody but uid, and root, has access.
func openPrivate(name string, uid int) (*dir, error) {
	d, err := openDir(name)
	if err != nil {
		return nil, err
	}
	st, err := d.stat()
	if err == nil && (int(st.Uid) != uid || st.Mode&0o077 != 0) {
		err = fmt.Errorf("%s is %w: user %d's, mode %#o", name, ErrUnsafe, st.Uid, st.Mode&0o7777)
	}
	if err != nil {
		d.close()
		return nil, err
	}
	return d, nil
}

// makePrivate is openPrivate for this user, of a directory that is made if it is not there.
func makePrivate(name string) (*dir, error) {
	if err := os.Mkdir(name, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	return openPrivate(name, os.Geteuid())
}

const suffix = ".sock"

// socketFile is the file of the session that holds process pid, in its directory.
func socketFile(pid int) string { return strconv.Itoa(pid) + suffix }

// listener is a session's socket, and the directory in which it is.
type listener struct {
	*net.UnixListener
	dir  *dir
	file string
}

// name is where the socket is, for people.
func (l *listener) name() string { return filepath.Join(l.dir.name, l.file) }

// Close ends the socket, and removes it.
func (l *listener) Close() error {
	err := l.UnixListener.Close()
	l.dir.close()
	return err
}

// listen makes the socket of the session that holds process pid: mode 0600, in a directory
// 0700, the first that is this user's alone, or can be made so. Who takes one of the others' names takes nothing away. One that a killed
// session has left is replaced. The error is that of the first directory.
func listen(pid int) (*listener, error) {
	var first error
	for _, name := range socketDirs(os.Geteuid()) {
		d, err := makePrivate(name)
		if err == nil {
			var l *listener
			if l, err = listenIn(d, pid); err == nil {
				return l, nil
			}
			d.close()
			if errors.Is(err, unix.EADDRINUSE) {
				return nil, err
			}
		}
		if first == nil {
			first = err
		}
	}
	return nil, first
}

func listenIn(d *dir, pid int) (*listener, error) {
	sweep(d)
	l := &listener{dir: d, file: socketFile(pid)}
	addr := &net.UnixAddr{Name: d.path(l.file), Net: "unix"}
	var err error
	l.UnixListener, err = net.ListenUnix("unix", addr)
	if errors.Is(err, unix.EADDRINUSE) && abandoned(addr) {
		if err := unix.Unlinkat(d.fd, l.file, 0); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		l.UnixListener, err = net.ListenUnix("unix", addr)
	}
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(addr.Name, 0o600); err != nil {
		_ = l.UnixListener.Close()
		return nil, err
	}
	return l, nil
}

// sweep removes the sockets of sessions that were killed and whose processes are no more.
func sweep(d *dir) {
	entries, err := os.ReadDir(d.path("."))
	if err != nil {
		return
	}
	for _, e := range entries {
		number, is := strings.CutSuffix(e.Name(), suffix)
		pid, err := strconv.Atoi(number)
		if !is || err != nil {
			continue
		}
		_, err = os.Stat(filepath.Join("/proc", strconv.Itoa(pid)))
		if errors.Is(err, fs.ErrNotExist) && abandoned(&net.UnixAddr{Name: d.path(e.Name()), Net: "unix"}) {
			_ = unix.Unlinkat(d.fd, e.Name(), 0)
		}
	}
}

// abandoned tells that nobody listens at addr.
func abandoned(addr *net.UnixAddr) bool {
	c, err := net.DialUnix("unix", nil, addr)
	if err == nil {
		_ = c.Close()
	}
	return errors.Is(err, unix.ECONNREFUSED)
}

// peer is who is at the other end of a connection: the process that called connect or listen,
// as the kernel says (SO_PEERCRED, unix(7)).
func peer(c *net.UnixConn) (*unix.Ucred, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return nil, err
	}
	return cred, credErr
}
