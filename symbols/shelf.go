package symbols

import (
	"debug/elf"
	"fmt"
	"runtime"
	"strings"
	"sync"

	"github.com/gokprobe/gokprobe/internal/targetfs"
)

// shelf shares the debug information of a file among images: many processes may run one executable, or map one library. Debug
// information takes the most memory of all. It depends only on the file's content, so any image may read it first. A file that
// has changed counts as another one.
type shelf struct {
	mu sync.Mutex
	on map[targetfs.Info]*shelved
}

type shelved struct {
	d     *dwarfData
	users int
}

var debugShelf = shelf{on: map[targetfs.Info]*shelved{}}

// find returns the debug information of a file, or nil if it is not on the shelf. leave must be called once.
func (s *shelf) find(id targetfs.Info) (d *dwarfData, leave func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.on[id]
	if e == nil {
		return nil, nil
	}
	return e.d, s.use(id, e)
}

// add puts d on the shelf and returns it. If another goroutine has put the file's data there meanwhile, that is returned.
func (s *shelf) add(id targetfs.Info, d *dwarfData) (shared *dwarfData, leave func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.on[id]
	if e == nil {
		e = &shelved{d: d}
		s.on[id] = e
	} else {
		d.kept.Close()
	}
	return e.d, s.use(id, e)
}

func (s *shelf) use(id targetfs.Info, e *shelved) (leave func()) {
	e.users++
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if e.users--; e.users == 0 {
			delete(s.on, id)
			e.d.kept.Close()
		}
	})
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
	shared := f.id != targetfs.Info{}
	leave := func() {}
	if shared {
		d, leave = debugShelf.find(f.id)
	}
	if d == nil {
		if d, err = newDWARF(f); err != nil {
			return nil, fmt.Errorf("%w: DWARF of %s: %w", ErrNoLines, img.path, err)
		}
		if leave = d.kept.Close; shared {
			d, leave = debugShelf.add(f.id, d)
		}
	}
	img.sharing.begin(leave)
	if shared {
		runtime.AddCleanup(img, func(leave func()) { leave() }, leave)
	}
	return d, nil
}

// sharing is an image's use of debug information that others may use too.
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
