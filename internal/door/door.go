// Package door lets other programs into a tree of files that a session serves: over HTTP on
// a Unix socket, for [Dial] and curl, and as a FUSE file system, for everything else.
//
// A [Tree] is files as the kernel's debugfs and tracefs have them: what a file holds is made
// when it is opened, a write is a command, and truncation has effects of its own. Both doors
// serve any tree, so also one that [Dial] brings from another process.
package door

import (
	"errors"
	"io/fs"
	"syscall"

	"golang.org/x/sys/unix"
)

// Tree is files that can be written. Names are those of io/fs: slashes, no leading one, "." is
// the root. All methods may be called at the same time. Errors match their errno with
// errors.Is; one that matches none counts as EIO.
type Tree interface {
	// FS opens a file for reading. What Read returns was made at the time of Open, but for
	// files such as trace_pipe: there Read blocks until there is something. Close ends a
	// Read that blocks. If the tree is a fs.StatFS or fs.ReadDirFS too, that is used.
	fs.FS
	// Truncate is open(2) for writing with O_TRUNC.
	Truncate(name string) error
	// Write is one write(2): all of p, or an error and how many bytes were taken before it.
	Write(name string, p []byte) (int, error)
}

// MaxWrite is the most bytes that the doors take as one write: 1 MiB, the largest request
// of FUSE. The socket refuses more with E2BIG and changes nothing; a longer write(2) to a mounted
// tree comes to it in pieces.
const MaxWrite = 1 << 20

// maxErrno is above all errnos of Linux (EHWPOISON, 133, in asm-generic/errno.h).
const maxErrno = 134

// Errno is the errno that err matches: 0 for nil, EIO if it matches none.
func Errno(err error) syscall.Errno {
	if err == nil {
		return 0
	}
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno
	}
	for e := syscall.Errno(1); e < maxErrno; e++ { // an Is method need not show its errno
		if errors.Is(err, e) {
			return e
		}
	}
	for _, known := range []struct {
		err   error
		errno syscall.Errno
	}{
		{fs.ErrNotExist, unix.ENOENT},
		{fs.ErrPermission, unix.EACCES},
		{fs.ErrExist, unix.EEXIST},
		{fs.ErrInvalid, unix.EINVAL},
		{fs.ErrClosed, unix.EBADF},
	} {
		if errors.Is(err, known.err) {
			return known.errno
		}
	}
	return unix.EIO
}

// reason is err without the call and the file: the caller names those when it prints
// the error.
func reason(err error) error {
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) {
		return pathErr.Err
	}
	return err
}
