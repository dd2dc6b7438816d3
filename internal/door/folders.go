package door

import (
	"io/fs"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Folders is a Tree whose folders are Trees that come and go. What is open in one that has gone stays with that Tree, even if another
// one comes under its name.
type Folders struct {
	mu    sync.Mutex
	in    map[string]*folder
	count uint64 // of all that have come
}

// folder is one of the Trees.
type folder struct {
	tree  atomic.Pointer[Tree] // nil when it has gone: nodes that the kernel remembers keep no memory
	id    uint64
	began time.Time
}

// Add shows t as the folder name until remove is called; a folder that has the name already goes. Neither waits for anything.
func (f *Folders) Add(name string, t Tree) (remove func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.count++
	d := &folder{id: f.count, began: time.Now()}
	d.tree.Store(&t)
	if f.in == nil {
		f.in = map[string]*folder{}
	}
	f.in[name] = d
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		d.tree.Store(nil)
		if f.in[name] == d {
			delete(f.in, name)
		}
	}
}

// now is the folder's Tree, or one in which nothing is.
func (d *folder) now() Tree {
	if t := d.tree.Load(); t != nil {
		return *t
	}
	return goneTree{}
}

func (f *Folders) folder(name string) *folder {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.in[name]
}

// Stat implements fs.StatFS.
func (f *Folders) Stat(name string) (fs.FileInfo, error) {
	if name == "." {
		return folderInfo(name), nil
	}
	return nil, &fs.PathError{Op: "stat", Path: name, Err: unix.ENOENT}
}

// ReadDir implements fs.ReadDirFS.
func (f *Folders) ReadDir(string) (all []fs.DirEntry, _ error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(f.in)) {
		all = append(all, fs.FileInfoToDirEntry(folderInfo(name)))
	}
	return all, nil
}

// Open fails: there are no files among the folders.
func (f *Folders) Open(name string) (fs.File, error) {
	return nil, &fs.PathError{Op: "open", Path: name, Err: unix.ENOENT}
}

// Truncate fails, as Open does.
func (f *Folders) Truncate(name string) error {
	return &fs.PathError{Op: "truncate", Path: name, Err: unix.ENOENT}
}

// Write fails, as Open does.
func (f *Folders) Write(name string, _ []byte) (int, error) {
	return 0, &fs.PathError{Op: "write", Path: name, Err: unix.ENOENT}
}

// folderInfo describes the folder of that name.
type folderInfo string

func (i folderInfo) Name() string     { return string(i) }
func (folderInfo) Size() int64        { return 0 }
func (folderInfo) Mode() fs.FileMode  { return fs.ModeDir | 0o755 }
func (folderInfo) ModTime() time.Time { return time.Time{} }
func (folderInfo) IsDir() bool        { return true }
func (folderInfo) Sys() any           { return nil }

// goneTree is what is left of a Tree that has gone. Its errors are those of /proc/PID when the process has.
type goneTree struct{}

func (goneTree) Open(name string) (fs.File, error) {
	return nil, &fs.PathError{Op: "open", Path: name, Err: unix.ESRCH}
}

func (goneTree) Truncate(name string) error {
	return &fs.PathError{Op: "truncate", Path: name, Err: unix.ESRCH}
}

func (goneTree) Write(name string, _ []byte) (int, error) {
	return 0, &fs.PathError{Op: "write", Path: name, Err: unix.ESRCH}
}
