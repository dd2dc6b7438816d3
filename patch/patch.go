package patch

import (
	"bytes"
	"fmt"

	"github.com/gokprobe/gokprobe/arch"
)

// Journal keeps the original bytes where they survive the tracer. A nil Journal
// is allowed and records nothing. trampoline's journal is one.
type Journal interface {
	// Record notes that the bytes at at, now original, are about to become
	// replacement. It must be complete when it returns.
	Record(at arch.Addr, original, replacement []byte) (id int, err error)
	// Erase forgets the record.
	Erase(id int) error
}

// Patch is one changed range of code. It belongs to the Text that installed it.
type Patch struct {
	at          arch.Addr
	original    []byte
	replacement []byte
	behind      []byte // the program's, that the replacement stands for, too
	armed       bool
	torn        bool   // memory may show any mixture of original and replacement
	shared      bool   // somebody else's breakpoint stood there already: it is not ours to take away
	seq         uint64 // order of installation
	record      int    // the journal's id
	recorded    bool
}

// Addr is the address of the first byte.
func (p *Patch) Addr() arch.Addr { return p.at }

// Range is the bytes that the patch owns, armed or not.
func (p *Patch) Range() arch.Range {
	return arch.Range{Start: p.at, End: p.at + arch.Addr(len(p.original))}
}

// Original returns a copy of the bytes that stood there before.
func (p *Patch) Original() []byte { return bytes.Clone(p.original) }

// Replacement returns a copy of the bytes that an armed patch shows.
func (p *Patch) Replacement() []byte { return bytes.Clone(p.replacement) }

// Armed reports whether memory shows the replacement.
func (p *Patch) Armed() bool { return p.armed }

// Shared reports whether somebody else's breakpoint stands in p's place: a uprobe's, which then has the hits, or one that a debugger
// has left. It stays when p goes.
func (p *Patch) Shared() bool { return p.shared }

// String prints the patch as address, original and replacement in hexadecimal.
func (p *Patch) String() string {
	return fmt.Sprintf("%s: % x -> % x", p.at, p.original, p.replacement)
}

func (p *Patch) entry() Entry {
	return Entry{At: p.at, Original: p.original, Replacement: p.replacement}
}

// shown is what memory shows if nobody interfered and no write was torn.
func (p *Patch) shown() []byte {
	if p.armed {
		return p.replacement
	}
	return p.original
}

// changed makes the error for memory that shows got instead of want.
func changed(at arch.Addr, got, want []byte) error {
	return fmt.Errorf("code at %s is % x instead of % x: %w", at, got, want, ErrChanged)
}

// mixture reports whether every byte of got is a's or b's at its place, as after a
// write of one over the other that stopped half-way.
func mixture(got, a, b []byte) bool {
	for i, c := range got {
		if c != a[i] && c != b[i] {
			return false
		}
	}
	return true
}
