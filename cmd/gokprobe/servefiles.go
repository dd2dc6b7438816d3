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

// sessionFiles shows a session as files like the kernel's, and serves them.
type sessionFiles struct {
	tree   *debugfs.Tree
	socket *door.Server  // nil if there is none
	mount  *door.Mounted // nil if it was not asked for
}

// openFiles serves the session's files to "gokprobe debugfs", and with -mount on a directory. It
// defines the events of -kprobe-event in them. It fails if the events or the mount fail, for
// which the user has asked. Without a socket it only warns.
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

// eventsError makes the error of -kprobe-event, with a caret if the place of the mistake is
// known.
func eventsError(err error) error {
	var e *caret.Error
	if errors.As(err, &e) {
		err = &caretError{"-kprobe-event", e}
	}
	return &classed{errPlace, err}
}

// mountOptions returns the options to mount the files of the session that holds process pid.
// tracer is the process of that session, 0 for this one.
func mountOptions(std stdio, pid, tracer int) door.MountOptions {
	return door.MountOptions{
		Source: fmt.Sprintf("gokprobe-%d", pid), Tracer: tracer,
		Log: func(s string) { std.warn("%s", s) },
	}
}

// close removes the socket and the mount. Reads that wait for data end.
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
