package symbols

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"io"
	"path"
	"strings"

	"github.com/gokprobe/gokprobe/internal/budget"
	"github.com/gokprobe/gokprobe/internal/targetfs"
)

// debug reads the headers of the separate debug file of img on first use, nil if there is none.
func (img *image) debug(t *Table) *object {
	f := img.findDebug(t)
	img.debugRead.Do(func() {
		if f != nil && img.debugElf == nil {
			ef, err := newObject(f, uint64(f.Size), img.f.kept)
			if img.f.refuse(err) == nil {
				img.haveDebug(ef, f)
			}
		}
	})
	return img.debugElf
}

// findDebug opens the separate debug file of img on first use, nil if there is
// none. The places are gdb's: by build ID, then by the name and checksum in
// .gnu_debuglink; as the target sees them.
func (img *image) findDebug(t *Table) *targetfs.File {
	img.debugOnce.Do(func() {
		for _, p := range img.debugPaths(t.files.Inside(img.path), t.debugDirs) {
			img.searched = append(img.searched, p.path)
			if img.openDebug(t.files.Open, p) {
				img.debugName = p.path
				return
			}
		}
		if p := t.fetched.Path(img.buildID); p != "" { // a file of ours, not of the target's
			img.searched = append(img.searched, p)
			img.openDebug(targetfs.Named, debugPath{path: p})
		}
	})
	return img.debugFile
}

// debugPath is a place where a debug file may be, and the checksum that proves that the file
// belongs to the executable.
type debugPath struct {
	path   string
	crc    uint32
	hasCRC bool
}

// debugPaths are the places of the debug file of img, which the target names self.
func (img *image) debugPaths(self string, dirs []string) []debugPath {
	var out []debugPath
	if id := img.buildID; len(id) > 2 {
		for _, d := range dirs {
			out = append(out, debugPath{path: path.Join(d, ".build-id", id[:2], id[2:]+".debug")})
		}
	}
	question := img.f.kept.Open()
	defer question.Close()
	link := img.f.section(".gnu_debuglink", question)
	end := bytes.IndexByte(link, 0)
	if end <= 0 || len(link) < roundUp(end+1, 4)+4 {
		return out
	}
	name := string(link[:end])
	if strings.ContainsRune(name, '/') || name == "." || name == ".." {
		return out // no linker writes that: the name would lead elsewhere
	}
	crc := binary.LittleEndian.Uint32(link[roundUp(end+1, 4):])
	dir := path.Dir(self)
	places := []string{path.Join(dir, name), path.Join(dir, ".debug", name)}
	for _, d := range dirs {
		places = append(places, path.Join(d, dir, name))
	}
	for _, p := range places {
		if p != self {
			out = append(out, debugPath{p, crc, true})
		}
	}
	return out
}

// openDebug opens a file if it is img's debug file.
func (img *image) openDebug(open func(string) (*targetfs.File, error), want debugPath) bool {
	f, err := open(want.path)
	if err != nil {
		return false
	}
	if !want.hasCRC && img.f.file != nil && symbolShelf.has(symbolKey{img.f.file.Info, f.Info}) { // it has matched before
		img.debugFile = f
		return true
	}
	ef, err := newObject(f, uint64(f.Size), img.f.kept)
	if err != nil || !img.matches(ef, f, want) {
		f.Close()
		return false
	}
	img.debugFile = f
	img.haveDebug(ef, f)
	return true
}

func (img *image) haveDebug(ef *object, f *targetfs.File) {
	ef.refused, ef.file = img.f.refused, f
	img.debugElf = ef
}

// matches compares build IDs where both files have one; a checksum costs
// reading the whole file and is the fallback.
func (img *image) matches(ef *object, f *targetfs.File, want debugPath) bool {
	question := img.f.kept.Open()
	defer question.Close()
	if id := buildIDNote(ef.section(".note.gnu.build-id", question), 4); id != "" && img.buildID != "" {
		return id == img.buildID
	}
	if !want.hasCRC {
		return true
	}
	if uint64(f.Size) > budget.Process().Limit() { // it takes time, and would not be read
		return false
	}
	h := crc32.NewIEEE()
	if _, err := io.Copy(h, io.NewSectionReader(f, 0, f.Size)); err != nil {
		return false
	}
	return h.Sum32() == want.crc
}
