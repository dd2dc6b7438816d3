package symbols

import (
	"debug/elf"
	"time"

	"github.com/gokprobe/gokprobe/internal/budget"
	"github.com/gokprobe/gokprobe/internal/targetfs"
)

// symbolShelf is for symbol tables. A process that executes one program after the other has the same few libraries in each of them, but never in two at once: so
// tables that nobody uses are kept, unless the memory is needed. They hold no files.
var symbolShelf = func() *shelf[symbolKey, *symtab] {
	s := newShelf[symbolKey, *symtab](mostIdle)
	budget.Process().Spare(s.clear)
	return s
}()

const mostIdle = 32 << 20 // bytes

// coarsestTime is how far apart the times of changes are that file systems can tell, at most: FAT.
var coarsestTime = 2 * time.Second

// symbolKey is the files of which a symbol table was read.
type symbolKey struct {
	file, debug targetfs.Info // debug is zero if there was no debug file, or no need of one
}

func (s *symtab) size() uint64 { return s.kept.Held() }

func (s *symtab) drop() { s.kept.Close() }

// loadSymbols takes img's symbol table from the shelf, or reads it.
func (img *image) loadSymbols(t *Table) *symtab {
	key, shared := img.symbolKey(t)
	if shared {
		if s, leave, ok := symbolShelf.find(key); ok {
			img.ofSyms.begin(leave)
			img.leaveWhenGone(leave)
			img.shared.Store(s)
			return s
		}
	}
	s := img.readSymbols(t)
	leave := s.drop
	if shared && !s.isOwn && img.isSettled(key) {
		s.answers.isUsed = true
		s, leave = symbolShelf.add(key, s)
		img.leaveWhenGone(leave)
		img.shared.Store(s)
	}
	img.ofSyms.begin(leave)
	return s
}

// symbolKey is ok if others may share img's symbol table, and t may share theirs.
func (img *image) symbolKey(t *Table) (key symbolKey, ok bool) {
	if t.pid == 0 || img.f.file == nil { // a single file is read once
		return key, false
	}
	key.file = img.f.file.Info
	if !img.f.hasSymtab() {
		if debug := img.findDebug(t); debug != nil {
			key.debug = debug.Info
		}
	}
	return key, true
}

// isSettled reports whether what was read for key is all there is in these files, and will be found by that key only as long as they do not change.
func (img *image) isSettled(key symbolKey) bool {
	if img.f.refused.hasSome() || !img.f.file.Settled(coarsestTime) {
		return false
	}
	return key.debug == targetfs.Info{} || img.debugFile.Settled(coarsestTime)
}

// hasSymtab reports whether the file has symbols of its own, so that no debug file is looked for.
func (o *object) hasSymtab() bool {
	s := o.Section(".symtab")
	return s != nil && s.Type != elf.SHT_NOBITS && s.Size >= symSize
}
