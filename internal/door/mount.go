package door

import (
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	gofs "github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// ErrNoFUSE tells that this machine, or container, can't mount a tree; the socket is there
// without it.
var ErrNoFUSE = errors.New("no FUSE here")

// fuseDevice is where the kernel's requests come from.
const fuseDevice = "/dev/fuse"

// fileSystem is the type of our mounts, as /proc/mounts has it.
const fileSystem = "gokprobe"

// MountOptions are how a tree is mounted.
type MountOptions struct {
	// Source stands in the first column of /proc/mounts.
	Source string
	// Tracer is the process that holds the probed one; 0 for this process. A process
	// that it traces can read the mounted files but not write them (EDEADLK): it would
	// wait in the kernel for a write that waits for it.
	Tracer int
	// Log takes sentences about requests that can't be answered. It may be nil.
	Log func(string)
}

// Mounted is a tree that is mounted. Its files belong to this user, and nobody else has access.
type Mounted struct {
	dir  string
	care *caretaker
	once sync.Once
	done chan struct{}
}

// Mount mounts t on the directory dir: as root by mount(2), else by fusermount3. If this process is killed,
// a shell that waits for that takes the mount away; where that is killed too, the next Mount on dir does.
func Mount(t Tree, dir string, o MountOptions) (*Mounted, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if err := available(); err != nil {
		return nil, fmt.Errorf("cannot mount on %s: %w", dir, err)
	}
	if err := mountPoint(dir); err != nil {
		return nil, fmt.Errorf("cannot mount on %s: %w", dir, reason(err))
	}
	care := newCaretaker(dir)
	server, err := mount(t, dir, o)
	if err != nil {
		care.dismiss()
		return nil, fmt.Errorf("cannot mount on %s: %w", dir, err)
	}
	m := &Mounted{dir: dir, care: care, done: make(chan struct{})}
	go func() {
		server.Wait()
		close(m.done)
	}()
	return m, nil
}

func mount(t Tree, dir string, o MountOptions) (*fuse.Server, error) {
	if o.Tracer == 0 {
		o.Tracer = os.Getpid()
	}
	out := io.Discard
	if o.Log != nil {
		out = logWriter(o.Log)
	}
	var never time.Duration // files come and go, and their contents are made when they are read
	options := &gofs.Options{
		EntryTimeout: &never, AttrTimeout: &never, NegativeTimeout: &never,
		UID: uint32(os.Geteuid()), GID: uint32(os.Getegid()), NullPermissions: true,
		MountOptions: fuse.MountOptions{
			Name: fileSystem, FsName: o.Source, Options: []string{"default_permissions"},
			MaxWrite: MaxWrite, DisableXAttrs: true, Logger: log.New(out, "", 0),
			ExtraCapabilities: fuse.CAP_ATOMIC_O_TRUNC,
			DirectMountStrict: os.Geteuid() == 0,
		},
	}
	root := &node{site: &site{tree: func() Tree { return t }, tracer: o.Tracer, began: time.Now()}, name: "."}
	if !options.DirectMountStrict {
		return byHelper(dir, root, options)
	}
	server, err := alone(dir, root, options)
	if errors.Is(err, unix.EPERM) && helper() != "" { // root of a container
		return byHelper(dir, root, options)
	}
	return server, err
}

// alone mounts by mount(2) while this process starts no program. go-fuse opens the
// device, and a file of the new mount, so that programs would inherit both. A process
// that has the device keeps the mount alive after our end. A process that closes a file
// of the mount, if only by exiting, waits for an answer (fuse_flush in fs/fuse/file.c);
// if it has the device itself, it waits for ever. So syscall.ForkLock is held; nothing
// in a direct mount starts a program or takes the lock again.
func alone(dir string, root gofs.InodeEmbedder, options *gofs.Options) (*fuse.Server, error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	server, err := gofs.Mount(dir, root, options)
	keepFromChildren()
	return server, err
}

// byHelper mounts by fusermount3, which is a program itself; its device is closed in others from the beginning but for
// the moment between its arrival and that mark.
func byHelper(dir string, root gofs.InodeEmbedder, options *gofs.Options) (*fuse.Server, error) {
	options.DirectMountStrict = false
	server, err := gofs.Mount(dir, root, options)
	keepFromChildren()
	return server, err
}

// logWriter passes a logger's lines on as sentences.
type logWriter func(string)

func (w logWriter) Write(p []byte) (int, error) {
	w("mounted files: " + strings.TrimSpace(string(p)))
	return len(p), nil
}

// noMount ends errors: it tells how to use the files without a mount.
const noMount = "; gokprobe debugfs ls, cat and write need no mount"

// available tells whether a file system can be mounted at all.
func available() error {
	fd, err := unix.Open(fuseDevice, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("%w: %s: %w%s", ErrNoFUSE, fuseDevice, err, noMount)
	}
	_ = unix.Close(fd)
	if os.Geteuid() != 0 && helper() == "" {
		return fmt.Errorf("%w: without root it takes fusermount3, which is not installed%s", ErrNoFUSE, noMount)
	}
	return nil
}

// helper is the program that mounts for users, or empty.
func helper() string {
	for _, name := range []string{"fusermount3", "fusermount"} {
		if file, err := exec.LookPath(name); err == nil {
			return file
		}
	}
	return ""
}

// mountPoint makes sure that dir can be mounted on.
func mountPoint(dir string) error {
	fi, err := os.Stat(dir)
	if errors.Is(err, unix.ENOTCONN) && stale(dir) {
		if err := detach(dir); err != nil {
			return err
		}
		fi, err = os.Stat(dir)
	}
	if err != nil {
		return err
	}
	if !fi.IsDir() {
		return unix.ENOTDIR
	}
	return nil
}

// stale reports whether a gokprobe's file system is mounted on dir.
func stale(dir string) bool {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return false
	}
	return strings.Contains(string(mounts), " "+escapeMount(dir)+" fuse."+fileSystem+" ")
}

