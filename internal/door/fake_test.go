package door

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"
	"testing/fstest"

	"golang.org/x/sys/unix"
)

// fakeTree is a few files in memory, with the manners of the kernel's:
//
//	events/one/enable  takes 0 or 1, else EINVAL
//	kprobe_events      collects lines; truncation empties it, but is EBUSY while events/one/enable is 1
//	list               can only be read (mode 0400)
//	trace_pipe         is what say was called with
//	broken             fails in the middle of a read
type fakeTree struct {
	mu     sync.Mutex
	events string
	enable string
	writes int
	pipe   *fakePipe
	gone   bool // the file events/one/enable
	stuck  *trap
}

func newFakeTree() *fakeTree { return &fakeTree{enable: "0\n", pipe: newFakePipe()} }

// set sets what two of the files hold.
func (t *fakeTree) set(events, enable string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.events, t.enable = events, enable
}

// get returns what they hold, and how many writes there were.
func (t *fakeTree) get() (events, enable string, writes int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.events, t.enable, t.writes
}

// files are what the tree holds now.
func (t *fakeTree) files() fstest.MapFS {
	t.mu.Lock()
	defer t.mu.Unlock()
	m := fstest.MapFS{
		"kprobe_events": {Data: []byte(t.events), Mode: 0o640},
		"list":          {Data: []byte("0000000000401000  k  main+0x0    \n"), Mode: 0o400},
		"trace_pipe":    {Mode: 0o444},
		"broken":        {Mode: 0o444},
		"a b/ü#%41?":    {Data: []byte("odd\n"), Mode: 0o444},
		"empty":         {Mode: fs.ModeDir | 0o755},
	}
	if !t.gone {
		m["events/one/enable"] = &fstest.MapFile{Data: []byte(t.enable), Mode: 0o640}
	}
	return m
}

// bare hides that files have sizes, as debugfs does.
type bare struct{ fs.FileInfo }

func (b bare) Size() int64                { return 0 }
func (b bare) Info() (fs.FileInfo, error) { return b, nil }
func (b bare) Type() fs.FileMode          { return b.Mode().Type() }

type bareFile struct{ fs.File }

func (f bareFile) Stat() (fs.FileInfo, error) {
	info, err := f.File.Stat()
	if err != nil {
		return nil, err
	}
	return bare{info}, nil
}

// trap holds those who ask for list.
type trap struct{ came, goOn chan struct{} }

// setTrap makes the tree stuck.
func (t *fakeTree) setTrap() *trap {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stuck = &trap{make(chan struct{}), make(chan struct{})}
	return t.stuck
}

// wait waits where the tree is stuck.
func (t *fakeTree) wait(name string) {
	t.mu.Lock()
	trap := t.stuck
	t.mu.Unlock()
	if trap != nil && name == "list" {
		select {
		case trap.came <- struct{}{}:
			<-trap.goOn
		case <-trap.goOn: // closed
		}
	}
}

func (t *fakeTree) Stat(name string) (fs.FileInfo, error) {
	t.wait(name)
	info, err := fs.Stat(t.files(), name)
	if err != nil {
		return nil, err
	}
	return bare{info}, nil
}

func (t *fakeTree) ReadDir(name string) ([]fs.DirEntry, error) {
	entries, err := fs.ReadDir(t.files(), name)
	for i, e := range entries {
		info, _ := e.Info()
		entries[i] = bare{info}
	}
	return entries, err
}

func (t *fakeTree) Open(name string) (fs.File, error) {
	t.wait(name)
	f, err := t.files().Open(name)
	switch {
	case err != nil:
		return nil, err
	case name == "trace_pipe":
		return &fakePipeFile{bareFile: bareFile{f}, pipe: t.pipe}, nil
	case name == "broken":
		return &brokenFile{File: bareFile{f}}, nil
	}
	if info, err := f.Stat(); err == nil && info.IsDir() {
		return f, nil
	}
	return bareFile{f}, nil
}

func (t *fakeTree) Truncate(name string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case name != "kprobe_events":
		return nil
	case t.enable == "1\n":
		return &fs.PathError{Op: "truncate", Path: name, Err: unix.EBUSY}
	}
	t.events = ""
	return nil
}

// byMethod matches EILSEQ without being one.
type byMethod struct{}

func (byMethod) Error() string        { return "not on a boundary" }
func (byMethod) Is(target error) bool { return target == unix.EILSEQ }

func (t *fakeTree) Write(name string, p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.writes++
	fail := func(err error) (int, error) { return 0, &fs.PathError{Op: "write", Path: name, Err: err} }
	switch path.Base(name) {
	case "kprobe_events":
		return t.define(p)
	case "enable":
		if !slices.Contains([]string{"0\n", "1\n"}, string(p)) {
			return fail(unix.EINVAL)
		}
		t.enable = string(p)
		return len(p), nil
	}
	return fail(unix.EPERM)
}

// define takes lines until one is wrong.
func (t *fakeTree) define(p []byte) (int, error) {
	done := 0
	for line := range bytes.Lines(p) {
		switch {
		case len(line) > 4096:
			return done, fmt.Errorf("the line is too long: %w", unix.EINVAL)
		case bytes.IndexByte(line, 0) >= 0:
			return done, byMethod{}
		}
		t.events += strings.TrimSuffix(string(line), "\n") + "\n"
		done += len(line)
	}
	return done, nil
}

// fakePipe is a buffer that several read.
type fakePipe struct {
	mu    sync.Mutex
	more  *sync.Cond
	buf   []byte
	ended bool
	open  int
}

func newFakePipe() *fakePipe {
	p := &fakePipe{}
	p.more = sync.NewCond(&p.mu)
	return p
}

func (p *fakePipe) say(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.buf = append(p.buf, text...)
	p.more.Broadcast()
}

// end ends all readers, as the end of a session does.
func (p *fakePipe) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	p.more.Broadcast()
}

// waitReaders returns when n readers have the pipe open.
func (p *fakePipe) waitReaders(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.open != n {
		p.more.Wait()
	}
}

type fakePipeFile struct {
	bareFile
	pipe   *fakePipe
	begun  bool
	closed bool
}

func (f *fakePipeFile) Read(b []byte) (int, error) {
	p := f.pipe
	p.mu.Lock()
	defer p.mu.Unlock()
	if !f.begun && !f.closed {
		f.begun = true
		p.open++
		p.more.Broadcast()
	}
	for len(p.buf) == 0 && !p.ended && !f.closed {
		p.more.Wait()
	}
	switch {
	case f.closed:
		return 0, fs.ErrClosed
	case len(p.buf) == 0:
		return 0, io.EOF
	}
	n := copy(b, p.buf)
	p.buf = p.buf[n:]
	return n, nil
}

func (f *fakePipeFile) Close() error {
	p := f.pipe
	p.mu.Lock()
	defer p.mu.Unlock()
	if f.closed {
		return errors.New("closed twice")
	}
	f.closed = true
	if f.begun {
		p.open--
	}
	p.more.Broadcast()
	return nil
}

type brokenFile struct {
	fs.File
	read bool
}

func (f *brokenFile) Read(b []byte) (int, error) {
	if f.read {
		return 0, &fs.PathError{Op: "read", Path: "broken", Err: unix.EOVERFLOW}
	}
	f.read = true
	return copy(b, "half"), nil
}
