package kprobes

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/ptrace"
)

// The sets of signals that tails have threads block (guard_masksites.go), and the tails themselves.

// masks is what a domain knows of them.
type masks struct {
	searched map[maskKey]bool
	// unfinished are searched again when a process comes out of vfork(2). To try before would take long each time, with all threads stopped.
	unfinished []maskKey
	maskCells  arch.Range     // sets for tails, and in front of them the table; the tracer has it all at mem
	setTable   arch.MaskTable // for sets from anywhere
	mem        []byte
	sets       []ptrace.Sigset         // those of the table's entries
	constant   map[arch.Addr]arch.Addr // the program's pointer, by the cell that is used in its place
	placing    bool
}

const maxConstants = 64 // sets

// allSignals lists the sets of all signals that libraries use: all 64, or without the
// ones for their own use (32 to 34).
var allSignals = []ptrace.Sigset{^ptrace.Sigset(0), ^ptrace.Sigset(1 << 31), ^ptrace.Sigset(1 << 32), ^ptrace.Sigset(3 << 31), ^ptrace.Sigset(7 << 31)}

// tailed is a body with the tail of a maskSite.
type tailed struct {
	arch.Body
	tail func(arch.Addr) arch.TailCode
}

func (t tailed) Tail(at arch.Addr) arch.TailCode { return t.tail(at) }

// withTail adds the tail of a call to a body.
func (d *domain) withTail(c *maskSite, body arch.Body) (arch.Body, error) {
	if c.Number == unix.SYS_RT_SIGACTION {
		return tailed{body, host.Masks.ActionTail(int(unix.SIGTRAP))}, nil
	}
	if err := d.makeMaskCells(c.At); err != nil {
		return nil, err
	}
	w := arch.MaskWork{Table: d.setTable}
	if c.known != 0 {
		var err error
		if w.Known, err = d.constantCell(c.known); err != nil {
			return nil, err
		}
	}
	return tailed{body, host.Masks.MaskTail(w)}, nil
}

// makeMaskCells makes sure of memory for sets.
func (d *domain) makeMaskCells(near arch.Addr) error {
	if d.mem != nil {
		return nil
	}
	length := int(arch.MaskTable(0).End())
	at, mem, err := d.region.Cells(near, length+maxConstants*setLen)
	if err != nil {
		return err
	}
	table := arch.MaskTable(at)
	d.setTable, d.mem, d.constant = table, mem, map[arch.Addr]arch.Addr{}
	d.maskCells = arch.Range{Start: table.Cell(0), End: table.End()}
	looked, less := mem[table.Looked()-at:], mem[table.Less()-at:]
	for low := range ptrace.Sigset(256) {
		if looked[low] = 0; low.Has(unix.SIGTRAP) {
			looked[low] = 1
		}
		less[low] = byte(low &^ (setOf(unix.SIGTRAP) | setOf(unix.SIGILL)))
	}
	for _, all := range allSignals {
		d.addSet(all)
	}
	for _, own := range d.space.Masks() {
		if _, ok := own.Unforced(); ok && len(d.sets) < arch.MaskEntries/2 {
			d.addSet(own)
			d.addSet(own | setOf(unix.SIGKILL) | setOf(unix.SIGSTOP)) // which a set may have, and no mask
		}
	}
	return nil
}

// addSet makes an entry of the table, if set has none and there is room. Threads look there meanwhile: see arch.MaskTable.
func (d *domain) addSet(set ptrace.Sigset) (cell arch.Addr) {
	n := slices.Index(d.sets, set)
	if n >= 0 {
		return d.setTable.Cell(n)
	}
	n = len(d.sets)
	if n == arch.MaskEntries {
		d.putWord(d.setTable.Closed(), 1)
		return 0
	}
	instead, ok := set.Unforced()
	if !ok || !d.noteUnblocked(set) {
		instead = set
	}
	before := ptrace.Sigset(0)
	if n > 0 {
		before = d.sets[n-1]
	}
	d.putWord(d.setTable.Cell(n), uint64(instead))
	d.putWord(d.setTable.Difference(n), uint64(before-set))
	d.sets = append(d.sets, set)
	return d.setTable.Cell(n)
}

