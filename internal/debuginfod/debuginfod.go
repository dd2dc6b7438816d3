// Package debuginfod fetches files of debug information by build ID from servers that speak debuginfod(8)'s protocol. It is off unless
// DEBUGINFOD_URLS names servers. Files are kept where the C client keeps them, and its environment variables mean the same
// (debuginfod-client-config(7)).
package debuginfod

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Errors that callers tell apart.
var (
	ErrNotFound = errors.New("no server has its debug information")
	ErrTooLarge = errors.New("larger than DEBUGINFOD_MAXSIZE allows")
)

// Client fetches files. A nil Client has none, and fetches none.
type Client struct {
	urls    []string
	dir     string
	stall   time.Duration // how long a server may take for the next progressBytes
	longest time.Duration // for one file; 0 is for ever
	most    int64         // bytes of one file
	http    *http.Client
	refused error // why a word of DEBUGINFOD_URLS is no server that can be asked; nil if all are

	mu  sync.Mutex
	bad map[string]error // servers that have failed, which are not asked again
}

// Limits where the environment says nothing: the C client's, but for the size, which it does not bound.
const (
	defaultStall  = 90 * time.Second
	defaultMost   = 8 << 30
	progressBytes = 100 << 10
	missFor       = 10 * time.Minute // a file that no server has is not asked for again
	mostServers   = 16
)

// FromEnv is the client that the environment asks for, nil if it asks for none.
func FromEnv(getenv func(string) string) *Client {
	urls, refused := servers(getenv("DEBUGINFOD_URLS"))
	dir := cacheDir(getenv)
	if len(urls) == 0 && refused == nil || dir == "" || !isOurs(dir) {
		return nil
	}
	seconds := func(name string, otherwise time.Duration) time.Duration {
		if n, err := strconv.ParseUint(getenv(name), 10, 31); err == nil && n > 0 {
			return time.Duration(n) * time.Second
		}
		return otherwise
	}
	c := &Client{urls: urls[:min(len(urls), mostServers)], refused: refused, bad: map[string]error{}, dir: dir, most: defaultMost, stall: seconds("DEBUGINFOD_TIMEOUT", defaultStall), longest: seconds("DEBUGINFOD_MAXTIME", 0)}
	if n, err := strconv.ParseInt(getenv("DEBUGINFOD_MAXSIZE"), 10, 64); err == nil && n > 0 {
		c.most = n
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DisableCompression = true // a few bytes could stand for very many
	c.http = &http.Client{Transport: transport}
	return c
}

// servers are those of the addresses that can be asked. Words that begin with ima: are no addresses: ima:enforcing wants signatures of what the servers behind it send.
func servers(text string) (urls []string, refused error) {
	enforcing := false
	for _, word := range strings.Fields(text) {
		if policy, ok := strings.CutPrefix(word, "ima:"); ok {
			enforcing = policy == "enforcing"
			continue
		}
		u, err := url.Parse(word)
		switch {
		case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
			refused = fmt.Errorf("DEBUGINFOD_URLS: %q is no http or https address", word)
		case enforcing:
			refused = fmt.Errorf("DEBUGINFOD_URLS: %s is to send signatures (ima:enforcing), which are not checked here, so it is not asked", u.Host)
		default:
			urls = append(urls, word)
		}
	}
	return urls, refused
}

// isOurs tells that a file, or else the first folder above it that is there, belongs to the user that we are: another one could put anything there.
func isOurs(path string) bool {
	for {
		info, err := os.Lstat(path)
		if err == nil && info.Mode()&os.ModeSymlink != 0 {
			info, err = os.Stat(path)
		}
		if err == nil {
			st, ok := info.Sys().(*syscall.Stat_t)
			return ok && int(st.Uid) == os.Geteuid()
		}
		up := filepath.Dir(path)
		if !errors.Is(err, os.ErrNotExist) || up == path {
			return false
		}
		path = up
	}
}

func cacheDir(getenv func(string) string) string {
	if dir := getenv("DEBUGINFOD_CACHE_PATH"); dir != "" {
		return dir
	}
	if dir := getenv("XDG_CACHE_HOME"); dir != "" {
		return filepath.Join(dir, "debuginfod_client")
	}
	if home := getenv("HOME"); home != "" {
		return filepath.Join(home, ".cache", "debuginfod_client")
	}
	return ""
}

// Path is where the debug information of a build ID is once it was fetched; empty if there is no such place, or it is another user's.
func (c *Client) Path(buildID string) string {
	if c == nil || !isID(buildID) {
		return ""
	}
	at := filepath.Join(c.dir, buildID, "debuginfo")
	if !isOurs(filepath.Dir(at)) || !isOurs(at) {
		return ""
	}
	return at
}

// isID tells that the text is a build ID, not a way to another directory.
func isID(id string) bool {
	const longest = 64
	b, err := hex.DecodeString(id)
	return err == nil && len(b) > 0 && len(b) <= longest && id == strings.ToLower(id)
}

// Fetch fetches the debug information of a build ID, unless it is there. told, if not nil, hears how many bytes have come, and of how many; total is 0
// where the server does not say. A file that verify refuses is not kept. Servers are asked one after the other; the error is that of the last, or
// ErrNotFound.
func (c *Client) Fetch(ctx context.Context, buildID string, verify func(path string) error, told func(n, total int64)) error {
	at := c.Path(buildID)
	if at == "" {
		return ErrNotFound
	}
	if info, err := os.Stat(at); err == nil {
		if info.Size() > 0 {
			return nil
		}
		if time.Since(info.ModTime()) < missFor {
			return ErrNotFound
		}
	}
	if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
		return err
	}
	missing := len(c.urls) > 0
	last := c.refused
	for _, server := range c.urls {
		err := c.failed(server)
		if err == nil {
			err = c.from(ctx, server, buildID, at, verify, told)
		}
		if err == nil || ctx.Err() != nil {
			return err
		}
		c.note(server, err)
		missing = missing && errors.Is(err, ErrNotFound)
		last = err
	}
	if missing { // what a server has not answered is asked again the next time
		return errors.Join(last, noteMiss(at))
	}
	return last
}

