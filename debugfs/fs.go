package debugfs

import (
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/gokprobe/gokprobe/internal/escape"
)

// node is a file or a directory of the tree. Nodes are made when they are looked up.
type node struct {
	mode fs.FileMode

	names func() []string         // of a directory: what is in it
	child func(name string) *node // nil if there is none
	read  func() ([]byte, error)  // of a file: its content; nil if it is a pipe
	pipe  func(wait bool) *pipe   // of trace_pipe
	write func(p []byte) error    // one write(2); nil if it can't be written
	clear func() error            // what opening it with O_TRUNC does; nil: nothing
}

// find looks name up. The error is a *fs.PathError.
func (t *Tree) find(op, name string) (*node, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid}
	}
	n := t.root()
	if name == "." {
		return n, nil
	}
	for part := range strings.SplitSeq(name, "/") {
		if n.child != nil {
			n = n.child(part)
		} else {
			n = nil
		}
		if n == nil {
			return nil, &fs.PathError{Op: op, Path: name, Err: syscall.ENOENT}
		}
	}
	return n, nil
}

// Open implements fs.FS. A file has the content of the moment. But trace_pipe's Read
// consumes the bytes that it returns, and waits until there are some, the session has
// ended, or another goroutine closes the file.
func (t *Tree) Open(name string) (fs.File, error) { return t.open(name, true) }

func (t *Tree) open(name string, wait bool) (fs.File, error) {
	n, err := t.find("open", name)
	if err != nil {
		return nil, err
	}
	info := infoOf(name, n)
	switch {
	case n.mode.IsDir():
		return &dir{fileInfo: info, entries: t.entries(n)}, nil
	case n.pipe != nil:
		return &stream{fileInfo: info, pipe: n.pipe(wait)}, nil
	}
	t.session.FlushRecords() // hits before this show, and what their triggers did
	data, err := n.read()
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return &file{fileInfo: info, Reader: strings.NewReader(escape.Text(string(data)))}, nil
}

// Stat implements fs.StatFS. Sizes are 0, as the kernel's.
func (t *Tree) Stat(name string) (fs.FileInfo, error) {
	n, err := t.find("stat", name)
	if err != nil {
		return nil, err
	}
	return infoOf(name, n), nil
}

// ReadDir implements fs.ReadDirFS.
func (t *Tree) ReadDir(name string) ([]fs.DirEntry, error) {
	n, err := t.find("readdir", name)
	if err != nil {
		return nil, err
	}
	if !n.mode.IsDir() {
		return nil, &fs.PathError{Op: "readdir", Path: name, Err: syscall.ENOTDIR}
	}
	return t.entries(n), nil
}

func (t *Tree) entries(n *node) []fs.DirEntry {
	var all []fs.DirEntry
	for _, name := range slices.Sorted(slices.Values(n.names())) {
		if c := n.child(name); c != nil {
			all = append(all, infoOf(name, c))
		}
	}
	return all
}

// Truncate does what opening name for writing with O_TRUNC does, such as deleting all events. The
// error matches an errno.
func (t *Tree) Truncate(name string) error {
	n, err := t.find("truncate", name)
	switch {
	case err != nil:
		return err
	case n.mode.IsDir():
		err = syscall.EISDIR
	case n.write == nil:
		err = syscall.EACCES
	case n.clear != nil:
		if err = t.usable(); err == nil {
			t.session.FlushRecords()
			err = n.clear()
		}
	}
	if err != nil {
		return &fs.PathError{Op: "truncate", Path: name, Err: err}
	}
	return nil
}

// Write is one write(2) to name. It is done whole, or fails with an error that matches an errno;
// then the lines before the one that is wrong have had their effect.
func (t *Tree) Write(name string, p []byte) (int, error) {
	n, err := t.find("write", name)
	switch {
	case err != nil:
		return 0, err
	case n.mode.IsDir():
		err = syscall.EISDIR
	case n.write == nil:
		err = syscall.EACCES
	case len(p) > maxWrite:
		err = fmt.Errorf("%w: a write of %d bytes, at most %d are taken", syscall.E2BIG, len(p), maxWrite)
	case len(p) > 0:
		if err = t.usable(); err != nil {
			break
		}
		t.session.FlushRecords() // hits before this one are treated as it was before
		t.tellLosses()
		err = n.write(p)
	}
	if err != nil {
		return 0, &fs.PathError{Op: "write", Path: name, Err: err}
	}
	return len(p), nil
}

// maxWrite is the bytes that one write may have.
const maxWrite = 1 << 20

// Mkdir fails: directories come with events.
func (t *Tree) Mkdir(name string) error {
	return &fs.PathError{Op: "mkdir", Path: name, Err: syscall.EPERM}
}

// Remove fails: files go with their events.
func (t *Tree) Remove(name string) error {
	return &fs.PathError{Op: "remove", Path: name, Err: syscall.EPERM}
}

// Snapshot is the tree for readers that can't wait: its trace_pipe ends where there is no more.
func (t *Tree) Snapshot() fs.FS { return snapshotFS{t} }

type snapshotFS struct{ *Tree }

// Open implements fs.FS.
func (s snapshotFS) Open(name string) (fs.File, error) { return s.open(name, false) }

// fileInfo describes a file without its content.
type fileInfo struct {
	name string
	mode fs.FileMode
}

func infoOf(path string, n *node) fileInfo {
	return fileInfo{name: path[strings.LastIndexByte(path, '/')+1:], mode: n.mode}
}

func (i fileInfo) Name() string               { return i.name }
func (i fileInfo) Size() int64                { return 0 }
func (i fileInfo) Mode() fs.FileMode          { return i.mode }
func (i fileInfo) Type() fs.FileMode          { return i.mode.Type() }
func (i fileInfo) ModTime() time.Time         { return time.Time{} }
func (i fileInfo) IsDir() bool                { return i.mode.IsDir() }
func (i fileInfo) Sys() any                   { return nil }
func (i fileInfo) Info() (fs.FileInfo, error) { return i, nil }
func (i fileInfo) Stat() (fs.FileInfo, error) { return i, nil }
func (i fileInfo) String() string             { return fs.FormatFileInfo(i) }

// file is an open file, with the content of the moment when it was opened.
type file struct {
	fileInfo
	*strings.Reader
}

func (f *file) Size() int64  { return f.fileInfo.Size() }
func (f *file) Close() error { return nil }

// stream is an open trace_pipe.
type stream struct {
	fileInfo
	*pipe
}

// dir is an open directory.
type dir struct {
	fileInfo
	entries []fs.DirEntry
	at      int
}

func (d *dir) Read([]byte) (int, error) {
	return 0, &fs.PathError{Op: "read", Path: d.name, Err: syscall.EISDIR}
}
func (d *dir) Close() error { return nil }

// ReadDir implements fs.ReadDirFile.
func (d *dir) ReadDir(n int) ([]fs.DirEntry, error) {
	rest := d.entries[d.at:]
	if n > 0 && len(rest) == 0 {
		return nil, io.EOF
	}
	if n > 0 && len(rest) > n {
		rest = rest[:n]
	}
	d.at += len(rest)
	return slices.Clone(rest), nil
}
