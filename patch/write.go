package patch

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/gokprobe/gokprobe/arch"
)

// Entry is one change to undo: a journal record, or a patch that a forked child
// inherited. Original and Replacement have the same length.
type Entry struct {
	At          arch.Addr
	Original    []byte
	Replacement []byte
}

// Restore puts the original bytes of entries back into mem, in the order given
// (the newest first). It needs no Text, so it serves whoever finds a journal
// and the copy of memory that a forked child has.
//
// Bytes that are the original already stay. So do bytes that are not ours: the
// error then matches ErrChanged. A half-written replacement is ours. Restore
// goes on after an error and returns all of them joined. An entry of more than
// one byte needs the target frozen, see the package comment.
func Restore(mem arch.Memory, entries []Entry) error {
	var errs []error
	for _, e := range entries {
		errs = append(errs, restore(mem, e))
	}
	return errors.Join(errs...)
}

func restore(mem arch.Memory, e Entry) error {
	if len(e.Original) == 0 || len(e.Original) != len(e.Replacement) {
		return fmt.Errorf("restoring %s: %w", e.At, ErrLength)
	}
	got := make([]byte, len(e.Original))
	if err := mem.ReadMemory(e.At, got); err != nil {
		return fmt.Errorf("restoring %s: %w", e.At, err)
	}
	switch {
	case bytes.Equal(got, e.Original):
		return nil
	case !mixture(got, e.Original, e.Replacement):
		return fmt.Errorf("restoring: %w", changed(e.At, got, e.Replacement))
	}
	if err := writeVerified(mem, e.At, e.Original, got); err != nil {
		return fmt.Errorf("restoring %s: %w", e.At, err)
	}
	return nil
}

// check compares memory at at with want.
func (t *Text) check(at arch.Addr, want []byte) error {
	got := make([]byte, len(want))
	if err := t.mem.ReadMemory(at, got); err != nil {
		return err
	}
	if !bytes.Equal(got, want) {
		return changed(at, got, want)
	}
	return nil
}

// poke makes memory show p's replacement or its original bytes. It refuses with
// ErrChanged if memory does not show what p left there. After a failed write it
// takes the write back; p is torn if that fails too.
func (t *Text) poke(p *Patch, arm bool) error {
	want, before := p.original, make([]byte, len(p.original))
	if arm {
		want = p.replacement
	}
	if err := t.mem.ReadMemory(p.at, before); err != nil {
		return err
	}
	if !bytes.Equal(before, p.shown()) && !(p.torn && mixture(before, p.original, p.replacement)) {
		p.torn = false
		return changed(p.at, before, p.shown())
	}
	err := writeVerified(t.mem, p.at, want, before)
	if err == nil {
		p.armed, p.torn = arm, false
		return nil
	}
	switch {
	case errors.Is(err, ErrTorn):
		p.torn = true
	case errors.Is(err, ErrChanged):
		p.torn = false
	}
	// Otherwise before is back, which may be as torn as it was.
	return err
}

// writeVerified writes want at at, which shows before, and reads it back. After a
// failure it puts before back as far as memory shows our bytes. The error matches
// ErrChanged if somebody else's bytes appeared meanwhile (they stay), ErrTorn
// if memory can't be shown to hold before again.
func writeVerified(mem arch.Memory, at arch.Addr, want, before []byte) error {
	got := make([]byte, len(want))
	err := mem.WriteMemory(at, want)
	if err == nil {
		err = mem.ReadMemory(at, got)
	}
	switch {
	case err == nil && bytes.Equal(got, want):
		return nil
	case err == nil && !mixture(got, want, before):
		return changed(at, got, want)
	case err == nil:
		err = fmt.Errorf("code at %s reads back as % x after writing % x", at, got, want)
	}
	if undo := takeBack(mem, at, want, before); undo != nil {
		return fmt.Errorf("%w; taking it back: %w: %w", err, ErrTorn, undo)
	}
	return err
}

// takeBack undoes a write of want over before that failed. What memory shows
// decides, not what the accesses say: there may be nothing to undo.
func takeBack(mem arch.Memory, at arch.Addr, want, before []byte) error {
	undo := mem.WriteMemory(at, before)
	got := make([]byte, len(want))
	if err := mem.ReadMemory(at, got); err != nil {
		return errors.Join(undo, err)
	}
	if bytes.Equal(got, before) {
		return nil
	}
	return errors.Join(undo, fmt.Errorf("code at %s is % x", at, got))
}
