// Package walk finds where the elements of containers lie in a target's memory: along chains, in trees, in hash tables. It trusts nothing that it reads:
// every walk ends, after a number of reads that its Reader bounds.
//
// Not part of the public promise: any version may change it.
package walk

import (
	"encoding/binary"
	"errors"

	"github.com/gokprobe/gokprobe/arch"
)

// Most is how many reads all walks for one value make, at most.
const Most = 1024

// Why a container can't be walked.
var (
	ErrTorn = errors.New("its parts contradict each other: it is not set yet, or being changed")
	// ErrMany says that a walk was given up, as it takes too many reads.
	ErrMany = errors.New("there is too much to read")
)

// Reader reads words of the target.
type Reader struct {
	Mem  arch.Memory
	Left int // how many reads are left
	buf  [8]byte
}

// Entry is where an element lies; of a map, where its key and its value do.
type Entry struct{ Key, Val arch.Addr }

func (r *Reader) read(at arch.Addr, p []byte) error {
	if r.Left--; r.Left < 0 {
		return ErrMany
	}
	return r.Mem.ReadMemory(at, p)
}

// Read reads bytes, as far as reads are left.
func (r *Reader) Read(at arch.Addr, p []byte) error { return r.read(at, p) }

func (r *Reader) word(at arch.Addr) (arch.Addr, error) {
	r.buf = [8]byte{}
	err := r.read(at, r.buf[:])
	return arch.Addr(binary.LittleEndian.Uint64(r.buf[:])), err
}

// found gathers entries.
type found struct {
	all  []Entry
	seen map[arch.Addr]bool
	want int64
}

func newFound(want int64) *found { return &found{seen: map[arch.Addr]bool{}, want: want} }

// add tells whether more are wanted. The same element twice is an error.
func (f *found) add(e Entry) (more bool, err error) {
	if f.seen[e.Key] || e.Key == 0 {
		return false, ErrTorn
	}
	f.seen[e.Key] = true
	f.all = append(f.all, e)
	return int64(len(f.all)) < f.want, nil
}

// done judges a walk that has ended with err. Where there were too many reads, what was found is some of the container.
func (f *found) done(err error) ([]Entry, error) {
	switch {
	case errors.Is(err, ErrMany):
		return f.all, nil
	case err == nil && int64(len(f.all)) < f.want:
		return nil, ErrTorn
	case err != nil:
		return nil, err
	}
	return f.all, nil
}

// Chain follows links from the node at first: each lies next bytes behind a node's beginning. It returns want nodes.
func (r *Reader) Chain(first arch.Addr, next, want int64) ([]Entry, error) {
	f := newFound(want)
	for at, more := first, want > 0; more; {
		var err error
		if more, err = f.add(Entry{at, at}); err == nil && more {
			at, err = r.word(at.Add(next))
		}
		if err != nil {
			return f.done(err)
		}
	}
	return f.done(nil)
}

// Open does as Chain with a chain whose length is not told, which ends with the address 0. It returns most nodes, at most.
func (r *Reader) Open(first arch.Addr, next, most int64) (nodes []Entry, isAll bool, err error) {
	f := newFound(most)
	for at, more := first, true; at != 0; {
		if !more {
			return f.all, false, nil
		}
		if more, err = f.add(Entry{at, at}); err == nil {
			at, err = r.word(at.Add(next))
		}
		if err != nil {
			return nil, false, err
		}
	}
	return f.all, true, nil
}

// Links is where a tree's node has the addresses of others.
type Links struct{ Left, Right, Parent int64 }

// Tree returns the first want nodes of a binary tree in their order, from the leftmost one.
func (r *Reader) Tree(leftmost arch.Addr, l Links, want int64) ([]Entry, error) {
	f := newFound(want)
	for at, more := leftmost, want > 0; more; {
		var err error
		if more, err = f.add(Entry{at, at}); err == nil && more {
			at, err = r.successor(at, l)
		}
		if err != nil {
			return f.done(err)
		}
	}
	return f.done(nil)
}

func (r *Reader) successor(at arch.Addr, l Links) (arch.Addr, error) {
	down, err := r.word(at.Add(l.Right))
	if err != nil {
		return 0, err
	}
	if down != 0 {
		for err == nil && down != 0 {
			at = down
			down, err = r.word(at.Add(l.Left))
		}
		return at, err
	}
	for {
		up, err := r.word(at.Add(l.Parent))
		if err != nil {
			return 0, err
		}
		right, err := r.word(up.Add(l.Right))
		if err != nil || right != at {
			return up, err
		}
		at = up
	}
}

// Blocks returns the first want elements of a row in blocks of so many bytes. first is the first element, end the end of its block. The address of the
// next block is at next.
func (r *Reader) Blocks(first, end, next arch.Addr, block, size, want int64) ([]Entry, error) {
	f := newFound(want)
	if size <= 0 || block < size {
		return nil, ErrTorn
	}
	for at, more := first, want > 0; more; at = at.Add(size) {
		var err error
		if at >= end {
			if at, err = r.word(next); err != nil {
				return f.done(err)
			}
			end, next = at.Add(block), next.Add(8)
		}
		if more, err = f.add(Entry{at, at}); err != nil {
			return f.done(err)
		}
	}
	return f.done(nil)
}

// Ring returns the first want elements, from number head, of a row that goes on at its beginning.
func Ring(first arch.Addr, head, room, size, want int64) ([]Entry, error) {
	if want > 0 && (room <= 0 || head < 0 || head >= room || want > room || size <= 0 || room > 1<<48/size) {
		return nil, ErrTorn
	}
	var all []Entry
	for i := range want {
		at := first.Add((head + i) % room * size)
		all = append(all, Entry{at, at})
	}
	return all, nil
}
