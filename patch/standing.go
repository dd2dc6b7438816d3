package patch

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/gokprobe/gokprobe/arch"
)

// # Neighbours
//
// Others write into the same code while we do, without a word: the kernel for its uprobes (perf, bpftrace, eBPF
// agents, SystemTap), a debugger, the program itself. What a uprobe does was read in kernel/events/uprobes.c and
// arch/x86/kernel/uprobes.c of Linux 6.18, and measured:
//
//   - Registering stores a breakpoint over one byte, in each address space that maps that place of the file and that the
//     uprobe's owner asks for, and in each that maps it later. Where a breakpoint stands already, ours for example, nothing is
//     written, and the uprobe takes it for its own (verify_opcode).
//   - Unregistering stores the *file's* byte, if a breakpoint stands there, whoever's it is; else nothing.
//   - Whoever comes to a breakpoint where there is a uprobe at that place of the file is the kernel's: the handler runs, a copy of the
//     file's instruction is executed elsewhere, nobody gets a SIGTRAP. So a breakpoint of ours has no hits while a uprobe stands
//     there too. A thread is never seen in that copy: signals and ptrace's stops wait until it has been executed.
//   - A uprobe of another process's alone does the same at its first hit in this one, and then takes the breakpoint away.
//   - On a nop of five bytes (USDT probes) the breakpoint becomes, at the first hit, a call into the mapping
//     [uprobes-trampoline], and the nop when it goes; if the call's first byte was written over, its tail stays.
//
// So the bytes of a jump of ours become one by one, at any time: a breakpoint, then what the file has. Each of them tells what it
// is, and Classify puts them together. What is ours of such a mixture is taken back byte by byte: a foreign breakpoint is never
// written, since its owner may take it away at the same moment, and then nobody would know of it.

// Standing is what stands in memory where a patch was or is to be.
type Standing uint8

// What can stand there.
const (
	Clean   Standing = iota // the program's code: nothing of ours, nothing of anybody else
	Ours                    // the replacement, whole
	Covered                 // the replacement, and foreign breakpoints in it: somebody came
	Torn                    // parts of the replacement among the program's code: somebody came and went, or a write stopped half-way
	Watched                 // the program's code, and foreign breakpoints in it; nothing of ours
	Foreign                 // other code, among which bytes of ours may be: see Judge
	Stale                   // the replacement, whole, but the program has changed what it stands for
)

var standings = [...]string{"the program's code", "ours", "ours with a foreign breakpoint", "a part of ours", "the program's code with a foreign breakpoint", "other code", "ours, in front of other code"}

func (s Standing) String() string {
	if int(s) >= len(standings) {
		return fmt.Sprintf("standing %d", uint8(s))
	}
	return standings[s]
}

// Left tells whether bytes of ours stand there that are none of the program's.
func (s Standing) Left() bool { return s == Ours || s == Covered || s == Torn || s == Stale }

// Classify tells from the program's own code, what we wrote over it and what stands there now, all of the same length, what that is.
// trap is a breakpoint, of one byte if others can write one over code; with any other length there are no foreign ones.
func Classify(original, replacement, now, trap []byte) Standing {
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

// without is what is to stand in place of now when nothing of ours does: foreign breakpoints stay.
func without(original, replacement, now []byte) []byte {
	want := bytes.Clone(original)
	for i, b := range now {
		if b != replacement[i] && b != original[i] {
			want[i] = b
		}
	}
	return want
}

// Beside tells t what others may do to the code: j judges that, and undisturbed replaces, in bytes that were read
// from an address, what others have put in place of the program's code by what the mapped file has there. It may be nil.
func (t *Text) Beside(j Judge, undisturbed func(at arch.Addr, b []byte)) {
	t.judge, t.undisturbed = j, undisturbed
}

// stands reads what stands at p.
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

// Disturbed looks at all armed patches, page by page, and returns those that others have changed.
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

// takeOut takes what is left of a patch out of memory, which shows now there. Only the bytes that are ours are written, and
// looked at again afterwards.
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
