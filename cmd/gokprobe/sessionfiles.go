package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/gokprobe/gokprobe/debugfs"
	"github.com/gokprobe/gokprobe/expr/caret"
	"github.com/gokprobe/gokprobe/internal/door"
	"github.com/gokprobe/gokprobe/kprobes"
)

// sessionFiles are a session as the kernel's files, and the ways to them.
type sessionFiles struct {
	tree   *debugfs.Tree
	socket *door.Server  // nil if there is none
	mount  *door.Mounted // nil if it was not asked for
}

// openFiles serves the session's files, for "gokprobe debugfs" and, if the user wants it, on a directory, with the events that the
// user wants in them. Only what was asked for can fail: whoever needs no files shall not miss a socket.
func (w *work) openFiles(ctx context.Context) error {
	f := newFiles(w.std, w.sess)
	w.files = f
	if len(w.req.events) > 0 {
		if err := w.sess.Symbols().ReadyAll(ctx); err != nil {
			return err
		}
	}
	if err := f.tree.Boot(w.req.events); err != nil {
		return eventsError(err)
	}
	if w.req.mount == "" {
		return nil
	}
	var err error
	f.mount, err = door.Mount(f.tree, w.req.mount, mountOptions(w.std, w.sess.PID(), 0))
	return err
}

// newFiles serves a session's files on a socket, if it can.
func newFiles(std stdio, sess *kprobes.Session) *sessionFiles {
	f := &sessionFiles{tree: debugfs.New(sess, debugfs.Options{Log: func(text string) {
		for line := range strings.Lines(text) {
			std.warn("%s", strings.TrimSuffix(line, "\n"))
		}
	}})}
	var err error
	if f.socket, err = door.Listen(sess.PID(), f.tree); err != nil {
		std.warn("gokprobe debugfs won't find this session: %v", err)
	}
	return f
}

// eventsError is why -kprobe-event can't be placed, with a caret where there is one.
func eventsError(err error) error {
	var e *caret.Error
	if errors.As(err, &e) {
		err = &caretError{"-kprobe-event", e}
	}
	return &classed{errPlace, err}
}

// mountOptions are those for the files of the session that holds process pid; tracer 0 is this process.
func mountOptions(std stdio, pid, tracer int) door.MountOptions {
	return door.MountOptions{
		Source: fmt.Sprintf("gokprobe-%d", pid), Tracer: tracer,
		Log: func(s string) { std.warn("%s", s) },
	}
}

// close takes all ways to the files away. Readers that wait come to an end.
func (f *sessionFiles) close() error {
	if f == nil {
		return nil
	}
	errs := []error{f.tree.Close()}
	if f.socket != nil {
		errs = append(errs, f.socket.Close())
	}
	if f.mount != nil {
		errs = append(errs, f.mount.Close())
	}
	return errors.Join(errs...)
}
