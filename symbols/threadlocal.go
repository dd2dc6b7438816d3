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

// A thread has its own copy of thread-local variables: each module has a block of them (Drepper, ELF Handling For Thread-Local Storage). The executable's block lies
// at a fixed distance in front of the thread pointer (variant II). The blocks of libraries are found by the thread's table of blocks, the dtv, whose address is the
// second word behind the thread pointer with glibc. A thread makes the block of a library that was loaded later when it first uses it; until then the table has no
// entry, or one that leads nowhere, and the variable is unknown.

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
	id, made, ok := t.block(m)
	if !ok || t.replacesThreadLocal(m, off) {
		return place{}, false
	}
	const (
		table   = 8  // tcbhead_t.dtv
		entry   = 16 // dtv_t
		counted = -entry
	)
	p := behindThread(table, int64(id)*entry, off)
	count, age := behindThread(table, counted), behindThread(table, 0)
	p.limits = []limit{{&count, int64(id) - 1}, {&age, int64(made) - 1}} // entries are counted from 1
	return p, true
}

// behindThread is the place that is so many bytes behind the thread pointer, or where addresses lead to from there.
func behindThread(off int64, more ...int64) place {
	return place{isIndirect: true, behind: off, more: more, parts: []part{{size: 8, reg: host.Roles.TP}}}
}

// block is the number of m's block in the tables of threads, and in which generation of these it was given, as glibc's dynamic linker keeps them: a table of an older
// generation may have the block of another library, that is gone. Where the fields are, glibc tells debuggers (nptl_db/structs.def).
func (t *Table) block(m *Module) (id, generation uint64, ok bool) {
	inLink, ok1 := t.threadField("link_map_l_tls_modid")
	inGlobals, ok2 := t.threadField("rtld_global__dl_tls_dtv_slotinfo_list")
	globals, err := t.Object("_rtld_global")
	link, ok3 := t.linkMap(m)
	if !ok1 || !ok2 || !ok3 || err != nil {
		return 0, 0, false
	}
	id, ok = t.readWord(link.Add(inLink))
	list, ok1 := t.readWord(globals.Addr.Add(inGlobals))
	if !ok || !ok1 || id == 0 {
		return 0, 0, false
	}
	const (
		next, slots, slot, mapOf = 8, 16, 16, 8 // struct dtv_slotinfo_list, dtv_slotinfo
		mostLists                = 1 << 10
	)
	first := uint64(0)
	for range mostLists {
		n, ok := t.readWord(arch.Addr(list))
		if !ok || n == 0 {
			break
		}
		if id-first < n {
			at := arch.Addr(list + slots + (id-first)*slot)
			generation, ok1 = t.readWord(at)
			of, ok2 := t.readWord(at + mapOf)
			return id, generation, ok1 && ok2 && of == uint64(link) && id < 1<<20 && generation < 1<<62
		}
		first += n
		if list, ok = t.readWord(arch.Addr(list + next)); !ok {
			break
		}
	}
	return 0, 0, false
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
			if x == m || x.img == nil || x.Same(m) {
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

// Errno is the calling thread's errno, as the C library keeps it. The error matches ErrNoThreadLocal: musl has no name for it.
func (t *Table) Errno() (Param, error) {
	for _, m := range t.Modules() {
		isStatic := m.Kind == KindExecutable && m.img != nil && m.img.segment(elf.PT_INTERP) == nil
		if m.img == nil || m.Kind == KindInterpreter || m.Kind == KindCopy || !isStatic && addrOf([]*Module{m}, "__errno_location") == 0 {
			continue
		}
		if p, err := t.threadWord(m, "errno", errnoType); err == nil {
			return p, nil
		}
	}
	return Param{}, ErrNoThreadLocal
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
