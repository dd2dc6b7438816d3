package symbols

import (
	"sync"

	"github.com/gokprobe/gokprobe/internal/budget"
)

// cache keeps what is quickly made again. It has a bound of its own, so that it keeps nobody from what must be had: a full one is emptied, and
// what there is no room for is not kept. It is safe for concurrent use.
type cache[V any] struct {
	mu   sync.RWMutex
	m    map[uint64]V
	part *budget.Part
	size uint64
}

// get is what was kept for link-time address v.
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
		c.part = acct.Part("what is kept to answer faster")
	}
	if c.part.Set(c.size+cost) != nil {
		c.m, c.size = map[uint64]V{}, 0
		_ = c.part.Set(0)
		return
	}
	c.size += cost
	c.m[v] = x
}
