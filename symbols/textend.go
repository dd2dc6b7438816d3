package symbols

import (
	"debug/elf"

	"github.com/gokprobe/gokprobe/arch"
)

// TextEnd returns the end of the executable segment that contains a, as its ELF
// program header has it: behind it the last page is padding. ok is false if a lies in
// no module's executable segment.
func (t *Table) TextEnd(a arch.Addr) (end arch.Addr, ok bool) {
	for _, m := range t.Modules() {
		if m.img == nil {
			continue
		}
		for _, p := range m.img.f.Progs {
			if p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0 && m.link(a)-p.Vaddr < p.Memsz {
				return m.addr(p.Vaddr + p.Memsz), true
			}
		}
	}
	return 0, false
}
