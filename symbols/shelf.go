package symbols

import (
	"debug/elf"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/gokprobe/gokprobe/internal/targetfs"
)

// shelf shares what was read of files among images: many processes may run one executable, or map one library. It depends only on the files' content, so any
// image may read it first. A file that has changed counts as another one.
type shelf[K comparable, V shareable] struct {
	most uint64 // bytes of what is kept although nobody uses it

	mu       sync.Mutex
	on       map[K]*shelved[V]
	idle     []K // what nobody uses, the longest unused first
	idleSize uint64
}

type shareable interface {
	size() uint64 // in bytes
	drop()        // gives the memory back to the budget
}

type shelved[V shareable] struct {
	v     V
	users int
	size  uint64 // when it got idle
}

func newShelf[K comparable, V shareable](most uint64) *shelf[K, V] {
	return &shelf[K, V]{most: most, on: map[K]*shelved[V]{}}
}

// debugShelf is for debug information, which takes the most memory of all: what nobody uses is not kept.
var debugShelf = newShelf[targetfs.Info, *dwarfData](0)

// find returns what is on the shelf of a file, if there is something. leave must be called once then.
func (s *shelf[K, V]) find(id K) (v V, leave func(), ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.on[id]
	if e == nil {
		return v, nil, false
	}
	return e.v, s.use(id, e), true
}

// has reports whether there is something on the shelf of a file.
func (s *shelf[K, V]) has(id K) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.on[id] != nil
}

// add puts v on the shelf and returns it. If another goroutine has put the file's data there meanwhile, that is returned.
func (s *shelf[K, V]) add(id K, v V) (shared V, leave func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.on[id]
	if e == nil {
		e = &shelved[V]{v: v}
		s.on[id] = e
	} else {
		v.drop()
	}
	return e.v, s.use(id, e)
}

func (s *shelf[K, V]) use(id K, e *shelved[V]) (leave func()) {
	if e.users++; e.size > 0 {
		s.idle = slices.DeleteFunc(s.idle, func(other K) bool { return other == id })
		s.idleSize -= e.size
		e.size = 0
	}
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if e.users--; e.users > 0 {
			return
		}
		const least = 64 << 10 // bounds their number
		e.size = max(e.v.size(), least)
		s.idle, s.idleSize = append(s.idle, id), s.idleSize+e.size
		s.trim(s.most)
	})
}

// trim drops what nobody uses, until so many bytes of it are left.
func (s *shelf[K, V]) trim(most uint64) {
	for s.idleSize > most {
		e := s.on[s.idle[0]]
		delete(s.on, s.idle[0])
		s.idle, s.idleSize = s.idle[1:], s.idleSize-e.size
		e.v.drop()
	}
}

// clear drops all that nobody uses, and returns false if there was nothing.
func (s *shelf[K, V]) clear() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	some := len(s.idle) > 0
	s.trim(0)
	return some
}

// dwarfOf returns img's DWARF data, from its debug file if it has none itself.
func (img *image) dwarfOf(t *Table) (*dwarfData, error) {
	if d := img.dwarf.Load(); d != nil {
		return d, nil
	}
	img.dwarfMu.Lock()
	defer img.dwarfMu.Unlock()
	d := img.dwarf.Load()
	if d == nil && img.dwarfErr == nil {
		d, img.dwarfErr = img.loadDWARF(t)
		img.dwarf.Store(d)
	}
	return d, img.dwarfErr
}

func (img *image) loadDWARF(t *Table) (d *dwarfData, err error) {
	f := img.f
	if !f.hasDWARF() {
		if f = img.debug(t); f == nil || !f.hasDWARF() {
			return nil, img.noDWARF()
		}
	}
	shared := f.file != nil
	leave := func() {}
	if shared {
		d, leave, _ = debugShelf.find(f.file.Info)
	}
	if d == nil {
		if d, err = newDWARF(f, img.vicinity(t)); err != nil {
			return nil, fmt.Errorf("%w: DWARF of %s: %w", ErrNoLines, img.path, err)
		}
		shared = shared && !d.isJoined // else another process, which has other files, would get what this one's say
		if leave = d.drop; shared {
			d, leave = debugShelf.add(f.file.Info, d)
		}
	}
	img.sharing.begin(leave)
	if shared {
		img.leaveWhenGone(leave)
	}
	return d, nil
}

// leaveWhenGone is for an image that nobody closes. leave must not hold img.
func (img *image) leaveWhenGone(leave func()) {
	runtime.AddCleanup(img, func(leave func()) { leave() }, leave)
}

// sharing is an image's use of data that others may use too.
type sharing struct {
	mu       sync.Mutex
	hasEnded bool
	leave    func()
}

func (s *sharing) begin(leave func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leave = leave; s.hasEnded {
		leave()
	}
}

// end ends the sharing for an image that is forgotten. Goroutines that still use the image keep its data.
func (s *sharing) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hasEnded = true; s.leave != nil {
		s.leave()
	}
}

// hasDWARF reports whether there is a section with the entries of debug information.
func (o *object) hasDWARF() bool {
	for _, name := range []string{".debug_info", ".zdebug_info"} {
		if s := o.Section(name); s != nil && s.Type != elf.SHT_NOBITS && s.Size > 0 {
			return true
		}
	}
	return false
}

// noDWARF says which debug files were looked for.
func (img *image) noDWARF() error {
	seen, places := map[string]bool{}, []string(nil)
	for _, p := range img.searched {
		if !seen[p] {
			seen[p] = true
			places = append(places, p)
		}
	}
	if len(places) == 0 {
		return fmt.Errorf("%w: %s has %w and names no debug file", ErrNoLines, img.path, ErrNoDebugInfo)
	}
	return fmt.Errorf("%w: %s has %w, no debug file at %s", ErrNoLines, img.path, ErrNoDebugInfo, strings.Join(places, ", "))
}
