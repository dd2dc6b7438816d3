package kprobes

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/ptrace"
)

// The sets of signals that tails have threads block (masksites.go), and the tails themselves.

// masks is what a domain knows of them.
type masks struct {
	searched map[maskKey]bool
	// unfinished are searched again when a process comes out of vfork(2). To try before would take long each time, with all threads stopped.
	unfinished []maskKey
	maskCells  arch.Range // sets for tails; the tracer has them at mem
	mem        []byte
	sets       []arch.MaskCell         // in cells, for sets from anywhere
	constant   map[arch.Addr]arch.Addr // the program's pointer, by the cell that is used in its place
	placing    bool
}

const maxSets = 64

// allSignals are the sets with all signals that libraries use: all 64, or without what they use themselves (32 to 34).
var allSignals = []ptrace.Sigset{^ptrace.Sigset(0), ^ptrace.Sigset(1 << 31), ^ptrace.Sigset(1 << 32), ^ptrace.Sigset(3 << 31), ^ptrace.Sigset(7 << 31)}

// tailed is a body with the tail of a maskSite.
type tailed struct {
	arch.Body
	tail func(arch.Addr) arch.TailCode
}

func (t tailed) Tail(at arch.Addr) arch.TailCode { return t.tail(at) }

// withTail adds the tail of a call to a body.
func (d *domain) withTail(c *maskSite, body arch.Body) (arch.Body, error) {
	if c.number == unix.SYS_RT_SIGACTION {
		return tailed{body, hostMasks.ActionTail(int(unix.SIGTRAP))}, nil
	}
	if err := d.makeMaskCells(c.at); err != nil {
		return nil, err
	}
	w := arch.MaskWork{Cells: d.sets}
	if c.known != 0 {
		var err error
		if w.Known, err = d.constantCell(c.known); err != nil {
			return nil, err
		}
	}
	return tailed{body, hostMasks.MaskTail(w)}, nil
}

// makeMaskCells makes sure of memory for sets.
func (d *domain) makeMaskCells(near arch.Addr) error {
	if d.mem != nil {
		return nil
	}
	at, mem, err := d.newCells(near, maxSets*setLen)
	if err != nil {
		return err
	}
	d.maskCells, d.mem, d.constant = arch.Range{Start: at, End: at}, mem, map[arch.Addr]arch.Addr{}
	sets := slices.Clone(allSignals)
	for _, own := range d.space.Masks() {
		if _, ok := own.Unforced(); ok && !slices.Contains(sets, own) && len(sets) < maxSets/2 {
			sets = append(sets, own, own|setOf(unix.SIGKILL)|setOf(unix.SIGSTOP)) // which a set may have, and no mask
		}
	}
	for _, all := range sets {
		set, _ := all.Unforced()
		cell, err := d.addCell(set)
		if err != nil {
			return err
		}
		d.sets = append(d.sets, arch.MaskCell{Set: uint64(all), At: cell})
	}
	return nil
}

// addCell puts a set into the target.
func (d *domain) addCell(set ptrace.Sigset) (arch.Addr, error) {
	n := d.maskCells.Len()
	if n+setLen > uint64(len(d.mem)) {
		return 0, errors.New("too many sets of signals")
	}
	binary.LittleEndian.PutUint64(d.mem[n:], uint64(set))
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

// giveBackMasks has stopped threads that are about to pass one of our sets pass their own, and block what they believe to block.
func (d *domain) giveBackMasks() {
	if d.maskCells.Len() == 0 {
		return
	}
	sets := make([]ptrace.Sigset, len(d.sets))
	for i, c := range d.sets {
		sets[i] = ptrace.Sigset(c.Set)
	}
	d.space.Unblocked(sets...)
	for _, th := range d.space.Threads() {
		regs, err := th.Regs()
		if !th.Stopped() || err != nil {
			continue
		}
		// rt_sigaction may go on reading the action only: it sets the one that the guard is about to leave behind.
		if passed, own := hostMasks.MaskPointers(regs); d.maskCells.Contains(passed) {
			if constant := d.constant[passed]; constant != 0 {
				own = constant
			}
			if d.constant[passed] != 0 || d.beforeCall(regs) {
				hostMasks.SetMaskPointer(regs, own)
			}
		}
	}
}

// beforeCall tells whether a thread is in front of a system call.
func (d *domain) beforeCall(regs arch.Regs) bool { return inFrontOfCall(d.space, regs) }

func inFrontOfCall(mem arch.Memory, regs arch.Regs) bool {
	call := ptrace.Host.SyscallInsn()
	b := make([]byte, len(call))
	return mem.ReadMemory(regs.IP(), b) == nil && bytes.Equal(b, call)
}
