package symbols

import (
	"debug/dwarf"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"

	"github.com/gokprobe/gokprobe/internal/budget"
	"github.com/gokprobe/gokprobe/internal/targetfs"
)

// skeleton is a unit whose entries lie in another file (DWARF 5 §3.1.2; GNU's split DWARF 4).
type skeleton struct {
	entry      *dwarf.Entry
	id         uint64
	name, dir  string
	addrBase   int64
	rangesBase uint64
	found      bool
}

// skeletonOf reads the skeleton that a unit of the file itself is, nil if it is a whole unit.
func skeletonOf(h unitHeader, e *dwarf.Entry) *skeleton {
	s := &skeleton{entry: e, id: h.id}
	s.name, _ = e.Val(dwarf.AttrDwoName).(string)
	s.addrBase, _ = e.Val(dwarf.AttrAddrBase).(int64)
	if h.kind != unitSkeleton {
		id, ok := e.Val(attrGNUDwoID).(int64)
		if !ok || h.version >= 5 {
			return nil
		}
		s.id = uint64(id)
		s.name, _ = e.Val(attrGNUDwoName).(string)
		s.addrBase, _ = e.Val(attrGNUAddrBase).(int64)
		base, _ := e.Val(attrGNURangesBase).(int64)
		s.rangesBase = uint64(base)
	}
	s.dir, _ = e.Val(dwarf.AttrCompDir).(string)
	return s
}

// skeletons lists the units whose entries lie elsewhere.
func (d *dwarfData) skeletons() (out []*skeleton) {
	for _, u := range d.units {
		if h, ok := d.header(u.off); ok {
			if s := skeletonOf(h, u.entry); s != nil {
				out = append(out, s)
			}
		}
	}
	return out
}

// vicinity is where the other files of a file's debug information are looked for.
type vicinity struct {
	files *targetfs.Files
	self  []string // what the target calls the file, and the one with its debug information
	dirs  []string // with files by build ID
}

// withOthers is d, whose sections are own, joined with what lies in other files. Where these can't be had, what is known of d stays as it is.
func (d *dwarfData) withOthers(f *object, own sections, near *vicinity) (*dwarfData, error) {
	question := d.kept.Open()
	defer question.Close()
	j := newJoiner(own, question)
	lost := d.collect(j, f, near)
	if len(j.units) == 0 {
		return d, d.refused.tellAll(lost)
	}
	all := &dwarfData{kept: budget.Process().Open(), types: map[dwarf.Offset]*dtype{}, isJoined: true, supplement: j.supplement}
	s, err := j.joined(all.kept)
	if err == nil {
		err = all.check(s["info"], s["abbrev"], s["str"], s["line_str"])
	}
	if err == nil {
		err = all.load(s, j.units)
	}
	if err != nil {
		all.kept.Close()
		d.isJoined = true
		return d, d.refused.tellAll(append(lost, fmt.Errorf("the debug information of its other files: %w", err)))
	}
	d.kept.Close()
	return all, all.refused.tellAll(lost)
}

// tellAll adds what else is not read.
func (r *refusals) tellAll(list []error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.some = r.some || len(list) > 0
	r.list = append(r.list, list...)
	return nil
}

// collect finds the units that lie in other files. It returns what is missing.
func (d *dwarfData) collect(j *joiner, f *object, near *vicinity) (lost []error) {
	acct := d.kept.Open()
	defer acct.Close()
	own := newJoinedFile(j, sections{"types": j.own["types"], "abbrev": j.own["abbrev"], "str": j.own["str"]}, acct)
	own.isUsed = true
	if err := own.typeUnits(); err != nil {
		lost = append(lost, err)
	}
	if name, id := f.supplementary(acct); name != "" {
		d.isJoined = true
		if err := j.addSupplement(name, id, near); err != nil {
			lost = append(lost, err)
		}
	}
	if all := d.skeletons(); len(all) > 0 {
		d.isJoined = true
		lost = append(lost, j.addSplit(all, near)...)
	}
	return lost
}

