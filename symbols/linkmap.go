package symbols

import (
	"debug/elf"
	"encoding/binary"

	"github.com/gokprobe/gokprobe/arch"
)

// searchOrder reads the dynamic linker's list of modules (link_map in
// <link.h>) and returns each one's place by its bias. It is the order in which
// names are looked up, dlopen'ed modules last. The result is empty for a static
// program or one that has not reached its entry point.
func (t *Table) searchOrder(main *Module) map[uint64]int {
	order := map[uint64]int{}
	if main == nil || main.img == nil || t.mem == nil {
		return order
	}
	debug := t.debugRendezvous(main)
	if debug == 0 {
		return order
	}
	const (
		rMap      = 8       // r_debug.r_map
		lAddr     = 0       // link_map.l_addr
		lNext     = 24      // link_map.l_next
		mostLinks = 1 << 16 // a damaged list must not hang us
	)
	link, ok := t.readWord(debug + rMap)
	for i := 0; ok && link != 0 && i < mostLinks; i++ {
		var bias uint64
		if bias, ok = t.readWord(arch.Addr(link + lAddr)); !ok {
			break
		}
		if _, seen := order[bias]; !seen {
			order[bias] = i
		}
		link, ok = t.readWord(arch.Addr(link + lNext))
	}
	return order
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

// readWord reads 8 bytes of target memory.
func (t *Table) readWord(a arch.Addr) (uint64, bool) {
	var b [8]byte
	if t.mem == nil || t.mem.ReadMemory(a, b[:]) != nil {
		return 0, false
	}
	return binary.LittleEndian.Uint64(b[:]), true
}
