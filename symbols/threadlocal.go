package symbols

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"sync"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/budget"
	"github.com/gokprobe/gokprobe/internal/host"
)

// A thread has its own copy of thread-local variables: each module has a block of them (Drepper, ELF Handling For Thread-Local Storage). The blocks of the executable, and of
// libraries that were loaded with it or need it so, lie at fixed distances in front of the thread pointer (variant II). Those of other libraries are made when a thread
// first uses them, and found by tables whose entries may be of a library that is gone: their variables are unknown.

// threadPart is the reg of the one part of a place in a module's block, until Table.Variables knows where the block is.
const threadPart = "thread"

// ErrNoThreadLocal tells that a thread-local variable is not found.
var ErrNoThreadLocal = errors.New("there is no way to find the thread's copy of the variable")

// inThread is the place off bytes behind the beginning of the thread's block of m.
func (t *Table) inThread(m *Module, off int64) (place, bool) {
	if m.img == nil {
		return place{}, false
	}
	if m.Kind == KindExecutable {
		tls := m.img.segment(elf.PT_TLS)
		if tls == nil || off < 0 || uint64(off) >= tls.Memsz || tls.Memsz > 1<<30 {
			return place{}, false
		}
		align := max(tls.Align, 1)
		return behindThread(off - int64(tls.Memsz+(-tls.Vaddr-tls.Memsz)&(align-1))), true
	}
	distance, ok := t.blockDistance(m)
	if !ok || off < 0 || t.replacesThreadLocal(m, off) {
		return place{}, false
	}
	return behindThread(off - distance), true
}

// behindThread is the place that is so many bytes behind the thread pointer, or where addresses lead to from there.
func behindThread(off int64, more ...int64) place {
	return place{isIndirect: true, behind: off, more: more, parts: []part{{size: 8, reg: host.Roles.TP}}}
}

// blockDistance is how far in front of the thread pointer m's block begins, if it is the same in all threads, as glibc's dynamic linker keeps it. Where that is, glibc
// tells debuggers (nptl_db/structs.def).
func (t *Table) blockDistance(m *Module) (n int64, ok bool) {
	field, ok1 := t.threadField("link_map_l_tls_offset")
	link, ok2 := t.linkMap(m)
	if !ok1 || !ok2 {
		return 0, false
	}
	v, ok := t.readWord(link.Add(field))
	const most = 1 << 30
	return int64(v), ok && v > 0 && v < most // NO_TLS_OFFSET is 0, FORCED_DYNAMIC_TLS_OFFSET -1
}

// threadField is where a field of glibc's lies that debuggers may know.
func (t *Table) threadField(name string) (off int64, ok bool) {
	field, err := t.Object("_thread_db_" + name)
	var about [12]byte // bits, number, offset
	if err != nil || t.mem == nil || t.mem.ReadMemory(field.Addr, about[:]) != nil {
		return 0, false
	}
	off = int64(binary.LittleEndian.Uint32(about[8:]))
	return off, binary.LittleEndian.Uint32(about[:]) == 64 && off < 1<<16
}

// linkMap is the dynamic linker's struct link_map for m.
func (t *Table) linkMap(m *Module) (at arch.Addr, ok bool) {
	for _, main := range t.Modules() {
		if main.Kind == KindExecutable {
			t.eachLink(main, func(link arch.Addr, bias uint64) bool {
				if bias == m.Bias {
					at, ok = link, true
				}
				return !ok
			})
		}
	}
	return at, ok
}

// threadLocals keeps the thread-local symbols of an image: their offsets in the module's block.
type threadLocals struct {
	once     sync.Once
	byName   map[string]int64
	exported map[string]int64
}

// threadLocals reads them on first use.
func (img *image) threadLocals() *threadLocals {
	l := &img.locals
	l.once.Do(func() {
		l.byName, l.exported = map[string]int64{}, map[string]int64{}
		account := img.f.kept.Open()
		defer account.Close()
		if img.segment(elf.PT_TLS) == nil {
			return
		}
		img.readThreadLocals(l.exported, ".dynsym", account)
		img.readThreadLocals(l.byName, ".symtab", account)
		for name, off := range l.exported {
			l.byName[name] = off
		}
	})
	return l
}

// mostThreadLocals bounds the thread-local symbols of a table: of more, the first are known.
const mostThreadLocals = 1 << 12

