package debugfs

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"syscall"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/debugfs/dynevent"
	"github.com/gokprobe/gokprobe/internal/escape"
	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/internal/targetfs"
	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/symbols"
)

// files opens files as the target sees them.
func (t *Tree) files() *targetfs.Files { return targetfs.Of(procfs.Living(t.session.PID())) }

func (t *Tree) stat(file string) (targetfs.Info, error) {
	files := t.files()
	defer func() { _ = files.Close() }()
	return files.Stat(file)
}

// regular tells whether a path is a file that can be probed.
func (t *Tree) regular(file string) (bool, error) {
	info, err := t.stat(file)
	if err != nil {
		return false, underlying(err)
	}
	return info.Regular, nil
}

// underlying is the errno of an error of package os, which names a file in a way that the user has not written.
func underlying(err error) error {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return err
}

// inFile writes into kp where the target has what d says of a file. A library that is not loaded is waited for.
func (t *Tree) inFile(d *dynevent.Definition, kp *kprobes.Kprobe) error {
	info, err := t.stat(d.Path)
	if err != nil {
		return fmt.Errorf("%s: %w", d.Path, underlying(err))
	}
	if uint64(info.Size) <= d.FileOffset {
		return fmt.Errorf("%w: %s has %s", syscall.EINVAL, d.Path, escape.Count(info.Size, "byte"))
	}
	at, mapped := t.mapped(d.Path, d.FileOffset)
	link, err := symbols.LinkAddress(procfs.Living(t.session.PID()), d.Path, d.FileOffset)
	library := path.Base(d.Path)
	switch {
	case err == nil && strings.Contains(library, ".so"):
		if name := fmt.Sprintf("%s:%#x", library, link); !mapped || t.means(name, at) {
			kp.SymbolName = name // so it is placed again when the library is unloaded and loaded
			return nil
		}
	case !mapped:
		return fmt.Errorf("%w: offset %#x of %s is not mapped by the process", syscall.ENOENT, d.FileOffset, d.Path)
	}
	if !mapped {
		return fmt.Errorf("%w: %w", syscall.EINVAL, err)
	}
	kp.Addr = at
	return nil
}

// means tells whether a name stands for an address.
func (t *Tree) means(name string, at arch.Addr) bool {
	found, err := t.session.Symbols().Resolve(context.Background(), name)
	return err == nil && len(found) == 1 && found[0].Addr == at
}

// mapped is where the process has the byte at offset of a file, in executable memory if there is such.
func (t *Tree) mapped(file string, offset uint64) (at arch.Addr, ok bool) {
	files := t.files()
	defer func() { _ = files.Close() }()
	want, err := files.Stat(file)
	if err != nil {
		return 0, false
	}
	maps, err := procfs.Maps(procfs.Living(t.session.PID()))
	if err != nil {
		return 0, false
	}
	same := map[string]bool{}
	for _, m := range maps {
		if m.Inode == 0 || offset < m.Offset || offset-m.Offset >= m.Range.Len() {
			continue
		}
		if _, known := same[m.Path]; !known {
			info, err := files.Stat(m.Path)
			same[m.Path] = err == nil && !m.Deleted && info.Same(want)
		}
		if !same[m.Path] || ok && !m.Exec {
			continue
		}
		at, ok = m.Range.Start+arch.Addr(offset-m.Offset), true
		if m.Exec {
			return at, true
		}
	}
	return at, ok
}