// escapeMount writes a directory as /proc/mounts does (mangle in fs/proc_namespace.c).
func escapeMount(dir string) string {
	return strings.NewReplacer("\\", `\134`, " ", `\040`, "\t", `\011`, "\n", `\012`, "#", `\043`).Replace(dir)
}

// detach takes the mount away from dir even if it is in use.
func detach(dir string) error {
	err := unix.Unmount(dir, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	if err == nil {
		return nil
	}
	if program := helper(); program != "" {
		if out, helperErr := exec.Command(program, "-u", "-z", dir).CombinedOutput(); helperErr != nil {
			return fmt.Errorf("%w: %s", helperErr, strings.TrimSpace(string(out)))
		}
		return nil
	}
	return err
}

// Dir is where the tree is mounted.
func (m *Mounted) Dir() string { return m.dir }

// Caretaker is the process that takes the mount away if this one is killed, 0 if there is none.
func (m *Mounted) Caretaker() int {
	if m.care == nil {
		return 0
	}
	return m.care.cmd.Process.Pid
}

// Done is closed when the tree is not mounted any more, no matter who unmounted it.
func (m *Mounted) Done() <-chan struct{} { return m.done }

// farewell is how long Close waits for processes that have files open.
const farewell = time.Second

// Close unmounts. The mount vanishes at once; where files are still open or somebody's
// current directory is there, it waits a second for them to be closed, so that readers
// find the end of what they read. Files that stay open answer ENOTCONN when this
// process has ended. For readers of trace_pipe to end, close the tree first. A second
// call does nothing.
func (m *Mounted) Close() error {
	var err error
	m.once.Do(func() {
		err = m.unmount()
		m.care.dismiss()
		if err != nil {
			return
		}
		select {
		case <-m.done:
		case <-time.After(farewell):
		}
	})
	return err
}

func (m *Mounted) unmount() error {
	if m.over() {
		return nil
	}
	err := detach(m.dir)
	if err == nil || m.over() { // somebody may have been faster
		return nil
	}
	return fmt.Errorf("cannot unmount %s: %w", m.dir, err)
}

// over tells that the mount has ended.
func (m *Mounted) over() bool {
	select {
	case <-m.done:
		return true
	default:
		return false
	}
}