func (img *image) readThreadLocals(to map[string]int64, table string, account *budget.Account) {
	sec := img.f.Section(table)
	if sec == nil || sec.Type == elf.SHT_NOBITS || int(sec.Link) >= len(img.f.Sections) {
		return
	}
	raw, err := img.f.content(sec, account)
	if err != nil {
		return
	}
	str, err := img.f.content(img.f.Sections[sec.Link], account)
	if err != nil {
		return
	}
	const longest = 255
	for ; len(raw) >= symSize && len(to) < mostThreadLocals; raw = raw[symSize:] {
		at, v := uint64(binary.LittleEndian.Uint32(raw)), binary.LittleEndian.Uint64(raw[8:])
		if raw[4]&0xf != byte(elf.STT_TLS) || binary.LittleEndian.Uint16(raw[6:]) == uint16(elf.SHN_UNDEF) || v >= 1<<30 || at >= uint64(len(str)) {
			continue
		}
		name := str[at:][:min(longest, uint64(len(str))-at)]
		if end := bytes.IndexByte(name, 0); end > 0 {
			to[string(name[:end])] = int64(v)
		}
	}
}

// replacesThreadLocal tells that another module's variable may be used in place of the one at off in m's block.
func (t *Table) replacesThreadLocal(m *Module, off int64) bool {
	for name, at := range m.img.threadLocals().exported {
		if at != off {
			continue
		}
		for _, x := range t.Modules() {
			if x == m || x.img == nil || x.id == m.id { // the same file is in another namespace (dlmopen)
				continue
			}
			if _, also := x.img.threadLocals().exported[name]; also {
				return true
			}
		}
	}
	return false
}

// threadWord is the thread-local variable, of type typ, of the name that a module's symbol table has. The error matches ErrNoThreadLocal.
func (t *Table) threadWord(m *Module, name string, typ *dtype) (Param, error) {
	if off, ok := m.img.threadLocals().byName[name]; ok {
		if p, ok := t.inThread(m, off); ok {
			return Param{Name: name, Type: typ.name, typ: typ, place: p, table: t, mod: m}, nil
		}
	}
	return Param{}, ErrNoThreadLocal
}

var errnoType = &dtype{kind: typeInt, name: "int", under: "int", size: 4, align: 4}

// Errno is the calling thread's errno, as the C library keeps it. The error matches ErrNoThreadLocal.
func (t *Table) Errno() (Param, error) {
	for _, m := range t.Modules() {
		if m.img == nil || m.Kind == KindCopy {
			continue
		}
		if off, ok := t.errnoAt(m); ok {
			return Param{Name: "errno", Type: errnoType.name, typ: errnoType, place: behindThread(off), table: t, mod: m}, nil
		}
		isStatic := m.Kind == KindExecutable && m.img.segment(elf.PT_INTERP) == nil // it may do without the function
		if !isStatic && addrOf([]*Module{m}, "__errno_location") == 0 {
			continue
		}
		if p, err := t.threadWord(m, "errno", errnoType); err == nil {
			return p, nil
		}
	}
	return Param{}, ErrNoThreadLocal
}

// errnoAt is how far behind the thread pointer m's function __errno_location says errno to be: its few instructions are computed for a thread pointer that no thread has.
func (t *Table) errnoAt(m *Module) (off int64, ok bool) {
	fn := addrOf([]*Module{m}, "__errno_location")
	if fn == 0 || t.mem == nil {
		return 0, false
	}
	const pointer, most = 1 << 40, 1 << 20
	var r host.Regs
	if !r.Set(host.Roles.TP, pointer) {
		return 0, false
	}
	v, err := host.Evaluator.Evaluate(&r, threadMemory{t.mem, pointer}, fn)
	off = int64(v - pointer)
	return off, err == nil && off > -most && off < most
}

// threadMemory is a process's memory in which a thread pointer leads to itself, as it does on x86-64.
type threadMemory struct {
	arch.Memory
	pointer arch.Addr
}

// ReadMemory implements arch.Memory.
func (m threadMemory) ReadMemory(at arch.Addr, p []byte) error {
	if at == m.pointer && len(p) == 8 {
		binary.LittleEndian.PutUint64(p, uint64(m.pointer))
		return nil
	}
	return m.Memory.ReadMemory(at, p)
}

// Goroutine is the struct runtime.g that the thread works for, as the Go program has it that contains a: a goroutine, or what the runtime runs on its own stacks, whose goid
// is 0. The error matches ErrNoThreadLocal, or is that of Global.
func (t *Table) Goroutine(a arch.Addr) (Param, error) {
	m := t.module(a)
	if m == nil || m.img == nil {
		return Param{}, errNotMapped(a)
	}
	word, err := t.threadWord(m, "runtime.tlsg", wordType)
	if err != nil && m.Kind == KindExecutable && m.img.segment(elf.PT_TLS) == nil { // Go's own linker: there are no other thread-local variables
		word.place, err = behindThread(-8), nil
	}
	if err != nil {
		return Param{}, err
	}
	g, err := t.Global(a, "runtime.g0") // for its type
	if err != nil {
		return Param{}, err
	}
	g.place = word.place
	g.place.more = append(g.place.more, 0)
	return g, nil
}
