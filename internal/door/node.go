package door

import (
	"context"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"path"
	"syscall"
	"time"

	gofs "github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/internal/procfs"
)

// site is what all nodes of one Tree in a mount share.
type site struct {
	tree   func() Tree
	id     uint64 // 0 but for a folder of Folders
	tracer int
	began  time.Time // the age of files that don't know theirs
}

// waitsForUs tells that the caller is traced by the process that holds the session: a write could wait for
// the caller to stop, which it can't do before the write is answered.
func (s *site) waitsForUs(ctx context.Context) bool {
	caller, ok := fuse.FromContext(ctx)
	if !ok {
		return false
	}
	st, err := procfs.ReadStatus(int(caller.Pid), 0)
	if err != nil || st.TracerPid == 0 {
		return false
	}
	tracer, err := procfs.ReadStatus(st.TracerPid, 0)
	return err == nil && tracer.Tgid == s.tracer
}

// await returns what f does, or EINTR as soon as the caller is interrupted and is a probed thread: that has
// to be let go then, since it can't stop before it has its answer, and f may wait for it to stop.
func await[T any](ctx context.Context, s *site, f func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		value, err := f()
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
	}
	if s.waitsForUs(ctx) {
		var none T
		return none, unix.EINTR
	}
	r := <-done // others are not told of their signals here: stat(2) is not known to fail so
	return r.value, r.err
}

// stat describes a file.
func (s *site) stat(ctx context.Context, name string) (fs.FileInfo, error) {
	return await(ctx, s, func() (fs.FileInfo, error) { return fs.Stat(s.tree(), name) })
}

// node is a file or directory of the mounted tree. It holds nothing but its name.
type node struct {
	gofs.Inode
	*site
	name string
}

var (
	_ gofs.NodeLookuper  = (*node)(nil)
	_ gofs.NodeGetattrer = (*node)(nil)
	_ gofs.NodeSetattrer = (*node)(nil)
	_ gofs.NodeReaddirer = (*node)(nil)
	_ gofs.NodeOpener    = (*node)(nil)
	_ gofs.NodeCreater   = (*node)(nil)
	_ gofs.NodeMkdirer   = (*node)(nil)
	_ gofs.NodeMknoder   = (*node)(nil)
	_ gofs.NodeUnlinker  = (*node)(nil)
	_ gofs.NodeRmdirer   = (*node)(nil)
	_ gofs.NodeRenamer   = (*node)(nil)
	_ gofs.NodeLinker    = (*node)(nil)
	_ gofs.NodeSymlinker = (*node)(nil)
	_ gofs.FileReader    = (*handle)(nil)
	_ gofs.FileWriter    = (*handle)(nil)
	_ gofs.FileReleaser  = (*handle)(nil)
)

// step is where name leads in a directory: to another place of its Tree, or into another Tree. The site is nil if there is no such Tree.
func (n *node) step(name string) (*site, string) {
	folders, ok := n.tree().(*Folders)
	if !ok {
		return n.site, path.Join(n.name, name)
	}
	d := folders.folder(name)
	if d == nil {
		return nil, ""
	}
	return &site{tree: d.now, id: d.id, tracer: n.tracer, began: d.began}, "."
}

// stableAttr identifies a file for as long as the mount lives.
func (s *site) stableAttr(name string, mode fs.FileMode) gofs.StableAttr {
	h := fnv.New64a()
	if s.id != 0 {
		_, _ = fmt.Fprintf(h, "%d/", s.id)
	}
	_, _ = h.Write([]byte(name))
	attr := gofs.StableAttr{Mode: unix.S_IFREG, Ino: h.Sum64()>>1 | 2} // 0 and 1 are taken
	if mode.IsDir() {
		attr.Mode = unix.S_IFDIR
		attr.Ino ^= 1
	}
	return attr
}

// fill describes a file to the kernel.
func (s *site) fill(attr *fuse.Attr, info fs.FileInfo) {
	attr.Mode = uint32(info.Mode().Perm())
	attr.Size = uint64(max(info.Size(), 0))
	attr.Nlink = 1
	attr.Blksize = uint32(os.Getpagesize())
	t := info.ModTime()
	if t.IsZero() {
		t = s.began
	}
	attr.SetTimes(&t, &t, &t)
}

