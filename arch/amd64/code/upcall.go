package code

import (
	"encoding/binary"
	"fmt"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/arch/amd64"
)

// upcallBody makes upcalls: see arch.BoxState for the protocol.
//
// It needs three registers to begin with, which it saves on the stack with the flags:
// 32 bytes below the red zone. Everything else goes straight into the mailbox. pushf
// gives handlers all flags. There is no popf: a tracer that steps the thread could not
// tell it from one of the target's. The code here changes only the arithmetic flags;
// sahf and an addition put them back. The registers come back from the mailbox, but for
// rcx, by which it is addressed, and rsp: they are copied to the stack, the mailbox is
// freed, and they are popped, rsp last.
type upcallBody struct {
	boxes   *mailboxes
	site    arch.Addr
	redZone bool
	notes   arch.StackWord
}

// UpcallBody makes upcalls.
func (Arch) UpcallBody(w arch.UpcallWork) arch.UpcallBody {
	return &upcallBody{w.Boxes.(*mailboxes), w.Site, w.RedZone, w.Notes}
}

// stage tells, of the moment in front of an instruction of the body, where the program's
// registers are. Up to saved it is the number of steps that the entry has done.
type stage uint8

const (
	clean    stage = iota // all are in place
	skipped               // rsp is below the red zone
	savedRax              // rax is on the stack, and so on
	savedRcx
	savedRdx
	saved    // and the flags
	claiming // and ZF tells that the thread has claimed the mailbox at rcx
	claimed  // and it has
	posted   // and has posted it, or more
	retract  // and ZF tells that it has taken it back
	loading  // answered: all are in the mailbox at rcx
	loaded   // all are in place but rcx and rsp, which are on the stack
	unloaded // all are in place but rsp, which is on the stack
)

// upcallLine is one instruction. If address is not 0, the last four bytes name it,
// relative to the next instruction. If to is not "", the last byte, or the last four,
// name that label.
type upcallLine struct {
	stage   stage
	label   string
	code    []byte
	address arch.Addr
	to      string
}

// upcallCode collects instructions.
type upcallCode struct {
	lines []upcallLine
	stage stage
	label string
}

func (c *upcallCode) add(l upcallLine) {
	l.stage, l.label = c.stage, c.label
	c.label = ""
	c.lines = append(c.lines, l)
}

// op adds an instruction, after which the stage is next.
func (c *upcallCode) op(next stage, code ...byte) {
	c.add(upcallLine{code: code})
	c.stage = next
}

// ref adds one whose last four bytes are the distance to a.
func (c *upcallCode) ref(a arch.Addr, code ...byte) {
	c.add(upcallLine{code: append(code, 0, 0, 0, 0), address: a})
}

// jump adds a near jump to a label.
func (c *upcallCode) jump(to string, code ...byte) {
	c.add(upcallLine{code: append(code, make([]byte, 4)...), to: to})
}

// at begins a label, which is reached at the given stage.
func (c *upcallCode) at(label string, s stage) { c.label, c.stage = label, s }

// box adds a mov between the 64-bit register reg and the mailbox's field at off.
func (c *upcallCode) box(op, reg byte, off int) {
	code := []byte{0x48 | reg>>3<<2, op, 0x41 | reg&7<<3, byte(off)} // disp8(%rcx)
	if off > 127 {
		code = []byte{code[0], op, 0x81 | reg&7<<3, byte(off), byte(off >> 8), 0, 0} // disp32(%rcx)
	}
	c.op(c.stage, code...)
}

const (
	store, load = 0x89, 0x8b // mov r64 to or from memory
)

// kept are the registers that lie in no other place than the mailbox, and where.
var kept = []struct{ reg, off byte }{
	{bx, 40}, {bp, 32}, {si, 104}, {di, 112}, {8, 72}, {9, 64}, {10, 56}, {11, 48}, {12, 24}, {13, 16}, {14, 8}, {15, 0},
}

