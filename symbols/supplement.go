package symbols

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"path"

	"github.com/gokprobe/gokprobe/internal/budget"
)

// supplementary is the name of the file that several programs share a part of their debug information in, and its build ID: dwz makes such files. name is
// empty if there is none.
func (o *object) supplementary(acct *budget.Account) (name, id string) {
	b := o.section(".gnu_debugaltlink", acct)
	end := bytes.IndexByte(b, 0)
	if end <= 0 {
		return "", ""
	}
	return string(b[:end]), hex.EncodeToString(b[end+1:])
}

// addSupplement joins the units of the supplementary file.
func (j *joiner) addSupplement(name, id string, near *vicinity) error {
	var places []string
	if len(id) > 2 {
		for _, d := range near.dirs {
			places = append(places, path.Join(d, ".build-id", id[:2], id[2:]+".debug"))
		}
	}
	for _, self := range near.self {
		if path.IsAbs(name) {
			self = "/"
		}
		places = append(places, path.Join(path.Dir(self), name))
	}
	err := fmt.Errorf("the supplementary file %s: there is no place for it", name)
	for _, p := range places {
		if err = j.openSupplement(p, id, near); err == nil {
			return nil
		}
	}
	return fmt.Errorf("the supplementary file of the debug information is missing: %w", err)
}

func (j *joiner) openSupplement(name, id string, near *vicinity) error {
	file, err := near.files.Open(name)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	question := budget.Process().Open()
	defer question.Close()
	o, err := newObject(file, uint64(file.Size), question)
	if err != nil {
		return err
	}
	if has := buildIDNote(o.section(".note.gnu.build-id", question), 4); has != id {
		return fmt.Errorf("%s: its build ID is %s, not %s", name, has, id)
	}
	s, err := readSections(o, "", question)
	if err == nil {
		err = check(s, question)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return j.addShared(s, question)
}

// addShared joins all units of a supplementary file, one behind the other as they are.
func (j *joiner) addShared(s sections, acct *budget.Account) (err error) {
	f := newJoinedFile(j, s, acct)
	at := uint64(len(j.own["info"]) + len(j.more["info"]))
	strings := bytes.Clone(s["str"]) // the file's account ends before they are asked for
	if err := j.part.Set(2 * (j.size + uint64(len(strings)))); err != nil {
		return err
	}
	j.size += uint64(len(strings))
	r := &reach{add: at, lo: at, hi: at + uint64(len(s["info"])), str: strings}
	eachUnit(s["info"], func(h unitHeader) {
		table, ok := f.abbrevs(h)
		if !ok || h.isWide {
			err = errUnit
		}
		if err != nil {
			return
		}
		b, place := bytes.Clone(s["info"][h.start:h.end]), uint64(0)
		if place, err = j.table(tableKey{file: f, from: h.abbrev}, table.list); err != nil {
			return
		}
		where := b[6:] // the header's offset of abbreviations
		if h.version >= 5 {
			where = b[8:]
		}
		binary.LittleEndian.PutUint32(where, uint32(place))
		err = j.putUnit(b, &joinedUnit{version: h.version, reach: r})
	})
	if err == nil {
		j.supplement = r
	}
	return err
}

// vicinity is where the other files of img's debug information are looked for.
func (img *image) vicinity(t *Table) *vicinity {
	v := &vicinity{files: t.files, self: []string{t.files.Inside(img.path)}, dirs: t.debugDirs}
	if img.debugFile != nil && img.debugName != "" {
		v.self = append(v.self, img.debugName)
	}
	return v
}
