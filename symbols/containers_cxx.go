package symbols

import (
	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/symbols/walk"
)

// nodes is how one C++ library links the nodes of a kind of container.
type nodes struct {
	first, length string // members that lead to the first node's address, and to the number of nodes; without the latter a 0 ends the chain
	links         walk.Links
	isTree        bool
	next          int64 // of a chain
	value         int64 // behind so many bytes of a node lies the value
}

// linked makes the container of nodes that fit the type's members.
func linked(isMap, isHashed bool, libraries ...nodes) maker {
	return maker{true, func(_ language, t *dtype) printer {
		for _, lib := range libraries {
			if c := lib.container(t, isMap); c != nil {
				c.isHashed = isHashed
				return c
			}
		}
		return nil
	}}
}

func (x nodes) container(t *dtype, isMap bool) *container {
	first, ptrs, ok := t.paths(x.first)
	if !ok || ptrs[0].kind != typePointer {
		return nil
	}
	c := &container{length: isUncounted}
	if x.length != "" {
		length, sizes, ok := t.paths(x.length)
		if !ok || sizes[0].size != 8 {
			return nil
		}
		c.length = length[0]
	}
	c.find = func(r *walk.Reader, raw []byte, want int64) ([]walk.Entry, error) {
		switch at := address(raw, first[0]); {
		case x.isTree:
			return r.Tree(at, x.links, want)
		case x.length != "":
			return r.Chain(at, x.next, want)
		default:
			all, _, err := r.Open(at, x.next, want)
			return all, err
		}
	}
	if !c.inNodes(t, x.value, isMap) {
		return nil
	}
	return c
}

// The nodes of libstdc++ and of libc++, whose names have changed with its version 19.
var (
	trees = []nodes{
		{first: "_M_t._M_impl._M_header._M_left", length: "_M_t._M_impl._M_node_count", isTree: true, links: walk.Links{Parent: 8, Left: 16, Right: 24}, value: 32},
		{first: "__tree_.__begin_node_", length: "__tree_.__pair3_.__value_|__tree_.__size_", isTree: true, links: walk.Links{Left: 0, Right: 8, Parent: 16}, value: 25},
	}
	hashes = []nodes{
		{first: "_M_h._M_before_begin._M_nxt", length: "_M_h._M_element_count", value: 8},
		{first: "__table_.__p1_.__value_.__next_|__table_.__first_node_.__next_", length: "__table_.__p2_.__value_|__table_.__size_", value: 16},
	}
	lists = []nodes{
		{first: "_M_impl._M_node._M_next", length: "_M_impl._M_node._M_size|_M_impl._M_node._M_data|_M_impl._M_node._M_storage", value: 16},
		{first: "__end_.__next_", length: "__size_alloc_.__value_|__size_", next: 8, value: 16},
	}
	chains = []nodes{
		{first: "_M_impl._M_head._M_next", value: 8},
		{first: "__before_begin_.__value_.__next_|__before_begin_.__next_", value: 8},
	}
)

// deque makes the container of a std::deque: blocks whose addresses lie in a row.
func deque(_ language, t *dtype) printer {
	c := &container{}
	if !c.inNodes(t, 0, false) || c.key.typ.size <= 0 {
		return nil
	}
	size := c.key.typ.size
	if o, _, ok := t.paths("_M_impl._M_start._M_cur", "_M_impl._M_start._M_last", "_M_impl._M_start._M_node", "_M_impl._M_finish._M_cur", "_M_impl._M_finish._M_first", "_M_impl._M_finish._M_node"); ok {
		block := max(512/size, 1) * size
		c.length = isCounted
		c.count = func(raw []byte) (int64, bool) {
			w := func(i int) int64 { return int64(word(raw, o[i])) }
			bytes := (w(5)-w(2))/8*block - block + w(3) - w(4) + w(1) - w(0)
			if w(5) == 0 && w(2) == 0 || bytes < 0 || bytes%size != 0 {
				return 0, false
			}
			return bytes / size, true
		}
		c.find = func(r *walk.Reader, raw []byte, want int64) ([]walk.Entry, error) {
			return r.Blocks(address(raw, o[0]), address(raw, o[1]), address(raw, o[2]).Add(8), block, size, want)
		}
		return c
	}
	o, words, ok := t.paths("__map_.__begin_", "__start_", "__size_alloc_.__value_|__size_")
	if !ok || !words[1].isCount() || !words[2].isCount() {
		return nil
	}
	c.length = o[2]
	c.find = func(r *walk.Reader, raw []byte, want int64) ([]walk.Entry, error) {
		n := int64(16)
		if size < 256 {
			n = 4096 / size
		}
		start := word(raw, o[1])
		next := address(raw, o[0]) + arch.Addr(8*(start/uint64(n)))
		skip := int64(start % uint64(n))
		all, err := r.Blocks(0, 0, next, n*size, size, want+skip)
		return all[min(skip, int64(len(all))):], err
	}
	return c
}
