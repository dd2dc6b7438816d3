package symbols

import (
	"debug/dwarf"
	"fmt"
	"math"
	"slices"

	"github.com/gokprobe/gokprobe/internal/budget"
)

// A file's debug information may lie in several files. Their units are put behind the file's own, as if a linker had done it, so that whoever
// reads entries need not know of it. Entries keep their lengths, and so the distances between them. What is changed is their abbreviations
// (joinedabbrev.go), where these stand for forms that count from the beginning of a section.

// joinedUnit is a unit of another file.
type joinedUnit struct {
	start    uint64    // of its header, in the joined section
	version  uint16    // as it was: units of DWARF 4 get a header of DWARF 5
	skeleton *skeleton // nil for types' units and for supplementary files
	id, typ  uint64    // of a type's unit
	// What offsets to lists count from.
	ranges, loc uint64
	reach       *reach
}

// reach is what references from one unit to others of its file, and to its file's strings, count from.
type reach struct {
	add, lo, hi uint64 // an offset, and what it may lead to
	str         []byte
}

// entry is the place of the entry at an offset in the reach's file.
func (r *reach) entry(off uint64) (dwarf.Offset, bool) {
	at := r.add + off
	return dwarf.Offset(at), at >= r.lo && at < r.hi && at <= math.MaxUint32
}

// text is the string at an offset.
func (r *reach) text(off uint64) (string, bool) {
	n := nameLength(r.str, off)
	b, ok := section(r.str, off, n)
	return string(b), ok
}

// haveJoined notes which units are of other files.
func (d *dwarfData) haveJoined(units []*joinedUnit) {
	byStart := map[uint64]*joinedUnit{}
	d.replaced, d.signatures = map[dwarf.Offset]bool{}, map[uint64]dwarf.Offset{}
	for _, u := range units {
		byStart[u.start] = u
		if u.skeleton != nil {
			d.replaced[u.skeleton.entry.Offset] = true
		}
	}
	for i := range d.headers {
		h := &d.headers[i]
		id, typ := h.id, h.typ
		if u := byStart[h.start]; u != nil {
			h.joined, h.version = u, u.version
			id, typ = u.id, u.typ
		}
		if typ > 0 && h.start+typ < h.end {
			d.signatures[id] = dwarf.Offset(h.start + typ)
		}
	}
}

// isReplaced tells of a unit's entry that the unit is only the skeleton of one that is here.
func (d *dwarfData) isReplaced(e *dwarf.Entry) bool { return d.replaced[e.Offset] }

// united is the entry of a split unit, with what its skeleton tells. Ranges are left out: only the skeleton's can be read there.
func united(split, skeleton *dwarf.Entry) *dwarf.Entry {
	e := *split
	e.Field = slices.Clone(e.Field)
	for _, f := range skeleton.Field {
		if e.AttrField(f.Attr) == nil && f.Attr != dwarf.AttrRanges && f.Attr != dwarf.AttrHighpc {
			e.Field = append(e.Field, f)
		}
	}
	return &e
}

// lead makes offsets of what e refers to in other units and files.
func (d *dwarfData) lead(e *dwarf.Entry) {
	for i := range e.Field {
		f := &e.Field[i]
		switch f.Class {
		case dwarf.ClassReferenceSig:
			if off, ok := d.signatures[f.Val.(uint64)]; ok {
				f.Val, f.Class = off, dwarf.ClassReference
			}
		case dwarf.ClassReferenceAlt, dwarf.ClassStringAlt:
			r := d.supplement
			if h, _ := d.header(e.Offset); h.joined != nil {
				r = h.joined.reach
			}
			if n, ok := f.Val.(int64); ok && r != nil {
				r.follow(f, uint64(n))
			}
		}
	}
}

// follow puts into f what it refers to at off.
func (r *reach) follow(f *dwarf.Field, off uint64) {
	if f.Class == dwarf.ClassReferenceAlt {
		if at, ok := r.entry(off); ok {
			f.Val, f.Class = at, dwarf.ClassReference
		}
	} else if s, ok := r.text(off); ok {
		f.Val, f.Class = s, dwarf.ClassString
	}
}

// joiner collects what is put behind a file's sections.
type joiner struct {
	own   sections
	more  sections
	part  *budget.Part
	size  uint64
	units []*joinedUnit

	tables     map[tableKey]uint64 // abbreviations, by what they were made of
	signatures map[uint64]bool
	supplement *reach
}

func newJoiner(own sections, acct *budget.Account) *joiner {
	return &joiner{
		own: own, more: sections{}, part: acct.Part("split debug information"),
		tables: map[tableKey]uint64{}, signatures: map[uint64]bool{},
	}
}

// put puts b behind a section, and returns where it begins there.
func (j *joiner) put(name string, b []byte) (at uint64, err error) {
	const growth = 2 // lists that grow
	if err := j.part.Set(growth * (j.size + uint64(len(b)))); err != nil {
		return 0, err
	}
	j.size += uint64(len(b))
	at = uint64(len(j.own[name]) + len(j.more[name]))
	if at+uint64(len(b)) > math.MaxUint32 {
		return 0, fmt.Errorf("%w: section %s has over 4 GiB", errTooMuch, name)
	}
	j.more[name] = append(j.more[name], b...)
	return at, nil
}

// putUnit puts a unit behind the others.
func (j *joiner) putUnit(b []byte, u *joinedUnit) (err error) {
	const cost = 256 // bytes, with its reach
	if err := j.part.Set(2*j.size + uint64(len(j.units)+1)*cost); err != nil {
		return err
	}
	if u.start, err = j.put("info", b); err == nil {
		j.units = append(j.units, u)
	}
	return err
}

// joined are all sections, the file's own first.
func (j *joiner) joined(acct *budget.Account) (sections, error) {
	all, size := sections{}, uint64(0)
	for name, b := range j.own {
		size += uint64(len(b) + len(j.more[name]))
	}
	if err := acct.Take(size, "the debug information of several files"); err != nil {
		return nil, err
	}
	for name, b := range j.own {
		if all[name] = b; len(j.more[name]) > 0 {
			all[name] = slices.Concat(b, j.more[name])
		}
	}
	return all, nil
}
