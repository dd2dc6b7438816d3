package symbols

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"
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

// tracersMemory is what the memory is called that is mapped for a tracer, who may have a lot of it (trampoline.MemfdName). It is no module: to find that out, each
// time again, would take three tries to open it. Loaders map nothing shared, so a program's own file of that name is not meant.
const tracersMemory = "/memfd:gokprobe"

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
	files := filesIn(maps)
	mods := t.collect(maps, files)
	mods = append(mods, t.collectRemapped(mods, maps, files)...)
	t.classify(mods)
	markCopies(mods, maps)
	addRemapped(mods, maps)
	t.dropUnused(mods)
	s := newSnapshot(mods)
	s.files = t.files
	t.snap.Store(s)
	return nil
}

// mostModules bounds how many modules a Table has: a process can map one file sixty thousand times, each time at another place. Further
// ones are code in no module.
const mostModules = 4096

// collect groups the executable mappings into modules, one for each file and
// bias.
func (t *Table) collect(maps []procfs.Mapping, files filesMapped) []*Module {
	type key struct {
		imageKey
		bias uint64
	}
	var mods []*Module
	byKey := map[key]*Module{}
	for _, mp := range maps {
		if !mp.Exec || mp.Path == "" || mp.Path[0] == '[' && mp.Path != vdsoPath || mp.Shared && mp.Path == tracersMemory {
			continue
		}
		img, err := t.image(mp, files)
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
func (t *Table) collectRemapped(mods []*Module, maps []procfs.Mapping, files filesMapped) []*Module {
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
			img, err := t.image(header, files)
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
func (t *Table) image(mp procfs.Mapping, files filesMapped) (*image, error) {
	k := keyOf(mp)
	if img, err := t.images[k], files.failed[k]; img != nil || err != nil {
		return img, err
	}
	if len(t.images) >= mostModules {
		return nil, fmt.Errorf("%s: the process maps too many files to read them all", mp.Path)
	}
	img, err := t.openMapping(mp, files)
	if err != nil {
		files.failed[k] = err
		return nil, err
	}
	t.images[k] = img
	return img, nil
}

func (t *Table) openMapping(mp procfs.Mapping, files filesMapped) (*image, error) {
	if mp.Path == vdsoPath {
		return t.vdso(mp.Range.Start, files.extent(mp, mp.Range.Start))
	}
	var errs []error
	for _, open := range t.ways(mp, files) {
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
	if base, ok := files.headerOf(mp); ok && !errors.Is(errors.Join(errs...), targetfs.ErrTooMany) {
		if img, err := t.imageInMemory(base, files.extent(mp, base), mp.Path, false); err == nil {
			if img.unopened = unix.ENOENT; len(errs) > 0 {
				img.unopened = errs[0] // the other ways fail for the same reason, as a rule
			}
			return img, nil
		}
	}
	if len(errs) == 0 {
		errs = append(errs, fmt.Errorf("%s: the mapped file is gone: %w", mp.Path, unix.ENOENT))
	}
	return nil, errors.Join(errs...)
}

// ways are the ways to open a mapped file, in the order in which they are tried: the kernel's own reference, which needs a capability
// (proc(5)), the name, the executable. The target may have mapped another file there meanwhile, or put one under that name. Such a file
// has another device or inode number, and is refused. On overlay and btrfs, stat tells another device for the same file. There, and as the
// last resort, the file must begin with the same bytes as the process's memory does.
func (t *Table) ways(mp procfs.Mapping, files filesMapped) []func() (*targetfs.File, error) {
	onlyIf := func(f *targetfs.File, err error, same func(*targetfs.File) bool) (*targetfs.File, error) {
		if err == nil && !same(f) {
			_ = f.Close()
			return nil, unix.ENOENT
		}
		return f, err
	}
	looks := func(f *targetfs.File) bool { return t.beginsAs(f, mp, files) }
	same := func(f *targetfs.File) bool { return f.Inode == mp.Inode && (f.On(mp.Dev) || looks(f)) }
	mapped := func() (*targetfs.File, error) {
		f, err := t.files.Mapped(mp.Range)
		return onlyIf(f, err, same)
	}
	named := func() (*targetfs.File, error) {
		f, err := t.files.Open(t.files.Inside(mp.Path))
		return onlyIf(f, err, same)
	}
	executed := func() (*targetfs.File, error) {
		f, err := t.files.Executable()
		return onlyIf(f, err, same)
	}
	last := func() (*targetfs.File, error) {
		f, err := t.files.Mapped(mp.Range)
		return onlyIf(f, err, looks)
	}
	if mp.Deleted {
		return []func() (*targetfs.File, error){mapped, executed, last}
	}
	return []func() (*targetfs.File, error){mapped, named, executed, last}
}

// beginsAs reports whether f begins with the same bytes as the process's memory of mp's file. These are headers, which processes do
// not write to.
func (t *Table) beginsAs(f *targetfs.File, mp procfs.Mapping, files filesMapped) bool {
	base, ok := files.headerOf(mp)
	if !ok || t.mem == nil {
		return false
	}
	var there, here [pageSize]byte
	n, err := f.ReadAt(there[:], 0)
	if err != nil && !errors.Is(err, io.EOF) || n < ehdrSize {
		return false
	}
	return t.mem.ReadMemory(base, here[:n]) == nil && there == here
}

// filesMapped holds the mappings of files in a process, by file, each in the order of addresses. A hostile target may have very many.
// So they are searched by file, and a file that can't be opened is not tried again.
type filesMapped struct {
	maps   map[imageKey][]procfs.Mapping
	failed map[imageKey]error
}

func filesIn(maps []procfs.Mapping) filesMapped {
	f := filesMapped{map[imageKey][]procfs.Mapping{}, map[imageKey]error{}}
	for _, m := range maps {
		if m.Path != "" {
			f.maps[keyOf(m)] = append(f.maps[keyOf(m)], m)
		}
	}
	return f
}

// headerOf finds the mapping of mp's file that starts with its ELF header.
func (f filesMapped) headerOf(mp procfs.Mapping) (arch.Addr, bool) {
	found, ok := arch.Addr(0), false
	for _, m := range f.maps[keyOf(mp)] {
		if m.Offset == 0 && m.Range.Start <= mp.Range.Start {
			found, ok = m.Range.Start, true
		}
	}
	return found, ok
}

// extent bounds how many bytes the process maps of mp's file, whose first is at base: they end at the latest with the last mapping that may belong to it.
func (f filesMapped) extent(mp procfs.Mapping, base arch.Addr) (end uint64) {
	for _, m := range f.maps[keyOf(mp)] {
		if m.Range.Start >= base {
			end = max(end, m.Offset+m.Range.Len())
		}
	}
	return end
}

// imageInMemory reads the ELF image that is mapped at base, of a file of so many bytes.
func (t *Table) imageInMemory(base arch.Addr, size uint64, as string, whole bool) (*image, error) {
	if t.mem == nil {
		return nil, fmt.Errorf("%s: no access to the target's memory", as)
	}
	return imageOf(&memoryFile{mem: t.mem, base: base, isWhole: whole}, size, as)
}

func imageOf(mf *memoryFile, size uint64, as string) (*image, error) {
	img, err := newImage(mf, size, as)
	if err != nil {
		return nil, err
	}
	if !mf.isWhole {
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
	type header struct {
		path string
		base uint64
	}
	mapped := map[header]bool{}
	for _, mp := range maps {
		if mp.Offset == 0 {
			mapped[header{mp.Path, uint64(mp.Range.Start)}] = true
		}
	}
	headed := func(m *Module) bool { return mapped[header{m.Path, m.Bias + m.img.lowest()&^(pageSize-1)}] }
	proper := map[*image]bool{}
	begins := map[arch.Addr]string{} // paths by where a file's header may be mapped
	for _, mp := range maps {
		if mp.Offset == 0 && mp.Path != "" {
			begins[mp.Range.Start] = mp.Path
		}
	}
	for _, m := range mods {
		if m.img != nil && headed(m) {
			proper[m.img] = true
		}
	}
	for _, m := range mods {
		if m.img != nil && m.Kind == KindLibrary && proper[m.img] && !headed(m) {
			m.Kind = KindCopy
		}
	}
}

// addRemapped gives a module the anonymous memory that has replaced parts of
// its text: some processes move hot code to huge pages, and tools patch their own code. If there are very many mappings of code, it
// looks at some only.
func addRemapped(mods []*Module, maps []procfs.Mapping) {
	texts := textsOf(mods)
	for _, mp := range maps {
		if mp.Exec && mp.Path == "" {
			if m := texts.around(mp.Range); m != nil {
				m.Text = append(m.Text, mp.Range)
			}
		}
	}
	for _, m := range mods {
		sort.Slice(m.Text, func(i, j int) bool { return m.Text[i].Start < m.Text[j].Start })
	}
}

// textPages are the pages for which modules' files have code, by address.
type textPages []text

func textsOf(mods []*Module) (all textPages) {
	for _, m := range mods {
		if m.img == nil || m.Kind == KindCopy {
			continue
		}
		for _, p := range m.img.execSegments() {
			lo, hi := p.Vaddr&^(pageSize-1), (p.Vaddr+p.Memsz+pageSize-1)&^(pageSize-1)
			if hi > lo {
				all = append(all, text{arch.Range{Start: m.addr(lo), End: m.addr(hi)}, m})
			}
		}
	}
	sort.SliceStable(all, func(i, j int) bool { return all[i].Start < all[j].Start })
	return all
}

// around is the module whose code was at r. Real modules do not overlap, so it looks at a few candidates only.
func (all textPages) around(r arch.Range) *Module {
	const most = 8
	i := sort.Search(len(all), func(i int) bool { return all[i].Start > r.Start }) - 1
	for j := i; j >= 0 && j > i-most; j-- {
		if r.Start >= all[j].Start && r.End <= all[j].End {
			return all[j].module
		}
	}
	return nil
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
