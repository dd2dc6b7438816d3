package patch

import (
	"errors"
	"fmt"

	"github.com/gokprobe/gokprobe/arch"
)

// oneStore is how many bytes of code change for all threads at once: see doc.go.
const oneStore = 1

// Frozen proves that no thread runs in an address space. More than one byte of its code
// is changed at once only with such a proof. The code that stops the threads hands it
// out.
type Frozen interface {
	// Holds is false when threads may run again.
	Holds() bool
}

// FrozenText is a Text in which no thread runs: its patches may be of any length. The
// methods that it inherits from Text are for patches of one byte.
type FrozenText struct {
	*Text
	proof Frozen
}

// While is t as long as f holds; afterwards errors match ErrRunning. Threads that stand inside a range that is
// changed, or will return into it, are the caller's to think of.
func (t *Text) While(f Frozen) FrozenText { return FrozenText{t, f} }

func (t FrozenText) holds() error { return holds(t.proof) }

func holds(f Frozen) error {
	if f == nil || !f.Holds() {
		return fmt.Errorf("changing code: %w", ErrRunning)
	}
	return nil
}

// InstallAll is Text.InstallAll.
func (t FrozenText) InstallAll(wants []Want) ([]*Patch, error) {
	if err := t.holds(); err != nil {
		return nil, err
	}
	return t.installAll(wants)
}

// Remove is Text.Remove.
func (t FrozenText) Remove(p *Patch) error {
	if err := t.holds(); err != nil {
		return err
	}
	return t.remove(p)
}

// DisarmAll is Text.DisarmAll.
func (t FrozenText) DisarmAll(ps []*Patch) {
	if t.holds() == nil {
		t.disarmAll(ps)
	}
}

// RestoreAll removes every patch, the newest first. Patches for which last reports true
// come behind the others; last may be nil. RestoreAll goes on after an error and
// returns all errors joined. Patches that could not be removed stay known.
func (t FrozenText) RestoreAll(last func(*Patch) bool) error {
	if err := t.holds(); err != nil {
		return err
	}
	var first, then []*Patch
	for _, p := range t.newestFirst() {
		if last != nil && last(p) {
			then = append(then, p)
		} else {
			first = append(first, p)
		}
	}
	return errors.Join(t.removeAll(first), t.removeAll(then))
}

func (t *Text) removeAll(ps []*Patch) error {
	t.disarmAll(ps)
	var errs []error
	for _, p := range ps {
		errs = append(errs, t.remove(p))
	}
	return errors.Join(errs...)
}

// alone makes sure that changing p is a single store, or none.
func (p *Patch) alone() error {
	if len(p.original) > oneStore && (p.armed || p.torn) {
		return p.long()
	}
	return nil
}

// long is the error of changing p while threads run.
func (p *Patch) long() error { return long(p.at, len(p.original)) }

func long(at arch.Addr, n int) error {
	return fmt.Errorf("%d bytes of code at %s: %w", n, at, ErrRunning)
}
