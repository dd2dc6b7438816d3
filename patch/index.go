package patch

import (
	"cmp"
	"iter"
	"slices"

	"github.com/gokprobe/gokprobe/arch"
)

// index finds patches by address: the page in constant time, the patch among those of its page by binary search. Patches in it are disjoint.
type index struct {
	pages map[arch.Addr][]*Patch // by address / pageSize, in order of address; a patch is in every page it touches
	n     int
}

func newIndex() index { return index{pages: map[arch.Addr][]*Patch{}} }

// newIndexLike is an empty index with room for what x has.
func newIndexLike(x index) index {
	return index{pages: make(map[arch.Addr][]*Patch, len(x.pages))}
}

// search is the place in a page's patches of the first one that ends behind a.
func search(ps []*Patch, a arch.Addr) int {
	i, _ := slices.BinarySearchFunc(ps, a, func(p *Patch, a arch.Addr) int {
		if p.Range().End > a {
			return 1
		}
		return -1
	})
	return i
}

func (x *index) add(p *Patch) {
	x.n++
	for g := p.at / pageSize; g <= (p.Range().End-1)/pageSize; g++ {
		ps := x.pages[g]
		x.pages[g] = slices.Insert(ps, search(ps, p.at), p)
	}
}

func (x *index) remove(p *Patch) {
	x.n--
	for g := p.at / pageSize; g <= (p.Range().End-1)/pageSize; g++ {
		ps := x.pages[g]
		i := search(ps, p.at)
		if ps = slices.Delete(ps, i, i+1); len(ps) == 0 {
			delete(x.pages, g)
			continue
		}
		x.pages[g] = ps
	}
}

func (x *index) at(a arch.Addr) *Patch {
	ps := x.pages[a/pageSize]
	if i := search(ps, a); i < len(ps) && ps[i].Range().Contains(a) {
		return ps[i]
	}
	return nil
}

// each calls f for every patch that overlaps r, perhaps twice for one patch.
func (x *index) each(r arch.Range, f func(*Patch)) {
	if r.Len() == 0 {
		return
	}
	in := func(ps []*Patch) {
		for _, p := range ps[search(ps, r.Start):] {
			if p.at >= r.End {
				return
			}
			f(p)
		}
	}
	if r.Len()/pageSize > uint64(len(x.pages)) {
		for _, ps := range x.pages {
			in(ps)
		}
		return
	}
	for g := r.Start / pageSize; g <= (r.End-1)/pageSize; g++ {
		in(x.pages[g])
	}
}

// first returns the lowest patch that overlaps r, or nil.
func (x *index) first(r arch.Range) (low *Patch) {
	x.each(r, func(p *Patch) {
		if low == nil || p.at < low.at {
			low = p
		}
	})
	return low
}

// every is all patches, each once.
func (x *index) every() iter.Seq[*Patch] {
	return func(yield func(*Patch) bool) {
		for g, ps := range x.pages {
			for _, p := range ps {
				if p.at/pageSize == g && !yield(p) { // the others come with their first page
					return
				}
			}
		}
	}
}

func (x *index) all() []*Patch { return slices.AppendSeq(make([]*Patch, 0, x.n), x.every()) }

func (x *index) sorted() []*Patch {
	ps := x.all()
	slices.SortFunc(ps, func(a, b *Patch) int { return cmp.Compare(a.at, b.at) })
	return ps
}