// Offsets in Regs.
const (
	offRax, offRcx, offRdx    = 80, 88, 96
	offRip, offEflags, offRsp = 128, 144, 152
	offFsBase, offGsBase      = 168, 176

	savedBytes = 32 // that the entry pushes
)

// program is the body's instructions.
func (b *upcallBody) program() []upcallLine {
	c := new(upcallCode)
	b.enter(c)
	b.claim(c)
	b.fill(c)
	b.wait(c)
	b.giveUp(c)
	b.claimOther(c)
	b.goOn(c)
	return c.lines
}

func (b *upcallBody) header() arch.Addr { return b.boxes.at + arch.Addr(len(b.boxes.boxes)*boxSize) }

func (b *upcallBody) enter(c *upcallCode) {
	if b.redZone {
		c.op(skipped, 0x48, 0x8d, 0x64, 0x24, 0x80) // lea -128(%rsp),%rsp
	}
	c.stage = skipped
	c.op(savedRax, 0x50) // push %rax
	c.op(savedRcx, 0x51) // push %rcx
	c.op(savedRdx, 0x52) // push %rdx
	c.op(saved, 0x9c)    // pushfq
}

// claim claims a mailbox. It first tries the one that the stack pointer selects, since
// threads have different stacks.
func (b *upcallBody) claim(c *upcallCode) {
	c.ref(b.header()+lookingAt, 0x8b, 0x05)             // mov looking(%rip),%eax
	c.op(saved, 0x85, 0xc0)                             // test %eax,%eax
	c.jump("restore", 0x0f, 0x84)                       // jz restore
	c.op(saved, 0x48, 0x89, 0xe1)                       // mov %rsp,%rcx
	c.op(saved, 0x48, 0xc1, 0xe9, 11)                   // shr $11,%rcx
	c.op(saved, 0x69, 0xc9, 0xb1, 0x79, 0x37, 0x9e)     // imul $0x9e3779b1,%ecx,%ecx
	c.op(saved, 0xc1, 0xe9, 26)                         // shr $26,%ecx
	c.op(saved, 0x83, 0xe1, byte(len(b.boxes.boxes)-1)) // and $mask,%ecx
	c.op(saved, 0xc1, 0xe1, 8)                          // shl $8,%ecx
	c.ref(b.boxes.at, 0x48, 0x8d, 0x15)                 // lea boxes(%rip),%rdx
	c.op(saved, 0x48, 0x01, 0xd1)                       // add %rdx,%rcx
	c.op(saved, 0xba, byte(arch.BoxClaimed), 0, 0, 0)   // mov $claimed,%edx
	c.op(saved, 0x31, 0xc0)                             // xor %eax,%eax
	c.exchange(claiming)                                // lock cmpxchg %edx,state(%rcx)
	c.jump("again", 0x0f, 0x85)                         // jne again
}

// claimOther tries two others in the same page.
func (b *upcallBody) claimOther(c *upcallCode) {
	c.at("again", saved)
	for _, flip := range []int{0xb, 0x6} {
		flip &= len(b.boxes.boxes) - 1
		c.op(saved, 0x48, 0x81, 0xf1, 0, byte(flip), 0, 0) // xor $flip*256,%rcx
		c.op(saved, 0x31, 0xc0)                            // xor %eax,%eax
		c.exchange(claiming)                               // lock cmpxchg %edx,state(%rcx)
		c.jump("fill", 0x0f, 0x84)                         // je fill
		c.stage = saved
	}
	c.jump("restore", 0xe9) // jmp restore
}

// exchange adds lock cmpxchg %edx,state(%rcx).
func (c *upcallCode) exchange(next stage) {
	c.op(next, 0xf0, 0x0f, 0xb1, 0x91, boxState, 0, 0, 0)
}

// setState adds movl $v,state(%rcx).
func (c *upcallCode) setState(v arch.BoxState, next stage) {
	c.op(next, 0xc7, 0x81, boxState, 0, 0, 0, byte(v), 0, 0, 0)
}