// failed is why a server is not asked again; nil if it is.
func (c *Client) failed(server string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bad[server]
}

// note remembers a server that does not serve.
func (c *Client) note(server string, err error) {
	var answered *answerError
	if errors.Is(err, ErrNotFound) || errors.Is(err, ErrTooLarge) || errors.As(err, &answered) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bad[server] = err
}

// answerError is what a server has answered, or sent, for one file.
type answerError struct{ err error }

func (e *answerError) Error() string { return e.err.Error() }
func (e *answerError) Unwrap() error { return e.err }

// noteMiss makes the empty file that means that no server has this one. One that has come meanwhile stays, and no link is followed.
func noteMiss(at string) error {
	f, err := os.OpenFile(at, os.O_WRONLY|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o600)
	if err == nil {
		return f.Close()
	}
	if info, lerr := os.Lstat(at); lerr == nil && info.Mode().IsRegular() && info.Size() == 0 {
		now := time.Now()
		return os.Chtimes(at, now, now)
	}
	if errors.Is(err, os.ErrExist) {
		return nil
	}
	return err
}

// from fetches a file from one server.
func (c *Client) from(ctx context.Context, server, buildID, at string, verify func(string) error, told func(n, total int64)) error {
	u, err := url.Parse(server)
	if err != nil {
		return err
	}
	if c.longest > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeoutCause(ctx, c.longest, fmt.Errorf("%s has taken longer than DEBUGINFOD_MAXTIME", u.Host))
		defer stop()
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	watch := time.AfterFunc(c.stall, func() { stop(fmt.Errorf("%s has not answered within %s (DEBUGINFOD_TIMEOUT)", u.Host, c.stall)) })
	defer watch.Stop()
	answer := func(err error) error {
		if why := context.Cause(ctx); why != nil {
			return why
		}
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.JoinPath("buildid", buildID, "debuginfo").String(), nil)
	if err != nil {
		return err
	}
	req.Header.Set("User-Agent", "gokprobe")
	resp, err := c.http.Do(req)
	if err != nil {
		return answer(err)
	}
	defer func() { _ = resp.Body.Close() }()
	switch {
	case resp.StatusCode == http.StatusNotFound:
		return ErrNotFound
	case resp.StatusCode != http.StatusOK:
		return &answerError{fmt.Errorf("%s says %d %s", u.Host, resp.StatusCode, http.StatusText(resp.StatusCode))}
	}
	body := &download{r: resp.Body, total: max(resp.ContentLength, 0), told: told, watch: func() { watch.Reset(c.stall) }}
	return answer(c.store(body, at, verify))
}

// download is an answer that is being read.
type download struct {
	r        io.Reader
	n, total int64
	seen     int64 // when the watch was set
	told     func(n, total int64)
	watch    func()
}

func (d *download) Read(p []byte) (int, error) {
	n, err := d.r.Read(p)
	d.n += int64(n)
	if d.n-d.seen >= progressBytes {
		d.seen = d.n
		d.watch()
	}
	if d.told != nil {
		d.told(d.n, d.total)
	}
	return n, err
}

// store writes what is read to a file, which appears whole and verified, or not at all.
func (c *Client) store(body *download, at string, verify func(string) error) (err error) {
	if body.total > c.most {
		return fmt.Errorf("it has %d bytes, %w", body.total, ErrTooLarge)
	}
	f, err := os.CreateTemp(filepath.Dir(at), "debuginfo.*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	n, err := io.Copy(f, io.LimitReader(body, c.most+1))
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if n > c.most {
		return fmt.Errorf("it is %w", ErrTooLarge)
	}
	if err := verify(f.Name()); err != nil {
		return &answerError{err}
	}
	return os.Rename(f.Name(), at)
}