// Lookup finds a file of a directory.
func (n *node) Lookup(ctx context.Context, name string, out *fuse.EntryOut) (*gofs.Inode, syscall.Errno) {
	at, full := n.step(name)
	if at == nil {
		return nil, unix.ENOENT
	}
	info, err := at.stat(ctx, full)
	if err != nil {
		return nil, Errno(err)
	}
	at.fill(&out.Attr, info)
	return n.NewInode(ctx, &node{site: at, name: full}, at.stableAttr(full, info.Mode())), 0
}

// Getattr is stat(2).
func (n *node) Getattr(ctx context.Context, _ gofs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	info, err := n.stat(ctx, n.name)
	if err != nil {
		return Errno(err)
	}
	n.fill(&out.Attr, info)
	return 0
}

// Setattr is chmod(2) and the like, which are refused, and truncate(2) and utimes(2), which have no effect,
// as in tracefs: it is opening with O_TRUNC that has one.
func (n *node) Setattr(ctx context.Context, f gofs.FileHandle, in *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	if in.Valid&(fuse.FATTR_MODE|fuse.FATTR_UID|fuse.FATTR_GID) != 0 {
		return unix.EPERM
	}
	return n.Getattr(ctx, f, out)
}

func (s *site) entry(name, full string, mode fs.FileMode) fuse.DirEntry {
	attr := s.stableAttr(full, mode)
	return fuse.DirEntry{Name: name, Mode: attr.Mode, Ino: attr.Ino}
}

// Readdir lists a directory.
func (n *node) Readdir(ctx context.Context) (gofs.DirStream, syscall.Errno) {
	entries, err := await(ctx, n.site, func() ([]fs.DirEntry, error) { return readDir(n.tree(), n.name) })
	if err != nil {
		return nil, Errno(err)
	}
	list := []fuse.DirEntry{n.entry(".", n.name, fs.ModeDir), n.entry("..", path.Dir(n.name), fs.ModeDir)}
	for _, e := range entries {
		if at, full := n.step(e.Name()); at != nil {
			list = append(list, at.entry(e.Name(), full, e.Type()))
		}
	}
	return gofs.NewListDirStream(list), 0
}

// Open is open(2). The kernel has checked the permissions.
func (n *node) Open(ctx context.Context, flags uint32) (gofs.FileHandle, uint32, syscall.Errno) {
	h := &handle{site: n.site, name: n.name, nonblock: flags&unix.O_NONBLOCK != 0, turn: make(chan struct{}, 1)}
	writes := flags&unix.O_ACCMODE != unix.O_RDONLY
	if writes && flags&unix.O_TRUNC != 0 {
		if n.waitsForUs(ctx) {
			return nil, 0, unix.EDEADLK
		}
		if err := n.tree().Truncate(n.name); err != nil {
			return nil, 0, Errno(err)
		}
	}
	if flags&unix.O_ACCMODE != unix.O_WRONLY {
		if err := h.open(ctx); err != nil {
			_ = h.Release(ctx)
			return nil, 0, Errno(err)
		}
	}
	return h, fuse.FOPEN_DIRECT_IO, 0 // sizes say nothing
}

// Nothing is created, removed or renamed. The errnos are the same as for file systems
// without such operations (the kernel's fs/namei.c).

// Create is refused.
func (n *node) Create(context.Context, string, uint32, uint32, *fuse.EntryOut) (*gofs.Inode, gofs.FileHandle, uint32, syscall.Errno) {
	return nil, nil, 0, unix.EACCES
}

// Mkdir is refused.
func (n *node) Mkdir(context.Context, string, uint32, *fuse.EntryOut) (*gofs.Inode, syscall.Errno) {
	return nil, unix.EPERM
}

// Mknod is refused.
func (n *node) Mknod(context.Context, string, uint32, uint32, *fuse.EntryOut) (*gofs.Inode, syscall.Errno) {
	return nil, unix.EPERM
}

// Unlink is refused.
func (n *node) Unlink(context.Context, string) syscall.Errno { return unix.EPERM }

// Rmdir is refused.
func (n *node) Rmdir(context.Context, string) syscall.Errno { return unix.EPERM }

// Rename is refused.
func (n *node) Rename(context.Context, string, gofs.InodeEmbedder, string, uint32) syscall.Errno {
	return unix.EPERM
}

// Link is refused.
func (n *node) Link(context.Context, gofs.InodeEmbedder, string, *fuse.EntryOut) (*gofs.Inode, syscall.Errno) {
	return nil, unix.EPERM
}

// Symlink is refused.
func (n *node) Symlink(context.Context, string, string, *fuse.EntryOut) (*gofs.Inode, syscall.Errno) {
	return nil, unix.EPERM
}