// addSplit finds the split units of skeletons: in the package beside the program, then in the files that the skeletons name.
func (j *joiner) addSplit(all []*skeleton, near *vicinity) (lost []error) {
	wanted := map[uint64]*skeleton{}
	for _, s := range all {
		wanted[s.id] = s
	}
	for _, self := range near.self {
		if err := j.addFile([]string{self + ".dwp"}, near, wanted); err != nil && !errors.Is(err, fs.ErrNotExist) {
			lost = append(lost, fmt.Errorf("%s.dwp: %w", self, err))
		}
	}
	var why error
	tried, missing := map[string]bool{}, 0
	for _, s := range all {
		places := s.places(near)
		if !s.found && len(places) > 0 && !tried[places[0]] {
			tried[places[0]] = true
			if err := j.addFile(places, near, wanted); err != nil && why == nil {
				why = fmt.Errorf("%s: %w", places[0], errors.Unwrap(err))
				if pe := (*fs.PathError)(nil); !errors.As(err, &pe) {
					why = fmt.Errorf("%s: %w", places[0], err)
				}
			}
		}
		if !s.found {
			missing++
		}
	}
	if missing > 0 {
		lost = append(lost, fmt.Errorf("split debug information of %d of %d units is missing, the first in %w", missing, len(all), orUnnamed(why)))
	}
	return lost
}

func orUnnamed(err error) error {
	if err == nil {
		return errors.New("a file without a name")
	}
	return err
}

// places is where the file of s may be: where the compiler has written it, or beside the program.
func (s *skeleton) places(near *vicinity) (out []string) {
	if s.name == "" {
		return nil
	}
	add := func(p string) {
		if path.IsAbs(p) && !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	if path.IsAbs(s.name) {
		add(path.Clean(s.name))
	} else {
		add(path.Join(s.dir, s.name))
	}
	for _, self := range near.self {
		if !path.IsAbs(s.name) {
			add(path.Join(path.Dir(self), s.name))
		}
		add(path.Join(path.Dir(self), path.Base(s.name)))
	}
	return out
}

// addFile joins the wanted units of the first file of those names that has some.
func (j *joiner) addFile(names []string, near *vicinity, wanted map[uint64]*skeleton) (err error) {
	for _, name := range names {
		f, openErr := near.files.Open(name)
		if openErr == nil {
			openErr = j.addUnits(f, wanted)
			_ = f.Close()
		}
		if openErr == nil {
			return nil
		}
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			err = openErr
		}
	}
	return err
}

// addUnits joins the wanted units of a .dwo file or a package.
func (j *joiner) addUnits(file *targetfs.File, wanted map[uint64]*skeleton) error {
	question := budget.Process().Open()
	defer question.Close()
	o, err := newObject(file, uint64(file.Size), question)
	if err != nil {
		return err
	}
	s, err := readSplit(o, question)
	if err != nil {
		return err
	}
	f := newJoinedFile(j, s, question)
	f.wanted = wanted
	if hs := unitHeaders(s["info"]); len(hs) > 0 {
		f.old = hs[0].version < 5
	}
	if cu := o.section(".debug_cu_index", question); cu != nil {
		units, version, ok := packageIndex(cu)
		types, typesVersion, known := packageIndex(o.section(".debug_tu_index", question))
		if !known || typesVersion != version {
			types = nil
		}
		if !ok {
			return errors.New("its index is not understood")
		}
		f.units, f.types, f.old, f.isPackage = units, types, version < 5, true
	}
	if n, err := f.compileUnits(); err != nil || n == 0 {
		return cmpError(err, errNoUnit)
	}
	return f.typeUnits()
}

func cmpError(err, otherwise error) error {
	if err != nil {
		return err
	}
	return otherwise
}

// readSplit reads the sections of split debug information. Each type may have a section of its own.
func readSplit(o *object, acct *budget.Account) (sections, error) {
	s, err := readSections(o, ".dwo", acct)
	if err != nil {
		return nil, err
	}
	for _, name := range []string{"info", "types"} {
		var all []byte
		for _, part := range o.Sections {
			if part.Name != ".debug_"+name+".dwo" {
				continue
			}
			b, err := o.content(part, acct)
			if err != nil {
				return nil, err
			}
			if all = append(all, b...); len(all) > len(b) {
				if err := acct.Take(2*uint64(len(b)), "the parts of a section"); err != nil {
					return nil, err
				}
			}
		}
		if all != nil {
			s[name] = all
		}
	}
	if len(s["info"]) == 0 {
		return nil, errors.New("it has no split debug information")
	}
	return s, check(s, acct)
}

// check checks what is copied before it is.
func check(s sections, acct *budget.Account) error {
	d := &dwarfData{kept: acct}
	return d.check(s["info"], s["abbrev"], s["str"])
}
