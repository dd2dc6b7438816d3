package trampoline

import (
	"math/bits"
	"slices"
)

// space knows which bytes of an arena's part are in use. It costs memory only for pages
// with bytes that were ever used.
type space struct {
	size  uint64     // bytes, a multiple of PageSize
	pages []*pageMap // up to the last that was ever used
	// tight[p] is a size for which no free run begins in page p, by earlier searches.
	// It saves searching again. It is as long as pages.
	tight []uint32
}

// pageMap has a bit for each byte in use.
type pageMap struct {
	used [PageSize / 64]uint64
	n    int
}

const unknown = ^uint32(0)

func newSpace(size uint64) space { return space{size: size} }

// page is nil if no byte of page p was ever used.
func (s *space) page(p uint64) *pageMap {
	if p < uint64(len(s.pages)) {
		return s.pages[p]
	}
	return nil
}

// copy is a space with the same bytes in use.
func (s *space) copy() space {
	to := space{size: s.size, pages: make([]*pageMap, len(s.pages)), tight: slices.Clone(s.tight)}
	all := make([]pageMap, 0, s.touched()) // in one piece: it never moves
	for p, m := range s.pages {
		if m != nil {
			all = append(all, *m)
			to.pages[p] = &all[len(all)-1]
		}
	}
	return to
}

// next returns the lowest offset from off on where n bytes are free.
func (s *space) next(off, n uint64) (uint64, bool) {
	whole := off%PageSize == 0 // all of off's page has been or will be looked at
	for n > 0 && n <= s.size && off <= s.size-n {
		p := off / PageSize
		if p < uint64(len(s.tight)) && uint64(s.tight[p]) <= n {
			off, whole = (p+1)*PageSize, true
			continue
		}
		u, ok := s.firstUsed(off, off+n)
		if !ok {
			return off, true
		}
		off = s.firstFree(u)
		if q := off / PageSize; q != p {
			if whole { // p is not behind the page of u
				s.tight[p] = uint32(min(n, uint64(s.tight[p])))
			}
			// A run that begins in a page between would have to begin behind off.
			whole = true
		}
	}
	return 0, false
}

// firstUsed returns the lowest offset in [off, end) that is in use.
func (s *space) firstUsed(off, end uint64) (uint64, bool) {
	for off < end {
		m := s.page(off / PageSize)
		if m == nil || m.n == 0 {
			off = (off/PageSize + 1) * PageSize
			continue
		}
		in := off % PageSize
		w := m.used[in/64] >> (in % 64)
		if w != 0 {
			off += uint64(bits.TrailingZeros64(w))
			return off, off < end
		}
		off = (off/64 + 1) * 64
	}
	return 0, false
}

// firstFree returns the lowest offset from off on that is free, or the size.
func (s *space) firstFree(off uint64) uint64 {
	for off < s.size {
		m := s.page(off / PageSize)
		switch {
		case m == nil:
			return off
		case m.n == PageSize:
			off = (off/PageSize + 1) * PageSize
			continue
		}
		in := off % PageSize
		if w := ^m.used[in/64] >> (in % 64); w != 0 {
			return off + uint64(bits.TrailingZeros64(w))
		}
		off = (off/64 + 1) * 64
	}
	return s.size
}

// take marks [off, off+n) as used. Before that it calls touch for each page that is
// used for the first time.
func (s *space) take(off, n uint64, touch func(page uint64) error) error {
	for p := off / PageSize; p <= (off+n-1)/PageSize; p++ {
		if s.page(p) != nil {
			continue
		}
		if err := touch(p); err != nil {
			return err
		}
		for uint64(len(s.pages)) <= p {
			s.pages, s.tight = append(s.pages, nil), append(s.tight, unknown)
		}
		s.pages[p] = new(pageMap)
	}
	s.mark(off, n, true)
	return nil
}

// give makes [off, off+n) free.
func (s *space) give(off, n uint64) {
	s.mark(off, n, false)
	for p := (off + n - 1) / PageSize; ; p-- {
		s.tight[p] = unknown
		// A run that begins in an earlier page has grown if it goes on to here.
		if p == 0 || p < off/PageSize && s.pages[p] != nil && s.pages[p].n > 0 {
			return
		}
	}
}

func (s *space) mark(off, n uint64, used bool) {
	for end := off + n; off < end; {
		m, in := s.pages[off/PageSize], off%PageSize
		k := min(64-in%64, end-off) // bits of one word
		mask := (^uint64(0) >> (64 - k)) << (in % 64)
		m.n -= bits.OnesCount64(m.used[in/64])
		if used {
			m.used[in/64] |= mask
		} else {
			m.used[in/64] &^= mask
		}
		m.n += bits.OnesCount64(m.used[in/64])
		off += k
	}
}

// touched returns the number of pages with bytes that were ever used.
func (s *space) touched() (n int) {
	for _, m := range s.pages {
		if m != nil {
			n++
		}
	}
	return n
}
