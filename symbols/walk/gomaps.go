package walk

import "github.com/gokprobe/gokprobe/arch"

// Visit is told of an element, and tells whether more are wanted.
type Visit func(Entry) (more bool, err error)

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
	if want == 0 {
		return nil, nil
	}
	f := newFound(want)
	return f.done(s.Each(r, dir, length, f.add))
}

// Each shows the elements of a map with that directory, until visit wants no more.
func (s Swiss) Each(r *Reader, dir arch.Addr, length int64, visit Visit) error {
	switch {
	case length == 0: // one group, without a table
		_, err := s.groups(r, visit, dir, 0)
		return err
	case length < 0 || length > 1<<40:
		return ErrTorn
	}
	var last arch.Addr
	for i := range length {
		table, err := r.word(dir.Add(8 * i))
		if err != nil {
			return err
		}
		if table == last { // a table stands in the directory several times
			continue
		}
		last = table
		data, err := r.word(table.Add(s.Data))
		if err != nil {
			return err
		}
		mask, err := r.word(table.Add(s.Mask))
		if err != nil {
			return err
		}
		if more, err := s.groups(r, visit, data, uint64(mask)); err != nil || !more {
			return err
		}
	}
	return nil
}

func (s Swiss) groups(r *Reader, visit Visit, data arch.Addr, mask uint64) (more bool, err error) {
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
			if more, err := visit(s.entry(group, slot)); err != nil || !more {
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
	if want == 0 && b <= 40 {
		return nil, nil
	}
	f := newFound(want)
	return f.done(s.Each(r, buckets, old, b, sameSize, f.add))
}

// Each shows the elements of such a map, until visit wants no more.
func (s Buckets) Each(r *Reader, buckets, old arch.Addr, b uint8, sameSize bool, visit Visit) error {
	if b > 40 {
		return ErrTorn
	}
	more, err := s.table(r, visit, buckets, 1<<b)
	if err == nil && more && old != 0 {
		if !sameSize {
			b = max(b, 1) - 1
		}
		_, err = s.table(r, visit, old, 1<<b)
	}
	return err
}

func (s Buckets) table(r *Reader, visit Visit, first arch.Addr, n int64) (more bool, err error) {
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
				if more, err := visit(s.entry(at, slot)); err != nil || !more {
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
