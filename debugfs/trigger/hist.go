package trigger

import (
	"encoding/binary"
	"slices"
	"sync"
	"time"

	"github.com/gokprobe/gokprobe/expr/fetch"
)

// maxStack is how many addresses of a stack make a key.
const maxStack = 16

// Hit is an event that happens: what triggers may ask about it.
type Hit struct {
	Values []fetch.Value // as Event.Fields
	Comm   string        // the thread's name
	PID    int           // the thread
	CPU    int
	Time   time.Duration   // since boot, CLOCK_MONOTONIC
	Depth  int             // of a synthetic event: how many hits have led to it, one by the other
	Stack  func() []uint64 // return addresses, the innermost first; nil: not known. Called at most once for each use
}

func (h *Hit) stackValue() fetch.Value {
	var v fetch.Value
	if h.Stack == nil {
		return v
	}
	for i, addr := range h.Stack() {
		if i == maxStack {
			break
		}
		v.Elems = append(v.Elems, fetch.Value{U: addr})
	}
	return v
}

// Hist is a histogram: hits aggregated by keys.
type Hist struct {
	spec *Spec

	mu            sync.Mutex
	entries       map[string]*entry
	order         []*entry // as they came
	hits, dropped uint64
	best          []shot // of the actions: the hit whose snapshot was taken
}

// entry is one line of a histogram.
type entry struct {
	keys   []fetch.Value
	comm   string
	hits   uint64
	sums   []uint64
	vars   []slot
	tracks []track // of the actions
}

// slot is a variable of an entry.
type slot struct {
	value fetch.Value
	set   bool
}

// shot is the entry that last had a snapshot taken, as it was then.
type shot struct {
	taken bool
	value uint64
	keys  []fetch.Value
	comm  string
}

// NewHist is an empty histogram.
func NewHist(s *Spec) *Hist {
	h := &Hist{spec: s}
	h.Clear()
	return h
}

// Clear empties the histogram.
func (h *Hist) Clear() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.entries, h.order, h.hits, h.dropped = map[string]*entry{}, nil, 0, 0
	h.best = make([]shot, len(h.spec.actions))
}

// lose counts hits that are not known.
func (h *Hist) lose(n uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.dropped += n
}

// Add counts a hit. It is dropped if it has new keys and the histogram is full, and passed over if a
// variable that it needs of another histogram isn't set. snapshot is whether an action asks for one;
// synthetic events are made by a Set's Hit only.
func (h *Hist) Add(hit *Hit) (snapshot bool) {
	return slices.ContainsFunc(h.add(h.spec, hit), func(e effect) bool { return e.event == "" })
}

// add counts a hit of the event that spec is for: histograms may be shared.
func (h *Hist) add(spec *Spec, hit *Hit) (effects []effect) {
	s := &scene{hit: hit, usecs: spec.usecs}
	keys := make([]fetch.Value, len(spec.keys))
	for i, t := range spec.keys {
		keys[i] = t.value(s)
	}
	id := identity(spec.keys, keys)
	var ok bool
	if s.refs, ok = spec.resolve(id); !ok {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	e := h.entry(id, keys, hit.Comm)
	if e == nil {
		return nil
	}
	h.hits++
	e.hits++
	for i, t := range spec.vals {
		e.sums[i] += t.value(s).U
	}
	for i, t := range spec.vars {
		e.vars[i] = slot{t.value(s), true}
	}
	for i, a := range spec.actions {
		if effect, ok := h.act(i, a, e, s); ok {
			effects = append(effects, effect)
		}
	}
	return effects
}

// act does action i for an entry, as far as that can be done here.
func (h *Hist) act(i int, a *action, e *entry, s *scene) (effect, bool) {
	t := &e.tracks[i]
	switch {
	case !a.due(t, e):
	case a.traces():
		return effect{a.event, a.values(s)}, true
	case a.name == "save":
		t.saved = a.values(s)
	case a.fires(h.best[i].value, t.value):
		h.best[i] = shot{true, t.value, e.keys, e.comm}
		return effect{}, true
	}
	return effect{}, false
}

// entry is the one for some keys, nil if there is no room for it.
func (h *Hist) entry(id string, keys []fetch.Value, comm string) *entry {
	if e := h.entries[id]; e != nil {
		return e
	}
	if len(h.order) >= h.spec.Size {
		h.dropped++
		return nil
	}
	e := &entry{keys: keys, comm: comm, sums: make([]uint64, len(h.spec.vals)),
		vars: make([]slot, len(h.spec.vars)), tracks: make([]track, len(h.spec.actions))}
	h.entries[id] = e
	h.order = append(h.order, e)
	return e
}

// identity is the same for the same keys. Histograms with keys of the same types share it.
func identity(terms []*term, keys []fetch.Value) string {
	var b []byte
	for i, v := range keys {
		switch {
		case terms[i].op == opStack:
			for _, a := range v.Elems {
				b = binary.LittleEndian.AppendUint64(b, a.U)
			}
			b = append(b, make([]byte, 8*(maxStack-len(v.Elems)))...)
		case terms[i].isText():
			b = binary.LittleEndian.AppendUint64(b, uint64(len(v.S)))
			b = append(b, v.S...)
		default:
			b = binary.LittleEndian.AppendUint64(b, v.U)
		}
	}
	return string(b)
}

// resolve is the values of the variables of other histograms' entries with the same keys.
func (s *Spec) resolve(id string) ([]fetch.Value, bool) {
	if len(s.refs) == 0 {
		return nil, true
	}
	values := make([]fetch.Value, len(s.refs))
	for i, r := range s.refs {
		var ok bool
		if values[i], ok = r.table.read(id, r.index, r.once); !ok {
			return nil, false
		}
	}
	return values, true
}

// read is a variable's value, which is then no longer set if it is to be read once.
func (h *Hist) read(id string, index int, once bool) (fetch.Value, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	e := h.entries[id]
	if e == nil || !e.vars[index].set {
		return fetch.Value{}, false
	}
	if once {
		e.vars[index].set = false
	}
	return e.vars[index].value, true
}