// fill stores the registers and posts the mailbox. Stores are seen in their order (SDM
// vol. 3A §8.2.2).
func (b *upcallBody) fill(c *upcallCode) {
	c.at("fill", claimed)
	for _, k := range kept {
		c.box(store, k.reg, int(k.off))
	}
	for i, off := range []int{offEflags, offRdx, offRcx, offRax} {
		c.op(claimed, 0x48, 0x8b, 0x44, 0x24, byte(8*i)) // mov 8*i(%rsp),%rax
		c.box(store, ax, off)
	}
	up := byte(savedBytes)
	if b.redZone {
		up += 128
	}
	c.op(claimed, 0x48, 0x8d, 0x84, 0x24, byte(up), 0, 0, 0) // lea up(%rsp),%rax
	c.box(store, ax, offRsp)
	if b.notes != arch.NoWord {
		b.note(c)
	}
	c.op(claimed, binary.LittleEndian.AppendUint64([]byte{0x48, 0xb8}, uint64(b.site)+1)...) // mov $site+1,%rax
	c.box(store, ax, offRip)
	c.op(claimed, 0xf3, 0x48, 0x0f, 0xae, 0xc0) // rdfsbase %rax
	c.box(store, ax, offFsBase)
	c.op(claimed, 0xf3, 0x48, 0x0f, 0xae, 0xc8) // rdgsbase %rax
	c.box(store, ax, offGsBase)
	c.ref(b.header()+patienceAt, 0x8b, 0x15) // mov patience(%rip),%edx
	c.setState(arch.BoxPosted, posted)
}

// note copies the wanted word to the mailbox; rax is the stack pointer at the site.
// Nothing may fault here that would not fault at the site. So the word is read only if
// it lies in the page that was pushed to just now.
func (b *upcallBody) note(c *upcallCode) {
	off := byte(0)
	if b.notes == arch.PoppedWord {
		off = ^byte(8 - 1)
	}
	c.op(claimed, 0x48, 0x8d, 0x40, off)                             // lea off(%rax),%rax
	c.op(claimed, 0x48, 0xc7, 0x81, boxNotedAt, 0, 0, 0, 0, 0, 0, 0) // movq $0,notedAt(%rcx)
	c.op(claimed, 0x48, 0x8d, 0x50, 7)                               // lea 7(%rax),%rdx
	c.op(claimed, 0x48, 0x31, 0xe2)                                  // xor %rsp,%rdx
	c.op(claimed, 0x48, 0xc1, 0xea, 12)                              // shr $12,%rdx
	c.jump("noted", 0x0f, 0x85)                                      // jnz noted
	c.box(store, ax, boxNotedAt)                                     //
	c.op(claimed, 0x48, 0x8b, 0x00)                                  // mov (%rax),%rax
	c.box(store, ax, boxNoted)                                       //
	c.at("noted", claimed)
}

// wait spins until the mailbox is answered in one way or another, or patience ends.
func (b *upcallBody) wait(c *upcallCode) {
	c.at("spin", posted)
	c.op(posted, 0x8b, 0x81, boxState, 0, 0, 0)       // mov state(%rcx),%eax
	c.op(posted, 0x83, 0xf8, byte(arch.BoxAnswered))  // cmp $answered,%eax
	c.jump("load", 0x0f, 0x84)                        // je load
	c.jump("wait", 0x0f, 0x87)                        // ja wait
	c.op(posted, 0x83, 0xf8, byte(arch.BoxDeclined))  // cmp $declined,%eax
	c.jump("declined", 0x0f, 0x84)                    // je declined
	c.op(posted, 0xf3, 0x90)                          // pause
	c.op(posted, 0xff, 0xca)                          // dec %edx
	c.jump("spin", 0x0f, 0x85)                        // jnz spin
	c.op(posted, 0xb8, byte(arch.BoxPosted), 0, 0, 0) // mov $posted,%eax
	c.exchange(retract)                               // lock cmpxchg %edx,state(%rcx); edx is 0, free
	c.jump("restore", 0x0f, 0x84)                     // je restore
	c.stage = posted
	c.op(posted, 0x83, 0xf8, byte(arch.BoxTaken)) // cmp $taken,%eax
	c.jump("spin", 0x0f, 0x85)                    // jne spin
	c.at("wait", posted)
	c.op(posted, 0xcc) // int3
}