// noteUnblocked notes, for a recovery, that threads are about to block all of set
// except the signals that breakpoints raise. It is false if that can't be noted: then
// they must not. Who blocks all signals is known without a note
// (ptrace.Space.Unblocked).
func (d *domain) noteUnblocked(set ptrace.Sigset) bool {
	set &^= setOf(unix.SIGKILL) | setOf(unix.SIGSTOP)
	if set.Full() || slices.Contains(d.guard.noted, set) {
		return true
	}
	if d.region.NoteUnblocked(len(d.guard.noted), uint64(set)) != nil {
		return false
	}
	d.guard.noted = append(d.guard.noted, set)
	return true
}

// putWord is one store, which threads of the target see whole.
func (d *domain) putWord(at arch.Addr, v uint64) {
	atomic.StoreUint64((*uint64)(unsafe.Pointer(&d.mem[at-arch.Addr(d.setTable)])), v)
}

// maskCall is called for a thread at a breakpoint of det's tail: it passes a set with SIGTRAP that is new.
func (d *domain) maskCall(det *detour, regs arch.Regs) {
	regs.SetIP(det.End)
	set := make([]byte, setLen)
	passed, _ := host.Masks.MaskPointers(regs)
	if d.mem == nil || d.space.ReadMemory(passed, set) != nil {
		return
	}
	if cell := d.addSet(ptrace.Sigset(binary.LittleEndian.Uint64(set))); cell != 0 {
		host.Masks.PassMask(regs, cell)
	}
}

// addCell puts a set that is constant into the target.
func (d *domain) addCell(set ptrace.Sigset) (arch.Addr, error) {
	if int(d.maskCells.End-arch.Addr(d.setTable))+setLen > len(d.mem) {
		return 0, errors.New("too many sets of signals")
	}
	d.putWord(d.maskCells.End, uint64(set))
	d.maskCells.End += setLen
	return d.maskCells.End - setLen, nil
}

// constantCell is where the set stands that is to be blocked in place of the constant at p.
func (d *domain) constantCell(p arch.Addr) (arch.Addr, error) {
	for cell, own := range d.constant {
		if own == p {
			return cell, nil
		}
	}
	cell, err := d.addCell(d.constantSet(p))
	if err == nil {
		d.constant[cell] = p
	}
	return cell, err
}

// giveBackMasks handles stopped threads: if one is about to pass one of our sets, it
// passes its own again, and it blocks the signals that it believes to block.
func (d *domain) giveBackMasks() {
	if d.maskCells.Len() == 0 {
		return
	}
	d.space.Unblocked(slices.DeleteFunc(slices.Clone(d.sets), func(s ptrace.Sigset) bool {
		_, changed := s.Unforced()
		return !changed
	})...)
	for _, th := range d.space.Threads() {
		regs, err := th.Regs()
		if !th.Stopped() || err != nil {
			continue
		}
		// rt_sigaction may go on reading the action only: it sets the one that the guard is about to leave behind.
		if passed, own := host.Masks.MaskPointers(regs); d.maskCells.Contains(passed) {
			if constant := d.constant[passed]; constant != 0 {
				own = constant
			}
			if d.constant[passed] != 0 || d.beforeCall(regs) {
				host.Masks.SetMaskPointer(regs, own)
			}
		}
	}
}

// beforeCall tells whether a thread is in front of a system call.
func (d *domain) beforeCall(regs arch.Regs) bool { return inFrontOfCall(d.space, regs) }

func inFrontOfCall(mem arch.Memory, regs arch.Regs) bool {
	call := host.Arch.SyscallInsn()
	b := make([]byte, len(call))
	return mem.ReadMemory(regs.IP(), b) == nil && bytes.Equal(b, call)
}
