package door

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net"
	"net/http"
	"os"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Server serves a tree on a socket: HTTP/1.1, with
//
//	GET  /file   its content, as it comes; a trailer X-Errno if it ends in an error
//	GET  /dir/   a listing: JSON, [{"name":…,"mode":…,"size":…}, …]
//	HEAD /name   X-Info: that entry alone
//	PUT  /file   Truncate, then Write if there is a body
//	POST /file   Write
//
// An error has a status of 400 or above, the header X-Errno: EBUSY, and a sentence for a body.
// Only the user that runs the server is let in, and root.
type Server struct {
	http     *http.Server
	listener net.Listener
	served   chan struct{}
	name     string
	once     sync.Once
}

// Listen serves t as the session that holds process pid, until Close.
func Listen(pid int, t Tree) (*Server, error) {
	l, err := listen(pid)
	if err != nil {
		return nil, fmt.Errorf("no socket for the session: %w", err)
	}
	return serve(l, t), nil
}

func serve(l *listener, t Tree) *Server {
	s := &Server{listener: l, served: make(chan struct{}), name: l.name()}
	s.http = &http.Server{
		Handler:        guard(handler{t}),
		ConnContext:    rememberPeer,
		MaxHeaderBytes: 64 << 10,
		ErrorLog:       log.New(io.Discard, "", 0), // a client learns of its mistakes by the answer
	}
	go func() {
		defer close(s.served)
		_ = s.http.Serve(l) // ErrServerClosed
	}()
	return s
}

// Name is the socket's file name.
func (s *Server) Name() string { return s.name }

// parting is how long Close waits for readers to take the rest of what they read.
const parting = time.Second

// Close removes the socket and ends all connections. Answers that are on their way are given a
// second; for those of trace_pipe to end, close the tree first. A second call does nothing.
func (s *Server) Close() error {
	var err error
	s.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), parting)
		defer cancel()
		if s.http.Shutdown(ctx) != nil {
			err = s.http.Close()
		}
		<-s.served
	})
	return err
}

type peerKey struct{}

// rememberPeer notes who has connected.
func rememberPeer(ctx context.Context, c net.Conn) context.Context {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return ctx
	}
	if cred, err := peer(u); err == nil {
		return context.WithValue(ctx, peerKey{}, cred)
	}
	return ctx
}

// guard lets in who may be let in.
func guard(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		cred, ok := r.Context().Value(peerKey{}).(*unix.Ucred)
		owner := os.Geteuid()
		if !ok || int(cred.Uid) != owner && cred.Uid != 0 {
			w.Header().Set("Connection", "close")
			fail(w, &RemoteError{fmt.Sprintf("only user %d and root may use this session", owner), unix.EACCES})
			return
		}
		h.ServeHTTP(w, r)
	})
}

// handler serves a tree.
type handler struct{ tree Tree }

func (h handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := path.Clean(strings.TrimLeft(r.URL.Path, "/"))
	listing := strings.HasSuffix(r.URL.Path, "/")
	var err error
	switch {
	case !fs.ValidPath(name):
		err = unix.ENOENT
	case r.Method == http.MethodHead:
		err = h.stat(w, name)
	case r.Method == http.MethodGet && listing:
		err = h.list(w, name)
	case r.Method == http.MethodGet:
		err = h.read(w, r, name)
	case r.Method == http.MethodPut, r.Method == http.MethodPost:
		err = h.write(w, r, name)
	case r.Method == http.MethodDelete:
		err = unix.EPERM // as unlink(2) in tracefs
	default:
		w.Header().Set("Allow", "GET, HEAD, PUT, POST")
		w.WriteHeader(http.StatusMethodNotAllowed)
	}
	if err != nil {
		fail(w, err)
	}
}

// fail answers with an error.
func fail(w http.ResponseWriter, err error) {
	errno := Errno(err)
	w.Header().Set(headerErrno, unix.ErrnoName(errno))
	http.Error(w, oneSentence(err), statusOf(errno))
}

func (h handler) stat(w http.ResponseWriter, name string) error {
	info, err := fs.Stat(h.tree, name)
	if err != nil {
		return err
	}
	w.Header().Set(headerInfo, newEntry(info).encode())
	return nil
}

func (h handler) list(w http.ResponseWriter, name string) error {
	entries, err := readDir(h.tree, name)
	if err != nil {
		return err
	}
	list := []entry{}
	for _, e := range entries {
		if info, err := e.Info(); err == nil { // else it is gone by now
			list = append(list, newEntry(info))
		}
	}
	w.Header().Set("Content-Type", "application/json")
	return json.NewEncoder(w).Encode(list)
}

// readDir lists a directory. A file has ENOTDIR.
func readDir(t Tree, name string) ([]fs.DirEntry, error) {
	info, err := fs.Stat(t, name)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, &fs.PathError{Op: "readdir", Path: name, Err: unix.ENOTDIR}
	}
	return fs.ReadDir(t, name)
}

// read streams a file. The header goes ahead at once: there may be nothing to read for long.
func (h handler) read(w http.ResponseWriter, r *http.Request, name string) error {
	f, err := openFile(h.tree, name)
	if err != nil {
		return err
	}
	closing := sync.OnceValue(f.Close)
	defer closing()
	defer context.AfterFunc(r.Context(), func() { _ = closing() })() // the reader has gone
	info, err := f.Stat()
	if err != nil {
		return err
	}
	w.Header().Set(headerInfo, newEntry(info).encode())
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Trailer", headerErrno+", "+headerError)
	w.WriteHeader(http.StatusOK)
	if err := stream(w, f); err != nil && r.Context().Err() == nil {
		w.Header().Set(headerErrno, unix.ErrnoName(Errno(err)))
		w.Header().Set(headerError, oneSentence(err))
	}
	return nil
}

// openFile opens a file that can be read, so no directory.
func openFile(t Tree, name string) (fs.File, error) {
	f, err := t.Open(name)
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err != nil || info.IsDir() {
		_ = f.Close()
		if err == nil {
			err = &fs.PathError{Op: "read", Path: name, Err: unix.EISDIR}
		}
		return nil, err
	}
	return f, nil
}

// stream copies f to w, each piece at once.
func stream(w http.ResponseWriter, f io.Reader) error {
	flush := http.NewResponseController(w).Flush
	buf := make([]byte, 32<<10)
	for err := flush(); ; err = flush() {
		if err != nil {
			return err
		}
		n, readErr := f.Read(buf)
		if n > 0 {
			if _, err := w.Write(buf[:n]); err != nil {
				return err
			}
		}
		if errors.Is(readErr, io.EOF) {
			return nil
		}
		if readErr != nil {
			return readErr
		}
	}
}

// write has read all of the body before anything changes.
func (h handler) write(w http.ResponseWriter, r *http.Request, name string) error {
	p, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxWrite))
	var tooLong *http.MaxBytesError
	switch {
	case errors.As(err, &tooLong):
		return &RemoteError{fmt.Sprintf("more than %d bytes in one write", MaxWrite), unix.E2BIG}
	case err != nil:
		return err
	}
	if r.Method == http.MethodPut {
		if err := h.tree.Truncate(name); err != nil {
			return err
		}
	}
	n := 0
	if len(p) > 0 {
		n, err = h.tree.Write(name, p)
	}
	w.Header().Set(headerWritten, strconv.Itoa(n))
	if err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
