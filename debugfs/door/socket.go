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
	"syscall"

	"golang.org/x/sys/unix"
)

// ErrUnsafe tells that a directory for sockets is not the user's alone.
var ErrUnsafe = errors.New("not a directory that is this user's alone")

// Directories for sockets. The first is the user's, made at login and gone at logout.
const (
	dirName = "gokprobe"
	tmpDir  = "/tmp"
	runDir  = "/run/user"
)

// socketDirs are the directories in which sessions of uid may have their sockets, the preferred
// one first.
func socketDirs(uid int) []string {
	var dirs []string
	if x := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(x) && ownedBy(x, uid) {
		dirs = append(dirs, filepath.Join(x, dirName))
	}
	return append(dirs,
		filepath.Join(tmpDir, dirName+"-"+strconv.Itoa(uid)),
		filepath.Join(runDir, strconv.Itoa(uid), dirName))
}

// ownedBy tells that uid owns the directory dir, which is no symbolic link.
func ownedBy(dir string, uid int) bool {
	fi, err := os.Lstat(dir)
	if err != nil || !fi.IsDir() {
		return false
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == uid
}

// private makes sure that dir is a directory that nobody but this user has access to.
func private(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return checkPrivate(dir, os.Geteuid())
}

// checkPrivate tells whether nobody but uid, and root, has access to dir.
func checkPrivate(dir string, uid int) error {
	fi, err := os.Lstat(dir)
	switch {
	case err != nil:
		return err
	case !ownedBy(dir, uid) || fi.Mode().Perm()&0o077 != 0:
		return fmt.Errorf("%s is %w: %v", dir, ErrUnsafe, fi.Mode())
	}
	return nil
}

const suffix = ".sock"

// socketName is the file of the session that holds process pid.
func socketName(dir string, pid int) string { return filepath.Join(dir, strconv.Itoa(pid)+suffix) }

// maxSocketName is the longest name that a Unix socket's address holds.
const maxSocketName = len(unix.RawSockaddrUnix{}.Path) - 1

// listen makes the socket of the session that holds process pid: mode 0600, in a directory
// 0700. One that a killed session has left is replaced.
func listen(pid int) (*net.UnixListener, error) {
	dir := socketDirs(os.Geteuid())[0]
	if len(socketName(dir, pid)) > maxSocketName {
		dir = filepath.Join(tmpDir, dirName+"-"+strconv.Itoa(os.Geteuid()))
	}
	if err := private(dir); err != nil {
		return nil, err
	}
	sweep(dir)
	addr := &net.UnixAddr{Name: socketName(dir, pid), Net: "unix"}
	l, err := net.ListenUnix("unix", addr)
	if errors.Is(err, unix.EADDRINUSE) && abandoned(addr) {
		if err := os.Remove(addr.Name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		l, err = net.ListenUnix("unix", addr)
	}
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(addr.Name, 0o600); err != nil {
		_ = l.Close()
		return nil, err
	}
	return l, nil
}

// sweep removes the sockets of sessions that were killed and whose processes are no more.
func sweep(dir string) {
	names, err := filepath.Glob(filepath.Join(dir, "*"+suffix))
	if err != nil {
		return
	}
	for _, name := range names {
		pid, err := strconv.Atoi(strings.TrimSuffix(filepath.Base(name), suffix))
		if err != nil {
			continue
		}
		if _, err := os.Stat(filepath.Join("/proc", strconv.Itoa(pid))); errors.Is(err, fs.ErrNotExist) && abandoned(&net.UnixAddr{Name: name, Net: "unix"}) {
			_ = os.Remove(name)
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
