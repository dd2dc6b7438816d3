package code

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/arch/amd64"
)

var errNotInBody = errors.New("no instruction of it begins there")

// Unwind implements arch.UpcallBody. A thread that stands behind one of the two breakpoints
// has executed it, and nothing else: it is where it was in front of it.
func (b *upcallBody) Unwind(at arch.Addr, regs arch.Regs, m arch.Memory) (arch.UpcallEnd, arch.Mailbox, error) {
	r, ok := regs.(*Regs)
	if !ok {
		return 0, nil, fmt.Errorf("%w: %T", amd64.ErrRegs, regs)
	}
	s, ok := b.stageAt(at, r.IP())
	if !ok {
		return 0, nil, fmt.Errorf("unwinding the upcall at %s: %w: %s", at, errNotInBody, r.IP())
	}
	var box *mailbox
	if s == claiming && r.Eflags&flagZF != 0 || s == claimed || s == posted || s == loading || s == retract && r.Eflags&flagZF == 0 {
		box = b.boxes.box(r.Rcx)
	}
	if box == nil {
		return b.unwind(s, r, m)
	}
	switch box.State() {
	case arch.BoxTaken:
		return arch.UpcallTaken, box, nil
	case arch.BoxAnswered, arch.BoxCalled:
		box.deliver(r)
		box.Free()
		return arch.UpcallDone, nil, nil
	}
	end, _, err := b.unwind(saved, r, m)
	if err == nil {
		box.Free()
	}
	return end, nil, err
}

// deliver makes r what the handlers have left in the mailbox.
func (b *mailbox) deliver(r *Regs) {
	*r = *b.regs
	if b.State() == arch.BoxAnswered {
		r.Rip = 0
	}
}

// stageAt is the stage of the instruction at ip. Behind each breakpoint stands one with the
// same stage.
func (b *upcallBody) stageAt(at, ip arch.Addr) (s stage, ok bool) {
	s, ok = upcallStages()[upcallForm{b.redZone, b.notes != arch.NoWord}][ip-at]
	return s, ok
}

// upcallForm tells how bodies differ, addresses and other operands aside: whether they
// skip a red zone and note a word.
type upcallForm struct{ redZone, notes bool }

// upcallStages are the stages of a body's instructions, by its form and how far they are from its beginning.
var upcallStages = sync.OnceValue(func() map[upcallForm]map[arch.Addr]stage {
	all := map[upcallForm]map[arch.Addr]stage{}
	for _, redZone := range []bool{false, true} {
		all[upcallForm{redZone, false}] = stagesOf(redZone, arch.NoWord)
		all[upcallForm{redZone, true}] = stagesOf(redZone, arch.ReturnWord)
	}
	return all
})

func stagesOf(redZone bool, notes arch.StackWord) map[arch.Addr]stage {
	b := upcallBody{boxes: new(mailboxes), redZone: redZone, notes: notes}
	stages := map[arch.Addr]stage{}
	next := arch.Addr(0)
	for _, l := range b.program() {
		stages[next] = l.stage
		next += arch.Addr(len(l.code))
	}
	return stages
}

// unwind puts the registers back that lie on the stack.
func (b *upcallBody) unwind(s stage, r *Regs, m arch.Memory) (arch.UpcallEnd, arch.Mailbox, error) {
	var words [4]uint64
	n := wordsOnStack(s)
	buf := make([]byte, 8*n)
	if n > 0 {
		if err := m.ReadMemory(r.SP(), buf); err != nil {
			return 0, nil, fmt.Errorf("unwinding an upcall: %w", err)
		}
	}
	for i := range n {
		words[i] = binary.LittleEndian.Uint64(buf[8*i:])
	}
	switch s {
	case loaded:
		r.Rcx, r.Rsp, r.Rip = words[0], words[1], 0
		return arch.UpcallDone, nil, nil
	case unloaded:
		r.Rsp, r.Rip = words[0], 0
		return arch.UpcallDone, nil, nil
	}
	below := words[:n]
	if n == 4 {
		r.Eflags = r.Eflags&^arithmetic | words[0]&arithmetic
		below = words[1:]
	}
	for i, reg := range []*uint64{&r.Rax, &r.Rcx, &r.Rdx} {
		if k := len(below) - 1 - i; k >= 0 {
			*reg = below[k]
		}
	}
	r.Rsp += uint64(8 * n)
	if s != clean && b.redZone {
		r.Rsp += amd64.RedZone
	}
	r.Rip = uint64(b.site)
	return arch.UpcallUndone, nil, nil
}

// wordsOnStack is how many words the body has pushed and not popped.
func wordsOnStack(s stage) int {
	switch s {
	case clean, skipped:
		return 0
	case savedRax, unloaded:
		return 1
	case savedRcx, loaded:
		return 2
	case savedRdx:
		return 3
	}
	return 4
}

// Box implements arch.UpcallBody: rcx points to it.
func (b *upcallBody) Box(regs arch.Regs) arch.Mailbox {
	if r, ok := regs.(*Regs); ok {
		return b.boxes.At(arch.Addr(r.Rcx))
	}
	return nil
}
