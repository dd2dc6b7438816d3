package symbols

import (
	"bytes"
	"fmt"
	"slices"
	"sync"

	"github.com/gokprobe/gokprobe/arch"
)

// vdsos keeps the image of the vdso that was read last. All processes have the same one, at different places, unless they have changed theirs. It is no file, so its content tells whether it is
// the same.
var vdsos struct {
	mu   sync.Mutex
	img  *image
	was  content
	dirs []string // where its debug file was looked for
}

// content is what was read of a process's memory.
type content struct {
	base  arch.Addr
	bytes []byte
}

// ReadMemory implements arch.Memory.
func (c content) ReadMemory(at arch.Addr, p []byte) error {
	off := uint64(at - c.base)
	if off > uint64(len(c.bytes)) || uint64(len(p)) > uint64(len(c.bytes))-off {
		return &arch.FaultError{Addr: at}
	}
	copy(p, c.bytes[off:])
	return nil
}

// WriteMemory implements arch.Memory.
func (c content) WriteMemory(at arch.Addr, _ []byte) error {
	return &arch.FaultError{Addr: at, Write: true}
}

// vdso is the image of the vdso that is mapped at base, of so many bytes.
func (t *Table) vdso(base arch.Addr, size uint64) (*image, error) {
	const most = 64 << 10 // of those that are kept
	if t.mem == nil || size > most {
		return t.imageInMemory(base, size, vdsoPath, true)
	}
	now := content{base, make([]byte, size)}
	if err := t.mem.ReadMemory(base, now.bytes); err != nil {
		return nil, fmt.Errorf("%s: %w", vdsoPath, err)
	}
	vdsos.mu.Lock()
	defer vdsos.mu.Unlock()
	if vdsos.img != nil && bytes.Equal(vdsos.was.bytes, now.bytes) && slices.Equal(vdsos.dirs, t.debugDirs) {
		return vdsos.img, nil
	}
	img, err := imageOf(&memoryFile{mem: now, base: base, isWhole: true}, size, vdsoPath)
	if err != nil || img.findDebug(t) != nil { // a file would stay open
		return img, err
	}
	img.symbols(t)
	img.frame(0)
	if !img.f.refused.hasSome() { // else others may have room for it
		img.isCommon = true
		vdsos.img, vdsos.was, vdsos.dirs = img, now, slices.Clone(t.debugDirs)
	}
	return img, nil
}
