package code

import (
	"github.com/gokprobe/gokprobe/arch"
)

var _ arch.Masks = Arch{}

// MaskTail generates
//
//	if (how != SIG_UNBLOCK && set) {
//		if (looked[*(u8 *)set]) {
//			x = *set
//			x += difference[0]; if (x == 0) { r11 = set; set = &cell[0]; goto end }
//			…
//			if (!closed) {
//				int3
//				if (((u8 *)set)[7] == 0xff) *(u8 *)set = less[*(u8 *)set]
//			}
//		}
//	}
//	end:
//
// with rcx and r11, which the system call changes, as scratch, and without an instruction that changes a flag: sums are made by lea, and
// compared by jrcxz. The original pointer is in r11 from before it is changed.
func (Arch) MaskTail(w arch.MaskWork) arch.TailCode {
	entries := arch.MaskEntries
	if w.Known != 0 {
		entries = 0
	}
	t := newTail(entries)
	t.insn(0x89, 0xf9)       // mov %edi,%ecx
	t.insn(0x8d, 0x49, 0xff) // lea -SIG_UNBLOCK(%rcx),%ecx
	unblocks := t.jrcxz()
	t.insn(0x48, 0x89, 0xf1) // mov %rsi,%rcx
	none := t.jrcxz()
	if w.Known != 0 {
		t.pass(w.Known)
		t.land(unblocks)
		t.land(none)
		return t.out()
	}
	loads := []arch.Addr{t.here()}
	t.insn(0x0f, 0xb6, 0x0e) // movzbl (%rsi),%ecx
	t.load(w.Table.Looked())
	t.insn(0x41, 0x0f, 0xb6, 0x0c, 0x0b) // movzbl (%r11,%rcx),%ecx
	right := t.jrcxz()
	looks := t.jump()
	for _, j := range []int{unblocks, none, right} { // short jumps reach this one only
		t.land(j)
	}
	ends := []int{t.farJump()}
	t.land(looks)
	loads = append(loads, t.here())
	t.insn(0x48, 0x8b, 0x0e) // mov (%rsi),%rcx
	for i := range arch.MaskEntries {
		t.load(w.Table.Difference(i))
		t.insn(0x4d, 0x8b, 0x1b)       // mov (%r11),%r11
		t.insn(0x4a, 0x8d, 0x0c, 0x19) // lea (%rcx,%r11),%rcx
		is := t.jrcxz()
		other := t.jump()
		t.land(is)
		t.pass(w.Table.Cell(i))
		ends = append(ends, t.farJump())
		t.land(other)
	}
	t.load(w.Table.Closed())
	t.insn(0x49, 0x8b, 0x0b) // mov (%r11),%rcx
	asks := t.jrcxz()
	closed := t.jump()
	t.land(asks)
	t.ask()
	t.insn(0xcc) // int3
	loads = append(loads, t.here())
	t.insn(0x0f, 0xb6, 0x4e, 7)             // movzbl 7(%rsi),%ecx
	t.insn(0x8d, 0x89, 1, 0xff, 0xff, 0xff) // lea -0xff(%rcx),%ecx
	nearlyAll := t.jrcxz()
	few := t.jump()
	t.land(nearlyAll)
	loads = append(loads, t.here())
	t.insn(0x0f, 0xb6, 0x0e) // movzbl (%rsi),%ecx
	t.load(w.Table.Less())
	t.insn(0x41, 0x0f, 0xb6, 0x0c, 0x0b) // movzbl (%r11,%rcx),%ecx
	loads = append(loads, t.here())
	t.insn(0x88, 0x0e) // mov %cl,(%rsi)
	t.land(few)
	t.land(closed)
	for _, load := range loads { // one is a store
		t.fixup(load)
	}
	for _, e := range ends {
		t.landFar(e)
	}
	return t.out()
}

// ActionTail generates
//
//	if (sig == SIG) {
//		int3
//		if (act && act->sa_handler == SIG_DFL) { r11 = act; act = NULL }
//	}
func (Arch) ActionTail(sig int) arch.TailCode {
	t := newTail(0)
	t.insn(0x89, 0xf9)             // mov %edi,%ecx
	t.insn(0x8d, 0x49, byte(-sig)) // lea -SIG(%rcx),%ecx
	is := t.jrcxz()
	ends := []int{t.jump()}
	t.land(is)
	t.ask()
	t.insn(0xcc)             // int3
	t.insn(0x48, 0x89, 0xf1) // mov %rsi,%rcx
	ends = append(ends, t.jrcxz())
	load := t.here()
	t.insn(0x48, 0x8b, 0x0e) // mov (%rsi),%rcx
	unhandled := t.jrcxz()
	ends = append(ends, t.jump())
	t.land(unhandled)
	t.insn(0x49, 0x89, 0xf3) // mov %rsi,%r11
	t.insn(0xbe, 0, 0, 0, 0) // mov $0,%esi
	for _, e := range ends {
		t.land(e)
	}
	t.fixup(load)
	return t.out()
}

// tail is code together with the start of each of its instructions.
type tail struct {
	asm
	starts []arch.Addr
}

// newTail begins a tail that looks at so many entries of a table. No instruction of it names an address relative to itself, but those of the tail's
// own: so it may begin at 0, and stand anywhere.
func newTail(entries int) *tail {
	const some, ofEntry, length = 28, 8, 6 // instructions, those for an entry, bytes of one: few tails have more
	n := some + ofEntry*entries
	return &tail{asm: asm{code: make([]byte, 0, length*n)}, starts: make([]arch.Addr, 0, n)}
}

// ask says that a breakpoint of one byte comes now.
func (t *tail) ask() {
	t.stops = append(t.stops, arch.Stop{At: t.here(), Why: arch.StopAsked, To: t.here() + 1})
}

func (t *tail) out() arch.TailCode {
	return arch.TailCode{Code: t.code, Starts: t.starts, Stops: t.stops}
}

// insn begins an instruction.
func (t *tail) insn(b ...byte) {
	t.starts = append(t.starts, t.here())
	t.emit(b...)
}

func (t *tail) jrcxz() int { t.starts = append(t.starts, t.here()); return t.short(0xe3) }

func (t *tail) jump() int { t.starts = append(t.starts, t.here()); return t.short(0xeb) }

func (t *tail) farJump() int { t.insn(0xe9, 0, 0, 0, 0); return len(t.code) }

// load puts an address into r11.
func (t *tail) load(a arch.Addr) {
	t.insn(0x49, 0xbb) // mov $a,%r11
	t.imm64(uint64(a))
}

// pass gives the call another set.
func (t *tail) pass(cell arch.Addr) {
	t.insn(0x49, 0x89, 0xf3) // mov %rsi,%r11
	t.insn(0x48, 0xbe)       // mov $cell,%rsi
	t.imm64(uint64(cell))
}

// MaskPointers are rsi and r11.
func (Arch) MaskPointers(r arch.Regs) (passed, own arch.Addr) {
	regs := r.(*Regs)
	return arch.Addr(regs.Rsi), arch.Addr(regs.R11)
}

// SetMaskPointer sets rsi.
func (Arch) SetMaskPointer(r arch.Regs, p arch.Addr) { r.(*Regs).Rsi = uint64(p) }

// PassMask sets r11 and rsi.
func (Arch) PassMask(r arch.Regs, cell arch.Addr) {
	regs := r.(*Regs)
	regs.R11, regs.Rsi = regs.Rsi, uint64(cell)
}
