package symbols

import (
	"sync"

	"github.com/gokprobe/gokprobe/internal/budget"
)

// cache keeps answers that can be made again quickly. It has its own share of the memory budget, so that it leaves the rest for
// data that is needed. A full cache is emptied; an answer for which there is no room is not kept. It is safe for concurrent
// use.
type cache[V any] struct {
	mu   sync.RWMutex
	m    map[uint64]V
	part *budget.Part
	size uint64
}

// get returns the answer that is kept for link-time address v.
func (c *cache[V]) get(v uint64) (x V, ok bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	x, ok = c.m[v]
	return x, ok
}

// mostCached is what one cache keeps, in bytes.
const mostCached = 12 << 20

// put keeps x, which takes so many bytes, as a part of acct.
func (c *cache[V]) put(v uint64, x V, cost uint64, acct *budget.Account) {
	const place = 64 // bytes, in the map
	cost += place
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.m == nil || c.size+cost > mostCached {
		c.m, c.size = map[uint64]V{}, 0
	}
	if c.part == nil {
		c.part = acct.Part("answers kept to be faster")
	}
	if c.part.Set(c.size+cost) != nil {
		c.m, c.size = map[uint64]V{}, 0
		_ = c.part.Set(0)
		return
	}
	c.size += cost
	c.m[v] = x
}
