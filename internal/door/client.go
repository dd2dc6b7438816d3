package door

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/internal/procfs"
)

// ErrNoSession tells that no session that this user may use holds the process.
var ErrNoSession = errors.New("no session of yours holds the process")

// Client is the tree of a session of another process. Errors are *RemoteErrors, in a
// *fs.PathError, or errors of the connection, which usually match EIO or ECONNREFUSED.
type Client struct {
	dir    *dir
	socket string // a name by dir
	http   *http.Client
	server atomic.Int64 // process ID of the other end
	closed sync.Once
}

// Dial finds the session that holds process pid: one of this user's or, for root, anybody's.
func Dial(pid int) (*Client, error) {
	var unsafe error
	for _, uid := range possibleOwners(pid) {
		for _, name := range socketDirs(uid) {
			d, err := openPrivate(name, uid)
			if err != nil {
				if !errors.Is(err, fs.ErrNotExist) {
					unsafe = err
				}
				continue
			}
			c := newClient(d, d.path(socketFile(pid)))
			if err = c.ping(); err == nil {
				return c, nil
			}
			_ = c.Close()
			if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ECONNREFUSED) {
				return nil, fmt.Errorf("process %d: %w", pid, err)
			}
		}
	}
	if unsafe != nil {
		return nil, fmt.Errorf("process %d: %w (%w)", pid, ErrNoSession, unsafe)
	}
	return nil, fmt.Errorf("process %d: %w", pid, ErrNoSession)
}

// possibleOwners are the users whose sessions this one may use: its own and, for root, that
// of the process's tracer.
func possibleOwners(pid int) []int {
	self := os.Geteuid()
	owners := []int{self}
	if self != 0 {
		return owners
	}
	if st, err := procfs.ReadStatus(pid, 0); err == nil && st.TracerPid != 0 {
		if tracer, err := procfs.ReadStatus(st.TracerPid, 0); err == nil && tracer.UIDs[1] != self {
			owners = append(owners, tracer.UIDs[1])
		}
	}
	return owners
}

// newClient makes a client for a socket in d, which it closes with itself; nil if the name does not need it.
func newClient(d *dir, socket string) *Client {
	c := &Client{dir: d, socket: socket}
	c.http = &http.Client{Transport: &http.Transport{
		DisableCompression: true,
		DialContext:        func(ctx context.Context, _, _ string) (net.Conn, error) { return c.connect(ctx) },
	}}
	return c
}

func (c *Client) connect(ctx context.Context) (*net.UnixConn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", c.socket)
	if err != nil {
		return nil, err
	}
	u := conn.(*net.UnixConn) // of a Unix address
	if cred, err := peer(u); err == nil {
		c.server.Store(int64(cred.Pid))
	}
	return u, nil
}

// ping tells whether somebody answers.
func (c *Client) ping() error {
	_, err := c.Stat(".")
	return err
}

// Tracer is the process ID of the session's process.
func (c *Client) Tracer() int { return int(c.server.Load()) }

// Close lets go of idle connections. Files that are open stay so.
func (c *Client) Close() error {
	c.http.CloseIdleConnections()
	c.closed.Do(func() {
		if c.dir != nil {
			c.dir.close()
		}
	})
	return nil
}

// Wait returns when the session has ended, or ctx.
func (c *Client) Wait(ctx context.Context) {
	conn, err := c.connect(ctx)
	if err != nil {
		return
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	// The server closes idle connections first.
	if _, err := io.WriteString(conn, "HEAD / HTTP/1.1\r\nHost: session\r\n\r\n"); err == nil {
		_, _ = io.Copy(io.Discard, conn)
	}
}

// do sends a request. The caller closes the answer's body, which is no error's.
func (c *Client) do(ctx context.Context, method, op, name, suffix string, body []byte) (*http.Response, error) {
	fail := func(err error) (*http.Response, error) { return nil, &fs.PathError{Op: op, Path: name, Err: err} }
	if !fs.ValidPath(name) {
		return fail(fs.ErrInvalid)
	}
	u := url.URL{Scheme: "http", Host: "session", Path: path.Join("/", name) + suffix}
	req, err := http.NewRequestWithContext(ctx, method, u.String(), bytes.NewReader(body))
	if err != nil {
		return fail(err)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		var urlErr *url.Error
		if errors.As(err, &urlErr) {
			err = urlErr.Err
		}
		return fail(err)
	}
	if resp.StatusCode >= http.StatusBadRequest {
		defer resp.Body.Close()
		return fail(remoteError(resp))
	}
	return resp, nil
}

// maxSentence bounds the length of an error's sentence, in bytes; the rest is not read.
const maxSentence = 8 << 10

func remoteError(resp *http.Response) error {
	text, _ := io.ReadAll(io.LimitReader(resp.Body, maxSentence))
	sentence := strings.TrimSpace(string(text))
	errno := errnoNamed(resp.Header.Get(headerErrno))
	if sentence == "" { // an answer to HEAD has no body
		sentence = errno.Error()
	}
	return &RemoteError{Text: sentence, Errno: errno}
}

// Stat implements fs.StatFS.
func (c *Client) Stat(name string) (fs.FileInfo, error) {
	resp, err := c.do(context.Background(), http.MethodHead, "stat", name, "", nil)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	e, err := decodeEntry(resp.Header)
	if err != nil {
		return nil, &fs.PathError{Op: "stat", Path: name, Err: err}
	}
	return e, nil
}

// ReadDir implements fs.ReadDirFS.
func (c *Client) ReadDir(name string) ([]fs.DirEntry, error) {
	suffix := "/"
	if name == "." {
		suffix = ""
	}
	resp, err := c.do(context.Background(), http.MethodGet, "readdir", name, suffix, nil)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var list []entry
	if err := json.NewDecoder(resp.Body).Decode(&list); err != nil {
		return nil, &fs.PathError{Op: "readdir", Path: name, Err: err}
	}
	entries := make([]fs.DirEntry, len(list))
	for i, e := range list {
		entries[i] = e
	}
	return entries, nil
}

// Truncate implements Tree.
func (c *Client) Truncate(name string) error {
	_, err := c.send(http.MethodPut, "truncate", name, nil)
	return err
}

// Write implements Tree.
func (c *Client) Write(name string, p []byte) (int, error) {
	return c.send(http.MethodPost, "write", name, p)
}

func (c *Client) send(method, op, name string, p []byte) (int, error) {
	if len(p) > MaxWrite { // the other end would say so, but might not read on
		return 0, &fs.PathError{Op: op, Path: name, Err: &RemoteError{fmt.Sprintf("more than %d bytes in one write", MaxWrite), unix.E2BIG}}
	}
	resp, err := c.do(context.Background(), method, op, name, "", p)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	n, err := strconv.Atoi(resp.Header.Get(headerWritten))
	if err != nil {
		return 0, &fs.PathError{Op: op, Path: name, Err: fmt.Errorf("the answer does not say how much was written: %w", err)}
	}
	return n, nil
}
