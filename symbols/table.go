// Package symbols translates between names and addresses of a live process or
// of a file: ELF symbol tables, Go's function table, separate debug files,
// DWARF lines and parameters, call-frame information. It runs no code in the
// target and reads only what a question needs: one name in a large program
// costs its symbol table, never its DWARF.
//
// Table is the door. All its methods are safe for concurrent use.
package symbols

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/debuginfod"
	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/internal/targetfs"
)

// Source tells where a symbol was found.
type Source string

// The places symbols come from.
const (
	SourceSymtab    Source = "symtab"    // .symtab of the mapped file
	SourceDynsym    Source = "dynsym"    // .dynsym, or the dynamic segment's table
	SourcePclntab   Source = "pclntab"   // Go's function table
	SourceDebugFile Source = "debugfile" // .symtab of a separate debug file
	SourceMiniDebug Source = "minidebug" // .gnu_debugdata
	SourceFrames    Source = "frames"    // function bounds from .eh_frame, no name
)

// Symbol is a named address.
type Symbol struct {
	// Name is the name as users write it: demangled, without a parameter list and
	// without a version.
	Name string
	// Linkage is the name in the object file.
	Linkage string
	Addr    arch.Addr
	Size    uint64 // in bytes; 0 if not recorded
	Module  *Module
	Func    bool // code
	IFunc   bool // Addr is the resolver of an STT_GNU_IFUNC symbol
	Source  Source
}

// ModuleName is the name of the symbol's module; empty if it is in none.
func (s Symbol) ModuleName() string {
	if s.Module == nil {
		return ""
	}
	return s.Module.Name
}

// Location is an address in terms of the symbol that contains it.
type Location struct {
	Symbol Symbol // zero Name if no symbol covers Addr
	Offset uint64 // Addr minus Symbol.Addr
	Addr   arch.Addr
	File   string // where a line was asked for or is at hand, else empty
	Line   int

	// Every is not empty for a specification such as foo+*: the location
	// stands for every instruction of this range.
	Every arch.Range
}

// String prints l as symbol+0xoffset, or as an address where no symbol is known.
func (l Location) String() string {
	if l.Symbol.Name == "" {
		return l.Addr.String()
	}
	return fmt.Sprintf("%s+%#x", l.Symbol.Name, l.Offset)
}

// Option changes how a Table finds its files.
type Option func(*Table)

// WithDebugDirs sets the directories that are searched for separate debug
// files, as gdb's debug-file-directory; the default is /usr/lib/debug.
func WithDebugDirs(dirs ...string) Option {
	return func(t *Table) { t.debugDirs = dirs }
}

// Table is all modules of one process, or one file. It is safe for concurrent
// use.
type Table struct {
	pid       int // 0 for a file
	mem       arch.Memory
	files     *targetfs.Files
	fetched   *debuginfod.Client // nil if no servers are asked
	held      Held               // nil if the process is not
	debugDirs []string
	asides    asides
	closed    atomic.Bool

	mu     sync.Mutex // serializes Refresh
	images map[imageKey]*image
	snap   atomic.Pointer[snapshot]
}

// snapshot is one reading of the maps; it never changes.
type snapshot struct {
	modules []*Module // executable first, then by the dynamic linker's search order
	named   []*Module // those in which names are searched: all but copies
	texts   []text    // by address
	ifuncs  ifuncCache
	asked   asked
	files   *targetfs.Files // below the process's root; nil without a process
}

type text struct {
	arch.Range
	module *Module
}

var defaultDebugDirs = []string{"/usr/lib/debug"}

// Held is an interface that the memory given to Open may implement. It is for a process that is held by ptrace, whose files in
// /proc were opened at the attach. Opening them later may fail, since the process may no longer be dumpable. Root opens its root
// directory.
type Held interface {
	Maps() ([]procfs.Mapping, error)
	Auxv() (map[uint64]uint64, error)
	Root() (fd int, err error)
}

func (t *Table) maps() ([]procfs.Mapping, error) {
	if t.held != nil {
		return t.held.Maps()
	}
	return procfs.Maps(t.pid)
}

func (t *Table) auxv() (map[uint64]uint64, error) {
	if t.held != nil {
		return t.held.Auxv()
	}
	return procfs.Auxv(t.pid)
}

// Open reads the modules of process pid from /proc/PID/maps. mem reads the
// target's memory: it serves the vdso, indirect functions and values. Files
// are opened below the target's root directory, so a target in another mount namespace
// works, and nowhere else. A module whose file can't be read stays in the list without symbols;
// Module.Err tells why.
func Open(pid int, mem arch.Memory, opts ...Option) (*Table, error) {
	t := newTable(opts)
	t.pid, t.mem, t.files = pid, mem, targetfs.Of(pid)
	if held, ok := mem.(Held); ok {
		t.held, t.files = held, targetfs.Kept(pid, held.Root)
	}
	if err := t.Refresh(); err != nil {
		_ = t.files.Close()
		return nil, err
	}
	return t, nil
}

// OpenFile reads one file that is not running. Addresses are its link-time
// addresses; it is a Table of one module. It returns ErrNotELF for a file that
// is no x86-64 ELF file.
func OpenFile(path string, opts ...Option) (*Table, error) {
	t := newTable(opts)
	f, err := targetfs.Named(path)
	if err != nil {
		return nil, err
	}
	img, err := openImage(f, path)
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	m := newModule(imageKey{path: path}, img, t)
	for _, p := range img.execSegments() {
		m.Text = append(m.Text, arch.Range{Start: arch.Addr(p.Vaddr), End: arch.Addr(p.Vaddr + p.Memsz)})
	}
	m.Kind = KindExecutable
	t.images[imageKey{path: path}] = img
	t.snap.Store(newSnapshot([]*Module{m}))
	return t, nil
}

func newTable(opts []Option) *Table {
	t := &Table{files: targetfs.Own(), fetched: fetching(), debugDirs: defaultDebugDirs, images: map[imageKey]*image{}}
	for _, o := range opts {
		o(t)
	}
	return t
}

// Modules lists the mapped modules: the executable first, then the libraries in the
// order in which the dynamic linker searches them. The slice belongs to the
// caller; the modules do not change.
func (t *Table) Modules() []*Module {
	return append([]*Module(nil), t.snap.Load().modules...)
}

// Close releases the files. If functions that Aside has left alone still read them, the last of these releases them at its end.
// The Table must not be used afterwards.
func (t *Table) Close() error {
	t.closed.Store(true)
	if !t.asides.later(t.closeFiles) {
		t.closeFiles()
	}
	return nil
}

// Closed reports whether Close was called. Facts that others have stored about the Table are of no use then.
func (t *Table) Closed() bool { return t.closed.Load() }

func (t *Table) closeFiles() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for k, img := range t.images {
		img.close()
		delete(t.images, k)
	}
	_ = t.files.Close()
}

// Reading is what files a process had mapped, and where, when Table read that last.
type Reading struct{ s *snapshot }

// Reading returns the last one.
func (t *Table) Reading() Reading { return Reading{t.snap.Load()} }

// Stands tells that all files of a reading are still mapped where they were.
func (t *Table) Stands(r Reading) bool {
	now := t.snap.Load()
	if now == r.s || r.s == nil {
		return true
	}
	for _, m := range r.s.modules {
		if !slices.ContainsFunc(now.modules, m.Same) {
			return false
		}
	}
	return true
}

// module returns the module whose code contains a, or nil.
func (t *Table) module(a arch.Addr) *Module { return t.snap.Load().module(a) }
