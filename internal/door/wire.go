package door

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// What the two ends of the socket say beside the files' contents.
const (
	headerErrno   = "X-Errno"   // EBUSY; the body is a sentence then
	headerError   = "X-Error"   // the sentence, in a trailer: of an error in the middle of a file
	headerInfo    = "X-Info"    // an entry, as JSON
	headerWritten = "X-Written" // bytes taken, decimal
)

// entry is a file's description, alone or in a listing.
type entry struct {
	EntryName string    `json:"name"`
	EntryMode string    `json:"mode"` // as ls prints it
	EntrySize int64     `json:"size"` // bytes; 0 for most, as in debugfs
	Modified  time.Time `json:"modtime,omitzero"`
}

func newEntry(info fs.FileInfo) entry {
	return entry{EntryName: info.Name(), EntryMode: info.Mode().String(), EntrySize: info.Size(), Modified: info.ModTime()}
}

// encode is e as the value of a header.
func (e entry) encode() string {
	b, err := json.Marshal(e)
	if err != nil {
		return ""
	}
	return string(b)
}

func decodeEntry(header http.Header) (entry, error) {
	var e entry
	if err := json.Unmarshal([]byte(header.Get(headerInfo)), &e); err != nil {
		return e, fmt.Errorf("the answer describes no file: %w", err)
	}
	return e, nil
}

// entry is a fs.FileInfo and a fs.DirEntry.
var (
	_ fs.FileInfo = entry{}
	_ fs.DirEntry = entry{}
)

// Name implements fs.FileInfo.
func (e entry) Name() string { return e.EntryName }

// Size implements fs.FileInfo.
func (e entry) Size() int64 { return e.EntrySize }

// ModTime implements fs.FileInfo.
func (e entry) ModTime() time.Time { return e.Modified }

// IsDir implements fs.FileInfo.
func (e entry) IsDir() bool { return e.Mode().IsDir() }

// Sys implements fs.FileInfo: there is nothing behind it.
func (e entry) Sys() any { return nil }

// Type implements fs.DirEntry.
func (e entry) Type() fs.FileMode { return e.Mode().Type() }

// Info implements fs.DirEntry.
func (e entry) Info() (fs.FileInfo, error) { return e, nil }

// String is for people.
func (e entry) String() string { return fs.FormatFileInfo(e) }

// Mode implements fs.FileInfo: type and permissions.
func (e entry) Mode() fs.FileMode {
	const bits = "rwxrwxrwx"
	kind, perm := strings.TrimPrefix(e.EntryMode, "-"), fs.FileMode(0)
	if len(kind) > len(bits) {
		kind = kind[len(kind)-len(bits)-1:]
	}
	var mode fs.FileMode
	if rest, ok := strings.CutPrefix(kind, "d"); ok {
		mode, kind = fs.ModeDir, rest
	}
	for i := range min(len(kind), len(bits)) {
		perm <<= 1
		if kind[i] == bits[i] {
			perm |= 1
		}
	}
	return mode | perm
}

// statusOf is the HTTP status for an errno; the errno itself goes along.
func statusOf(errno syscall.Errno) int {
	switch errno {
	case 0:
		return http.StatusOK
	case unix.ENOENT, unix.ENOTDIR:
		return http.StatusNotFound
	case unix.EACCES, unix.EPERM:
		return http.StatusForbidden
	case unix.EBUSY, unix.EEXIST, unix.EISDIR:
		return http.StatusConflict
	case unix.E2BIG:
		return http.StatusRequestEntityTooLarge
	case unix.EIO:
		return http.StatusInternalServerError
	case unix.ENODEV, unix.ESRCH:
		return http.StatusGone
	}
	return http.StatusBadRequest
}

// errnoNamed is the errno of a name such as EBUSY, EIO for one that is not known.
func errnoNamed(name string) syscall.Errno {
	for e := syscall.Errno(1); e < maxErrno; e++ {
		if known := unix.ErrnoName(e); known != "" && known == name {
			return e
		}
	}
	return unix.EIO
}

// RemoteError is an error of the tree behind a socket: its sentence and its errno.
type RemoteError struct {
	Text  string
	Errno syscall.Errno
}

// Error implements error.
func (e *RemoteError) Error() string { return e.Text }

// Unwrap makes the error match its errno.
func (e *RemoteError) Unwrap() error { return e.Errno }

// oneSentence keeps an error's text on a line, as headers and terminals want it.
func oneSentence(err error) string {
	return strings.Join(strings.Fields(reason(err).Error()), " ")
}
