package symbols

import (
	"debug/elf"
	"encoding/binary"

	"github.com/gokprobe/gokprobe/arch"
)

// searchOrder reads the dynamic linker's list of modules (link_map in
// <link.h>) and returns each one's place by its bias. It is the order in which
// names are looked up, dlopen'ed modules last. The result is empty for a static
// executable, or before the process has reached its entry point.
func (t *Table) searchOrder(main *Module) map[uint64]int {
	order := map[uint64]int{}
	if main == nil || main.img == nil || t.mem == nil {
		return order
	}
	n := 0
	t.eachLink(main, func(_ arch.Addr, bias uint64) bool {
		if _, seen := order[bias]; !seen {
			order[bias] = n
		}
		n++
		return true
	})
	return order
}

// eachLink calls f with the dynamic linker's struct link_map of each module, and its bias, in the order in which names are looked up, as long as it returns true.
func (t *Table) eachLink(main *Module, f func(link arch.Addr, bias uint64) bool) {
	if main.img == nil || t.mem == nil {
		return
	}
	debug := t.debugRendezvous(main)
	if debug == 0 {
		return
	}
	const (
		lAddr     = 0       // link_map.l_addr
		lNext     = 24      // link_map.l_next
		mostLinks = 1 << 16 // a damaged list must not hang us
	)
	link, ok := t.readWord(debug + rMap)
	for i := 0; ok && link != 0 && i < mostLinks; i++ {
		bias, known := t.readWord(arch.Addr(link + lAddr))
		if !known || !f(arch.Addr(link), bias) {
			return
		}
		link, ok = t.readWord(arch.Addr(link + lNext))
	}
}

// debugRendezvous is the address of r_debug, from DT_DEBUG in the executable's
// dynamic segment as the dynamic linker filled it in; 0 if there is none.
func (t *Table) debugRendezvous(main *Module) arch.Addr {
	dyn := main.img.segment(elf.PT_DYNAMIC)
	if dyn == nil || dyn.Memsz > 1<<16 {
		return 0
	}
	buf := make([]byte, dyn.Memsz)
	if t.mem.ReadMemory(main.addr(dyn.Vaddr), buf) != nil {
		return 0
	}
	for ; len(buf) >= 16; buf = buf[16:] {
		switch elf.DynTag(binary.LittleEndian.Uint64(buf)) {
		case elf.DT_DEBUG:
			return arch.Addr(binary.LittleEndian.Uint64(buf[8:]))
		case elf.DT_NULL:
			return 0
		}
	}
	return 0
}

// Where the fields of struct r_debug lie, and of struct r_debug_extended, which follows it
// since glibc 2.35 if there are namespaces (r_version 2).
const (
	rVersion = 0
	rMap     = 8
	rBrk     = 16
	rState   = 24
	rNext    = 40
)

// Rendezvous is the structure by which the dynamic linker tells debuggers about modules (struct
// r_debug in <link.h>). The linker calls an empty function, on which a debugger has a
// breakpoint, before and after it adds or removes modules, and before their constructors run.
type Rendezvous struct {
	Brk   arch.Addr // the function
	debug arch.Addr // struct r_debug; 0 if there is none yet
}

// Rendezvous finds the structure of the dynamic linker by the executable's DT_DEBUG. If the
// dynamic linker is not ready yet, or is part of a static executable, it is found by the
// names that glibc and musl give to it. ok is false without a dynamic linker.
func (t *Table) Rendezvous() (r Rendezvous, ok bool) {
	var main *Module
	var others []*Module
	for _, m := range t.snap.Load().modules {
		switch m.Kind {
		case KindExecutable:
			main = m
			others = append(others, m)
		case KindInterpreter:
			others = append(others, m)
		}
	}
	if main == nil || t.mem == nil {
		return r, false
	}
	if main.img != nil {
		r.debug = t.debugRendezvous(main)
	}
	if r.debug == 0 {
		r.debug = addrOf(others, "_r_debug")
	}
	if brk, ok := t.readWord(r.debug + rBrk); ok && r.debug != 0 {
		r.Brk = arch.Addr(brk)
	}
	if r.Brk == 0 {
		r.Brk = addrOf(others, "_dl_debug_state")
	}
	return r, r.Brk != 0
}

// addrOf is the address of the first symbol of that name, 0 if there is none.
func addrOf(mods []*Module, name string) arch.Addr {
	if found, _ := findLinkage(mods, name); len(found) > 0 {
		return found[0].addr()
	}
	return 0
}

// Linking follows the dynamic linker from a program's start until it has loaded and relocated what the program is linked with. It tells so before
// constructors run: glibc at the second call of the function, musl at the first. In front of that glibc loads the libraries of auditors
// (rtld-audit(7)), in namespaces of their own, with two calls for each; they are told apart since glibc 2.35, which lists the namespaces.
type Linking struct {
	Rendezvous
	own, others bool // was busy
}

// Done is to be asked at each call of the function.
func (l *Linking) Done(mem arch.Memory) bool {
	var b [rNext]byte
	switch own := mem.ReadMemory(l.debug, b[:]) == nil && binary.LittleEndian.Uint32(b[rState:]) != 0; {
	case own:
		l.own = true
	case l.Busy(mem):
		l.others = true
	case l.own || !l.others:
		return true
	default:
		l.others = false
	}
	return false
}

// Busy reports whether the dynamic linker is adding or removing modules, in the target's own
// namespace or in one of dlmopen(3). mem is the memory of the process, or of one that was
// forked from it.
func (r Rendezvous) Busy(mem arch.Memory) bool {
	const mostNamespaces = 16 // DL_NNS of glibc
	debug := r.debug
	for range mostNamespaces {
		var b [rNext + 8]byte
		if debug == 0 || mem.ReadMemory(debug, b[:rNext]) != nil {
			return false
		}
		if binary.LittleEndian.Uint32(b[rState:]) != 0 { // RT_CONSISTENT
			return true
		}
		if binary.LittleEndian.Uint32(b[rVersion:]) < 2 || mem.ReadMemory(debug, b[:]) != nil {
			return false
		}
		debug = arch.Addr(binary.LittleEndian.Uint64(b[rNext:]))
	}
	return false
}

// readWord reads 8 bytes of target memory.
func (t *Table) readWord(a arch.Addr) (uint64, bool) {
	var b [8]byte
	if t.mem == nil || t.mem.ReadMemory(a, b[:]) != nil {
		return 0, false
	}
	return binary.LittleEndian.Uint64(b[:]), true
}
