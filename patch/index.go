package patch

import (
	"cmp"
	"slices"

	"github.com/gokprobe/gokprobe/arch"
)

// granule is the size in bytes of the index's buckets: large enough that a patch
// is in one or two, small enough that a bucket stays short when every
// instruction of a function is patched.
const granule = 64

// index finds patches by address in constant time. Patches in it are disjoint.
type index struct {
	buckets map[arch.Addr][]*Patch // by address / granule; a patch is in every bucket it touches
	set     map[*Patch]struct{}
}

func newIndex() index {
	return index{map[arch.Addr][]*Patch{}, map[*Patch]struct{}{}}
}

func (x *index) add(p *Patch) {
	x.set[p] = struct{}{}
	for g := p.at / granule; g <= (p.Range().End-1)/granule; g++ {
		x.buckets[g] = append(x.buckets[g], p)
	}
}

func (x *index) remove(p *Patch) {
	delete(x.set, p)
	for g := p.at / granule; g <= (p.Range().End-1)/granule; g++ {
		b := x.buckets[g]
		b = slices.Delete(b, slices.Index(b, p), slices.Index(b, p)+1)
		if len(b) == 0 {
			delete(x.buckets, g)
			continue
		}
		x.buckets[g] = b
	}
}

func (x *index) at(a arch.Addr) *Patch {
	for _, p := range x.buckets[a/granule] {
		if p.Range().Contains(a) {
			return p
		}
	}
	return nil
}

// each calls f for every patch that overlaps r, perhaps twice for one patch.
func (x *index) each(r arch.Range, f func(*Patch)) {
	if r.Len() == 0 {
		return
	}
	if r.Len()/granule > uint64(len(x.set)) {
		for p := range x.set {
			if p.Range().Overlaps(r) {
				f(p)
			}
		}
		return
	}
	for g := r.Start / granule; g <= (r.End-1)/granule; g++ {
		for _, p := range x.buckets[g] {
			if p.Range().Overlaps(r) {
				f(p)
			}
		}
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

func (x *index) all() []*Patch {
	ps := make([]*Patch, 0, len(x.set))
	for p := range x.set {
		ps = append(ps, p)
	}
	return ps
}

func (x *index) sorted() []*Patch {
	ps := x.all()
	slices.SortFunc(ps, func(a, b *Patch) int { return cmp.Compare(a.at, b.at) })
	return ps
}