// giveUp puts everything back and traps. It is also where a thread goes on behind the
// breakpoint of wait, should nobody be there any more to finish the upcall.
func (b *upcallBody) giveUp(c *upcallCode) {
	c.at("declined", posted)
	c.setState(arch.BoxFree, saved)
	c.at("restore", saved)
	c.op(saved, 0x48, 0x8b, 0x0c, 0x24)       // mov (%rsp),%rcx
	c.op(saved, 0x88, 0xcc)                   // mov %cl,%ah
	c.op(saved, 0x0f, 0xba, 0xe1, 11)         // bt $11,%ecx
	c.flags(saved)                            //
	c.op(savedRdx, 0x48, 0x8d, 0x64, 0x24, 8) // lea 8(%rsp),%rsp
	c.op(savedRcx, 0x5a)                      // pop %rdx
	c.op(savedRax, 0x59)                      // pop %rcx
	c.op(skipped, 0x58)                       // pop %rax
	if b.redZone {
		c.op(clean, 0x48, 0x8d, 0xa4, 0x24, 128, 0, 0, 0) // lea 128(%rsp),%rsp
	}
	c.at("trap", clean)
	c.op(clean, 0xcc) // int3
	c.op(clean, 0xcc) // so that nothing else begins where a thread reports to be that has trapped
}

// flags sets OF to CF and the others from ah.
func (c *upcallCode) flags(s stage) {
	c.op(s, 0x0f, 0x92, 0xc0) // setc %al
	c.op(s, 0x04, 0x7f)       // add $0x7f,%al
	c.op(s, 0x9e)             // sahf
}

// goOn loads everything from the mailbox and falls through to the first copy.
func (b *upcallBody) goOn(c *upcallCode) {
	c.at("load", loading)
	for _, k := range kept {
		c.box(load, k.reg, int(k.off))
	}
	c.box(load, dx, offRsp)
	c.op(loading, 0x48, 0x89, 0x54, 0x24, 8) // mov %rdx,8(%rsp)
	c.box(load, dx, offRcx)
	c.op(loading, 0x48, 0x89, 0x14, 0x24) // mov %rdx,(%rsp)
	c.box(load, dx, offEflags)
	c.op(loading, 0x88, 0xd4)           // mov %dl,%ah
	c.op(loading, 0x0f, 0xba, 0xe2, 11) // bt $11,%edx
	c.flags(loading)
	c.box(load, dx, offRdx)
	c.box(load, ax, offRax)
	c.setState(arch.BoxFree, loaded)
	c.op(unloaded, 0x59) // pop %rcx
	c.op(clean, 0x5c)    // pop %rsp
}

// Assemble implements arch.Body. An instruction that does not reach its target has the
// same length.
func (b *upcallBody) Assemble(at arch.Addr) (body arch.BodyCode, far error) {
	lines := b.program()
	labels := map[string]arch.Addr{}
	next := at
	for _, l := range lines {
		if l.label != "" {
			labels[l.label] = next
		}
		next += arch.Addr(len(l.code))
	}
	next = at
	for _, l := range lines {
		next += arch.Addr(len(l.code))
		target := l.address
		if l.to != "" {
			target = labels[l.to]
		}
		if target != 0 {
			if err := amd64.PutRel32(l.code[len(l.code)-4:], target, next); err != nil {
				far = fmt.Errorf("upcall at %s: mailboxes at %s: %w", at, b.boxes.at, err)
			}
		}
		body.Code = append(body.Code, l.code...)
	}
	trap, wait := labels["trap"], labels["wait"]
	body.Stops = arch.Stops{{At: trap, Why: arch.StopUntaken}, {At: wait, Why: arch.StopWaiting, To: wait + 1}}
	return body, far
}
