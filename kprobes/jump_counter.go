package kprobes

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/gokprobe/gokprobe/arch"
)

// counter is hits that the target counts itself, in memory shared with it: shards of 64
// bytes, of which threads use different ones. It lives as long as a thread may be in the
// detour that counts, so no hit is lost.
type counter struct {
	at    arch.Addr
	cells []byte
	of    *domain // whose cells they are

	folded uint64    // what the owners before have got
	owners []*Kprobe // whose hits the others are
}

const shardSize = 64

// shards is the number of each counter's, a power of two.
var shards = sync.OnceValue(func() int {
	n := 1
	for n < 2*runtime.NumCPU() && n < 8 {
		n *= 2
	}
	return n
})

// counting guards what Kprobe.Hits adds up: counters' owners, and the cells against being
// unmapped.
var counting sync.RWMutex

func (c *counter) memory() arch.Range {
	return arch.Range{Start: c.at, End: c.at + arch.Addr(len(c.cells))}
}

// fresh is what has not been folded.
func (c *counter) fresh() uint64 {
	n := sumOf(c.cells)
	return n - min(n, c.folded) // less than that only if the target has written there itself
}

func sumOf(cells []byte) (n uint64) {
	for i := 0; i+shardSize <= len(cells); i += shardSize {
		n += atomic.LoadUint64((*uint64)(unsafe.Pointer(&cells[i])))
	}
	return n
}

// inherited is what heirs of its domain have counted in theirs.
func (c *counter) inherited() (n uint64) {
	for _, h := range c.of.heirs {
		n += h.count(c)
	}
	return n
}

// give makes all further hits those of owners.
func (c *counter) give(owners []*Kprobe) {
	if c == nil || slices.Equal(c.owners, owners) {
		return
	}
	counting.Lock()
	defer counting.Unlock()
	n := c.fresh()
	c.folded += n
	for _, kp := range c.owners {
		kp.hits.Add(n)
		kp.counters = slices.DeleteFunc(slices.Clone(kp.counters), func(o *counter) bool { return o == c })
	}
	c.enter(owners)
}

// enter makes all hits those of owners, from a count of zero on or from what is folded. counting is held.
func (c *counter) enter(owners []*Kprobe) {
	c.owners = slices.Clone(owners)
	for _, kp := range owners {
		kp.counters = append(kp.counters, c)
	}
}

// keepCount has kp, which ends, own no counter any more: those of jumps that were taken back live
// on, perhaps until after its next registration.
func (kp *Kprobe) keepCount() {
	for _, c := range slices.Clone(kp.counters) {
		c.give(slices.DeleteFunc(slices.Clone(c.owners), func(o *Kprobe) bool { return o == kp }))
	}
}

// countedInTarget is the hits of kp that the target has counted and nobody folded.
func (kp *Kprobe) countedInTarget() (n uint64) {
	for _, c := range kp.counters {
		n += c.fresh() + c.inherited()
	}
	entries, _ := kp.followedInTarget()
	return n + entries
}

// newCounter gives code near at cells to count in.
func (ds *detours) newCounter(at arch.Addr) (*counter, error) {
	where, cells, err := ds.d.region.Cells(at, shards()*shardSize)
	if err != nil {
		return nil, err
	}
	c := &counter{at: where, cells: cells, of: ds.d}
	ds.counters[c.at] = c
	return c, nil
}

// endCounter takes the cells back, when no thread can count in them any more.
func (ds *detours) endCounter(c *counter) {
	if c == nil {
		return
	}
	c.give(nil)
	delete(ds.counters, c.at)
	if err := ds.d.region.FreeCells(c.at); err != nil {
		ds.d.session.warn("freeing a counter: %v", err)
	}
}

// foldAll ends all counters before their memory goes.
func (ds *detours) foldAll() {
	for _, c := range ds.counters {
		c.give(nil)
	}
	clear(ds.counters)
	for _, rec := range ds.d.recorder.recordings {
		ds.d.recorder.keep(rec)
	}
	ds.d.recorder.foldStates()
	ds.d.recorder.rings = nil
}
