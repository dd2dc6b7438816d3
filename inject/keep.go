package inject

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"fmt"

	"github.com/gokprobe/gokprobe/arch"
)

// keeper holds bytes in the target that values of ours point to: an error's fields, its text.
// The memory is never freed: the target may keep an error long after we have gone.
// So equal bytes are stored once, and there is a limit.
//
// Go's garbage collector does not know this memory, and need not: it ignores pointers to
// memory outside of the heap's arenas, as it ignores pointers to C's memory and to
// read-only data. (runtime.findObject finds no span for them; marking, write barriers,
// checkptr, the race detector and stack copying all rely on that.) The heap never grows
// to this memory: arenas are reserved by mmap without MAP_FIXED.
//
// Nothing here may point into the heap, since nobody would mark that. So everything that a
// value of ours refers to, such as the text of an argument, is copied here. A target may
// change an error that it was given, as os.RemoveAll prefixes the path of a *fs.PathError.
// Then it stores a pointer here that the collector does not see. Such a changed value is not
// given to another call.
type keeper struct {
	first  arch.Addr            // of the first chunk, which begins with mark
	mark   [16]byte             // random
	free   arch.Range           // of the last chunk
	size   uint64               // of all chunks
	stored map[string]arch.Addr // by contents
}

const (
	keptChunk = 16 << 10
	keptMost  = 1 << 20 // bytes in one process
)

var errKeptFull = fmt.Errorf("errors take %d KiB of the target's memory already", keptMost>>10)

// keptMemory is the access to a target's memory that a keeper needs.
type keptMemory interface {
	arch.Memory
	Alloc(size uint64) (arch.Addr, error)
}

// put stores b, aligned to 8 bytes, unless it is stored already. Bytes that the target has
// overwritten are stored again.
func (k *keeper) put(m keptMemory, b []byte) (arch.Addr, error) {
	if !k.isIntact(m) {
		*k = keeper{stored: map[string]arch.Addr{}}
	}
	if at, ok := k.stored[string(b)]; ok && holds(m, at, b) {
		return at, nil
	}
	at, err := k.take(m, len(b))
	if err != nil {
		return 0, err
	}
	if err := m.WriteMemory(at, b); err != nil {
		return 0, err
	}
	k.stored[string(b)] = at
	return at, nil
}

// isIntact reports whether the memory is still there: the process may have executed another
// file, which replaces all of its memory.
func (k *keeper) isIntact(m arch.Memory) bool { return k.first != 0 && holds(m, k.first, k.mark[:]) }

func holds(m arch.Memory, at arch.Addr, b []byte) bool {
	have := make([]byte, len(b))
	return m.ReadMemory(at, have) == nil && bytes.Equal(have, b)
}

// take returns n free bytes, and maps another chunk if there is no room.
func (k *keeper) take(m keptMemory, n int) (arch.Addr, error) {
	size := max(8, (uint64(n)+7)&^7)
	if size > k.free.Len() {
		if err := k.grow(m, size); err != nil {
			return 0, err
		}
	}
	at := k.free.Start
	k.free.Start += arch.Addr(size)
	return at, nil
}

// grow makes room for size bytes in a new chunk.
func (k *keeper) grow(m keptMemory, size uint64) error {
	chunk := (max(size+uint64(len(k.mark)), keptChunk) + 4095) &^ 4095
	if k.size+chunk > keptMost {
		return errKeptFull
	}
	at, err := m.Alloc(chunk)
	if err != nil {
		return err
	}
	k.size += chunk
	k.free = arch.Range{Start: at, End: at + arch.Addr(chunk)}
	if k.first != 0 {
		return nil
	}
	if _, err := rand.Read(k.mark[:]); err != nil {
		return err
	}
	k.first = at
	k.free.Start += arch.Addr(len(k.mark))
	return m.WriteMemory(at, k.mark[:])
}

// words are 64-bit words as bytes.
func words(v ...uint64) []byte {
	var b []byte
	for _, w := range v {
		b = binary.LittleEndian.AppendUint64(b, w)
	}
	return b
}
