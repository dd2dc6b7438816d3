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
	d        *domain
	searched map[mappingKey]bool
	keys     map[mappingKey]codeKey // of the code that was searched here, and in the parent
	// unfinished are searched again when a process comes out of vfork(2). To try before would take long each time, with all threads stopped.
	unfinished []mappingKey
	maskCells  arch.Range     // sets for tails, and in front of them the table; the tracer has it all at mem
	setTable   arch.MaskTable // for sets from anywhere
	tableTail  tableTail      // of calls that take sets from anywhere, once there is one
	mem        []byte
	sets       []ptrace.Sigset         // those of the table's entries
	constant   map[arch.Addr]arch.Addr // the program's pointer, by the cell that is used in its place
	placing    bool
	heldMasks  heldMasks
}

const maxConstants = 64 // sets

// allSignals lists the sets of all signals that libraries use: all 64, or without the
// ones for their own use (32 to 34).
var allSignals = []ptrace.Sigset{^ptrace.Sigset(0), ^ptrace.Sigset(1 << 31), ^ptrace.Sigset(1 << 32), ^ptrace.Sigset(3 << 31), ^ptrace.Sigset(7 << 31)}

// tailed is a body with the tail of a maskSite.
type tailed struct {
	arch.Body
	tail arch.TailCode
}

func (t tailed) Tail() arch.TailCode { return t.tail }

// tableTail is the tail of all calls that look into one table.
type tableTail struct {
	Table arch.MaskTable
	arch.TailCode
}

// withTail adds the tail of a call to a body.
func (mk *masks) withTail(c *maskSite, body arch.Body) (arch.Body, error) {
	if c.Number == unix.SYS_RT_SIGACTION {
		return tailed{body, host.Masks.ActionTail(int(unix.SIGTRAP))}, nil
	}
	if err := mk.makeMaskCells(c.At); err != nil {
		return nil, err
	}
	w := arch.MaskWork{Table: mk.setTable}
	if c.known != 0 {
		var err error
		if w.Known, err = mk.constantCell(c.known); err != nil {
			return nil, err
		}
		return tailed{body, host.Masks.MaskTail(w)}, nil
	}
	if mk.tableTail.Table != mk.setTable || mk.tableTail.Code == nil {
		mk.tableTail = tableTail{mk.setTable, host.Masks.MaskTail(w)}
	}
	return tailed{body, mk.tableTail.TailCode}, nil
}

// makeMaskCells makes sure of memory for sets.
func (mk *masks) makeMaskCells(near arch.Addr) error {
	if mk.mem != nil {
		return nil
	}
	length := int(arch.MaskTable(0).End())
	at, mem, err := mk.d.region.Cells(near, length+maxConstants*setLen)
	if err != nil {
		return err
	}
	table := arch.MaskTable(at)
	mk.setTable, mk.mem, mk.constant = table, mem, map[arch.Addr]arch.Addr{}
	mk.maskCells = arch.Range{Start: table.Cell(0), End: table.End()}
	looked, less := mem[table.Looked()-at:], mem[table.Less()-at:]
	for low := range ptrace.Sigset(256) {
		if looked[low] = 0; low.Has(unix.SIGTRAP) {
			looked[low] = 1
		}
		less[low] = byte(low &^ (setOf(unix.SIGTRAP) | setOf(unix.SIGILL)))
	}
	for _, all := range allSignals {
		mk.addSet(all)
	}
	for _, own := range mk.d.space.Masks() {
		if _, ok := own.Unforced(); ok && len(mk.sets) < arch.MaskEntries/2 {
			mk.addSet(own)
			mk.addSet(own | setOf(unix.SIGKILL) | setOf(unix.SIGSTOP)) // which a set may have, and no mask
		}
	}
	return nil
}

// addSet makes an entry of the table, if set has none and there is room. Threads look there meanwhile: see arch.MaskTable.
func (mk *masks) addSet(set ptrace.Sigset) (cell arch.Addr) {
	n := slices.Index(mk.sets, set)
	if n >= 0 {
		return mk.setTable.Cell(n)
	}
	n = len(mk.sets)
	if n == arch.MaskEntries {
		mk.putWord(mk.setTable.Closed(), 1)
		return 0
	}
	instead, ok := set.Unforced()
	if !ok || !mk.d.guard.noteUnblocked(set) {
		instead = set
	}
	before := ptrace.Sigset(0)
	if n > 0 {
		before = mk.sets[n-1]
	}
	mk.putWord(mk.setTable.Cell(n), uint64(instead))
	mk.putWord(mk.setTable.Difference(n), uint64(before-set))
	mk.sets = append(mk.sets, set)
	return mk.setTable.Cell(n)
}

