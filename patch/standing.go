package patch

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/gokprobe/gokprobe/arch"
)

// # Neighbours
//
// Others write into the same code while we do, and do not tell us: the kernel for its
// uprobes (perf, bpftrace, eBPF agents, SystemTap), a debugger, the target itself. This
// is how a uprobe acts (kernel/events/uprobes.c and arch/x86/kernel/uprobes.c of Linux
// 6.18, confirmed by measurement):
//
//   - Registering stores a breakpoint over one byte, in each address space that the
//     uprobe's owner asks for and that maps that place of the file, now or later. If a
//     breakpoint stands there already, such as ours, nothing is written, and the uprobe
//     takes it for its own (verify_opcode).
//   - Unregistering stores the *file's* byte if any breakpoint stands there, even one
//     that is not the uprobe's; else nothing.
//   - When a thread hits a breakpoint at a place that has a uprobe, the kernel handles
//     it: the uprobe's handler runs, a copy of the file's instruction is executed
//     elsewhere, and nobody gets a SIGTRAP. So a breakpoint of ours has no hits while a
//     uprobe stands there too. A thread is never seen in that copy: signals and
//     ptrace's stops wait until it has been executed.
//   - A uprobe that was set for another process only does the same at its first hit in
//     this one, and then takes the breakpoint away.
//   - On a nop of five bytes (USDT probes) the first hit turns the breakpoint into a
//     call into the mapping [uprobes-trampoline]. When the uprobe goes, the nop comes
//     back; if the call's first byte was written over, its tail stays.
//
// So each byte of a jump of ours may become a breakpoint at any time, and then the
// file's byte. Each byte shows whose it is, and Classify combines them. Our bytes in
// such a mixture are taken back one by one. A foreign breakpoint is never written: its
// owner may take it away at the same moment, and then nobody would know of it.

// Standing tells whose bytes memory holds at the place of a patch.
type Standing uint8

// The kinds of Standing.
const (
	Clean   Standing = iota // the target's code: nothing of ours, nothing of anybody else
	Ours                    // the replacement, whole
	Covered                 // the replacement, and foreign breakpoints in it: somebody came
	Torn                    // parts of the replacement among the target's code: somebody came and went, or a write stopped half-way
	Watched                 // the target's code, and foreign breakpoints in it; nothing of ours
	Foreign                 // other code, perhaps with bytes of ours in it: see Judge
	Stale                   // the replacement, whole, but the target has changed the code that it replaces
)

var standings = [...]string{"the target's code", "ours", "ours with a foreign breakpoint", "a part of ours", "the target's code with a foreign breakpoint", "other code", "ours, in front of other code"}

func (s Standing) String() string {
	if int(s) >= len(standings) {
		return fmt.Sprintf("standing %d", uint8(s))
	}
	return standings[s]
}

// Left reports whether memory holds bytes of ours that the target's code does not have
// there.
func (s Standing) Left() bool { return s == Ours || s == Covered || s == Torn || s == Stale }

// Classify compares the bytes in memory now with the target's own code and with our
// replacement. All three have the same length. trap is a breakpoint of one byte, if
// others can write one over code; with any other length there are no foreign
// breakpoints.
func Classify(original, replacement, now, trap []byte) Standing {
	switch { // as it is nearly always
	case bytes.Equal(now, original):
		return Clean
	case bytes.Equal(now, replacement):
		return Ours
	}
	var ours, theirs, foreign int
	for i, b := range now {
		switch {
		case original[i] == replacement[i] && b == original[i]:
		case b == replacement[i]:
			ours++
		case b == original[i]:
			theirs++
		case len(trap) == 1 && b == trap[0]:
			foreign++
		default:
			return Foreign
		}
	}
	switch {
	case ours == 0 && foreign == 0:
		return Clean
	case ours == 0:
		return Watched
	case theirs > 0:
		return Torn
	case foreign > 0:
		return Covered
	}
	return Ours
}

// without returns now without our bytes: the original with the foreign breakpoints that
// now has.
func without(original, replacement, now []byte) []byte {
	want := bytes.Clone(original)
	for i, b := range now {
		if b != replacement[i] && b != original[i] {
			want[i] = b
		}
	}
	return want
}

// Beside prepares t for others who write into the same code. j judges what they wrote.
// undisturbed, which may be nil, gets bytes that were read from an address, and
// replaces those that others wrote by the mapped file's.
func (t *Text) Beside(j Judge, undisturbed func(at arch.Addr, b []byte)) {
	t.judge, t.undisturbed = j, undisturbed
}

// stands reads the bytes in memory at p and classifies them.
func (t *Text) stands(p *Patch) ([]byte, Standing, error) {
	now := make([]byte, len(p.original))
	if err := t.mem.ReadMemory(p.at, now); err != nil {
		return nil, Foreign, err
	}
	return now, Classify(p.original, p.replacement, now, t.judge.Trap), nil
}

// Disturbance is an armed patch that memory does not show any more.
type Disturbance struct {
	*Patch
	Standing Standing
}

// Disturbed reads all armed patches, page by page, and returns the ones that others
// have changed.
func (t *Text) Disturbed() []Disturbance {
	var armed []change
	for _, p := range t.patches.sorted() {
		if p.armed {
			armed = append(armed, change{p, slices.Concat(p.replacement, p.behind)})
		}
	}
	var all []Disturbance
	_ = t.pages(armed, func(run []change, start arch.Addr, b []byte) error {
		for _, c := range run {
			now := b[c.at-start:][:len(c.replacement)]
			switch {
			case !bytes.Equal(now, c.replacement):
				all = append(all, Disturbance{c.Patch, Classify(c.original, c.replacement, now, t.judge.Trap)})
			case !beneath(c.behind, b[c.at-start:][len(c.replacement):len(c.expect)], t.judge.Trap):
				all = append(all, Disturbance{c.Patch, Stale})
			}
		}
		return nil
	})
	return all
}

// takeOut removes the remaining bytes of a patch from memory, which shows now there.
// Only the bytes that are ours are written, and looked at again afterwards.
func takeOut(mem arch.Memory, j Judge, e Entry, now []byte) error {
	const attempts = 8 // of others who change it meanwhile
	for range attempts {
		want, left := j.without(e, now)
		if !left && Classify(e.Original, e.Replacement, now, j.Trap) == Foreign {
			return nil
		}
		for i := 0; i < len(now); i++ {
			n := 0
			for i+n < len(now) && now[i+n] != want[i+n] {
				n++
			}
			if n == 0 {
				continue
			}
			if err := mem.WriteMemory(e.At+arch.Addr(i), want[i:i+n]); err != nil {
				return err
			}
			i += n
		}
		if err := mem.ReadMemory(e.At, now); err != nil {
			return err
		}
		if _, left := j.without(e, now); !left {
			return nil
		}
	}
	return fmt.Errorf("code at %s is % x after writing % x", e.At, now, e.Original)
}
