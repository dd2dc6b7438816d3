package door

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Open implements fs.FS.
func (c *Client) Open(name string) (fs.File, error) {
	if name == "." {
		return c.openDir(name)
	}
	ctx, cancel := context.WithCancel(context.Background())
	resp, err := c.do(ctx, http.MethodGet, "open", name, "", nil)
	if err != nil {
		cancel()
		if errors.Is(err, unix.EISDIR) {
			return c.openDir(name)
		}
		return nil, err
	}
	info, err := decodeEntry(resp.Header)
	if err != nil {
		cancel()
		_ = resp.Body.Close()
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return &clientFile{name: name, info: info, resp: resp, cancel: cancel}, nil
}

// clientFile is a file whose content is on its way.
type clientFile struct {
	name   string
	info   entry
	resp   *http.Response
	cancel context.CancelFunc
	closed atomic.Bool
}

// Stat implements fs.File.
func (f *clientFile) Stat() (fs.FileInfo, error) { return f.info, nil }

// Read implements fs.File.
func (f *clientFile) Read(p []byte) (int, error) {
	n, err := f.resp.Body.Read(p)
	switch {
	case err == nil:
		return n, nil
	case f.closed.Load():
		err = fs.ErrClosed
	case errors.Is(err, io.EOF):
		name := f.resp.Trailer.Get(headerErrno)
		if name == "" {
			return n, io.EOF
		}
		err = &RemoteError{Text: f.resp.Trailer.Get(headerError), Errno: errnoNamed(name)}
	}
	return n, &fs.PathError{Op: "read", Path: f.name, Err: err}
}

// Close implements fs.File. A Read that blocks returns.
func (f *clientFile) Close() error {
	f.closed.Store(true)
	f.cancel()
	return f.resp.Body.Close()
}

func (c *Client) openDir(name string) (fs.File, error) {
	info, err := c.Stat(name)
	if err != nil {
		return nil, err
	}
	entries, err := c.ReadDir(name)
	if err != nil {
		return nil, err
	}
	return &clientDir{name: name, info: info, left: entries}, nil
}

// clientDir is a directory that is being listed.
type clientDir struct {
	name string
	info fs.FileInfo
	left []fs.DirEntry
}

// Stat implements fs.File.
func (d *clientDir) Stat() (fs.FileInfo, error) { return d.info, nil }

// Read implements fs.File: a directory can't be read.
func (d *clientDir) Read([]byte) (int, error) {
	return 0, &fs.PathError{Op: "read", Path: d.name, Err: unix.EISDIR}
}

// Close implements fs.File.
func (d *clientDir) Close() error { return nil }

// ReadDir implements fs.ReadDirFile.
func (d *clientDir) ReadDir(n int) ([]fs.DirEntry, error) {
	if n > 0 && len(d.left) == 0 {
		return nil, io.EOF
	}
	if n <= 0 || n > len(d.left) {
		n = len(d.left)
	}
	entries := d.left[:n]
	d.left = d.left[n:]
	return entries, nil
}
