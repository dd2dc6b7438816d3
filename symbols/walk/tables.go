package walk

import (
	"encoding/binary"

	"github.com/gokprobe/gokprobe/arch"
)

// Brown returns the first want elements of a hashbrown table (hashbrown/src/raw/mod.rs): they lie before their control bytes, backwards. A control byte
// without its highest bit is that of an element.
func (r *Reader) Brown(ctrl arch.Addr, mask uint64, size, want int64) ([]Entry, error) {
	const chunk, largest = 128, 1 << 48
	if want > 0 && (mask&(mask+1) != 0 || mask >= largest/uint64(max(size, 1)) || uint64(want) > mask+1) {
		return nil, ErrTorn
	}
	f := newFound(want)
	for first, more := int64(0), want > 0; more && first <= int64(mask); first += chunk {
		bytes := make([]byte, min(chunk, int64(mask)+1-first))
		if err := r.read(ctrl.Add(first), bytes); err != nil {
			return f.done(err)
		}
		for i, b := range bytes {
			if b&0x80 != 0 {
				continue
			}
			at := ctrl.Add(-(first + int64(i) + 1) * size)
			var err error
			if more, err = f.add(Entry{at, at}); err != nil || !more {
				return f.done(err)
			}
		}
	}
	return f.done(nil)
}

// BTree is where a node of Rust's B-trees has its parts (alloc/src/collections/btree/node.rs).
type BTree struct {
	Len, Keys, Vals int64
	Edges           int64 // behind a leaf's parts: the addresses of those below
	Key, Val        int64 // bytes
}

const mostInNode = 11

// In returns the first want elements, in their order, of the tree with that root.
func (t BTree) In(r *Reader, root arch.Addr, height uint64, want int64) ([]Entry, error) {
	f := newFound(want)
	if height > 64 {
		return nil, ErrTorn
	}
	var err error
	if want > 0 {
		_, err = t.below(r, f, root, height)
	}
	return f.done(err)
}

func (t BTree) below(r *Reader, f *found, node arch.Addr, height uint64) (more bool, err error) {
	var b [2]byte
	if err = r.read(node.Add(t.Len), b[:]); err != nil {
		return false, err
	}
	n := int64(binary.LittleEndian.Uint16(b[:]))
	if n > mostInNode {
		return false, ErrTorn
	}
	for i := int64(0); ; i++ {
		if height > 0 {
			edge, err := r.word(node.Add(t.Edges + 8*i))
			if err != nil {
				return false, err
			}
			if more, err := t.below(r, f, edge, height-1); err != nil || !more {
				return false, err
			}
		}
		if i == n {
			return true, nil
		}
		key := node.Add(t.Keys + i*t.Key)
		if t.Key == 0 { // they are all at one place
			return false, ErrTorn
		}
		if more, err := f.add(Entry{key, node.Add(t.Vals + i*t.Val)}); err != nil || !more {
			return false, err
		}
	}
}
