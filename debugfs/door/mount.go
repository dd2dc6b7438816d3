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
	"time"

	gofs "github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// ErrNoFUSE tells that this machine, or container, can't mount a tree; the socket is there
// without it.
var ErrNoFUSE = errors.New("no FUSE here")

// fileSystem is the type of our mounts, as /proc/mounts has it.
const fileSystem = "gokprobe"

// MountOptions are how a tree is mounted.
type MountOptions struct {
	// Source stands in the first column of /proc/mounts.
	Source string
	// Tracer is the process that holds the probed one; 0 for this process. What it traces can read
	// the mounted files but write none (EDEADLK), since it would wait in the kernel for a
	// write that waits for it.
	Tracer int
	// Log takes sentences about what can't be answered. It may be nil.
	Log func(string)
}

// Mounted is a tree that is mounted. Its files belong to this user, and nobody else has access.
type Mounted struct {
	server *fuse.Server
	dir    string
	done   chan struct{}
}

// Mount mounts t on the directory dir: as root by mount(2), else by fusermount3. A mount of ours that a
// killed process has left there is removed first.
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
	server, err := mount(t, dir, o)
	if err != nil {
		return nil, fmt.Errorf("cannot mount on %s: %w", dir, err)
	}
	m := &Mounted{server: server, dir: dir, done: make(chan struct{})}
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
	root := &node{site: &site{tree: t, tracer: o.Tracer, began: time.Now()}, name: "."}
	server, err := gofs.Mount(dir, root, options)
	if options.DirectMountStrict && errors.Is(err, unix.EPERM) && helper() != "" { // root of a container
		options.DirectMountStrict = false
		server, err = gofs.Mount(dir, root, options)
	}
	return server, err
}

// logWriter passes a logger's lines on as sentences.
type logWriter func(string)

func (w logWriter) Write(p []byte) (int, error) {
	w("mounted files: " + strings.TrimSpace(string(p)))
	return len(p), nil
}

// available tells whether a file system can be mounted at all.
func available() error {
	const device = "/dev/fuse"
	fd, err := unix.Open(device, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("%w: %s: %w; gokprobe debugfs ls, cat and write need none", ErrNoFUSE, device, err)
	}
	_ = unix.Close(fd)
	if os.Geteuid() != 0 && helper() == "" {
		return fmt.Errorf("%w: without root it takes fusermount3, which is not installed", ErrNoFUSE)
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

// stale tells that what is mounted on dir is ours.
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

// Done is closed when the tree is mounted no more, whoever unmounted it.
func (m *Mounted) Done() <-chan struct{} { return m.done }

// Close unmounts. Where files are still open or somebody's current directory is there, the
// mount vanishes at once and those files answer ENOTCONN when this process has ended; for readers of
// trace_pipe to end, close the tree first.
func (m *Mounted) Close() error {
	select {
	case <-m.done:
		return nil
	default:
	}
	if err := detach(m.dir); err != nil {
		select {
		case <-m.done: // somebody was faster
			return nil
		default:
		}
		return fmt.Errorf("cannot unmount %s: %w", m.dir, err)
	}
	return nil
}
