package main

import (
	"context"
	"errors"
	"fmt"
	"os"
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
	mount  *door.Mounted // of these files alone; nil if there is none
	leave  func()        // takes them out of a mount of several sessions; nil if they are in none
}

// openFiles serves the session's files to "gokprobe debugfs". It defines the events of -kprobe-event in them, and
// fails if they fail, for which the user has asked. Without a socket it only warns.
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
	return nil
}

// mountFiles mounts the files that openFiles has opened, if -mount says where.
func (w *work) mountFiles() (err error) {
	if w.req.mount != "" {
		w.files.mount, err = door.Mount(w.files.tree, w.req.mount, mountOptions(w.std, w.sess.PID(), 0))
	}
	return err
}

// mountFolders mounts a folder for each process, if -mount says where. The shell that waits for our end is none of those that are found.
func (s *several) mountFolders() (err error) {
	if s.req.mount == "" {
		return nil
	}
	if s.mount, err = door.Mount(&s.folders, s.req.mount, mountOptions(s.std, os.Getpid(), 0)); err == nil && s.file != nil {
		s.file.skip(s.mount.Caretaker())
	}
	return err
}

// unmountFolders ends what mountFolders has begun.
func (s *several) unmountFolders() error {
	if s.mount == nil {
		return nil
	}
	return s.mount.Close()
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

// mountOptions returns the options to mount the files of the session that holds process pid, or of all that process pid has.
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
	if f.leave != nil {
		f.leave()
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