// noteUnblocked notes, for a recovery, that threads are about to block all of set
// except the signals that breakpoints raise. It is false if that can't be noted: then
// they must not. Who blocks all signals is known without a note
// (ptrace.Space.Unblocked).
func (g *guard) noteUnblocked(set ptrace.Sigset) bool {
	set &^= setOf(unix.SIGKILL) | setOf(unix.SIGSTOP)
	if set.Full() || slices.Contains(g.d.guard.noted, set) {
		return true
	}
	g.d.session.settled()
	if g.d.region.NoteUnblocked(len(g.d.guard.noted), uint64(set)) != nil {
		return false
	}
	g.d.guard.noted = append(g.d.guard.noted, set)
	return true
}

// putWord is one store, which threads of the target see whole.
func (mk *masks) putWord(at arch.Addr, v uint64) {
	atomic.StoreUint64((*uint64)(unsafe.Pointer(&mk.mem[at-arch.Addr(mk.setTable)])), v)
}

// maskCall is called for a thread at a breakpoint of det's tail: it passes a set with SIGTRAP that is new.
func (mk *masks) maskCall(det *detour, regs arch.Regs) {
	regs.SetIP(det.End)
	set := make([]byte, setLen)
	passed, _ := host.Masks.MaskPointers(regs)
	if mk.mem == nil || mk.d.space.ReadMemory(passed, set) != nil {
		return
	}
	if cell := mk.addSet(ptrace.Sigset(binary.LittleEndian.Uint64(set))); cell != 0 {
		host.Masks.PassMask(regs, cell)
	}
}

// addCell puts a set that is constant into the target.
func (mk *masks) addCell(set ptrace.Sigset) (arch.Addr, error) {
	if int(mk.maskCells.End-arch.Addr(mk.setTable))+setLen > len(mk.mem) {
		return 0, errors.New("too many sets of signals")
	}
	mk.putWord(mk.maskCells.End, uint64(set))
	mk.maskCells.End += setLen
	return mk.maskCells.End - setLen, nil
}

// constantCell is where the set stands that is to be blocked in place of the constant at p.
func (mk *masks) constantCell(p arch.Addr) (arch.Addr, error) {
	for cell, own := range mk.constant {
		if own == p {
			return cell, nil
		}
	}
	cell, err := mk.addCell(mk.constantSet(p))
	if err == nil {
		mk.constant[cell] = p
	}
	return cell, err
}

// giveBackMasks handles stopped threads: if one is about to pass one of our sets, it
// passes its own again, and it blocks the signals that it believes to block.
func (mk *masks) giveBackMasks(frozen *ptrace.Frozen) {
	if mk.maskCells.Len() == 0 {
		return
	}
	mk.d.space.Unblocked(frozen, slices.DeleteFunc(slices.Clone(mk.sets), func(s ptrace.Sigset) bool {
		_, changed := s.Unforced()
		return !changed
	})...)
	for _, th := range mk.d.space.Threads() {
		regs, err := th.Regs()
		if !th.Stopped() || err != nil {
			continue
		}
		// rt_sigaction may go on reading the action only: it sets the one that the guard is about to leave behind.
		if passed, own := host.Masks.MaskPointers(regs); mk.maskCells.Contains(passed) {
			if constant := mk.constant[passed]; constant != 0 {
				own = constant
			}
			if mk.constant[passed] != 0 || mk.beforeCall(regs) {
				host.Masks.SetMaskPointer(regs, own)
			}
		}
	}
}

// beforeCall tells whether a thread is in front of a system call.
func (mk *masks) beforeCall(regs arch.Regs) bool { return inFrontOfCall(mk.d.space, regs) }

func inFrontOfCall(mem arch.Memory, regs arch.Regs) bool {
	call := host.Arch.SyscallInsn()
	b := make([]byte, len(call))
	return mem.ReadMemory(regs.IP(), b) == nil && bytes.Equal(b, call)
}
