package symbols

import (
	"debug/dwarf"
	"encoding/binary"
	"slices"
	"strings"
	"sync"

	"github.com/gokprobe/gokprobe/arch"
)

// attrGoRuntimeType is where a type's descriptor lies, an abi.Type: as distance from moduledata.types.
const attrGoRuntimeType = dwarf.Attr(0x2904)

// The index of types that interfaces may hold.
const (
	mostGoTypes = 1 << 18
	goTypeCost  = 40 // bytes, while a map grows
)

// goType is the entry of a type that has a descriptor.
type goType struct {
	off  dwarf.Offset
	kind byte // reflect.Kind
}

// goMeaning is the type that a Step names.
type goMeaning struct {
	goType
	at  uint64 // of the descriptor, from moduledata.types; 0 for a type that is cast to
	typ *dtype
}

// goTypes keeps where types are described that have descriptors.
type goTypes struct {
	once sync.Once
	byAt map[uint64]goType

	mu    sync.Mutex
	named map[string]goMeaning // those that were asked for by name, without typ; at is 0 if there is none, or several
}

// eachGoType shows the types that have descriptors.
func (d *dwarfData) eachGoType(f func(e *dwarf.Entry, at uint64)) {
	for _, h := range d.headers {
		if d.languageAt(h.first) != langGo {
			continue
		}
		d.eachOutside(h.first, func(e *dwarf.Entry, _ string) {
			if at, ok := e.Val(attrGoRuntimeType).(uint64); ok && at != 0 {
				f(e, at)
			}
		})
	}
}

func goTypeOf(e *dwarf.Entry) goType {
	kind, _ := e.Val(attrGoKind).(int64)
	return goType{e.Offset, byte(kind)}
}

// goIndex tells where types are described, by where their descriptors lie. It is made when it is first asked for.
func (d *dwarfData) goIndex() map[uint64]goType {
	d.golang.once.Do(func() {
		all := map[uint64]goType{}
		d.eachGoType(func(e *dwarf.Entry, at uint64) {
			if len(all) < mostGoTypes {
				all[at] = goTypeOf(e)
			}
		})
		if d.keep(uint64(len(all))*goTypeCost, "the types that interfaces hold") == nil {
			d.golang.byAt = all
		}
	})
	return d.golang.byAt
}

func (d *dwarfData) goTypeAt(off dwarf.Offset) (*dtype, error) {
	d.typeMu.Lock()
	defer d.typeMu.Unlock()
	r := &typeReader{d: d, cache: d.types, lang: langGo}
	t := r.at(off)
	return t, r.err
}

// goTypeNamed finds a type that an interface may hold, as the source names it: pkg.T, T, *pkg.T. If several have the name it is unknown which is meant.
func (d *dwarfData) goTypeNamed(name string) (x goMeaning, err error) {
	g := &d.golang
	g.mu.Lock()
	x, known := g.named[name]
	if !known {
		if x = d.findGoType(name); g.named == nil || len(g.named) >= mostAnswers {
			g.named = map[string]goMeaning{}
		}
		g.named[name] = x
	}
	g.mu.Unlock()
	if x.at == 0 {
		return x, ErrNoType
	}
	x.typ, err = d.goTypeAt(x.off)
	return x, err
}

// findGoType reads all entries of types; at is 0 if none has the name, or several have it.
func (d *dwarfData) findGoType(name string) (x goMeaning) {
	const stars = "*"
	base := strings.TrimLeft(name, stars)
	isSure := true
	d.eachGoType(func(e *dwarf.Entry, at uint64) {
		own, _ := e.Val(dwarf.AttrName).(string)
		ownBase := strings.TrimLeft(own, stars)
		if !strings.HasSuffix(own, base) || len(own)-len(ownBase) != len(name)-len(base) || !means(base, ownBase) || at == x.at {
			return
		}
		isSure = isSure && x.at == 0
		x.at, x.goType = at, goTypeOf(e)
	})
	if !isSure {
		return goMeaning{}
	}
	return x
}

// understand finds the type that s names, unless that was done.
func (p *Param) understand(s *Step) error {
	if s.meant != nil {
		return nil
	}
	var x goMeaning
	switch s.Kind {
	case StepCast:
		t, err := p.typeNamed(s.Member)
		if err != nil {
			return err
		}
		x.typ = t
	case StepAssert:
		d, err := p.goTypes()
		if err != nil {
			return ErrNoType
		}
		if x, err = d.goTypeNamed(s.Member); err != nil {
			return err
		}
	default:
		return nil
	}
	s.meant = &x
	return nil
}

// understood are steps that search for no types by their names: they are gone while a thread waits. failed is the step that err is of.
func (p *Param) understood(path []Step) (steps []Step, failed int, err error) {
	steps = slices.Clone(path)
	for i := range steps {
		if err := p.understand(&steps[i]); err != nil {
			return nil, i, err
		}
	}
	return steps, 0, nil
}

// descriptor is an abi.Type (src/internal/abi/type.go), among those of a program.
type descriptor struct{ at, lo, hi uint64 }

// agrees tells whether it is that of t. Versions of Go differ in where they have descriptors, so the place alone is not believed.
func (x descriptor) agrees(t *dtype, kind byte, m arch.Memory) bool {
	f := &formatter{mem: m}
	b := f.prefix(arch.Addr(x.at), descriptorSize)
	if len(b) < descriptorSize || binary.LittleEndian.Uint64(b) != uint64(t.size) || b[descriptorKind]&descriptorKinds != kind {
		return false
	}
	const longest = 128
	if len(t.name) > longest || strings.ContainsAny(t.name, "[({ ·") { // such names are spelt otherwise there
		return true
	}
	own, ok := f.readType(x.at, x.lo, x.hi)
	return ok && afterDot(own.name) == afterDot(t.name)
}

// afterDot is the name of a type without its package.
func afterDot(name string) string { return name[strings.LastIndexByte(name, '.')+1:] }
