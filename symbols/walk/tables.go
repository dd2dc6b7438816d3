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

// Slots is where a group or a bucket of a Go map has its keys and values: i is Key + i*KeyStep, of slot i.
type Slots struct {
	Size                         int64 // of all
	Ctrl                         int64 // of the eight bytes that tell which slots are used
	Key, KeyStep, Val, ValueStep int64
}

func (s Slots) entry(group arch.Addr, i int) Entry {
	return Entry{group.Add(s.Key + int64(i)*s.KeyStep), group.Add(s.Val + int64(i)*s.ValueStep)}
}

// Swiss is where a Go map since 1.24 has its parts (internal/runtime/maps).
type Swiss struct {
	Slots
	Data, Mask int64 // of a table: the address of its groups, and their number less one
}

// In returns the first want elements of a map with that directory.
func (s Swiss) In(r *Reader, dir arch.Addr, length, want int64) ([]Entry, error) {
	f := newFound(want)
	switch {
	case want == 0:
		return nil, nil
	case length == 0: // one group, without a table
		_, err := s.groups(r, f, dir, 0)
		return f.done(err)
	case length < 0 || length > 1<<40:
		return nil, ErrTorn
	}
	var last arch.Addr
	for i := range length {
		table, err := r.word(dir.Add(8 * i))
		if err != nil {
			return f.done(err)
		}
		if table == last { // a table stands in the directory several times
			continue
		}
		last = table
		data, err := r.word(table.Add(s.Data))
		if err != nil {
			return f.done(err)
		}
		mask, err := r.word(table.Add(s.Mask))
		if err != nil {
			return f.done(err)
		}
		if more, err := s.groups(r, f, data, uint64(mask)); err != nil || !more {
			return f.done(err)
		}
	}
	return f.done(nil)
}

func (s Swiss) groups(r *Reader, f *found, data arch.Addr, mask uint64) (more bool, err error) {
	if mask&(mask+1) != 0 || mask > 1<<40 {
		return false, ErrTorn
	}
	for i := range int64(mask) + 1 {
		group := data.Add(i * s.Size)
		ctrl, err := r.word(group.Add(s.Ctrl))
		if err != nil {
			return false, err
		}
		for slot := range 8 {
			if ctrl>>(8*slot)&0x80 != 0 { // empty, or deleted
				continue
			}
			if more, err := f.add(s.entry(group, slot)); err != nil || !more {
				return false, err
			}
		}
	}
	return true, nil
}

// Buckets is where a Go map before 1.24 has its parts (runtime/map.go).
type Buckets struct {
	Slots
	Overflow int64 // of the address of the next bucket
}

// In returns the first want elements of a map with 1<<b buckets. A map that grows has an old table too, of as many buckets or of half as many. There,
// marks stand for elements that have moved.
func (s Buckets) In(r *Reader, buckets, old arch.Addr, b uint8, sameSize bool, want int64) ([]Entry, error) {
	f := newFound(want)
	if b > 40 {
		return nil, ErrTorn
	}
	if want == 0 {
		return nil, nil
	}
	more, err := s.table(r, f, buckets, 1<<b)
	if err == nil && more && old != 0 {
		if !sameSize {
			b = max(b, 1) - 1
		}
		_, err = s.table(r, f, old, 1<<b)
	}
	return f.done(err)
}

func (s Buckets) table(r *Reader, f *found, first arch.Addr, n int64) (more bool, err error) {
	const firstUsed = 5 // minTopHash; below are marks
	if first == 0 {
		return true, nil
	}
	for i := range n {
		seen := map[arch.Addr]bool{}
		for at := first.Add(i * s.Size); at != 0; {
			if seen[at] {
				return false, ErrTorn
			}
			seen[at] = true
			top, err := r.word(at.Add(s.Ctrl))
			if err != nil {
				return false, err
			}
			for slot := range 8 {
				if top>>(8*slot)&0xff < firstUsed {
					continue
				}
				if more, err := f.add(s.entry(at, slot)); err != nil || !more {
					return false, err
				}
			}
			if at, err = r.word(at.Add(s.Overflow)); err != nil {
				return false, err
			}
		}
	}
	return true, nil
}
