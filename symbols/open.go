package symbols

import (
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"sort"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/internal/targetfs"
)

// imageKey is a file's identity in the maps; path only for OpenFile.
type imageKey struct {
	dev   string
	inode uint64
	path  string
}

const vdsoPath = "[vdso]"

// Refresh reads the maps again, after dlopen, dlclose or exec. Files that are
// still mapped are kept with all that was read of them.
func (t *Table) Refresh() error {
	if t.pid == 0 {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	maps, err := t.maps()
	if err != nil {
		return fmt.Errorf("read the mappings of process %d: %w", t.pid, err)
	}
	t.reading = &reading{maps: byFile(maps), failed: map[imageKey]error{}}
	defer func() { t.reading = nil }()
	mods := t.collect(maps)
	mods = append(mods, t.collectRemapped(mods, maps)...)
	t.classify(mods)
	markCopies(mods, maps)
	addRemapped(mods, maps)
	t.dropUnused(mods)
	t.snap.Store(newSnapshot(mods))
	return nil
}

// mostModules is how many modules are known: a process can map one file sixty thousand times, each time at another place. The others are code of
// which nothing is known.
const mostModules = 4096

// reading is what a Refresh has found out for what follows in it: nothing of a file is looked for once for each of its mappings.
type reading struct {
	maps   map[imageKey][]procfs.Mapping
	failed map[imageKey]error
}

func byFile(maps []procfs.Mapping) map[imageKey][]procfs.Mapping {
	all := map[imageKey][]procfs.Mapping{}
	for _, m := range maps {
		if m.Path != "" {
			all[keyOf(m)] = append(all[keyOf(m)], m)
		}
	}
	return all
}

// collect groups the executable mappings into modules, one for each file and
// bias.
func (t *Table) collect(maps []procfs.Mapping) []*Module {
	type key struct {
		imageKey
		bias uint64
	}
	var mods []*Module
	byKey := map[key]*Module{}
	for _, mp := range maps {
		if !mp.Exec || mp.Path == "" || mp.Path[0] == '[' && mp.Path != vdsoPath {
			continue
		}
		img, err := t.image(mp)
		k := key{imageKey: keyOf(mp)}
		if img != nil {
			k.bias = biasOf(img, mp)
		}
		m := byKey[k]
		if m == nil {
			if len(mods) >= mostModules {
				continue
			}
			m = newModule(k.imageKey, img, t)
			m.Bias, m.Err = k.bias, err
			byKey[k] = m
			mods = append(mods, m)
		}
		m.Text = append(m.Text, mp.Range)
	}
	return mods
}

// collectRemapped finds modules all of whose code was moved to anonymous memory:
// such memory behind a mapped ELF header whose file has no module yet.
func (t *Table) collectRemapped(mods []*Module, maps []procfs.Mapping) []*Module {
	known := map[string]bool{}
	for _, m := range mods {
		known[m.Path] = true
	}
	var out []*Module
	var header procfs.Mapping
	for _, mp := range maps {
		switch {
		case mp.Offset == 0 && mp.Inode != 0:
			header = mp
		case mp.Exec && mp.Path == "" && header.Path != "" && !known[header.Path]:
			known[header.Path] = true
			img, err := t.image(header)
			if err != nil {
				continue
			}
			m := newModule(keyOf(header), img, t)
			m.Bias = uint64(header.Range.Start) - img.lowest()&^(pageSize-1)
			out = append(out, m)
		}
	}
	return out
}

func keyOf(mp procfs.Mapping) imageKey {
	return imageKey{dev: mp.Dev, inode: mp.Inode, path: mp.Path}
}

// biasOf is where img stands, judged by the file offset of one executable
// mapping. Offsets, unlike addresses, survive every kind of prelink and ASLR.
func biasOf(img *image, mp procfs.Mapping) uint64 {
	segs := img.execSegments()
	if len(segs) == 0 {
		return 0
	}
	best := segs[0]
	for _, p := range segs {
		page := p.Off &^ (pageSize - 1)
		if mp.Offset >= page && mp.Offset < p.Off+p.Filesz {
			best = p
			break
		}
	}
	return uint64(mp.Range.Start) - mp.Offset + best.Off - best.Vaddr
}

const pageSize = 4096

// image returns the file behind mp, from the cache if it was opened before.
func (t *Table) image(mp procfs.Mapping) (*image, error) {
	k := keyOf(mp)
	if img := t.images[k]; img != nil {
		return img, nil
	}
	if err := t.reading.failed[k]; err != nil {
		return nil, err
	}
	if len(t.images) >= mostModules {
		return nil, fmt.Errorf("%s: more files are mapped than are looked at", mp.Path)
	}
	img, err := t.openMapping(mp)
	if err != nil {
		t.reading.failed[k] = err
		return nil, err
	}
	t.images[k] = img
	return img, nil
}

func (t *Table) openMapping(mp procfs.Mapping) (*image, error) {
	if mp.Path == vdsoPath {
		return t.imageInMemory(mp.Range.Start, mp, true)
	}
	var errs []error
	for _, open := range t.ways(mp) {
		f, err := open()
		if err != nil {
			var refused *fs.PathError // it may name a link in /proc
			if errors.As(err, &refused) && !errors.Is(err, unix.ENOENT) {
				errs = append(errs, fmt.Errorf("open %s: %w", mp.Path, refused.Err))
			}
			continue
		}
		img, err := openImage(f, mp.Path)
		if err == nil {
			return img, nil
		}
		_ = f.Close()
		errs = append(errs, err)
	}
	if base, ok := t.headerOf(mp); ok {
		if img, err := t.imageInMemory(base, mp, false); err == nil {
			return img, nil
		}
	}
	if len(errs) == 0 {
		errs = append(errs, fmt.Errorf("%s: the mapped file is gone: %w", mp.Path, unix.ENOENT))
	}
	return nil, errors.Join(errs...)
}

// ways are how to come by a mapped file, in the order they are tried. The name, of which only the inode number proves that it
// is the file, comes first because map_files needs a capability (proc(5)). Devices are not compared: overlay
// and btrfs report another one to stat than to the maps.
func (t *Table) ways(mp procfs.Mapping) []func() (*targetfs.File, error) {
	same := func(f *targetfs.File, err error) (*targetfs.File, error) {
		if err == nil && f.Inode != mp.Inode {
			_ = f.Close()
			return nil, unix.ENOENT
		}
		return f, err
	}
	exact := []func() (*targetfs.File, error){
		func() (*targetfs.File, error) { return t.files.Mapped(mp.Range) },
		func() (*targetfs.File, error) { return same(t.files.Executable()) },
	}
	if mp.Deleted {
		return exact
	}
	named := func() (*targetfs.File, error) { return same(t.files.Open(t.files.Inside(mp.Path))) }
	return append([]func() (*targetfs.File, error){named}, exact...)
}

// headerOf finds the mapping of mp's file that starts with its ELF header.
func (t *Table) headerOf(mp procfs.Mapping) (found arch.Addr, ok bool) {
	if t.mem == nil {
		return 0, false
	}
	for _, m := range t.reading.maps[keyOf(mp)] {
		if m.Offset == 0 && m.Range.Start <= mp.Range.Start {
			found, ok = m.Range.Start, true
		}
	}
	return found, ok
}

// extent is how many bytes of mp's file, which is mapped at base, the process maps at most: up to the end of the last mapping that may belong to it.
func (t *Table) extent(base arch.Addr, mp procfs.Mapping) (end uint64) {
	for _, m := range t.reading.maps[keyOf(mp)] {
		if m.Range.Start >= base {
			end = max(end, m.Offset+m.Range.Len())
		}
	}
	return end
}

// imageInMemory reads the ELF image of mp's file that is mapped at base.
func (t *Table) imageInMemory(base arch.Addr, mp procfs.Mapping, whole bool) (*image, error) {
	if t.mem == nil {
		return nil, fmt.Errorf("%s: no access to the target's memory", mp.Path)
	}
	mf := &memoryFile{mem: t.mem, base: base, whole: whole}
	img, err := newImage(mf, t.extent(base, mp), mp.Path)
	if err != nil {
		return nil, err
	}
	if !whole {
		for _, p := range img.f.Progs {
			if p.Type == elf.PT_LOAD {
				mf.progs = append(mf.progs, p.ProgHeader)
			}
		}
	}
	return img, nil
}

// classify sets each module's Kind and sorts them into search order.
func (t *Table) classify(mods []*Module) {
	aux, _ := t.auxv()
	const atPhdr, atBase, atEntry = 3, 7, 9
	main := t.mainModule(mods, arch.Addr(aux[atEntry]))
	for _, m := range mods {
		switch {
		case m.Path == vdsoPath:
			m.Kind = KindVDSO
		case m == main:
			m.Kind, m.aliases = KindExecutable, t.aliases()
		case aux[atBase] != 0 && m.Bias == aux[atBase]:
			m.Kind = KindInterpreter
		}
	}
	rank := t.searchOrder(main)
	sort.SliceStable(mods, func(i, j int) bool {
		return moduleRank(mods[i], rank) < moduleRank(mods[j], rank)
	})
}

// mainModule is the module that contains the entry point the kernel recorded.
func (t *Table) mainModule(mods []*Module, entry arch.Addr) *Module {
	for _, m := range mods {
		if m.containsCode(entry) {
			return m
		}
	}
	return nil
}

func moduleRank(m *Module, rank map[uint64]int) int {
	const last = 1 << 30
	switch m.Kind {
	case KindExecutable:
		return -1
	case KindInterpreter:
		return last
	case KindVDSO:
		return last + 1
	}
	if r, ok := rank[m.Bias]; ok {
		return r
	}
	return last - 1
}

// markCopies finds the mappings of a file whose header is mapped at another
// bias only.
func markCopies(mods []*Module, maps []procfs.Mapping) {
	type place struct {
		img  *image
		base uint64
	}
	headers := map[place]bool{}
	proper := map[*image]bool{}
	begins := map[arch.Addr]string{} // paths by where a file's header may be mapped
	for _, mp := range maps {
		if mp.Offset == 0 && mp.Path != "" {
			begins[mp.Range.Start] = mp.Path
		}
	}
	for _, m := range mods {
		if m.img == nil {
			continue
		}
		p := place{m.img, m.Bias + m.img.lowest()&^(pageSize-1)}
		if begins[arch.Addr(p.base)] == m.Path {
			headers[p], proper[m.img] = true, true
		}
	}
	for _, m := range mods {
		if m.img != nil && m.Kind == KindLibrary && proper[m.img] && !headers[place{m.img, m.Bias + m.img.lowest()&^(pageSize-1)}] {
			m.Kind = KindCopy
		}
	}
}

// addRemapped gives a module the anonymous memory that took the place of parts
// of its text: programs move hot code to huge pages, tools patch theirs. Where there are very many mappings of code and modules, it does so for some only.
func addRemapped(mods []*Module, maps []procfs.Mapping) {
	const mostPairs = 1 << 22
	pairs := 0
	for _, mp := range maps {
		if !mp.Exec || mp.Path != "" {
			continue
		}
		if pairs += len(mods); pairs > mostPairs {
			break
		}
		for _, m := range mods {
			if m.img != nil && m.Kind != KindCopy && m.img.inTextPages(m.link(mp.Range.Start), mp.Range.Len()) {
				m.Text = append(m.Text, mp.Range)
				break
			}
		}
	}
	for _, m := range mods {
		sort.Slice(m.Text, func(i, j int) bool { return m.Text[i].Start < m.Text[j].Start })
	}
}

// dropUnused forgets the files that no module needs any more.
func (t *Table) dropUnused(mods []*Module) {
	used := map[*image]bool{}
	for _, m := range mods {
		used[m.img] = true
	}
	for k, img := range t.images {
		if !used[img] {
			// Kept open: a caller may hold a Module of the snapshot before.
			img.forget()
			delete(t.images, k)
		}
	}
}
